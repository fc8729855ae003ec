"""The dummy answers what it is told, as slowly as it is told, and ends at the second interrupt."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bullpen.agents.profiles import load
from bullpen.terminal.pty import PtyProcess

WAIT_SECONDS = 20
COMMAND = load("dummy", Path("/nowhere")).command


@asynccontextmanager
async def dummy(*arguments: str) -> AsyncIterator[PtyProcess]:
    async with await PtyProcess.spawn([*COMMAND, *arguments]) as process:
        await heard(process, b"[DUMMY] Ready\r\n> ")
        yield process


async def heard(process: PtyProcess, end: bytes) -> bytes:
    """Read on until the output ends so."""
    read = b""
    async with asyncio.timeout(WAIT_SECONDS):
        while not read.endswith(end):
            data = await process.read()
            assert data, f"ended after {read!r}"
            read += data
    return read


@pytest.mark.requirement("S-183")
async def test_it_echoes_ignores_empty_lines_and_quits() -> None:
    async with dummy("0") as process:
        await process.write("hello 日本\n".encode())
        said = await heard(process, b"\r\n> ")
        assert said == "hello 日本\r\n[DUMMY] You said: hello 日本\r\n> ".encode()
        for empty in (b"\n", b"  \n"):
            await process.write(empty)
            assert await heard(process, b"\r\n> ") == empty.replace(b"\n", b"\r\n> ")
        await process.write(b"exit\n")
        assert await process.wait() == 0


@pytest.mark.requirement("S-183")
async def test_the_first_interrupt_warns_and_the_second_ends_it() -> None:
    async with dummy("0") as process:
        process.interrupt()
        said = await heard(process, b"\r\n> ")
        assert b"[DUMMY] Interrupted; once more ends me" in said
        process.interrupt()
        assert await process.wait() == 128 + signal.SIGINT


@pytest.mark.requirement("S-183")
async def test_an_interrupt_ends_its_work_and_an_answer_makes_up_for_it() -> None:
    async with dummy("3600") as process:
        await process.write(b"long\n")
        await heard(process, b"long\r\n")
        process.interrupt()
        said = await heard(process, b"> ")
        assert b"You said" not in said
        assert b"once more ends me" in said
    async with dummy("0") as process:
        for _ in range(3):
            process.interrupt()
            await heard(process, b"ends me\r\n> ")
            await process.write(b"hi\n")
            await heard(process, b"You said: hi\r\n> ")
