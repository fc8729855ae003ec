"""Bringing a program into the cache: once, whole and verified, however many ask at a time.

    ~/.cache/bullpen/programs/    or $XDG_CACHE_HOME/…, or $BULLPEN_PROGRAMS itself
        codex-0.166.0.lock       held by whoever installs
        codex-0.166.0.partial/   being installed; left over only after a kill, then removed
        codex-0.166.0/           complete, renamed into place in one step
            installed.json       the marker: which program, where, how many bytes
            node_modules/        what npm brought, tarballs verified against the table
            unpacked/            home of the program's first start, holding what it unpacks

npm runs no install script, so nothing that came over the network runs before it is verified.
"""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bullpen.testing.programs.environment import make_home, offline_environment
from bullpen.testing.programs.errors import InstallFailed, IntegrityMismatch
from bullpen.testing.programs.files import write_private
from bullpen.testing.programs.node import Node, find_node
from bullpen.testing.programs.table import Program, current_platform, find

__all__ = ["ensure", "installed", "programs_directory", "unpacked_directory"]

NPM_TIMEOUT_SECONDS = 900.0  # 440 MB on a slow line
LOCK_TIMEOUT_SECONDS = NPM_TIMEOUT_SECONDS + 60.0  # whoever holds the lock ends before that
START_TIMEOUT_SECONDS = 60.0  # the first start unpacks up to 235 MB
LOCK_POLL_SECONDS = 0.1
TAIL_LINES = 20

MARKER = "installed.json"


def ensure(name: str) -> Path:
    """Return the path of a program's executable, installing it first if need be.

    It blocks: for some milliseconds when the program is there, for seconds or minutes when it is
    not. From a coroutine call it through `asyncio.to_thread`.

    Raises:
        UnknownProgram: the table has no such program.
        NodeMissing: it is not installed and there is no npm to do it.
        InstallFailed: npm failed, the bytes are not the expected ones, or it does not start.
    """
    program = find(name)
    if (executable := installed(name)) is not None:
        return executable
    with _locked(program):
        return installed(name) or _install(program)


def installed(name: str) -> Path | None:
    """Return the path of a program's executable, or None if it is absent or damaged."""
    program = find(name)
    directory = _directory(program)
    executable = _executable(program, directory)
    try:
        marker = json.loads((directory / MARKER).read_text("utf-8"))
        is_whole = marker == _marker(program, executable) and os.access(executable, os.X_OK)
    except (OSError, ValueError):
        return None
    return executable if is_whole else None


def programs_directory() -> Path:
    """Return the directory that holds every installed program."""
    chosen = os.environ.get("BULLPEN_PROGRAMS")
    return Path(chosen).absolute() if chosen else _IN_CACHE


def _user_cache() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return cache if cache.is_absolute() else Path.home() / ".cache"


# Read when this is imported: by the time a test runs, it may have been given a home of its own,
# and half a gigabyte must not be fetched into each of those.
_IN_CACHE = _user_cache() / "bullpen" / "programs"


def unpacked_directory(executable: Path) -> Path:
    """Return the home of the first start of a program that `ensure` returned.

    Copilot unpacks 235 MB on its first start and looks for them later. Pointing each private home
    at this one saves the time and the disk.
    """
    modules = next(parent for parent in executable.parents if parent.name == "node_modules")
    return modules.parent / "unpacked"


def _directory(program: Program) -> Path:
    return programs_directory() / f"{program.command}-{program.version}"


def _executable(program: Program, directory: Path) -> Path:
    return directory / "node_modules" / program.path_in_node_modules(current_platform())


def _marker(program: Program, executable: Path) -> dict[str, object]:
    return {
        "package": program.package,
        "version": program.version,
        "executable": program.path_in_node_modules(current_platform()),
        "bytes": executable.stat().st_size,
    }


@contextlib.contextmanager
def _locked(program: Program) -> Iterator[None]:
    """Hold the program's lock. The kernel gives it back when its holder dies."""
    directory = _directory(program)
    directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    deadline = time.monotonic() + LOCK_TIMEOUT_SECONDS
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
                    raise InstallFailed(str(program), reason) from None
            if not is_waiting:
                _report(f"waiting for another process to install {program}")
                is_waiting = True
            time.sleep(LOCK_POLL_SECONDS)
        yield
    finally:
        os.close(descriptor)  # and with it the lock


