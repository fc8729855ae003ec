"""A router that starts its server: one process, one connection, and nothing left of either."""

import asyncio
import contextlib
import gc
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from bullpen.connection import ProcessExited, StartError
from bullpen.connection.channel import SessionChannel
from bullpen.connection.errors import (
    BadPortLine,
    CommandNotFound,
    ExitedEarly,
    RouterStopped,
    StartTimeout,
)
from bullpen.connection.router import MessageRouter
from tests.connection.routers import next_event, settle


class Server:
    """The command of a fake CLI server, and what its processes wrote down about themselves."""

    def __init__(self, directory: Path) -> None:
        self._journal = directory / "journal"

    def command(self, script: str = "", *, over: str = "tcp") -> list[str]:
        words = [sys.executable, "-m", "bullpen.testing.cli_server", "--headless"]
        words += ["--stdio"] if over == "stdio" else ["--port", "0"]
        return [*words, "--script", script, "--journal", str(self._journal)]

    def journal(self) -> list[dict[str, Any]]:
        if not self._journal.exists():
            return []
        return [json.loads(line) for line in self._journal.read_text().splitlines()]

    def count(self, what: str) -> int:
        return sum(entry["what"] == what for entry in self.journal())

    def pids(self) -> set[int]:
        """Return every process there has been: servers and their children."""
        pids = {entry["pid"] for entry in self.journal()}
        return pids | {entry["child"] for entry in self.journal() if "child" in entry}

    def running(self) -> set[int]:
        alive = set()
        for pid in self.pids():
            with contextlib.suppress(psutil.NoSuchProcess):
                if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                    alive.add(pid)
        return alive


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    yield server
    for pid in server.running():  # whatever a failed test left
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


async def until(condition: Callable[[], object]) -> None:
    """Wait for something in other processes, of which nothing tells us."""
    await asyncio.sleep(0)
    while not condition():  # noqa: ASYNC110 - somebody has to look
        await asyncio.sleep(0.01)
    await settle()


async def gone(server: Server) -> None:
    """Wait for the end of all processes."""
    await until(lambda: not server.running())


async def ask(router: MessageRouter, channel: SessionChannel, prompt: str) -> str:
    params = {"sessionId": channel.session_id, "prompt": prompt}
    await router.request("session.send", params)
    return await channel.read_streaming()


@pytest.mark.requirement("D-01", "D-18", "D-53", "D-17")
@pytest.mark.parametrize("over", ["tcp", "stdio"])
async def test_fifty_sessions_share_one_process_and_one_connection(
    server: Server, over: str
) -> None:
    async with asyncio.timeout(30):
        async with await MessageRouter.spawn(server.command(over=over), over=over) as router:
            channels = [(await router.create_session())[1] for _ in range(50)]
            answers = await asyncio.gather(
                *(ask(router, channel, f"hello {n}") for n, channel in enumerate(channels))
            )
            assert answers == [f"hello {number}" for number in range(50)]
            assert (server.count("started"), server.count("accepted")) == (1, 1)
            assert router.pid in server.pids()
            assert router.stats().routes == 50
        await gone(server)


@pytest.mark.requirement("D-02", "D-18")
async def test_a_real_server_floods_twenty_sessions_and_none_is_confused(server: Server) -> None:
    async with asyncio.timeout(30):
        command = server.command("flood 200 20 42; shuffle session.create 20 7; own-ids")
        async with await MessageRouter.spawn(command) as router:
            created = await asyncio.gather(*(router.create_session() for _ in range(20)))
            texts = await asyncio.gather(*(ask(router, channel, "go") for _, channel in created))
            assert set(texts) == {"".join(f"word{number} " for number in range(200))}
            assert router.stats().unknown_events == 0


@pytest.mark.requirement("D-18")
async def test_spawning_returns_when_the_server_can_be_spoken_to(server: Server) -> None:
    async with asyncio.timeout(10):
        command = server.command("noise 2000; greet Welcome!")
        async with await MessageRouter.spawn(command) as router:
            assert (await router.request("ping", {"message": "hi"}))["message"] == "pong: hi"


@pytest.mark.requirement("D-18", "D-52")
@pytest.mark.parametrize(
    ("script", "error", "words"),
    [
        ("exit 3; noise 2", ExitedEarly, "exited with status 3.*noise 1"),
        ("exit 0", ExitedEarly, "exited with status 0"),
        ("port-line Welcome to the server", BadPortLine, "Welcome to the server"),
        ("port-line listening on port 99999", BadPortLine, "99999"),
        ("no-port-line", StartTimeout, "not ready within 2 s"),
    ],
    ids=lambda value: value if isinstance(value, str) else getattr(value, "__name__", None),
)
async def test_each_way_not_to_start_has_its_own_error_and_leaves_no_process(
    server: Server, script: str, error: type[StartError], words: str
) -> None:
    seconds = 20 if error is ExitedEarly else 2  # the others do not come before their time
    async with asyncio.timeout(30):
        with pytest.raises(error, match=f"(?s){words}") as caught:
            await MessageRouter.spawn(server.command(script), timeout=seconds)
        assert type(caught.value) is error
        assert server.count("started") == 1
        assert server.running() == set()


