"""Delivering: one message at a time, through the best door, and nothing twice."""

import asyncio
from typing import Any

import msgspec
import pytest

from bullpen.mail.doors import Handed, Handover, Rung
from bullpen.model.deliveries import Delivery, Evidence, ReceiptState
from bullpen.model.messages import MessageType
from bullpen.model.states import Activity
from bullpen.model.turns import Turn, TurnEnd
from tests.mail.rooms import People, Room, ScriptedDoor, eventually

S = ReceiptState


def done(text: str, by: str = "claude_hooks") -> Turn:
    return Turn(by=by, end=TurnEnd.DONE, text=text)


@pytest.mark.requirement("talk:ladder")
async def test_the_best_open_door_is_taken() -> None:
    own, hook, pty = (ScriptedDoor(rung, "bob") for rung in (Rung.OWN, Rung.HOOK, Rung.PTY))
    own.names.clear()
    hook.closed["bob"] = "its turn has not ended"
    async with Room.open(pty, hook, own) as room:
        first = await room.send("bob")
        await room.becomes(first, S.SUBMITTED)
        assert len(pty.taken) == 1
        room.courier.hear("bob", Turn(by="claude_hooks", prompt="do it"))
        room.courier.hear("bob", done("yes"))
        await room.becomes(first, S.ANSWERED)
        own.names.add("bob")
        second = await room.send("bob")
        await room.becomes(second, S.SUBMITTED)
        assert len(own.taken) == 1
        assert room.courier.doors_to("bob") == (Rung.OWN, Rung.HOOK, Rung.PTY)


@pytest.mark.requirement("talk:ladder")
async def test_a_program_that_says_that_it_works_is_not_typed_to_whatever_its_screen_shows() -> (
    None
):
    own, hook, pty = (ScriptedDoor(rung, "bob") for rung in (Rung.OWN, Rung.HOOK, Rung.PTY))
    own.closed["bob"] = hook.closed["bob"] = "the agent is working"
    async with Room.open(pty, hook, own) as room:
        message_id = await room.send("bob")

        async def held() -> bool:
            return room.courier.holding("bob") == "the agent is working"

        await eventually(held)
        assert pty.taken == []
        hook.closed.clear()  # its turn ends, and it asks what comes next
        await room.becomes(message_id, S.SUBMITTED)
        assert len(hook.taken) == 1


@pytest.mark.requirement("talk:ladder")
async def test_the_reason_for_waiting_is_that_of_the_best_door() -> None:
    hook, pty = ScriptedDoor(Rung.HOOK, "bob"), ScriptedDoor(Rung.PTY, "bob")
    hook.closed["bob"] = "its turn has not ended"
    pty.closed["bob"] = "a draft is in the prompt box"
    async with Room.open(hook, pty) as room:
        await room.send("bob")

        async def held() -> bool:
            return room.courier.holding("bob") == "a draft is in the prompt box"

        await eventually(held)


@pytest.mark.requirement("talk:turns")
async def test_a_turn_that_ends_before_the_door_has_answered_is_its_answer() -> None:
    door = ScriptedDoor(Rung.OWN, "bob")
    async with Room.open(door) as room:

        async def meanwhile(_: Delivery) -> None:
            room.courier.hear("bob", Turn(by="codex_appserver", prompt="[from user] do it"))
            room.courier.hear("bob", done("quick", by="codex_appserver"))
            await asyncio.sleep(0.02)

        door.meanwhile = meanwhile
        message_id = await room.send("bob")
        await room.becomes(message_id, S.ANSWERED)
        answer = await room.answer(message_id)
        assert answer is not None
        assert answer.content == "quick"


@pytest.mark.requirement("talk:turns")
async def test_somebody_elses_prompt_is_not_the_message() -> None:
    door = ScriptedDoor(Rung.PTY, "bob")
    async with Room.open(door) as room:
        message_id = await room.send("bob", "count the files")
        await room.becomes(message_id, S.SUBMITTED)
        room.courier.hear("bob", Turn(by="claude_hooks", prompt="what a human typed"))
        room.courier.hear("bob", Turn(by="claude_hooks", end=TurnEnd.INTERRUPTED))
        await asyncio.sleep(0.05)
        assert await room.state(message_id) is S.SUBMITTED
        room.courier.hear("bob", Turn(by="claude_hooks", prompt="[from user]  count the\nfiles"))
        await room.becomes(message_id, S.SEEN)


