"""A journal tells exactly what an agent was asked and what it said, however it is written."""

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.agents.journals import JOURNALS, Ears, Journal, find_journal
from bullpen.agents.providers.told import JournalReader, ToldTurn
from bullpen.model.messages import MAX_THINKING_BYTES
from bullpen.model.states import Provider
from bullpen.model.turns import Turn, TurnEnd, Utterance
from bullpen.testing.tmux import eventually

RECORDINGS = Path(__file__).parents[1] / "recordings"
SESSION = "603130b5-0f3c-4c4e-9b1a-0123456789ab"
DONE, INTERRUPTED = TurnEnd.DONE, TurnEnd.INTERRUPTED
MESSAGE = '[from bob]\n! 日本語\t<tag> & "quoted"\n  indented'
ANSWER = "起きた\nsecond line"

Told = tuple[str | None, TurnEnd | None, str]


def read(provider: Provider, name: str) -> list[Turn]:
    """Return what a recording tells."""
    reader = JOURNALS[provider]()
    lines = (RECORDINGS / name).read_bytes().splitlines()
    return [turn for line in lines for turn in reader.read(line)] + list(reader.pause())


def told(turns: list[Turn]) -> list[Told]:
    return [(turn.prompt, turn.end, turn.text) for turn in turns]


# ----------------------------------------------------------------------------------- what is told


@pytest.mark.requirement("mail:journals")
def test_an_end_tells_what_was_asked_in_its_turn() -> None:
    told = ToldTurn("a journal")
    told.prompt("count the files")
    told.joined("and the lines")
    assert told.so_far().asked == ("count the files", "and the lines")
    assert told.end(INTERRUPTED).asked == told.end(DONE).asked == told.so_far().asked
    told.prompt("thank you")
    assert told.end(DONE).asked == ("thank you",)


@pytest.mark.requirement("mail:journals")
def test_a_transcript_of_claude_tells_also_what_no_hook_does() -> None:
    assert told(read(Provider.CLAUDE, "claude/transcript-turns.jsonl")) == [
        ("<<presleep 1 | say hello>>", None, ""),
        (None, DONE, "hello"),
        ("<<bash touch a.txt ;; say ok>>", None, ""),
        (None, DONE, "ok"),
        ("<<bash touch b.txt ;; say ok>>", None, ""),
        (None, INTERRUPTED, ""),
        ("<<say start | sleep 30 | say hello>>", None, ""),
        (None, INTERRUPTED, ""),
        ("<<bash sleep 20 ;; say slept>>", None, ""),
        (None, INTERRUPTED, ""),
        ("<<err 400 bad>>", None, ""),
        (None, TurnEnd.FAILED, "API Error: 400 bad"),
        ("<<err 429 slow down>>", None, ""),
        (None, TurnEnd.RATE_LIMITED, "API Error: Request rejected (429) · slow down"),
    ]


def test_commands_and_subagents_are_no_turns_of_claude() -> None:
    assert read(Provider.CLAUDE, "claude/transcript-commands.jsonl") == []
    assert read(Provider.CLAUDE, "claude/transcript-subagent.jsonl") == []
    turns = read(Provider.CLAUDE, "claude/transcript-tools.jsonl")
    ends = [turn.text for turn in turns if turn.end is DONE]
    assert ends[:3] == ["done", "thanks", "agentdone"]
    assert [turn.thinking for turn in turns if turn.text == "done"] == ["hmm"]
    assert ("<<say two>>", None, "") in told(turns)


@pytest.mark.requirement("mail:journals", "door:wake", "door:drain")
def test_a_transcript_tells_what_came_in_through_hooks() -> None:
    turns = read(Provider.CLAUDE, "claude/transcript-told.jsonl")
    woken = '[from bob]\n! WAKEONE\n日本語\t<tag> & "quoted"'
    assert told(turns) == [
        (woken, None, ""),
        (None, DONE, ANSWER),
        ("TOOLS", None, ""),
        ("[from bob] MIDTURN", None, ""),  # woken while it worked
        (None, DONE, "x"),
        ("[from carl]\nDRAINED <b>\n  indented", None, ""),
        (None, DONE, "drained"),
        ("<<say begun | wait never | say x>>", None, ""),
        (None, DONE, "drained"),
        (None, INTERRUPTED, ""),
        ("[from bob] AFTERESC", None, ""),
        (None, DONE, "woken after esc"),
    ]
    assert turns[1].thinking == "hm, so"
    assert turns[0].session_id == turns[1].session_id == "1a2de780-1740-46a8-be1d-2095cca8cfff"
    assert turns[0].turn_id == turns[1].turn_id != ""


