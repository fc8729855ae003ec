"""Other people's libraries, for tests that cannot have them beside ours: from lock files.

    ~/.cache/bullpen/programs/
        a2a-0.3-8d2f61c09a4b-cpython-311/   a virtual environment
        a2a-js-51c7be0d9f3e/node_modules/

A directory is named after its lock file and what stands in it, so that another lock is another
directory. Each lock has the digests of all it names; nothing else is installed, and nothing of it
runs while it is installed. It is known that a virtual environment has been moved: its programs are
started by `python -m`, not by the scripts in its `bin`.
"""

import hashlib
import os
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from bullpen.testing.programs.errors import InstallFailed
from bullpen.testing.programs.node import find_node
from bullpen.testing.programs.placing import (
    locked,
    programs_directory,
    remove,
    report,
    run,
    staged,
    tail,
)

__all__ = ["node_modules_of", "python_with"]

INSTALL_SECONDS = 600.0
LOCK_SECONDS = 2 * INSTALL_SECONDS + 60.0  # whoever holds the lock ends before that
DIGITS = 12

# Where to fetch from may be said in the user's own home, and a test has another one.
_OURS = dict(os.environ)


def python_with(lock: Path) -> Path:
    """Return a Python that has the packages of a lock file, and no others.

    It blocks: for a moment when they are there, for seconds when they are not.

    Raises:
        InstallFailed: they cannot be had.
    """
    suffix = f"-{sys.implementation.cache_tag}"
    return _ensured(lock, lock.stem, suffix, Path("bin", "python"), _install_python)


def node_modules_of(lock: Path) -> Path:
    """Return the `node_modules` of a `package-lock.json`; a `package.json` is beside that.

    Blocks and raises as `python_with` does.

    Raises:
        NodeMissing: they are not there, and there is no npm to fetch them.
    """
    return _ensured(lock, lock.parent.name, "", Path("node_modules"), _install_node)


def _ensured(
    lock: Path, name: str, suffix: str, wanted: Path, install: Callable[[Path, Path], None]
) -> Path:
    digest = hashlib.sha256(lock.read_bytes()).hexdigest()[:DIGITS]
    directory = programs_directory() / f"{name}-{digest}{suffix}"
    found = directory / wanted
    if os.access(found, os.X_OK):
        return found
    with locked(directory, name, timeout_seconds=LOCK_SECONDS):
        if not os.access(found, os.X_OK):
            started = time.monotonic()
            report(f"installing {name}")
            with staged(directory) as staging:
                install(lock, staging)
            report(f"installed {name} in {time.monotonic() - started:.0f} s")
    return found


def _install_python(lock: Path, staging: Path) -> None:
    """Install with uv, which takes a tenth of the time, or else with pip."""
    _run(lock, staging, sys.executable, "-m", "venv", "--without-pip", str(staging))
    python = str(staging / "bin" / "python")
    locked_only = ("--require-hashes", "--no-deps", "--only-binary", ":all:", "-r", str(lock))
    if find_spec("uv") is not None:
        cache = staging / "uv-cache"
        try:
            into = (f"--cache-dir={cache}", "--python", python)
            _run(lock, staging, *_UV, "install", *into, *locked_only)
        except InstallFailed as error:
            report(f"uv cannot: {error.output or error.reason}")
        else:
            return
        finally:
            remove(cache)
    _run(lock, staging, *_PIP, f"--python={python}", "install", "--no-compile", *locked_only)


_UV = (sys.executable, "-m", "uv", "--quiet", "pip")
_PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-cache-dir")


def _install_node(lock: Path, staging: Path) -> None:
    for name in (lock.name, "package.json"):
        (staging / name).write_bytes((lock.parent / name).read_bytes())
    node = find_node()
    cache = staging / "npm-cache"
    options = ("--ignore-scripts", "--no-audit", "--no-fund", f"--cache={cache}")
    path = node.on_path(_OURS.get("PATH", os.defpath))
    _run(lock, staging, *node.npm, "ci", f"--prefix={staging}", *options, PATH=path)
    remove(cache)


def _run(lock: Path, staging: Path, *command: str, **variables: str) -> None:
    status, output = run(lock.name, command, {**_OURS, **variables}, staging, INSTALL_SECONDS)
    if status != 0:
        reason = f"{Path(command[0]).name} exited with status {status}"
        raise InstallFailed(lock.name, reason, tail(output))
