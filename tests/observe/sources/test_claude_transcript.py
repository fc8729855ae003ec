"""Transcripts of living sessions are followed; of what was there before, the last state is told."""

import json
import os
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bullpen.model.observations import Observation, Origin
from bullpen.model.states import EvidenceTier, Provider, SourceKind
from bullpen.observe.sources import claude_transcript
from bullpen.observe.sources.claude_transcript import ClaudeTranscript
from bullpen.observe.sources.port import SourceTrouble
from tests.agents.claude.recorded import lines
from tests.observe.sources.claude_world import CWD, OTHER, SESSION, START, World, emitted, told

Look = Callable[[], Awaitable[list[Observation]]]


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.time = datetime.now(UTC)  # files are dated by the system
    return world


@pytest.fixture
def source(world: World) -> ClaudeTranscript:
    return ClaudeTranscript(world.now, world.config, proc=world.proc)


@pytest.fixture
def look(source: ClaudeTranscript) -> Look:
    return emitted(source)


def line(
    kind: str, content: Any, *, at: datetime = START, stop_reason: str = "", **fields: Any
) -> bytes:
    message = {"role": kind, "content": content, "stop_reason": stop_reason or None}
    value = {
        "type": kind,
        "uuid": f"u-{kind}-{content[:9] if isinstance(content, str) else 'x'}",
        "timestamp": at.isoformat(),
        "cwd": CWD,
        "message": message,
        **fields,
    }
    return json.dumps(value).encode() + b"\n"


def prompt(text: str = "go", *, at: datetime = START) -> bytes:
    return line("user", text, at=at)


def done(*, at: datetime = START) -> bytes:
    return line("assistant", [], at=at, stop_reason="end_turn")


def titled(title: str) -> bytes:
    return json.dumps({"type": "ai-title", "aiTitle": title}).encode() + b"\n"


def make_old(path: Path, minutes: float) -> None:
    then = time.time() - minutes * 60
    os.utime(path, (then, then))


async def test_without_the_program_there_is_nothing_to_see(look: Look) -> None:
    assert await look() == []


@pytest.mark.requirement("SIG-1", "DET-9")
async def test_what_is_added_is_told_line_by_line(
    world: World, look: Look, source: ClaudeTranscript
) -> None:
    world.start(12, status="busy")
    assert await look() == []
    world.write(prompt() + done())
    first, second = await look()
    assert first == Observation(
        event_id="u-user-go",
        provider=Provider.CLAUDE,
        source_kind=SourceKind.CLAUDE_TRANSCRIPT,
        tier=EvidenceTier.DETERMINISTIC,
        observed_at=START,
        session_key=f"claude:{SESSION}",
        event_type="prompt.submitted",
        source_event_id="u-user-go",
        payload={},
        origin=Origin(pid=12, process_start="100", cwd=CWD),
    )
    assert second.event_type == "turn.completed"
    assert await look() == []
    assert source.version == "2.1.197"


async def test_a_recorded_run_is_told_however_it_is_cut(world: World, look: Look) -> None:
    world.start(12)
    await look()
    recorded = b"".join(each + b"\n" for each in lines("transcript-turns.jsonl"))
    said: list[Observation] = []
    for start in range(0, len(recorded), 777):
        world.write(recorded[start : start + 777])
        said += await look()
    states = [each.event_type for each in said if each.event_type != "session.named"]
    assert states == [
        *("prompt.submitted", "turn.completed"),
        *("prompt.submitted", "tool.started", "tool.completed", "turn.completed"),
        *("prompt.submitted", "tool.started", "turn.interrupted"),
        *("prompt.submitted", "turn.interrupted"),
        *("prompt.submitted", "tool.started", "turn.interrupted"),
        *("prompt.submitted", "turn.failed", "prompt.submitted", "turn.rate_limited"),
    ]
    assert len({each.event_id for each in said}) == len(said)


@pytest.mark.requirement("TTL-4")
async def test_of_what_was_there_before_the_last_state_and_title_are_told(
    world: World, look: Look
) -> None:
    later = START + timedelta(minutes=3)
    world.start(12, status="idle")
    world.write(titled("first") + prompt() + done() + titled("last") + prompt("again", at=later))
    named, state = await look()
    assert (named.event_type, named.payload["title"]) == ("session.named", "last")
    assert (state.event_type, state.observed_at) == ("prompt.submitted", later)
    assert await look() == []


