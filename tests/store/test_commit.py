"""A step is written wholly or not at all, and a restart finds every field of it."""

import asyncio
import logging
import tempfile
from collections.abc import Callable
from datetime import timedelta, timezone
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings

from bullpen.model.observations import PaneInstanceId
from bullpen.model.records import Commit, Restored
from bullpen.model.sources import CursorState, SourceHealth
from bullpen.model.states import Activity, HealthStatus, Provider, SourceKind
from bullpen.store.errors import StaleVersion, StoreError
from bullpen.store.store import Store, StoreCounts
from tests.store.conftest import OpenStore
from tests.store.samples import PANE, SECOND, T0, alert, ingested, link, pane, session, sql
from tests.store.strategies import commits

CURSOR = CursorState(
    source_kind=SourceKind.POLLER, fetched_cursor="2", committed_cursor="1", checkpoint_ts=T0
)
HEALTH = (SourceKind.POLLER, SourceHealth(status=HealthStatus.HEALTHY, checked_at=T0))
EVERYTHING = Commit(
    observations=(ingested(1), ingested(2)),
    panes=(pane(),),
    sessions=(session(),),
    bindings=(link(),),
    cursors=(CURSOR,),
    health=(HEALTH,),
    alerts=(alert(),),
)


KEYS: dict[str, Callable[[Any], Any]] = {
    "panes": lambda each: each.pane_instance_id,
    "sessions": lambda each: each.session_key,
    "bindings": lambda each: each.pane_instance_id,
    "cursors": lambda each: each.source_kind,
    "health": lambda each: each[0],
    "alerts": lambda each: each.alert_id,
}


@settings(max_examples=60)
@given(commit=commits())
def test_a_restart_finds_every_field_of_what_was_written(commit: Commit) -> None:
    async def write_and_restart(path: Path) -> tuple[Restored, Any]:
        store = await Store.open(path, now=T0)
        await store.commit(commit)
        await store.aclose()
        store = await Store.open(path, now=T0)
        try:
            return await store.restore(), await store.events()
        finally:
            await store.aclose()

    with tempfile.TemporaryDirectory() as directory:
        restored, events = asyncio.run(write_and_restart(Path(directory) / "state.db"))
    assert events == commit.observations
    assert restored.last_ingest_seq == len(commit.observations)
    for name, key in KEYS.items():
        found, written = getattr(restored, name), getattr(commit, name)
        assert {key(each): each for each in found} == {key(each): each for each in written}, name


@pytest.mark.requirement("PER-2", "Q3")
async def test_a_restart_goes_on_from_what_was_written(open_store: OpenStore) -> None:
    store = await open_store()
    await store.commit(EVERYTHING)
    await store.aclose()
    restored = await (await open_store()).restore()
    assert restored == Restored(
        panes=(pane(),),
        sessions=(session(),),
        bindings=(link(),),
        cursors=(CURSOR,),
        health=(HEALTH,),
        alerts=(alert(),),
        last_ingest_seq=2,
    )


@pytest.mark.requirement("DB-1")
async def test_the_same_observation_is_in_the_log_once(store: Store, path: Path) -> None:
    await store.commit(Commit(observations=(ingested(1, "same"),)))
    await store.commit(Commit(observations=(ingested(2, "same"), ingested(3, "other"))))
    assert sql(path, "SELECT ingest_seq, event_id FROM events_raw_v2") == [
        (1, "same"),
        (3, "other"),
    ]
    assert store.counts == StoreCounts(commits=2, observations=2, duplicates=1)


async def test_the_same_id_in_another_session_is_another_observation(store: Store) -> None:
    first, second = (
        ingested(1, "1", session_key="claude:a"),
        ingested(2, "1", session_key="claude:b"),
    )
    again = ingested(3, "1", session_key="claude:b")
    await store.commit(Commit(observations=(first, second)))
    await store.commit(Commit(observations=(again,)))
    assert await store.events() == (first, second)
    assert store.counts.duplicates == 1


async def test_a_number_is_given_to_one_observation_only(store: Store) -> None:
    await store.commit(Commit(observations=(ingested(1, "a"),)))
    with pytest.raises(StoreError, match=r"UNIQUE constraint failed: .*ingest_seq"):
        await store.commit(Commit(observations=(ingested(1, "b"),)))


