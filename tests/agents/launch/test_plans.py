"""A plan adds what is ours; what the user has configured and wants holds as well."""

import json
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bullpen.agents.hooks import Scope, install
from bullpen.agents.hooks.programs import PROGRAMS
from bullpen.agents.launch import codex, opencode, plan_launch
from bullpen.agents.launch.arguments import has, pairs_of, values_of, without
from bullpen.agents.launching import Given, LaunchPlan
from bullpen.agents.profile import Profile
from bullpen.connection.transports.socket import MAX_UNIX_PATH_BYTES
from bullpen.model.states import Provider

pytestmark = pytest.mark.requirement("launch:plans")

REMOTE = "  --remote <ADDR>\n  Accepted forms: `ws://host:port`, `unix://PATH`"
AGENTS = (
    Provider.CLAUDE,
    Provider.CODEX,
    Provider.COPILOT,
    Provider.GEMINI,
    Provider.OPENCODE,
)
every_agent = pytest.mark.parametrize("provider", AGENTS, ids=str)


@pytest.fixture
def directory(home: Path) -> Path:
    """Make what a user of each program has, and a directory for the run."""
    for each in ("tmp", "history"):
        (home / ".gemini" / each).mkdir(parents=True)
    (home / "project").mkdir()
    return home / "one"


def given(
    provider: Provider,
    directory: Path,
    *arguments: str,
    command: Sequence[str] | None = None,
    args: Sequence[str] = (),
    env: dict[str, str] | None = None,
    **environment: str,
) -> Given:
    """Return what is known of a run of a program that says it knows `--remote`."""
    says = (sys.executable, "-c", f"print({REMOTE!r})")
    program = says if provider is Provider.CODEX else (f"/opt/{provider}",)
    home = directory.parent
    return Given(
        profile=Profile(
            name=provider.value,
            command=tuple(command or program),
            idle_regex="",
            provider=provider,
            args=tuple(args),
            env=env or {},
        ),
        name="anna",
        secret="a-secret",
        directory=directory,
        daemon_socket=home / "run/bullpen/bullpend.sock",
        environment={
            "HOME": str(home),
            "PATH": os.environ["PATH"],
            "XDG_RUNTIME_DIR": str(home / "run"),
            **environment,
        },
        arguments=arguments,
        cwd=home / "project",
    )


def read(path: str | Path) -> Any:
    return json.loads(Path(path).read_text())


def option(plan: LaunchPlan, name: str) -> str:
    [value] = values_of(plan.command, name)
    return value


# ------------------------------------------------------------------------------------ every program


@pytest.mark.parametrize("provider", [*AGENTS, Provider.OTHER], ids=str)
def test_an_agent_knows_who_it_is_and_where_the_daemon_is(
    provider: Provider, directory: Path
) -> None:
    inside = {"BULLPEN_SECRET": "another", "CLAUDECODE": "1", "CLAUDE_CODE_SESSION_ID": "s1"}
    env = {"TERM": "xterm-256color", "COLOUR": "green"}
    known = given(provider, directory, "--mine", args=["--always"], env=env, **inside)
    plan = plan_launch(known)
    assert plan.environment["BULLPEN_SECRET"] == "a-secret"
    assert plan.environment["BULLPEN_AGENT"] == "anna"
    assert (plan.environment["TERM"], plan.environment["COLOUR"]) == ("xterm-256color", "green")
    assert not {"CLAUDECODE", "CLAUDE_CODE_SESSION_ID", "BULLPEN_SOCKET"} & set(plan.environment)
    assert plan.command[: len(known.profile.command)] == known.profile.command
    at = plan.command.index("--always")
    assert plan.command[at + 1] == "--mine"
    assert "a-secret" not in " ".join(plan.command)
    assert not any("a-secret" in word for each in plan.beside for word in each.command)


@pytest.mark.parametrize("provider", [*AGENTS, Provider.OTHER], ids=str)
def test_a_daemon_that_is_elsewhere_is_named(provider: Provider, directory: Path) -> None:
    known = given(provider, directory, XDG_RUNTIME_DIR="/run/user/1")
    plan = plan_launch(known)
    assert plan.environment["BULLPEN_SOCKET"] == str(known.daemon_socket)