@pytest.mark.requirement("talk:completion")
async def test_what_the_program_tells_is_better_than_what_its_screen_shows() -> None:
    door = ScriptedDoor(Rung.PTY, "bob")
    people = People("bob")
    people.known["bob"] = msgspec.structs.replace(people.known["bob"], tells_turns=True)
    async with Room.open(door, people=people, better_word=5.0) as room:
        message_id = await room.send("bob")
        await room.becomes(message_id, S.SUBMITTED)
        room.courier.hear("bob", Turn(by="claude_hooks", prompt="do it"))
        room.courier.hear("bob", done("as it is shown", by="pty"))
        room.courier.hear("bob", done("exactly"))
        await room.becomes(message_id, S.ANSWERED)
        answer = await room.answer(message_id)
        assert answer is not None
        assert answer.content == "exactly"


@pytest.mark.requirement("talk:completion")
async def test_what_is_shown_is_believed_if_nothing_better_comes() -> None:
    door = ScriptedDoor(Rung.PTY, "bob")
    people = People("bob")
    people.known["bob"] = msgspec.structs.replace(people.known["bob"], tells_turns=True)
    async with Room.open(door, people=people, better_word=0.05) as room:
        message_id = await room.send("bob")
        await room.becomes(message_id, S.SUBMITTED)
        room.courier.hear("bob", done("as it is shown", by="pty"))
        await room.becomes(message_id, S.ANSWERED)


@pytest.mark.requirement("talk:turns")
async def test_an_end_that_is_told_twice_is_not_the_end_of_the_next_turn() -> None:
    door = ScriptedDoor(Rung.OWN, "bob")
    async with Room.open(door) as room:
        first = await room.send("bob", "one")
        second = await room.send("bob", "two")
        await room.becomes(first, S.SUBMITTED)
        ended = Turn(by="claude_hooks", end=TurnEnd.DONE, text="one!", turn_id="t1")
        room.courier.hear("bob", Turn(by="claude_hooks", prompt="one", turn_id="t1"))
        room.courier.hear("bob", ended)
        await room.becomes(second, S.SUBMITTED)
        room.courier.hear("bob", msgspec.structs.replace(ended, by="journal"))
        room.courier.hear("bob", Turn(by="claude_hooks", prompt="two", turn_id="t2"))
        room.courier.hear("bob", msgspec.structs.replace(ended, by="journal"))
        await room.becomes(second, S.SEEN)
        room.courier.hear("bob", msgspec.structs.replace(ended, text="two!", turn_id="t2"))
        await room.becomes(second, S.ANSWERED)
        answers = [await room.answer(each) for each in (first, second)]
        assert [each.content for each in answers if each] == ["one!", "two!"]


@pytest.mark.requirement("talk:failure")
async def test_an_agent_that_stops_without_a_word_does_not_keep_the_next_message_waiting() -> None:
    door = ScriptedDoor(Rung.OWN, "bob")
    async with Room.open(door, answer=15.0, look_again=0.02) as room:
        first, second = await room.send("bob", "one"), await room.send("bob", "two")
        await room.becomes(first, S.SUBMITTED)
        room.courier.hear("bob", Turn(by="claude_hooks", prompt="one"))
        await room.becomes(first, S.SEEN)
        bob = room.people.known["bob"]
        room.people.known["bob"] = msgspec.structs.replace(bob, activity=Activity.RUNNING)
        await asyncio.sleep(0.05)
        room.advance(60)  # as long as it works it has time
        await asyncio.sleep(0.05)
        assert await room.state(first) is S.SEEN
        room.people.known["bob"] = bob
        await asyncio.sleep(0.05)
        assert await room.state(first) is S.SEEN
        room.advance(16)
        await room.becomes(first, S.FAILED)
        await room.becomes(second, S.SUBMITTED)


@pytest.mark.requirement("talk:completion")
async def test_a_reply_of_the_agent_itself_comes_before_the_end_of_its_turn() -> None:
    door = ScriptedDoor(Rung.PTY, "bob")
    async with Room.open(door) as room:
        message_id = await room.send("bob")
        await room.becomes(message_id, S.SUBMITTED)
        await room.send(
            "user", "my answer", sender="bob", reply_to=message_id, type=MessageType.TASK_RESPONSE
        )
        await room.becomes(message_id, S.ANSWERED)
        room.courier.hear("bob", done("something else"))
        await asyncio.sleep(0.05)
        thread = await room.mailboxes.thread(message_id)
        assert [each.content for each in thread] == ["do it", "my answer"]


