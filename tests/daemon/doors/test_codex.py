"""The door into Codex: a turn in the thread its terminal shows, and nothing but the truth of it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bullpen.daemon.doors.codex import CodexDoor
from bullpen.mail.doors import Door, Handed, Handover, Rung
from bullpen.model.deliveries import ReceiptState
from bullpen.model.dialogs import Answered
from bullpen.model.states import Activity
from bullpen.model.turns import TurnEnd
from bullpen.testing.codex_server.shared import SharedCodex
from bullpen.testing.tmux import eventually
from tests.daemon.doors.talk import AGENT, Ear, now

WORKING = "the agent is working"
DIALOG = "a dialog is open"
LOST = "its app server cannot be reached"
TAKEN = Handover(Handed.TAKEN)
ALL_STEPS = [ReceiptState.INJECTED, ReceiptState.SUBMITTED, ReceiptState.SEEN]
LIMITED = {"message": "too much", "codexErrorInfo": "usageLimitExceeded"}


@asynccontextmanager
async def doorway(ear: Ear, **options: Any) -> AsyncIterator[CodexDoor]:
    given: dict[str, Any] = {"settle_seconds": 0.0, "on_said": ear.on_said} | options
    door = CodexDoor(ear.on_turn, ear.on_activity, now, **given)
    try:
        yield door
    finally:
        await door.aclose()


@asynccontextmanager
async def opened(
    home: Path, *, thread: str = "t1", **options: Any
) -> AsyncIterator[tuple[SharedCodex, CodexDoor, Ear]]:
    """A server with a thread in which nothing was said, and the door to it."""
    ear = Ear()
    async with SharedCodex(home / "a.sock") as codex, doorway(ear, **options) as door:
        codex.start_thread(thread)
        await door.open(AGENT, codex.address)
        await ear.until_open(door)
        yield codex, door, ear


def joined(codex: SharedCodex, thread_id: str = "t1") -> bool:
    return any(each["threadId"] == thread_id for each in codex.asked("thread/turns/list"))


@pytest.mark.requirement("door:codex", "mail:receipts")
async def test_a_message_becomes_a_turn_and_each_step_is_noted_as_it_is_known(home: Path) -> None:
    async with opened(home) as (codex, door, ear):
        as_door: Door = door
        assert as_door.rung is Rung.OWN
        assert await ear.hand_over(door, "look at this") == TAKEN
        [asked] = codex.asked("turn/start")
        assert asked == {
            "threadId": "t1",
            "clientUserMessageId": "m1:1",
            "input": [{"type": "text", "text": "[from bob] look at this"}],
        }
        assert ear.states == ALL_STEPS
        assert {evidence.by for _, evidence in ear.steps} == {"codex_appserver"}
        [turn_id] = {evidence.data["turn_id"] for _, evidence in ear.steps}
        assert ear.prompts == ["[from bob] look at this"]
        assert door.is_open(AGENT) == WORKING
        codex.answer("t1", "I have looked")
        codex.end("t1")
        await ear.until(lambda: bool(ear.ends))
        [begun, ended] = ear.turns
        assert (ended.end, ended.text, ended.by) == (
            TurnEnd.DONE,
            "I have looked",
            "codex_appserver",
        )
        assert begun.turn_id == ended.turn_id == turn_id
        assert begun.session_id == ended.session_id == "t1"
        assert door.is_open(AGENT) == ""


@pytest.mark.requirement("door:codex")
async def test_a_second_message_goes_into_a_thread_that_was_joined(home: Path) -> None:
    async with opened(home) as (codex, door, ear):
        for number in ("m1", "m2"):
            ear.steps.clear()
            assert await ear.hand_over(door, "go on", number) == TAKEN
            assert ear.states == ALL_STEPS
            codex.answer("t1", number)
            codex.end("t1")
            await ear.until(lambda: not door.is_open(AGENT))
        assert ear.ends == [(TurnEnd.DONE, "m1"), (TurnEnd.DONE, "m2")]


@pytest.mark.requirement("door:answer")
async def test_the_answer_is_the_last_thing_said_and_whole(home: Path) -> None:
    whole = "日本語の答え\n\n! first\n" + "x" * 10_000
    async with opened(home) as (codex, door, ear):
        await ear.hand_over(door, "go")
        codex.think("t1", "hm")
        codex.answer("t1", "I shall look")
        codex.think("t1", "aha")
        codex.answer("t1", whole)
        codex.answer("t1", "by the way", phase="commentary")
        codex.end("t1")
        await ear.until(lambda: bool(ear.ends))
        assert ear.ends == [(TurnEnd.DONE, whole)]
        assert ear.turns[-1].thinking == "hm\n\naha"


@pytest.mark.requirement("door:pieces")
async def test_what_is_said_is_told_piece_by_piece_and_nothing_but_that(home: Path) -> None:
    async with opened(home) as (codex, door, ear):
        await ear.hand_over(door, "go")
        codex.think("t1", "hm")
        codex.begin("t1", phase="commentary")
        codex.say("t1", "I shall look")
        codex.finish("t1")
        for texts in (("look", "ing"), ("it ", "", "is\n", "fine")):
            codex.begin("t1")
            for each in texts:
                codex.say("t1", each)
            codex.finish("t1")
        codex.answer("t1", "at once")
        codex.end("t1")
        await ear.until(lambda: bool(ear.ends))
        assert ear.pieces == ["|look", "ing", "|it ", "is\n", "fine", "|at once"]
        assert {each.turn_id for each in ear.said} == {ear.turns[-1].turn_id}
        assert ear.ends == [(TurnEnd.DONE, "at once")]


@pytest.mark.requirement("door:pieces")
async def test_a_piece_whose_beginning_was_not_heard_is_not_told(home: Path) -> None:
    async with opened(home) as (codex, door, ear):
        await ear.hand_over(door, "go")
        codex.begin("t1")
        codex.say("t1", "one ")
        await ear.until(lambda: bool(ear.said))
        codex.drop()
        await ear.until(lambda: door.is_open(AGENT) == LOST)
        await ear.until(lambda: door.is_open(AGENT) == WORKING)
        await eventually(lambda: len(codex.asked("thread/turns/list")) > 1)
        codex.say("t1", "two")
        codex.finish("t1")
        codex.end("t1")
        await ear.until(lambda: bool(ear.ends))
        assert ear.ends == [(TurnEnd.DONE, "one two")]
        assert "two" not in ear.pieces
        assert ear.pieces[-1] == "|one two"


@pytest.mark.requirement("door:answer")
@pytest.mark.parametrize(
    ("status", "error", "expected"),
    [
        ("failed", {"message": "broken"}, (TurnEnd.FAILED, "broken")),
        ("failed", LIMITED, (TurnEnd.RATE_LIMITED, "too much")),
        ("interrupted", None, (TurnEnd.INTERRUPTED, "so far")),
    ],
    ids=["failed", "rate-limited", "interrupted"],
)
async def test_a_turn_that_did_not_end_well_is_never_a_good_answer(
    home: Path, status: str, error: Any, expected: tuple[TurnEnd, str]
) -> None:
    async with opened(home) as (codex, door, ear):
        await ear.hand_over(door, "go")
        codex.answer("t1", "so far")
        codex.end("t1", status, error)
        await ear.until(lambda: bool(ear.ends))
        assert ear.ends == [expected]
        assert door.is_open(AGENT) == ""  # another message can be given


@pytest.mark.requirement("door:codex", "door:approval")
async def test_nothing_is_put_into_an_agent_that_works_or_asks(home: Path) -> None:
    async with opened(home) as (codex, door, ear):
        codex.say_as_user("t1", "typed by hand")
        await ear.until(lambda: door.is_open(AGENT) == WORKING)
        assert await ear.hand_over(door, "hello") == Handover(Handed.NOT_READY, WORKING)
        await eventually(lambda: joined(codex))
        codex.ask_approval("t1", "rm -rf")
        await ear.until(lambda: door.is_open(AGENT) == DIALOG)
        assert await ear.hand_over(door, "yes") == Handover(Handed.NOT_READY, DIALOG)
        codex.set_status("t1", {"type": "active", "activeFlags": ["waitingOnUserInput"]})
        await ear.until(lambda: ear.activities[-1] == (Activity.WAITING_INPUT, False))
        assert door.is_open(AGENT) == DIALOG
        codex.end("t1")
        await ear.until_open(door)
        assert codex.asked("turn/start") == []
        assert ear.steps == []
        assert [each for each in ear.activities if each[1]] == [(Activity.IDLE, True)] * 2


@pytest.mark.requirement("door:approval")
async def test_what_codex_asks_its_user_is_never_answered_not_even_by_leaving(home: Path) -> None:
    async with opened(home) as (codex, door, ear):
        await ear.hand_over(door, "go")
        await eventually(lambda: joined(codex))
        codex.ask_approval("t1", "touch x")
        await ear.until(lambda: door.is_open(AGENT) == DIALOG)
        await ear.hand_over(door, "approve it", "m2")
        await door.close(AGENT)
        [question] = codex.questions
        await asyncio.wait([question], timeout=20)
        with pytest.raises(Exception, match=r"closed|gone|lost"):  # nobody is left to answer it
            question.result()


@pytest.mark.requirement("a2a:approval")
@pytest.mark.parametrize(("said", "decision"), [("yes", "accept"), ("Deny", "decline")])
async def test_what_codex_asks_is_answered_by_its_own_request_as_a_person_says(
    home: Path, said: str, decision: str
) -> None:
    async with opened(home) as (codex, door, ear):
        await ear.hand_over(door, "go")
        await eventually(lambda: joined(codex))
        assert door.dialog(AGENT) is None
        codex.ask_approval("t1", "touch x")
        await eventually(lambda: door.dialog(AGENT) is not None)
        asked = door.dialog(AGENT)
        assert asked is not None
        assert asked.text == "Would you like to run the following command?\n$ touch x"
        assert asked.answers == ("yes", "no")
        assert await door.answer_dialog(AGENT, "another", said) is Answered.NOT_ASKED
        assert await door.answer_dialog(AGENT, asked.id, "hm") is Answered.NOT_UNDERSTOOD
        [question] = codex.questions
        assert not question.done()
        assert await door.answer_dialog(AGENT, asked.id, said) is Answered.DONE
        assert await question == {"decision": decision}
        assert await door.answer_dialog(AGENT, asked.id, said) is Answered.NOT_ASKED
        await ear.until(lambda: door.is_open(AGENT) == WORKING)
        assert door.dialog(AGENT) is None
        assert door.knows(AGENT)  # whatever its screen still shows


@pytest.mark.requirement("a2a:approval")
async def test_a_question_that_was_answered_in_the_terminal_is_asked_no_more(home: Path) -> None:
    async with opened(home) as (codex, door, ear):
        await ear.hand_over(door, "go")
        await eventually(lambda: joined(codex))
        codex.ask_approval("t1", "touch x")
        await eventually(lambda: door.dialog(AGENT) is not None)
        asked = door.dialog(AGENT)
        assert asked is not None
        codex.end("t1", "interrupted")
        await ear.until(lambda: not door.is_open(AGENT))
        assert await door.answer_dialog(AGENT, asked.id, "yes") is Answered.NOT_ASKED
        [question] = codex.questions
        assert not question.done()


async def test_a_turn_that_the_user_began_is_told_from_its_beginning(home: Path) -> None:
    async with opened(home) as (codex, _door, ear):
        codex.say_as_user("t1", "typed by hand")
        await ear.until(lambda: bool(ear.prompts))
        codex.answer("t1", "an answer")
        codex.end("t1")
        await ear.until(lambda: bool(ear.ends))
        assert ear.prompts == ["typed by hand"]
        assert ear.ends == [(TurnEnd.DONE, "an answer")]


async def test_a_first_turn_that_ended_before_we_joined_is_told_all_the_same(home: Path) -> None:
    async with opened(home) as (codex, _door, ear):
        codex.say_as_user("t1", "typed by hand")  # all of it before anybody can ask
        codex.answer("t1", "an answer")
        codex.end("t1")
        await ear.until(lambda: bool(ear.ends))
        assert ear.prompts == ["typed by hand"]
        assert ear.ends == [(TurnEnd.DONE, "an answer")]


async def test_a_turn_that_only_looks_interrupted_is_not_told_to_be(home: Path) -> None:
    async with opened(home) as (codex, door, ear):
        codex.misjudges = True
        codex.say_as_user("t1", "typed by hand")
        await eventually(
            lambda: len(codex.asked("thread/turns/list")) >= 2
        )  # it was looked at twice
        codex.answer("t1", "an answer")
        codex.end("t1")
        await ear.until_open(door)
        assert ear.ends == [(TurnEnd.DONE, "an answer")]


async def test_a_first_turn_that_was_interrupted_before_we_joined_is_told_too(home: Path) -> None:
    async with opened(home) as (codex, _door, ear):
        codex.say_as_user("t1", "typed by hand")
        codex.end("t1", "interrupted")
        await ear.until(lambda: bool(ear.ends))
        assert ear.ends == [(TurnEnd.INTERRUPTED, "")]
        assert ear.prompts == ["typed by hand"]


async def test_a_message_that_meets_a_turn_of_the_users_is_said_to_be_in_that(home: Path) -> None:
    async with opened(home) as (codex, door, ear):
        handing = asyncio.create_task(ear.hand_over(door, "me too"))
        await asyncio.sleep(0)  # it is on its way
        turn_id = codex.say_as_user("t1", "typed by hand")
        assert await handing == TAKEN
        assert ear.states[-1] is ReceiptState.SEEN
        assert ear.steps[-1][1].what == "it stands in the thread, in a turn that ran"
        assert ear.steps[-1][1].data == {"turn_id": turn_id}
        assert ear.prompts == ["typed by hand", "[from bob] me too"]


async def test_an_agent_is_interrupted_in_its_turn_and_only_then(home: Path) -> None:
    async with opened(home) as (codex, door, ear):
        assert not await door.interrupt(AGENT)
        assert not await door.interrupt("somebody else")
        await ear.hand_over(door, "go")
        assert await door.interrupt(AGENT)
        await ear.until(lambda: bool(ear.ends))
        assert ear.ends == [(TurnEnd.INTERRUPTED, "")]
        assert len(codex.asked("turn/interrupt")) == 1
        await ear.until_open(door)


# --------------------------------------------------------------------------- which thread it is


async def test_without_a_thread_it_says_so_and_waits_for_one(home: Path) -> None:
    ear = Ear()
    async with SharedCodex(home / "a.sock") as codex, doorway(ear) as door:
        assert not door.reaches(AGENT)
        await door.open(AGENT, codex.address)
        await ear.until(lambda: door.is_open(AGENT) == "it has no thread yet")
        handed = await ear.hand_over(door, "hello")
        assert handed == Handover(Handed.NOT_READY, "it has no thread yet")
        codex.start_thread("t1")
        await ear.until_open(door)


async def test_hidden_threads_and_subagents_are_not_the_agent(home: Path) -> None:
    async with opened(home) as (codex, door, ear):
        codex.start_thread("title", ephemeral=True, threadSource="thread_title")
        codex.start_thread("sub", parentThreadId="t1")
        codex.set_status("title", {"type": "active", "activeFlags": []})
        codex.turn_to("sub")
        assert await ear.hand_over(door, "go") == TAKEN
        assert codex.asked("turn/start")[0]["threadId"] == "t1"


async def test_messages_follow_the_terminal_from_thread_to_thread(home: Path) -> None:
    async with opened(home) as (codex, door, ear):
        for number, thread_id in enumerate(["t1", "t2", "t1", "t3", "t2"]):
            if number in (1, 3):
                codex.start_thread(thread_id)  # /new
            elif number:
                codex.turn_to(thread_id)  # /resume
            seen = list(ear.activities)
            codex.set_status(thread_id, {"type": "systemError"})  # so that we know it was heard
            await ear.until(lambda seen=seen: ear.activities != seen)  # type: ignore[misc]
            await ear.hand_over(door, "go", f"m{number}")
            codex.end(thread_id)
            await ear.until_open(door)
        threads = [each["threadId"] for each in codex.asked("turn/start")]
        assert threads == ["t1", "t2", "t1", "t3", "t2"]


async def test_where_several_threads_are_and_none_is_known_to_be_shown_it_is_no_way_in(
    home: Path,
) -> None:
    ear = Ear()
    async with SharedCodex(home / "a.sock") as codex, doorway(ear) as door:
        codex.start_thread("t1")
        codex.start_thread("t2")
        await door.open(AGENT, codex.address)
        await ear.until(lambda: bool(ear.activities))
        assert not door.reaches(AGENT)
        assert door.is_open(AGENT) == "it is not known which of its threads the terminal shows"
        codex.say_as_user("t2", "typed by hand")
        codex.turn_to("t2")
        await ear.until(lambda: door.reaches(AGENT))
        assert door.is_open(AGENT) == WORKING


# -------------------------------------------------------------------------------- when it fails


async def test_a_refused_message_was_not_put_in(home: Path) -> None:
    async with opened(home) as (codex, door, ear):
        codex.refuse("turn/start", "thread not found: t1")
        handed = await ear.hand_over(door, "hello")
        assert handed.outcome is Handed.NOT_READY
        assert "thread not found" in handed.reason
        assert ear.steps == []


@pytest.mark.requirement("door:lost")
async def test_one_that_is_not_answered_may_be_in(home: Path) -> None:
    async with opened(home, answer_seconds=1.0) as (codex, door, ear):
        codex.hold("turn/start")
        handed = await ear.hand_over(door, "hello")
        assert handed == Handover(Handed.UNSURE, "codex did not answer")
        assert ear.steps == []


@pytest.mark.requirement("door:lost")
async def test_one_whose_server_dies_before_it_answers_may_be_in(home: Path) -> None:
    async with opened(home) as (codex, door, ear):
        codex.hold("turn/start")
        handing = asyncio.create_task(ear.hand_over(door, "hello"))
        await eventually(lambda: bool(codex.asked("turn/start")))
        codex.drop()
        handed = await handing
        assert handed.outcome is Handed.UNSURE
        assert handed.reason.startswith("its app server was lost before it answered")
        await ear.until(lambda: ear.activities[-1] == (Activity.UNKNOWN, False))
        assert not door.reaches(AGENT)
        assert door.is_open(AGENT) == LOST
        assert (await ear.hand_over(door, "hello")).outcome is Handed.NOT_READY


@pytest.mark.requirement("door:lost")
async def test_one_that_was_taken_and_never_seen_is_not_called_seen(home: Path) -> None:
    async with opened(home, confirm_seconds=0.3) as (codex, door, ear):
        codex.refuse("thread/resume", "no rollout found")
        handed = await ear.hand_over(door, "hello")
        assert handed == Handover(Handed.TAKEN, "nothing shows so far whether it was seen")
        assert ear.states == [ReceiptState.INJECTED]


@pytest.mark.requirement("door:lost")
async def test_a_server_that_comes_back_is_found_again_and_ends_are_told(home: Path) -> None:
    async with opened(home) as (codex, door, ear):
        await ear.hand_over(door, "hello")
        await eventually(lambda: joined(codex))
        codex.drop()
        await ear.until(lambda: not door.reaches(AGENT))
        codex.answer("t1", "meanwhile")
        codex.end("t1")
        await ear.until_open(door)
        assert ear.ends == [(TurnEnd.DONE, "meanwhile")]
        assert ear.prompts == ["[from bob] hello"]


@pytest.mark.requirement("mail:receipts")
async def test_another_daemon_learns_how_the_turns_ended_that_it_waits_for(home: Path) -> None:
    async with opened(home) as (codex, door, ear):
        await ear.hand_over(door, "hello")
        turn_id = ear.steps[0][1].data["turn_id"]
        await door.aclose()
        codex.answer("t1", "meanwhile")
        codex.end("t1")
        codex.say_as_user("t1", "later")
        codex.answer("t1", "of no interest")
        codex.end("t1")
        later = Ear()
        async with doorway(later) as other:
            await other.open(AGENT, codex.address, awaited=[turn_id])
            await later.until_open(other)
            assert later.ends == [(TurnEnd.DONE, "meanwhile")]


async def test_a_server_that_does_not_come_is_given_up(home: Path) -> None:
    ear = Ear()
    async with doorway(ear, most_failures=2) as door:
        await door.open(AGENT, f"unix://{home}/nobody.sock")
        assert door.reaches(AGENT)  # it may be about to start
        assert door.is_open(AGENT) == LOST
        await ear.until(lambda: not door.reaches(AGENT))
        handed = await ear.hand_over(door, "hello")
        assert handed == Handover(Handed.GONE, "its app server is gone")
        assert await ear.hand_over(door, "hello", "m2") == handed
        async with SharedCodex(home / "nobody.sock") as codex:
            codex.start_thread("t1")
            await door.open(AGENT, codex.address)  # once more
            await ear.until_open(door)
            await door.open(AGENT, codex.address)  # it is open
            assert len(codex.asked("initialize")) == 1


async def test_a_server_that_just_started_is_left_to_the_terminal_first(home: Path) -> None:
    ear = Ear()
    async with SharedCodex(home / "a.sock") as codex, doorway(ear, settle_seconds=0.5) as door:
        codex.start_thread("t1")
        made = (home / "a.sock").stat().st_mtime
        await door.open(AGENT, codex.address)
        await ear.until_open(door)
        assert now().timestamp() - made >= 0.5
        [introduced] = codex.asked("initialize")
        unwanted = introduced["capabilities"]["optOutNotificationMethods"]
        assert "item/reasoning/textDelta" in unwanted


async def test_closing_leaves_nothing_and_nobody_waiting(home: Path) -> None:
    async with opened(home) as (codex, door, ear):
        codex.hold("turn/start")
        handing = asyncio.create_task(ear.hand_over(door, "hello"))
        await eventually(lambda: bool(codex.asked("turn/start")))
        await door.close(AGENT)
        assert (await handing).outcome is Handed.UNSURE
        assert not door.reaches(AGENT)
        handed = await ear.hand_over(door, "hello")
        assert handed == Handover(Handed.GONE, "its app server is gone")
        await door.close(AGENT)
