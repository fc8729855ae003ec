"""A consumer gets everything at least once and in order, until it has said that it did."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from bullpen.model.reasons import Reason
from bullpen.model.states import SourceKind
from bullpen.observe.deliveries import Acknowledged, Delivery, DeliveryLimits, DeliveryLog
from bullpen.observe.errors import AckRetryExhausted, InvalidCursor, Refused
from tests.observe.gateway.worlds import Time, observation


class Reader:
    """A log, a time, and one consumer."""

    def __init__(self, *, name: str = "reader", holder: str = "reader", **options: Any) -> None:
        self.time = Time()
        self.name = name
        self.log = DeliveryLog(holder=holder, prefix="t", **options)

    def append(self, count: int = 1, kind: SourceKind = SourceKind.CLAUDE_HOOKS) -> None:
        for _ in range(count):
            one = observation(str(self.log.last_seq + 1), kind)
            self.log.append(one, msgspec.json.encode(one), self.time.now)

    def pull(self, cursor: str | None = None, limit: int = 100) -> Delivery:
        return self.log.pull(self.name, cursor, limit, self.time.now)

    def ack(self, token: str | None) -> tuple[bool, int]:
        assert token is not None
        done = self.log.ack(self.name, token, self.time.now)
        return done.is_repeated, done.committed_seq

    def read(self, limit: int = 100) -> list[int]:
        delivery = self.pull(limit=limit)
        if delivery.token is not None:
            self.ack(delivery.token)
        return numbers(delivery)

    @property
    def watermarks(self) -> tuple[int, int]:
        return self.log.fetched_seq(self.name), self.log.committed_seq(self.name)


def numbers(delivery: Delivery) -> list[int]:
    assert [each.observation.event_id for each in delivery.events] == [
        str(each.ingest_seq) for each in delivery.events
    ]
    return [each.ingest_seq for each in delivery.events]


@pytest.mark.requirement("A1-1", "A1-2", "IF-G2")
def test_a_batch_has_a_token_and_moves_one_watermark_and_its_ack_the_other() -> None:
    reader = Reader()
    reader.append(3)
    delivery = reader.pull(limit=2)
    assert (numbers(delivery), delivery.next_cursor, delivery.attempt) == ([1, 2], "2", 1)
    assert reader.watermarks == (2, 0)
    assert reader.ack(delivery.token) == (False, 2)
    assert reader.watermarks == (2, 2)
    assert reader.read() == [3]


@pytest.mark.requirement("IF-G2", "CUR-1")
def test_where_there_is_nothing_there_is_no_token_but_a_cursor() -> None:
    reader = Reader(after=41)
    assert reader.pull() == Delivery(next_seq=41)
    reader.append()
    assert reader.read() == [42]
    assert reader.pull() == Delivery(next_seq=42)


@pytest.mark.requirement("A1-3")
def test_a_second_acknowledgement_changes_nothing() -> None:
    reader = Reader()
    reader.append(2)
    first = reader.pull(limit=1)
    assert reader.ack(first.token) == (False, 1)
    assert reader.read() == [2]
    reader.time.advance(60)
    assert first.token is not None
    again = reader.log.ack("reader", first.token, reader.time.now)
    assert again == Acknowledged(is_repeated=True, committed_seq=2)
    assert (again.is_late, again.events) == (False, 0)
    assert reader.watermarks == (2, 2)


@pytest.mark.requirement("A1-4")
def test_a_batch_is_given_again_as_it_was_and_counted_after_the_timeout() -> None:
    reader = Reader()
    reader.append(2)
    first = reader.pull(limit=1)
    reader.append(1)
    reader.time.advance(1.999)
    assert reader.pull() == first
    reader.time.advance(0.001)
    second = reader.pull()
    assert second == msgspec.structs.replace(first, attempt=2)
    reader.time.advance(1.999)
    assert reader.pull() == second


@pytest.mark.requirement("A1-5", "A8-1")
def test_after_five_attempts_a_batch_is_given_up_and_begun_anew() -> None:
    reader = Reader()
    reader.append(1, SourceKind.CODEX_HOOKS)
    reader.append(1)
    deliveries = []
    for _ in range(5):
        deliveries.append(reader.pull())
        reader.time.advance(2.1)
    assert [each.attempt for each in deliveries] == [1, 2, 3, 4, 5]
    last = deliveries[-1]
    with pytest.raises(AckRetryExhausted) as caught:
        reader.pull()
    assert caught.value.reason is Reason.ACK_RETRY_EXHAUSTED
    assert caught.value.kinds == {SourceKind.CODEX_HOOKS, SourceKind.CLAUDE_HOOKS}
    with pytest.raises(Refused) as refused:
        reader.ack(last.token)
    assert refused.value.reason is Reason.UNKNOWN_DELIVERY_TOKEN
    anew = reader.pull()
    assert (numbers(anew), anew.attempt) == ([1, 2], 1)
    assert anew.token != last.token


@pytest.mark.requirement("A8-1")
@pytest.mark.parametrize("token", ["", "t2", "x1", "t" * 9999])
def test_a_token_nobody_was_given_is_unknown(token: str) -> None:
    reader = Reader()
    reader.append()
    reader.pull()
    with pytest.raises(Refused) as caught:
        reader.ack(token)
    assert caught.value.reason is Reason.UNKNOWN_DELIVERY_TOKEN


@pytest.mark.requirement("A8-1")
def test_a_token_of_another_consumer_is_unknown() -> None:
    reader = Reader()
    reader.append()
    token = reader.pull().token
    assert token is not None
    for stranger in ("stranger", "reader2"):
        with pytest.raises(Refused):
            reader.log.ack(stranger, token, reader.time.now)
        reader.log.pull(stranger, None, 1, reader.time.now)
    assert reader.ack(token) == (False, 1)


@pytest.mark.requirement("A1-4", "A8-1")
@pytest.mark.parametrize(
    ("waits", "is_late"), [([0.0], False), ([2.0], False), ([2.1], True), ([2.0, 0.1], True)]
)
def test_a_late_acknowledgement_counts_and_is_told(waits: list[float], is_late: bool) -> None:
    reader = Reader()
    reader.append()
    for wait in waits:
        reader.pull()
        reader.time.advance(wait)
    done = reader.log.ack("reader", "t1", reader.time.now)
    assert (done.is_late, done.committed_seq, done.events) == (is_late, 1, 1)
    assert done.kinds == {SourceKind.CLAUDE_HOOKS}


def test_consumers_do_not_disturb_each_other() -> None:
    reader = Reader()
    reader.append(2)
    reader.pull()
    other = reader.log.pull("other", None, 1, reader.time.now)
    assert numbers(other) == [1]
    assert reader.watermarks == (2, 0)
    assert reader.log.fetched_seq("other") == 1


@pytest.mark.requirement("A5-4")
def test_a_late_observation_moves_no_place() -> None:
    reader = Reader()
    reader.append(2)
    assert reader.read(1) == [1]
    late = observation("3", observed_at=reader.time.now - timedelta(hours=1))
    reader.log.append(late, msgspec.json.encode(late), reader.time.now)
    assert reader.read() == [2, 3]


def test_a_cursor_says_where_to_read_on() -> None:
    reader = Reader()
    reader.append(4)
    assert reader.read(2) == [1, 2]
    ahead = reader.pull("3")
    assert numbers(ahead) == [4]
    reader.ack(ahead.token)
    back = reader.pull("1", limit=1)
    assert (numbers(back), reader.watermarks) == ([2], (2, 1))


@pytest.mark.requirement("A8-1")
@pytest.mark.parametrize("cursor", ["", "x", "-1", "01", "4", "٣", "1.0", "9" * 5000])
def test_a_cursor_that_is_no_place_is_refused(cursor: str) -> None:
    reader = Reader()
    reader.append(3)
    with pytest.raises(InvalidCursor):
        reader.pull(cursor)
    assert reader.read() == [1, 2, 3]


@pytest.mark.requirement("A2-2", "A8-4")
@pytest.mark.parametrize("far", [{"events": 10_001}, {"seconds": 600.001}, {"seconds": 601}])
def test_rewinding_has_a_limit(far: dict[str, Any]) -> None:
    reader = Reader()
    with pytest.raises(Refused) as caught:
        reader.log.rewind("reader", reader.time.now, **far)
    assert caught.value.reason is Reason.REWIND_WINDOW_EXCEEDED


@pytest.mark.requirement("A2-2")
def test_rewinding_by_a_number_gives_that_many_again() -> None:
    reader = Reader()
    reader.append(5)
    assert reader.read() == [1, 2, 3, 4, 5]
    assert reader.log.rewind("reader", reader.time.now, events=2) == (3, 2)
    assert reader.read() == [4, 5]
    assert reader.log.rewind("reader", reader.time.now, events=10_000) == (0, 5)
    assert reader.read() == [1, 2, 3, 4, 5]


@pytest.mark.requirement("A2-2")
def test_rewinding_by_a_time_gives_again_what_came_since() -> None:
    reader = Reader()
    reader.append(2)
    reader.time.advance(10)
    reader.append(2)
    reader.time.advance(10)
    reader.read()
    assert reader.log.rewind("reader", reader.time.now, seconds=9.9) == (4, 0)
    assert reader.log.rewind("reader", reader.time.now, seconds=10) == (2, 2)
    assert reader.log.rewind("reader", reader.time.now, seconds=600) == (0, 2)
    assert reader.read() == [1, 2, 3, 4]


def test_rewinding_never_goes_forward_and_gives_up_what_was_given() -> None:
    reader = Reader()
    reader.append(3)
    given_up = reader.pull()
    assert reader.log.rewind("reader", reader.time.now, seconds=0) == (0, 0)
    with pytest.raises(Refused):
        reader.ack(given_up.token)
    assert reader.read() == [1, 2, 3]


@pytest.mark.requirement("MEM-2")
def test_what_was_acknowledged_is_dropped_after_what_can_be_rewound() -> None:
    reader = Reader()
    reader.append(3)
    reader.read()
    reader.time.advance(600)
    reader.log.trim(reader.time.now)
    assert len(reader.log) == 3
    reader.time.advance(0.001)
    reader.log.trim(reader.time.now)
    assert (len(reader.log), reader.log.bytes, reader.log.lost) == (0, 0, 0)
    reader.append()
    assert reader.read() == [4]


@pytest.mark.requirement("IF-G4")
def test_what_the_holder_has_not_acknowledged_does_not_grow_too_old() -> None:
    reader = Reader()
    reader.append(2)
    reader.time.advance(3600)
    reader.append(1)
    assert reader.read() == [1, 2, 3]


@pytest.mark.requirement("MEM-2")
def test_the_log_is_bounded_and_counts_what_it_had_to_drop() -> None:
    reader = Reader(limits=DeliveryLimits(rewind_events=10))
    reader.append(8)
    reader.read(3)
    assert reader.log.room("reader") == 5  # two more fit, and three may go
    reader.append(5)
    assert (len(reader.log), reader.log.lost, reader.log.room("reader")) == (10, 0, 0)
    reader.append(1)
    assert (len(reader.log), reader.log.lost) == (10, 1)
    with pytest.raises(InvalidCursor):
        reader.pull()
    assert reader.read() == list(range(5, 15))  # told once, it goes on with the oldest


@pytest.mark.requirement("MEM-2")
def test_the_log_is_bounded_in_bytes() -> None:
    reader = Reader(limits=DeliveryLimits(max_bytes=2_000))
    reader.append(100)
    assert reader.log.bytes <= 2_000
    assert reader.log.lost == 100 - len(reader.log) > 50
    assert reader.log.room("reader") == 0


def test_a_log_half_full_of_what_nobody_acknowledged_has_no_room() -> None:
    reader = Reader(limits=DeliveryLimits(max_bytes=2_000))
    while reader.log.bytes <= 1_000:
        assert reader.log.room("reader") > 0
        reader.append()
    assert reader.log.room("reader") == 0
    reader.read()
    assert reader.log.room("reader") > 0


@pytest.mark.requirement("A8-1")
def test_a_consumer_too_far_behind_is_told() -> None:
    reader = Reader(name="slow", holder="other")
    reader.append(2)
    assert reader.read(1) == [1]
    reader.log.pull("other", None, 100, reader.time.now)
    reader.log.ack("other", "t2", reader.time.now)
    reader.time.advance(601)
    reader.append(1)
    assert reader.log.rewind("slow", reader.time.now, seconds=1) == (1, 0)
    for cursor in ("0", None):
        with pytest.raises(InvalidCursor) as caught:
            reader.pull(cursor)
        assert caught.value.cursor == (cursor or "1")
    assert reader.read() == [3]


def test_one_of_ours_that_comes_late_is_told_what_it_missed() -> None:
    reader = Reader(residents=frozenset(["ours"]), limits=DeliveryLimits(rewind_events=2))
    reader.append(3)
    assert numbers(reader.log.pull("stranger", None, 9, reader.time.now)) == [2, 3]
    with pytest.raises(InvalidCursor):
        reader.log.pull("ours", None, 9, reader.time.now)


def test_a_batch_on_its_way_is_given_again_though_the_log_dropped_it() -> None:
    reader = Reader(limits=DeliveryLimits(rewind_events=2))
    reader.append(2)
    first = reader.pull()
    reader.append(5)
    assert reader.pull() == first
    assert reader.ack(first.token) == (False, 2)


def test_what_is_read_again_after_it_was_folded_is_the_same() -> None:
    reader = Reader()
    reader.append(2)
    first = reader.pull()
    reader.ack(first.token)
    reader.log.rewind("reader", reader.time.now, events=2)
    again = reader.pull()
    assert again.events == first.events
    assert again.events[0].observation is not first.events[0].observation


def test_consumers_are_bounded_and_our_own_are_not_forgotten() -> None:
    reader = Reader(limits=DeliveryLimits(max_consumers=4), residents=frozenset(["ours"]))
    reader.append(2)
    reader.read(1)
    reader.log.pull("ours", None, 2, reader.time.now)
    for number in range(10):
        reader.time.advance(1)
        reader.log.pull(f"c{number}", None, 1, reader.time.now)
    assert reader.log.consumers == 4
    assert reader.log.fetched_seq("ours") == 2
    assert reader.log.fetched_seq("c9") == reader.log.fetched_seq("c8") == 1
    assert reader.watermarks == (1, 1)


def test_an_acknowledgement_long_past_is_forgotten() -> None:
    reader = Reader()
    reader.append(300)
    first = reader.pull(limit=1)
    reader.ack(first.token)
    for _ in range(256):
        assert reader.ack(first.token)[0]
        reader.read(1)
    with pytest.raises(Refused):
        reader.ack(first.token)


class LogMachine(RuleBasedStateMachine):
    """One reader against a list: at least once, in order, and nothing skipped unless told."""

    def __init__(self) -> None:
        super().__init__()
        self.reader = Reader(limits=DeliveryLimits(rewind_events=12))
        self.appended = 0
        self.committed = 0
        self.outstanding: Delivery | None = None
        self.since = 0.0
        self.tokens: list[str] = []

    @rule(count=st.integers(1, 5))
    def append(self, count: int) -> None:
        self.reader.append(count)
        self.appended += count

    @rule(limit=st.integers(1, 6))
    def pull(self, limit: int) -> None:
        dropped = max(self.appended - 12, 0)
        if self.outstanding is not None and self.since >= 2 and self.outstanding.attempt == 5:
            with pytest.raises(AckRetryExhausted):
                self.reader.pull(limit=limit)
            self.outstanding = None
        elif self.outstanding is not None:
            again = self.reader.pull(limit=limit)
            is_due = self.since >= 2
            assert again.token == self.outstanding.token
            assert again.events == self.outstanding.events
            assert again.attempt == self.outstanding.attempt + is_due
            self.since = 0.0 if is_due else self.since
            self.outstanding = again
        elif self.committed < dropped:
            with pytest.raises(InvalidCursor):
                self.reader.pull(limit=limit)
            self.committed = dropped
        else:
            delivery = self.reader.pull(limit=limit)
            end = min(self.committed + limit, self.appended)
            assert numbers(delivery) == list(range(self.committed + 1, end + 1))
            if delivery.token is not None:
                assert delivery.token not in self.tokens
                self.tokens.append(delivery.token)
                self.outstanding, self.since = delivery, 0.0

    @rule()
    def acknowledge(self) -> None:
        if self.outstanding is not None:
            self.committed = self.outstanding.next_seq
            assert self.reader.ack(self.outstanding.token) == (False, self.committed)
            assert self.reader.ack(self.outstanding.token) == (True, self.committed)
            self.outstanding = None

    @rule(seconds=st.sampled_from([0.5, 2.0]))
    def wait(self, seconds: float) -> None:
        self.reader.time.advance(seconds)
        self.since += seconds

    @rule(events=st.integers(0, 14))
    def rewind(self, events: int) -> None:
        if events > 12:
            with pytest.raises(Refused):
                self.reader.log.rewind("reader", self.reader.time.now, events=events)
            return
        dropped = max(self.appended - 12, 0)
        place = max(self.committed - events, min(dropped, self.committed))
        expected = (place, self.committed - place)
        assert self.reader.log.rewind("reader", self.reader.time.now, events=events) == expected
        self.committed, self.outstanding = place, None

    @invariant()
    def what_was_given_is_never_before_what_was_acknowledged(self) -> None:
        fetched, committed = self.reader.watermarks
        assert committed == self.committed <= fetched <= self.appended
        assert len(self.reader.log) <= 12


TestLog = LogMachine.TestCase
TestLog.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