@pytest.mark.requirement("DB-3")
async def test_two_lives_of_a_pane_are_two_rows(store: Store, path: Path) -> None:
    respawned = msgspec.structs.replace(PANE, generation=1)
    elsewhere = msgspec.structs.replace(PANE, server="4712:1")
    lives = (PANE, respawned, elsewhere)
    await store.commit(Commit(panes=tuple(pane(instance=each) for each in lives)))
    assert sql(path, "SELECT COUNT(*) FROM pane_state_v2") == [(3,)]
    assert {each.pane_instance_id for each in (await store.restore()).panes} == set(lives)


@pytest.mark.requirement("DB-2", "DB-3")
async def test_states_can_be_read_from_outside(store: Store, path: Path) -> None:
    state = pane(
        activity_state=Activity.WAITING_APPROVAL, provider=Provider.CODEX, no_agent_streak=1
    )
    await store.commit(Commit(panes=(state,), sessions=(session(7),)))
    columns = "pane_id, server, presence, activity_state, provider, no_agent_streak, updated_at"
    assert sql(path, f"SELECT {columns} FROM pane_state_v2") == [
        ("%1", "4711:1", "unmanaged", "waiting_approval", "codex", 1, "2026-01-31T12:00:00.000000Z")
    ]
    columns = "session_key, winner_tier, activity_source, state_version"
    assert sql(path, f"SELECT {columns} FROM session_state_v2") == [
        ("claude:a", "deterministic", "claude_hooks", 7)
    ]


@pytest.mark.requirement("DB-4")
async def test_binding_again_adds_a_link_and_keeps_the_old_one(store: Store, path: Path) -> None:
    first = link("claude:a")
    ended = msgspec.structs.replace(first, unbound_at=T0 + SECOND)
    second = link("claude:b", T0 + SECOND)
    await store.commit(Commit(bindings=(first,)))
    await store.commit(Commit(bindings=(ended, second)))
    assert sql(path, "SELECT session_key, unbound_at FROM binding_link_v2 ORDER BY bound_at") == [
        ("claude:a", "2026-01-31T12:00:01.000000Z"),
        ("claude:b", None),
    ]
    assert (await store.restore()).bindings == (ended, second)


async def test_of_the_links_that_ended_the_latest_of_each_pane_is_restored(store: Store) -> None:
    other_pane = msgspec.structs.replace(PANE, pane_id="%2")
    links = [
        link(str(number), T0 + number * SECOND, unbound_at=T0 + (number + 1) * SECOND)
        for number in range(3)
    ]
    elsewhere = link("x", T0, unbound_at=T0 + SECOND, pane_instance_id=other_pane)
    await store.commit(Commit(bindings=(*links, elsewhere)))
    assert (await store.restore()).bindings == (links[2], elsewhere)


@pytest.mark.requirement("DB-5", "DB-6", "A1-1", "A2-1", "IF-G3")
async def test_a_source_has_one_cursor_and_one_health(store: Store, path: Path) -> None:
    later = CursorState(
        source_kind=SourceKind.POLLER,
        fetched_cursor="9",
        committed_cursor="8",
        checkpoint_ts=T0 + SECOND,
    )
    down = (
        SourceKind.POLLER,
        SourceHealth(
            status=HealthStatus.DOWN, checked_at=T0 + SECOND, dropped={"late_event": 2}, accepted=3
        ),
    )
    await store.commit(EVERYTHING)
    await store.commit(Commit(cursors=(later,), health=(down,)))
    assert sql(path, "SELECT * FROM cursor_state_v2") == [
        ("poller", "9", "8", "2026-01-31T12:00:01.000000Z")
    ]
    assert sql(path, "SELECT source_kind, status, dropped FROM source_health_v2") == [
        ("poller", "down", '{"late_event":2}')
    ]
    restored = await store.restore()
    assert (restored.cursors, restored.health) == ((later,), (down,))


async def test_what_is_removed_is_not_restored(store: Store) -> None:
    other = PaneInstanceId("%2", 0, T0)
    await store.commit(Commit(panes=(pane(), pane(instance=other)), sessions=(session(),)))
    await store.commit(
        Commit(panes=(pane(2),), removed_panes=(PANE,), removed_sessions=("claude:a", "claude:z"))
    )
    restored = await store.restore()
    assert [each.pane_instance_id for each in restored.panes] == [other]
    assert restored.sessions == ()