@pytest.mark.requirement("mail:journals")
def test_a_session_file_of_codex_tells_every_end() -> None:
    name = "codex/rollout-2026-11-15T14-06-45-01a1df88-2bd0-7fe2-9f47-6b57f59c49ea.jsonl"
    turns = read(Provider.CODEX, name)
    ends = [turn for turn in turns if turn.end is not None]
    assert [turn.end for turn in ends] == [
        *(DONE, DONE, INTERRUPTED, DONE, INTERRUPTED),
        *(TurnEnd.FAILED, TurnEnd.FAILED, TurnEnd.RATE_LIMITED),
        DONE,  # and nothing of the compaction before it
    ]
    assert [turn.text for turn in ends if turn.end is DONE] == [
        "hello there",
        "did it",
        "ok",
        "patched",
    ]
    asked = [turn.prompt for turn in turns if turn.prompt is not None]
    assert len(asked) == len(ends)
    assert asked[0] == "<<sleep 2 | say hello there>>"


@pytest.mark.requirement("mail:journals", "door:drain")
@pytest.mark.parametrize(
    ("provider", "name"),
    [
        (Provider.CODEX, "codex/rollout-told.jsonl"),
        (Provider.COPILOT, "copilot-hooks/events-told.jsonl"),
    ],
    ids=["codex", "copilot"],
)
def test_what_a_hook_said_is_a_prompt_with_an_answer_of_its_own(
    provider: Provider, name: str
) -> None:
    turns = read(provider, name)
    assert told(turns) == [
        ("LATER", None, ""),
        (None, DONE, "later"),
        (MESSAGE, None, ""),
        (None, DONE, ANSWER),
    ]
    assert turns[-1].thinking == "hm, so"


@pytest.mark.requirement("mail:journals")
def test_a_record_of_copilot_tells_errors_and_interruptions() -> None:
    turns = told(read(Provider.COPILOT, "copilot-hooks/events.jsonl"))
    assert [(end, text) for _, end, text in turns if end is not None] == [
        (DONE, "all fine"),
        (INTERRUPTED, ""),
        (INTERRUPTED, ""),
        (TurnEnd.FAILED, "400 nope"),
        (DONE, "thanks"),
    ]
    resumed = told(read(Provider.COPILOT, "copilot-hooks/events-killed-and-resumed.jsonl"))
    assert ("another message", None, "") in resumed
    assert "sub done" not in [text for _, _, text in resumed]


@pytest.mark.requirement("mail:journals")
def test_a_record_of_gemini_has_the_words_but_no_end() -> None:
    reader = JOURNALS[Provider.GEMINI]()
    lines = (RECORDINGS / "gemini/chat-told.jsonl").read_bytes().splitlines()
    turns = [turn for line in lines for turn in reader.read(line)]
    assert told(turns) == [("LATER", None, ""), (MESSAGE, None, "")]
    said = reader.told.so_far()
    assert (said.text, said.thinking, said.by) == (ANSWER, "hm, so", "gemini")
    turns = read(Provider.GEMINI, "gemini/chat.jsonl")
    ends = [(turn.end, turn.text[:11]) for turn in turns if turn.end is not None]
    assert ends == [(INTERRUPTED, ""), (INTERRUPTED, ""), (TurnEnd.FAILED, "[API Error:")]


def test_what_gemini_writes_once_more_was_not_said_again() -> None:
    reader = JOURNALS[Provider.GEMINI]()
    lines = (RECORDINGS / "gemini/chat.jsonl").read_bytes().splitlines()
    [after] = [number for number, line in enumerate(lines) if b"say begun" in line]
    for line in lines[:after]:
        reader.read(line)
    assert reader.told.text == ""  # what it had said is that of the turn before


