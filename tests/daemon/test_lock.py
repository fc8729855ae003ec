"""One at a time, whoever was killed in whichever way before."""

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from bullpen.daemon.lock import AlreadyRunning, InstanceLock, LockError

HOLDER = Path(__file__).parent / "programs/holder.py"


class Holder:
    """A process that tries to take a lock, and what it said first."""

    def __init__(self, path: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(HOLDER), str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.said = self.process.stdout.readline().strip()

    @property
    def pid(self) -> int:
        return self.process.pid

    def end(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=10)


@pytest.fixture
def path(home: Path) -> Path:
    return home / "run/bullpend.lock"


@pytest.fixture
def ending() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def hold(path: Path, ending: ExitStack) -> Holder:
    holder = Holder(path)
    ending.callback(holder.end)
    return holder


@pytest.mark.requirement("UDS-4")
def test_the_second_is_refused_and_told_who_is_first(path: Path, ending: ExitStack) -> None:
    first = hold(path, ending)
    assert first.said == "locked"
    assert hold(path, ending).said == f"refused {first.pid}"
    with pytest.raises(AlreadyRunning, match=rf"already running \(pid {first.pid}\)") as caught:
        InstanceLock(path).acquire()
    assert caught.value.pid == first.pid


@pytest.mark.requirement("UDS-4")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_death_releases_it(path: Path, ending: ExitStack, number: int) -> None:
    first = hold(path, ending)
    os.kill(first.pid, number)
    first.process.wait(timeout=10)
    assert hold(path, ending).said == "locked"


def test_the_file_is_ours_alone_and_holds_our_pid_as_long_as_we_hold_it(path: Path) -> None:
    before = os.umask(0)
    try:
        with InstanceLock(path):
            assert path.read_text() == f"{os.getpid()}\n"
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
    finally:
        os.umask(before)
    assert path.read_text() == ""


def test_it_can_be_taken_again_by_the_same_process(path: Path) -> None:
    lock = InstanceLock(path)
    for _ in range(3):
        with lock:
            lock.acquire()  # which we have
            with pytest.raises(AlreadyRunning):
                InstanceLock(path).acquire()
        lock.release()  # twice is the same as once


def test_a_child_that_outlives_us_does_not_hold_it(path: Path) -> None:
    with InstanceLock(path):
        child = subprocess.Popen([sys.executable, "-Ic", "input()"], stdin=subprocess.PIPE)
    try:
        with InstanceLock(path):
            pass
    finally:
        child.kill()
        child.communicate(timeout=10)


def test_a_longer_pid_of_a_dead_holder_is_overwritten_whole(path: Path) -> None:
    path.write_text("123456789012\n")
    with InstanceLock(path):
        assert path.read_text() == f"{os.getpid()}\n"


@pytest.mark.parametrize("content", ["", "not a pid", "\0\0\0"])
def test_a_holder_that_cannot_be_told_is_still_a_holder(
    path: Path, ending: ExitStack, content: str
) -> None:
    hold(path, ending)
    path.write_text(content)
    with pytest.raises(AlreadyRunning, match="already running: ") as caught:
        InstanceLock(path).acquire()
    assert caught.value.pid is None


def test_a_lock_that_was_removed_while_it_was_taken_is_not_the_lock(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked: list[int] = []
    lock = InstanceLock._lock

    def lock_and_lose(self: InstanceLock, fd: int) -> None:
        lock(self, fd)
        locked.append(fd)
        if len(locked) == 1:
            path.unlink()

    monkeypatch.setattr(InstanceLock, "_lock", lock_and_lose)
    with InstanceLock(path):
        assert path.read_text() == f"{os.getpid()}\n"
    assert len(locked) == 2


def test_what_cannot_be_a_lock_is_said_to_be_so(path: Path, home: Path) -> None:
    with pytest.raises(LockError, match="No such file"):
        InstanceLock(home / "missing/x.lock").acquire()
    path.symlink_to(home / "elsewhere")
    with pytest.raises(LockError, match="cannot lock"):
        InstanceLock(path).acquire()
    assert not (home / "elsewhere").exists()
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(LockError, match="it is not a file"):
        InstanceLock(path).acquire()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make what is somebody else's")
def test_a_file_of_somebody_elses_is_refused(path: Path) -> None:
    path.write_text("")
    os.chown(path, 65534, 65534)
    with pytest.raises(LockError, match="it is somebody else's"):
        InstanceLock(path).acquire()