@pytest.mark.requirement("A5-2")
@pytest.mark.parametrize("given", [1, 2], ids=["earlier", "the same"])
@pytest.mark.parametrize(
    ("kind", "key"), [("panes", "%1.0@4711:1"), ("sessions", "claude:a")], ids=["pane", "session"]
)
async def test_a_state_takes_the_place_of_an_earlier_one_only(
    store: Store, given: int, kind: str, key: str
) -> None:
    make: Callable[[int], Any] = pane if kind == "panes" else session
    await store.commit(Commit(**{kind: (make(2),)}))
    with pytest.raises(StaleVersion) as caught:
        await store.commit(Commit(**{kind: (make(given),)}))
    assert (caught.value.key, caught.value.stored, caught.value.given) == (key, 2, given)
    await store.commit(Commit(**{kind: (make(3),)}))
    assert getattr(await store.restore(), kind) == (make(3),)


@pytest.mark.requirement("IF-G4", "A5-2")
async def test_of_a_step_that_is_refused_nothing_is_written(store: Store) -> None:
    await store.commit(Commit(sessions=(session(5),)))
    before = await store.restore()
    with pytest.raises(StaleVersion):
        await store.commit(EVERYTHING)
    assert await store.restore() == before
    assert await store.events() == ()
    assert store.counts == StoreCounts(commits=1)


async def test_a_step_without_content_writes_nothing(store: Store) -> None:
    await store.commit(Commit())
    assert store.counts.commits == 0


@pytest.mark.requirement("A6-3")
async def test_alerts_are_kept_and_listed_the_newest_first(store: Store, path: Path) -> None:
    first, second = alert("a1"), alert("a2", raised_at=T0 + SECOND)
    await store.commit(Commit(alerts=(first, second)))
    assert await store.alerts() == (second, first)
    resolved = msgspec.structs.replace(second, resolved_at=T0 + 2 * SECOND, count=4)
    await store.commit(Commit(alerts=(resolved,)))
    assert await store.alerts() == (first,)
    assert await store.alerts(include_resolved=True) == (resolved, first)
    assert await store.alerts(include_resolved=True, limit=1) == (resolved,)
    assert (await store.restore()).alerts == (first,)
    assert sql(path, "SELECT alert_id, count FROM alert_ledger_v1 ORDER BY alert_id") == [
        ("a1", 1),
        ("a2", 4),
    ]


async def test_a_row_that_cannot_be_read_is_left_out_and_told_of(
    store: Store, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    unknown = ingested(1, provider="acme")
    await store.commit(Commit(sessions=(session(), session(key="claude:b")), health=(HEALTH,)))
    await store.commit(Commit(observations=(unknown, ingested(2))))
    sql(path, "UPDATE session_state_v2 SET state = '{\"a\": 1}' WHERE session_key = 'claude:b'")
    sql(path, "UPDATE source_health_v2 SET checked_at = 'yesterday'")
    with caplog.at_level(logging.WARNING):
        restored = await store.restore()
        assert await store.events() == (ingested(2),)
    assert (restored.sessions, restored.health) == ((session(),), ())
    assert "a row of events_raw_v2 cannot be read" in caplog.text
    assert "a row of session_state_v2 cannot be read" in caplog.text
    assert "a row of source_health_v2 cannot be read" in caplog.text


async def test_steps_written_at_once_are_all_there(store: Store) -> None:
    steps = [
        Commit(observations=(ingested(number),), panes=(pane(number),)) for number in range(1, 101)
    ]
    await asyncio.gather(*map(store.commit, steps))
    assert [each.ingest_seq for each in await store.events()] == list(range(1, 101))
    assert (await store.restore()).panes == (pane(100),)


async def test_in_memory_it_is_the_same_store(open_store: OpenStore) -> None:
    store = await open_store(None)
    assert (store.is_persistent, store.notices, store.path) == (False, (), None)
    await store.commit(EVERYTHING)
    assert (await store.restore()).panes == (pane(),)
    assert await store.events() == EVERYTHING.observations


async def test_a_pane_whose_birth_is_told_in_another_zone_is_the_same_pane(store: Store) -> None:
    elsewhere = PANE.birth_ts.astimezone(timezone(timedelta(hours=9)))
    await store.commit(Commit(panes=(pane(1),)))
    again = msgspec.structs.replace(PANE, birth_ts=elsewhere)
    await store.commit(Commit(panes=(pane(2, again),)))
    assert len((await store.restore()).panes) == 1
