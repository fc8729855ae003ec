"""A message through a hook is said once, or never and then in another way."""

import asyncio
import contextlib
import json

import pytest

from bullpen.api.methods import HookAnswer, HookAsk
from bullpen.api.talk import AwaitWake, WakeReply
from bullpen.daemon.doors import hooks
from bullpen.daemon.doors.hooks import DrainDoor, WakeDoor
from bullpen.mail.doors import Handed, Handover, Rung
from bullpen.model.deliveries import Evidence, ReceiptState
from bullpen.model.states import Activity, Provider
from bullpen.testing.tmux import eventually
from tests.daemon.doors.hooked import AGENT, SECRET, Hooked
from tests.daemon.doors.talk import delivery

WAIT = AwaitWake(SECRET, 30.0)
TEXT = "[from bob] hello"


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing fail because the machine has too much to do."""
    monkeypatch.setattr(hooks, "ASK_SECONDS", 20.0)
    monkeypatch.setattr(hooks, "TAKE_SECONDS", 20.0)


def stop(provider: Provider = Provider.CLAUDE, **more: object) -> HookAsk:
    payload = {"hook_event_name": "Stop", "stop_hook_active": False, **more}
    return HookAsk(provider, payload)


# ----------------------------------------------------------------------------------------- waking


@pytest.mark.requirement("door:wake")
async def test_a_waiter_is_handed_the_message_and_takes_it() -> None:
    hooked = Hooked()
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        waiter = tasks.create_task(hooked.wake.wake(WAIT, AGENT))
        handing = tasks.create_task(hooked.hand_over(hooked.wake, "hello"))
        reply = await waiter
        assert reply == WakeReply(TEXT, "m1:1")
        assert hooked.steps == []  # as long as it is only on its way
        assert await hooked.wake.took(reply.attempt_id)
    assert handing.result() == Handover(Handed.TAKEN)
    assert hooked.steps == [ReceiptState.INJECTED]
    assert not hooked.wake.reaches(AGENT)
    assert not await hooked.wake.took(reply.attempt_id)  # once
    assert hooked.wake.rung is Rung.OWN


@pytest.mark.requirement("door:wake")
async def test_what_nobody_takes_is_withdrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "TAKE_SECONDS", 0.05)
    hooked = Hooked()
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        waiter = tasks.create_task(hooked.wake.wake(WAIT, AGENT))
        handed = await hooked.hand_over(hooked.wake, "hello")
        reply = await waiter
    assert handed.outcome is Handed.NOT_READY
    assert not await hooked.wake.took(reply.attempt_id)
    assert hooked.steps == []


async def test_a_newer_waiter_takes_the_place_of_an_older_one() -> None:
    hooked = Hooked()
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        older = tasks.create_task(hooked.wake.wake(WAIT, AGENT))
        await hooked.until(lambda: hooked.wake.reaches(AGENT))
        newer = tasks.create_task(hooked.wake.wake(WAIT, AGENT))
        assert await older == WakeReply()
        tasks.create_task(hooked.hand_over(hooked.wake, "hello"))
        assert (await newer).text == TEXT
        await hooked.wake.took("m1:1")
    assert hooked.steps == [ReceiptState.INJECTED]


async def test_a_waiter_that_has_gone_leads_nowhere() -> None:
    hooked = Hooked()
    waiter = asyncio.create_task(hooked.wake.wake(WAIT, AGENT))
    await hooked.until(lambda: hooked.wake.reaches(AGENT))
    waiter.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await waiter
    assert not hooked.wake.reaches(AGENT)
    handed = await hooked.wake.hand_over(delivery("hello", agent=AGENT), hooked.note)
    assert handed.outcome is Handed.NOT_READY
    assert await hooked.wake.wake(AwaitWake(SECRET, 0.0), AGENT) == WakeReply()


@pytest.mark.requirement("door:wake")
@pytest.mark.parametrize(
    ("activity", "is_open"),
    [
        (Activity.IDLE, True),
        (Activity.ERROR, True),
        (Activity.UNKNOWN, True),
        (Activity.RUNNING, False),
        (Activity.WAITING_APPROVAL, False),
        (Activity.WAITING_INPUT, False),
        (Activity.STARTING, False),
    ],
    ids=str,
)
def test_who_works_or_asks_is_not_woken(activity: Activity, is_open: bool) -> None:
    door = WakeDoor(activity_of=lambda _: activity)
    assert (door.is_open(AGENT) == "") is is_open


async def test_what_cannot_be_written_down_is_not_said() -> None:
    hooked = Hooked()

    async def fail(_state: ReceiptState, _evidence: Evidence) -> None:
        raise OSError("the disk is full")

    async with asyncio.timeout(20):
        waiter = asyncio.create_task(hooked.wake.wake(WAIT, AGENT))
        await hooked.until(lambda: hooked.wake.reaches(AGENT))
        handing = asyncio.create_task(hooked.wake.hand_over(delivery("hello", agent=AGENT), fail))
        reply = await waiter
        assert not await hooked.wake.took(reply.attempt_id)
        with pytest.raises(OSError, match="disk"):
            await handing


async def test_of_two_who_would_take_a_message_one_may() -> None:
    hooked = Hooked()
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        waiter = tasks.create_task(hooked.wake.wake(WAIT, AGENT))
        tasks.create_task(hooked.hand_over(hooked.wake, "hello"))
        attempt_id = (await waiter).attempt_id
        both = [tasks.create_task(hooked.wake.took(attempt_id)) for _ in range(2)]
    assert sorted(each.result() for each in both) == [False, True]
    assert hooked.steps == [ReceiptState.INJECTED]


# ---------------------------------------------------------------------------------------- draining


@pytest.mark.requirement("door:drain")
async def test_a_hook_at_the_end_of_a_turn_is_answered_with_the_next_message() -> None:
    hooked = Hooked()
    hooked.post("hello", "m7")
    async with asyncio.timeout(20):
        answer = await hooked.drain.ask(stop(), AGENT)
        assert json.loads(answer.output) == {"decision": "block", "reason": TEXT}
        assert await hooked.drain.took(answer.attempt_id)
        await hooked.until(lambda: bool(hooked.handed))
    assert hooked.handed == [Handover(Handed.TAKEN)]
    assert hooked.steps == [ReceiptState.INJECTED]
    assert hooked.drain.rung is Rung.HOOK


@pytest.mark.requirement("door:drain")
@pytest.mark.parametrize(
    ("agent", "payload"),
    [
        (AGENT, {"hook_event_name": "Stop"}),
        ("", {"hook_event_name": "Stop"}),
        (AGENT, {"hook_event_name": "PreToolUse"}),
        (AGENT, {"hook_event_name": "Stop", "agent_id": "a1"}),
        (AGENT, []),
    ],
    ids=["no-mail", "nobody", "another-event", "subagent", "no-payload"],
)
async def test_who_has_nothing_to_do_is_let_go_at_once(agent: str, payload: object) -> None:
    hooked = Hooked()
    if agent != AGENT or payload != {"hook_event_name": "Stop"}:
        hooked.post("hello", "m7")
    asked = hooked.drain.ask(HookAsk(Provider.CLAUDE, payload), agent)
    assert await asyncio.wait_for(asked, 20) == HookAnswer()
    assert not hooked.drain.reaches(AGENT)


async def test_who_is_not_handed_anything_in_time_is_let_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hooks, "ASK_SECONDS", 0.05)
    changes: list[str] = []

    async def has_mail(_agent: str) -> bool:
        return True

    door = DrainDoor(has_mail=has_mail, on_change=changes.append)
    assert await asyncio.wait_for(door.ask(stop(), AGENT), 20) == HookAnswer()
    assert changes == [AGENT, AGENT]  # that it asks, and that it has gone without
    assert not door.reaches(AGENT)
    assert door.is_open(AGENT)


async def test_who_waits_for_what_went_another_way_is_let_go() -> None:
    hooked = Hooked()
    door = DrainDoor(has_mail=hooked._has_mail)
    hooked.post("hello", "m1")
    async with asyncio.timeout(15):  # long before it would be let go for the time it took
        asking = asyncio.create_task(door.ask(stop(), AGENT))
        await eventually(lambda: door.reaches(AGENT))
        hooked.mail.clear()
        assert await asking == HookAnswer()


@pytest.mark.requirement("door:drain")
async def test_an_agent_is_not_kept_going_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "MOST_IN_A_ROW", 3)
    hooked = Hooked()
    said = 0
    async with asyncio.timeout(20):
        for number in range(5):
            hooked.mail.clear()
            hooked.post("hello", f"m{number}")
            answer = await hooked.drain.ask(stop(stop_hook_active=number > 0), AGENT)
            said += bool(answer.output and await hooked.drain.took(answer.attempt_id))
        assert said == 3
        answer = await hooked.drain.ask(stop(), AGENT)  # a turn of its own has ended
        assert answer.output
        assert await hooked.drain.took(answer.attempt_id)


@pytest.mark.requirement("door:drain")
async def test_what_codex_would_cut_goes_another_way() -> None:
    hooked = Hooked()
    async with asyncio.timeout(20):
        hooked.post("日" * 3329, "m1")  # with its header just less than it takes
        answer = await hooked.drain.ask(stop(Provider.CODEX), AGENT)
        assert await hooked.drain.took(answer.attempt_id)
        hooked.post("日" * 3330, "m2")
        assert await hooked.drain.ask(stop(Provider.CODEX), AGENT) == HookAnswer()
        await hooked.until(lambda: len(hooked.handed) == 2)
    assert [each.outcome for each in hooked.handed] == [Handed.TAKEN, Handed.NOT_READY]
    assert hooked.steps == [ReceiptState.INJECTED]


async def test_neither_door_interrupts() -> None:
    hooked = Hooked()
    assert not await hooked.wake.interrupt(AGENT)
    assert not await hooked.drain.interrupt(AGENT)
