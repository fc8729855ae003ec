"""Our MCP server goes into the settings of each program, and out again to the byte."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.agents.hooks import EventState, Scope, SettingsError, UnsupportedError
from bullpen.agents.launch.ours import MCP_COMMAND
from bullpen.agents.mcp_install import PROGRAMS, check, install, is_present, uninstall
from bullpen.model.states import Provider

FILES = {
    Provider.CLAUDE: ".claude.json",
    Provider.CODEX: ".codex/config.toml",
    Provider.GEMINI: ".gemini/settings.json",
    Provider.COPILOT: ".copilot/mcp-config.json",
    Provider.OPENCODE: ".config/opencode/opencode.json",
}
JSON_TEXTS = {
    "empty": "{}",
    "empty object": '{"mcpServers": {}, "mcp": {}}\n',
    "on one line": '{"a":1,"mcpServers":{"x":{"command":"x"}},"mcp":{"x":{"type":"local"}}}',
    "indented": '{\n\t"theme": "dark",\n\t"mcp": {\n\t\t"x": {}\n\t}\n}\n',
    "of windows": '{\r\n  "theme": "dark"\r\n}\r\n',
    "with a mark": '\ufeff{\n  "theme": "dark"\n}\n',
}
TOML_TEXTS = {
    "empty": "",
    "a value": 'model = "x"\n',
    "no newline": 'model = "x"',
    "of windows": "[a]\r\nb = 1\r\n",
    "another server": '[mcp_servers.x]\ncommand = "x"\n\n# the end\n',
    "blank lines": "\n\n\n",
}


def texts_of(provider: Provider) -> dict[str, str]:
    return TOML_TEXTS if provider is Provider.CODEX else JSON_TEXTS


def servers_in(path: Path, provider: Provider) -> Any:
    text = path.read_bytes().decode().removeprefix("\ufeff")
    settings = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    return settings[PROGRAMS[provider].key]


def environment(home: Path) -> dict[str, str]:
    return {"HOME": str(home), "PATH": ""}


@pytest.mark.requirement("mcp:install")
@pytest.mark.parametrize("provider", PROGRAMS)
def test_a_file_that_we_made_is_removed_with_its_directory(provider: Provider, home: Path) -> None:
    around = environment(home / "new")
    (home / "new").mkdir()
    (home / "new/.config").mkdir()
    assert not is_present(provider, around)
    done = install(provider, environment=around)
    path = home / "new" / FILES[provider]
    assert (done.path, done.has_changed, done.is_complete) == (path, True, True)
    assert path.stat().st_mode & 0o777 == 0o600
    server = servers_in(path, provider)["bullpen"]
    words = server["command"] if provider is Provider.OPENCODE else None
    words = words or [server["command"], *server["args"]]
    assert words[:-1] == list(MCP_COMMAND)
    assert words[-1].startswith("--installed")
    assert not install(provider, environment=around).has_changed
    assert check(provider, environment=around).is_complete
    assert uninstall(provider, environment=around).has_changed
    assert not path.exists()
    assert sorted(each.name for each in (home / "new").rglob("*")) == [".config"]
    assert not uninstall(provider, environment=around).has_changed


@pytest.mark.requirement("mcp:install")
@pytest.mark.parametrize("provider", PROGRAMS)
def test_a_file_of_yours_is_as_it_was_to_the_byte(provider: Provider, home: Path) -> None:
    path = home / FILES[provider]
    path.parent.mkdir(parents=True, exist_ok=True)
    for name, text in texts_of(provider).items():
        path.write_bytes(text.encode())
        tried = install(provider, environment=environment(home), dry_run=True)
        assert tried.has_changed, name
        assert "bullpen" in tried.diff
        assert path.read_bytes() == text.encode(), name
        install(provider, environment=environment(home))
        assert "bullpen" in servers_in(path, provider), name
        assert text.count("x") <= path.read_text().count("x")
        assert check(provider, environment=environment(home)).is_complete, name
        uninstall(provider, environment=environment(home))
        assert path.read_bytes() == text.encode(), name


@pytest.mark.parametrize("provider", PROGRAMS)
def test_an_older_install_is_renewed_where_it_stands(provider: Provider, home: Path) -> None:
    path = home / FILES[provider]
    path.parent.mkdir(parents=True, exist_ok=True)
    before = texts_of(provider)["empty"]
    path.write_text(before)
    install(provider, environment=environment(home))
    path.write_text(path.read_text().replace(json.dumps(MCP_COMMAND[0])[1:-1], "/old/python"))
    outdated = check(provider, environment=environment(home))
    assert outdated.events == {"bullpen": EventState.OUTDATED}
    install(provider, environment=environment(home))
    assert check(provider, environment=environment(home)).is_complete
    uninstall(provider, environment=environment(home))
    assert path.read_text() == before


@pytest.mark.parametrize("provider", PROGRAMS)
def test_a_server_of_that_name_that_is_not_ours_is_left_be(provider: Provider, home: Path) -> None:
    path = home / FILES[provider]
    path.parent.mkdir(parents=True, exist_ok=True)
    key = PROGRAMS[provider].key
    text = '[mcp_servers.bullpen]\ncommand = "mine"\n'
    if provider is not Provider.CODEX:
        text = json.dumps({key: {"bullpen": {"command": "mine"}}})
    path.write_text(text)
    with pytest.raises(SettingsError, match="left be"):
        install(provider, environment=environment(home))
    assert not uninstall(provider, environment=environment(home)).has_changed
    assert not check(provider, environment=environment(home)).is_complete
    assert path.read_text() == text


@pytest.mark.parametrize("provider", PROGRAMS)
def test_settings_that_cannot_be_understood_are_named_and_left_alone(
    provider: Provider, home: Path
) -> None:
    path = home / FILES[provider]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{ what = ")
    for act in (install, check):
        with pytest.raises(SettingsError, match=path.name):
            act(provider, environment=environment(home))
    assert path.read_text() == "{ what = "


def test_a_table_that_nothing_can_be_added_to_is_left_alone(home: Path) -> None:
    path = home / ".codex/config.toml"
    path.parent.mkdir()
    path.write_text('mcp_servers = { x = { command = "x" } }\n')
    with pytest.raises(SettingsError):
        install(Provider.CODEX, environment=environment(home))
    assert "bullpen" not in path.read_text()


def test_a_project_has_settings_of_its_own_or_none(home: Path, tmp_path: Path) -> None:
    done = install(Provider.CLAUDE, scope=Scope.PROJECT, project=tmp_path)
    assert done.path == tmp_path / ".mcp.json"
    assert not (home / ".claude.json").exists()
    with pytest.raises(UnsupportedError):
        install(Provider.COPILOT, scope=Scope.PROJECT, project=tmp_path)
    with pytest.raises(UnsupportedError):
        check(Provider.OTHER)


@pytest.mark.requirement("mcp:install")
@given(
    st.dictionaries(
        st.text(max_size=4),
        st.recursive(
            st.one_of(st.booleans(), st.integers(), st.text(max_size=4)),
            lambda inner: st.dictionaries(st.text(max_size=3), inner, max_size=3),
        ),
        max_size=4,
    ),
    st.sampled_from([None, 1, 2, "\t"]),
    st.sampled_from([Provider.CLAUDE, Provider.OPENCODE]),
)
def test_any_settings_are_as_they_were(settings: Any, indent: Any, provider: Provider) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / FILES[provider]
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(settings, indent=indent)
        path.write_text(text)
        around = environment(Path(directory))
        install(provider, environment=around)
        assert servers_in(path, provider)["bullpen"]["type"] in ("stdio", "local")
        uninstall(provider, environment=around)
        assert path.read_text() == text
