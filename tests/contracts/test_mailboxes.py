"""What every implementation of `Mailboxes` does."""

from collections.abc import AsyncIterator
from datetime import timedelta
from functools import partial
from pathlib import Path

import msgspec
import pytest

from bullpen.mail.errors import (
    IdempotencyConflict,
    ImpossibleReceipt,
    LeaseLost,
    MailboxFull,
    MessageNotFound,
    NobodyListens,
)
from bullpen.mail.ledger import Rules
from bullpen.mail.mailboxes import Mailboxes, Settling
from bullpen.mail.memory import MemoryMailboxes
from bullpen.mail.receipts import steps
from bullpen.mail.sqlite import SqliteMailboxes
from bullpen.model.deliveries import CommunicationLog, Delivery, Evidence, ReceiptState, TaskQuery
from bullpen.model.messages import Message, MessageType, Priority, message_size
from bullpen.store.database import Database
from bullpen.store.migrate import migrate
from tests.mail.samples import SECOND, SEEN_BY_HOOK, T0, message

S = ReceiptState
LIMIT = 12
DOOR = Evidence("door", "could not")


@pytest.fixture(params=["memory", "sqlite", "sqlite in memory"])
async def mailboxes(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Mailboxes]:
    rules = Rules(mailbox_limit=LIMIT)
    if request.param == "memory":
        yield MemoryMailboxes(rules)
        return
    path = tmp_path / "state.db" if request.param == "sqlite" else None
    database = await Database.open(path, prepare=partial(migrate, path="here"))
    over_sqlite = SqliteMailboxes(database, rules)
    yield over_sqlite
    await over_sqlite.aclose()
    await database.aclose()


async def lease(mailboxes: Mailboxes, recipient: str = "coder", after: float = 0) -> Delivery:
    [delivery] = await mailboxes.lease(recipient, now=T0 + after * SECOND)
    return delivery


async def state(mailboxes: Mailboxes, message_id: str = "m1") -> S:
    [delivery] = await mailboxes.deliveries(message_id)
    return delivery.state


async def history(mailboxes: Mailboxes, message_id: str = "m1") -> list[S]:
    return [each.state for each in await mailboxes.receipts(message_id)]


# ------------------------------------------------------------------------------------- appending


async def test_what_is_appended_waits_for_its_recipient(mailboxes: Mailboxes) -> None:
    sent = message(thinking="hm", reply_to="elsewhere", idempotency_key="k", origin="x", hops=1)
    appended = await mailboxes.append(sent, now=T0)
    assert appended.is_new
    assert appended.message == sent
    [delivery] = await mailboxes.waiting("coder")
    assert appended.deliveries == (delivery,)
    assert (delivery.message, delivery.state, delivery.attempt) == (sent, S.QUEUED, 0)
    assert delivery.size == message_size(sent)
    assert await mailboxes.waiting("boss") == ()


async def test_what_is_seen_as_it_is_appended_waits_for_nobody(mailboxes: Mailboxes) -> None:
    appended = await mailboxes.append(message(1), now=T0, seen=SEEN_BY_HOOK)
    assert [each.state for each in appended.deliveries] == [S.SEEN]
    assert await mailboxes.deliveries("m1") == appended.deliveries
    assert await history(mailboxes) == [S.ACCEPTED, S.QUEUED, *steps(S.QUEUED, S.SEEN)]
    assert await mailboxes.waiting("coder") == ()
    assert [entry.success for _, entry in await mailboxes.communication()] == [True]


async def test_the_same_message_again_is_the_same_message(mailboxes: Mailboxes) -> None:
    first = message(1, idempotency_key="k")
    await mailboxes.append(first, now=T0)
    by_id = await mailboxes.append(first, now=T0 + SECOND)
    by_key = await mailboxes.append(
        message(2, content=first.content, idempotency_key="k"), now=T0 + SECOND
    )
    for again in (by_id, by_key):
        assert not again.is_new
        assert again.message == first
        assert [each.accepted_at for each in again.deliveries] == [T0]
    assert len(await mailboxes.waiting("coder")) == 1
    assert await history(mailboxes) == [S.ACCEPTED, S.QUEUED]
    with pytest.raises(MessageNotFound):
        await mailboxes.deliveries("m2")


async def test_what_became_of_it_is_told_to_who_sends_it_again(mailboxes: Mailboxes) -> None:
    await mailboxes.append(message(), now=T0)
    held = await lease(mailboxes)
    await mailboxes.acknowledge(held, now=T0, evidence=SEEN_BY_HOOK)
    again = await mailboxes.append(message(), now=T0)
    assert [each.state for each in again.deliveries] == [S.SEEN]


async def test_another_message_with_the_same_id_or_key_is_refused(mailboxes: Mailboxes) -> None:
    await mailboxes.append(message(1, idempotency_key="k"), now=T0)
    with pytest.raises(IdempotencyConflict, match="m1 had the same id or key"):
        await mailboxes.append(message(1, content="else"), now=T0)
    with pytest.raises(IdempotencyConflict):
        await mailboxes.append(message(2, content="else", idempotency_key="k"), now=T0)
    assert len(await mailboxes.waiting("coder")) == 1


async def test_a_key_is_a_senders_own(mailboxes: Mailboxes) -> None:
    await mailboxes.append(message(1, idempotency_key="k"), now=T0)
    other = await mailboxes.append(message(2, sender="x", idempotency_key="k"), now=T0)
    assert other.is_new


