"""`bullpen mcp install`, `check` and `uninstall` say what they do."""

import json
from pathlib import Path

import pytest

from tests.cli.commands import invoke, show


@pytest.mark.requirement("mcp:install")
async def test_the_server_is_installed_checked_and_taken_out(home: Path) -> None:
    (home / ".claude.json").write_text('{"theme": "dark"}\n')
    missing = await invoke("mcp", "check", "claude")
    assert (missing.code, missing.lines[1].split()) == (1, ["bullpen", "-", "missing"])
    tried = await show("mcp", "install", "claude", "--dry-run")
    assert "would be installed" in tried.lines[0]
    assert any(line.startswith("+") for line in tried.lines)
    done = await show("mcp", "install", "claude")
    assert done.lines == ["claude  ~/.claude.json  installed"]
    assert json.loads((home / ".claude.json").read_text())["mcpServers"]["bullpen"]
    assert (await show("mcp", "install", "claude")).lines[0].endswith("installed already")
    [checked] = (await show("mcp", "check", "claude", "--json")).json["programs"]
    assert checked["events"] == {"bullpen": "installed"}
    assert (await show("mcp", "uninstall", "claude")).lines[0].endswith("taken out")
    assert (home / ".claude.json").read_text() == '{"theme": "dark"}\n'


async def test_all_are_those_that_are_here(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    (home / ".gemini").mkdir()
    (home / ".gemini/settings.json").write_text("{ // mine\n}")
    done = await show("mcp", "install", "all")
    assert done.lines == ["gemini  ~/.gemini/settings.json  installed"]
    assert "codex: not found here, left out" in done.err


async def test_what_cannot_be_done_is_said(home: Path) -> None:
    (home / ".claude.json").write_text('{"mcpServers": {"bullpen": {"command": "mine"}}}')
    refused = await invoke("mcp", "install", "claude")
    assert refused.code == 1
    assert "left be" in refused.err
    assert (await invoke("mcp", "install", "copilot", "--scope", "project")).code == 1
    wrong = await invoke("mcp", "install", "claude", "--scope", "user", "--project", str(home))
    assert wrong.code == 2
