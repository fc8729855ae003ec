"""A daemon that says what a test tells it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bullpen.testing.daemon import FakeDaemon


@pytest.fixture
async def daemon(home: Path) -> AsyncIterator[FakeDaemon]:
    async with FakeDaemon(home / "run/bullpen/bullpend.sock") as daemon:
        yield daemon
