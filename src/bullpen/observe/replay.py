"""Living through a recorded log again, and comparing what was said with what was true.

A recording is a file of JSON lines, in the order in which things came to the gateway. Each row has
a time and one thing:

    {"at": "…Z", "observation": {…}}                      what a source claimed
    {"at": "…Z", "link": {"source_kind": "…", "is_heard": false}}    a source falls silent, or not
    {"at": "…Z", "label": {"subject": "%1", "activity": "running"}}  what was true then

Time is that of the rows: nothing here reads a clock, waits, or asks anybody, so that the same file
always tells the same story. A row without a time comes when what it observed happened. Every source
in the file is heard of all the time, unless a row says otherwise. Rows of one time are one batch.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta

import msgspec

from bullpen.api.methods import PROTOCOL_VERSION
from bullpen.errors import BullpenError
from bullpen.model.observations import Observation
from bullpen.model.states import Activity, EvidenceTier, SourceKind
from bullpen.model.views import Explanation
from bullpen.observe.evaluate import (
    NO_AGENT,
    ClassScore,
    class_scores,
    waiting_recall,
    weighted_f1,
)
from bullpen.observe.explain import explain_pane, explain_session
from bullpen.observe.gateway import Gateway
from bullpen.observe.projection import Projection
from bullpen.observe.records import Step
from bullpen.observe.subjects import PaneRecord, SessionRecord

__all__ = [
    "Label",
    "LinkRow",
    "Replay",
    "ReplayMiss",
    "ReplayReport",
    "Row",
    "Transition",
    "UnreadableRecordingError",
    "of_tier",
    "read_rows",
    "replay",
]

TICK = timedelta(seconds=1)
MOST_TICKS = 120  # between two rows: of a longer gap each stands for more
BATCH = 500
NONCE = "replay"


class UnreadableRecordingError(BullpenError):
    """A recording cannot be read. The message says which line, and what is wrong with it."""


class Label(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was true at a moment, by whoever knew."""

    subject: str
    """A pane (`%1`), a session (`claude:…`) or an agent's name."""
    activity: str
    """A word for what it was doing; `none` if there was no agent."""
    session: str = ""
    """The session in the pane, for a replay in which nobody sees panes."""


class LinkRow(msgspec.Struct, frozen=True):
    """Whether a source is heard of, from now on."""

    source_kind: SourceKind
    is_heard: bool