def test_an_agent_without_a_secret_does_not_have_that_of_another(directory: Path) -> None:
    known = given(Provider.OTHER, directory, BULLPEN_SECRET="another")
    unknown = Given(**{**{f: getattr(known, f) for f in known.__struct_fields__}, "secret": ""})
    assert "BULLPEN_SECRET" not in plan_launch(unknown).environment


def test_a_program_nobody_knows_is_started_as_its_profile_says(directory: Path) -> None:
    plan = plan_launch(given(Provider.OTHER, directory, "x y", command=["a", "b"], args=["c"]))
    assert plan.command == ("a", "b", "c", "x y")
    assert (plan.beside, plan.doors, plan.note) == ((), {}, "")
    assert not directory.exists()


@every_agent
def test_what_is_not_the_agent_itself_is_left_alone(provider: Provider, directory: Path) -> None:
    plan = plan_launch(given(provider, directory, "mcp", "list"))
    assert plan.command[-2:] == ("mcp", "list")
    assert (plan.doors, plan.beside) == ({}, ())
    assert not directory.exists()


@every_agent
def test_nothing_is_written_but_into_the_directory_of_the_run(
    provider: Provider, directory: Path
) -> None:
    home = directory.parent
    before = sorted(home.rglob("*"))
    plan_launch(given(provider, directory))
    after = sorted(path for path in home.rglob("*") if not path.is_relative_to(directory))
    assert after == before


@every_agent
def test_what_is_written_is_for_nobody_else(provider: Provider, directory: Path) -> None:
    before = os.umask(0)
    try:
        plan_launch(given(provider, directory))
    finally:
        os.umask(before)
    for path in directory.rglob("*"):
        assert path.is_symlink() or not path.stat().st_mode & 0o077, path


@pytest.mark.parametrize("provider", [Provider.CLAUDE, Provider.COPILOT, Provider.GEMINI], ids=str)
def test_every_event_has_a_hook_and_none_has_two(provider: Provider, directory: Path) -> None:
    def hooked() -> dict[str, Any]:
        plan = plan_launch(given(provider, directory))
        match provider:
            case Provider.CLAUDE:
                return dict(read(option(plan, "--settings"))["hooks"])
            case Provider.COPILOT:
                return dict(read(Path(option(plan, "--plugin-dir")) / "hooks.json")["hooks"])
        extension = Path(plan.environment["GEMINI_CLI_HOME"], ".gemini/extensions/bullpen")
        return dict(read(extension / "hooks/hooks.json")["hooks"])

    hooks = hooked()
    assert set(hooks) == set(PROGRAMS[provider].events)
    assert all("shim.py" in json.dumps(each) for each in hooks.values())
    home = directory.parent
    install(provider, environment={"HOME": str(home)})
    assert "shim.py" not in json.dumps(rename_and(directory, hooked))
    install(provider, scope=Scope.PROJECT, project=home / "project")
    assert "shim.py" not in json.dumps(rename_and(directory, hooked))


def rename_and(directory: Path, then: Any) -> Any:
    """Do something in a directory that is new again."""
    directory.rename(directory.with_name(f"{directory.name}-{os.urandom(4).hex()}"))
    return then()


# -------------------------------------------------------------------------------------- Claude Code


def test_claude_code_gets_settings_that_end_the_list_of_servers(directory: Path) -> None:
    plan = plan_launch(given(Provider.CLAUDE, directory, "fix it"))
    assert [each.partition("=")[0] for each in plan.command[1::2]][:2] == [
        "--mcp-config",
        "--settings",
    ]
    assert plan.command[-1] == "fix it"
    [server] = read(option(plan, "--mcp-config"))["mcpServers"].items()
    assert server[0] == "bullpen"
    assert server[1]["env"]["BULLPEN_SECRET"] == "a-secret"
    settings = read(option(plan, "--settings"))
    assert settings["permissions"] == {"allow": ["mcp__bullpen"]}
    waking = {
        event
        for event, groups in settings["hooks"].items()
        for group in groups
        for hook in group["hooks"]
        if hook.get("asyncRewake")
    }
    assert waking == {"SessionStart", "UserPromptSubmit"}


