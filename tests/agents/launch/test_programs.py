"""The real programs, started by their plans: they run our hooks and our tools, and keep theirs.

Nothing of ours is left in the user's own files; what the programs write there is their own.
"""

import asyncio
import base64
import json
import os
import urllib.error
import urllib.request
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from bullpen.agents.providers.codex import appserver
from bullpen.agents.providers.codex.hearing import decode_for_watching, takes_nothing
from bullpen.connection import Connection, open_transport
from bullpen.model.states import Provider
from bullpen.testing.programs import Launch
from tests.agents.launch.runs import SECRET, Run, running

pytestmark = [
    pytest.mark.program,
    pytest.mark.tmux,
    pytest.mark.timeout(1000),  # the first run downloads
    pytest.mark.xdist_group("real-programs"),  # two at a time are slow enough to look frozen
    pytest.mark.requirement("launch:programs"),
]


def told_who_it_is(run: Run) -> None:
    """See that the server of a run was started once, and knows whose it is."""
    [environment] = [each["environment"] for each in run.heard if "environment" in each]
    assert environment["BULLPEN_SECRET"] == SECRET
    assert environment["BULLPEN_AGENT"] == "anna"
    assert environment["XDG_RUNTIME_DIR"] == str(run.home / "run")


def waiting(run: Run) -> list[dict[str, Any]]:
    """Return who has asked to be told of a message."""
    asked = [each for each in run.daemon.asked if each["method"] == "agent.wake"]
    return [each["params"] for each in asked]