def test_older_words_of_codex_are_understood() -> None:
    reader = JOURNALS[Provider.CODEX]()
    events: list[dict[str, Any]] = [
        {"type": "turn_started", "turn_id": "t1"},
        {"type": "user_message", "message": "hi"},
        {"type": "agent_reasoning", "text": "hm"},
        {"type": "agent_message", "message": "hello"},
        {"type": "turn_complete", "turn_id": "t1"},
        {"type": "user_message", "message": "again"},
        {"type": "user_message", "message": "and faster"},
        {"type": "error", "message": "status 429"},
        {"type": "turn_complete"},
        {"type": "turn_aborted", "reason": "replaced"},
    ]
    lines = [json.dumps({"type": "event_msg", "payload": each}).encode() for each in events]
    turns = [turn for line in lines for turn in reader.read(line)]
    assert told(turns) == [
        ("hi", None, ""),
        (None, DONE, "hello"),
        ("again", None, ""),
        ("and faster", None, ""),
        (None, TurnEnd.RATE_LIMITED, "status 429"),
    ]
    assert (turns[1].thinking, turns[1].turn_id) == ("hm", "t1")


def test_thinking_is_kept_as_far_as_a_message_can_carry_it() -> None:
    turn = ToldTurn("anybody")
    turn.prompt("hi")
    turn.think("x" * (MAX_THINKING_BYTES + 1))
    for number in range(300):
        turn.think(f"{number} " + "日" * 1000)
    ended = turn.end(DONE, "said")
    assert len(ended.thinking.encode()) <= MAX_THINKING_BYTES
    assert ended.thinking.endswith("299 " + "日" * 1000)
    assert turn.end(DONE).thinking == ""


READERS: dict[Provider, tuple[Callable[[], JournalReader], str]] = {
    Provider.CLAUDE: (JOURNALS[Provider.CLAUDE], "claude/transcript-told.jsonl"),
    Provider.CODEX: (JOURNALS[Provider.CODEX], "codex/rollout-told.jsonl"),
    Provider.COPILOT: (JOURNALS[Provider.COPILOT], "copilot-hooks/events-told.jsonl"),
    Provider.GEMINI: (JOURNALS[Provider.GEMINI], "gemini/chat-told.jsonl"),
}


@pytest.mark.parametrize("provider", READERS, ids=str)
@given(data=st.data())
def test_no_line_makes_a_reader_fail(provider: Provider, data: st.DataObject) -> None:
    make, name = READERS[provider]
    line = data.draw(st.sampled_from((RECORDINGS / name).read_bytes().splitlines()))
    at = data.draw(st.integers(0, len(line)))
    noise = data.draw(st.sampled_from([b"", b"null", b"[]", b'"\xff"', b"\\ud83d", b"}{"]))
    reader = make()
    for each in (line[:at] + noise, noise + line[at:], _spoiled(line, data), line):
        reader.read(each)
    reader.pause()


def _spoiled(line: bytes, data: st.DataObject) -> bytes:
    """Return a line in which one value is another."""
    value = json.loads(line)
    inner = value
    while True:
        key = data.draw(st.sampled_from(sorted(inner)))
        if not isinstance(inner[key], dict) or not inner[key] or data.draw(st.booleans()):
            inner[key] = data.draw(st.sampled_from([None, 1, "x", [], {}, [None], {"a": 1}]))
            return json.dumps(value).encode()
        inner = inner[key]


# --------------------------------------------------------------------------------- one that grows


def entry(kind: str, text: str, number: int = 0, **more: Any) -> bytes:
    message: dict[str, Any] = {"role": kind, "content": [{"type": "text", "text": text}]}
    if kind == "assistant":
        message |= {"id": f"m{number}", "stop_reason": "end_turn"}
    return json.dumps({"type": kind, "message": message, **more}).encode() + b"\n"


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


@pytest.mark.requirement("mail:journals")
async def test_what_was_there_before_is_not_told(home: Path) -> None:
    path = home / "a.jsonl"
    path.write_bytes(entry("user", "old") + entry("assistant", "gone"))
    journal = Journal(Provider.CLAUDE, path)
    assert await journal.read() == []
    append(path, entry("user", "new"))
    assert told(await journal.read()) == [("new", None, "")]
    again = Journal(Provider.CLAUDE, path, last_lines=None)
    assert told(await again.read()) == [("old", None, ""), (None, DONE, "gone"), ("new", None, "")]