MINE = {
    "model": "opus",
    "hooks": {"Stop": [{"hooks": [{"type": "command", "command": "mine"}]}]},
    "permissions": {"allow": ["Bash(ls)"], "deny": ["WebFetch"]},
}


@pytest.mark.parametrize("shape", ["file", "text", "equals", "relative", "twice"])
def test_the_users_own_settings_hold_beside_ours(shape: str, directory: Path) -> None:
    text = json.dumps(MINE)
    mine = directory.parent / "project/mine.json"
    mine.write_text(text)
    words = {
        "file": ["--settings", str(mine)],
        "text": ["--settings", text],
        "equals": [f"--settings={mine}"],
        "relative": ["--settings", "mine.json"],
        "twice": ["--settings", "{}", "--settings", str(mine)],
    }[shape]
    plan = plan_launch(given(Provider.CLAUDE, directory, "--verbose", *words, "fix it"))
    merged = read(option(plan, "--settings"))
    assert merged["model"] == "opus"
    assert merged["permissions"] == {"allow": ["Bash(ls)", "mcp__bullpen"], "deny": ["WebFetch"]}
    commands = [hook["command"] for group in merged["hooks"]["Stop"] for hook in group["hooks"]]
    assert commands[0] == "mine"
    assert len(commands) == 2
    assert plan.command[-2:] == ("--verbose", "fix it")


@pytest.mark.parametrize("value", ["/no/such/file", "{broken", "[1]"], ids=["no", "bad", "list"])
def test_settings_that_cannot_be_read_are_left_to_claude_code(value: str, directory: Path) -> None:
    plan = plan_launch(given(Provider.CLAUDE, directory, "--settings", value))
    assert plan.command == ("/opt/claude", "--settings", value)
    assert plan.doors == {}


@pytest.mark.parametrize(
    ("words", "doors"),
    [
        (["--settings", '{"disableAllHooks": true}'], {"mcp": True}),
        (["--bare"], {"mcp": True}),
        (["--safe-mode"], {}),
    ],
    ids=["settings", "bare", "safe"],
)
def test_what_the_user_has_turned_off_is_no_door(
    words: list[str], doors: dict[str, Any], directory: Path
) -> None:
    assert plan_launch(given(Provider.CLAUDE, directory, *words)).doors == doors


# -------------------------------------------------------------------------------------------- Codex


def test_codex_gets_a_server_and_both_get_what_the_user_sets(directory: Path) -> None:
    words = ("-c", "mcp_servers.mine.command=x", "--enable=web", "-m", "gpt", "resume", "--last")
    plan = plan_launch(given(Provider.CODEX, directory, *words))
    address = f"unix://{directory}/codex.sock"
    assert plan.doors == {"app_server": address, "mcp": True}
    assert plan.command[3:5] == ("--remote", address)
    assert plan.command[5:] == words
    [beside] = plan.beside
    assert beside.socket == directory / "codex.sock"
    assert beside.command[3:6] == ("app-server", "--listen", address)
    assert beside.command[-4:] == ("-c", "mcp_servers.mine.command=x", "--enable", "web")
    named = [each for each in beside.command if each.startswith("mcp_servers.bullpen.env_vars=")]
    assert "BULLPEN_SECRET" in named[0]
    assert "XDG_RUNTIME_DIR" in named[0]


@pytest.mark.parametrize(
    "command",
    [(sys.executable, "-c", "print('  --profile <P>')"), ("/no/such/codex",), ("false",)],
    ids=["older", "missing", "failing"],
)
def test_a_codex_that_knows_no_remote_is_started_as_it_is(
    command: tuple[str, ...], directory: Path
) -> None:
    plan = plan_launch(given(Provider.CODEX, directory, "hello", command=command))
    assert plan.command == (*command, "hello")
    assert (plan.doors, plan.beside) == ({}, ())
    assert "--remote" in plan.note


