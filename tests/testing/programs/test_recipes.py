"""Each recipe gives a command that asks nothing, knows no key and finds only our model server."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from bullpen.testing.programs import (
    API_KEY,
    MODEL,
    PROGRAMS,
    Launch,
    UnknownMode,
    UnknownProgram,
    copilot_provider,
    launch,
    modes,
)
from tests.testing.programs.fake_npm import write_script

URL = "http://127.0.0.1:4321"


class Desk:
    """A home, a project and an executable that is never started."""

    def __init__(self, root: Path) -> None:
        self.home = root / "home"
        self.project = root / "project"
        self.project.mkdir()
        self.executable = root / "installed" / "node_modules" / "program"

    def launch(self, name: str, mode: str, **options: Any) -> Launch:
        place: dict[str, Any] = {"home": self.home, "project": self.project, "model_url": URL}
        return launch(name, mode, executable=self.executable, **(place | options))

    def json(self, *path: str) -> Any:
        return json.loads(self.home.joinpath(*path).read_text())


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ("node", "npm"):
        write_script(tools / tool, "#!/bin/sh\necho v20.0.0\n")
    monkeypatch.setenv("PATH", str(tools))
    return Desk(tmp_path.resolve())


@pytest.mark.parametrize(
    ("name", "mode", "arguments"),
    [
        ("copilot", "stdio", "--headless --no-auto-update --no-auto-login --stdio"),
        ("copilot", "tcp", "--headless --no-auto-update --no-auto-login --port 0"),
        ("copilot", "acp", "--acp"),
        ("copilot", "prompt", "-p hello"),
        ("copilot", "tui", ""),
        ("copilot-0.0.420", "stdio", "--server --stdio --no-auto-update"),
        ("codex", "app-server", "app-server"),
        ("codex", "prompt", "exec --json --skip-git-repo-check hello"),
        ("codex", "tui", ""),
        ("claude", "prompt", "-p hello"),
        ("claude", "tui", ""),
        ("gemini", "acp", "--acp"),
        ("gemini", "prompt", "-p hello"),
        ("gemini", "tui", ""),
        ("opencode", "serve", "serve --hostname 127.0.0.1 --port 0"),
        ("opencode", "acp", "acp"),
        ("opencode", "prompt", "run hello"),
        ("opencode", "tui", ""),
    ],
)
def test_the_command_line(name: str, mode: str, arguments: str, desk: Desk) -> None:
    prompt = "hello" if mode == "prompt" else None
    command = desk.launch(name, mode, prompt=prompt)
    assert command.argv == (str(desk.executable), *arguments.split())
    assert command.cwd == desk.project
    assert mode in modes(name)


ALL = [(name, mode) for name in PROGRAMS for mode in modes(name)]


@pytest.mark.parametrize(("name", "mode"), ALL)
def test_it_is_private_and_offline_in_every_mode(
    name: str, mode: str, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "the developer's")
    monkeypatch.setenv("COPILOT_HOME", "the developer's")
    command = desk.launch(name, mode, prompt="hello" if mode == "prompt" else None)
    assert command.env["HOME"] == str(desk.home)
    assert command.env["HTTPS_PROXY"] == "http://127.0.0.1:9"
    assert "the developer's" not in command.env.values()
    keys = {value for variable, value in command.env.items() if variable.endswith("_KEY")}
    assert keys <= {API_KEY}
    assert desk.home.stat().st_mode & 0o777 == 0o700
    written = [path for path in desk.home.rglob("*") if path.is_file()]
    assert written
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in written)


def test_a_launch_cannot_be_changed(desk: Desk) -> None:
    command = desk.launch("codex", "tui")
    with pytest.raises(TypeError):
        command.env["HOME"] = "/"  # type: ignore[index]


def test_what_the_caller_adds_comes_last(desk: Desk) -> None:
    command = desk.launch(
        "claude",
        "prompt",
        prompt="hello there",
        arguments=("--output-format", "json"),
        variables={"IS_SANDBOX": "1", "CLAUDE_CODE_MAX_RETRIES": "0"},
    )
    assert command.argv[1:] == ("-p", "hello there", "--output-format", "json")
    assert command.env["IS_SANDBOX"] == "1"
    assert command.env["CLAUDE_CODE_MAX_RETRIES"] == "0"


def test_copilot_trusts_the_project_and_shares_what_it_unpacks(desk: Desk) -> None:
    command = desk.launch("copilot", "tui")
    assert desk.json(".copilot", "config.json") == {"trustedFolders": [str(desk.project)]}
    assert command.env["COPILOT_OFFLINE"] == "true"
    assert command.env["COPILOT_PROVIDER_BASE_URL"] == f"{URL}/v1"
    assert command.env["COPILOT_MODEL"] == MODEL
    shared = desk.executable.parents[1] / "unpacked" / ".cache"
    assert command.env["XDG_CACHE_HOME"] == str(shared)


def test_old_copilot_finds_in_its_home_what_it_unpacked_elsewhere(desk: Desk) -> None:
    desk.launch("copilot-0.0.420", "stdio")
    desk.launch("copilot-0.0.420", "stdio")
    link = desk.home / ".copilot" / "pkg"
    assert link.readlink() == desk.executable.parents[1] / "unpacked" / ".copilot" / "pkg"


def test_a_copilot_session_is_given_the_model_server() -> None:
    assert copilot_provider(URL) == {
        "type": "openai",
        "baseUrl": f"{URL}/v1",
        "apiKey": API_KEY,
        "wireApi": "completions",
    }


def test_codex_is_configured_by_file(desk: Desk) -> None:
    command = desk.launch("codex", "app-server")
    config = tomllib.loads((desk.home / ".codex" / "config.toml").read_text())
    provider = config["model_providers"][config["model_provider"]]
    assert provider["base_url"] == f"{URL}/v1"
    assert command.env[provider["env_key"]] == API_KEY
    assert config["features"]["daemon_auto_start"] is False
    assert config["projects"] == {str(desk.project): {"trust_level": "trusted"}}


def test_claude_has_been_introduced(desk: Desk) -> None:
    command = desk.launch("claude", "tui")
    state = desk.json(".claude.json")
    assert state["hasCompletedOnboarding"] is True
    assert state["customApiKeyResponses"]["approved"] == [command.env["ANTHROPIC_API_KEY"][-20:]]
    assert state["projects"] == {str(desk.project): {"hasTrustDialogAccepted": True}}
    assert command.env["ANTHROPIC_BASE_URL"] == URL


def test_claude_fetches_no_plugins_by_ssh(desk: Desk) -> None:
    command = desk.launch("claude", "tui")  # ssh knows no proxy and reads the user's own keys
    assert command.env["CLAUDE_CODE_DISABLE_OFFICIAL_MARKETPLACE_AUTOINSTALL"] == "1"


def test_gemini_has_chosen_how_to_sign_in(desk: Desk) -> None:
    command = desk.launch("gemini", "acp")
    settings = desk.json(".gemini", "settings.json")
    assert settings["security"]["auth"]["selectedType"] == "gemini-api-key"
    assert command.env["GOOGLE_GEMINI_BASE_URL"] == URL
    assert command.env["GEMINI_CLI_TRUST_WORKSPACE"] == "true"


def test_opencode_knows_one_provider(desk: Desk) -> None:
    desk.launch("opencode", "serve")
    config = desk.json(".config", "opencode", "opencode.json")
    [provider] = config["enabled_providers"]
    assert config["model"] == f"{provider}/{MODEL}"
    assert config["provider"][provider]["options"]["baseURL"] == f"{URL}/v1"


def test_a_home_used_again_keeps_what_was_added_and_learns_the_new_server(desk: Desk) -> None:
    desk.launch("codex", "tui")
    config = desk.home / ".codex" / "config.toml"
    config.write_text(config.read_text() + '\n[mcp_servers.mail]\ncommand = "mail"\n')
    other = desk.project.with_name("other")
    other.mkdir()
    desk.launch("codex", "tui", model_url="http://127.0.0.1:9999", project=other)
    settings = tomllib.loads(config.read_text())
    assert settings["mcp_servers"] == {"mail": {"command": "mail"}}
    assert settings["model_providers"]["loopback"]["base_url"] == "http://127.0.0.1:9999/v1"
    assert set(settings["projects"]) == {str(desk.project), str(other)}


def test_a_project_is_trusted_by_its_real_path(desk: Desk) -> None:
    link = desk.project.with_name("link")
    link.symlink_to(desk.project)
    command = desk.launch("copilot", "tui", project=link)
    assert command.cwd == desk.project
    assert desk.json(".copilot", "config.json") == {"trustedFolders": [str(desk.project)]}


def test_the_users_own_home_is_refused(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.home.mkdir()
    monkeypatch.setattr("pwd.getpwuid", lambda _: type("Entry", (), {"pw_dir": str(desk.home)}))
    with pytest.raises(ValueError, match="own home"):
        desk.launch("codex", "tui")
    assert list(desk.home.iterdir()) == []


@pytest.mark.parametrize(
    "url",
    [
        "https://api.example.com",
        "http://192.0.2.1:80",
        "http://127.0.0.1.example.com",
        "https://127.0.0.1:80",
        "http://127.0.0.1:80/v1",
        "127.0.0.1:80",
        "",
    ],
)
def test_a_model_server_elsewhere_is_refused(url: str, desk: Desk) -> None:
    with pytest.raises(ValueError, match="model server"):
        desk.launch("codex", "tui", model_url=url)


@pytest.mark.parametrize("url", ["http://localhost:1", "http://[::1]:1", "http://127.0.0.2:1/"])
def test_every_name_of_loopback_is_taken(url: str, desk: Desk) -> None:
    command = desk.launch("claude", "tui", model_url=url)
    assert command.env["ANTHROPIC_BASE_URL"] == url.rstrip("/")


def test_a_prompt_is_given_where_one_is_taken_and_only_there(desk: Desk) -> None:
    with pytest.raises(ValueError, match="takes a prompt"):
        desk.launch("codex", "prompt")
    with pytest.raises(ValueError, match="takes no prompt"):
        desk.launch("codex", "tui", prompt="hello")


def test_an_unknown_mode_is_answered_with_the_known_ones(desk: Desk) -> None:
    with pytest.raises(UnknownMode, match="codex has no mode 'acp', it has app-server, prompt, "):
        desk.launch("codex", "acp")
    with pytest.raises(UnknownProgram):
        desk.launch("cursor", "tui")


def test_a_missing_project_is_an_error(desk: Desk) -> None:
    with pytest.raises(FileNotFoundError):
        desk.launch("codex", "tui", project=desk.project / "nowhere")