async def test_a_journal_that_is_not_there_yet_is_read_from_its_beginning(home: Path) -> None:
    journal = Journal(Provider.CLAUDE, home / "a.jsonl")
    assert await journal.read() == []
    append(home / "a.jsonl", entry("user", "first"))
    assert told(await journal.read()) == [("first", None, "")]


@pytest.mark.requirement("mail:journals")
async def test_an_answer_of_several_blocks_is_told_whole_and_once(home: Path) -> None:
    path = home / "a.jsonl"
    journal = Journal(Provider.CLAUDE, path, last_lines=None)
    append(path, entry("user", "hi") + entry("assistant", "one, "))
    assert told(await journal.read()) == [("hi", None, "")]
    assert journal.said is not None
    append(path, entry("assistant", "two"))
    assert await journal.read() == []
    assert told(await journal.read()) == [(None, DONE, "one, two")]  # nothing more has come
    assert await journal.read() == []
    assert journal.said is None


async def test_a_line_that_is_torn_waits_for_its_end(home: Path) -> None:
    path = home / "a.jsonl"
    journal = Journal(Provider.CLAUDE, path, last_lines=None)
    line = entry("user", "日本語 😀")
    append(path, line[:40])
    assert await journal.read() == []
    append(path, line[40:])
    assert told(await journal.read()) == [("日本語 😀", None, "")]


async def test_half_a_pair_of_surrogates_is_no_reason_to_miss_a_line(home: Path) -> None:
    path = home / "a.jsonl"
    journal = Journal(Provider.CLAUDE, path, last_lines=None)
    append(path, entry("user", "cut").replace(b"cut", rb"cut \ud83d") + b"\xff\xfe\n{}\n[]\n")
    append(path, entry("assistant", "fine"))
    await journal.read()
    turns = Journal(Provider.CLAUDE, path, last_lines=None)
    assert told(await turns.read()) == [("cut �", None, "")]


async def test_a_journal_that_was_replaced_is_read_anew(home: Path) -> None:
    path = home / "a.jsonl"
    journal = Journal(Provider.CLAUDE, path, last_lines=None)
    append(path, entry("user", "a longer one") + entry("assistant", "half"))
    await journal.read()
    path.unlink()
    append(path, entry("user", "b"))
    assert told(await journal.read()) == [("b", None, "")]


async def test_a_journal_nobody_may_read_tells_nothing(home: Path) -> None:
    (home / "a.jsonl").mkdir()
    journal = Journal(Provider.CLAUDE, home / "a.jsonl")
    assert await journal.read() == []
    os.mkfifo(home / "b.jsonl")
    assert await Journal(Provider.CLAUDE, home / "b.jsonl").read() == []


@pytest.mark.requirement("mail:journals")
async def test_a_long_answer_is_told_to_the_last_character(home: Path) -> None:
    path = home / "a.jsonl"
    journal = Journal(Provider.CLAUDE, path, last_lines=None)
    answer = '日本語 😀 \\ " <tag>\n' * 200_000
    append(path, entry("user", "hi") + entry("assistant", answer, uuid="u"))
    append(path, b'{"type":"system","subtype":"turn_duration"}\n')
    assert told(await journal.read()) == [("hi", None, ""), (None, DONE, answer)]


# -------------------------------------------------------------------------------- with the hooks


@pytest.fixture
async def heard() -> Any:
    found: list[tuple[str, Turn]] = []
    ears = Ears(lambda agent, turn: found.append((agent, turn)))
    yield ears, found
    await ears.aclose()


@pytest.mark.requirement("mail:turns", "mail:journals")
@pytest.mark.parametrize(
    ("provider", "begins", "ends", "name"),
    [
        (Provider.GEMINI, "BeforeAgent", "AfterAgent", "gemini/chat-told.jsonl"),
        (Provider.COPILOT, "userPromptSubmitted", "agentStop", "copilot-hooks/events-told.jsonl"),
    ],
    ids=["gemini", "copilot"],
)
async def test_where_a_hook_has_no_words_the_journal_has(
    provider: Provider, begins: str, ends: str, name: str, heard: Any, home: Path
) -> None:
    ears, found = heard
    lines = (RECORDINGS / name).read_bytes().splitlines(keepends=True)
    [at] = [i for i, line in enumerate(lines) if MESSAGE[11:14].encode() in line and _asks(line)]
    path = home / "journal.jsonl"
    path.write_bytes(b"".join(lines[:at]))  # with the turn before, whose end is told already
    key = "transcriptPath" if provider is Provider.COPILOT else "transcript_path"
    hook = {"session_id": "s1", key: str(path)}
    await ears.hear("g1", provider, {**hook, "hook_event_name": begins, "prompt": MESSAGE})
    await ears.hear("g1", provider, {**hook, "hook_event_name": ends})
    append(path, b"".join(lines[at:]))  # it may be written a little later than told
    await eventually(lambda: len(found) == 2)
    assert [agent for agent, _ in found] == ["g1", "g1"]
    assert told([turn for _, turn in found]) == [(MESSAGE, None, ""), (None, DONE, ANSWER)]


