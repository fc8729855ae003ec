"""What became of a message is told truthfully, and nothing less than seen is called delivered."""

from datetime import UTC, datetime
from enum import StrEnum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.model.deliveries import Delivery, ReceiptState
from bullpen.model.mailing import RECEIPTS, TASKS, delivery_words, plain_text
from bullpen.model.messages import Message, Priority
from bullpen.model.tasks import TaskState

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def delivery(state: ReceiptState, recipient: str = "codex") -> Delivery:
    message = Message(
        id="m-1", from_agent="user", to_agent=recipient, content="review this", timestamp=NOW
    )
    return Delivery(
        number=1,
        message=message,
        recipient=recipient,
        state=state,
        accepted_at=NOW,
        available_at=NOW,
    )


@pytest.mark.parametrize(
    ("words", "table"),
    [(ReceiptState, RECEIPTS), (TaskState, TASKS)],
    ids=["receipts", "tasks"],
)
def test_every_state_has_its_symbol(words: type[StrEnum], table: dict[StrEnum, object]) -> None:
    assert list(table) == list(words)


@pytest.mark.parametrize(
    ("state", "facts", "words"),
    [
        (ReceiptState.ACCEPTED, {}, "accepted m-1 for codex"),
        (ReceiptState.QUEUED, {"position": 1}, "accepted m-1 for codex"),
        (
            ReceiptState.QUEUED,
            {"position": 1, "holding": "it is working"},
            "accepted m-1 for codex; it waits: it is working",
        ),
        (
            ReceiptState.QUEUED,
            {"position": 2, "holding": "it is working"},
            "accepted m-1 for codex; 1 waits before it: it is working",
        ),
        (ReceiptState.QUEUED, {"position": 3}, "accepted m-1 for codex; 2 wait before it"),
        (ReceiptState.INJECTED, {}, "injected m-1 for codex; not seen yet"),
        (ReceiptState.SUBMITTED, {}, "submitted m-1 for codex; not seen yet"),
        (ReceiptState.SEEN, {"holding": "it has the message m-1"}, "seen m-1 by codex"),
        (ReceiptState.ANSWERED, {}, "answered m-1 by codex"),
        (
            ReceiptState.FAILED,
            {"reason": "the agent ended without answering"},
            "failed m-1 for codex: the agent ended without answering",
        ),
        (ReceiptState.EXPIRED, {}, "expired m-1 for codex"),
        (
            ReceiptState.DEAD,
            {"reason": "it did not arrive"},
            "dead m-1 for codex: it did not arrive",
        ),
    ],
)
def test_a_receipt_is_said_in_words(
    state: ReceiptState, facts: dict[str, object], words: str
) -> None:
    assert delivery_words(delivery(state), **facts) == words  # type: ignore[arg-type]


@pytest.mark.parametrize("state", ReceiptState)
def test_no_words_say_more_than_is_known(state: ReceiptState) -> None:
    words = delivery_words(delivery(state), position=1, holding="it waits", reason="because")
    assert "delivered" not in words
    assert (f"{state} m-1 by codex" in words) is state.is_delivered


def test_what_others_wrote_does_nothing_to_a_terminal() -> None:
    hostile = "\x1b[2J"
    words = delivery_words(
        delivery(ReceiptState.DEAD, f"x{hostile}"), holding=hostile, reason=f"a{hostile}\nb"
    )
    assert words.isprintable()


@given(st.text())
def test_a_text_of_several_lines_stays_that_and_is_harmless(text: str) -> None:
    shown = plain_text(text)
    assert shown.count("\n") == text.count("\n")
    assert all(line.isprintable() for line in shown.split("\n"))


def test_tabs_stay_columns() -> None:
    assert plain_text("a\tb\n\tc") == "a       b\n        c"


@pytest.mark.requirement("O-25")
@pytest.mark.parametrize(
    ("number", "priority"),
    [(1, "low"), (2, "low"), (3, "normal"), (4, "high"), (5, "urgent")],
)
def test_a_number_from_1_to_5_is_a_priority(number: int, priority: str) -> None:
    assert Priority.of_rank(number) is Priority(priority)


@pytest.mark.parametrize("number", [-1, 0, 6])
def test_no_other_number_is(number: int) -> None:
    with pytest.raises(ValueError, match="is no priority"):
        Priority.of_rank(number)
