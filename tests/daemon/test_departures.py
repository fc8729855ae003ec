"""Agents that are in no terminal, and end without a word."""

import pytest

from bullpen.daemon import departures
from bullpen.daemon.departures import Departures
from tests.daemon.harness import Clock, Peer, running_daemon, settings, until

PID = 4_000_001  # above what the system gives: nobody else's
OTHER = 4_000_002


async def prompted(peer: Peer, pid: int, session_id: str = "s1") -> None:
    hook = {"hook_event_name": "UserPromptSubmit", "session_id": session_id, "cwd": "/"}
    await peer.ask("hook.report", provider="claude", payload=hook, pid=pid)

    async def is_there() -> bool:
        return f"claude:{session_id}" in await peer.sessions()

    await until(is_there)


@pytest.mark.requirement("RES-12")
async def test_an_agent_without_a_terminal_is_gone_with_its_process() -> None:
    running = {PID, OTHER}
    async with running_daemon() as (peer, daemon):
        looking = Departures(daemon.pipeline, Clock(), is_there=running.__contains__)
        await prompted(peer, PID)
        await prompted(peer, OTHER, "s2")
        assert len(await peer.agents()) == 2
        await looking.look()
        running.remove(PID)
        await looking.look()
        assert len(await peer.agents()) == 2  # one look that misses it is none too many
        await looking.look()
        [left] = (await peer.agents()).values()
        assert left["session_key"] == "claude:s2"
        assert (await peer.sessions())["claude:s1"]["presence"] == "unmanaged"
        await prompted(peer, PID)  # should it have been wrong
        assert len(await peer.agents()) == 2


async def test_a_process_that_was_never_seen_is_not_missed() -> None:
    async with running_daemon() as (peer, daemon):
        looking = Departures(daemon.pipeline, Clock(), is_there=lambda pid: False)
        await prompted(peer, PID)
        for _ in range(4):
            await looking.look()
        assert len(await peer.agents()) == 1


async def test_without_a_poller_nobody_is_missed() -> None:
    running = {PID}
    async with running_daemon(settings(sources={"poller": False})) as (peer, daemon):
        looking = Departures(daemon.pipeline, Clock(), is_there=running.__contains__)
        await prompted(peer, PID)
        await looking.look()
        running.clear()
        for _ in range(3):
            await looking.look()
        assert len(await peer.agents()) == 1


async def test_the_daemon_looks_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(departures, "LOOK_SECONDS", 0.02)
    running = {PID}
    looks = []

    def look(pid: int) -> bool:
        looks.append(pid)
        return pid in running

    monkeypatch.setattr(departures.Departures.__init__, "__kwdefaults__", {"is_there": look})
    async with running_daemon() as (peer, _):
        await prompted(peer, PID)

        async def has_looked() -> bool:
            return len(looks) > 1

        await until(has_looked)
        running.clear()

        async def is_gone() -> bool:
            return not await peer.agents()

        await until(is_gone)
