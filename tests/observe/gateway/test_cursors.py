"""How far a source was read is committed only once what was read is kept."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.observe.cursors import MOST_MARKS, Checkpoints, Recovery, SourceCursor
from tests.observe.gateway.worlds import NOON


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


@pytest.mark.requirement("A1-1", "IF-G4")
def test_a_cursor_is_committed_when_all_before_it_is() -> None:
    cursor = SourceCursor()
    cursor.fetch("a", 10, 0)
    assert (cursor.fetched, cursor.committed) == ("a", None)
    cursor.commit(9)
    assert cursor.committed is None
    cursor.commit(10)
    assert cursor.committed == "a"


@pytest.mark.requirement("CUR-2")
def test_the_fetched_cursor_is_taken_over_also_when_there_was_nothing() -> None:
    cursor = SourceCursor()
    cursor.fetch("a", 0, 0)
    cursor.fetch("b", 0, 0)
    assert (cursor.fetched, cursor.committed) == ("b", "b")


@given(steps=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3))))
def test_committed_is_the_last_cursor_before_which_all_is_committed(
    steps: list[tuple[int, int]],
) -> None:
    cursor = SourceCursor()
    last = committed = 0
    fetched: list[tuple[int, str]] = []
    for number, (more, acknowledged) in enumerate(steps):
        last += more
        fetched.append((last, f"c{number}"))
        cursor.fetch(f"c{number}", last, committed)
        committed = min(last, committed + acknowledged)
        cursor.commit(committed)
        expected = [each for needed, each in fetched if needed <= committed]
        assert cursor.committed == (expected[-1] if expected else None)
        assert cursor.fetched == f"c{number}"


def test_what_waits_to_be_committed_is_bounded_and_never_too_early() -> None:
    cursor = SourceCursor()
    for number in range(1, MOST_MARKS + 101):
        cursor.fetch(str(number), number, 0)
    assert len(cursor._marks) == MOST_MARKS
    cursor.commit(MOST_MARKS + 99)
    assert cursor.committed == str(MOST_MARKS - 1)
    cursor.commit(MOST_MARKS + 100)
    assert cursor.committed == str(MOST_MARKS + 100)


def test_a_source_that_refuses_the_fetched_cursor_is_read_from_the_committed_one() -> None:
    cursor = SourceCursor("a")
    cursor.fetch("b", 5, 0)
    assert cursor.refuse(NOON) is Recovery.REWIND
    assert (cursor.fetched, cursor.committed) == ("a", "a")
    cursor.commit(5)
    assert cursor.committed == "a"  # what was refused is never committed


def test_a_source_that_refuses_the_committed_cursor_is_read_from_its_start() -> None:
    cursor = SourceCursor("of another run")
    assert cursor.refuse(NOON) is Recovery.RESTART
    assert (cursor.fetched, cursor.committed) == (None, None)


@pytest.mark.requirement("A2-3", "Q15")
@pytest.mark.parametrize(
    ("times", "last"),
    [
        ((0, 1, 2), Recovery.RESYNC),
        ((0, 30, 59), Recovery.RESYNC),
        ((0, 30, 60), Recovery.RESYNC),
        ((0, 30, 61), Recovery.REWIND),
        ((0, 59), Recovery.REWIND),
        ((0, 1, 61.5, 62), Recovery.REWIND),
        ((0, 50, 61, 62), Recovery.RESYNC),
    ],
)
def test_three_refusals_within_a_minute_make_a_resync(
    times: tuple[float, ...], last: Recovery
) -> None:
    cursor = SourceCursor("a")
    recovery = None
    for number, time in enumerate(times):
        cursor.fetch(f"b{number}", number + 1, 0)
        recovery = cursor.refuse(NOON + seconds(time))
    assert recovery is last
    assert cursor.fetched == (None if last is Recovery.RESYNC else "a")


@pytest.mark.requirement("A2-3")
def test_after_a_resync_refusals_are_counted_anew() -> None:
    cursor = SourceCursor("a")
    recoveries = []
    for number in range(6):
        cursor.fetch(f"b{number}", number + 1, 0)
        recoveries.append(cursor.refuse(NOON + seconds(number)))
    assert recoveries == [Recovery.REWIND, Recovery.REWIND, Recovery.RESYNC] * 2


@pytest.mark.requirement("A2-1")
def test_a_checkpoint_is_due_after_thirty_seconds() -> None:
    checkpoints = Checkpoints(NOON)
    assert not checkpoints.is_due(NOON + seconds(29.9))
    assert checkpoints.is_due(NOON + seconds(30))
    checkpoints.take(NOON + seconds(30))
    assert not checkpoints.is_due(NOON + seconds(59.9))
    assert checkpoints.is_due(NOON + seconds(60))


@pytest.mark.requirement("A2-1")
def test_a_checkpoint_is_due_after_five_hundred_observations() -> None:
    checkpoints = Checkpoints(NOON)
    checkpoints.note(250)
    checkpoints.note(249)
    assert not checkpoints.is_due(NOON)
    checkpoints.note(1)
    assert checkpoints.is_due(NOON)
    checkpoints.take(NOON)
    assert not checkpoints.is_due(NOON)
