"""What an agent says before its answer is whole."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.mail import sayings
from bullpen.mail.sayings import Piece, Sayings, joined
from bullpen.model.turns import Utterance


def said(text: str, *, is_new: bool = False) -> Utterance:
    return Utterance(text=text, turn_id="turn", is_new=is_new)


@pytest.mark.requirement("door:pieces")
def test_what_is_said_stands_behind_what_was_said_before_and_a_beginning_at_the_beginning() -> None:
    agents = Sayings()
    assert agents.hear("a", "m1", said("behind a gap")) is None
    assert agents.hear("a", "m1", said("I shall ", is_new=True)) == Piece(1, 0, "I shall ")
    assert agents.hear("a", "m1", said("look")) == Piece(1, 8, "look")
    assert agents.so_far("m1") == Piece(1, 0, "I shall look")
    assert agents.hear("a", "m1", said("fine", is_new=True)) == Piece(2, 0, "fine")
    assert agents.so_far("m1") == Piece(2, 0, "fine")


@pytest.mark.requirement("door:pieces")
def test_what_was_said_of_one_message_is_nothing_of_the_next() -> None:
    agents = Sayings()
    agents.hear("a", "m1", said("one", is_new=True))
    assert agents.hear("a", "m2", said(" and a half")) is None
    assert (agents.so_far("m1"), agents.so_far("m2")) == (None, None)
    assert agents.hear("b", "m3", Utterance(text="who has no turns")) == Piece(
        1, 0, "who has no turns"
    )
    agents.forget("b")
    assert agents.so_far("m3") is None


@pytest.mark.requirement("door:pieces")
def test_what_is_longer_than_any_answer_is_told_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sayings, "MOST_CHARACTERS", 10)
    agents = Sayings()
    assert agents.hear("a", "m1", said("12345678", is_new=True)) is not None
    assert agents.hear("a", "m1", said("901")) is None
    assert agents.hear("a", "m1", said("2")) is None  # it would stand behind a gap
    assert agents.hear("a", "m1", said("short", is_new=True)) == Piece(2, 0, "short")


@given(st.lists(st.text(max_size=5), min_size=1), st.data())
def test_pieces_in_order_make_the_whole_however_they_overlap(
    texts: list[str], data: st.DataObject
) -> None:
    whole, found = "".join(texts), None
    at = 0
    for text in texts:
        back = data.draw(st.integers(0, at))
        found = joined(found, Piece(1, at - back, whole[at - back : at + len(text)]))
        at += len(text)
    assert found is not None
    assert found.text == whole[found.at :]
    assert joined(found, Piece(2, 0, "anew")) == Piece(2, 0, "anew")
