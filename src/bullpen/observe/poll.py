"""What the poller says of a pane, and when, without I/O.

A pane is looked at every second and hardly ever changes. So an observation is made of a look when

- anything about the pane is not as it was last told;
- no agent was found for the first or the second time in a row: both are needed to believe it;
- what the agent does was another at the look before the last: it has been so twice;
- it has been so for as long as an idle prompt must stand to be believed;
- nothing was told for some time.

What changes with every look (a clock in a status line, a spinner) is in what is told, but is no
reason to tell it.
"""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from functools import cached_property

import msgspec

from bullpen.model.events import PANE_UNMANAGED, activity_event
from bullpen.model.states import Activity, Provider
from bullpen.model.views import PanePlace
from bullpen.observe.hysteresis import idle_confirmation
from bullpen.observe.pane import PaneVerdict
from bullpen.observe.reports import EvidenceLine, PaneReport, ScreenReport, SignatureReport
from bullpen.observe.signature import Signature
from bullpen.terminal.rules.engine import Verdict
from bullpen.terminal.tmux.listing import PaneInfo

__all__ = ["Pace", "PaneWatch", "PollReport", "ProcessMark", "Sight", "place_of", "report_of"]

REFRESH_SECONDS = 300.0  # whoever folds forgets nothing; each one is a row in the log
MOST_PROCESSES = 64  # of a pane that are told of, those nearest to it first
MOST_LOSERS = 5


class ProcessMark(msgspec.Struct, frozen=True):
    """A process that is nobody else's: by its id and when it started, as the system counts it."""

    pid: int
    start: str = ""


class PollReport(PaneReport, frozen=True, kw_only=True):
    """A look at a pane with all that the poller knows of it."""

    provider: Provider | None = None
    """Whose program it is, if there is an agent."""
    streak: int = 1
    """How many looks in a row, up to this one, said the same."""
    since: datetime
    """When the first of them was."""
    agent: ProcessMark | None = None
    """The process of the agent, if it is known."""
    processes: tuple[ProcessMark, ...] | None = None
    """The processes below the pane, parents first; None if nobody could look."""
    is_front_shell: bool = False
    """A shell in the pane waits for a command."""


