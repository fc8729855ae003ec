"""Which of the sources is right about an agent just now, and why the others are not.

What a program says of itself (deterministic) is believed before what it looks like (heuristic),
as long as we still hear from whoever told us. It *holds until it is contradicted*: by a later word
of another such source, or by a screen that has shown something else, without a break, for long
enough since. Two words at the same moment are decided by rank. Nothing is ever averaged; who loses
is kept, with the reason.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from bullpen.model.states import Activity, EvidenceTier, Provider, SourceKind
from bullpen.observe.freshness import Freshness, Link
from bullpen.observe.hysteresis import ScreenTrack, idle_confirmation
from bullpen.observe.ranks import rank

__all__ = ["Held", "Loser", "Resolution", "resolve"]

# Hooks, files and protocols of one program tell the same moment within about a tenth of a second.
SAME_MOMENT = timedelta(milliseconds=300)
AT_ONCE = timedelta(milliseconds=50)
# For how long a screen must show something else before a program's own word is doubted.
SCREEN_SHOWS_DIALOG = timedelta(seconds=1)
SCREEN_SHOWS_WORK = timedelta(seconds=2)

# Who has said what it does has started, though its screen be empty.
_SAYS_NOTHING = (Activity.UNKNOWN, Activity.STARTING)
# These read a record that is silent while the program asks for permission.
_BLIND_TO_WAITING = (SourceKind.CLAUDE_TRANSCRIPT, SourceKind.CODEX_ROLLOUT)
_BEGUN = ("tool.started", "model.requested")
_AFTER_A_TURN = (Activity.ERROR, Activity.RATE_LIMITED)
# To this one a turn that failed is over like any other.
_BLIND_TO_FAILURE = (SourceKind.CLAUDE_SESSIONS,)
SAME_END = timedelta(seconds=5)
# How a turn has ended is in the record by the next look at it.
_RECORDS = (SourceKind.CLAUDE_TRANSCRIPT,)
RECORD_FOLLOWS = timedelta(seconds=1.5)


class Held(msgspec.Struct, frozen=True):
    """The latest that one source has said about what an agent is doing."""

    source_kind: SourceKind
    provider: Provider
    activity: Activity
    at: datetime
    ingest_seq: int
    event_type: str
    session_key: str

    @property
    def tier(self) -> EvidenceTier:
        return self.source_kind.tier

    @property
    def is_begun(self) -> bool:
        """Something was begun, of which it is not known whether it may be done."""
        return self.source_kind in _BLIND_TO_WAITING and self.event_type in _BEGUN


class Loser(msgspec.Struct, frozen=True):
    """Who said something else, and why that is not what we say."""

    source_kind: SourceKind
    why: str


class Resolution(msgspec.Struct, frozen=True):
    """What we say an agent is doing. Without a source, nobody knows."""

    activity: Activity = Activity.UNKNOWN
    source_kind: SourceKind | None = None
    since: datetime | None = None
    tier: EvidenceTier = EvidenceTier.HEURISTIC
    why: str = "nobody has said anything"
    losers: tuple[Loser, ...] = ()


def resolve(
    held: Iterable[Held],
    links: Mapping[SourceKind, Link],
    screen: ScreenTrack | None,
    now: datetime,
    poll_interval: timedelta,
) -> Resolution:
    """Choose."""
    words = sorted(
        (each for each in held if each.tier is EvidenceTier.DETERMINISTIC), key=_newest_first
    )
    fresh = [each for each in words if _is_heard_of(each.source_kind, links, now)]
    losers = [
        Loser(each.source_kind, f"not heard of for {_seconds(_age(each, links, now))}")
        for each in words
        if each not in fresh
    ]
    if fresh:
        best = _choose(fresh, now)
        losers += [Loser(each.source_kind, _why_lost(each, best)) for each in fresh if each != best]
        if _is_heard_of(SourceKind.POLLER, links, now):
            return _against_screen(best, screen, now, poll_interval, losers)
        return _against_screen(best, None, now, poll_interval, losers)
    if screen is not None and screen.confirmed is not Activity.UNKNOWN:
        return _by_screen(screen, "read from the screen", losers)
    held_on = next(
        (each for each in words if _freshness(each, links, now) is Freshness.STALE), None
    )
    if held_on is not None:
        # Nothing contradicts it, and there is nothing else to go by.
        return Resolution(
            held_on.activity,
            held_on.source_kind,
            held_on.at,
            EvidenceTier.HEURISTIC,
            f"{held_on.source_kind} said so, and has not been heard of since",
            tuple(each for each in losers if each.source_kind is not held_on.source_kind),
        )
    if screen is not None and screen.shown_since is not None:
        return _by_screen(screen, "the screen shows nothing that we can read", losers)
    return Resolution(losers=tuple(losers))


def _newest_first(held: Held) -> tuple[timedelta, int]:
    return (datetime.max.replace(tzinfo=held.at.tzinfo) - held.at, -held.ingest_seq)


def _is_heard_of(kind: SourceKind, links: Mapping[SourceKind, Link], now: datetime) -> bool:
    return kind in links and links[kind].freshness(now) is Freshness.FRESH


def _freshness(held: Held, links: Mapping[SourceKind, Link], now: datetime) -> Freshness:
    link = links.get(held.source_kind)
    return link.freshness(now) if link else Freshness.DOWN


def _age(held: Held, links: Mapping[SourceKind, Link], now: datetime) -> timedelta:
    link = links.get(held.source_kind)
    return link.age(now) if link else now - held.at


def _choose(fresh: Sequence[Held], now: datetime) -> Held:
    """Return the latest word; of several at the same moment, the one of the highest rank."""
    waiting = [each for each in fresh if each.activity.is_waiting]
    candidates = [
        each
        for each in fresh
        if not (waiting and each.is_begun) and not _calls_a_failure_idle(each, fresh, now)
    ] or fresh
    newest = candidates[0]
    # That work goes on is told a little later by some; that it ended, or waits, is news.
    moment = SAME_MOMENT if newest.activity is Activity.RUNNING else AT_ONCE
    same = [each for each in candidates if newest.at - each.at <= moment]
    return min(same, key=lambda each: (rank(each.provider, each.source_kind), _newest_first(each)))


def _calls_a_failure_idle(held: Held, others: Sequence[Held], now: datetime) -> bool:
    """Whether a turn has ended, and how it did is known better, or will be in a moment."""
    if held.source_kind not in _BLIND_TO_FAILURE or held.activity is not Activity.IDLE:
        return False
    is_new = timedelta(0) <= now - held.at < RECORD_FOLLOWS
    return any(
        (each.activity in _AFTER_A_TURN and abs(held.at - each.at) <= SAME_END)
        or (is_new and each.source_kind in _RECORDS and each.activity is Activity.RUNNING)
        for each in others
    )


def _why_lost(loser: Held, winner: Held) -> str:
    if loser.activity is winner.activity:
        return "says the same"
    if abs(winner.at - loser.at) <= SAME_MOMENT:
        return f"{winner.source_kind} ranks higher"
    if loser.at > winner.at:
        return "cannot see that the agent waits, or failed"
    return f"{winner.source_kind} said something else {_seconds(winner.at - loser.at)} later"


def _against_screen(
    best: Held,
    screen: ScreenTrack | None,
    now: datetime,
    poll_interval: timedelta,
    losers: list[Loser],
) -> Resolution:
    """Return the program's own word, unless its screen has long shown something else."""
    word = Resolution(
        best.activity,
        best.source_kind,
        best.at,
        EvidenceTier.DETERMINISTIC,
        f"{best.source_kind} said so: {best.event_type}",
    )
    if screen is None or screen.shown_since is None:
        return msgspec.structs.replace(word, losers=tuple(losers))
    is_frozen = screen.shown is Activity.RUNNING and screen.confirmed is not Activity.RUNNING
    if screen.shown in (best.activity, *_SAYS_NOTHING) or is_frozen:
        return msgspec.structs.replace(
            word, losers=(*losers, Loser(SourceKind.POLLER, _what_screen_says(screen, best)))
        )
    if best.activity.is_waiting and screen.shown.is_waiting:
        return _which_dialog(best, screen, word, losers)
    since = max(screen.shown_since, best.at)
    needed = _needed(best, screen.shown, poll_interval)
    if screen.shown.is_waiting and best.is_begun:
        needed = timedelta(0)  # whoever cannot see a dialog does not say that there is none
    if needed is None or now - since < needed:
        waits = Loser(
            SourceKind.POLLER, f"the screen shows {screen.shown}, {best.source_kind} decides"
        )
        return msgspec.structs.replace(word, losers=(*losers, waits))
    contradicted = Loser(
        best.source_kind,
        f"said {best.activity}; the screen has shown {screen.shown} for {_seconds(now - since)}",
    )
    return Resolution(
        screen.shown,
        SourceKind.POLLER,
        since,
        EvidenceTier.HEURISTIC,
        f"the screen contradicts {best.source_kind}",
        (*losers, contradicted),
    )