@pytest.mark.requirement("talk:restart")
async def test_a_door_that_fails_leaves_a_message_that_is_not_put_in_again() -> None:
    door = ScriptedDoor(Rung.PTY, "bob")
    door.outcomes.append(RuntimeError("a bug"))
    async with Room.open(door, sign_of_life=30.0) as room:
        message_id = await room.send("bob")
        await room.becomes(message_id, S.INJECTED)
        assert door.taken == []
        room.advance(31)
        await room.becomes(message_id, S.FAILED)
        answer = await room.answer(message_id)
        assert answer is not None
        assert answer.type is MessageType.TASK_FAILED
        assert door.taken == []


@pytest.mark.requirement("talk:restart")
async def test_what_was_under_way_is_taken_up_and_not_put_in_again() -> None:
    door = ScriptedDoor(Rung.PTY, "bob")
    async with Room.open(door) as room:
        message_id = await room.send("bob")
        await room.becomes(message_id, S.SUBMITTED)
    async with room.running():
        assert room.courier.working_on("bob") is not None
        room.courier.hear("bob", Turn(by="claude_hooks", prompt="do it"))
        room.courier.hear("bob", done("after all"))
        await room.becomes(message_id, S.ANSWERED)
    assert len(door.taken) == 1


@pytest.mark.requirement("talk:restart")
async def test_what_was_never_put_in_is_tried_again_once_that_is_known() -> None:
    door = ScriptedDoor(Rung.PTY, "bob")
    door.outcomes += [Handover(Handed.UNSURE, "lost"), Handover(Handed.NOT_READY, "nothing typed")]
    async with Room.open(door) as room:
        message_id = await room.send("bob")
        await room.becomes(message_id, S.INJECTED)
        room.courier.returned("bob")
        await room.becomes(message_id, S.QUEUED)
        room.advance(2)
        await room.becomes(message_id, S.SUBMITTED)
        assert [each.attempt for each in door.taken] == [2]


@pytest.mark.requirement("talk:ended")
@pytest.mark.parametrize("was_seen", [True, False], ids=["seen", "not seen"])
async def test_an_agent_that_ends_leaves_no_task_open(was_seen: bool) -> None:
    door = ScriptedDoor(Rung.PTY, "bob")
    async with Room.open(door) as room:
        message_id = await room.send("bob")
        await room.becomes(message_id, S.SUBMITTED)
        if was_seen:
            room.courier.hear("bob", Turn(by="claude_hooks", prompt="do it"))
            await room.becomes(message_id, S.SEEN)
        bob = room.people.known["bob"]
        room.people.known["bob"] = msgspec.structs.replace(bob, is_present=False)
        room.courier.wake("bob")
        await room.becomes(message_id, S.FAILED)
        answer = await room.answer(message_id)
        assert answer is not None
        assert ("may have had it" in answer.content) is not was_seen


@pytest.mark.requirement("talk:urgent")
@pytest.mark.parametrize(
    ("activity", "interrupts"),
    [(Activity.RUNNING, True), (Activity.WAITING_APPROVAL, False), (Activity.IDLE, False)],
    ids=["running", "dialog", "draft"],
)
async def test_only_work_is_interrupted(activity: Activity, interrupts: bool) -> None:
    door = ScriptedDoor(Rung.PTY, "bob")
    door.closed["bob"] = "not now"
    async with Room.open(door) as room:
        bob = room.people.known["bob"]
        room.people.known["bob"] = msgspec.structs.replace(bob, activity=activity)
        message_id = await room.send("bob", metadata={"priority": "urgent"})
        if interrupts:
            await room.becomes(message_id, S.SUBMITTED)
        else:

            async def held() -> bool:
                return room.courier.holding("bob") == "not now"

            await eventually(held)
        assert bool(door.interrupted) is interrupts


