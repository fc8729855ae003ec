"""What a screen shows is believed under conditions, and each has an exact edge."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.model.states import Activity
from bullpen.observe.hysteresis import Look, ScreenTrack, idle_confirmation, see, settle

START = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
TICK = timedelta(seconds=1)
IDLE, RUNNING, UNKNOWN = Activity.IDLE, Activity.RUNNING, Activity.UNKNOWN


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def look(seconds: float, activity: Activity, *, quiet: float = 0.0) -> Look:
    return Look(at(seconds), activity, at(seconds - quiet))


def running() -> ScreenTrack:
    return see(ScreenTrack(), look(0, RUNNING), TICK)


@pytest.mark.requirement("HYS-1", "TG-4")
@pytest.mark.parametrize(("interval", "needed"), [(1.0, 4.0), (2.0, 4.0), (3.0, 6.0)])
def test_idle_is_believed_after_four_seconds_or_two_looks(interval: float, needed: float) -> None:
    tick = timedelta(seconds=interval)
    assert idle_confirmation(tick) == timedelta(seconds=needed)
    track = see(running(), look(10, IDLE), tick)
    assert settle(track, at(10 + needed - 0.001), tick).confirmed is RUNNING
    assert settle(track, at(10 + needed), tick).confirmed is IDLE


@pytest.mark.requirement("HYS-1")
def test_idle_must_be_stable(  # a prompt that shows between two tools is not the end
) -> None:
    track = see(running(), look(1, IDLE), TICK)
    track = see(track, look(3, RUNNING), TICK)
    track = see(track, look(4, IDLE), TICK)
    assert settle(track, at(6), TICK).confirmed is RUNNING
    assert settle(track, at(8), TICK).confirmed is IDLE


def test_a_quiet_screen_seen_for_the_first_time_has_long_shown_what_it_shows() -> None:
    assert see(ScreenTrack(), look(0, IDLE, quiet=60), TICK).confirmed is IDLE
    assert see(ScreenTrack(), look(0, IDLE, quiet=1), TICK).confirmed is UNKNOWN


@pytest.mark.requirement("HYS-2")
@pytest.mark.parametrize(("quiet", "believed"), [(0.0, True), (8.0, True), (8.1, False)])
def test_work_is_believed_if_something_was_printed_in_the_last_eight_seconds(
    quiet: float, believed: bool
) -> None:
    idle = see(ScreenTrack(), look(0, IDLE, quiet=60), TICK)
    track = see(idle, look(100, RUNNING, quiet=quiet), TICK)
    assert track.confirmed is (RUNNING if believed else IDLE)


@pytest.mark.requirement("HYS-3")
@pytest.mark.parametrize(("quiet", "held"), [(10.0, True), (45.0, True), (45.1, False)])
def test_work_that_cannot_be_read_any_more_holds_for_forty_five_seconds(
    quiet: float, held: bool
) -> None:
    track = see(running(), look(quiet, UNKNOWN, quiet=quiet), TICK)
    assert track.confirmed is (RUNNING if held else UNKNOWN)


@pytest.mark.parametrize(
    "activity",
    [Activity.WAITING_APPROVAL, Activity.WAITING_INPUT, Activity.ERROR, Activity.RATE_LIMITED],
)
def test_what_somebody_should_know_is_believed_at_once(activity: Activity) -> None:
    assert see(running(), look(1, activity, quiet=1), TICK).confirmed is activity


def test_one_look_at_a_screen_in_the_middle_of_drawing_changes_nothing() -> None:
    idle = see(ScreenTrack(), look(0, IDLE, quiet=60), TICK)
    track = see(idle, look(1, UNKNOWN), TICK)
    assert track.confirmed is IDLE
    assert settle(track, at(3), TICK).confirmed is UNKNOWN


def test_a_program_that_draws_anew_is_not_starting_again() -> None:
    assert see(ScreenTrack(), look(0, Activity.STARTING), TICK).confirmed is Activity.STARTING
    idle = see(ScreenTrack(), look(0, IDLE, quiet=60), TICK)
    assert see(idle, look(1, Activity.STARTING), TICK).confirmed is IDLE


@given(st.lists(st.tuples(st.floats(0.1, 5), st.sampled_from(Activity), st.floats(0, 60))))
def test_nothing_is_believed_that_was_never_shown(
    looks: list[tuple[float, Activity, float]],
) -> None:
    track, now, shown = ScreenTrack(), 0.0, {UNKNOWN}
    for pause, activity, quiet in looks:
        now += pause
        shown.add(activity)
        track = see(track, look(now, activity, quiet=quiet), TICK)
        assert track.confirmed in shown
        assert track.shown is activity
