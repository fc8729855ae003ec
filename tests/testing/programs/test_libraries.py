"""Other people's libraries are installed once, by their lock, or not at all."""

import hashlib
import json
import os
import subprocess
import zipfile
from pathlib import Path

import pytest

from bullpen.testing.programs import InstallFailed, libraries
from bullpen.testing.programs.libraries import node_modules_of, python_with
from tests.thorough import IS_WANTED

META = "Metadata-Version: 2.1\nName: sample\nVersion: 1.0\n"
WHEEL = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
RECORD = "sample.py,,\nsample-1.0.dist-info/RECORD,,\n"


@pytest.fixture(autouse=True)
def cache(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where libraries are installed in this test."""
    monkeypatch.setenv("BULLPEN_PROGRAMS", str(home / "programs"))
    return home / "programs"


def lock_of(directory: Path, *, digest: str = "") -> Path:
    """Return a lock of one small library."""
    wheel = directory / "sample-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("sample.py", "print('sample')")
        for name, content in (("METADATA", META), ("WHEEL", WHEEL), ("RECORD", RECORD)):
            file.writestr(f"sample-1.0.dist-info/{name}", content)
    digest = digest or hashlib.sha256(wheel.read_bytes()).hexdigest()
    lock = directory / "sample-1.lock"
    lock.write_text(f"sample @ {wheel.as_uri()} --hash=sha256:{digest}\n")
    return lock


def runs(python: Path, module: str) -> bool:
    return subprocess.run([python, "-m", module], capture_output=True, check=False).returncode == 0


def test_a_lock_has_its_own_python_which_is_found_again(home: Path, cache: Path) -> None:
    lock = lock_of(home)
    python = python_with(lock)
    assert runs(python, "sample")
    assert not runs(python, "msgspec")  # it has nothing of ours
    before = python.parent.stat().st_mtime_ns
    assert python_with(lock) == python
    assert python.parent.stat().st_mtime_ns == before
    directory = python.parents[1]
    assert {each.name for each in cache.iterdir()} == {directory.name, f"{directory.name}.lock"}
    assert directory.stat().st_mode & 0o777 == 0o700
    python.unlink()
    assert runs(python_with(lock), "sample")


@pytest.mark.skipif(not IS_WANTED, reason="`make thorough` tries it: pip takes its time")
def test_without_uv_pip_does_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "find_spec", lambda _: None)
    assert runs(python_with(lock_of(home)), "sample")


def test_other_bytes_than_the_locked_ones_are_refused_by_both(home: Path, cache: Path) -> None:
    with pytest.raises(InstallFailed) as caught:
        python_with(lock_of(home, digest="0" * 64))
    assert "hash" in caught.value.output.lower()
    assert all(each.name.endswith(".lock") for each in cache.iterdir())


def test_npm_is_held_to_the_lock_and_runs_no_script(
    home: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = home / "bin"
    tools.mkdir()
    (tools / "node").write_text("#!/bin/sh\necho v22.0.0\n")
    (tools / "npm").write_text(f'#!/bin/sh\necho "$@" >> {home}/calls\nmkdir node_modules\n')
    for tool in tools.iterdir():
        tool.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.defpath}")
    lock = home / "sample-js" / "package-lock.json"
    lock.parent.mkdir()
    lock.write_text("{}")
    (lock.parent / "package.json").write_text(json.dumps({"private": True}))
    modules = node_modules_of(lock)
    assert modules.is_dir()
    assert modules.parent.name.startswith("sample-js-")
    assert (modules.parent / "package.json").is_file()
    assert node_modules_of(lock) == modules
    [call] = (home / "calls").read_text().splitlines()
    assert call.startswith("ci --prefix=")
    assert "--ignore-scripts" in call.split()
    lock.write_text("{ }")
    assert node_modules_of(lock) != modules  # another lock is another directory