@pytest.mark.requirement("talk:receipts")
async def test_an_end_that_tells_what_was_asked_ends_nothing_else() -> None:
    door = ScriptedDoor(Rung.PTY, "bob")
    async with Room.open(door) as room:
        message_id = await room.send("bob", "do it")
        await room.becomes(message_id, S.SUBMITTED)
        room.courier.hear("bob", Turn(by="pty", prompt="do it"))
        await room.becomes(message_id, S.SEEN)
        before = Turn(by="copilot", end=TurnEnd.INTERRUPTED, asked=("[from user] something else",))
        room.courier.hear("bob", before)
        own = ("something else", "[from user]\ndo it")
        room.courier.hear("bob", Turn(by="copilot", end=TurnEnd.DONE, text="did", asked=own))
        await room.becomes(message_id, S.ANSWERED)
        answer = await room.answer(message_id)
        assert answer is not None
        assert answer.content == "did"


@pytest.mark.requirement("talk:urgent")
async def test_an_urgent_message_interrupts_the_turn_of_another_one() -> None:
    door = ScriptedDoor(Rung.PTY, "bob")
    async with Room.open(door) as room:
        first = await room.send("bob", "take your time")
        await room.becomes(first, S.SUBMITTED)
        room.courier.hear("bob", Turn(by="claude_hooks", prompt="take your time"))
        await room.becomes(first, S.SEEN)
        bob = room.people.known["bob"]
        room.people.known["bob"] = msgspec.structs.replace(bob, activity=Activity.RUNNING)
        later = await room.send("bob", "when you can", metadata={"priority": "high"})
        urgent = await room.send("bob", "at once", metadata={"priority": "urgent"})

        async def is_interrupted() -> bool:
            room.courier.wake("bob")  # which it is for many reasons
            return bool(door.interrupted)

        await eventually(is_interrupted)
        assert await room.state(urgent) is S.QUEUED
        room.people.known["bob"] = bob  # it has stopped, and many programs say nothing of that
        room.courier.wake("bob")

        async def is_handed_over() -> bool:
            room.advance(0.1)
            return await room.state(urgent) is S.SUBMITTED

        await eventually(is_handed_over)
        assert door.interrupted == ["bob"]
        answer = await room.answer(first)
        assert answer is not None
        assert (answer.type, answer.content) == (
            MessageType.TASK_FAILED,
            "the turn was interrupted",
        )
        assert await room.state(later) is S.QUEUED


@pytest.mark.requirement("a2a:approval")
async def test_an_agent_that_stops_because_it_may_not_go_on_has_failed_soon() -> None:
    async with Room.open(ScriptedDoor(Rung.PTY, "bob"), answer=1000.0) as room:
        message_id = await room.send("bob", "rm -rf")
        await room.becomes(message_id, S.SUBMITTED)
        room.courier.hear("bob", Turn(by="claude_hooks", prompt="rm -rf"))
        await room.becomes(message_id, S.SEEN)
        room.courier.declined("bob")
        room.courier.wake("bob")

        async def has_failed() -> bool:
            room.advance(0.1)
            room.courier.wake("bob")
            return await room.state(message_id) is S.FAILED

        await eventually(has_failed)
        answer = await room.answer(message_id)
        assert answer is not None
        assert "declined" in answer.content


@pytest.mark.requirement("talk:urgent", "talk:draft")
async def test_a_turn_that_waits_for_a_person_is_not_interrupted_and_that_is_said() -> None:
    door = ScriptedDoor(Rung.PTY, "bob")
    async with Room.open(door) as room:
        first = await room.send("bob")
        await room.becomes(first, S.SUBMITTED)
        assert room.courier.holding("bob") == f"it has the message {first}"
        bob = room.people.known["bob"]
        asking = msgspec.structs.replace(bob, activity=Activity.WAITING_APPROVAL)
        room.people.known["bob"] = asking
        urgent = await room.send("bob", metadata={"priority": "urgent"})
        await asyncio.sleep(0.2)  # it is looked at some times
        assert (door.interrupted, await room.state(urgent)) == ([], S.QUEUED)
        why = f"it has the message {first}, and waits for a person's decision"
        assert room.courier.holding("bob") == why


@pytest.mark.requirement("talk:retry")
async def test_an_agent_that_is_not_ready_is_tried_again_and_nothing_counts() -> None:
    door = ScriptedDoor(Rung.PTY, "bob")
    door.outcomes += [Handover(Handed.NOT_READY, "a dialog is open")] * 12
    async with Room.open(door, look_again=0.01) as room:
        message_id = await room.send("bob")
        await room.becomes(message_id, S.SUBMITTED)
        assert await room.history(message_id) == [S.ACCEPTED, S.QUEUED, S.INJECTED, S.SUBMITTED]