def _asks(line: bytes) -> bool:
    value = json.loads(line)
    return value.get("type") in ("user", "user.message")


async def test_a_turn_that_began_before_we_heard_is_told_as_well(heard: Any, home: Path) -> None:
    ears, found = heard
    path = home / "journal.jsonl"
    path.write_bytes((RECORDINGS / "copilot-hooks/events-told.jsonl").read_bytes())
    hook = {"hook_event_name": "agentStop", "sessionId": "s1", "transcriptPath": str(path)}
    await ears.hear("c1", Provider.COPILOT, hook)
    await eventually(lambda: bool(found))
    assert told([turn for _, turn in found]) == [(None, DONE, ANSWER)]


async def test_a_turn_that_is_followed_at_once_by_the_next_is_told(heard: Any, home: Path) -> None:
    ears, found = heard
    recorded = (RECORDINGS / "copilot-hooks/events-told.jsonl").read_bytes()
    lines = recorded.splitlines(keepends=True)
    [*_, last] = [number for number, line in enumerate(lines) if _asks(line)]
    path = home / "journal.jsonl"
    path.write_bytes(b"".join(lines[: last + 1]))
    hook = {"sessionId": "s1", "transcriptPath": str(path)}
    begun = {"hook_event_name": "userPromptSubmitted", "prompt": MESSAGE}
    await ears.hear("c1", Provider.COPILOT, hook | begun)
    append(path, b"".join(lines[last + 1 :]) + lines[last])
    await ears.hear("c1", Provider.COPILOT, hook | {"hook_event_name": "agentStop"})
    await eventually(lambda: len(found) == 2)
    assert told([turn for _, turn in found]) == [(MESSAGE, None, ""), (None, DONE, ANSWER)]


async def test_two_turns_that_ended_before_we_could_read_are_told_in_their_order(
    heard: Any, home: Path
) -> None:
    ears, found = heard
    recorded = (RECORDINGS / "copilot-hooks/events-told.jsonl").read_bytes()
    lines = recorded.splitlines(keepends=True)
    [first, _] = [number for number, line in enumerate(lines) if _asks(line)]
    path = home / "journal.jsonl"
    path.write_bytes(b"".join(lines[: first + 1]))
    hook = {"sessionId": "s1", "transcriptPath": str(path)}
    begun = {"hook_event_name": "userPromptSubmitted", "prompt": "LATER"}
    await ears.hear("c1", Provider.COPILOT, hook | begun)
    append(path, b"".join(lines[first + 1 :]))
    await ears.hear("c1", Provider.COPILOT, hook | {"hook_event_name": "agentStop"})
    await eventually(lambda: len(found) == 4)
    [asked, one, asked_again, other] = told([turn for _, turn in found])
    assert [asked, asked_again] == [("LATER", None, ""), (MESSAGE, None, "")]
    assert [one[:2], other] == [(None, DONE), (None, DONE, ANSWER)]
    assert one[2] != ANSWER


async def test_the_turn_before_the_one_that_began_before_we_heard_is_not_told(
    heard: Any, home: Path
) -> None:
    ears, found = heard
    recorded = (RECORDINGS / "copilot-hooks/events-told.jsonl").read_bytes()
    lines = recorded.splitlines(keepends=True)
    [*_, last] = [number for number, line in enumerate(lines) if _asks(line)]
    path = home / "journal.jsonl"
    path.write_bytes(recorded + b"".join(lines[: last + 1]))  # it is asked once more
    hook = {"hook_event_name": "agentStop", "sessionId": "s1", "transcriptPath": str(path)}
    await ears.hear("c1", Provider.COPILOT, hook)
    await asyncio.sleep(0.3)  # it has looked
    assert found == []
    append(path, b"".join(lines[last + 1 :]))
    await eventually(lambda: bool(found))
    assert told([turn for _, turn in found]) == [(None, DONE, ANSWER)]


