"""Who may send what to whom; each refusal has a reason of its own."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.mail.policy import (
    USER,
    Authority,
    Bucket,
    Member,
    Policy,
    RateLimit,
    Refusal,
    continue_chain,
    rate_refusal,
    take,
)
from bullpen.model.messages import MAX_MESSAGE_BYTES, MAX_THINKING_BYTES, Message, message_size
from bullpen.model.reasons import Reason
from tests.mail.samples import SECOND, T0, message

TEAM = Policy(
    boss="grand_boss",
    members={
        "specialist": Member(peers=frozenset({"manager"})),
        "manager": Member(peers=frozenset({"grand_boss", "specialist"})),
    },
)


def reason(refusal: Refusal | None) -> Reason | None:
    return None if refusal is None else refusal.reason


def send(policy: Policy, sender: str, to: str) -> Reason | None:
    return reason(policy.check(message(sender=sender, to=to), to))


@pytest.mark.requirement("O-103")
def test_a_list_of_peers_holds_in_both_directions() -> None:
    assert send(TEAM, "specialist", "manager") is None
    assert send(TEAM, "manager", "specialist") is None
    assert send(TEAM, "specialist", "other") is Reason.RECIPIENT_NOT_ALLOWED
    assert send(TEAM, "other", "specialist") is Reason.RECIPIENT_NOT_ALLOWED


def test_who_has_no_list_writes_to_everybody_without_one() -> None:
    assert send(TEAM, "other", "another") is None
    assert send(Policy(), "a", "b") is None


@pytest.mark.requirement("O-104")
def test_only_the_boss_speaks_with_the_user() -> None:
    assert send(TEAM, "grand_boss", USER) is None
    assert send(TEAM, USER, "grand_boss") is None
    assert send(TEAM, "specialist", USER) is Reason.BOSS_ONLY
    assert send(TEAM, USER, "specialist") is Reason.BOSS_ONLY


def test_without_a_boss_no_list_comes_between_a_person_and_an_agent() -> None:
    policy = Policy(members={"a": Member(peers=frozenset())})
    assert send(policy, USER, "a") is None
    assert send(policy, "a", USER) is None


def test_a_person_counts_for_more_than_a_boss_and_a_boss_for_more_than_a_peer() -> None:
    assert TEAM.authority(USER) > TEAM.authority("grand_boss") > TEAM.authority("manager")


def test_no_agent_becomes_a_person_by_what_is_set() -> None:
    policy = Policy(members={"a": Member(authority=Authority.HUMAN)})
    assert policy.authority("a") is Authority.BOSS


@pytest.mark.parametrize("authority", Authority)
def test_no_agent_answers_an_approval(authority: Authority) -> None:
    policy = Policy(members={"manager": Member(authority=authority)})
    assert reason(policy.may_approve("manager")) is Reason.APPROVAL_FORBIDDEN
    assert reason(TEAM.may_approve("grand_boss")) is Reason.APPROVAL_FORBIDDEN
    assert policy.may_approve(USER) is None


# ------------------------------------------------------------------------------------------ size


def padded(size: int) -> Message:
    empty = message(content="")
    return message(content="x" * (size - message_size(empty)))


@pytest.mark.requirement("O-102", "O-110")
def test_a_megabyte_is_let_through_and_not_a_byte_more() -> None:
    assert MAX_MESSAGE_BYTES == 1_048_576
    assert Policy().check(padded(MAX_MESSAGE_BYTES), "coder") is None
    refusal = Policy().check(padded(MAX_MESSAGE_BYTES + 1), "coder")
    assert refusal is not None
    assert refusal.reason is Reason.MESSAGE_TOO_LARGE
    assert refusal.data == {"size": 1_048_577, "limit": 1_048_576}


@pytest.mark.requirement("O-111")
@pytest.mark.parametrize("letter", ["x", "é", "思"])
def test_thinking_is_limited_in_bytes_and_not_in_letters(letter: str) -> None:
    width = len(letter.encode())
    fits = letter * (MAX_THINKING_BYTES // width) + "x" * (MAX_THINKING_BYTES % width)
    assert len(fits.encode()) == 102_400
    assert Policy().check(message(thinking=fits), "coder") is None
    refusal = Policy().check(message(thinking=fits + "x"), "coder")
    assert reason(refusal) is Reason.THINKING_TOO_LARGE


@pytest.mark.parametrize(
    "sent", [message(content="\ud800"), message(thinking="\ud800")], ids=["content", "thinking"]
)
def test_what_is_no_text_is_refused(sent: Message) -> None:
    assert reason(Policy().check(sent, "coder")) is Reason.INVALID_MESSAGE


# ----------------------------------------------------------------------------------------- loops


def pass_on(cause: Message, to: str, *, reply: bool = False) -> Message:
    """A message that the recipient of another one sends because of it."""
    new = message(sender=cause.to_agent, to=to, reply_to=cause.id if reply else None)
    return continue_chain(new, cause)


def test_what_comes_back_around_is_cut() -> None:
    first = message(sender="a", to="b")
    second = pass_on(first, "c")
    third = pass_on(second, "a")
    assert (third.origin, third.hops) == ("a", 2)
    assert Policy().check(second, "c") is None
    assert reason(Policy().check(third, "a")) is Reason.MESSAGE_LOOP


def test_answers_come_back_along_the_way_they_were_asked() -> None:
    first = message(sender="a", to="b")
    second = pass_on(first, "c")
    third = pass_on(second, "b", reply=True)
    last = pass_on(third, "a")
    assert Policy().check(third, "b", answered=second) is None
    assert Policy().check(last, "a", answered=first) is None


def test_a_reply_to_somebody_else_is_no_excuse() -> None:
    first = message(sender="a", to="b")
    second = pass_on(first, "c")
    third = pass_on(second, "a", reply=True)  # it answers b
    assert reason(Policy().check(third, "a", answered=second)) is Reason.MESSAGE_LOOP


def test_an_echo_is_cut() -> None:
    sent = message(sender="a", to="b")
    count = 0
    while Policy().check(sent, sent.to_agent) is None:
        sent = pass_on(sent, sent.from_agent)
        count += 1
        assert count < 10
    assert count == 3


def test_two_who_answer_each_other_for_ever_are_cut() -> None:
    answered, sent = None, message(sender="a", to="b")
    while (refusal := Policy().check(sent, sent.to_agent, answered=answered)) is None:
        answered, sent = sent, pass_on(sent, sent.from_agent, reply=True)
        assert sent.hops < 100
    assert refusal.reason is Reason.TOO_MANY_HOPS
    assert sent.hops == 17


def test_what_a_person_says_begins_anew() -> None:
    cause = message(sender="a", to=USER, origin="x", hops=9)
    sent = continue_chain(message(sender=USER, to="a", origin="x", hops=4), cause)
    assert (sent.first_sender, sent.hops) == (USER, 0)


def test_a_chain_is_not_what_the_message_claims() -> None:
    sent = continue_chain(message(sender="a", origin="b", hops=3), None)
    assert (sent.origin, sent.hops) == (None, 0)


# ------------------------------------------------------------------------------------------ rate


def test_a_burst_is_let_through_and_then_one_at_a_time() -> None:
    limit = RateLimit(per_second=2, burst=3)
    bucket: Bucket | None = None
    for _ in range(3):
        bucket, wait = take(bucket, limit, T0)
        assert wait == 0
    bucket, wait = take(bucket, limit, T0)
    assert wait == 0.5
    bucket, wait = take(bucket, limit, T0 + SECOND / 2)
    assert wait == 0
    assert take(bucket, limit, T0 + SECOND / 2).wait_seconds == 0.5


@given(st.lists(st.integers(-2000, 2000), max_size=60), st.integers(1, 5), st.integers(1, 5))
def test_however_the_clock_goes_no_more_are_let_through(
    steps: list[int], per_second: int, burst: int
) -> None:
    limit = RateLimit(per_second, burst)
    now, latest, bucket, taken = T0, T0, None, 0
    forward = 0.0
    for step in steps:
        before, now = now, now + timedelta(milliseconds=step)
        forward += max(0.0, (now - before).total_seconds())
        latest = max(latest, now)
        bucket, wait = take(bucket, limit, now)
        taken += wait == 0
    assert taken <= burst + forward * per_second + 1e-6


def test_a_clock_that_is_set_back_takes_nothing_away() -> None:
    bucket, _ = take(None, RateLimit(1, 2), T0)
    assert take(bucket, RateLimit(1, 2), T0 - 3600 * SECOND).wait_seconds == 0


def test_a_rate_of_nothing_lets_nothing_through_after_the_burst() -> None:
    bucket, _ = take(None, RateLimit(0, 1), T0)
    assert take(bucket, RateLimit(0, 1), T0 + 9 * SECOND).wait_seconds == float("inf")


def test_a_refusal_for_sending_too_much_says_when_there_is_room() -> None:
    error = rate_refusal("a", 0.5).error()
    assert error.reason is Reason.RATE_LIMITED
    assert error.data == {"agent_id": "a", "retry_after_seconds": 0.5}
    assert str(error) == "a sends too much; in 0.5 s there is room for the next message"