@pytest.mark.requirement("D-18", "D-52")
async def test_a_command_that_is_not_there_has_an_error_of_its_own() -> None:
    with pytest.raises(CommandNotFound, match="no-such-program"):
        await MessageRouter.spawn(["no-such-program", "--headless"])


@pytest.mark.requirement("D-18", "L-25")
async def test_a_start_that_is_cancelled_leaves_no_process(server: Server) -> None:
    async with asyncio.timeout(15):
        starting = asyncio.ensure_future(MessageRouter.spawn(server.command("no-port-line; child")))
        await until(lambda: server.count("child"))
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        assert starting.cancelled()
        await gone(server)


@pytest.mark.requirement("D-48", "D-45", "D-47", "L-26", "D-52")
@pytest.mark.parametrize(
    ("crash", "status"), [("crash 7", 7), ("crash kill", -signal.SIGKILL)], ids=["exit", "kill"]
)
@pytest.mark.parametrize("over", ["tcp", "stdio"])
async def test_a_crash_is_told_to_everybody_with_its_status_and_last_words(
    server: Server, over: str, crash: str, status: int
) -> None:
    async with asyncio.timeout(15):
        command = server.command("swallow never.answered", over=over)
        async with await MessageRouter.spawn(command, over=over) as router:
            _, crashing = await router.create_session()
            _, other = await router.create_session()
            asking = asyncio.ensure_future(router.request("never.answered"))
            params = {
                "sessionId": crashing.session_id,
                "prompt": f"do: stream 3; stderr out of memory; {crash}",
            }
            router.send_request("session.send", params)
            chunks: list[str] = []
            with pytest.raises(RouterStopped) as caught:
                await crashing.read_streaming(chunks.append)
            assert chunks == ["word0 ", "word1 ", "word2 "]  # what came before is delivered first
            cause = caught.value.cause
            assert isinstance(cause, ProcessExited)
            assert cause.status == status
            assert "out of memory" in cause.stderr_tail
            assert "out of memory" in str(caught.value)
            with pytest.raises(RouterStopped) as others:
                await next_event(other, "no such event")
            assert others.value.cause is cause
            with pytest.raises(RouterStopped):
                await asking
            with pytest.raises(RouterStopped):
                await router.request("ping")
        await gone(server)


@pytest.mark.requirement("D-48", "D-45")
async def test_a_server_killed_from_outside_stops_everybody(server: Server) -> None:
    async with asyncio.timeout(15):
        async with await MessageRouter.spawn(server.command("swallow ping")) as router:
            _, channel = await router.create_session()
            waiting = [
                asyncio.ensure_future(router.request("ping")),
                asyncio.ensure_future(channel.read_streaming()),
            ]
            await settle()
            assert router.pid is not None
            os.kill(router.pid, signal.SIGKILL)
            async with asyncio.timeout(1):
                outcomes = await asyncio.gather(*waiting, return_exceptions=True)
            for outcome in outcomes:
                assert isinstance(outcome, RouterStopped)
                assert isinstance(outcome.cause, ProcessExited)
                assert outcome.cause.status == -signal.SIGKILL


@pytest.mark.requirement("D-24", "L-25", "L-27")
async def test_the_process_ends_when_the_last_owner_lets_go(server: Server) -> None:
    async with asyncio.timeout(15):
        router = await MessageRouter.spawn(server.command())
        _, channel = await router.create_session()
        del router
        gc.collect()
        await settle()
        assert await ask(channel.router, channel, "still there?") == "still there?"
        del channel
        await gone(server)
        assert server.count("started") == 1
        closing = [task for task in asyncio.all_tasks() if task.get_name() == "router:close"]
        await asyncio.gather(*closing)  # which learns of it a little later


@pytest.mark.requirement("L-25", "D-24")
async def test_a_server_is_ended_with_its_children_however_stubborn_it_is(server: Server) -> None:
    async with asyncio.timeout(20):
        async with await MessageRouter.spawn(server.command("child; stubborn")) as router:
            await router.create_session()
            assert len(server.running()) == 2
        assert server.running() == set()


@pytest.mark.requirement("L-25")
async def test_a_child_that_outlives_a_crash_is_ended_too(server: Server) -> None:
    async with asyncio.timeout(15):
        async with await MessageRouter.spawn(server.command("child; crash 1")) as router:
            _, channel = await router.create_session()
            with pytest.raises(RouterStopped):
                await ask(router, channel, "go")
        await gone(server)
