"""`bullpen hooks` writes only what it was asked to, says what, and takes it out again."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bullpen.agents.hooks import PROGRAMS
from bullpen.cli.group import bullpen
from bullpen.model.states import Provider


def run(*arguments: str) -> Result:
    return CliRunner().invoke(bullpen, ["hooks", *arguments])


def printed(*arguments: str) -> dict[str, Any]:
    result = run(*arguments, "--json")
    said: dict[str, Any] = json.loads(result.stdout)
    assert said.pop("schema") == 1
    return said


@pytest.fixture
def settings(home: Path) -> Path:
    path = home / ".claude/settings.json"
    path.parent.mkdir()
    path.write_text('{\n  "model": "opus"\n}\n')
    return path


@pytest.mark.requirement("cli:hooks")
def test_hooks_are_installed_checked_and_removed(settings: Path) -> None:
    before = settings.read_bytes()
    result = run("install", "claude")
    assert (result.exit_code, result.output) == (0, "claude  ~/.claude/settings.json  installed\n")
    assert run("check", "claude").exit_code == 0
    again = run("install", "claude")
    assert again.output == "claude  ~/.claude/settings.json  installed already\n"
    result = run("uninstall", "claude")
    assert (result.exit_code, result.output) == (0, "claude  ~/.claude/settings.json  taken out\n")
    assert settings.read_bytes() == before
    assert run("uninstall", "claude").output.endswith("not installed\n")


@pytest.mark.requirement("cli:hooks")
def test_a_dry_run_prints_a_difference_and_writes_nothing(settings: Path) -> None:
    before = settings.read_bytes()
    result = run("install", "claude", "--dry-run")
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[0] == "claude  ~/.claude/settings.json  would be installed"
    assert lines[1] == f"--- {settings}"
    assert any(line.startswith("+") and "shim.py claude Stop" in line for line in lines)
    assert settings.read_bytes() == before


def test_check_tells_each_event(settings: Path) -> None:
    result = run("check", "claude")
    assert result.exit_code == 1
    lines = result.output.splitlines()
    assert lines[0] == "claude  ~/.claude/settings.json"
    assert len(lines) == 1 + len(PROGRAMS[Provider.CLAUDE].events)
    assert all(line.endswith("- missing") for line in lines[1:])
    run("install", "claude")
    written = settings.read_text().replace("shim.py claude Stop ", "older.py claude Stop ")
    settings.write_text(written)
    result = run("check", "claude")
    assert result.exit_code == 1
    told = {line.split()[0]: line.split()[-1] for line in result.output.splitlines()[1:]}
    assert told["Stop"] == "outdated"
    assert set(told.values()) == {"installed", "outdated"}


def test_programs_read_the_same_in_json(settings: Path) -> None:
    said = printed("install", "claude")
    (program,) = said["programs"]
    assert said["dry_run"] is False
    assert program["path"] == str(settings)
    assert program["has_changed"]
    assert program["is_complete"]
    assert set(program["events"].values()) == {"installed"}
    (checked,) = printed("check", "claude")["programs"]
    assert checked["events"] == program["events"]
    (removed,) = printed("uninstall", "claude", "--dry-run")["programs"]
    assert removed["diff"].startswith("---")
    assert set(removed["events"].values()) == {"missing"}


def test_all_means_those_that_are_here(
    settings: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(home))
    (home / ".codex").mkdir()
    result = run("install", "all")
    assert result.exit_code == 0
    assert [line.split()[0] for line in result.stdout.splitlines() if line[0] != " "] == [
        "claude",
        "codex",
    ]
    assert "gemini: not found here" in result.stderr
    assert not (home / ".gemini").exists()
    assert "review" in result.stdout  # which Codex wants
    assert run("check", "all").exit_code == 0
    run("uninstall", "all")
    assert list((home / ".codex").iterdir()) == []


def test_what_may_cost_more_is_installed_by_its_name_only(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(home))
    (home / ".config/opencode").mkdir(parents=True)
    assert "opencode" not in run("install", "all").output
    assert "registry" in run("install", "opencode").stdout
    assert "opencode" in run("uninstall", "all").stdout
    assert not (home / ".config/opencode/plugin").exists()


def test_what_is_wrong_with_one_program_does_not_keep_it_from_the_others(
    settings: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(home))
    (home / ".codex").mkdir()
    settings.write_text("{")
    result = run("install", "all")
    assert result.exit_code == 1
    assert f"bullpen: {settings}: line 1, column 2: it ends too early" in result.stderr
    assert "codex" in result.stdout
    assert settings.read_text() == "{"


def test_a_project_is_chosen_by_its_directory(home: Path) -> None:
    project = home / "project"
    project.mkdir()
    assert run("install", "claude", "--project", str(project)).exit_code == 0
    assert (project / ".claude/settings.json").exists()
    assert not (home / ".claude").exists()
    assert run("check", "claude", "--scope", "project", "--project", str(project)).exit_code == 0
    assert run("check", "claude").exit_code == 1


def test_a_project_is_the_current_directory_if_none_is_named(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home)
    assert run("install", "codex", "--scope", "project").exit_code == 0
    assert (home / ".codex/hooks.json").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("install",),
        ("install", "vim"),
        ("install", "claude", "--scope", "galaxy"),
        ("install", "claude", "--scope", "user", "--project", "."),
        ("frobnicate", "claude"),
    ],
)
def test_wrong_usage_is_told_from_failure(arguments: tuple[str, ...]) -> None:
    assert run(*arguments).exit_code == 2