@pytest.mark.requirement("talk:retry")
async def test_what_can_never_be_put_in_is_given_up_at_once_and_the_next_one_goes_in() -> None:
    door = ScriptedDoor(Rung.PTY, "bob")
    door.outcomes.append(Handover(Handed.REFUSED, "the line is too long for its terminal"))
    async with Room.open(door) as room:
        first, second = await room.send("bob", "one"), await room.send("bob", "two")
        await room.becomes(first, S.DEAD)
        await room.becomes(second, S.SUBMITTED)
        answer = await room.answer(first)
        assert answer is not None
        assert answer.content == "the line is too long for its terminal"


@pytest.mark.requirement("talk:queue")
async def test_what_wants_no_answer_does_not_keep_the_next_one_waiting() -> None:
    door = ScriptedDoor(Rung.PTY, "bob")
    async with Room.open(door, look_again=0.02) as room:
        first = await room.send("bob", "for your information", type=MessageType.INFO)
        second = await room.send("bob", "do it")
        await room.becomes(first, S.SUBMITTED)
        room.advance(5)
        await room.becomes(second, S.SUBMITTED)


@pytest.mark.requirement("talk:expire")
async def test_what_expires_is_told_once() -> None:
    door = ScriptedDoor(Rung.PTY, "bob")
    door.closed["bob"] = "busy"
    async with Room.open(door) as room:
        message_id = await room.send("bob", metadata={"ttl": 5})
        room.advance(6)
        await room.becomes(message_id, S.EXPIRED)

        async def told() -> bool:
            return await room.answer(message_id) is not None

        await eventually(told)
        assert len(await room.mailboxes.thread(message_id)) == 2


async def test_mail_for_people_is_not_delivered_but_fetched() -> None:
    async with Room.open(ScriptedDoor(Rung.PTY, "bob")) as room:
        message_id = await room.send("user", "hello", sender="bob")
        assert await room.state(message_id) is S.QUEUED
        [mine] = await room.office.take("user", limit=10, seconds=0)
        assert mine.message.id == message_id
        assert await room.state(message_id) is S.SEEN
        assert await room.office.take("user", limit=10, seconds=0) == ()


@pytest.mark.requirement("O-90", "O-91", "O-31")
async def test_what_a_door_could_not_put_in_is_tried_again_after_a_pause_and_counted() -> None:
    door = ScriptedDoor(Rung.PTY, "bob")
    door.outcomes.append(Handover(Handed.GONE, "nobody is there"))
    async with Room.open(door) as room:
        message_id = await room.send("bob")

        async def waits() -> bool:
            return room.courier.holding("bob") == "nobody is there"

        await eventually(waits)
        room.advance(0.9)
        room.courier.wake("bob")
        await asyncio.sleep(0.05)
        assert door.taken == []
        room.advance(0.2)
        await room.becomes(message_id, S.SUBMITTED)
        assert [each.message.metadata.retry_count for each in door.taken] == [1]


@pytest.mark.requirement("O-90", "O-92")
async def test_a_door_that_fails_for_good_is_tried_five_times_more_and_then_that_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    door = ScriptedDoor(Rung.PTY, "bob")
    door.outcomes += [Handover(Handed.GONE, "nobody is there")] * 10
    async with Room.open(door, look_again=0.02) as room:
        message_id = await room.send("bob")
        pauses = []

        async def tried() -> bool:
            [delivery] = await room.mailboxes.deliveries(message_id)
            return len(door.outcomes) == 10 - attempt and delivery.leased_until is None

        for attempt in range(1, 7):
            await eventually(tried)
            if attempt == 6:
                break
            [delivery] = await room.mailboxes.deliveries(message_id)
            pauses.append((delivery.available_at - room.now).total_seconds())
            room.advance(pauses[-1])
        assert pauses == [1, 2, 4, 8, 16]
        await room.becomes(message_id, S.DEAD)
        answer = await room.answer(message_id)
        assert answer is not None
        assert (answer.type, answer.content) == (MessageType.TASK_FAILED, "nobody is there")
    levels = [each.levelname for each in caplog.records if message_id in each.message]
    assert levels == ["WARNING"] * 5 + ["ERROR"]


