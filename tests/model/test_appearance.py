"""What a person sees is the same in every face, and never told by colour alone."""

from enum import StrEnum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.model.alerts import AlertLevel
from bullpen.model.appearance import (
    ACTIVITIES,
    ALERTS,
    EVIDENCE,
    HEALTH,
    age_words,
    cell_width,
    fit,
    one_line,
    status_line,
)
from bullpen.model.states import Activity, EvidenceMode, HealthStatus
from bullpen.model.views import Summary


@pytest.mark.requirement("TR-23")
@pytest.mark.parametrize(
    ("words", "table"),
    [
        (Activity, ACTIVITIES),
        (HealthStatus, HEALTH),
        (AlertLevel, ALERTS),
        (EvidenceMode, EVIDENCE),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_every_word_has_its_symbol(words: type[StrEnum], table: dict[StrEnum, object]) -> None:
    assert list(table) == list(words)


def test_states_that_want_something_else_of_a_person_look_different() -> None:
    symbols = {word: each.symbol for word, each in ACTIVITIES.items()}
    del symbols[Activity.WAITING_INPUT]  # which wants the same as an approval: an answer
    assert len(set(symbols.values())) == len(symbols)
    assert len(set(EVIDENCE.values())) == len(EVIDENCE)


@pytest.mark.requirement("CLI-6", "TR-60")
@pytest.mark.parametrize(
    ("activities", "line"),
    [
        ({}, "A:4 U:13"),
        ({"running": 4}, "A:4 U:13"),
        ({"running": 1, "waiting_input": 1, "waiting_approval": 2}, "A:4 U:13 ◆3"),
        ({"of a later version": 1}, "A:4 U:13"),
    ],
)
def test_the_line_of_a_status_bar_counts_those_who_wait(
    activities: dict[str, int], line: str
) -> None:
    assert status_line(Summary(agents=4, unmanaged=13, activities=activities)) == line


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        *[(-3, "0s"), (0.9, "0s"), (59.9, "59s"), (60, "1m"), (3599, "59m")],
        *[(3600, "1h"), (86_399, "23h"), (86_400, "1d"), (1e7, "115d")],
    ],
)
def test_an_age_is_told_in_its_largest_unit(seconds: float, words: str) -> None:
    assert age_words(seconds) == words


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ✳ 日本", "plain ✳ 日本"),
        ("a\tb\r\nc", "a b  c"),
        ("\x1b[31mred\x07", "\ufffd[31mred\ufffd"),
        ("\u202eneddih\u200b", "neddih"),
        ("\udcff", "\ufffd"),
    ],
)
def test_a_text_of_a_stranger_stays_on_its_line(text: str, shown: str) -> None:
    assert one_line(text) == shown


@given(text=st.text())
def test_no_text_whatever_can_move_the_cursor(text: str) -> None:
    shown = one_line(text)
    assert shown.isprintable()
    assert one_line(shown) == shown


@given(
    text=st.text(alphabet=st.characters(categories=["L", "N", "P", "Mn", "So", "Zs"])), width=...
)
def test_a_fitted_text_fills_its_cells_exactly(text: str, width: int) -> None:
    width = abs(width) % 40
    assert cell_width(fit(text, width)) == width


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [
        ("abc", 5, "abc  "),
        ("abcdef", 4, "abc…"),
        ("日本語", 6, "日本語"),
        ("日本語", 5, "日本…"),
        ("日本語", 4, "日… "),
        ("abc", 0, ""),
        ("e\u0301e\u0301", 2, "e\u0301e\u0301"),
    ],
)
def test_a_text_is_padded_or_cut_by_its_cells(text: str, width: int, shown: str) -> None:
    assert fit(text, width) == shown
