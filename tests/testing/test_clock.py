"""Time passes when a test says so, and then in order."""

import asyncio

import pytest

from bullpen.connection import Connection, RequestTimeout
from bullpen.testing import ManualClock, create_mock_transport


def test_timers_run_when_due_in_the_order_they_fall_due() -> None:
    clock, ran = ManualClock(start=100), []
    for delay in (3, 1, 2, 1):
        clock.call_later(delay, lambda delay=delay: ran.append((delay, clock.time())))
    clock.advance(0.5)
    assert ran == []
    clock.advance(2)
    assert ran == [(1, 101), (1, 101), (2, 102)]
    assert clock.time() == 102.5
    assert clock.waiting == 1


def test_a_timer_set_by_a_timer_runs_in_the_same_stretch_if_it_is_due() -> None:
    clock = ManualClock()
    ran: list[float] = []

    def tick(n: int) -> None:
        ran.append(clock.time())
        clock.call_later(1, tick, n + 1)

    clock.call_later(1, tick, 0)
    clock.advance(3.5)
    assert ran == [1, 2, 3]


def test_a_cancelled_timer_does_not_run() -> None:
    clock = ManualClock()
    ran: list[int] = []
    timer = clock.call_later(1, ran.append, 1)
    timer.cancel()
    assert clock.waiting == 0
    clock.advance(2)
    timer.cancel()
    assert ran == []


def test_time_does_not_run_backwards() -> None:
    with pytest.raises(ValueError, match="backwards"):
        ManualClock().advance(-1)


@pytest.mark.requirement("T-49")
async def test_a_connection_goes_by_it() -> None:
    clock = ManualClock()
    transport, mock = create_mock_transport()
    async with Connection.builder().clock(clock).timeout(60).connect(transport) as connection:
        asking = asyncio.ensure_future(connection.request("slow"))
        await mock.receive_request()
        clock.advance(59.9)
        await asyncio.sleep(0)
        assert not asking.done()
        clock.advance(0.2)
        with pytest.raises(RequestTimeout):
            await asking
    assert clock.waiting == 0
