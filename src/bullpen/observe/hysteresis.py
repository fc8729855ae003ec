"""What a screen has shown for long enough to be believed.

A screen is looked at now and then, and may be caught in the middle of drawing. So what it shows
becomes what we say under conditions that differ by what it is:

| it shows | believed |
|---|---|
| idle | after max(4 s, two looks) of it |
| running | at once, if anything was printed in the last 8 s: a frozen spinner is no work |
| a question, an approval, an error | at once: somebody should know |
| nothing drawn yet | at once, but only if nothing else was ever shown |
| nothing that we can read, after running | when nothing was printed for more than 45 s |
| nothing that we can read, after anything else | after two looks of it |

A quiet screen is an old one: it has shown what it shows since it last printed anything.
"""

from datetime import datetime, timedelta

import msgspec

from bullpen.model.states import Activity

__all__ = ["Look", "ScreenTrack", "idle_confirmation", "see", "settle"]

IDLE_SECONDS = 4.0
RUNNING_HINT_SECONDS = 8.0
RUNNING_HOLD_SECONDS = 45.0


class Look(msgspec.Struct, frozen=True):
    """What one look at a screen told."""

    at: datetime
    activity: Activity
    last_output_at: datetime


class ScreenTrack(msgspec.Struct, frozen=True):
    """What a screen shows, since when, and what is believed of it."""

    shown: Activity = Activity.UNKNOWN
    shown_since: datetime | None = None
    last_output_at: datetime | None = None
    confirmed: Activity = Activity.UNKNOWN
    confirmed_at: datetime | None = None


def idle_confirmation(poll_interval: timedelta) -> timedelta:
    """Return for how long a screen must show an idle prompt to be believed."""
    return max(timedelta(seconds=IDLE_SECONDS), 2 * poll_interval)


def see(track: ScreenTrack, look: Look, poll_interval: timedelta) -> ScreenTrack:
    """Take a look into account."""
    if track.shown_since is None:
        # Never seen before: it has looked like this at least since it last printed.
        since = min(look.at, look.last_output_at)
    elif track.shown is look.activity:
        since = track.shown_since
    else:
        since = look.at
    seen = msgspec.structs.replace(
        track, shown=look.activity, shown_since=since, last_output_at=look.last_output_at
    )
    return settle(seen, look.at, poll_interval)


def settle(track: ScreenTrack, now: datetime, poll_interval: timedelta) -> ScreenTrack:
    """Believe what has been shown for long enough by now."""
    if track.shown is track.confirmed or not _is_believed(track, now, poll_interval):
        return track
    return msgspec.structs.replace(track, confirmed=track.shown, confirmed_at=now)


def _is_believed(track: ScreenTrack, now: datetime, poll_interval: timedelta) -> bool:
    assert track.shown_since is not None
    assert track.last_output_at is not None
    quiet = now - track.last_output_at
    match track.shown:
        case Activity.IDLE:
            return now - track.shown_since >= idle_confirmation(poll_interval)
        case Activity.RUNNING:
            return quiet <= timedelta(seconds=RUNNING_HINT_SECONDS)
        case Activity.STARTING:
            return track.confirmed is Activity.UNKNOWN
        case Activity.UNKNOWN if track.confirmed is Activity.RUNNING:
            return quiet > timedelta(seconds=RUNNING_HOLD_SECONDS)
        case Activity.UNKNOWN:
            return now - track.shown_since >= 2 * poll_interval
        case _:
            return True
