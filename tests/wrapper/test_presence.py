"""An agent is found from before its start until after its end, and nobody else in its place."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bullpen.agents.instances import Instance, Instances
from bullpen.agents.profiles import load
from bullpen.agents.registry import AgentRegistry
from bullpen.api.runtime import Paths
from bullpen.wrapper import port as port_module
from bullpen.wrapper.options import WrapperOptions
from bullpen.wrapper.port import HeldPort
from bullpen.wrapper.presence import Presence
from bullpen.wrapper.status import Status

SECONDS = 20
REQUEST = b"GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture
async def paths(home: Path) -> Paths:
    return await asyncio.to_thread(Paths.resolve)


@pytest.fixture
async def presence(paths: Paths, home: Path) -> AsyncIterator[Presence]:
    profile = await asyncio.to_thread(load, "dummy", Path("/nowhere"))
    presence = Presence(WrapperOptions(profile=profile, paths=paths, cwd=home, is_detached=True))
    await presence.enter()
    yield presence
    await presence.leave()


async def call(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        async with asyncio.timeout(SECONDS):
            return await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()


def entries() -> dict[str, str]:
    return {each.agent_id: each.status for each in AgentRegistry().entries()}


@pytest.mark.requirement("S-77", "S-12")
async def test_the_entry_follows_the_status_even_if_somebody_removes_it(
    presence: Presence,
) -> None:
    [agent_id] = await asyncio.to_thread(entries)
    for status in (Status.BUSY, Status.IDLE):
        await presence.update(status)
        assert await asyncio.to_thread(entries) == {agent_id: status}
    (AgentRegistry().directory / f"{agent_id}.json").unlink()
    await presence.update(Status.BUSY)
    assert await asyncio.to_thread(entries) == {agent_id: Status.BUSY}
    await presence.leave()
    assert await asyncio.to_thread(entries) == {}


async def test_what_a_killed_wrapper_of_the_same_name_left_is_taken_away(
    presence: Presence, paths: Paths
) -> None:
    process = await asyncio.create_subprocess_exec("true")
    await process.wait()
    killed = "d" * 64
    await asyncio.to_thread(
        lambda: AgentRegistry().register(killed, "dummy", None, pid=process.pid)
    )
    former = Instance(
        name="dummy",
        profile="dummy",
        pid=process.pid,
        start="1",
        agent_id=killed,
        socket=str(paths.agents / "dummy.sock"),
    )
    await asyncio.to_thread(Instances(paths.agents).write, former)
    (paths.agents / "dummy.sock").touch()
    (paths.agents / "dummy.run").mkdir()
    assert await presence.name("dummy") == "dummy"
    assert not (AgentRegistry().directory / f"{killed}.json").exists()
    left = sorted(path.name for path in paths.agents.iterdir() if path.name[0] != ".")
    assert left == ["dummy.json"]
    assert presence.socket == paths.agents / "dummy.sock"
    assert presence.log == paths.agent_logs / "dummy.log"


async def test_its_socket_and_log_stay_when_its_name_changes(
    presence: Presence, paths: Paths
) -> None:
    await presence.name("dummy")
    assert await presence.name("reviewer") == "reviewer"
    assert presence.socket == paths.agents / "dummy.sock"
    assert presence.log == paths.agent_logs / "dummy.log"
    instances = Instances(paths.agents)
    assert await asyncio.to_thread(instances.read, "dummy") is None
    found = await asyncio.to_thread(instances.read, "reviewer")
    assert found is not None
    assert found.socket == str(presence.socket)


async def test_its_port_is_held_and_says_that_nothing_is_served(presence: Presence) -> None:
    port = presence.port
    assert port is not None
    answer = await call(port, REQUEST)
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"Agent not running" in answer
    assert (await call(port, b"\0\xff\r\n\r\n")).startswith(b"HTTP/1.1 503 ")
    await presence.leave()
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))  # nobody has it any more


async def test_who_calls_and_says_nothing_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port_module, "CALL_SECONDS", 0.05)
    held = await HeldPort.open(0)
    assert held is not None
    port = held.port
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    async with asyncio.timeout(SECONDS):
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
    writer.close()
    assert await HeldPort.open(port) is None  # it is somebody's
    held.close()