def _install(program: Program) -> Path:
    """Install under the lock, in a directory aside, and rename that when it is complete."""
    node = find_node()
    directory = _directory(program)
    staging = directory.with_name(f"{directory.name}.partial")
    started = time.monotonic()
    _report(f"installing {program} from npm ({program.package}, {program.megabytes} MB on disk)")
    _remove(staging)
    staging.mkdir(mode=0o700)
    try:
        _run_npm(program, node, staging)
        _verify(program, staging)
        _start_once(program, node, staging)
        executable = _executable(program, staging)
        write_private(staging / MARKER, json.dumps(_marker(program, executable)) + "\n")
        _move_into_place(staging, directory)
    finally:
        _remove(staging)
    _report(f"installed {program} in {time.monotonic() - started:.0f} s")
    return _executable(program, directory)


def _run_npm(program: Program, node: Node, staging: Path) -> None:
    cache = staging / "npm-cache"  # not the user's, and gone when we are done
    command = (
        *node.npm,
        "install",
        f"--prefix={staging}",
        f"--cache={cache}",
        "--no-audit",
        "--no-fund",
        "--no-update-notifier",
        "--ignore-scripts",
        "--include=optional",  # the platform packages are optional dependencies
        "--package-lock",  # records the digests
        "--logs-max=0",
        f"{program.package}@{program.version}",
    )
    environment = {**os.environ, "PATH": node.on_path(os.environ.get("PATH", os.defpath))}
    status, output = _run(program, command, environment, staging, NPM_TIMEOUT_SECONDS)
    if status != 0:
        raise InstallFailed(str(program), f"npm exited with status {status}", _tail(output))
    _remove(cache)


def _verify(program: Program, staging: Path) -> None:
    """Compare what npm recorded of the tarballs it unpacked with what the table expects."""
    try:
        lock = json.loads((staging / "package-lock.json").read_text("utf-8"))
        packages = lock["packages"]
    except (OSError, ValueError, KeyError) as error:
        raise InstallFailed(
            str(program), f"npm left no readable package-lock.json: {error}"
        ) from error
    for package, expected in program.integrity.items():
        path = f"node_modules/{package}"
        is_needed = package == program.package or (staging / path).exists()
        received = packages.get(path, {}).get("integrity", "")
        if is_needed and expected not in received.split():
            raise IntegrityMismatch(str(program), package, expected, received)


def _start_once(program: Program, node: Node, staging: Path) -> None:
    """Ask the program for its version: does it run here, and let it unpack what it needs."""
    executable = _executable(program, staging)
    if not executable.is_file():
        raise InstallFailed(str(program), f"npm brought no executable for {current_platform()}")
    home = staging / "unpacked"
    make_home(home)
    environment = offline_environment(home)
    environment["PATH"] = node.on_path(environment["PATH"])
    command = (str(executable), "--version")
    status, output = _run(program, command, environment, home, START_TIMEOUT_SECONDS)
    if status != 0 or program.version not in output:
        reason = f"{program.command} --version exited with status {status}"
        raise InstallFailed(str(program), reason, _tail(output))


def _move_into_place(staging: Path, directory: Path) -> None:
    damaged = directory.with_name(f"{directory.name}.damaged")
    _remove(damaged)
    with contextlib.suppress(FileNotFoundError):
        directory.rename(damaged)
    staging.rename(directory)
    _remove(damaged)


def _run(
    program: Program,
    command: Sequence[str],
    environment: Mapping[str, str],
    directory: Path,
    timeout_seconds: float,
) -> tuple[int, str]:
    """Run a command to its end; whatever interrupts it takes its children down too."""
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
        raise InstallFailed(str(program), f"{command[0]} does not start: {error}") from error
    with process:
        try:
            output, _ = process.communicate(timeout=timeout_seconds)
        except subprocess.TimeoutExpired:
            _kill(process)
            reason = f"{Path(command[0]).name} took longer than {timeout_seconds:.0f} s"
            raise InstallFailed(str(program), reason) from None
        except BaseException:  # Ctrl-C does not reach the session of its own
            _kill(process)
            raise
    return process.returncode, output.decode("utf-8", "replace")


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _remove(directory: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(directory)


def _tail(output: str) -> str:
    return "\n".join(output.strip().splitlines()[-TAIL_LINES:])


def _report(line: str) -> None:
    sys.stderr.write(f"bullpen: {line}\n")
    sys.stderr.flush()
