"""Receipts do not lie: they move along one table, and nothing less than seen is delivered."""

import re
from itertools import pairwise, product
from pathlib import Path

import pytest

from bullpen.mail.errors import ImpossibleReceipt
from bullpen.mail.receipts import (
    DEAD_LETTERS,
    IN_FLIGHT,
    TRANSITIONS,
    diagram,
    outcome_of_reply,
    steps,
)
from bullpen.model.deliveries import ReceiptState
from bullpen.model.messages import MessageType

PAGE = Path(__file__).parents[2] / "docs/concepts/receipts.md"
S = ReceiptState


@pytest.mark.requirement("mail:receipts")
def test_nothing_less_than_seen_is_delivered() -> None:
    assert [state for state in S if state.is_delivered] == [S.SEEN, S.ANSWERED]


@pytest.mark.requirement("mail:receipts")
@pytest.mark.parametrize(("state", "target"), list(product(S, S)), ids=str)
def test_a_receipt_only_moves_along_the_arrows(state: S, target: S) -> None:
    implied = (target is S.ANSWERED and S.SEEN in TRANSITIONS[state]) or (
        target is S.SUBMITTED and S.INJECTED in TRANSITIONS[state]
    )
    if target in TRANSITIONS[state] or implied:
        path = (state, *steps(state, target))
        assert path[-1] is target
        assert all(after in TRANSITIONS[before] for before, after in pairwise(path))
        return
    with pytest.raises(ImpossibleReceipt, match=f"is {state} cannot become {target}"):
        steps(state, target)


def test_an_answer_proves_that_it_was_seen() -> None:
    assert steps(S.SUBMITTED, S.ANSWERED) == (S.SEEN, S.ANSWERED)
    assert steps(S.QUEUED, S.ANSWERED) == (S.SEEN, S.ANSWERED)
    assert steps(S.SEEN, S.ANSWERED) == (S.ANSWERED,)


def test_what_was_answered_is_over() -> None:
    assert TRANSITIONS[S.ANSWERED] == ()


def test_what_was_seen_is_never_queued_again() -> None:
    assert S.QUEUED not in TRANSITIONS[S.SEEN]
    assert not {S.SEEN, S.ANSWERED, S.FAILED} & {*DEAD_LETTERS, *IN_FLIGHT}


def test_every_state_can_be_reached() -> None:
    reached = {S.ACCEPTED}
    for _ in S:
        reached |= {after for state in reached for after in TRANSITIONS[state]}
    assert reached == set(S)


@pytest.mark.parametrize(
    ("kind", "outcome"),
    [
        (MessageType.TASK_COMPLETE, S.ANSWERED),
        (MessageType.TASK_RESPONSE, S.ANSWERED),
        (MessageType.INFO, S.ANSWERED),
        (MessageType.PONG, S.ANSWERED),
        (MessageType.TASK_FAILED, S.FAILED),
        (MessageType.ERROR, S.FAILED),
        (MessageType.PROGRESS, None),
        (MessageType.TASK_REQUEST, None),
        (MessageType.PING, None),
        (MessageType.SHUTDOWN, None),
    ],
)
def test_a_reply_settles_what_it_answers(kind: MessageType, outcome: S | None) -> None:
    assert outcome_of_reply(kind) is outcome


@pytest.mark.requirement("mail:receipts")
def test_the_picture_in_the_documents_is_the_table() -> None:
    shown = re.search(r"```mermaid\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert shown is not None
    assert shown[1] == diagram()


def test_every_state_is_explained_in_the_documents() -> None:
    text = PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| [^|]* \|$", text, re.MULTILINE)
    assert rows == [state.value for state in S]
