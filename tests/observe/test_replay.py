"""A recorded log tells the same story every time, and that story is the true one."""

import random
from collections.abc import Iterable
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.model.events import SESSION_ENDED
from bullpen.model.observations import Observation
from bullpen.model.states import Activity, EvidenceTier, Provider, SourceKind
from bullpen.observe.replay import (
    Label,
    LinkRow,
    Replay,
    ReplayReport,
    Row,
    UnreadableRecordingError,
    of_tier,
    read_rows,
    replay,
)
from tests.observe.projection.world import START, World, pane

RECORDINGS = Path(__file__).parents[1] / "recordings/replay"
LIVES = sorted(RECORDINGS.glob("*.jsonl"))
# Codex without hooks writes down that it uses a tool, and not that it asks before.
CANNOT_KNOW = {"codex.jsonl": {"waiting_approval"}}
HERE = pane()
STATES = {"idle", "running", "waiting_approval", "error", "none"}


def rows_of(path: Path) -> list[Row]:
    with path.open(encoding="utf-8") as file:
        return list(read_rows(file))


def knowable(path: Path, rows: Iterable[Row]) -> list[Row]:
    """Leave out labels that no program's own word could tell."""
    unknown = CANNOT_KNOW.get(path.name, set())
    return [row for row in rows if row.label is None or row.label.activity not in unknown]


def told(report: ReplayReport) -> list[str]:
    return [each.after.value for each in report.transitions]


def at(seconds: float, **what: object) -> Row:
    return msgspec.structs.replace(
        Row(at=START + timedelta(seconds=seconds)),
        **what,
    )


def observed(seconds: float, observation: Observation) -> Row:
    when = START + timedelta(seconds=seconds)
    return Row(at=when, observation=msgspec.structs.replace(observation, observed_at=when))


def label(seconds: float, activity: str, subject: str = "%0", session: str = "") -> Row:
    return at(seconds, label=Label(subject, activity, session))


# ------------------------------------------------------------------------------- the recorded lives


def test_the_lives_are_many_and_have_every_state() -> None:
    labels = [row.label for path in LIVES for row in rows_of(path) if row.label]
    assert len(labels) >= 300
    assert {path.name.partition(".")[0].partition("-")[0] for path in LIVES} >= {"claude", "codex"}
    for path in LIVES:
        assert {row.label.activity for row in rows_of(path) if row.label} == STATES


@pytest.mark.parametrize("path", LIVES, ids=lambda path: path.stem)
def test_a_life_that_is_seen_and_heard_is_told_rightly(path: Path) -> None:
    report = replay(rows_of(path))
    assert report.misses == ()
    assert (report.weighted_f1, report.waiting_recall) == (1.0, 1.0)


@pytest.mark.requirement("TG-12")
@pytest.mark.parametrize("path", LIVES, ids=lambda path: path.stem)
def test_what_programs_say_themselves_is_enough_where_they_say_it(path: Path) -> None:
    report = replay(knowable(path, of_tier(rows_of(path), EvidenceTier.DETERMINISTIC)))
    assert report.labels >= 50
    assert report.weighted_f1 >= 0.99, report.misses
    assert report.waiting_recall == 1.0


@pytest.mark.requirement("TG-13")
@pytest.mark.parametrize("path", LIVES, ids=lambda path: path.stem)
def test_screens_alone_are_nearly_enough(path: Path) -> None:
    report = replay(of_tier(rows_of(path), EvidenceTier.HEURISTIC))
    assert report.weighted_f1 >= 0.85, report.misses
    assert report.waiting_recall >= 0.85


@pytest.mark.parametrize("path", LIVES, ids=lambda path: path.stem)
def test_each_state_of_a_life_is_told_once(path: Path) -> None:
    states = [each for each in told(replay(rows_of(path))) if each not in ("starting", "unknown")]
    assert all(one != other for one, other in pairwise(states))
    assert states[-2:] == ["error", "exited"]
    assert states.count("waiting_approval") == 2


def test_the_same_file_tells_the_same_story() -> None:
    rows = rows_of(LIVES[0])
    assert replay(rows) == replay(rows)


def test_nothing_in_the_recordings_tells_of_the_machine_they_were_made_on() -> None:
    for path in LIVES:
        text = path.read_text(encoding="utf-8")
        assert not [
            each for each in ("/root", "/work", "bullpen-tmux-", "@anthropic") if each in text
        ]
    assert sum(path.stat().st_size for path in LIVES) < 310_000


# --------------------------------------------------------------------------------------- sources


@pytest.mark.requirement("TG-10", "RES-7", "RES-8")
def test_a_source_that_falls_silent_gives_way_and_comes_back_with_its_next_word() -> None:
    world = World()
    hooks = SourceKind.CLAUDE_HOOKS
    life = Replay()
    seen = observed(0, world.look(HERE, Activity.RUNNING))
    rows = [
        seen,
        observed(1, world.said("turn.started", where=HERE)),
        label(2, "running"),
        at(2, link=LinkRow(hooks, is_heard=False)),
        *(observed(2 + n, world.look(HERE, Activity.WAITING_APPROVAL)) for n in range(1, 5)),
        label(7, "waiting_approval"),
        observed(8, world.said("turn.completed", where=HERE)),
        label(8, "idle"),
    ]
    for row in rows:
        life.take(row)
    report = life.report()
    assert report.misses == ()
    assert [(each.after, each.source) for each in report.transitions][-2:] == [
        (Activity.WAITING_APPROVAL, SourceKind.POLLER),
        (Activity.IDLE, hooks),
    ]