async def test_a_full_mailbox_takes_nothing_more_until_something_is_taken(
    mailboxes: Mailboxes,
) -> None:
    for number in range(LIMIT):
        await mailboxes.append(message(number), now=T0)
    with pytest.raises(MailboxFull, match=f"{LIMIT} messages wait for coder already"):
        await mailboxes.append(message(99), now=T0)
    assert not (await mailboxes.append(message(0), now=T0)).is_new  # which takes no room
    assert (await mailboxes.append(message(100, to="other"), now=T0)).is_new
    held = await lease(mailboxes)
    await mailboxes.acknowledge(held, now=T0, evidence=SEEN_BY_HOOK)
    assert (await mailboxes.append(message(99), now=T0)).is_new


# ------------------------------------------------------------------------------------------ order


async def test_the_urgent_come_first_and_equals_in_order(mailboxes: Mailboxes) -> None:
    order = [
        Priority.NORMAL,
        Priority.LOW,
        Priority.URGENT,
        Priority.NORMAL,
        Priority.HIGH,
        Priority.URGENT,
    ]
    for number, priority in enumerate(order):
        await mailboxes.append(message(number, priority=priority), now=T0)
    waiting = [each.message.id for each in await mailboxes.waiting("coder")]
    assert waiting == ["m2", "m5", "m4", "m0", "m3", "m1"]
    positions = [await mailboxes.position(each, "coder") for each in waiting]
    assert positions == [1, 2, 3, 4, 5, 6]
    first = await mailboxes.lease("coder", now=T0, limit=4)
    rest = await mailboxes.lease("coder", now=T0, limit=4)
    assert [each.message.id for each in first + rest] == waiting


async def test_what_does_not_wait_has_no_position(mailboxes: Mailboxes) -> None:
    await mailboxes.append(message(), now=T0)
    held = await lease(mailboxes)
    await mailboxes.acknowledge(held, now=T0, evidence=SEEN_BY_HOOK)
    assert await mailboxes.position("m1", "coder") is None
    with pytest.raises(MessageNotFound, match="there is no message m1 for other"):
        await mailboxes.position("m1", "other")


# --------------------------------------------------------------------------------------- leasing


@pytest.mark.requirement("talk:look")
async def test_what_is_taken_has_been_seen_in_one_step(mailboxes: Mailboxes) -> None:
    for number in (1, 2, 3):
        await mailboxes.append(message(number), now=T0)
    held = await lease(mailboxes)
    taken = await mailboxes.take("coder", now=T0, evidence=SEEN_BY_HOOK, limit=9)
    assert [(each.message.id, each.state) for each in taken] == [("m2", S.SEEN), ("m3", S.SEEN)]
    assert await history(mailboxes, "m2") == [S.ACCEPTED, S.QUEUED, S.SEEN]
    assert await mailboxes.take("coder", now=T0, evidence=SEEN_BY_HOOK) == ()
    assert await mailboxes.deliveries("m3") == taken[1:]
    with pytest.raises(ImpossibleReceipt):
        await mailboxes.release(taken[0], now=T0, evidence=DOOR)
    assert (await mailboxes.acknowledge(held, now=T0, evidence=SEEN_BY_HOOK)).state is S.SEEN


async def test_what_is_leased_is_not_leased_by_another(mailboxes: Mailboxes) -> None:
    await mailboxes.append(message(), now=T0)
    held = await lease(mailboxes)
    assert held.attempt == 1
    assert held.leased_until == T0 + 30 * SECOND
    assert await mailboxes.lease("coder", now=T0 + 29 * SECOND) == ()


async def test_who_takes_too_long_has_lost_his_lease(mailboxes: Mailboxes) -> None:
    await mailboxes.append(message(), now=T0)
    slow = await lease(mailboxes)
    quick = await lease(mailboxes, after=31)
    assert quick.attempt == 2
    for late in (
        mailboxes.record(slow, S.INJECTED, now=T0, evidence=DOOR),
        mailboxes.acknowledge(slow, now=T0, evidence=DOOR),
        mailboxes.release(slow, now=T0, evidence=DOOR),
        mailboxes.reject(slow, now=T0, evidence=DOOR),
    ):
        with pytest.raises(LeaseLost, match="attempt 1 to deliver m1 to coder is over"):
            await late
    await mailboxes.acknowledge(quick, now=T0 + 32 * SECOND, evidence=SEEN_BY_HOOK)
    assert await state(mailboxes) is S.SEEN


async def test_who_let_go_holds_nothing(mailboxes: Mailboxes) -> None:
    await mailboxes.append(message(), now=T0)
    held = await lease(mailboxes)
    await mailboxes.release(held, now=T0, evidence=DOOR)
    with pytest.raises(LeaseLost):
        await mailboxes.release(held, now=T0, evidence=DOOR)
    assert await history(mailboxes) == [S.ACCEPTED, S.QUEUED, S.QUEUED]