class Sight(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """What one look at a pane gave."""

    judged: PaneVerdict
    place: PanePlace
    agent: ProcessMark | None = None
    processes: tuple[ProcessMark, ...] | None = None
    is_agent_gone: bool = False
    is_front_shell: bool = False

    @property
    def doing(self) -> tuple[Provider, Activity] | None:
        """Who does what; None if there is no agent."""
        provider = self.judged.provider
        return None if provider is None else (provider, self.judged.activity or Activity.UNKNOWN)

    @property
    def event_type(self) -> str:
        """The type of an observation of it."""
        return PANE_UNMANAGED if self.doing is None else activity_event(self.doing[1])

    @cached_property
    def shown(self) -> object:
        """Whatever is worth telling if it is another than before."""
        signature, verdict = self.judged.signature, self.judged.verdict
        return (
            self.doing,
            (signature.signature_class, signature.reason, signature.inputs, signature.refusal),
            verdict and (verdict.rule, verdict.prompt, verdict.ready, verdict.not_ready),
            msgspec.structs.replace(self.place, title=_without_spinner(self.place.title)),
            self.agent,
            self.processes,
            self.is_front_shell,
        )


class Pace(msgspec.Struct, frozen=True):
    """How often something is told that has not changed."""

    confirm: timedelta
    refresh: timedelta

    @classmethod
    def of(cls, interval_seconds: float, *, refresh_seconds: float = REFRESH_SECONDS) -> "Pace":
        """Return the pace for looks in such an interval."""
        interval = timedelta(seconds=interval_seconds)
        return cls(idle_confirmation(interval), timedelta(seconds=refresh_seconds))


class PaneWatch:
    """Follows one life of a pane from look to look."""

    def __init__(self, pace: Pace, *, last_output_at: datetime) -> None:
        self._pace = pace
        self._told: object = None
        self._told_at: datetime | None = None
        self._is_confirmed = False
        self._doing: tuple[Provider, Activity] | None = None
        self.provider = Provider.OTHER
        """Whose program was last in the pane."""
        self.streak = 0
        self.since = last_output_at
        self.last_output_at = last_output_at

    @property
    def no_agent_streak(self) -> int:
        """How many looks in a row, up to the last one, found no agent."""
        return self.streak if self._doing is None else 0

    def see(self, sight: Sight, now: datetime) -> bool:
        """Take a look; return whether to tell of it."""
        if self.streak and sight.doing == self._doing:
            self.streak += 1
        else:
            self._doing, self.streak, self.since = sight.doing, 1, now
            self._is_confirmed = False
        if sight.doing is not None:
            self.provider = sight.doing[0]
        is_due = self._is_due(sight, now)
        if is_due:
            self._told, self._told_at = sight.shown, now
        return is_due

    def _is_due(self, sight: Sight, now: datetime) -> bool:
        if not self._is_confirmed and now - self.since >= self._pace.confirm:
            self._is_confirmed = True
            return True
        if self.streak <= 2 or self._told_at is None:
            return True
        age = now - self._told_at
        is_fresh = timedelta(0) <= age < self._pace.refresh  # a clock may be set back
        return not is_fresh or sight.shown != self._told


def report_of(sight: Sight, watch: PaneWatch) -> PollReport:
    """Return what there is to tell of a look that was just taken."""
    judged = sight.judged
    marks = sight.processes
    return PollReport(
        place=sight.place,
        signature=_signature(judged.signature),
        screen=_screen(judged.verdict) if judged.verdict else None,
        pids=None if marks is None else tuple(each.pid for each in marks),
        last_output_at=watch.last_output_at,
        no_agent_streak=watch.no_agent_streak,
        is_agent_gone=sight.is_agent_gone,
        agent_pid=sight.agent.pid if sight.agent else 0,
        provider=judged.provider,
        streak=watch.streak,
        since=watch.since,
        agent=sight.agent,
        processes=marks,
        is_front_shell=sight.is_front_shell,
    )


def place_of(
    listed: Sequence[PaneInfo], socket_path: str, host_names: Collection[str] = ()
) -> PanePlace:
    """Return where a pane is, which is listed once for each session it can be seen in.

    Of several places it is the one where it can be seen now, else the first. The machine's own
    name is no title: tmux gives it to every pane whose program has set none.
    """
    info = next((each for each in listed if each.is_visible), listed[0])
    names = (each.session_name for each in listed if each.session_id != info.session_id)
    return PanePlace(
        tmux_socket=socket_path,
        session_id=info.session_id,
        session_name=info.session_name,
        window_id=info.window_id,
        window_index=info.window_index,
        window_name=info.window_name,
        pane_index=info.pane_index,
        pane_pid=info.pane_pid,
        tty=info.tty,
        width=info.width,
        height=info.height,
        is_active=info.is_active,
        is_visible=info.is_visible,
        is_dead=info.is_dead,
        current_command=info.current_command,
        current_path=info.current_path,
        title="" if info.title in host_names else info.title,
        also_in=tuple(dict.fromkeys(names)),
    )


def _signature(signature: Signature) -> SignatureReport:
    return SignatureReport(
        signature_class=signature.signature_class,
        reason=signature.reason,
        confidence=signature.confidence,
        inputs=signature.inputs,
        refusal=signature.refusal,
    )


def _screen(verdict: Verdict) -> ScreenReport:
    return ScreenReport(
        rule=verdict.rule or "",
        reason=verdict.reason,
        evidence=tuple(EvidenceLine(each.region, each.text, each.row) for each in verdict.evidence),
        prompt=verdict.prompt,
        is_ready=verdict.ready,
        not_ready=verdict.not_ready,
        losers=tuple(
            f"{each.rule} ({each.activity}): {each.why}" for each in verdict.losers[:MOST_LOSERS]
        ),
    )


def _without_spinner(title: str) -> str:
    """The title from its first letter or digit on: what turns before it is a spinner."""
    start = next((at for at, char in enumerate(title) if char.isalnum()), len(title))
    return title[start:]
