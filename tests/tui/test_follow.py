"""A daemon that crashed is started again; one that was ended stays so until somebody asks."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from bullpen.api import start
from bullpen.api.client import Resync
from bullpen.api.runtime import Paths
from bullpen.testing.daemon import FakeDaemon
from bullpen.tui import follow as following
from bullpen.tui.follow import Connected, Heard, Lost, follow


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch, home: Path) -> list[Paths]:
    """Notes who wants a daemon started, and starts one that observes nothing."""
    asked: list[Paths] = []

    def command(paths: Paths) -> list[str]:
        asked.append(paths)
        return [sys.executable, "-m", "bullpen.testing.daemon", str(paths.socket)]

    monkeypatch.setattr(start, "daemon_command", command)
    monkeypatch.setattr(following, "FIRST_PAUSE_SECONDS", 0.05)
    return asked


class Ear:
    """Hears until something has come."""

    def __init__(self, hearing: AsyncIterator[Heard], asked: asyncio.Event) -> None:
        self.asked = asked
        self._hearing = hearing

    async def until(self, kind: type) -> Heard:
        async with asyncio.timeout(20):
            async for heard in self._hearing:
                if isinstance(heard, kind):
                    return heard
        raise AssertionError("it ended")


@asynccontextmanager
async def ear(path: str | Path) -> AsyncIterator[Ear]:
    asked = asyncio.Event()
    async with aclosing(follow(Paths.resolve(socket=path), asked)) as hearing:
        yield Ear(hearing, asked)


async def test_one_that_was_ended_is_started_when_somebody_asks(
    daemon: FakeDaemon, starts: list[Paths]
) -> None:
    async with ear(daemon.socket_path) as listening:
        await listening.until(Resync)
        await daemon.stop()
        for _ in range(3):
            await listening.until(Lost)
        assert starts == []
        listening.asked.set()
        connected = await listening.until(Connected)
        assert isinstance(connected, Connected)
        assert len(starts) == 1
        await connected.client.shutdown()


async def test_one_that_crashed_is_started_again(daemon: FakeDaemon, starts: list[Paths]) -> None:
    async with ear(daemon.socket_path) as listening:
        await listening.until(Resync)
        await daemon.stop()
        await asyncio.to_thread(_leave_socket, Path(daemon.socket_path))
        connected = await listening.until(Connected)
        assert isinstance(connected, Connected)
        assert len(starts) == 1
        await connected.client.shutdown()


async def test_one_that_cannot_be_started_is_not_tried_again_and_again(
    home: Path, monkeypatch: pytest.MonkeyPatch, starts: list[Paths]
) -> None:
    tried = 0

    def command(paths: Paths) -> list[str]:
        nonlocal tried
        tried += 1
        return [sys.executable, "-c", "raise SystemExit('no')"]

    monkeypatch.setattr(start, "daemon_command", command)
    async with ear(home / "run/bullpen/bullpend.sock") as listening:
        lost = await listening.until(Lost)
        assert isinstance(lost, Lost)
        assert "ended with status 1" in lost.reason
        await listening.until(Lost)
        await listening.until(Lost)
        assert tried == 1


def _leave_socket(path: Path) -> None:
    import socket

    left = socket.socket(socket.AF_UNIX)
    left.bind(str(path))
    left.close()