@pytest.mark.requirement("O-31", "O-90", "O-92")
async def test_what_does_not_arrive_is_tried_again_and_in_the_end_is_dead(
    mailboxes: Mailboxes,
) -> None:
    await mailboxes.append(message(), now=T0)
    now, pauses, retry_counts = T0, [], []
    while await state(mailboxes) is S.QUEUED:
        [held] = await mailboxes.lease("coder", now=now)
        retry_counts.append(held.message.metadata.retry_count)
        released = await mailboxes.release(held, now=now, evidence=DOOR)
        if released.state is S.QUEUED:
            assert await mailboxes.lease("coder", now=released.available_at - SECOND / 2) == ()
            pauses.append((released.available_at - now) / SECOND)
            now = released.available_at
    assert pauses == [1, 2, 4, 8, 16]
    assert retry_counts == [0, 1, 2, 3, 4, 5]
    assert await state(mailboxes) is S.DEAD
    assert [each.attempt for each in await mailboxes.receipts("m1")] == [0, 0, 1, 2, 3, 4, 5, 6]
    assert [each.message.id for each in await mailboxes.dead_letters()] == ["m1"]


async def test_a_clock_that_is_set_back_keeps_nobody_waiting(mailboxes: Mailboxes) -> None:
    await mailboxes.append(message(1), now=T0)
    await mailboxes.append(message(2), now=T0)
    held = await lease(mailboxes)
    released = await mailboxes.release(held, now=T0, evidence=DOOR)
    earlier = T0 - 3600 * SECOND
    again = await mailboxes.lease("coder", now=earlier, limit=9)
    assert [each.message.id for each in again] == ["m1", "m2"]
    assert released.available_at == T0 + SECOND


@pytest.mark.requirement("talk:clock")
async def test_a_lease_is_not_prolonged_by_a_clock_that_is_set_back(mailboxes: Mailboxes) -> None:
    await mailboxes.append(message(1, ttl=5), now=T0)
    await lease(mailboxes)
    assert await mailboxes.lease("coder", now=T0 + SECOND) == ()
    assert len(await mailboxes.lease("coder", now=T0 - 3600 * SECOND)) == 1


async def test_what_is_rejected_is_dead_at_once(mailboxes: Mailboxes) -> None:
    await mailboxes.append(message(), now=T0)
    rejected = await mailboxes.reject(await lease(mailboxes), now=T0, evidence=DOOR)
    assert rejected.state is S.DEAD
    with pytest.raises(ImpossibleReceipt):
        await mailboxes.release(rejected, now=T0, evidence=DOOR)
    assert await mailboxes.lease("coder", now=T0 + 99 * SECOND) == ()


# --------------------------------------------------------------------------------------- receipts


@pytest.mark.requirement("mail:receipts")
async def test_every_step_is_told_with_its_evidence(mailboxes: Mailboxes) -> None:
    await mailboxes.append(message(), now=T0)
    held = await lease(mailboxes, after=1)
    paste = Evidence("pty", "the text is in the box", {"offset": 7})
    await mailboxes.record(held, S.INJECTED, now=T0 + 2 * SECOND, evidence=paste)
    enter = Evidence("pty", "the box is empty")
    await mailboxes.record(held, S.SUBMITTED, now=T0 + 3 * SECOND, evidence=enter)
    await mailboxes.acknowledge(held, now=T0 + 4 * SECOND, evidence=SEEN_BY_HOOK)
    reply = message(2, sender="coder", to="boss", type=MessageType.TASK_COMPLETE, reply_to="m1")
    await mailboxes.append(reply, now=T0 + 5 * SECOND)
    steps = await mailboxes.receipts("m1")
    assert [(each.state, (each.at - T0) / SECOND, each.attempt) for each in steps] == [
        (S.ACCEPTED, 0, 0),
        (S.QUEUED, 0, 0),
        (S.INJECTED, 2, 1),
        (S.SUBMITTED, 3, 1),
        (S.SEEN, 4, 1),
        (S.ANSWERED, 5, 1),
    ]
    assert {each.recipient for each in steps} == {"coder"}
    assert [each.evidence for each in steps[2:]] == [
        paste,
        enter,
        SEEN_BY_HOOK,
        Evidence("coder", "replied: task_complete", {"reply": "m2"}),
    ]


async def test_an_impossible_step_changes_nothing(mailboxes: Mailboxes) -> None:
    await mailboxes.append(message(), now=T0)
    held = await lease(mailboxes)
    for impossible in (S.ACCEPTED, S.QUEUED):
        with pytest.raises(ImpossibleReceipt):
            await mailboxes.record(held, impossible, now=T0, evidence=DOOR)
    assert await history(mailboxes) == [S.ACCEPTED, S.QUEUED]
    with pytest.raises(MessageNotFound):
        await mailboxes.settle("m1", "other", S.SEEN, now=T0, evidence=DOOR)


async def test_nothing_is_queued_again_by_a_mere_step(mailboxes: Mailboxes) -> None:
    await mailboxes.append(message(), now=T0)
    held = await lease(mailboxes)
    await mailboxes.record(held, S.INJECTED, now=T0, evidence=DOOR)
    with pytest.raises(ImpossibleReceipt):
        await mailboxes.record(held, S.QUEUED, now=T0, evidence=DOOR)
    await mailboxes.reject(held, now=T0, evidence=DOOR)
    with pytest.raises(ImpossibleReceipt):
        await mailboxes.settle("m1", "coder", S.QUEUED, now=T0, evidence=DOOR)


async def test_what_was_given_up_may_turn_out_to_have_arrived(mailboxes: Mailboxes) -> None:
    await mailboxes.append(message(), now=T0)
    await mailboxes.reject(await lease(mailboxes), now=T0, evidence=DOOR)
    await mailboxes.settle("m1", "coder", S.SEEN, now=T0, evidence=SEEN_BY_HOOK)
    [(_, record)] = await mailboxes.communication()
    assert (record.success, record.error, record.duration_ms) == (True, None, 0.0)


