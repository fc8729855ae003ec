"""What a hook tells of a turn is told in the program's own words, or not at all."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bullpen.agents.providers.claude.prompts import WAKE_MESSAGE, WAKE_SUMMARY, plain_prompt
from bullpen.agents.turns import is_end, journal_of_hook, turn_of_hook
from bullpen.model.states import Provider
from bullpen.model.turns import Turn, TurnEnd
from tests.agents.claude import recorded as claude
from tests.agents.codex import recorded as codex
from tests.agents.copilot import recorded as copilot
from tests.agents.gemini import recorded as gemini

Told = tuple[str | None, TurnEnd | None, str]


def told(provider: Provider, payloads: list[Any]) -> list[Told]:
    """Return what payloads tell, in order."""
    turns = [turn_of_hook(provider, each) for each in payloads]
    return [(turn.prompt, turn.end, turn.text) for turn in turns if turn is not None]


@pytest.mark.requirement("mail:turns")
def test_a_run_of_claude_is_told_turn_by_turn() -> None:
    payloads = [each["payload"] for each in claude.deliveries("hooks-turns.jsonl")]
    assert told(Provider.CLAUDE, payloads) == [
        ("<<presleep 1 | say hello>>", None, ""),
        (None, TurnEnd.DONE, "hello"),
        ("<<bash touch a.txt ;; say ok>>", None, ""),
        (None, TurnEnd.DONE, "ok"),
        ("<<bash touch b.txt ;; say ok>>", None, ""),  # Esc: no hook tells of it
        ("<<say start | sleep 30 | say hello>>", None, ""),
        ("<<bash sleep 20 ;; say slept>>", None, ""),
        ("<<err 400 bad>>", None, ""),
        (None, TurnEnd.FAILED, "API Error: 400 bad"),
        ("<<err 429 slow down>>", None, ""),
        (None, TurnEnd.RATE_LIMITED, "API Error: Request rejected (429) · slow down"),
        (None, TurnEnd.INTERRUPTED, "its session has ended (clear)"),
        (None, TurnEnd.INTERRUPTED, "its session has ended (prompt_input_exit)"),
    ]


@pytest.mark.requirement("mail:turns")
def test_a_run_of_codex_is_told_turn_by_turn() -> None:
    payloads = [each for part in codex.hooks("hooks-terminal.jsonl").values() for each in part]
    turns = told(Provider.CODEX, payloads)
    assert turns[:3] == [
        ("<<sleep 2 | say hello there>>", None, ""),
        (None, TurnEnd.DONE, "hello there"),
        ("<<bashesc touch one.txt ;; say did it>>", None, ""),
    ]
    interrupted = turns.index((None, TurnEnd.INTERRUPTED, ""))
    assert turns[interrupted - 1][0] is not None
    assert [end for _, end, _ in turns if end is TurnEnd.FAILED] == []  # it may try again


def test_what_happens_in_a_subagent_is_no_turn() -> None:
    payloads = [each for part in codex.hooks("hooks-subagent.jsonl").values() for each in part]
    inside = [each for each in payloads if each.get("agent_id")]
    assert inside
    assert told(Provider.CODEX, inside) == []
    stopped = {**claude.by_event()["Stop"], "agent_id": "a1"}
    assert turn_of_hook(Provider.CLAUDE, stopped) is None
    assert not is_end(Provider.CLAUDE, stopped)


def test_gemini_and_copilot_tell_what_was_asked_and_that_it_is_over() -> None:
    # What Gemini says it has answered is not what it has: " \nall fine  fine ".
    answered = gemini.payload_of("AfterAgent")
    assert turn_of_hook(Provider.GEMINI, answered) is None
    assert is_end(Provider.GEMINI, answered)
    asked = turn_of_hook(Provider.GEMINI, gemini.payload_of("BeforeAgent"))
    assert asked is not None
    assert asked.prompt == "<<bash touch x ;; say all fine>>"
    stopped = copilot.payload_of("agentStop")
    assert turn_of_hook(Provider.COPILOT, stopped) is None
    assert is_end(Provider.COPILOT, stopped)
    asked = turn_of_hook(Provider.COPILOT, copilot.payload_of("userPromptSubmitted"))
    assert asked is not None
    assert (asked.by, asked.prompt) == ("copilot_hooks", "<<bash touch x ;; say all fine>>")


def test_copilot_is_understood_in_the_words_of_claude() -> None:
    payload = {"hook_event_name": "UserPromptSubmit", "session_id": "s1", "prompt": "hi"}
    turn = turn_of_hook(Provider.COPILOT, payload)
    assert turn == Turn(by="copilot_hooks", prompt="hi", session_id="s1")
    assert is_end(Provider.COPILOT, {"hook_event_name": "Stop"})


@pytest.mark.requirement("mail:turns", "door:wake")
@given(st.text())
@example(f"it says {WAKE_MESSAGE} in the midst")
def test_a_wake_up_is_told_as_the_text_it_brought(text: str) -> None:
    for before in (WAKE_MESSAGE, 'Stop hook blocking error from command "SessionStart:startup":'):
        prompt = (
            f"<task-notification>\n<summary>{WAKE_SUMMARY}</summary>\n</task-notification>\n"
            f"<system-reminder>\n{before} {text}\n</system-reminder>"
        )
        assert plain_prompt(prompt) == text
    if not text.startswith(("<task-notification>", "Stop hook feedback:\n")):
        assert plain_prompt(text) == text
    assert plain_prompt(f"Stop hook feedback:\n{text}") == text


def test_what_a_program_tells_itself_stays_as_it_is() -> None:
    [done] = [
        each["payload"]["prompt"]
        for each in claude.deliveries("hooks-tools.jsonl")
        if "baf2fng05" in each["payload"].get("prompt", "")
    ]
    assert plain_prompt(done) == done


def test_a_text_that_was_cut_is_left_to_the_journal() -> None:
    payload = claude.by_event()["Stop"]
    assert turn_of_hook(Provider.CLAUDE, payload) is not None
    cut = {**payload, "bullpen_cut": 300_000}
    assert turn_of_hook(Provider.CLAUDE, cut) is None
    assert is_end(Provider.CLAUDE, cut)


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ({"transcript_path": "/a/b.jsonl"}, "/a/b.jsonl"),
        ({"transcriptPath": "/a/events.jsonl"}, "/a/events.jsonl"),
        ({"transcript_path": "b.jsonl"}, ""),
        ({"transcript_path": "/a\0b"}, ""),
        ({"transcript_path": 1}, ""),
        ([], ""),
    ],
    ids=["claude", "copilot", "relative", "nul", "number", "list"],
)
def test_where_the_journal_is_is_what_the_program_says(payload: Any, expected: str) -> None:
    assert journal_of_hook(payload) == expected


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
NAMES = ("UserPromptSubmit", "Stop", "StopFailure", "SessionEnd", "Interrupt", "PostModelRequest")
MORE_NAMES = ("BeforeAgent", "AfterAgent", "userPromptSubmitted", "agentStop", "sessionEnd")
KEYS = ("prompt", "last_assistant_message", "error", "session_id", "agent_id", "reason", "status")


@given(
    st.sampled_from(Provider),
    ANYTHING
    | st.builds(
        lambda name, rest: {"hook_event_name": name, **rest},
        st.sampled_from((*NAMES, *MORE_NAMES)) | ANYTHING,
        st.dictionaries(st.sampled_from(KEYS), ANYTHING),
    ),
)
def test_no_payload_makes_it_fail(provider: Provider, payload: Any) -> None:
    turn = turn_of_hook(provider, payload)
    assert turn is None or (turn.prompt is None) != (turn.end is None)
    is_end(provider, payload)
    journal_of_hook(payload)
