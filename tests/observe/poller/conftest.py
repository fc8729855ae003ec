"""Real tmux servers of a test's own, found by nobody else."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bullpen.observe.sources.poller import PollerSource
from bullpen.observe.sources.terminals import TmuxFinder
from bullpen.terminal.tmux import TmuxServer
from bullpen.terminal.tmux.backoff import Backoff
from bullpen.testing.tmux import PrivateTmux
from tests.observe.poller.looking import RULES, Ear, FakeProcesses, listen


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("tmux") and shutil.which("tmux") is None:
        pytest.skip("there is no tmux here")


@pytest.fixture
async def tmux() -> AsyncIterator[PrivateTmux]:
    """A server with one session, "main", and one silent pane, "%0"."""
    async with PrivateTmux(width=120, height=40) as server:
        yield server


@pytest.fixture
async def another() -> AsyncIterator[PrivateTmux]:
    """A server that does not run yet."""
    server = PrivateTmux(width=120, height=40)
    await server.prepare()
    yield server
    await server.stop()


@pytest.fixture
def sockets(home: Path) -> Path:
    """The directory in which tmux has its sockets, for this test."""
    directory = home / f"tmux-{os.getuid()}"
    directory.mkdir(mode=0o700)
    return directory


Watch = Callable[..., Awaitable[Ear]]


@pytest.fixture
async def watch(home: Path, sockets: Path) -> AsyncIterator[Watch]:
    """Makes pollers that look at some servers, and at those found in `sockets`."""
    async with AsyncExitStack() as stack:

        async def make(tmux: PrivateTmux | None = None, **options: Any) -> Ear:
            environment = {**os.environ, "TMUX_TMPDIR": str(home), **options.pop("environment", {})}
            finder = TmuxFinder(
                environment,
                socket_name=tmux.target.socket_path if tmux else None,
                only=options.pop("only", False),
            )
            timeout = options.pop("timeout_seconds", 5.0)
            options.setdefault("tmux_only", True)  # agents of tests beside ours are none
            source = PollerSource(
                lambda: datetime.now(UTC),
                RULES,
                finder=finder,
                make_runner=lambda target: TmuxServer(
                    target,
                    environment=environment,
                    timeout_seconds=timeout,
                    backoff=Backoff(first_seconds=0.01, longest_seconds=0.05),
                ),
                **options,
            )
            stack.push_async_callback(source.aclose)
            return await listen(source)

        yield make


@pytest.fixture
def link(sockets: Path) -> Callable[[PrivateTmux, str], Awaitable[None]]:
    """Puts the socket of a server where tmux would have it."""

    async def put(server: PrivateTmux, name: str) -> None:
        await asyncio.to_thread((sockets / name).symlink_to, server.target.socket_path)

    return put


@pytest.fixture
def no_processes() -> FakeProcesses:
    """A process table without anybody in it."""
    return FakeProcesses()