async def test_who_acknowledged_holds_nothing_any_more(mailboxes: Mailboxes) -> None:
    await mailboxes.append(message(), now=T0)
    held = await lease(mailboxes)
    injected = await mailboxes.record(held, S.INJECTED, now=T0, evidence=DOOR)
    assert injected.is_leased(T0)
    seen = await mailboxes.acknowledge(held, now=T0, evidence=SEEN_BY_HOOK)
    assert not seen.is_leased(T0)


async def test_what_may_have_arrived_is_never_handed_out_again_by_itself(
    mailboxes: Mailboxes,
) -> None:
    await mailboxes.append(message(), now=T0)
    held = await lease(mailboxes)
    injected = await mailboxes.record(held, S.INJECTED, now=T0, evidence=DOOR)
    assert await mailboxes.lease("coder", now=T0 + 999 * SECOND) == ()
    assert await mailboxes.in_flight() == (injected,)
    later = T0 + 999 * SECOND
    await mailboxes.release(held, now=later, evidence=Evidence("pty", "the box is empty"))
    assert (await lease(mailboxes, after=1000)).attempt == 2


async def test_what_was_observed_from_outside_settles_a_receipt(mailboxes: Mailboxes) -> None:
    await mailboxes.append(message(), now=T0)
    held = await lease(mailboxes)
    await mailboxes.record(held, S.INJECTED, now=T0, evidence=DOOR)
    await mailboxes.settle("m1", "coder", S.SEEN, now=T0, evidence=SEEN_BY_HOOK)
    ended = Evidence("observe", "the agent ended without answering")
    await mailboxes.settle("m1", "coder", S.FAILED, now=T0, evidence=ended)
    assert await history(mailboxes) == [S.ACCEPTED, S.QUEUED, S.INJECTED, S.SEEN, S.FAILED]


@pytest.mark.requirement("O-28")
async def test_a_message_is_answered_once(mailboxes: Mailboxes) -> None:
    await mailboxes.append(message(1), now=T0)
    for number in (2, 3):
        reply = message(
            number, sender="coder", to="boss", type=MessageType.TASK_COMPLETE, reply_to="m1"
        )
        await mailboxes.append(reply, now=T0)
    assert await history(mailboxes) == [S.ACCEPTED, S.QUEUED, S.SEEN, S.ANSWERED]
    held = await mailboxes.lease("coder", now=T0)
    assert held == (), "what was answered waits no more"
    assert len(await mailboxes.waiting("boss")) == 2, "but both replies arrive"


async def test_a_reply_that_is_faster_than_the_evidence_disturbs_nobody(
    mailboxes: Mailboxes,
) -> None:
    await mailboxes.append(message(1), now=T0)
    held = await lease(mailboxes)
    await mailboxes.record(held, S.INJECTED, now=T0, evidence=DOOR)
    reply = message(2, sender="coder", to="boss", type=MessageType.PONG, reply_to="m1")
    await mailboxes.append(reply, now=T0)
    acknowledged = await mailboxes.acknowledge(held, now=T0, evidence=SEEN_BY_HOOK)
    assert acknowledged.state is S.ANSWERED


@pytest.mark.parametrize(
    ("sender", "to", "kind"),
    [
        ("other", "boss", MessageType.TASK_COMPLETE),
        ("coder", "other", MessageType.TASK_COMPLETE),
        ("coder", "boss", MessageType.PROGRESS),
    ],
    ids=["somebody else", "to somebody else", "progress"],
)
async def test_only_the_recipients_answer_to_the_sender_is_an_answer(
    mailboxes: Mailboxes, sender: str, to: str, kind: MessageType
) -> None:
    await mailboxes.append(message(1), now=T0)
    await mailboxes.append(message(2, sender=sender, to=to, type=kind, reply_to="m1"), now=T0)
    assert await state(mailboxes) is S.QUEUED


async def test_a_reply_that_says_it_failed_makes_it_failed(mailboxes: Mailboxes) -> None:
    await mailboxes.append(message(1), now=T0)
    held = await lease(mailboxes)
    await mailboxes.acknowledge(held, now=T0, evidence=SEEN_BY_HOOK)
    reply = message(2, sender="coder", to="boss", type=MessageType.TASK_FAILED, reply_to="m1")
    await mailboxes.append(reply, now=T0)
    assert await state(mailboxes) is S.FAILED


# ----------------------------------------------------------------------------------------- expiry


@pytest.mark.requirement("O-30")
async def test_what_is_older_than_its_ttl_is_not_delivered_and_that_is_told(
    mailboxes: Mailboxes,
) -> None:
    await mailboxes.append(message(1, ttl=5), now=T0)
    await mailboxes.append(message(2, ttl=5, to="other"), now=T0)
    await mailboxes.append(message(3), now=T0)
    assert await mailboxes.expire(now=T0 + 4.9 * SECOND) == ()
    got = await lease(mailboxes, after=5)
    assert got.message.id == "m3"
    expired = await mailboxes.expire(now=T0 + 5 * SECOND)
    assert [each.message.id for each in expired] == ["m1", "m2"]
    assert await mailboxes.expire(now=T0 + 5 * SECOND) == ()
    steps = await mailboxes.receipts("m2")
    assert steps[-1].evidence == Evidence("mailbox", "it was not delivered within 5 s")
    assert [each.message.id for each in await mailboxes.dead_letters()] == ["m1", "m2"]
    assert [each.message.id for each in await mailboxes.dead_letters("other")] == ["m2"]