async def test_an_idle_session_is_known_after_a_restart(world: World) -> None:
    world.start(12, status="idle")
    world.write(prompt() + done())
    for _ in range(2):
        look = emitted(ClaudeTranscript(world.now, world.config, proc=world.proc))
        [said] = await look()
        assert (said.event_id, said.event_type) == ("u-assistant-x", "turn.completed")


async def test_what_an_earlier_process_left_is_no_state_of_this_one(
    world: World, look: Look
) -> None:
    world.start(12, status="idle")  # resumed
    world.write(titled("mine") + prompt(at=START - timedelta(hours=1)))
    assert told(await look()) == [(SESSION, "session.named")]


async def test_tools_that_are_open_in_what_was_there_are_not_forgotten(
    world: World, look: Look
) -> None:
    def tool(name: str) -> bytes:
        return line("assistant", [{"type": "tool_use", "id": name, "name": "Bash"}])

    def result(name: str) -> bytes:
        return line("user", [{"type": "tool_result", "tool_use_id": name}])

    world.start(12, status="waiting")
    world.write(tool("a") + tool("b") + result("a"))
    assert told(await look()) == [(SESSION, "tool.started")]
    world.write(result("b"))
    assert told(await look()) == [(SESSION, "tool.completed")]


async def test_a_session_that_is_over_is_not_followed_to_its_last_lines(
    world: World, look: Look
) -> None:
    world.start(12, status="busy")
    world.write(prompt())
    await look()
    world.end(12)
    world.write(done())
    assert await look() == []
    world.pass_seconds(60)
    assert await look() == []


async def test_a_cleared_session_gives_way_to_the_next(world: World, look: Look) -> None:
    world.start(12, status="idle")
    world.write(prompt() + done())
    await look()
    world.register(12, OTHER, status="busy")
    world.write(prompt("fresh"), OTHER)
    assert told(await look()) == [(OTHER, "prompt.submitted")]


async def test_a_session_that_is_taken_up_again_is_followed_again(world: World, look: Look) -> None:
    world.start(12, status="idle")
    world.write(prompt() + done())
    await look()
    world.end(12)
    await look()
    world.start(13, status="busy")
    world.write(prompt("again"))
    assert told(await look()) == [(SESSION, "prompt.submitted")]


async def test_a_transcript_in_another_directory_is_found(world: World, look: Look) -> None:
    world.start(12, status="idle")  # it says where it is, not where it began
    world.write(done(), cwd="/home/dev/elsewhere")
    assert await look() == []
    world.pass_seconds(15)
    assert told(await look()) == [(SESSION, "turn.completed")]
    world.write(prompt(), cwd="/home/dev/elsewhere")
    assert told(await look()) == [(SESSION, "prompt.submitted")]


async def test_whoever_does_not_register_is_told_of_from_now_on(world: World, look: Look) -> None:
    world.start(12, OTHER, status="idle")
    world.write(prompt() + done())  # of a run that may be over
    assert await look() == []
    world.write(prompt("more"))
    [said] = await look()
    assert (said.event_type, said.origin) == ("prompt.submitted", Origin(cwd=CWD))


async def test_whoever_begins_without_registering_is_found(world: World, look: Look) -> None:
    world.start(12, OTHER, status="idle")
    await look()
    world.write(prompt())
    assert await look() == []
    world.pass_seconds(15)
    assert told(await look()) == [(SESSION, "prompt.submitted")]


async def test_whoever_never_registered_and_has_long_been_silent_is_over(
    world: World, look: Look
) -> None:
    world.start(12, OTHER, status="idle")
    await look()
    path = world.write(prompt())
    world.pass_seconds(15)
    await look()
    make_old(path, 16)
    world.pass_seconds(15)
    assert told(await look()) == [(SESSION, "session.ended")]
    world.pass_seconds(15)
    assert await look() == []


async def test_of_whom_nothing_was_told_no_end_is_told(world: World, look: Look) -> None:
    world.start(12, OTHER, status="idle")
    path = world.write(prompt())
    await look()
    make_old(path, 16)
    world.pass_seconds(15)
    assert await look() == []


async def test_before_processes_registered_what_is_recent_was_their_last_state(
    world: World, look: Look
) -> None:
    world.write(prompt() + done())
    old = world.write(prompt(), OTHER)
    make_old(old, 20)
    assert told(await look()) == [(SESSION, "turn.completed")]
    make_old(world.transcript(), 20)
    world.pass_seconds(15)
    assert await look() == []


