"""A source's buffer gives everything once, in order, and says so when it cannot."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.model.reasons import Reason
from bullpen.observe.errors import InvalidCursor
from bullpen.observe.sources.buffer import EventBuffer
from tests.observe.gateway.worlds import observation


def filled(count: int, **options: int) -> EventBuffer:
    buffer = EventBuffer("e", **options)
    for number in range(1, count + 1):
        buffer.append(observation(str(number)), size=10)
    return buffer


def pulled(buffer: EventBuffer, cursor: str | None, limit: int = 100) -> list[str]:
    return [each.event_id for each in buffer.pull(cursor, limit)[0]]


@pytest.mark.requirement("CUR-1", "IF-S4")
def test_a_reader_who_has_everything_still_gets_a_cursor_to_go_on_from() -> None:
    buffer = filled(2)
    _, cursor = buffer.pull(None, 100)
    assert buffer.pull(cursor, 100) == ((), cursor)
    buffer.append(observation("3"))
    assert pulled(buffer, cursor) == ["3"]


@pytest.mark.requirement("CUR-1")
def test_an_empty_buffer_gives_a_cursor_too() -> None:
    events, cursor = EventBuffer("e").pull(None, 1)
    assert (events, cursor) == ((), "e.0")


@pytest.mark.requirement("IF-S2")
def test_the_limit_cuts_and_the_cursor_goes_on_behind_the_cut() -> None:
    buffer = filled(3)
    events, cursor = buffer.pull(None, 2)
    assert [each.event_id for each in events] == ["1", "2"]
    assert pulled(buffer, cursor) == ["3"]


def test_a_reply_has_no_more_than_fits_and_always_something() -> None:
    buffer = filled(3)
    assert len(buffer.pull(None, 100, max_bytes=20)[0]) == 2
    assert len(buffer.pull(None, 100, max_bytes=19)[0]) == 1
    assert len(buffer.pull(None, 100, max_bytes=1)[0]) == 1


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "e",
        "e.",
        ".1",
        "x.1",
        "e.-1",
        "e.01",
        "e.1.1",
        "e.x",
        "e.٣",
        "e.4",
        f"e.{'9' * 5000}",
        "1",
    ],
)
def test_a_cursor_that_was_never_given_is_refused(cursor: str) -> None:
    with pytest.raises(InvalidCursor) as caught:
        filled(3).pull(cursor, 100)
    assert caught.value.reason is Reason.INVALID_CURSOR
    assert len(str(caught.value)) < 200


@pytest.mark.requirement("MEM-1")
def test_what_was_kept_elsewhere_is_dropped() -> None:
    buffer = filled(5)
    assert buffer.compact("e.3") == 3
    assert (len(buffer), buffer.bytes) == (2, 20)
    assert pulled(buffer, "e.3") == pulled(buffer, None) == ["4", "5"]


@pytest.mark.requirement("MEM-1")
def test_compacting_goes_by_place_and_not_by_number() -> None:
    buffer = filled(10)
    assert buffer.compact("e.4") == 4
    assert buffer.compact("e.4") == 0  # the same place again
    assert buffer.compact("e.2") == 0  # an older place
    assert buffer.compact("e.6") == 2
    assert buffer.compact("e.99") == 4  # no more than there is
    buffer.append(observation("11"))
    assert pulled(buffer, None) == ["11"]
    assert buffer.compact("e.10") == 0


def test_a_cursor_of_what_was_dropped_is_refused_and_the_one_behind_it_is_not() -> None:
    buffer = filled(5)
    buffer.compact("e.3")
    with pytest.raises(InvalidCursor):
        buffer.pull("e.2", 100)
    assert pulled(buffer, "e.3") == ["4", "5"]


def test_compacting_at_no_place_of_this_run_is_refused() -> None:
    buffer = filled(2)
    with pytest.raises(InvalidCursor):
        buffer.compact("other.2")
    assert len(buffer) == 2


@pytest.mark.requirement("MEM-1")
def test_a_full_buffer_makes_room_and_counts_what_nobody_has_read() -> None:
    buffer = filled(3, capacity=3)
    buffer.pull(None, 1)
    assert buffer.append(observation("4")) == 0  # 1 had been read
    assert buffer.append(observation("5")) == 1
    assert (len(buffer), buffer.lost) == (3, 1)
    assert pulled(buffer, None) == ["3", "4", "5"]


def test_bytes_are_bounded_as_well() -> None:
    buffer = filled(5, max_bytes=30)
    assert (len(buffer), buffer.bytes, buffer.lost) == (3, 30, 2)
    buffer.append(observation("big"), size=1000)  # alone it may stay
    assert (len(buffer), buffer.bytes) == (1, 1000)


operations = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 3)),
        st.tuples(st.just("pull"), st.integers(1, 4)),
        st.tuples(st.just("compact"), st.integers(0, 30)),
    )
)


@given(operations=operations, capacity=st.integers(1, 6))
def test_a_reader_gets_each_once_and_in_order_or_is_told(
    operations: list[tuple[str, int]], capacity: int
) -> None:
    buffer = EventBuffer("e", capacity=capacity)
    appended: list[int] = []
    read: list[int] = []
    dropped = 0  # the model: a list, and how many of its first are gone
    cursor: str | None = None
    place = 0
    lost: set[int] = set()
    for operation, number in operations:
        if operation == "append":
            for _ in range(number):
                appended.append(len(appended) + 1)
                buffer.append(observation(str(appended[-1])))
                while len(appended) - dropped > capacity:
                    dropped += 1
                    lost |= {dropped} - set(read)
        elif operation == "compact":
            dropped = max(dropped, min(number, len(appended)))
            buffer.compact(f"e.{number}")
        elif cursor is not None and place < dropped:
            with pytest.raises(InvalidCursor):
                buffer.pull(cursor, number)
            cursor, place = None, dropped  # begin anew
        else:
            place = max(place, dropped)
            expected = appended[place : place + number]
            events, cursor = buffer.pull(cursor, number)
            assert [int(each.event_id) for each in events] == expected
            read += expected
            place += len(expected)
        assert len(buffer) == len(appended) - dropped <= capacity
        assert buffer.lost == len(lost)
    assert read == sorted(set(read))
