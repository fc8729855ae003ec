"""Agents of the official SDKs, as they are, as agents elsewhere that ours talk to."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from bullpen.agents.a2a.client import A2AClient
from bullpen.agents.a2a.messages import RemoteState
from bullpen.api.client import Client
from bullpen.api.runtime import Paths, prepare
from bullpen.api.talk import TaskChanged, TaskOutput, WatchTasks
from bullpen.daemon.main import Daemon
from bullpen.servers.mcp import serve
from bullpen.terminal.pty import PtyProcess
from bullpen.testing.programs.libraries import python_with
from tests.cli.commands import PROGRAM, show
from tests.daemon.doors.test_external import answer, send
from tests.daemon.harness import Peer, settings
from tests.interop.a2a.houses import HERE, SECONDS, heard, process
from tests.servers.mcp.room import raw_peer, there

pytestmark = pytest.mark.timeout(1000)  # the first run downloads

BINDINGS = {"rpc": "JSONRPC", "rest": "HTTP+JSON"}


async def where(running: asyncio.subprocess.Process) -> str:
    """Return where the agents of a script are served, once they are."""
    assert running.stdout is not None
    async with asyncio.timeout(SECONDS):
        line = await running.stdout.readline()
    assert line, (await running.communicate())[1].decode()
    return line.decode().strip()


@pytest.mark.requirement("a2a:servers", "door:external", "S-122", "S-123")
async def test_agents_of_the_official_sdks_are_addresses_like_any_other(home: Path) -> None:
    old_python = await asyncio.to_thread(python_with, HERE / "a2a-0.3.lock")
    paths = Paths.resolve()
    await asyncio.to_thread(prepare, paths)
    async with (
        process(sys.executable, HERE / "servers/sdk_1.py") as new,
        process(old_python, HERE / "servers/sdk_0_3.py") as old,
        Daemon(settings(), paths, companions=[serve]),
        Client.connect(paths, start=False) as client,
        await PtyProcess.spawn([PROGRAM, "run", "dummy", "--no-start"]) as terminal,
    ):
        await there(paths.mcp_socket)
        await heard(terminal, b"> ")
        for version, running in (("new", new), ("old", old)):
            url = await where(running)
            for place, binding in BINDINGS.items():
                alias = f"{version}-{place}"
                added = await show("external", "add", f"{url}/{place}", "--alias", alias)
                assert added.out == f"added {alias}: SDK {binding} at {url}/{place}\n"
                await talk(alias, paths)
                await terminal.write(f"@{alias} --response typed\r".encode())
                await heard(terminal, f"[← {alias}]\x1b[0m\r\necho: typed".encode())
                peer = Peer(paths.socket)
                await stream(alias, client, peer, home / alias)
                await cancel(alias, peer)


async def talk(alias: str, paths: Paths) -> None:
    """Talk to an agent by commands, and as another agent does."""
    info = (await show("external", "info", alias)).out
    assert "an agent of the official SDK" in info
    assert "streaming" in info
    assert (await show("ask", alias, "hello")).out == "echo: hello\n"
    sent = (await show("send", alias, "ask", "--wait", "answered", "--json")).json
    question = sent["reply"]
    assert question["content"] == "which?"
    replied = await show("send", alias, "that", "--reply-to", question["id"], "--wait", "answered")
    assert "echo: that" in replied.out
    async with raw_peer(paths) as mcp:
        told = await mcp.call("send_message", to=alias, content="from mcp")
        assert "echo: from mcp" in json.dumps(told["result"])


async def stream(alias: str, client: Client, peer: Peer, gate: Path) -> None:
    """Hear what an agent says before it has said it all."""
    said: list[str] = []

    def hear(told: TaskChanged | TaskOutput) -> None:
        if isinstance(told, TaskOutput):
            said.append(told.text)
            gate.touch()

    client.on_task(hear)
    message_id = await send(peer, alias, f"words {gate}")
    await client.request(WatchTasks(task_ids=(message_id,)))
    waited = await answer(peer, message_id)
    assert waited["reply"]["content"] == "one two"
    assert said[0] == "one "


async def cancel(alias: str, peer: Peer) -> None:
    """Cancel a task here, which is then cancelled there."""
    message_id = (await show("send", alias, "wait", "--wait", "seen", "--json")).json["message"][
        "id"
    ]
    assert "canceled" in (await show("task", "--cancel", message_id)).out
    receipts = (await peer.ask("mail.trace", message_id=message_id))["receipts"]
    noted = [each["evidence"].get("data", {}).get("turn_id") for each in receipts]
    [task_id] = {each for each in noted if each}
    found = await A2AClient().get_task(alias, task_id)
    assert found.status is RemoteState.CANCELED
    assert (await show("ask", alias, "and now")).out == "echo: and now\n"
