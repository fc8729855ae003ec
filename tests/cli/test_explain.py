"""`bullpen explain` names provider, state, rule, region, text and losers."""

from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result
from inline_snapshot import snapshot

from bullpen.cli.group import bullpen
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
  bottom:4  'Esc to cancel · Tab to amend · ctrl+e to explain' in line 39 of 39
  box       absent
  provider  the current command is 'claude' (confidence 0.86)
lost
  approval-plan (waiting_approval): outranked: priority 93, not 94
  menu (waiting_input): outranked: priority 90, not 94
  choice (waiting_input): outranked: priority 65, not 94
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