@pytest.mark.requirement("O-30")
async def test_a_ttl_of_nothing_expires_at_once(mailboxes: Mailboxes) -> None:
    appended = await mailboxes.append(message(ttl=0), now=T0)
    assert [each.state for each in appended.deliveries] == [S.EXPIRED]
    assert await history(mailboxes) == [S.ACCEPTED, S.QUEUED, S.EXPIRED]


@pytest.mark.requirement("talk:expire")
async def test_the_word_that_it_expired_is_kept_with_its_end(mailboxes: Mailboxes) -> None:
    await mailboxes.append(message(1, ttl=5), now=T0)
    for number in range(10, 10 + LIMIT):  # which is no reason not to be told
        await mailboxes.append(message(number, to="boss", sender="coder"), now=T0)

    def tell(delivery: Delivery) -> Message:
        return message(2, sender=delivery.recipient, to="boss", reply_to=delivery.message.id)

    await mailboxes.expire(now=T0 + 5 * SECOND, tell=tell)
    assert [each.id for each in await mailboxes.thread("m1")] == ["m1", "m2"]
    assert await state(mailboxes, "m2") is S.QUEUED
    assert await state(mailboxes, "m1") is S.EXPIRED


@pytest.mark.requirement("O-30", "talk:clock")
async def test_a_ttl_is_not_prolonged_by_a_clock_that_is_set_back(mailboxes: Mailboxes) -> None:
    await mailboxes.append(message(ttl=5), now=T0)
    earlier = T0 - 3600 * SECOND
    assert await mailboxes.expire(now=earlier) == ()
    assert await mailboxes.expire(now=earlier + 4 * SECOND) == ()
    assert len(await mailboxes.expire(now=earlier + 5 * SECOND)) == 1


async def test_who_is_delivering_is_not_disturbed_by_a_ttl(mailboxes: Mailboxes) -> None:
    await mailboxes.append(message(ttl=5), now=T0)
    held = await lease(mailboxes, after=4)
    assert await mailboxes.expire(now=T0 + 6 * SECOND) == ()
    await mailboxes.acknowledge(held, now=T0 + 7 * SECOND, evidence=SEEN_BY_HOOK)
    assert await state(mailboxes) is S.SEEN


async def test_a_dead_letter_can_be_sent_again(mailboxes: Mailboxes) -> None:
    await mailboxes.append(message(ttl=5), now=T0)
    held = await lease(mailboxes)
    await mailboxes.release(held, now=T0, evidence=DOOR)
    await mailboxes.expire(now=T0 + 9 * SECOND)
    person = Evidence("user", "sent again")
    again = await mailboxes.requeue("m1", "coder", now=T0 + 10 * SECOND, evidence=person)
    assert again.state is S.QUEUED
    assert again.expires_at == T0 + 15 * SECOND
    assert await mailboxes.dead_letters() == ()
    held = await lease(mailboxes, after=11)
    assert held.attempt == 2
    released = await mailboxes.release(held, now=T0 + 11 * SECOND, evidence=DOOR)
    assert released.available_at == T0 + 12 * SECOND, "the pauses begin anew"
    steps = await mailboxes.receipts("m1")
    assert [each.state for each in steps] == [
        *(S.ACCEPTED, S.QUEUED, S.QUEUED, S.EXPIRED, S.QUEUED, S.QUEUED)
    ]
    assert steps[4].evidence == person


async def test_only_a_dead_letter_can_be_sent_again(mailboxes: Mailboxes) -> None:
    await mailboxes.append(message(), now=T0)
    with pytest.raises(ImpossibleReceipt, match="queued cannot become queued"):
        await mailboxes.requeue("m1", "coder", now=T0, evidence=DOOR)
    with pytest.raises(MessageNotFound):
        await mailboxes.requeue("m9", "coder", now=T0, evidence=DOOR)


async def test_a_full_mailbox_takes_no_dead_letter_back(mailboxes: Mailboxes) -> None:
    await mailboxes.append(message(99, ttl=0), now=T0)
    for number in range(LIMIT):
        await mailboxes.append(message(number), now=T0)
    with pytest.raises(MailboxFull):
        await mailboxes.requeue("m99", "coder", now=T0, evidence=DOOR)
    assert await state(mailboxes, "m99") is S.EXPIRED


# ---------------------------------------------------------------------------- threads and topics


@pytest.mark.requirement("O-28")
async def test_messages_that_answer_each_other_are_one_thread(mailboxes: Mailboxes) -> None:
    await mailboxes.append(message(1), now=T0)
    await mailboxes.append(message(2, sender="coder", to="boss", reply_to="m1"), now=T0)
    await mailboxes.append(message(9), now=T0)
    await mailboxes.append(message(3, reply_to="m2"), now=T0)
    for number in (1, 2, 3):
        thread = await mailboxes.thread(f"m{number}")
        assert [each.id for each in thread] == ["m1", "m2", "m3"]
    assert len(await mailboxes.thread("m1", limit=2)) == 2
    with pytest.raises(MessageNotFound, match="there is no message m7"):
        await mailboxes.thread("m7")