async def test_a_failure_of_codex_is_told_when_it_is_the_end(heard: Any, home: Path) -> None:
    ears, found = heard
    path = home / "journal.jsonl"
    path.write_bytes(b"")
    hook = {"session_id": "s1", "transcript_path": str(path)}
    failed = {**hook, "hook_event_name": "PostModelRequest", "status": "failed", "error": "500"}
    asked = {**hook, "hook_event_name": "UserPromptSubmit", "prompt": "hi"}
    await ears.hear("c1", Provider.CODEX, asked)
    await ears.hear("c1", Provider.CODEX, failed)
    payload = {"type": "task_complete", "error": {"message": "gave up"}}
    append(path, json.dumps({"type": "event_msg", "payload": payload}).encode() + b"\n")
    await eventually(lambda: len(found) == 2)
    assert told([turn for _, turn in found][1:]) == [(None, TurnEnd.FAILED, "gave up")]


@pytest.mark.requirement("a2a:deltas")
async def test_what_claude_says_before_it_uses_a_tool_is_heard_while_it_uses_it(home: Path) -> None:
    said: list[tuple[str, Utterance]] = []
    ears = Ears(lambda *_: None, lambda agent, utterance: said.append((agent, utterance)))
    path = home / "journal.jsonl"
    path.write_bytes(transcript("m1", "an older answer"))
    hook = {"session_id": "s1", "transcript_path": str(path)}
    amid, over = hook | {"hook_event_name": "PreToolUse"}, hook | {"hook_event_name": "Stop"}
    await ears.hear("c1", Provider.CLAUDE, hook | {"hook_event_name": "SessionStart"})
    begun = {"hook_event_name": "UserPromptSubmit", "prompt": "look"}
    await ears.hear("c1", Provider.CLAUDE, hook | begun)
    await ears.hear("c1", Provider.CLAUDE, amid)
    append(path, transcript("m2", "I look first"))  # it may be written a little later than told
    await eventually(lambda: len(said) == 1)
    append(path, transcript("m3", "and once more"))
    await ears.hear("c1", Provider.CLAUDE, amid | {"agent_id": "a subagent"})
    await ears.hear("c1", Provider.CLAUDE, hook | {"hook_event_name": "PostToolUse"})
    await eventually(lambda: len(said) == 2)
    await ears.hear("c1", Provider.CLAUDE, dict(amid))
    await ears.hear("c1", Provider.CLAUDE, over | {"last_assistant_message": "done"})
    append(path, transcript("m4", "done"))
    await ears.aclose()
    texts = ("I look first", "and once more")
    assert said == [("c1", Utterance(text=each, is_new=True)) for each in texts]


def transcript(message_id: str, text: str) -> bytes:
    content = [{"type": "text", "text": text}, {"type": "tool_use", "id": "t", "name": "Bash"}]
    message = {"id": message_id, "stop_reason": "tool_use", "content": content}
    return (
        json.dumps({"type": "assistant", "sessionId": SESSION, "message": message}).encode() + b"\n"
    )


async def test_ears_that_are_closed_look_no_more(home: Path) -> None:
    ears = Ears(lambda *_: None)
    hook = {"hook_event_name": "agentStop", "transcriptPath": str(home / "never.jsonl")}
    await ears.hear("c1", Provider.COPILOT, hook)
    await ears.aclose()
    await asyncio.sleep(0)


# ------------------------------------------------------------------------------------ where it is


@pytest.fixture
def environment(home: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "COPILOT_HOME"):
        monkeypatch.delenv(name, raising=False)
    return {"HOME": str(home)}


