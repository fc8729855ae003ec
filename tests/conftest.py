"""What holds for every test: its own directories, no blocking call in a loop, no task left."""

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import hypothesis
import pytest
from blockbuster import blockbuster_ctx

# A busy machine is no reason to fail; a hang is ended by pytest-timeout.
# `HYPOTHESIS_PROFILE=thorough` tries more, for whoever has the time.
hypothesis.settings.register_profile("bullpen", deadline=None, print_blob=True, max_examples=50)
hypothesis.settings.register_profile(
    "thorough", parent=hypothesis.settings.get_profile("bullpen"), max_examples=1000
)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "bullpen"))

# The developer's own tmux is none of ours, nor are we an agent he has started. With CI set, some
# agents take nobody to be at their terminal. How wide and colourful his terminal is, a test says.
OF_THE_SURROUNDINGS = (
    *("TMUX", "TMUX_PANE", "BULLPEN_SECRET", "BULLPEN_AGENT", "CI"),
    *("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE"),
)

# Unix sockets have to fit below a test's directories, and macOS's own place for them is a long one.
LONGEST_PLACE = 24
if len(tempfile.gettempdir()) > LONGEST_PLACE:
    tempfile.tempdir = os.environ["TMPDIR"] = os.path.realpath("/tmp")


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give the test a HOME, XDG and runtime directories of its own, with short paths."""
    # What a test's child processes still write while they end must not fail the test.
    with tempfile.TemporaryDirectory(prefix="bullpen-", ignore_cleanup_errors=True) as directory:
        home = Path(directory)
        runtime = home / "run"
        runtime.mkdir(mode=0o700)
        monkeypatch.setenv("HOME", str(home))
        monkeypatch.setenv("XDG_CACHE_HOME", str(home / ".cache"))
        monkeypatch.setenv("XDG_CONFIG_HOME", str(home / ".config"))
        monkeypatch.setenv("XDG_DATA_HOME", str(home / ".local/share"))
        monkeypatch.setenv("XDG_STATE_HOME", str(home / ".local/state"))
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
        monkeypatch.setenv("TMUX_TMPDIR", str(runtime))
        for name in OF_THE_SURROUNDINGS:
            monkeypatch.delenv(name, raising=False)
        yield home


@pytest.fixture(autouse=True, scope="session")
def no_blocking_calls() -> Iterator[None]:
    """Make a blocking call raise `BlockingError` when our code makes it in a running loop.

    Only calls below a frame of the package are judged, so what pytest, hypothesis and the tests
    themselves do is not.
    """
    with blockbuster_ctx("bullpen"):
        yield


@pytest.fixture
async def no_leaked_tasks() -> AsyncIterator[None]:
    """Fail a test that leaves a task behind. Every async test has it, below its other fixtures."""
    before = asyncio.all_tasks()
    yield
    await asyncio.sleep(0)  # a task that is ending may end
    leaked = asyncio.all_tasks() - before - {asyncio.current_task()}
    assert not leaked, "the test left tasks behind:\n" + "\n".join(map(repr, leaked))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and item.get_closest_marker("asyncio"):
            item.fixturenames.insert(0, "no_leaked_tasks")  # set up first, torn down last