def test_a_codex_with_a_profile_is_given_the_tools_alone(directory: Path) -> None:
    plan = plan_launch(given(Provider.CODEX, directory, "-p", "mine"))
    assert (plan.doors, plan.beside) == ({"mcp": True}, ())
    assert plan.command[3:-2] == codex.server_options()
    assert "profile" in plan.note


def test_a_socket_whose_path_is_too_long_is_not_made(directory: Path) -> None:
    deep = directory / ("x" * MAX_UNIX_PATH_BYTES)
    plan = plan_launch(given(Provider.CODEX, deep))
    assert (plan.doors, plan.beside) == ({"mcp": True}, ())
    assert str(deep) in plan.note


def test_a_codex_of_somebody_elses_server_stays_there(directory: Path) -> None:
    plan = plan_launch(given(Provider.CODEX, directory, "--remote", "ws://127.0.0.1:4500"))
    assert plan.command[3:] == ("--remote", "ws://127.0.0.1:4500")
    assert plan.beside == ()


# --------------------------------------------------------------------------------------- Gemini CLI


def test_the_home_of_gemini_cli_is_the_users_but_for_one_extension(directory: Path) -> None:
    home = directory.parent
    (home / ".gemini/extensions/mine").mkdir(parents=True)
    (home / "notes.txt").write_text("mine")
    plan = plan_launch(given(Provider.GEMINI, directory))
    private = Path(plan.environment["GEMINI_CLI_HOME"])
    assert (private / "notes.txt").read_text() == "mine"
    names = {each.name for each in (private / ".gemini/extensions").iterdir()}
    assert names == {"mine", "bullpen"}
    (private / ".gemini/oauth_creds.json").write_text("signed in")  # for the first time
    (private / ".gemini/tmp/chat").mkdir()
    assert (home / ".gemini/oauth_creds.json").read_text() == "signed in"
    assert (home / ".gemini/tmp/chat").is_dir()
    server = read(private / ".gemini/extensions/bullpen/gemini-extension.json")["mcpServers"]
    assert server["bullpen"]["env"]["BULLPEN_SECRET"] == "$BULLPEN_SECRET"
    assert values_of(plan.command, "--policy")[1:] == [str(home / ".gemini/policies")]
    trusted = plan.environment["GEMINI_CLI_TRUSTED_FOLDERS_PATH"]
    assert trusted == str(home / ".gemini/trustedFolders.json")


def test_an_agent_inside_an_agent_has_the_users_home_too(directory: Path) -> None:
    outer = plan_launch(given(Provider.GEMINI, directory))
    inside = directory.with_name("two")
    around = outer.environment["GEMINI_CLI_HOME"]
    inner = plan_launch(given(Provider.GEMINI, inside, GEMINI_CLI_HOME=around))
    private = Path(inner.environment["GEMINI_CLI_HOME"])
    assert private.is_relative_to(inside)
    assert (private / "bullpen-user").readlink() == directory.parent
    assert (private / ".gemini/tmp").readlink() == directory.parent / ".gemini/tmp"


def test_policies_that_are_named_elsewhere_still_hold(directory: Path) -> None:
    settings = directory.parent / ".gemini/settings.json"
    settings.write_text('{"policyPaths": ["/etc/mine.toml"]} // mine')
    plan = plan_launch(given(Provider.GEMINI, directory, "-i", "hello"))
    assert values_of(plan.command, "--policy")[1:] == ["/etc/mine.toml"]
    assert plan.command[1:3] == ("-i", "hello")
    plan = rename_and(
        directory, lambda: plan_launch(given(Provider.GEMINI, directory, "--policy", "a"))
    )
    assert values_of(plan.command, "--policy")[0] == "a"
    assert len(values_of(plan.command, "--policy")) == 2


