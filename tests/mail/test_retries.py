"""What failed is tried again by the seed's numbers."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.mail.retries import ReconnectPolicy
from tests.mail.samples import T0


@pytest.mark.requirement("O-90")
def test_the_pauses_are_those_of_the_seed() -> None:
    policy = ReconnectPolicy()
    assert [policy.delay(attempt) for attempt in range(1, 7)] == [1, 2, 4, 8, 16, None]
    assert policy == ReconnectPolicy(
        max_retries=5, initial_delay=1.0, max_delay=60.0, backoff_factor=2.0
    )


@pytest.mark.requirement("O-90")
@given(st.integers(1, 10_000))
def test_no_pause_is_longer_than_the_longest(attempt: int) -> None:
    delay = ReconnectPolicy(max_retries=10_000).delay(attempt)
    assert delay is not None
    assert 1 <= delay <= 60


def test_the_next_attempt_is_after_the_pause_or_never() -> None:
    policy = ReconnectPolicy(max_retries=2)
    assert policy.next_attempt(2, T0) == T0 + timedelta(seconds=2)
    assert policy.next_attempt(3, T0) is None
