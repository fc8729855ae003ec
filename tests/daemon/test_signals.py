"""It stops when it is told to, by whom, and knows why."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bullpen.daemon.signals import Stop, stop_on_signals

STOPPER = Path(__file__).parent / "programs/stopper.py"
SECONDS = 20


@asynccontextmanager
async def stopper(*words: str, ignoring: int | None = None) -> AsyncIterator[Process]:
    before = signal.signal(ignoring, signal.SIG_IGN) if ignoring else None
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable, STOPPER, *words, stdin=PIPE, stdout=PIPE, stderr=PIPE
        )
    finally:
        if ignoring:
            signal.signal(ignoring, before)
    try:
        assert process.stdout is not None
        assert await asyncio.wait_for(process.stdout.readline(), SECONDS) == b"ready\n"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def said(process: Process) -> str:
    assert process.stdout is not None
    return (await asyncio.wait_for(process.stdout.readline(), SECONDS)).decode().strip()


@pytest.mark.requirement("SIGN-1")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_asks_it_to_stop_and_it_ends_well(number: signal.Signals) -> None:
    async with stopper() as process:
        process.send_signal(number)
        assert await said(process) == number.name
        assert await asyncio.wait_for(process.wait(), SECONDS) == 0


async def test_one_that_is_to_outlive_its_terminal_does() -> None:
    async with stopper(ignoring=signal.SIGHUP) as process:
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        assert await said(process) == "SIGTERM"


async def test_a_second_signal_ends_one_that_does_not_get_to_its_end() -> None:
    async with stopper("stubborn") as process:
        process.send_signal(signal.SIGTERM)
        assert await said(process) == "SIGTERM"
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), SECONDS) == -signal.SIGTERM


async def test_the_end_of_stdin_says_that_its_parent_is_gone() -> None:
    async with stopper("with_parent") as process:
        assert process.stdin is not None
        process.stdin.write(b"whatever\n")  # which is not an end
        await process.stdin.drain()
        process.stdin.close()
        assert await said(process) == "its parent is gone"
        assert await asyncio.wait_for(process.wait(), SECONDS) == 0


async def test_the_end_of_stdin_means_nothing_to_others() -> None:
    async with stopper() as process:
        assert process.stdin is not None
        process.stdin.close()
        process.send_signal(signal.SIGINT)
        assert await said(process) == "SIGINT"


async def test_afterwards_signals_are_as_before() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with stop_on_signals() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(SECONDS):
            assert await stop.wait() == "SIGTERM"
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


async def test_the_first_reason_is_kept() -> None:
    stop = Stop()
    assert not stop.is_asked
    stop.ask("first")
    stop.ask("second")
    assert (stop.is_asked, await stop.wait()) == (True, "first")
