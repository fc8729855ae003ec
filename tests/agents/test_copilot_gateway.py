"""One process behind all sessions, started by whoever needs it first."""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import psutil
import pytest

from bullpen.agents.providers.copilot import CopilotGateway
from bullpen.connection.errors import ExitedEarly, RouterStopped, StartError
from bullpen.connection.router import MessageRouter
from bullpen.testing.cli_server import FakeCliServer


class Starts:
    """Starts fake servers in this process, when the test lets it."""

    def __init__(self, script: str = "") -> None:
        self.servers: list[FakeCliServer] = []
        self.may_start = asyncio.Event()
        self.may_start.set()
        self.failure: Exception | None = None
        self._script = script
        self._stack = contextlib.AsyncExitStack()

    async def __call__(self) -> MessageRouter:
        server = FakeCliServer(self._script)
        self.servers.append(server)
        await self.may_start.wait()
        if self.failure is not None:
            raise self.failure
        transport = await self._stack.enter_async_context(server.connected())
        return await MessageRouter.open(transport)

    async def aclose(self) -> None:
        await self._stack.aclose()


@pytest.fixture
async def starts() -> AsyncIterator[Starts]:
    starts = Starts()
    yield starts
    await starts.aclose()


@pytest.mark.requirement("D-44", "D-53", "D-01")
async def test_sessions_of_every_kind_share_one_connection(starts: Starts) -> None:
    async with asyncio.timeout(5), CopilotGateway(starts) as gateway:
        discussing, planning, solo = 7, 9, 2
        sessions = await asyncio.gather(
            *(gateway.create_session() for _ in range(discussing + planning + solo))
        )
        answers = await asyncio.gather(*(s.ask(f"I am {s.session_id}") for s in sessions))
        assert answers == [f"I am {session.session_id}" for session in sessions]
        assert len(starts.servers) == starts.servers[0].connections == 1
        assert starts.servers[0].most_sessions == 18
        assert (await gateway.stats()).routes == 18


@pytest.mark.requirement("L-7")
async def test_concurrent_first_calls_start_one_server(starts: Starts) -> None:
    starts.may_start.clear()
    async with asyncio.timeout(5), CopilotGateway(starts) as gateway:
        creating = [asyncio.ensure_future(gateway.create_session()) for _ in range(3)]
        await asyncio.sleep(0)
        starts.may_start.set()
        await asyncio.gather(*creating)
        await gateway.create_session()
        assert len(starts.servers) == 1


@pytest.mark.requirement("L-7")
async def test_a_caller_that_stops_waiting_does_not_end_the_start_for_the_others(
    starts: Starts,
) -> None:
    starts.may_start.clear()
    async with asyncio.timeout(5), CopilotGateway(starts) as gateway:
        first = asyncio.ensure_future(gateway.create_session())
        second = asyncio.ensure_future(gateway.create_session())
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        assert first.cancelled()
        starts.may_start.set()
        assert await (await second).ask("hello") == "hello"
        assert len(starts.servers) == 1


@pytest.mark.requirement("L-7")
async def test_a_start_that_failed_is_told_to_all_who_waited_and_tried_again_by_the_next(
    starts: Starts,
) -> None:
    starts.failure = StartError("no such program")
    async with asyncio.timeout(5), CopilotGateway(starts) as gateway:
        waiting = [gateway.create_session() for _ in range(3)]
        for outcome in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(outcome, StartError)
        assert len(starts.servers) == 1
        starts.failure = None
        assert await (await gateway.create_session()).ask("better") == "better"
        assert len(starts.servers) == 2


@pytest.mark.requirement("L-7", "D-48")
async def test_a_server_that_died_is_replaced_by_the_next_call(starts: Starts) -> None:
    async with asyncio.timeout(5), CopilotGateway(starts) as gateway:
        old = await gateway.create_session()
        await starts.aclose()
        with pytest.raises(RouterStopped):
            await old.ask("anybody there?")
        new = await gateway.create_session()
        assert await new.ask("hello") == "hello"
        assert len(starts.servers) == 2
        with pytest.raises(RouterStopped):  # the old one does not come back
            await old.ask("anybody there?")


