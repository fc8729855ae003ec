"""`bullpen evaluate` measures a folder of labelled screens."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from bullpen.cli.group import bullpen, run

ROW = {
    "file": "a.txt",
    "provider": "claude",
    "activity": "idle",
    "ready": True,
    "current_cmd": "claude",
}
IDLE = "─" * 20 + "\n❯\n" + "─" * 20


def folder(directory: Path, **changes: object) -> str:
    (directory / "a.txt").write_text(IDLE, encoding="utf-8")
    (directory / "index.jsonl").write_text(json.dumps(ROW | changes) + "\n\n", encoding="utf-8")
    return str(directory)


def test_the_report_has_every_figure(tmp_path: Path) -> None:
    result = CliRunner().invoke(bullpen, ["evaluate", folder(tmp_path), "--json"])
    assert result.exit_code == 0
    report = json.loads(result.output)
    assert set(report) == {
        "approvals_called_idle",
        "classes",
        "false_agents",
        "misses",
        "provider_errors",
        "ready_errors",
        "rows",
        "schema",
        "waiting_recall",
        "weighted_f1",
    }
    assert set(report["classes"][0]) == {"f1", "label", "precision", "recall", "support"}


def test_a_screen_read_right_is_no_miss(tmp_path: Path) -> None:
    output = CliRunner().invoke(bullpen, ["evaluate", folder(tmp_path)]).output
    assert "weighted F1               1.000" in output
    assert "a.txt" not in output


def test_every_miss_is_told_with_its_explanation(tmp_path: Path) -> None:
    output = CliRunner().invoke(bullpen, ["evaluate", folder(tmp_path, activity="running")]).output
    assert "a.txt: activity" in output
    assert "expected claude running, ready; found claude idle, ready" in output
    assert "the prompt box is open and nothing says that it works; rule prompt-open" in output


def test_plain_text_is_read_where_the_attributes_are_missing(tmp_path: Path) -> None:
    result = CliRunner().invoke(bullpen, ["evaluate", folder(tmp_path, ansi_file="gone.ansi")])
    assert result.exit_code == 0


def test_rules_of_the_user_are_measured_unless_told_otherwise(home: Path, tmp_path: Path) -> None:
    rules = home / ".config/bullpen/rules"
    rules.mkdir(parents=True)
    taken_away = 'provider = "claude"\n[[rules]]\nname = "prompt-open"\nenabled = false\n'
    (rules / "claude.toml").write_text(taken_away, encoding="utf-8")
    directory = folder(tmp_path)
    with_mine = CliRunner().invoke(bullpen, ["evaluate", directory, "--json"])
    without = CliRunner().invoke(bullpen, ["evaluate", directory, "--json", "--shipped"])
    assert json.loads(with_mine.output)["weighted_f1"] == 0.0
    assert json.loads(without.output)["weighted_f1"] == 1.0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "index.jsonl: No such file or directory"),
        ('{"file": ', "index.jsonl:1: Input data was truncated"),
        ('{"file": "a.txt"}', "index.jsonl:1: Object missing required field `provider`"),
        (json.dumps(ROW | {"file": "b.txt"}), "b.txt: No such file or directory"),
    ],
)
def test_a_folder_that_cannot_be_read_is_explained(
    content: str | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        (tmp_path / "index.jsonl").write_text(content, encoding="utf-8")
    assert run(["evaluate", str(tmp_path)]) == 1
    assert message in capsys.readouterr().err
