"""The command line is quick to start, loads what it needs, and says clearly what is wrong."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from bullpen.cli.group import COMMANDS, bullpen, run
from bullpen.cli.wrapped import profile_names
from bullpen.model.version import VERSION

# Which need no daemon, and judge or write by themselves.
OFFLINE = {"evaluate", "hooks", "mcp", "replay"}

MODULES = """
import sys
sys.argv = ["bullpen", *{arguments!r}]
from bullpen.cli.main import main
try:
    code = main()
except SystemExit as exit_:
    code = exit_.code
print("\\n" + " ".join(sorted(sys.modules)))
sys.exit(code)
"""


def modules_after(*arguments: str) -> set[str]:
    program = MODULES.format(arguments=list(arguments))
    output = subprocess.run(
        [sys.executable, "-I", "-c", program], check=True, capture_output=True, text=True
    ).stdout
    return set(output.splitlines()[-1].split())


def test_the_version_is_the_packages() -> None:
    assert metadata.version("bullpen") == VERSION


@pytest.mark.requirement("cli:hot-path")
@pytest.mark.parametrize("option", ["--version", "-V"])
def test_the_version_is_answered_without_click_or_msgspec(option: str) -> None:
    loaded = modules_after(option)
    assert not loaded & {"click", "msgspec", "asyncio", "importlib.metadata", "re", "tomllib"}


@pytest.mark.requirement("cli:lazy")
def test_help_imports_no_command() -> None:
    loaded = modules_after("--help")
    assert not {f"bullpen.cli.{name}" for name in COMMANDS} & loaded
    assert "msgspec" not in loaded


@pytest.mark.requirement("cli:lazy")
def test_a_command_imports_no_other() -> None:
    loaded = modules_after("explain", "--file", os.devnull, "--cmd", "zsh")
    assert "bullpen.cli.explain" in loaded
    assert "bullpen.cli.evaluate" not in loaded
    assert not {"asyncio", "bullpen.connection"} & loaded


@pytest.mark.requirement("cli:lazy")
@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in OFFLINE])
def test_a_face_loads_nothing_of_what_the_daemon_is_made_of(name: str) -> None:
    loaded = modules_after(name, "--help")
    rooms = ("daemon", "observe", "store", "agents", "terminal", "tui", "testing")
    assert not [each for each in loaded if each.startswith(tuple(f"bullpen.{r}" for r in rooms))]
    assert "textual" not in loaded


def test_the_entry_point_is_installed() -> None:
    (script,) = metadata.entry_points(group="console_scripts", name="bullpen")
    assert script.value == "bullpen.cli.main:main"


def test_help_lists_every_command_in_its_own_words() -> None:
    output = CliRunner().invoke(bullpen, ["--help"]).output
    for name, words in COMMANDS.items():
        assert (f"  {name}  " in output) is bool(words)
        assert words in output


def every_command(
    command: click.Command = bullpen, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        names = COMMANDS if command is bullpen else command.list_commands(context)
        for name in names:
            below = command.get_command(context, name)
            assert below is not None
            yield from every_command(below, (*path, name))


EVERY_COMMAND = pytest.mark.parametrize(
    ("path", "command"),
    [pytest.param(path, command, id=" ".join(path)) for path, command in every_command()],
)


@pytest.mark.requirement("CLI-1", "TR-60")
@EVERY_COMMAND
def test_every_command_takes_the_socket_and_uses_s_for_nothing_else(
    path: tuple[str, ...], command: click.Command
) -> None:
    options = [each for each in command.params if "-s" in each.opts]
    assert [each.opts for each in options] == [["-s", "--socket-path"]]


@EVERY_COMMAND
def test_every_command_has_examples_and_exit_codes(
    path: tuple[str, ...], command: click.Command
) -> None:
    output = CliRunner().invoke(bullpen, [*path, "--help"]).output
    assert "Examples:\n" in output
    assert re.search(r"Exit\s+codes:", output)


@EVERY_COMMAND
def test_an_example_calls_a_command_that_is_there(
    path: tuple[str, ...], command: click.Command
) -> None:
    examples = (command.help or "").partition("Examples:")[2].partition("Exit codes:")[0]
    named = re.findall(r"\bbullpen ([a-z][a-z0-9-]*)", examples)
    assert [each for each in named if each not in {*COMMANDS, *profile_names()}] == []


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nonsense"], 2, "No such command 'nonsense'"),
        (["explain"], 2, "give an agent, a pane or --file"),
        (["explain", "claude-1", "--file", "-"], 2, "give an agent, a pane or --file"),
        (["explain", "claude-1", "--cmd", "claude"], 2, "that option is for --file"),
        (
            ["explain", "--file", "nowhere.txt"],
            1,
            "bullpen: nowhere.txt: No such file or directory",
        ),
        (["explain", "--file", "-", "--cursor", "here"], 2, "'here' is not X,Y"),
        (["explain", "--file", "-", "--provider", "hal"], 2, "'hal' is not one of"),
        (["explain", "--file", "-", "--cmd", "'"], 2, "No closing quotation"),
        (["evaluate", "nowhere"], 2, "Directory 'nowhere' does not exist"),
    ],
)
def test_what_is_wrong_is_said_in_one_line_and_by_the_exit_code(
    arguments: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == code
    captured = capsys.readouterr()
    assert message in captured.err
    assert not captured.out


def test_a_wrong_rule_file_is_named(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = home / ".config/bullpen/rules"
    directory.mkdir(parents=True)
    (directory / "mine.toml").write_text('provider = "claude"\n[[rules]]\nname = "a"\n')
    assert run(["explain", "--file", "-"]) == 1
    assert "mine.toml: rule 'a': " in capsys.readouterr().err
