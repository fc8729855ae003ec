"""A tmux server of the test's own."""

import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from bullpen.testing.tmux import PrivateTmux


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("tmux") and shutil.which("tmux") is None:
        pytest.skip("there is no tmux here")


@pytest.fixture
async def tmux() -> AsyncIterator[PrivateTmux]:
    """A server with one session, "main", and one silent pane, "%0"."""
    async with PrivateTmux() as server:
        yield server


@pytest.fixture
def fake_program(
    tmux: PrivateTmux, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], None]:
    """Puts a shell script first on the PATH as "tmux". The test's server has started already."""

    def write(script: str) -> None:
        directory = tmp_path / "bin"
        directory.mkdir()
        (directory / "tmux").write_text(f"#!/bin/sh\n{script}\n")
        (directory / "tmux").chmod(0o755)
        monkeypatch.setenv("PATH", f"{directory}:/usr/bin:/bin")

    return write
