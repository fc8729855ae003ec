"""When a process that ended is started again, without a clock: the caller says what time it is.

The pause doubles with each failure up to a limit, and differs a little each time, so that those who
failed together do not come back together. Too many failures within a while are no bad luck any
more: then it is held down, and somebody has to know.
"""

import msgspec

__all__ = ["RestartHistory", "RestartPolicy", "Verdict", "after_failure"]

MOST_DOUBLINGS = 64  # far beyond any limit, and short of what a float can hold


class RestartPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers."""

    first_seconds: float = 1.0
    factor: float = 2.0
    longest_seconds: float = 30.0
    jitter: float = 0.2
    """By how much of itself a pause may be shorter or longer."""
    budget: int = 5
    """At this many failures within the window it is held down."""
    window_seconds: float = 600.0
    hold_down_seconds: float = 300.0
    stable_seconds: float = 60.0
    """Having run this long, it is believed to be well: the pauses begin anew."""


class RestartHistory(msgspec.Struct, frozen=True):
    """What has to be remembered of a process."""

    failures: tuple[float, ...] = ()
    """When it failed, within the window and since it was last held down."""
    streak: int = 0
    """How often it failed without having been well in between."""


class Verdict(msgspec.Struct, frozen=True):
    """What to do about a failure."""

    pause_seconds: float
    """Start it again after this."""
    is_held_down: bool = False
    """The budget is spent: this is for an operator to know."""


def after_failure(
    history: RestartHistory,
    now: float,
    *,
    ran_seconds: float,
    chance: float,
    policy: RestartPolicy,
) -> tuple[RestartHistory, Verdict]:
    """Decide about a failure at `now` of a process that had run so long.

    `chance` is a random number from 0 to 1. What had failed before it was held down is forgiven,
    but the pauses stay long until it has been well for a while.
    """
    streak = 1 if ran_seconds >= policy.stable_seconds else history.streak + 1
    recent = tuple(at for at in history.failures if now - at <= policy.window_seconds)
    failures = (*recent, now)
    if len(failures) >= policy.budget:
        held = Verdict(policy.hold_down_seconds, is_held_down=True)
        return RestartHistory((), streak), held
    doubled = policy.first_seconds * policy.factor ** min(streak - 1, MOST_DOUBLINGS)
    pause = min(doubled, policy.longest_seconds) * (1 + policy.jitter * (2 * chance - 1))
    return RestartHistory(failures, streak), Verdict(pause)