def _what_screen_says(screen: ScreenTrack, best: Held) -> str:
    if screen.shown is best.activity:
        return "says the same"
    is_blank = screen.shown is Activity.STARTING
    return "shows nothing yet" if is_blank else "shows nothing that we can read"


def _which_dialog(
    best: Held, screen: ScreenTrack, word: Resolution, losers: list[Loser]
) -> Resolution:
    """Both say that it waits. For what, a state file does not tell, and the screen does."""
    if best.source_kind is SourceKind.CLAUDE_SESSIONS:
        return msgspec.structs.replace(
            word,
            activity=screen.shown,
            why=f"{word.why}; the screen shows which of the two",
            losers=tuple(losers),
        )
    lost = Loser(SourceKind.POLLER, f"shows {screen.shown}, {best.source_kind} decides")
    return msgspec.structs.replace(word, losers=(*losers, lost))


def _needed(best: Held, shown: Activity, poll_interval: timedelta) -> timedelta | None:
    """Return how long a screen must show something to outweigh a word; None if it never does."""
    if shown.is_waiting:
        return SCREEN_SHOWS_DIALOG
    if shown is Activity.RUNNING:
        return SCREEN_SHOWS_WORK
    if best.activity in _AFTER_A_TURN and shown is Activity.IDLE:
        return None  # the prompt is back, and what the turn ended with is still so
    return idle_confirmation(poll_interval)


def _by_screen(screen: ScreenTrack, why: str, losers: list[Loser]) -> Resolution:
    return Resolution(
        screen.confirmed,
        SourceKind.POLLER,
        screen.confirmed_at or screen.shown_since,
        EvidenceTier.HEURISTIC,
        why,
        tuple(losers),
    )


def _seconds(duration: timedelta) -> str:
    return f"{duration.total_seconds():.1f} s"