def put(path: Path, data: bytes = b"") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def test_the_transcript_of_claude_is_found_by_its_session_or_process(
    home: Path, environment: dict[str, str]
) -> None:
    path = put(home / f".claude/projects/-home-ada-my-proj/{SESSION}.jsonl")
    put(home / ".claude/projects/-other/603130b5-0f3c-4c4e-9b1a-ffffffffffff.jsonl")

    def find(**known: Any) -> Path | None:
        return find_journal(Provider.CLAUDE, environment=environment, **known)

    assert find(session_id=SESSION, cwd="/home/ada/my.proj") == path
    assert find(session_id=f"claude:{SESSION}") == path
    assert find(session_id=SESSION, cwd="/moved") == path
    assert find(session_id="../../etc") is None
    assert find() is None
    file = {"pid": 4711, "sessionId": SESSION, "cwd": "/home/ada/my.proj"}
    put(home / ".claude/sessions/4711.json", json.dumps(file).encode())
    assert find(pid=4711, session_id="603130b5-0f3c-4c4e-9b1a-ffffffffffff") == path
    # It is written with the first prompt: where it will be is known before.
    unwritten = "603130b5-0f3c-4c4e-9b1a-000000000000"
    expected = home / f".claude/projects/-home-ada-my-proj/{unwritten}.jsonl"
    assert find(session_id=unwritten, cwd="/home/ada/my.proj") == expected


def test_the_session_file_of_codex_is_found_by_its_thread_or_process(
    home: Path, environment: dict[str, str]
) -> None:
    thread, title = "01a1df88-2bd0-7fe2-9f47-6b57f59c49ea", "01a1df88-ffff-7fe2-9f47-6b57f59c49ea"
    day = home / ".codex/sessions/2026/11/15"

    def rollout(thread_id: str, **more: Any) -> Path:
        meta = {"type": "session_meta", "payload": {"id": thread_id, **more}}
        name = f"rollout-2026-11-15T14-06-45-{thread_id}.jsonl"
        return put(day / name, json.dumps(meta).encode() + b"\n")

    path, hidden = rollout(thread), rollout(title, thread_source="thread_title")

    def find(**known: Any) -> Path | None:
        return find_journal(Provider.CODEX, environment=environment, **known)

    assert find(session_id=thread) == path
    assert find(session_id=f"codex:{thread}") == path
    assert find(session_id="01a1df88-0000-7fe2-9f47-6b57f59c49ea") is None
    proc = home / "proc"
    put(proc / "100/task/100/children", b"101 ")  # a launcher, and the program
    (proc / "100/fd").mkdir()
    (proc / "101/fd").mkdir(parents=True)
    for number, target in enumerate((hidden, path, home / "socket")):
        (proc / f"101/fd/{number}").symlink_to(target)
    assert find(pid=100, proc=proc) == path
    assert find(pid=999, proc=proc) is None
    nowhere = home / "nowhere"  # where the system shows no processes, the session must be known
    assert find(pid=100, proc=nowhere) is None
    assert find(pid=100, session_id=thread, proc=nowhere) == path


def test_the_record_of_copilot_is_found_by_its_session_or_process(
    home: Path, environment: dict[str, str]
) -> None:
    path = put(home / ".copilot/session-state/s1/events.jsonl")
    put(home / ".copilot/session-state/s2/events.jsonl")
    put(home / ".copilot/session-state/s1/inuse.4711.lock")

    def find(**known: Any) -> Path | None:
        return find_journal(Provider.COPILOT, environment=environment, **known)

    assert find(session_id="copilot:s1") == path
    assert find(pid=4711) == path
    assert find(session_id="../s1") is None
    assert find() is None


def test_the_record_of_gemini_is_found_by_its_session(
    home: Path, environment: dict[str, str]
) -> None:
    line = json.dumps({"sessionId": SESSION}).encode() + b"\n"
    name = f"session-2026-11-15T17-17-{SESSION[:8]}.jsonl"
    put(home / f".gemini/tmp/other/chats/{name}", b"{}\n")
    path = put(home / f".gemini/tmp/project/chats/{name}", line)

    def find(session_id: str) -> Path | None:
        return find_journal(Provider.GEMINI, session_id=session_id, environment=environment)

    assert find(f"gemini:{SESSION}") == path
    assert find(SESSION.replace("603130b5", "703130b5")) is None
    assert find("*") is None
    assert find("") is None


def test_who_keeps_no_journal_has_none(environment: dict[str, str]) -> None:
    for provider in (Provider.OPENCODE, Provider.OTHER):
        assert find_journal(provider, session_id="s1", environment=environment) is None
