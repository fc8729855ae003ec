"""`bullpen replay` lives through a recorded log, and records one."""

import asyncio
import json
import os
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner

from bullpen.cli.group import bullpen, run
from tests.daemon.harness import event, running_daemon

RECORDINGS = Path(__file__).parents[1] / "recordings/replay"


def invoke(*arguments: str) -> str:
    result = CliRunner().invoke(bullpen, ["replay", *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def test_every_transition_is_printed_and_every_figure() -> None:
    output = invoke(str(RECORDINGS / "codex-hooks.jsonl"))
    assert "running → waiting_approval codex_hooks: codex_hooks said so" in output
    assert "weighted F1               1.000" in output
    assert "waiting recall            1.000" in output
    assert "expected" not in output


def test_every_miss_is_printed_with_its_explanation() -> None:
    output = invoke(str(RECORDINGS / "codex.jsonl"), "--tier", "deterministic")
    assert ": expected waiting_approval; found running" in output
    assert "  won: codex_rollout tool.started" in output


def test_the_report_is_there_for_programs() -> None:
    report = json.loads(invoke(str(RECORDINGS / "claude.jsonl"), "--json"))
    assert report["schema"] == 1
    assert report["weighted_f1"] == 1.0
    assert set(report["transitions"][0]) == {"after", "agent", "at", "before", "reason", "source"}


def test_a_log_without_labels_has_no_figures(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    file.write_text(json.dumps({"observation": event("turn.started")}) + "\n", encoding="utf-8")
    output = invoke(str(file))
    assert "claude-1" in output
    assert "weighted" not in output


def test_words_of_others_cannot_move_the_cursor(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    asked = event("turn.started", session="claude:\x1b[2J")
    told = {"at": asked["observed_at"], "label": {"subject": "claude:\x1b[2J", "activity": "idle"}}
    lines = [{"observation": asked}, told]
    file.write_text("".join(json.dumps(each) + "\n" for each in lines), encoding="utf-8")
    assert "\x1b" not in invoke(str(file))


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "No such file or directory"), ("{", "line 1: Input data was truncated")],
)
def test_a_file_that_cannot_be_read_is_explained(
    content: str | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "log.jsonl"
    if content is not None:
        file.write_text(content, encoding="utf-8")
    assert run(["replay", str(file)]) == 1
    assert message in capsys.readouterr().err


async def test_what_a_daemon_observed_can_be_recorded_and_lived_through(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    async with running_daemon() as (peer, _):
        await peer.hello("claude_hooks")
        await peer.ingest(event("turn.started", origin={"pid": os.getpid()}))
        output = await asyncio.to_thread(invoke, "--record", str(file))
        again = await asyncio.to_thread(invoke, "--record", str(file), "--seconds", "0")
    assert f"of the last 600 s are in {file}" in output
    assert again.startswith("0 observations")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.read_text(encoding="utf-8") == ""


async def test_a_recording_tells_what_the_daemon_told(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    async with running_daemon() as (peer, _):
        await peer.hello("claude_hooks")
        for word in ("turn.started", "turn.completed"):
            await peer.ingest(event(word, origin={"pid": os.getpid()}))
        await asyncio.to_thread(invoke, "--record", str(file))
    report = json.loads(invoke(str(file), "--json"))
    assert [each["after"] for each in report["transitions"]][-2:] == ["running", "idle"]


def test_there_has_to_be_a_daemon_to_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "log.jsonl"
    assert run(["replay", "--record", str(file)]) == 1
    assert "daemon" in capsys.readouterr().err
    assert not file.exists()


async def test_where_nothing_can_be_written_nothing_is_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with running_daemon():
        missing = tmp_path / "missing" / "log.jsonl"
        assert await asyncio.to_thread(run, ["replay", "--record", str(missing)]) == 1
    assert "No such file or directory" in capsys.readouterr().err
    assert await asyncio.to_thread(os.listdir, tmp_path) == []