async def test_claude_code_is_hooked_woken_and_given_our_tools(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = home / "mine.json"
    stopped = home / "stopped"
    hook = {"type": "command", "command": f"touch {stopped}"}
    mine.write_text(json.dumps({"hooks": {"Stop": [{"hooks": [hook]}]}}))

    arguments = ["--settings", str(mine)]
    async with running(Provider.CLAUDE, home, monkeypatch, arguments=arguments) as run:
        assert run.plan.doors == {"hooks": True, "wake": True, "mcp": True}
        await run.is_ready(Provider.CLAUDE)
        await run.call_tool("mcp__bullpen__list_agents")
        await asyncio.to_thread(run.daemon.wait_for, "Stop", timeout=60)
        assert "PermissionRequest" not in run.daemon.events
        await run.until(lambda: bool(waiting(run)), "waited for")
        assert {each["secret"] for each in waiting(run)} == {SECRET}
        await run.until(stopped.exists, "stopped by the user's own hook")
        told_who_it_is(run)
    private = home / "private"
    assert not (private / ".claude/settings.json").exists()
    assert "bullpen" not in json.loads((private / ".claude.json").read_bytes()).get(
        "mcpServers", {}
    )


async def test_codex_runs_on_a_server_that_others_can_follow(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def prepare(started: Launch) -> None:
        config.append((Path(started.env["CODEX_HOME"]) / "config.toml").read_bytes())

    config: list[bytes] = []
    async with running(
        Provider.CODEX,
        home,
        monkeypatch,
        arguments=["-c", 'model_reasoning_effort="low"'],
        prepare=prepare,
    ) as run:
        address = run.plan.doors["app_server"]
        assert run.plan.doors == {"app_server": address, "mcp": True}
        assert SECRET not in " ".join([*run.plan.command, *run.plan.beside[0].command])
        await run.shows("Ask Codex")
        builder = Connection.builder().route(takes_nothing, decode=decode_for_watching)
        connection = await builder.open(open_transport(address.replace("unix:", "ws+unix:")))
        async with aclosing(connection):
            await connection.request(appserver.INITIALIZE, appserver.initialize_params("0"))
            await connection.notify(appserver.INITIALIZED, {})
            await run.call_tool("mcp__bullpen::list_agents")
            await run.shows("• done")
            threads = await connection.request("thread/loaded/list", {})
        assert threads["data"]
        told_who_it_is(run)
    codex = home / "private/.codex"
    written = (codex / "config.toml").read_bytes().removeprefix(config[0])
    assert len(written) < len(config[0])  # it goes on where it ended, with notes of its own
    assert b"bullpen" not in written
    assert not (codex / "hooks.json").exists()
    assert not (codex / "packages").exists()  # nor a daemon of Codex's own


async def test_gemini_cli_is_hooked_and_given_our_tools(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = home / "private/.gemini/settings.json"
    ended = home / "ended"

    def prepare(_started: Launch) -> None:
        for each in ("tmp", "history", "extensions/mine"):
            (settings.parent / each).mkdir(parents=True)
        hook = {"type": "command", "command": f"touch {ended}"}
        said = json.loads(settings.read_bytes()) | {"hooks": {"AfterAgent": [{"hooks": [hook]}]}}
        settings.write_text(json.dumps(said))
        described = {"name": "mine", "version": "1.0.0"}
        (settings.parent / "extensions/mine/gemini-extension.json").write_text(
            json.dumps(described)
        )
        before.append(settings.read_bytes())

    before: list[bytes] = []
    async with running(Provider.GEMINI, home, monkeypatch, prepare=prepare) as run:
        assert run.plan.doors == {"hooks": True, "mcp": True}
        await run.is_ready(Provider.GEMINI)
        await run.call_tool("mcp_bullpen_list_agents")
        said = await asyncio.to_thread(run.daemon.wait_for, "AfterAgent", timeout=60)
        assert "Notification" not in run.daemon.events  # which tells of a question
        await run.until(ended.exists, "ended by the user's own hook")
        told_who_it_is(run)
        transcript = await asyncio.to_thread(os.path.realpath, said["payload"]["transcript_path"])
        kept = await asyncio.to_thread(os.path.realpath, settings.parent / "tmp")
        assert transcript.startswith(f"{kept}/")
    assert [settings.read_bytes()] == before
    assert not (settings.parent / "extensions/bullpen").exists()


async def test_copilot_cli_is_hooked_and_given_our_tools(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(Provider.COPILOT, home, monkeypatch) as run:
        assert run.plan.doors == {"hooks": True, "mcp": True}
        await run.is_ready(Provider.COPILOT)
        await run.call_tool("bullpen-list_agents")
        await asyncio.to_thread(run.daemon.wait_for, "agentStop", timeout=60)
        assert "notification" not in run.daemon.events  # which tells of a question
        told_who_it_is(run)
    copilot = home / "private/.copilot"
    assert not (copilot / "settings.json").exists()
    assert not (copilot / "mcp-config.json").exists()
    assert "bullpen" not in (copilot / "config.json").read_text().replace(str(home), "")


async def test_opencode_serves_what_is_on_its_screen(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = home / "private/.config/opencode/opencode.json"

    def prepare(_started: Launch) -> None:
        said = json.loads(config.read_bytes()) | {"permission": "ask"}
        said["$schema"] = "https://opencode.ai/config.json"  # which it would add
        config.write_text(json.dumps(said))
        before.append(config.read_bytes())

    before: list[bytes] = []
    async with running(Provider.OPENCODE, home, monkeypatch, prepare=prepare) as run:
        address, password = run.plan.doors["http"], run.plan.doors["http_password"]
        await run.is_ready(Provider.OPENCODE)
        with pytest.raises(urllib.error.HTTPError, match="401"):
            await asyncio.to_thread(get, f"{address}/session", "another")
        await run.call_tool("bullpen_list_agents")
        await run.shows("it isdone")
        [session] = await asyncio.to_thread(get, f"{address}/session", password)
        assert session["directory"] == str((home / "project").resolve())
        messages = await asyncio.to_thread(
            get, f"{address}/session/{session['id']}/message", password
        )
        assert "heard hi" in json.dumps(messages)
        told_who_it_is(run)
    assert [config.read_bytes()] == before


def get(url: str, password: str) -> Any:
    request = urllib.request.Request(url)
    word = base64.b64encode(f"opencode:{password}".encode()).decode()
    request.add_header("Authorization", f"Basic {word}")
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read())
