"""`bullpen explain` names provider, state, rule, region, text and losers."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
from click.testing import CliRunner, Result
from inline_snapshot import snapshot

from bullpen.cli.group import bullpen
from bullpen.model.explaining import explanation_lines
from bullpen.model.states import Activity, EvidenceMode, SourceKind
from bullpen.model.views import Claim, Explanation
from bullpen.testing.daemon import FakeDaemon, agent_state, pane_state
from tests.cli.commands import show
from tests.terminal.recorded import SCREENS


def explain(*arguments: str, input_: str | None = None) -> Result:
    result = CliRunner().invoke(bullpen, ["explain", *arguments], input=input_)
    assert result.exit_code == 0, result.output
    return result


def recorded(name: str) -> str:
    return str(SCREENS / name)


def test_an_approval_of_claude_is_explained() -> None:
    file = recorded("claude/claude_approval_bash_120x40_1.ansi")
    assert explain("--file", file, "--cmd", "claude").output == snapshot("""\
claude is waiting_approval, not ready for a message
  because   a dialog with numbered choices asks whether a tool may go on
  rule      approval
  dialog    '❯ 1. Yes' in line 35 of 39
  dialog    '❯ 1. Yes' in line 35 of 39
  bottom:4  'Esc to cancel · Tab to amend · ctrl+e to explain' in line 39 of 39
  box       absent
  provider  the current command is 'claude' (confidence 0.86)
lost
  approval-plan (waiting_approval): outranked: priority 93, not 94
  menu (waiting_input): outranked: priority 90, not 94
  choice (waiting_input): outranked: priority 65, not 94
  dialog-open (waiting_input): outranked: priority 20, not 94
""")


def test_a_draft_in_codex_is_explained() -> None:
    file = recorded("codex/codex_idle_typed_unsent_120x40_1.txt")
    result = explain("--file", file, "--provider", "codex", "--cursor", "20,36")
    assert result.output == snapshot("""\
codex is idle, not ready for a message
  because   the prompt is open and nothing says that it works
  rule      prompt-open
  prompt    'typed but not sent' in line 37 of 40
  box       draft: a draft is in the prompt box
  provider  it was given (confidence 1.00)
""")


def test_a_running_gemini_is_explained() -> None:
    file = recorded("gemini/006_running-streaming_120x40.ansi")
    result = explain(
        "--file", file, "--cmd", "node /x/.bin/gemini", "--title", "✦  Working… (proj)"
    )
    assert result.output == snapshot("""\
gemini is running, not ready for a message
  because   a spinner above the prompt box tells how to cancel
  rule      spinner
  above:8   '⠸ Thinking... (esc to cancel, 2s) ? for shortcuts' in line 32 of 39
  prompt    'Type your message or @path/to/file' in line 35 of 39
  box       empty
  provider  the process in front is '/x/.bin/gemini' (confidence 1.00)
lost
  title-works (running): outranked: priority 75, not 80
  prompt-open (idle): outranked: priority 10, not 80
""")


def test_a_shell_with_an_agents_title_is_explained() -> None:
    result = explain("--file", "-", "--cmd", "zsh", "--title", "✳ Claude Code", input_="$ ls\n")
    assert result.output == snapshot("""\
no agent
  because   the title is '✳', but a title alone is no evidence
""")


def test_a_screen_no_rule_knows_is_explained() -> None:
    result = explain("--file", "-", "--provider", "claude", input_="something\nelse\n")
    assert result.output == snapshot("""\
claude is unknown, not ready for a message
  because   no rule holds on this screen
  rule      none
  box       absent
  provider  it was given (confidence 1.00)
