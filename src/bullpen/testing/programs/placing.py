"""Putting something into the cache: once and whole, however many ask at a time.

Whoever does it holds a lock beside the directory, makes it aside, and renames it when it is
complete. What a kill left half made is removed by the next one.
"""

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bullpen.testing.programs.errors import InstallFailed

__all__ = ["locked", "programs_directory", "remove", "report", "run", "staged", "tail"]

LOCK_POLL_SECONDS = 0.1
TAIL_LINES = 20


def programs_directory() -> Path:
    """Return the directory that holds all that is installed."""
    chosen = os.environ.get("BULLPEN_PROGRAMS")
    return Path(chosen).absolute() if chosen else _IN_CACHE


def _user_cache() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return cache if cache.is_absolute() else Path.home() / ".cache"


# Read when this is imported: by the time a test runs, it may have been given a home of its own,
# and half a gigabyte must not be fetched into each of those.
_IN_CACHE = _user_cache() / "bullpen" / "programs"


@contextlib.contextmanager
def locked(directory: Path, what: str, *, timeout_seconds: float) -> Iterator[None]:
    """Hold the lock of a directory. The kernel gives it back when its holder dies.

    Raises:
        InstallFailed: somebody else holds it for too long.
    """
    directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    deadline = time.monotonic() + timeout_seconds
    is_waiting = False
    descriptor = os.open(f"{directory}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    reason = f"another process has held {directory}.lock for too long"
                    raise InstallFailed(what, reason) from None
            if not is_waiting:
                report(f"waiting for another process to install {what}")
                is_waiting = True
            time.sleep(LOCK_POLL_SECONDS)
        yield
    finally:
        os.close(descriptor)  # and with it the lock


@contextlib.contextmanager
def staged(directory: Path) -> Iterator[Path]:
    """Make a directory aside, under its lock, and put it into place if the block ends well."""
    staging = directory.with_name(f"{directory.name}.partial")
    remove(staging)
    staging.mkdir(mode=0o700)
    try:
        yield staging
        _move_into_place(staging, directory)
    finally:
        remove(staging)


def _move_into_place(staging: Path, directory: Path) -> None:
    damaged = directory.with_name(f"{directory.name}.damaged")
    remove(damaged)
    with contextlib.suppress(FileNotFoundError):
        directory.rename(damaged)
    staging.rename(directory)
    remove(damaged)


def run(
    what: str,
    command: Sequence[str],
    environment: Mapping[str, str],
    directory: Path,
    timeout_seconds: float,
) -> tuple[int, str]:
    """Run a command to its end; whatever interrupts it takes its children down too.

    Raises:
        InstallFailed: it does not start, or not end in time.
    """
    try:
        process = subprocess.Popen(
            command,
            env=environment,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        raise InstallFailed(what, f"{command[0]} does not start: {error}") from error
    with process:
        try:
            output, _ = process.communicate(timeout=timeout_seconds)
        except subprocess.TimeoutExpired:
            _kill(process)
            reason = f"{Path(command[0]).name} took longer than {timeout_seconds:.0f} s"
            raise InstallFailed(what, reason) from None
        except BaseException:  # Ctrl-C does not reach the session of its own
            _kill(process)
            raise
    return process.returncode, output.decode("utf-8", "replace")


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def remove(directory: Path) -> None:
    """Remove a directory that need not be there."""
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(directory)


def tail(output: str) -> str:
    """Return the end of what a command printed."""
    return "\n".join(output.strip().splitlines()[-TAIL_LINES:])


def report(line: str) -> None:
    """Tell whoever waits what is being done."""
    sys.stderr.write(f"bullpen: {line}\n")
    sys.stderr.flush()
