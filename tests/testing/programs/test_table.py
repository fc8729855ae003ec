"""The table says what is tested against: it must not drift, nor be changed by a test."""

import base64
import dataclasses

import pytest

from bullpen.testing.programs import PROGRAMS, Program, UnknownProgram, modes
from bullpen.testing.programs.table import current_platform, find


def test_it_holds_the_programs_we_promise_to_work_with() -> None:
    assert {name: (p.package, p.version) for name, p in PROGRAMS.items()} == {
        "copilot": ("@github/copilot", "1.0.102"),
        "copilot-0.0.420": ("@github/copilot", "0.0.420"),
        "codex": ("@openai/codex", "0.166.0"),
        "claude": ("@anthropic-ai/claude-code", "2.1.197"),
        "gemini": ("@google/gemini-cli", "0.61.0"),
        "opencode": ("opencode-ai", "1.18.33"),
    }


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=str)
def test_every_program_can_be_launched_and_is_pinned(program: Program) -> None:
    assert modes(program.name)
    assert program.package in program.integrity
    for pin in program.integrity.values():
        algorithm, _, digest = pin.partition("-")
        assert algorithm == "sha512"
        assert len(base64.b64decode(digest, validate=True)) == 64


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=str)
def test_the_package_with_the_executable_is_pinned_on_linux_x64(program: Program) -> None:
    path = program.path_in_node_modules("linux-x64")
    owners = [package for package in program.integrity if path.startswith(f"{package}/")]
    assert owners or program.needs_node  # a script lies in the package itself


def test_it_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        PROGRAMS["mine"] = PROGRAMS["codex"]  # type: ignore[index]
    with pytest.raises(TypeError):
        PROGRAMS["codex"].integrity["@openai/codex"] = ""  # type: ignore[index]
    with pytest.raises(dataclasses.FrozenInstanceError):
        PROGRAMS["codex"].version = "1.0"  # type: ignore[misc]


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UnknownProgram, match="unknown program 'cursor', known are copilot, ") as e:
        find("cursor")
    assert e.value.known == tuple(PROGRAMS)


@pytest.mark.parametrize(
    ("system", "machine", "name"),
    [
        ("linux", "x86_64", "linux-x64"),
        ("linux", "aarch64", "linux-arm64"),
        ("darwin", "arm64", "darwin-arm64"),
        ("darwin", "x86_64", "darwin-x64"),
    ],
)
def test_platforms_are_named_as_npm_names_them(
    system: str, machine: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", system)
    monkeypatch.setattr("platform.machine", lambda: machine)
    assert current_platform() == name