async def test_a_topic_reaches_all_that_listen_but_the_sender(mailboxes: Mailboxes) -> None:
    for agent in ("coder", "tester", "boss", "gone"):
        await mailboxes.subscribe("builds", agent)
        await mailboxes.subscribe("builds", agent)
    await mailboxes.unsubscribe("builds", "gone")
    assert await mailboxes.subscribers("builds") == ("boss", "coder", "tester")
    appended = await mailboxes.append(message(to="#builds"), now=T0)
    assert [each.recipient for each in appended.deliveries] == ["coder", "tester"]
    held = await lease(mailboxes, "tester")
    await mailboxes.acknowledge(held, now=T0, evidence=SEEN_BY_HOOK)
    states = {each.recipient: each.state for each in await mailboxes.deliveries("m1")}
    assert states == {"coder": S.QUEUED, "tester": S.SEEN}


async def test_a_topic_that_nobody_listens_to_takes_nothing(mailboxes: Mailboxes) -> None:
    await mailboxes.subscribe("builds", "boss")
    with pytest.raises(NobodyListens, match="nobody else is subscribed to #builds"):
        await mailboxes.append(message(to="#builds"), now=T0)


async def test_a_broadcast_reaches_everybody_who_is_named_once(mailboxes: Mailboxes) -> None:
    appended = await mailboxes.append(message(to="*"), now=T0, recipients=["b", "a", "b"])
    assert [each.recipient for each in appended.deliveries] == ["b", "a"]


async def test_a_broadcast_reaches_all_or_nobody(mailboxes: Mailboxes) -> None:
    for number in range(LIMIT):
        await mailboxes.append(message(number, to="full"), now=T0)
    with pytest.raises(MailboxFull):
        await mailboxes.append(message(99, to="*"), now=T0, recipients=["free", "full"])
    assert await mailboxes.waiting("free") == ()
    with pytest.raises(MessageNotFound):
        await mailboxes.deliveries("m99")


# ------------------------------------------------------------------------------------- the log


@pytest.mark.requirement("O-120")
async def test_every_message_that_ended_has_one_record(mailboxes: Mailboxes) -> None:
    sent = message(1, type=MessageType.TASK_REQUEST)
    await mailboxes.append(sent, now=T0)
    assert await mailboxes.communication() == ()
    held = await lease(mailboxes)
    await mailboxes.record(held, S.INJECTED, now=T0, evidence=DOOR)
    now = T0 + timedelta(milliseconds=12.5)
    await mailboxes.acknowledge(held, now=now, evidence=SEEN_BY_HOOK)
    await mailboxes.append(message(2, ttl=0), now=T0)
    await mailboxes.log_refusal(message(3), "rate_limited", now=T0)
    reply = message(4, sender="coder", to="boss", type=MessageType.TASK_COMPLETE, reply_to="m1")
    await mailboxes.append(reply, now=now)
    records = await mailboxes.communication()
    assert [entry for _, entry in records] == [
        CommunicationLog(
            timestamp=now,
            from_agent="boss",
            to_agent="coder",
            message_type=MessageType.TASK_REQUEST,
            message_size=message_size(sent),
            duration_ms=12.5,
            success=True,
        ),
        CommunicationLog(
            timestamp=T0,
            from_agent="boss",
            to_agent="coder",
            message_type=MessageType.INFO,
            message_size=message_size(message(2, ttl=0)),
            duration_ms=None,
            success=False,
            error="expired: it was not delivered within 0 s",
        ),
        CommunicationLog(
            timestamp=T0,
            from_agent="boss",
            to_agent="coder",
            message_type=MessageType.INFO,
            message_size=message_size(message(3)),
            duration_ms=None,
            success=False,
            error="rate_limited",
        ),
    ]
    numbers = [number for number, _ in records]
    assert await mailboxes.communication(after=numbers[0], limit=1) == (records[1],)


@pytest.mark.requirement("O-120")
async def test_a_message_that_failed_after_it_was_seen_has_one_record_that_says_so(
    mailboxes: Mailboxes,
) -> None:
    await mailboxes.append(message(), now=T0)
    held = await lease(mailboxes)
    await mailboxes.acknowledge(held, now=T0, evidence=SEEN_BY_HOOK)
    limited = Evidence("screen", "rate limit")
    await mailboxes.settle("m1", "coder", S.FAILED, now=T0, evidence=limited)
    [(_, record)] = await mailboxes.communication()
    assert (record.success, record.error) == (False, "failed: rate limit")


async def test_nothing_takes_less_than_no_time(mailboxes: Mailboxes) -> None:
    await mailboxes.append(message(), now=T0)
    held = await lease(mailboxes)
    await mailboxes.acknowledge(held, now=T0 - SECOND, evidence=SEEN_BY_HOOK)
    [(_, record)] = await mailboxes.communication()
    assert record.duration_ms == 0


# -------------------------------------------------------------------------------------- a restart


async def test_a_restart_frees_what_was_held_and_tells_what_may_have_arrived(
    mailboxes: Mailboxes,
) -> None:
    for number in (1, 2, 3):
        await mailboxes.append(message(number), now=T0)
    held = await mailboxes.lease("coder", now=T0, limit=2)
    await mailboxes.record(held[1], S.INJECTED, now=T0, evidence=DOOR)
    recovered = await mailboxes.recover()
    assert recovered.freed == 1
    assert [each.message.id for each in recovered.in_flight] == ["m2"]
    again = await mailboxes.lease("coder", now=T0, limit=9)
    assert [(each.message.id, each.attempt) for each in again] == [("m1", 2), ("m3", 1)]
    with pytest.raises(LeaseLost):
        await mailboxes.acknowledge(held[0], now=T0, evidence=DOOR)
    seen = Evidence("transcript", "it is there", {"line": 3})
    await mailboxes.acknowledge(recovered.in_flight[0], now=T0, evidence=seen)


