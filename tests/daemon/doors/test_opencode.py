"""The door into opencode: a message of the session its terminal shows, and what becomes of it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bullpen.daemon.doors.opencode import OpencodeDoor
from bullpen.mail.doors import Door, Handed, Handover, Rung
from bullpen.model.deliveries import ReceiptState
from bullpen.model.dialogs import Answered
from bullpen.model.states import Activity
from bullpen.model.turns import TurnEnd
from bullpen.testing.tmux import eventually
from tests.daemon.doors.opencode_server import FakeOpencode
from tests.daemon.doors.talk import AGENT, Ear, now

WORKING = "the agent is working"
DIALOG = "a dialog is open"
LOST = "its server cannot be reached"
TAKEN = Handover(Handed.TAKEN)
ALL_STEPS = [ReceiptState.INJECTED, ReceiptState.SUBMITTED, ReceiptState.SEEN]
HOME = "OpenCode"
ABORTED = {"name": "MessageAbortedError", "data": {"message": "aborted"}}
LIMITED = {"name": "APIError", "data": {"message": "slow down", "statusCode": 429}}
BROKEN = {"name": "APIError", "data": {"message": "broken", "statusCode": 400}}


@asynccontextmanager
async def doorway(ear: Ear, **options: Any) -> AsyncIterator[OpencodeDoor]:
    door = OpencodeDoor(ear.on_turn, ear.on_activity, now, on_said=ear.on_said, **options)
    try:
        yield door
    finally:
        await door.aclose()


@asynccontextmanager
async def opened(
    title: str = HOME, **options: Any
) -> AsyncIterator[tuple[FakeOpencode, OpencodeDoor, Ear]]:
    ear = Ear()
    async with FakeOpencode() as fake, doorway(ear, **options) as door:
        await door.open(AGENT, fake.address)
        door.titled(AGENT, title)
        await ear.until_open(door)
        yield fake, door, ear


def prompts(fake: FakeOpencode) -> list[tuple[str, Any]]:
    return [each for each in fake.asked if each[0].endswith("/prompt_async")]


@pytest.mark.requirement("door:opencode", "mail:receipts")
async def test_where_no_session_is_shown_one_is_made_shown_and_spoken_in() -> None:
    async with opened() as (fake, door, ear):
        as_door: Door = door
        assert as_door.rung is Rung.OWN
        assert await ear.hand_over(door, "look at this") == TAKEN
        [session_id] = fake.sessions
        assert fake.selected == [session_id]
        [(what, body)] = prompts(fake)
        assert what == f"POST /session/{session_id}/prompt_async"
        assert body["parts"] == [{"type": "text", "text": "[from bob] look at this"}]
        assert ear.states == ALL_STEPS
        assert {evidence.data["turn_id"] for _, evidence in ear.steps} == {body["messageID"]}
        assert door.is_open(AGENT) == WORKING
        fake.answer(session_id, body["messageID"], "on the way", finish="tool-calls")
        fake.answer(session_id, body["messageID"], "日本語", "! and more")
        fake.idle(session_id)
        await ear.until_open(door)
        [begun, ended] = ear.turns
        assert begun.prompt == "[from bob] look at this"
        assert (ended.end, ended.text) == (TurnEnd.DONE, "日本語\n! and more")
        assert begun.turn_id == ended.turn_id == body["messageID"]
        assert begun.session_id == ended.session_id == session_id


async def test_ids_of_messages_are_in_the_order_of_time_as_opencode_wants_them() -> None:
    async with opened() as (fake, door, ear):
        for number in ("m1", "m2"):
            await ear.hand_over(door, "go", number)
            fake.idle(next(iter(fake.sessions)))
            await ear.until_open(door)
        marks = [body["messageID"] for _, body in prompts(fake)]
        assert marks == sorted(marks)
        assert {len(each) for each in marks} == {30}


@pytest.mark.requirement("door:opencode")
@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("OC | Mend the tests", "mended"),
        ("OC | A long title that is ...", "long"),
        ("OC | Nobody knows", "new"),
        (HOME, "new"),
    ],
    ids=["titled", "cut", "unknown", "home"],
)
async def test_the_title_of_the_terminal_says_which_session_it_shows(
    title: str, expected: str
) -> None:
    async with opened(title) as (fake, door, ear):
        sessions = {
            "mended": fake.add_session("Mend the tests", agent="plan"),
            "sub": fake.add_session("Mend the tests", parentID="ses_1"),
            "long": fake.add_session("A long title that is cut"),
        }
        fake.tell("permission.asked", "", id="per_1")  # so that we know it was heard
        await ear.until(lambda: door.is_open(AGENT) == DIALOG)
        fake.tell("permission.replied", "", requestID="per_1")
        await ear.until_open(door)
        assert await ear.hand_over(door, "go") == TAKEN
        [chosen] = fake.selected
        assert chosen == sessions.get(expected, "ses_4")
        [(_, body)] = prompts(fake)
        # What may not write stays so.
        assert body.get("agent") == ("plan" if expected == "mended" else None)


async def test_an_untitled_session_that_was_used_is_the_one_that_is_shown() -> None:
    async with opened() as (fake, door, ear):
        model = {"id": "big", "providerID": "loopback", "variant": "high"}
        session_id = fake.add_session(model=model)
        fake.say_as_user(session_id, "typed by hand")
        await ear.until(lambda: bool(ear.prompts))
        assert await ear.hand_over(door, "go") == TAKEN
        assert fake.selected == [session_id]
        [(_, body)] = prompts(fake)
        assert body["model"] == {"providerID": "loopback", "modelID": "big"}
        assert body["variant"] == "high"


@pytest.mark.requirement("door:answer")
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (BROKEN, (TurnEnd.FAILED, "broken")),
        (LIMITED, (TurnEnd.RATE_LIMITED, "slow down")),
        (ABORTED, (TurnEnd.INTERRUPTED, "")),
        (None, (TurnEnd.INTERRUPTED, "")),
    ],
    ids=["failed", "rate-limited", "aborted", "unfinished"],
)
async def test_a_turn_that_did_not_end_well_is_never_a_good_answer(
    error: Any, expected: tuple[TurnEnd, str]
) -> None:
    async with opened() as (fake, door, ear):
        await ear.hand_over(door, "go")
        [session_id] = fake.sessions
        if error is not None:
            fake.tell("session.error", session_id, error=error)
        fake.idle(session_id)
        await ear.until_open(door)
        assert ear.ends == [expected]


@pytest.mark.requirement("door:opencode", "door:approval")
async def test_nothing_is_said_to_an_agent_that_works_or_asks_and_nothing_is_answered() -> None:
    async with opened() as (fake, door, ear):
        session_id = fake.add_session()
        fake.work(session_id, fake.say_as_user(session_id, "typed by hand"))
        await ear.until(lambda: door.is_open(AGENT) == WORKING)
        assert await ear.hand_over(door, "hello") == Handover(Handed.NOT_READY, WORKING)
        fake.tell("permission.asked", session_id, id="per_1")
        await ear.until(lambda: door.is_open(AGENT) == DIALOG)
        assert ear.activities[-1] == (Activity.WAITING_APPROVAL, False)
        assert await ear.hand_over(door, "yes") == Handover(Handed.NOT_READY, DIALOG)
        fake.tell("permission.replied", session_id, requestID="per_1", reply="once")
        await ear.until(lambda: door.is_open(AGENT) == WORKING)
        fake.idle(session_id)
        await ear.until_open(door)
        assert [what for what, _ in fake.asked if what.startswith("POST")] == []
        assert ear.steps == []


async def test_what_subagents_do_is_no_turn_but_what_they_ask_is_asked() -> None:
    async with opened() as (fake, door, ear):
        sub = fake.add_session(parentID="ses_0")
        fake.answer(sub, fake.say_as_user(sub, "find it"), "found")
        fake.tell("question.asked", sub, id="q1")
        await ear.until(lambda: door.is_open(AGENT) == DIALOG)
        fake.idle(sub)
        fake.tell("question.rejected", sub, requestID="q1")
        await ear.until_open(door)
        assert ear.turns == []


async def test_what_came_in_while_it_worked_is_answered_together() -> None:
    async with opened() as (fake, door, ear):
        session_id = fake.add_session()
        first = fake.say_as_user(session_id, "first")
        fake.answer(session_id, first, finish="tool-calls")
        second = fake.say_as_user(session_id, "second")
        fake.answer(session_id, second, "both")
        fake.idle(session_id)
        await ear.until(lambda: len(ear.ends) == 2)
        assert ear.ends == [(TurnEnd.DONE, "both")] * 2
        assert [each.turn_id for each in ear.turns if each.end] == [first, second]
        assert door.is_open(AGENT) == ""


async def test_an_agent_is_interrupted_in_its_turn_and_only_then() -> None:
    async with opened() as (_fake, door, ear):
        assert not await door.interrupt(AGENT)
        assert not await door.interrupt("somebody else")
        await ear.hand_over(door, "go")
        assert await door.interrupt(AGENT)
        await ear.until_open(door)
        assert ear.ends == [(TurnEnd.INTERRUPTED, "")]


@pytest.mark.requirement("door:opencode")
async def test_it_is_not_spoken_to_before_its_terminal_is_there() -> None:
    ear = Ear()
    async with FakeOpencode("secret") as fake, doorway(ear) as door:
        await door.open(AGENT, fake.address, password="secret")
        await ear.until(lambda: ear.activities == [(Activity.STARTING, False)])
        door.titled(AGENT, "a shell")
        assert door.is_open(AGENT) == "its terminal is not there yet"
        assert (await ear.hand_over(door, "hello")).outcome is Handed.NOT_READY
        door.titled(AGENT, HOME)
        await ear.until_open(door)
        door.titled("somebody else", HOME)
    async with FakeOpencode() as fake, doorway(ear, ready_seconds=0.1) as door:
        await door.open(AGENT, fake.address)
        await ear.until_open(door)  # nobody tells of titles: after some time it must be there


# -------------------------------------------------------------------------------- when it fails


async def test_a_refused_message_was_not_put_in() -> None:
    async with opened() as (fake, door, ear):
        fake.status_of_prompts = 404
        handed = await ear.hand_over(door, "hello")
        assert handed == Handover(Handed.NOT_READY, "opencode refused it: status 404")
        assert ear.steps == []


@pytest.mark.requirement("door:lost")
async def test_one_that_is_not_answered_may_be_in() -> None:
    async with opened(answer_seconds=1.0) as (fake, door, ear):
        fake.is_holding = True
        handed = await ear.hand_over(door, "hello")
        assert handed.outcome is Handed.UNSURE
        assert "it took too long" in handed.reason
        assert ear.steps == []


@pytest.mark.requirement("door:lost")
async def test_one_whose_server_dies_before_it_answers_may_be_in() -> None:
    async with opened() as (fake, door, ear):
        fake.is_holding = True
        handing = asyncio.create_task(ear.hand_over(door, "hello"))
        await eventually(lambda: bool(prompts(fake)))
        fake.drop()
        assert (await handing).outcome is Handed.UNSURE
        await ear.until(lambda: ear.activities[-1] == (Activity.UNKNOWN, False))
        assert not door.reaches(AGENT)
        assert door.is_open(AGENT) == LOST


@pytest.mark.requirement("door:lost")
async def test_one_that_was_taken_and_never_seen_is_not_called_seen() -> None:
    async with opened(confirm_seconds=0.3) as (fake, door, ear):
        fake.is_working = False
        handed = await ear.hand_over(door, "hello")
        assert handed == Handover(Handed.TAKEN, "nothing shows so far whether it was seen")
        assert ear.states == ALL_STEPS[:2]


@pytest.mark.requirement("door:lost")
async def test_a_server_that_comes_back_is_found_again_and_ends_are_told() -> None:
    async with opened() as (fake, door, ear):
        await ear.hand_over(door, "hello")
        [(_, body)], [session_id] = prompts(fake), fake.sessions
        fake.drop()
        await ear.until(lambda: not door.reaches(AGENT))
        fake.answer(session_id, body["messageID"], "meanwhile")
        fake.idle(session_id)
        await ear.until_open(door)
        assert ear.ends == [(TurnEnd.DONE, "meanwhile")]
        assert ear.prompts == ["[from bob] hello"]


@pytest.mark.requirement("mail:receipts")
async def test_another_daemon_learns_how_the_turns_ended_that_it_waits_for() -> None:
    async with opened() as (fake, door, ear):
        await ear.hand_over(door, "hello")
        [(_, body)], [session_id] = prompts(fake), fake.sessions
        await door.aclose()
        fake.answer(session_id, body["messageID"], "meanwhile")
        fake.answer(session_id, fake.say_as_user(session_id, "later"), "of no interest")
        fake.idle(session_id)
        later = Ear()
        async with doorway(later, ready_seconds=0.0) as other:
            await other.open(AGENT, fake.address, awaited=[body["messageID"]])
            await later.until_open(other)
            assert later.ends == [(TurnEnd.DONE, "meanwhile")]


async def test_a_server_that_does_not_come_is_given_up() -> None:
    ear = Ear()
    async with FakeOpencode() as gone:
        address = gone.address
    async with doorway(ear, most_failures=2) as door:
        await door.open(AGENT, address)
        assert door.reaches(AGENT)  # it may be about to start
        await ear.until(lambda: not door.reaches(AGENT))
        assert await ear.hand_over(door, "hello") == Handover(Handed.GONE, "its server is gone")


async def test_with_a_wrong_password_it_is_no_way_in() -> None:
    ear = Ear()
    async with FakeOpencode("secret") as fake, doorway(ear, most_failures=2) as door:
        await door.open(AGENT, fake.address, password="wrong")
        await ear.until(lambda: not door.reaches(AGENT))


async def test_closing_leaves_nothing_and_nobody_waiting() -> None:
    async with opened() as (fake, door, ear):
        fake.is_working = False
        handing = asyncio.create_task(ear.hand_over(door, "hello"))
        await eventually(lambda: ReceiptState.SUBMITTED in ear.states)
        await door.close(AGENT)
        assert (await handing).outcome is Handed.UNSURE
        assert not door.reaches(AGENT)
        assert await ear.hand_over(door, "hello") == Handover(Handed.GONE, "its server is gone")


@pytest.mark.requirement("door:pieces")
async def test_what_is_said_is_told_piece_by_piece_and_nothing_but_that() -> None:
    async with opened() as (fake, door, ear):
        fake.is_working = False
        handing = asyncio.create_task(ear.hand_over(door, "go"))
        await eventually(lambda: bool(prompts(fake)))
        [(path, body)] = prompts(fake)
        session_id, mark = path.split("/")[2], body["messageID"]
        on_the_way = fake.work(session_id, mark)
        fake.say(session_id, on_the_way, "h", "m", kind="reasoning")
        fake.say(session_id, on_the_way, "I shall ", "look")
        spoken = fake.work(session_id, mark)
        fake.say(session_id, spoken, "it ", "is", " fine")
        fake.say(session_id, spoken, "really")
        info = {"id": spoken, "role": "assistant", "parentID": mark, "finish": "stop"}
        fake._message(session_id, info)
        fake.idle(session_id)
        await ear.until(lambda: bool(ear.ends))
        assert await handing == TAKEN
        assert ear.pieces == ["|I shall ", "look", "|it ", "is", " fine", "\nreally"]
        assert ear.ends == [(TurnEnd.DONE, "it is fine\nreally")]
        assert {each.turn_id for each in ear.said} == {mark}


@pytest.mark.requirement("a2a:approval")
async def test_what_opencode_asks_is_answered_as_a_person_says() -> None:
    async with opened() as (fake, door, ear):
        session_id = fake.add_session()
        asked = {
            "id": "per_1",
            "permission": "bash",
            "patterns": ["touch *"],
            "metadata": {"command": "touch x"},
        }
        fake.tell("permission.asked", session_id, **asked)
        await ear.until(lambda: door.is_open(AGENT) == "a dialog is open")
        dialog = door.dialog(AGENT)
        assert dialog is not None
        assert dialog.text == "Permission required: bash\ntouch x"
        assert dialog.answers == ("yes", "always", "no")
        assert await door.answer_dialog(AGENT, "per_2", "yes") is Answered.NOT_ASKED
        assert await door.answer_dialog(AGENT, "per_1", "hm") is Answered.NOT_UNDERSTOOD
        replies = [each for each in fake.asked if "/permission/" in each[0]]
        assert replies == []
        assert await door.answer_dialog(AGENT, "per_1", "always") is Answered.DONE
        replies = [each for each in fake.asked if "/permission/" in each[0]]
        assert replies == [("POST /permission/per_1/reply", {"reply": "always"})]
        fake.tell("permission.replied", session_id, requestID="per_1", reply="always")
        await ear.until(lambda: not door.is_open(AGENT))
        question = {"id": "que_1", "questions": [{"question": "Which one?", "options": []}]}
        fake.tell("question.asked", session_id, **question)
        await ear.until(lambda: door.is_open(AGENT) == "a dialog is open")
        assert await door.answer_dialog(AGENT, "que_1", "yes") is Answered.NOT_UNDERSTOOD