@pytest.mark.requirement("D-49", "D-45")
async def test_closing_ends_the_sessions_and_whoever_still_waits_for_the_start(
    starts: Starts,
) -> None:
    async with asyncio.timeout(5):
        async with CopilotGateway(starts) as gateway:
            session = await gateway.create_session()
        with pytest.raises(RouterStopped):
            await session.ask("anybody there?")
        starts.may_start.clear()
        gateway = CopilotGateway(starts)
        waiting = [asyncio.ensure_future(gateway.create_session()) for _ in range(2)]
        await asyncio.sleep(0)
        await gateway.aclose()
        for outcome in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(outcome, RouterStopped), outcome


@pytest.mark.requirement("D-49", "D-24")
async def test_a_gateway_that_was_closed_starts_nothing_any_more(starts: Starts) -> None:
    async with asyncio.timeout(5):
        gateway = CopilotGateway(starts)
        await gateway.create_session()
        await gateway.aclose()
        await gateway.aclose()
        with pytest.raises(RouterStopped):
            await gateway.create_session()
        assert len(starts.servers) == 1


def processes(journal: Path) -> list[int]:
    if not journal.exists():
        return []
    entries = map(json.loads, journal.read_text().splitlines())
    return [entry["pid"] for entry in entries if entry["what"] == "started"]


async def until(condition: Callable[[], object]) -> None:
    """Wait for something in other processes, of which nothing tells us."""
    await asyncio.sleep(0)
    while not condition():  # noqa: ASYNC110 - somebody has to look
        await asyncio.sleep(0.01)


@pytest.mark.requirement("L-7", "D-24", "D-01")
@pytest.mark.parametrize("over", ["tcp", "stdio"])
async def test_a_real_server_is_started_once_and_ended_with_the_gateway(
    tmp_path: Path, over: str
) -> None:
    journal = tmp_path / "journal"
    port = ["--stdio"] if over == "stdio" else ["--port", "0"]
    module = ["-m", "bullpen.testing.cli_server"]
    command = [sys.executable, *module, "--headless", *port, "--journal", str(journal)]

    def start() -> Awaitable[MessageRouter]:
        return MessageRouter.spawn(command, over=over)

    async with asyncio.timeout(20):
        async with CopilotGateway(start) as gateway:
            sessions = await asyncio.gather(*(gateway.create_session() for _ in range(3)))
            answers = await asyncio.gather(*(session.ask("hello there") for session in sessions))
            assert answers == ["hello there"] * 3
            (pid,) = processes(journal)
            assert psutil.pid_exists(pid)
        await until(lambda: not psutil.pid_exists(pid))


@pytest.mark.requirement("L-7", "D-18")
async def test_a_real_server_that_does_not_start_is_reported_with_its_reason(
    tmp_path: Path,
) -> None:
    module = ["-m", "bullpen.testing.cli_server"]
    command = [sys.executable, *module, "--script", "noise 1; exit 5"]
    async with (
        asyncio.timeout(20),
        CopilotGateway(lambda: MessageRouter.spawn(command)) as gateway,
    ):
        with pytest.raises(ExitedEarly, match=r"(?s)status 5.*noise 0"):
            await gateway.create_session()


@pytest.mark.requirement("L-7", "L-25")
async def test_closing_while_a_real_server_starts_leaves_no_process(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    module = ["-m", "bullpen.testing.cli_server"]
    command = [sys.executable, *module, "--script", "no-port-line", "--journal", str(journal)]
    async with asyncio.timeout(20):
        gateway = CopilotGateway(lambda: MessageRouter.spawn(command))
        creating = asyncio.ensure_future(gateway.create_session())
        await until(lambda: processes(journal))
        await gateway.aclose()
        with pytest.raises(RouterStopped):
            await creating
        await until(lambda: not any(map(psutil.pid_exists, processes(journal))))