""")


def test_json_has_all_that_the_text_has() -> None:
    file = recorded("claude/claude_approval_bash_120x40_1.ansi")
    said = msgspec.json.decode(explain("--file", file, "--cmd", "claude", "--json").output)
    assert said["schema"] == 1
    assert said["signature"]["provider"] == "claude"
    assert said["signature"]["inputs"]["cmd_match"] is True
    verdict = said["verdict"]
    assert (verdict["activity"], verdict["ready"]) == ("waiting_approval", False)
    assert verdict["rule"] == "approval"
    assert verdict["evidence"][0] == {"region": "dialog", "text": "❯ 1. Yes", "row": 34}
    assert {each["rule"] for each in verdict["losers"]} >= {"menu"}


def test_bytes_that_are_no_text_are_explained_too(tmp_path: Path) -> None:
    path = tmp_path / "screen"
    path.write_bytes(b"\xff\xfe\x00\x1b[31")
    assert "unknown" in explain("--file", str(path), "--provider", "codex").output


@pytest.mark.parametrize("command", ["claude", "/opt/bin/claude --resume", "env A=1 claude"])
def test_a_command_line_says_which_program_it_is(command: str) -> None:
    assert explain("--file", "-", "--cmd", command, input_="").output.startswith("claude is ")


# Through the daemon

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


def claim(source: SourceKind, activity: Activity, age: float, **facts: Any) -> Claim:
    return Claim(
        source_kind=source,
        tier=source.tier,
        event_type=f"activity.{activity.value}",
        activity=activity,
        observed_at=NOW - timedelta(seconds=age),
        age_seconds=age,
        link_age_seconds=2,
        **facts,
    )


CLAUDE = agent_state(
    "claude-1",
    Activity.WAITING_APPROVAL,
    pane="%3",
    since=NOW - timedelta(minutes=4),
    evidence_mode=EvidenceMode.DETERMINISTIC,
    source=SourceKind.CLAUDE_HOOKS,
    reason="the hook PermissionRequest",
    session_key="claude:0b1c",
)
EXPLANATION = Explanation(
    subject="claude-1",
    agent=CLAUDE,
    pane=pane_state("%3", agent=CLAUDE),
    claims=(
        claim(
            SourceKind.CLAUDE_HOOKS,
            Activity.WAITING_APPROVAL,
            240,
            is_winner=True,
            why="it ranks highest",
        ),
        claim(
            SourceKind.POLLER,
            Activity.IDLE,
            1,
            why="a deterministic source is fresh",
            details={
                "rule": "prompt-open",
                "evidence": [{"region": "prompt", "text": "❯\x1b[0m", "row": 38}],
                "losers": ["menu: nearly"],
                "is_ready": True,
                "nothing": "",
            },
        ),
    ),
    refused=("late_event: claude_transcript turn.completed",),
)


def test_who_won_and_who_lost_is_explained() -> None:
    lines = [click.unstyle(line) for line in explanation_lines(EXPLANATION, NOW)]
    assert "\n".join(lines) + "\n" == snapshot("""\
claude-1 is ◆ waiting_approval for 4m, not ready for a message
  known     = deterministic, by claude_hooks
  because   the hook PermissionRequest
  session   claude:0b1c
  pane      work:1.0 %3, managed_heuristic
  provider  the current command is 'claude' (heuristic, confidence 0.86)
won
  claude_hooks (deterministic) says ◆ waiting_approval
    by        activity.waiting_approval, 4m ago; last heard of 2s ago
    because   it ranks highest
lost
  poller (heuristic) says ✓ idle
    by        activity.idle, 1s ago; last heard of 2s ago
    because   a deterministic source is fresh
    rule      prompt-open
    evidence
      prompt: '❯\\x1b[0m' in line 39
    losers
      menu: nearly
    is_ready  True
refused
  late_event: claude_transcript turn.completed
""")


def test_a_pane_without_an_agent_is_explained() -> None:
    explanation = Explanation(subject="%9", pane=pane_state("%9"))
    assert "\n".join(explanation_lines(explanation, NOW)) + "\n" == snapshot("""\
%9: no agent
  pane      work:1.0 %9, unmanaged
  provider  nothing says that it is an agent (none, confidence 0.00)
""")


@pytest.mark.parametrize("details", [None, 7, ["x"], {"a": {"b": None}}, {"row": {"region": 1}}])
def test_details_of_a_later_version_are_shown_as_they_are(details: Any) -> None:
    later = claim(SourceKind.POLLER, Activity.IDLE, 1, details=details)
    explanation = Explanation(subject="x", claims=(later,))
    assert all(click.unstyle(line).isprintable() for line in explanation_lines(explanation, NOW))


async def test_the_daemon_is_asked_for_an_agent_or_a_pane(daemon: FakeDaemon) -> None:
    daemon.explanations["claude-1"] = EXPLANATION
    daemon.set_pane(pane_state("%9"))
    assert (
        "claude_hooks (deterministic) says ◆ waiting_approval"
        in (await show("explain", "claude-1")).out
    )
    assert (await show("explain", "%9")).lines[0] == "%9: no agent"
    said = (await show("explain", "claude-1", "--json")).json
    assert said["schema"] == 1
    assert [each["is_winner"] for each in said["claims"]] == [True, False]
    assert said["claims"][1]["details"]["rule"] == "prompt-open"
