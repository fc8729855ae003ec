"""Each agent's own port: held by its wrapper, served by whichever daemon there is."""

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bullpen.api.runtime import Paths
from bullpen.wrapper.port import HeldPort
from tests.cli.commands import execute
from tests.daemon.harness import until
from tests.daemon.wrapping import wrapped
from tests.servers.a2a.house import SECONDS, Answer, Web, linux_only, served
from tests.servers.a2a.test_seed import over
from tests.servers.mcp.room import raw_peer


@asynccontextmanager
async def handed_over(port: HeldPort, secret: str) -> AsyncIterator[Web]:
    """Let a daemon serve a port for a block, if there is one."""
    handing = asyncio.create_task(port.hand_over(Paths.resolve().a2a_socket, lambda: secret))
    try:
        yield Web(port.port)
    finally:
        handing.cancel()
        await asyncio.wait([handing])


async def answers(web: Web, status: int) -> Answer:
    """Wait until a port answers so; it is never closed meanwhile."""

    async def look() -> Answer | None:
        answer = await web.get("/status")
        assert answer.status in (200, 503)
        return answer if answer.status == status else None

    found: Answer = await until(look, SECONDS)
    return found


@linux_only
@pytest.mark.requirement("a2a:ports")
async def test_a_port_outlives_the_daemon_that_serves_it(home: Path) -> None:
    held = await HeldPort.open(0)
    assert held is not None
    try:
        async with served() as house, wrapped("codex", port=held.port) as agent:
            secret = agent.secret
            async with handed_over(held, secret) as web:
                shown = await answers(web, 200)
                assert shown.body == {"status": "IDLE", "context": "> "}
                card = (await web.get("/.well-known/agent.json")).body
                assert card["url"] == f"http://127.0.0.1:{held.port}"
                assert (await web.get("/agents")).status == 404  # it is this agent's alone
            assert (await answers(web, 503)).headers["retry-after"] == "1"
            assert (await house.web.at("codex").get("/status")).status == 200
            keeping = handed_over(held, secret)
            web = await keeping.__aenter__()
            await answers(web, 200)
        assert "Agent not running" in (await answers(web, 503)).body["detail"]
        async with served(), wrapped("codex", secret=secret, port=held.port):
            await answers(web, 200)
            await keeping.__aexit__(None, None, None)
    finally:
        held.close()
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", web.port))  # nobody has it any more


@pytest.mark.requirement("a2a:ports")
async def test_a_port_that_is_no_agents_is_not_taken(home: Path) -> None:
    async with served() as house, wrapped("codex") as agent:

        async def offer(hello: bytes, *handles: int) -> bytes:
            with socket.socket(socket.AF_UNIX) as daemon:
                daemon.setblocking(False)
                loop = asyncio.get_running_loop()
                await loop.sock_connect(daemon, str(house.paths.a2a_socket))
                socket.send_fds(daemon, [hello], handles)
                async with asyncio.timeout(SECONDS):
                    return await loop.sock_recv(daemon, 1)

        known = json.dumps({"secret": agent.secret}).encode()
        with socket.create_server(("127.0.0.1", 0)) as own, socket.create_server(("", 0)) as open_:
            assert await offer(known, own.fileno()) == b"\n"
            assert await offer(b'{"secret": "nobody\'s"}', own.fileno()) == b""
            assert await offer(b'{"secret": ""}', own.fileno()) == b""
            assert await offer(b"nonsense", own.fileno()) == b""
            assert await offer(known) == b""
            assert await offer(known, open_.fileno()) == b""  # others could reach it
        with socket.socket() as unheard:
            assert await offer(known, unheard.fileno()) == b""
        pipe = os.pipe()
        assert await offer(known, pipe[0]) == b""
        for each in pipe:
            os.close(each)


@linux_only
@pytest.mark.requirement("S-90", "S-91", "S-95", "S-103", "S-150", "a2a:ports")
async def test_a_real_wrapped_agent_is_an_a2a_agent(home: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {"BULLPEN_OBSERVE_TMUX_ONLY": "1", "BULLPEN_SOURCES_POLLER": "0"}
    started = await execute("start", "dummy", "--port", str(port), **environment)
    assert started.code == 0, started
    try:
        web = Web(port)
        await answers(web, 200)
        sent = (await web.post("/message", {"content": "hello", "priority": 1})).body
        done = await over(web, sent["task_id"])
        assert done["artifacts"] == [{"type": "text", "data": "[DUMMY] You said: [from a2a] hello"}]
        shown = await execute("task", sent["task_id"], "--json", **environment)
        assert (shown.code, sent["task_id"] in shown.out, "completed" in shown.out) == (
            0,
            True,
            True,
        )
        async with raw_peer(Paths.resolve()) as mcp:
            told = await mcp.call("task", id=sent["task_id"])
            assert "You said: [from a2a] hello" in told["result"]["content"]
        body = {"message": {"role": "user", "parts": [{"type": "text", "text": "again"}]}}
        urgent = (await web.post("/tasks/send-priority?priority=5", body)).body["task"]
        assert (await over(web, urgent["id"]))["status"] == "completed"
        shown = (await web.get("/status")).body["context"]
        assert shown.index("Interrupted") < shown.index("[from a2a] again")
        [event] = (await web.events(f"/tasks/{urgent['id']}/subscribe"))[-1:]
        assert event["artifacts"] == [
            {"type": "text", "data": "[DUMMY] You said: [from a2a] again"}
        ]
    finally:
        assert (await execute("stop", "dummy", **environment)).code == 0
        assert (await execute("down", **environment)).code == 0
    with pytest.raises(ConnectionError):
        await web.get("/status")