@pytest.mark.requirement("talk:crash")
async def test_what_was_being_handed_over_stays_held_and_is_told_after_a_restart(
    mailboxes: Mailboxes,
) -> None:
    await mailboxes.append(message(1), now=T0)
    await mailboxes.append(message(2, to="other"), now=T0)
    [held] = await mailboxes.lease("coder", now=T0, by="pty")
    await lease(mailboxes, "other")
    recovered = await mailboxes.recover()
    assert recovered.freed == 1
    [doubtful] = recovered.in_doubt
    assert (doubtful.message.id, doubtful.attempt, doubtful.leased_by) == ("m1", 1, "pty")
    assert await mailboxes.lease("coder", now=T0) == ()
    assert len(await mailboxes.lease("other", now=T0)) == 1
    await mailboxes.put_back(held, now=T0)
    assert (await mailboxes.recover()).in_doubt == ()


@pytest.mark.requirement("talk:crash")
async def test_an_answer_that_settles_is_kept_with_what_it_settles_or_not_at_all(
    mailboxes: Mailboxes,
) -> None:
    await mailboxes.append(message(1, type=MessageType.TASK_REQUEST), now=T0)
    answer = message(2, sender="coder", to="boss", type=MessageType.TASK_FAILED, reply_to="m1")
    settling = Settling(S.DEAD, Evidence("mailbox", "given up"))
    await mailboxes.append(answer, now=T0, settling=settling)
    assert await history(mailboxes) == [S.ACCEPTED, S.QUEUED, S.DEAD]
    assert (await mailboxes.receipts("m1"))[-1].evidence == settling.evidence
    again = msgspec.structs.replace(answer, id="m3")
    with pytest.raises(ImpossibleReceipt):
        await mailboxes.append(again, now=T0, settling=settling)
    with pytest.raises(MessageNotFound):
        await mailboxes.find("m3")
    nothing = msgspec.structs.replace(answer, id="m3", reply_to="m9")
    with pytest.raises(MessageNotFound):
        await mailboxes.append(nothing, now=T0, settling=settling)


@pytest.mark.requirement("talk:full")
async def test_an_answer_that_is_awaited_has_room_in_a_full_mailbox(mailboxes: Mailboxes) -> None:
    await mailboxes.append(message(1, type=MessageType.TASK_REQUEST), now=T0)
    for number in range(10, 10 + LIMIT):
        await mailboxes.append(message(number, to="boss", sender="coder"), now=T0)
    answer = message(2, sender="coder", to="boss", type=MessageType.TASK_COMPLETE, reply_to="m1")
    await mailboxes.append(answer, now=T0)
    assert await state(mailboxes) is S.ANSWERED
    for unasked in (
        msgspec.structs.replace(answer, id="m3"),  # it has been answered
        msgspec.structs.replace(answer, id="m4", type=MessageType.PROGRESS),
        msgspec.structs.replace(answer, id="m5", from_agent="other"),
    ):
        with pytest.raises(MailboxFull):
            await mailboxes.append(unasked, now=T0)


# ------------------------------------------------------------------------------------ forgetting


@pytest.mark.requirement("mail:retention")
async def test_what_has_ended_is_forgotten_with_all_that_belongs_to_it(
    mailboxes: Mailboxes,
) -> None:
    await mailboxes.append(message(1, type=MessageType.TASK_REQUEST), now=T0)
    answer = message(2, sender="coder", to="boss", type=MessageType.TASK_COMPLETE, reply_to="m1")
    await mailboxes.append(answer, now=T0 + SECOND)
    await mailboxes.append(message(3, to="gone", ttl=0), now=T0)
    await mailboxes.log_refusal(message(4), "no", now=T0)
    later = T0 + 10 * SECOND
    assert await mailboxes.forget(before=later) == 1  # nobody has read the answer yet
    with pytest.raises(MessageNotFound):
        await mailboxes.receipts("m3")
    held = await lease(mailboxes, "boss", after=2)
    await mailboxes.acknowledge(held, now=T0 + 2 * SECOND, evidence=SEEN_BY_HOOK)
    assert await mailboxes.forget(before=T0) == 0
    assert await mailboxes.forget(before=later) == 2
    for gone in ("m1", "m2"):
        with pytest.raises(MessageNotFound):
            await mailboxes.find(gone)
    assert await mailboxes.communication() == ()
    assert await mailboxes.tasks(TaskQuery()) == ()
    again = await mailboxes.append(message(1), now=later)
    assert again.is_new
    assert again.deliveries[0].number > 3