@pytest.mark.parametrize("why", ["unused", "home", "sandbox", "settings", "chosen", "taken"])
def test_gemini_cli_is_left_alone_where_it_would_lose_something(why: str, directory: Path) -> None:
    home = directory.parent
    words: tuple[str, ...] = ()
    cwd = home / "project"
    match why:
        case "unused":
            (home / ".gemini/tmp").rmdir()
        case "home":
            cwd = home
        case "sandbox":
            words = ("-s",)
        case "settings":
            (home / ".gemini/settings.json").write_text('{"tools": {"sandbox": "docker"}}')
        case "chosen":
            words = ("-e", "mine")
        case "taken":
            (home / ".gemini/extensions/bullpen").mkdir(parents=True)
    known = given(Provider.GEMINI, directory, *words)
    fields = {name: getattr(known, name) for name in known.__struct_fields__}
    plan = plan_launch(Given(**{**fields, "cwd": cwd}))
    assert plan.command == ("/opt/gemini", *words)
    assert plan.doors == {}
    assert plan.note
    assert "GEMINI_CLI_HOME" not in plan.environment


# ---------------------------------------------------------------------------------------- opencode


def test_opencode_serves_on_a_port_nobody_has_and_asks_for_a_password(directory: Path) -> None:
    plan = plan_launch(given(Provider.OPENCODE, directory))
    port = int(option(plan, "--port"))
    assert port in opencode.PORTS
    assert plan.doors["http"] == f"http://127.0.0.1:{port}"
    assert plan.doors["http_password"] == plan.environment["OPENCODE_SERVER_PASSWORD"]
    with socket.create_server(("127.0.0.1", port)):
        assert opencode.choose_port([port]) == 0
    assert opencode.choose_port([port]) == port


def test_opencode_serves_where_the_user_wants_it(directory: Path) -> None:
    words = ("--port=4096", "--hostname", "0.0.0.0")
    known = given(Provider.OPENCODE, directory, *words, OPENCODE_SERVER_PASSWORD="mine")
    plan = plan_launch(known)
    assert plan.doors["http"] == "http://127.0.0.1:4096"
    assert plan.doors["http_password"] == "mine"
    assert values_of(plan.command, "--hostname") == ["0.0.0.0"]
    assert values_of(plan.command, "--port") == ["4096"]


@pytest.mark.parametrize(
    ("config", "permission"),
    [
        ({}, {"bullpen_*": "allow"}),
        ({"permission": "ask"}, {"*": "ask", "bullpen_*": "allow"}),
        ({"permission": {"bash": "deny"}}, {"bash": "deny", "bullpen_*": "allow"}),
    ],
    ids=["nothing", "everything", "some"],
)
def test_the_users_own_configuration_holds_beside_ours(
    config: dict[str, Any], permission: dict[str, str]
) -> None:
    mine = {**config, "model": "m", "mcp": {"mine": {"type": "remote"}}}
    merged = json.loads(opencode.add_to_config(json.dumps(mine)))
    assert merged["permission"] == permission
    assert list(merged["permission"])[-1] == "bullpen_*"  # of those that match the last counts
    assert set(merged["mcp"]) == {"mine", "bullpen"}
    assert merged["model"] == "m"


def test_a_configuration_that_cannot_be_read_is_left_to_opencode(directory: Path) -> None:
    plan = plan_launch(given(Provider.OPENCODE, directory, OPENCODE_CONFIG_CONTENT="{broken"))
    assert plan.environment["OPENCODE_CONFIG_CONTENT"] == "{broken"
    assert (plan.command, plan.doors) == (("/opt/opencode",), {})
    assert "OPENCODE_CONFIG_CONTENT" in plan.note


# --------------------------------------------------------------------------------- the command line


def test_an_option_is_found_in_both_spellings_and_not_behind_the_end_of_options() -> None:
    words = ("-c", "a=1", "--config=b=2", "x", "-c", "c=3", "--", "-c", "d=4")
    assert values_of(words, "-c", "--config") == ["a=1", "b=2", "c=3"]
    assert pairs_of(words, "--config") == [("--config", "b=2")]
    assert without(words, "-c", "--config") == ("x", "--", "-c", "d=4")
    assert has(words, "--config")
    assert not has(words, "d=4", "x=1")
    assert values_of(("-c",), "-c") == []
    assert without(("-c",), "-c") == ()
    assert not has(("--", "-c"), "-c")
