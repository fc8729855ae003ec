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
import json
import os
import time
from pathlib import Path

from bullpen.testing.programs.environment import make_home, offline_environment
from bullpen.testing.programs.errors import InstallFailed, IntegrityMismatch
from bullpen.testing.programs.files import write_private
from bullpen.testing.programs.node import Node, find_node
from bullpen.testing.programs.placing import (
    locked,
    programs_directory,
    remove,
    report,
    run,
    staged,
    tail,
)
from bullpen.testing.programs.table import Program, current_platform, find

__all__ = ["ensure", "installed", "unpacked_directory"]

NPM_TIMEOUT_SECONDS = 900.0  # 440 MB on a slow line
LOCK_TIMEOUT_SECONDS = NPM_TIMEOUT_SECONDS + 60.0  # whoever holds the lock ends before that
START_TIMEOUT_SECONDS = 60.0  # the first start unpacks up to 235 MB

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


def _locked(program: Program) -> contextlib.AbstractContextManager[None]:
    return locked(_directory(program), str(program), timeout_seconds=LOCK_TIMEOUT_SECONDS)


def _install(program: Program) -> Path:
    """Install under the lock, in a directory aside, and rename that when it is complete."""
    node = find_node()
    directory = _directory(program)
    started = time.monotonic()
    report(f"installing {program} from npm ({program.package}, {program.megabytes} MB on disk)")
    with staged(directory) as staging:
        _run_npm(program, node, staging)
        _verify(program, staging)
        _start_once(program, node, staging)
        executable = _executable(program, staging)
        write_private(staging / MARKER, json.dumps(_marker(program, executable)) + "\n")
    report(f"installed {program} in {time.monotonic() - started:.0f} s")
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
    status, output = run(str(program), command, environment, staging, NPM_TIMEOUT_SECONDS)
    if status != 0:
        raise InstallFailed(str(program), f"npm exited with status {status}", tail(output))
    remove(cache)


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
    status, output = run(str(program), command, environment, home, START_TIMEOUT_SECONDS)
    if status != 0 or program.version not in output:
        reason = f"{program.command} --version exited with status {status}"
        raise InstallFailed(str(program), reason, tail(output))
