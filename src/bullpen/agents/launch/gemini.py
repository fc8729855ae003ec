"""Gemini CLI: a home of its own for one run, in which all is the user's but one extension.

Gemini CLI takes hooks and servers from files only: those of the user, of the project, and of the
system, which must belong to root. But it can be told another home (`GEMINI_CLI_HOME`). In ours
everything is a link to what is in the user's, so that whatever it writes goes there; only the
directory of extensions is ours, with links to the user's own beside one with our hooks and our
server. An extension cannot allow its own tools; a policy on the command line can.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bullpen.agents.hooks import files as settings_files
from bullpen.agents.hooks.document import Document
from bullpen.agents.hooks.errors import HooksError
from bullpen.agents.launch import ours, plain
from bullpen.agents.launch.arguments import has
from bullpen.agents.launch.environment import environment_of, identity_of
from bullpen.agents.launch.files import write, write_json
from bullpen.agents.launch.ours import SERVER, hooks_for
from bullpen.agents.launching import Given, LaunchPlan
from bullpen.api.runtime import make_private

__all__ = ["linked_names", "plan", "policies"]

SUBCOMMANDS = "mcp extensions extension skills skill hooks hook gemma"
HOME = "GEMINI_CLI_HOME"
TRUSTED = "GEMINI_CLI_TRUSTED_FOLDERS_PATH"
DIRECTORY = ".gemini"
EXTENSIONS = "extensions"
OF_THE_USER = "bullpen-user"
"""In a home of ours: a link to the user's, by which an agent inside an agent finds it."""

DIRECTORIES = ("tmp", "history")
"""What Gemini CLI makes when it is first used; they cannot be made through a link."""
FILES = (
    "settings.json",
    "oauth_creds.json",
    "google_accounts.json",
    "gemini-credentials.json",
    "mcp-oauth-tokens.json",
    "installation_id",
    "state.json",
    "keybindings.json",
    "GEMINI.md",
)
"""What it may write for the first time, which goes through a link that leads nowhere yet."""
MOST_LINKS = 5000  # of a home with more we make no copy

POLICY = f"""\
[[rule]]
mcpName = "{SERVER}"
toolName = "*"
decision = "allow"
priority = 500
"""


def plan(given: Given) -> LaunchPlan:
    """Return how to start the Gemini CLI."""
    if plain.is_subcommand(given, SUBCOMMANDS):
        return plain.plan(given)
    environment = environment_of(given, user_id=os.getuid())
    home = _home_of_the_user(environment)
    settings = [_read(each / DIRECTORY / "settings.json") for each in (home, given.cwd)]
    if why := _why_plain(given, environment, home, settings):
        return plain.plan(given, note=why)
    private = given.directory / "gemini"
    _make_home(private, home)
    _make_extension(private / DIRECTORY / EXTENSIONS / SERVER, given, environment)
    environment[HOME] = str(private)
    environment.setdefault(TRUSTED, str(home / DIRECTORY / "trustedFolders.json"))
    policy = write(given.directory / "gemini-policy.toml", POLICY)
    arguments = plain.arguments_of(given)
    theirs = [] if has(arguments, "--policy") else policies(settings, home)
    options = [word for each in (str(policy), *theirs) for word in ("--policy", each)]
    return LaunchPlan(
        # Behind the user's own: the option takes every word up to the next.
        command=(*given.profile.command, *_before_end(arguments, options)),
        environment=environment,
        doors={"hooks": True, "mcp": True},
    )


def policies(settings: Iterable[Mapping[str, Any]], home: Path) -> list[str]:
    """Return the policies that hold if nothing is said on the command line."""
    named = [path for each in settings for path in each.get("policyPaths") or ()]
    return [str(path) for path in named] or [str(home / DIRECTORY / "policies")]


def linked_names(present: Iterable[str]) -> list[str]:
    """Return what in the user's directory is to be linked to, given what is there."""
    return sorted((set(present) | set(FILES)) - {EXTENSIONS})


def _before_end(arguments: Sequence[str], options: Sequence[str]) -> tuple[str, ...]:
    """Put options behind the others, but before the words that are none."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return (*arguments[:end], *options, *arguments[end:])


# ----------------------------------------------------------------------------------- whether at all


def _why_plain(
    given: Given, environment: Mapping[str, str], home: Path, settings: Iterable[Mapping[str, Any]]
) -> str:
    """Return why it is better left with the home it has, if that is so."""
    arguments = plain.arguments_of(given)
    directory = home / DIRECTORY
    sandboxes = [environment.get("GEMINI_SANDBOX", ""), *map(_sandbox, settings)]
    if not all((directory / each).is_dir() for each in DIRECTORIES):
        return "Gemini CLI was not used here before; the next run of it can be told of more"
    if given.cwd.resolve() == home.resolve():
        return "Gemini CLI is run in the home directory, where it would read its settings twice"
    if has(arguments, "-s", "--sandbox") or any(each not in ("", "false") for each in sandboxes):
        return "Gemini CLI in a sandbox does not see the files of a run"
    if has(arguments, "-e", "--extensions") or (directory / EXTENSIONS / SERVER).exists():
        return f"extensions are chosen by hand, or one is called {SERVER}"
    if sum(1 for _ in _entries(home)) > MOST_LINKS:
        return f"there are more than {MOST_LINKS} files in {home}"
    return ""


def _sandbox(settings: Mapping[str, Any]) -> str:
    tools = settings.get("tools")
    said = tools.get("sandbox") if isinstance(tools, dict) else None
    return str(said or settings.get("sandbox") or "").lower()


def _read(path: Path) -> dict[str, Any]:
    """Return the settings in a file; nothing if there are none that can be read."""
    try:
        text = settings_files.read(path)
        document = Document((text or "{}").removeprefix(settings_files.MARK), comments=True)
    except HooksError:
        return {}
    loaded: dict[str, Any] = document.load(document.root)
    return loaded


def _home_of_the_user(environment: Mapping[str, str]) -> Path:
    home = Path(environment.get(HOME) or environment.get("HOME") or Path.home())
    link = home / OF_THE_USER
    return link.readlink() if link.is_symlink() else home


# --------------------------------------------------------------------------------------- the home


def _make_home(private: Path, home: Path) -> None:
    """Make a home in which everything is the user's but the directory of extensions."""
    extensions = private / DIRECTORY / EXTENSIONS
    make_private(extensions)
    (private / OF_THE_USER).symlink_to(home)
    for entry in _entries(home):
        if entry.name != DIRECTORY:
            (private / entry.name).symlink_to(entry)
    theirs = home / DIRECTORY
    for name in linked_names(entry.name for entry in _entries(theirs)):
        (private / DIRECTORY / name).symlink_to(theirs / name)
    for entry in _entries(theirs / EXTENSIONS):
        (extensions / entry.name).symlink_to(entry)


def _entries(directory: Path) -> Iterator[Path]:
    try:
        yield from directory.iterdir()
    except OSError:  # there is none
        return


def _make_extension(path: Path, given: Given, environment: Mapping[str, str]) -> None:
    program, *arguments = ours.MCP_COMMAND
    # It passes no variable on whose name looks like that of a secret, unless it is named; values
    # are taken from its environment.
    passed = {name: f"${name}" for name in identity_of(given, environment)}
    server = {"command": program, "args": arguments, "env": passed}
    described = {"name": SERVER, "version": "1.0.0", "mcpServers": {SERVER: server}}
    write_json(path / "gemini-extension.json", described)
    write_json(path / "hooks" / "hooks.json", {"hooks": hooks_for(given)})