class Row(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One line of a recording."""

    at: datetime | None = None
    observation: Observation | None = None
    link: LinkRow | None = None
    label: Label | None = None


class Transition(msgspec.Struct, frozen=True):
    """An agent began to do something else."""

    at: datetime
    agent: str
    before: Activity
    after: Activity
    source: SourceKind
    reason: str


class ReplayMiss(msgspec.Struct, frozen=True):
    """A moment at which something else was said than was true, and on what evidence."""

    at: datetime
    subject: str
    expected: str
    found: str
    explanation: tuple[str, ...]


class ReplayReport(msgspec.Struct, frozen=True):
    """What became of a recording."""

    accepted: int
    dropped: dict[str, int]
    """How many observations made no difference, by the word for why."""
    transitions: tuple[Transition, ...]
    labels: int
    weighted_f1: float
    waiting_recall: float
    classes: tuple[ClassScore, ...]
    misses: tuple[ReplayMiss, ...]


def read_rows(lines: Iterable[str]) -> Iterator[Row]:
    """Yield the rows of a recording.

    Raises:
        UnreadableRecordingError: a line is none.
    """
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = msgspec.json.decode(line, type=Row)
        except (ValueError, RecursionError) as error:
            raise UnreadableRecordingError(f"line {number}: {error}") from error
        for time in (row.at, row.observation.observed_at if row.observation else None):
            if time is not None and time.tzinfo is None:
                raise UnreadableRecordingError(f"line {number}: a time has no offset from UTC")
        yield row


def of_tier(rows: Iterable[Row], tier: EvidenceTier) -> Iterator[Row]:
    """Yield the rows as if there were only sources of one tier.

    Where nobody looks at panes, only labels that name a session can be judged.
    """
    for row in rows:
        if row.observation is not None and row.observation.source_kind.tier is not tier:
            continue
        if row.label is not None and tier is EvidenceTier.DETERMINISTIC:
            if not row.label.session:
                continue
            row = msgspec.structs.replace(
                row, label=msgspec.structs.replace(row.label, subject=row.label.session)
            )
        yield row


def replay(rows: Iterable[Row], *, poll_interval: timedelta = TICK) -> ReplayReport:
    """Live through a recording; return what was said, beside what was true."""
    life = Replay(poll_interval=poll_interval)
    for row in rows:
        life.take(row)
    return life.report()


class Replay:
    """A gateway and a projection whose time is that of a recording."""

    def __init__(self, *, poll_interval: timedelta = TICK) -> None:
        self._now = datetime.min.replace(tzinfo=UTC)
        self._gateway: Gateway | None = None
        self.projection = Projection(poll_interval=poll_interval)
        self.transitions: list[Transition] = []
        self._silent: dict[SourceKind, bool] = {}
        self._batch: list[Observation] = []
        self._pairs: list[tuple[str, str]] = []
        self._misses: list[ReplayMiss] = []

    @property
    def now(self) -> datetime:
        """The time it has come to."""
        return self._now

    @property
    def gateway(self) -> Gateway:
        """The gateway, which is there from the first row on: it has a time to begin with."""
        if self._gateway is None:
            self._gateway = Gateway(lambda: self._now, nonce=NONCE, owner_uid=0)
        return self._gateway

    def take(self, row: Row) -> None:
        """Let time pass up to a row, and take it."""
        at = row.at or (row.observation.observed_at if row.observation else None)
        if at is not None and at.astimezone(UTC) > self._now:
            self._fold()
            self._pass_to(at.astimezone(UTC))
        if row.link is not None:
            self._fold()
            self._hear(row.link)
        if row.observation is not None:
            self._batch.append(row.observation)
        if row.label is not None:
            self._fold()
            self._judge(row.label)

    def report(self) -> ReplayReport:
        """Return what became of all that was taken."""
        self._fold()
        health = [each for _, each in self.gateway.health()]
        dropped: dict[str, int] = {}
        for each in health:
            for word, count in each.dropped.items():
                dropped[word] = dropped.get(word, 0) + count
        classes = class_scores(self._pairs)
        return ReplayReport(
            accepted=sum(each.accepted for each in health),
            dropped=dict(sorted(dropped.items())),
            transitions=tuple(self.transitions),
            labels=len(self._pairs),
            weighted_f1=weighted_f1(classes),
            waiting_recall=waiting_recall(self._pairs),
            classes=classes,
            misses=tuple(self._misses),
        )

    # ---------------------------------------------------------------------------------------- time

    def _pass_to(self, at: datetime) -> None:
        """Tick up to a time, as the daemon would, or less often if that is long."""
        if self._gateway is None:
            self._now = at
            return
        step = max(TICK, (at - self._now) / MOST_TICKS)
        while self._now + step < at:
            self._now += step
            self._tick()
        self._now = at
        self._tick()

    def _tick(self) -> None:
        for kind, is_silent in self._silent.items():
            if not is_silent:
                self.gateway.heartbeat(kind)
        self._apply()

    def _hear(self, link: LinkRow) -> None:
        self._register(link.source_kind)
        self._silent[link.source_kind] = not link.is_heard
        self._tick()

    def _register(self, kind: SourceKind) -> None:
        if kind not in self._silent:
            self._silent[kind] = False
            self.gateway.hello(kind, nonce=NONCE, protocol_version=PROTOCOL_VERSION, peer_uid=0)

    # ------------------------------------------------------------------------------------- folding

    def _fold(self) -> None:
        if not self._batch:
            return
        batch, self._batch = self._batch, []
        for each in batch:
            self._register(each.source_kind)
            self.gateway.ingest(each.source_kind, [each])
        self._apply()

    def _apply(self) -> None:
        links = self.gateway.links()
        while True:
            batch = self.gateway.unfolded(BATCH)
            self._note(self.projection.apply(batch, links, self._now))
            if len(batch) < BATCH:
                return

    def _note(self, step: Step) -> None:
        for folded in step.outcomes:
            if folded.reason is not None:
                self.gateway.note_dropped(folded.source_kind, folded.reason)
        self.transitions += [
            Transition(
                change.at,
                change.agent.name,
                change.previous_activity,
                change.agent.activity,
                change.agent.source,
                change.agent.reason,
            )
            for change in step.changes
            if change.agent is not None and change.previous_activity is not None
        ]

    # ------------------------------------------------------------------------------------- judging

    def _judge(self, label: Label) -> None:
        record = self._find(label.subject)
        agent = record.agent if record else None
        found = agent.activity.value if agent else NO_AGENT
        self._pairs.append((label.activity, found))
        if found != label.activity:
            explanation = ("nobody has told of it",) if record is None else self._explain(record)
            self._misses.append(
                ReplayMiss(self._now, label.subject, label.activity, found, explanation)
            )

    def _find(self, subject: str) -> PaneRecord | SessionRecord | None:
        records = self.projection.records
        if session := records.sessions.get(subject):
            return records.pane_of(session) or session
        panes = [each for each in records.panes.values() if subject in (each.name, each.id.pane_id)]
        if panes:
            return panes[-1]  # of one that was respawned, the latest
        return next((each for each in records.sessions.values() if each.name == subject), None)

    def _explain(self, record: PaneRecord | SessionRecord) -> tuple[str, ...]:
        links = self.gateway.links()
        if isinstance(record, PaneRecord):
            return _lines(explain_pane(self.projection, record, links, self._now))
        return _lines(explain_session(record, links, self._now))


def _lines(explanation: Explanation) -> tuple[str, ...]:
    claims = (
        f"{'won' if each.is_winner else 'lost'}: {each.source_kind} {each.event_type}"
        f" {each.age_seconds:.1f} s ago: {each.why}"
        for each in explanation.claims
    )
    return (*claims, *(f"refused: {each}" for each in explanation.refused))