async def test_records_of_subagents_are_not_taken_for_sessions(world: World, look: Look) -> None:
    path = world.write(prompt())
    path.rename(path.with_name("agent-a0f8112a.jsonl"))
    (path.parent / "notes.txt").write_text("x")
    assert await look() == []


@pytest.mark.parametrize(
    "bad",
    [b'{"type":"user","mess\n', b"\xff\xfe\n", b"[]\n"],
    ids=["cut-in-the-midst", "no-utf-8", "no-object"],
)
async def test_a_line_that_is_none_is_a_trouble_and_the_next_is_told(
    world: World, source: ClaudeTranscript, bad: bytes
) -> None:
    said: list[Observation] = []
    await source.open(said.append)
    world.start(12)
    await source.look()
    world.write(bad + done())
    with pytest.raises(SourceTrouble, match="1 lines are no JSON") as caught:
        await source.look()
    assert not caught.value.is_down
    assert told(said) == [(SESSION, "turn.completed")]
    await source.look()


async def test_a_lone_surrogate_is_no_trouble(world: World, look: Look) -> None:
    world.start(12)
    await look()
    world.write(prompt("half \ud83d") + b'{"type":"ai-title","aiTitle":"\\udc00"}\n')
    said = await look()
    assert told(said) == [(SESSION, "prompt.submitted"), (SESSION, "session.named")]
    assert said[1].payload["title"] == "\ufffd"


async def test_a_line_of_five_megabytes_is_a_trouble_and_the_next_is_told(
    world: World, source: ClaudeTranscript
) -> None:
    said: list[Observation] = []
    await source.open(said.append)
    world.start(12)
    await source.look()
    world.write(prompt("x" * 5_000_000) + done())
    with pytest.raises(SourceTrouble, match="1 lines are too long"):
        await source.look()
    assert told(said) == [(SESSION, "turn.completed")]


async def test_what_is_more_than_one_look_can_read_waits_for_the_next(
    world: World, look: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claude_transcript, "READS_PER_LOOK", 1)
    world.start(12)
    await look()
    world.write(line("user", "x" * 1_500_000) + done())
    assert await look() == []
    assert told(await look()) == [(SESSION, "prompt.submitted"), (SESSION, "turn.completed")]


async def test_a_transcript_that_was_cut_is_told_by_its_last_state(
    world: World, look: Look
) -> None:
    world.start(12)
    await look()
    kept = prompt() + done()
    path = world.write(kept + prompt("more"))
    assert len(await look()) == 3
    os.truncate(path, len(kept) + 20)
    assert told(await look()) == [(SESSION, "turn.completed")]


async def test_a_transcript_that_vanishes_may_come_back(world: World, look: Look) -> None:
    world.start(12)
    path = world.write(prompt())
    await look()
    path.unlink()
    assert await look() == []
    world.write(done())
    assert told(await look()) == [(SESSION, "turn.completed")]


async def test_one_transcript_that_cannot_be_read_does_not_hide_the_others(
    world: World, source: ClaudeTranscript, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[Observation] = []
    await source.open(said.append)
    world.start(12)
    world.start(13, OTHER)
    world.write(prompt())
    world.write(prompt(), OTHER)
    opened = os.open

    def refuse(path: Any, *arguments: Any) -> int:
        if SESSION in str(path):
            raise PermissionError(13, "Permission denied")  # which the superuser never meets
        return opened(path, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        with pytest.raises(SourceTrouble, match="Permission denied"):
            await source.look()
    assert told(said) == [(OTHER, "prompt.submitted")]
    await source.look()
    assert told(said)[1:] == [(SESSION, "prompt.submitted")]


async def test_a_line_from_the_future_is_of_now(world: World, look: Look) -> None:
    world.start(12)
    await look()
    world.write(prompt(at=world.now() + timedelta(days=1)) + titled("no time at all"))
    assert {each.observed_at for each in await look()} == {world.now()}


async def test_as_long_as_nothing_changes_no_transcript_is_opened(
    world: World, source: ClaudeTranscript, monkeypatch: pytest.MonkeyPatch
) -> None:
    await source.open(lambda _: None)
    world.start(12)
    world.write(prompt() + done())
    await source.look()
    opened: list[str] = []
    really = os.open

    def note(path: Any, *arguments: Any, **options: Any) -> int:
        opened.append(str(path))
        return really(path, *arguments, **options)

    monkeypatch.setattr(os, "open", note)
    await source.look()
    assert [path for path in opened if path.endswith(".jsonl")] == []