@pytest.mark.requirement("TG-11")
def test_one_provider_s_silence_is_not_another_s() -> None:
    world = World()
    other = pane(1)
    codex = {"kind": SourceKind.CODEX_HOOKS, "provider": Provider.CODEX, "session": "codex:two"}
    report = replay(
        [
            observed(0, world.look(HERE, Activity.RUNNING)),
            observed(0, world.look(other, Activity.RUNNING, provider=Provider.CODEX)),
            observed(1, world.said("turn.started", where=HERE)),
            observed(1, world.said("turn.started", where=other, **codex)),  # type: ignore[arg-type]
            at(2, link=LinkRow(SourceKind.CODEX_HOOKS, is_heard=False)),
            observed(10, world.look(HERE, Activity.WAITING_APPROVAL)),
            observed(10, world.look(other, Activity.WAITING_APPROVAL, provider=Provider.CODEX)),
            label(10, "waiting_approval", "%1"),
            label(10, "running", "%0"),
        ]
    )
    assert report.misses == ()
    assert [(each.agent, each.source) for each in report.transitions[2:]] == [
        ("codex-1", SourceKind.POLLER)
    ]


@pytest.mark.requirement("RES-1", "RES-2")
def test_what_comes_twice_counts_once() -> None:
    world = World()
    once = observed(0, world.said("turn.started"))
    assert once.observation is not None
    other = msgspec.structs.replace(once.observation, session_key="claude:two")
    report = replay([once, once, Row(at=once.at, observation=other)])
    assert (report.accepted, report.dropped) == (2, {"duplicate": 1})


@pytest.mark.requirement("A5-4")
@given(seed=st.integers(0, 1000))
def test_the_order_within_a_batch_is_that_of_time(seed: int) -> None:
    world = World()
    words = ["turn.started", "tool.started", "tool.completed", "turn.completed"]
    batch = [
        Row(
            at=START + timedelta(seconds=10),
            observation=world.said(word, at=START + timedelta(seconds=number), pid=1),
        )
        for number, word in enumerate(words)
    ]
    random.Random(seed).shuffle(batch)
    report = replay([*batch, label(10, "idle", "claude:one")])
    assert (report.misses, report.dropped) == ((), {})


# ------------------------------------------------------------------------------------------- time


def test_a_prompt_is_believed_when_its_time_has_come() -> None:
    world = World()
    report = replay(
        [
            observed(0, world.look(HERE, Activity.RUNNING)),
            observed(1, world.look(HERE, Activity.IDLE)),
            label(4.9, "running"),
            label(6, "idle"),
        ]
    )
    assert report.misses == ()
    assert report.transitions[-1].at == START + timedelta(seconds=5.9)  # the next tick


def test_a_day_without_a_row_is_lived_through_in_no_time() -> None:
    world = World()
    rows = [observed(0, world.said("turn.started", pid=1)), label(86_400, "none", "claude:one")]
    assert replay(rows).misses == ()


def test_a_row_without_a_time_comes_when_it_was_observed_and_never_goes_back() -> None:
    world = World()
    life = Replay()
    life.take(Row(observation=world.said("turn.started")))
    assert life.now == START
    life.take(Row(observation=world.said("tool.started", ago=60)))
    assert life.now == START


# ------------------------------------------------------------------------------------------ misses


def test_a_miss_is_told_with_who_said_what() -> None:
    world = World()
    report = replay(
        [observed(0, world.said("turn.started", pid=1)), label(1, "idle", "claude:one")]
    )
    [miss] = report.misses
    assert (miss.subject, miss.expected, miss.found) == ("claude:one", "idle", "running")
    assert miss.explanation == (
        "won: claude_hooks turn.started 1.0 s ago: claude_hooks said so: turn.started",
    )
    assert report.weighted_f1 == 0.0


def test_of_whom_nobody_told_there_is_nothing_to_explain() -> None:
    report = replay([label(0, "idle", "%9"), label(0, "none", "%9")])
    assert [each.explanation for each in report.misses] == [("nobody has told of it",)]


def test_an_agent_that_is_gone_is_none() -> None:
    world = World()
    rows = [
        observed(0, world.said("turn.started", pid=1)),
        label(1, "running", "claude-1"),
        observed(2, world.said(SESSION_ENDED, pid=1)),
        label(2, "none", "claude-1"),
    ]
    assert replay(rows).misses == ()


def test_without_eyes_only_labels_that_name_a_session_are_judged() -> None:
    rows = [label(0, "idle"), label(0, "none", session="claude:one")]
    [judged] = of_tier(rows, EvidenceTier.DETERMINISTIC)
    assert judged.label == Label("claude:one", "none", "claude:one")
    assert list(of_tier(rows, EvidenceTier.HEURISTIC)) == rows


def test_sources_of_the_other_tier_are_not_heard() -> None:
    world = World()
    seen = observed(0, world.look(HERE, Activity.RUNNING))
    heard = observed(0, world.said("turn.started"))
    assert list(of_tier([seen, heard], EvidenceTier.HEURISTIC)) == [seen]
    assert list(of_tier([seen, heard], EvidenceTier.DETERMINISTIC)) == [heard]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"label": ', "line 2: Input data was truncated"),
        ('{"observation": {}}', "line 2: Object missing required field `event_id`"),
        ('{"labels": {}}', "line 2: Object contains unknown field `labels`"),
        ('{"at": "2026-01-01T00:00:00"}', "line 2: a time has no offset from UTC"),
    ],
)
def test_a_line_that_is_none_is_named(line: str, message: str) -> None:
    with pytest.raises(UnreadableRecordingError, match=message):
        list(read_rows(["\n", line]))