@pytest.mark.requirement("mail:retention")
@pytest.mark.parametrize(
    ("kind", "steps", "is_open"),
    [
        (MessageType.TASK_REQUEST, (), True),
        (MessageType.TASK_REQUEST, (S.INJECTED,), True),
        (MessageType.TASK_REQUEST, (S.INJECTED, S.SUBMITTED), True),
        (MessageType.TASK_REQUEST, (S.SEEN,), True),
        (MessageType.TASK_REQUEST, (S.SEEN, S.FAILED), False),
        (MessageType.TASK_REQUEST, (S.DEAD,), False),
        (MessageType.INFO, (), True),
        (MessageType.INFO, (S.SEEN,), False),
        (MessageType.INFO, (S.INJECTED, S.SUBMITTED), False),
    ],
    ids=lambda each: "-".join(map(str, each)) if isinstance(each, tuple) else str(each),
)
async def test_what_is_open_is_never_forgotten(
    mailboxes: Mailboxes, kind: MessageType, steps: tuple[S, ...], is_open: bool
) -> None:
    await mailboxes.append(message(type=kind), now=T0)
    for step in steps:
        await mailboxes.settle("m1", "coder", step, now=T0, evidence=DOOR)
    assert await mailboxes.forget(before=T0 + SECOND) == (not is_open)


@pytest.mark.requirement("mail:retention")
async def test_no_more_is_forgotten_at_once_than_is_said(mailboxes: Mailboxes) -> None:
    for number in range(5):
        await mailboxes.append(message(number, ttl=0), now=T0)
    counts = [await mailboxes.forget(before=T0 + SECOND, limit=2) for _ in range(4)]
    assert counts == [2, 2, 1, 0]


async def test_a_message_that_nobody_knows_is_told(mailboxes: Mailboxes) -> None:
    for asked in (mailboxes.deliveries("m1"), mailboxes.receipts("m1")):
        with pytest.raises(MessageNotFound, match="there is no message m1"):
            await asked


@pytest.mark.requirement("mail:tasks")
async def test_what_asks_for_an_answer_is_found_the_newest_first(mailboxes: Mailboxes) -> None:
    for number, (sender, recipient, kind) in enumerate(
        [
            ("boss", "coder", MessageType.TASK_REQUEST),
            ("boss", "coder", MessageType.INFO),
            ("user", "coder", MessageType.TASK_REQUEST),
            ("boss", "writer", MessageType.TASK_REQUEST),
        ]
    ):
        sent = message(number, sender=sender, to=recipient, type=kind)
        await mailboxes.append(sent, now=T0 + number * SECOND)

    async def found(**wanted: object) -> list[str]:
        query = msgspec.convert(wanted, TaskQuery)
        return [each.message.id for each in await mailboxes.tasks(query)]

    assert await found() == ["m3", "m2", "m0"]
    assert await found(recipient="coder") == ["m2", "m0"]
    assert await found(sender="boss") == ["m3", "m0"]
    assert await found(thread_id="m2") == ["m2"]
    assert await found(before=T0 + 3 * SECOND) == ["m2", "m0"]
    assert await found(states=[S.SEEN]) == []
    assert [each.message.id for each in await mailboxes.tasks(TaskQuery(), limit=1)] == ["m3"]
    await mailboxes.settle("m0", "coder", S.SEEN, now=T0, evidence=SEEN_BY_HOOK)
    assert await found(states=[S.SEEN]) == ["m0"]


@pytest.mark.requirement("O-90")
async def test_what_was_not_tried_is_put_back_as_often_as_need_be(mailboxes: Mailboxes) -> None:
    await mailboxes.append(message(1), now=T0)
    for _ in range(20):
        held = await lease(mailboxes)
        await mailboxes.put_back(held, now=T0)
    assert await history(mailboxes) == [S.ACCEPTED, S.QUEUED]
    held = await lease(mailboxes)
    with pytest.raises(LeaseLost):
        await mailboxes.put_back(msgspec.structs.replace(held, attempt=1), now=T0)
    await mailboxes.release(held, now=T0, evidence=DOOR)
    assert await mailboxes.lease("coder", now=T0 + SECOND / 2) == ()  # the first pause
    held = await lease(mailboxes, after=1)
    await mailboxes.record(held, S.INJECTED, now=T0, evidence=DOOR)
    with pytest.raises(ImpossibleReceipt):
        await mailboxes.put_back(held, now=T0)


async def test_a_message_is_found_by_the_beginning_of_its_id(mailboxes: Mailboxes) -> None:
    for number in (11, 12, 2):
        await mailboxes.append(message(number), now=T0)
    assert (await mailboxes.find("m2")).id == "m2"
    assert (await mailboxes.find("m12")).id == "m12"
    await mailboxes.append(message(123), now=T0)
    assert (await mailboxes.find("m12")).id == "m12"  # though another begins so
    for unclear in ("m1", "x", ""):
        with pytest.raises(MessageNotFound):
            await mailboxes.find(unclear)


async def test_it_tells_how_many_wait_for_whom_and_who_listens_to_what(
    mailboxes: Mailboxes,
) -> None:
    for number in (1, 2, 3):
        await mailboxes.append(message(number), now=T0)
    await mailboxes.append(message(4, to="writer"), now=T0)
    await lease(mailboxes)
    await mailboxes.settle("m2", "coder", S.SEEN, now=T0, evidence=SEEN_BY_HOOK)
    assert await mailboxes.backlog() == {"coder": 2, "writer": 1}
    assert await mailboxes.backlog("coder") == {"coder": 2}
    assert await mailboxes.backlog("nobody") == {}
    for topic, agent in (("news", "b"), ("news", "a"), ("games", "c"), ("past", "c")):
        await mailboxes.subscribe(topic, agent)
    await mailboxes.unsubscribe("past", "c")
    assert await mailboxes.topics() == {"games": ("c",), "news": ("a", "b")}