@pytest.mark.requirement("talk:crash")
async def test_what_a_killed_daemon_was_handing_over_is_asked_for_and_typed_once() -> None:
    door = ScriptedDoor(Rung.PTY, "bob")
    door.closed["bob"] = "busy"
    async with Room.open(door) as room:
        message_id = await room.send("bob")
        await room.mailboxes.lease("bob", now=room.now, by="pty")  # and it is killed
    async with room.running():
        assert room.courier.working_on("bob") is not None
        await asyncio.sleep(0.02)
        assert door.taken == []
        room.courier.returned("bob")
        await room.becomes(message_id, S.SUBMITTED)
        assert [each.attempt for each in door.taken] == [1]


@pytest.mark.requirement("talk:crash")
async def test_what_nobody_can_tell_of_is_not_put_in_again_and_says_so() -> None:
    door = ScriptedDoor(Rung.OWN, "bob")
    async with Room.open(door, sign_of_life=30.0) as room:
        door.closed["bob"] = "busy"
        message_id = await room.send("bob")
        await room.mailboxes.lease("bob", now=room.now, by="own")
    door.closed.clear()
    async with room.running():
        room.advance(31)
        await room.becomes(message_id, S.FAILED)
        assert door.taken == []
        answer = await room.answer(message_id)
        assert answer is not None
        assert answer.content == "nothing shows whether the agent has had it"


@pytest.mark.requirement("talk:ended")
async def test_what_an_agent_fetched_and_did_not_answer_fails_when_it_ends() -> None:
    async with Room.open(ScriptedDoor(Rung.TMUX), people=People("bob"), sign_of_life=0.0) as room:
        ids = [await room.send("bob", text) for text in ("one", "two")]
        assert len(await room.office.take("bob", limit=10, seconds=0)) == 2
        bob = room.people.known["bob"]
        room.people.known["bob"] = msgspec.structs.replace(bob, is_present=False)
        room.courier.wake("bob")
        for message_id in ids:
            await room.becomes(message_id, S.FAILED)
            answer = await room.answer(message_id)
            assert answer is not None
            assert answer.content == "the agent ended without answering"


@pytest.mark.requirement("talk:clock")
async def test_patience_does_not_last_longer_when_the_clock_is_set_back() -> None:
    door = ScriptedDoor(Rung.PTY, "bob")
    door.outcomes.append(Handover(Handed.UNSURE, "nothing shows it"))
    async with Room.open(door, sign_of_life=30.0, look_again=0.02) as room:
        message_id = await room.send("bob")
        await room.becomes(message_id, S.INJECTED)
        room.advance(-3600)
        await asyncio.sleep(0.1)  # it has looked at the clock
        assert await room.state(message_id) is S.INJECTED
        room.advance(31)
        await room.becomes(message_id, S.FAILED)


@pytest.mark.requirement("talk:failure")
async def test_a_turn_that_failed_does_not_say_that_the_message_was_seen() -> None:
    door = ScriptedDoor(Rung.PTY, "bob")
    async with Room.open(door) as room:
        message_id = await room.send("bob")
        await room.becomes(message_id, S.SUBMITTED)
        room.courier.hear("bob", Turn(by="pty", end=TurnEnd.FAILED, text="it has ended"))
        await room.becomes(message_id, S.FAILED)
        assert S.SEEN not in await room.history(message_id)


@pytest.mark.requirement("talk:cancel")
async def test_what_is_cancelled_while_it_is_fetched_does_not_go_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    door = ScriptedDoor(Rung.PTY, "bob")
    async with Room.open(door) as room:
        fetch = room.mailboxes.lease

        async def cancelled(*args: Any, **more: Any) -> Any:
            monkeypatch.undo()
            [leased] = await fetch(*args, **more)
            await room.courier.give_up(leased, "user cancelled it", is_canceled=True)
            return [leased]

        monkeypatch.setattr(room.mailboxes, "lease", cancelled)
        first = await room.send("bob", "one")
        await room.becomes(first, S.DEAD)
        second = await room.send("bob", "two")
        await room.becomes(second, S.SUBMITTED)
        assert [each.message.id for each in door.taken] == [second]
        await room.courier.give_up(door.taken[0], "user cancelled it", is_canceled=True)
        evidence = Evidence("user", "asked for")  # whatever was, it is meant now
        await room.mailboxes.requeue(first, "bob", now=room.now, evidence=evidence)
        room.courier.wake("bob")
        await room.becomes(first, S.SUBMITTED)
