"""The peer remembers who waits, for as long as they wait and not a moment longer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from bullpen.jsonrpc.peer import BatchReply, Peer
from bullpen.jsonrpc.wire import Id, Response


@pytest.mark.requirement("T-02", "T-14")
def test_ids_are_integers_that_are_never_used_again() -> None:
    peer: Peer[str] = Peer()
    first = peer.issue("first")
    assert peer.settle(Response(first, None)) == "first"
    second = peer.issue("second")
    assert peer.abandon(second) == "second"
    third = peer.issue("third")
    assert len({first, second, third}) == 3
    assert {type(id) for id in (first, second, third)} == {int}
    assert peer.issued == 3


@pytest.mark.requirement("T-02", "contract:I1", "L-37")
@pytest.mark.parametrize("other", ["1", "", None, -1, 2])
def test_a_response_settles_only_the_request_with_its_own_id_and_type_of_id(other: Id) -> None:
    peer: Peer[str] = Peer()
    assert peer.issue("one") == 1
    assert peer.settle(Response(other, None)) is None
    assert peer.unknown_responses == 1
    assert peer.settle(Response(1, None)) == "one"


@pytest.mark.requirement("contract:I2")
def test_late_duplicate_and_invented_responses_are_counted() -> None:
    peer: Peer[str] = Peer()
    answered, abandoned = peer.issue("answered"), peer.issue("abandoned")
    peer.settle(Response(answered, None))
    peer.abandon(abandoned)
    for id_ in (answered, abandoned, 17):
        assert peer.settle(Response(id_, None)) is None
    assert peer.unknown_responses == 3
    assert len(peer) == 0


def test_abandoning_all_returns_the_waiters_in_the_order_they_came() -> None:
    peer: Peer[str] = Peer()
    ids = [peer.issue(name) for name in "abcd"]
    peer.abandon(ids[1])
    assert [waiter for _, waiter in peer.oldest()] == ["a", "c", "d"]
    assert peer.abandon_all() == ["a", "c", "d"]
    assert len(peer) == 0
    assert peer.abandon_all() == []


class PeerMachine(RuleBasedStateMachine):
    """Whatever happens in whatever order, each waiter comes out exactly once, by its own id."""

    def __init__(self) -> None:
        super().__init__()
        self.peer: Peer[str] = Peer()
        self.waiting: dict[int, str] = {}
        self.gone: list[int] = []
        self.unknown = 0

    @rule()
    def issue(self) -> None:
        waiter = f"waiter {self.peer.issued}"
        id_ = self.peer.issue(waiter)
        assert id_ not in self.waiting
        assert id_ not in self.gone
        self.waiting[id_] = waiter

    @precondition(lambda self: self.waiting)
    @rule(data=st.data(), answered=st.booleans())
    def end_one(self, data: st.DataObject, answered: bool) -> None:
        id_ = data.draw(st.sampled_from(sorted(self.waiting)))
        waiter = self.peer.settle(Response(id_, None)) if answered else self.peer.abandon(id_)
        assert waiter == self.waiting.pop(id_)
        self.gone.append(id_)

    @precondition(lambda self: self.gone)
    @rule(data=st.data())
    def answer_late(self, data: st.DataObject) -> None:
        id_ = data.draw(st.sampled_from(self.gone))
        assert self.peer.settle(Response(id_, None)) is None
        self.unknown += 1

    @invariant()
    def it_remembers_exactly_those_who_wait(self) -> None:
        assert dict(self.peer.oldest()) == self.waiting
        assert len(self.peer) == len(self.waiting)
        assert self.peer.unknown_responses == self.unknown


@pytest.mark.requirement("T-03", "T-12", "T-14")
def test_a_waiter_comes_out_once_and_by_its_own_id_whatever_happens_before() -> None:
    run_state_machine_as_test(PeerMachine)


@given(order=st.permutations(range(5)))
def test_a_batch_reply_is_complete_with_its_last_response_and_in_the_order_of_the_slots(
    order: list[int],
) -> None:
    reply = BatchReply(5)
    for slot in order[:-1]:
        assert reply.fill(slot, Response(slot, None)) == ()
    complete = reply.fill(order[-1], Response(order[-1], None))
    assert complete == tuple(Response(slot, None) for slot in range(5))


def test_one_id_used_twice_in_a_batch_has_two_slots() -> None:
    reply = BatchReply(2)
    assert reply.fill(1, Response(7, "second")) == ()
    assert reply.fill(0, Response(7, "first")) == (Response(7, "first"), Response(7, "second"))


def test_a_request_of_a_batch_that_will_have_no_response_does_not_hold_up_the_others() -> None:
    reply = BatchReply(3)
    assert reply.fill(2, Response(2, None)) == ()
    assert reply.fill(0, None) == ()
    assert reply.fill(1, Response(1, None)) == (Response(1, None), Response(2, None))
    assert BatchReply(1).fill(0, None) == ()
