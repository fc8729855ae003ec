"""Dialogs of the real programs, as they stand on recorded screens."""

import pytest

from bullpen.model.dialogs import Decision, Dialog, chosen, decision_of
from bullpen.model.states import Provider
from bullpen.observe.evaluate import Label
from bullpen.terminal.dialogs import ScreenDialog, meant, read_dialog
from bullpen.terminal.rules import parse_rules, shipped_rules
from bullpen.terminal.rules.errors import RuleFileError
from bullpen.terminal.rules.screen import Screen
from tests.terminal.recorded import label_of, labels, screen

RULES = shipped_rules()
NOT_BY_KEYS = ("opencode/", "gemini/002", "-trust")  # by its server; and what no task waits for
HALF = ("claude/60x20-few-colours-a05", "codex/80x24-few-colours-a07")  # painted over, cut off


def dialog(label: Label) -> ScreenDialog:
    return read_dialog(screen(label), RULES[Provider(label.provider)])


def approvals() -> list[Label]:
    found = [each for each in labels() if each.activity == "waiting_approval"]
    return [each for each in found if not any(part in each.file for part in NOT_BY_KEYS)]


@pytest.mark.requirement("a2a:approval")
@pytest.mark.parametrize("label", approvals(), ids=lambda each: each.file)
def test_every_approval_is_understood(label: Label) -> None:
    found = dialog(label)
    if found.marked is None:
        # It was just typed into; or it is told to a screen reader, and answered in its terminal.
        is_typed_into = label.file == "claude/claude_approval_bash_120x40_3.txt"
        assert is_typed_into or "read-aloud" in label.file
        assert found.answers == ()
        return
    words = ["yes", "no"] if not label.file.startswith(HALF) else ["yes"]
    for word in words:
        place = meant(found, word)
        assert place is not None
        choice = found.choices[place].label
        assert choice.split(",")[0].split()[0] in (
            ("Yes", "Allow") if word == "yes" else ("No", "Cancel")
        )
        assert "again" not in choice
        assert meant(found, str(place + 1)) == place
        assert meant(found, choice.upper()) == place
    for said in ("", "maybe", "yes, but", "0", "99", "-1", "yes\nno", "1 2", "\r", "/yes"):
        assert meant(found, said) is None


@pytest.mark.requirement("a2a:approval")
@pytest.mark.parametrize(
    ("file", "asked", "choices"),
    [
        (
            "claude/80x24-few-colours-a05-approval-bash",
            "Do you want to proceed?",
            ["Yes", "Yes, and always allow access to proj/ from this project", "No"],
        ),
        (
            "codex/codex_approval_mcp_120x40_1",
            'Allow the relay MCP server to run tool "send_message"?',
            ["Allow", "Allow for this session", "Always allow", "Cancel"],
        ),
        (
            "gemini/036_waiting_input-question_120x40",
            "Which colour do you want",
            ["red", "blue", "Enter a custom value"],
        ),
    ],
    ids=["claude", "codex", "gemini"],
)
def test_what_is_asked_is_told_without_its_frame(file: str, asked: str, choices: list[str]) -> None:
    found = dialog(label_of(file))
    assert asked in found.text.split("\n")
    assert [each.label for each in found.choices] == choices
    assert not set("│╭╰─❯›●") & set(found.text)


@pytest.mark.requirement("a2a:approval")
def test_a_dialog_is_the_same_whichever_choice_is_marked_and_another_with_other_words() -> None:
    shown = screen(label_of("claude/80x24-few-colours-a05-approval-bash"))
    rules = RULES[Provider.CLAUDE]
    moved = {
        " ❯ 1. Yes": "   1. Yes",
        "   3. No": " ❯ 3. No",
        " Esc to cancel · Tab to amend · ctrl+e to explain": " Esc to cancel · ctrl+e to explain",
    }
    assert set(moved) <= set(shown.lines)
    other = Screen(tuple(moved.get(line, line) for line in shown.lines))
    first, second = read_dialog(shown, rules), read_dialog(other, rules)
    assert (first.marked, second.marked) == (0, 2)
    assert first.key == second.key
    changed = Screen(tuple(line.replace("touch a.txt", "rm -rf /") for line in shown.lines))
    assert read_dialog(changed, rules).key != first.key


@pytest.mark.requirement("a2a:approval")
def test_what_enter_would_only_tick_is_not_answered() -> None:
    found = dialog(label_of("claude/80x24-few-colours-a09-question-multi"))
    assert found.answers == ()
    assert meant(found, "1") is None


@pytest.mark.requirement("a2a:approval")
def test_words_that_decide_are_few_and_plain() -> None:
    assert decision_of(" Yes. ") is decision_of("approve") is Decision.YES
    assert decision_of("DENY") is decision_of("n") is Decision.NO
    assert decision_of("always") is Decision.ALWAYS
    for said in ("", "yes no", "not", "yess", "sure thing"):
        assert decision_of(said) is None
    assert chosen(["Red", "red"], "red") is None
    assert chosen(["Red", "Blue"], "blue") == 1


def test_what_allows_nothing_is_known() -> None:
    asked = Dialog(id="d", text="?", answers=("yes", "no", "1: Yes", "2: No, and stop"))
    for said, is_declined in (("yes", False), ("no", True), ("1", False), ("2", True)):
        assert asked.is_declined_by(said) is is_declined
    assert asked.is_declined_by("No, and stop")


def test_a_choice_without_its_groups_is_no_rule() -> None:
    with pytest.raises(RuleFileError, match="mark"):
        parse_rules('provider = "claude"\n[answers]\nchoice = "x"', file="own.toml")
