"""The log is only ever appended to; retention forgets the oldest of it."""

import sqlite3
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bullpen.model.observations import Origin
from bullpen.model.records import Commit
from bullpen.store import store as module
from bullpen.store.store import Store
from tests.store.conftest import OpenStore
from tests.store.samples import PANE, SECOND, T0, alert, ingested, link, pane, sql

IN_PANE: dict[str, Any] = {
    "pane_id": "%1",
    "pane_generation": 0,
    "pane_birth_ts": T0,
    "tmux_server": "4711:1",
}


async def test_the_log_is_read_in_order_in_pieces(store: Store) -> None:
    log = tuple(ingested(number) for number in range(1, 8))
    await store.commit(Commit(observations=log))
    assert await store.events(limit=3) == log[:3]
    assert await store.events(after_seq=3, limit=3) == log[3:6]
    assert await store.events(after_seq=6, limit=3) == log[6:]
    assert await store.events(after_seq=7) == ()


async def test_the_log_of_one_session_or_one_pane_can_be_read(store: Store) -> None:
    in_pane = ingested(1, session_key="claude:b", **IN_PANE)
    respawned = ingested(2, **(IN_PANE | {"pane_generation": 1}))
    other_server = ingested(3, **(IN_PANE | {"tmux_server": "1:1"}))
    no_server = ingested(4, **(IN_PANE | {"tmux_server": None}))
    no_pane = ingested(5, origin=Origin(pid=7, cwd="/tmp/\udcff"))
    log = (in_pane, respawned, other_server, no_server, no_pane)
    await store.commit(Commit(observations=log))
    assert await store.events(pane=PANE) == (in_pane,)
    assert await store.events(pane=msgspec.structs.replace(PANE, server="")) == (no_server,)
    assert await store.events(session_key="claude:b") == (in_pane,)
    assert await store.events(session_key="claude:a") == log[1:]
    assert await store.events(session_key="claude:a", pane=PANE) == ()
    assert await store.events() == log


@pytest.mark.requirement("DB-1")
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE events_raw_v2 SET event_type = 'x'",
        "DELETE FROM events_raw_v2",
        "DELETE FROM events_raw_v2 WHERE ingest_seq = 1",
    ],
)
async def test_the_log_is_not_edited(store: Store, path: Path, statement: str) -> None:
    await store.commit(Commit(observations=(ingested(1), ingested(2))))
    with pytest.raises(sqlite3.IntegrityError, match="events_raw_v2 is append-only"):
        sql(path, statement)
    assert len(await store.events()) == 2


async def numbers(store: Store) -> list[int]:
    return [each.ingest_seq for each in await store.events()]


@pytest.mark.requirement("A2-4")
async def test_retention_forgets_what_is_older_but_for_the_newest(store: Store) -> None:
    log = [ingested(number, observed_at=T0 + number * SECOND) for number in range(1, 11)]
    await store.commit(Commit(observations=tuple(log)))
    assert await store.prune(T0 + 5 * SECOND, keep=2) == 4
    assert await numbers(store) == [5, 6, 7, 8, 9, 10]
    assert await store.prune(T0 + 100 * SECOND, keep=3) == 3
    assert await numbers(store) == [8, 9, 10]
    assert await store.prune(T0 + 100 * SECOND, keep=3) == 0


async def test_retention_looks_at_each_row_for_itself(store: Store) -> None:
    wrong_clock = ingested(1, observed_at=T0 + timedelta(days=9))
    read_late = ingested(3, observed_at=T0 - timedelta(days=9))
    await store.commit(Commit(observations=(wrong_clock, ingested(2), read_late, ingested(4))))
    assert await store.prune(T0, keep=1) == 1
    assert await numbers(store) == [1, 2, 4]


@pytest.mark.parametrize(("age", "keep"), [(3, 1), (100, 2)], ids=["too young", "kept"])
async def test_what_retention_left_cannot_be_removed_after_it(
    store: Store, path: Path, age: int, keep: int
) -> None:
    log = [ingested(number, observed_at=T0 + number * SECOND) for number in range(1, 5)]
    await store.commit(Commit(observations=tuple(log)))
    await store.prune(T0 + age * SECOND, keep=keep)
    assert await numbers(store) == [3, 4]
    for number in (3, 4):
        with pytest.raises(sqlite3.IntegrityError, match="but for retention"):
            sql(path, "DELETE FROM events_raw_v2 WHERE ingest_seq = ?", number)
    assert await numbers(store) == [3, 4]


async def test_no_number_is_given_twice_after_retention(open_store: OpenStore) -> None:
    store = await open_store()
    await store.commit(Commit(observations=(ingested(1), ingested(2))))
    assert await store.prune(T0 + SECOND, keep=0) == 1
    await store.aclose()
    assert (await (await open_store()).restore()).last_ingest_seq == 2


async def test_retention_goes_in_pieces(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PRUNED_AT_ONCE", 3)
    await store.commit(Commit(observations=tuple(ingested(number) for number in range(1, 12))))
    assert await store.prune(T0 + SECOND, keep=1) == 10
    assert await numbers(store) == [11]


async def test_retention_forgets_alerts_that_were_resolved(store: Store) -> None:
    still_open = alert("open")
    old = alert("old", resolved_at=T0)
    new = alert("new", resolved_at=T0 + 2 * SECOND)
    await store.commit(Commit(alerts=(still_open, old, new)))
    assert await store.prune(T0 + SECOND, keep=1) == 1
    kept = await store.alerts(include_resolved=True)
    assert {each.alert_id for each in kept} == {"open", "new"}


async def test_retention_forgets_links_but_for_the_last_of_a_pane_that_is_there(
    store: Store,
) -> None:
    gone = msgspec.structs.replace(PANE, pane_id="%9")
    first = link("first", T0, unbound_at=T0 + SECOND)
    last = link("last", T0 + SECOND, unbound_at=T0 + 2 * SECOND)
    of_gone = link("gone", T0, unbound_at=T0 + SECOND, pane_instance_id=gone)
    not_ended = link("not ended", T0 + SECOND, pane_instance_id=gone)
    await store.commit(Commit(panes=(pane(),), bindings=(first, last, of_gone, not_ended)))
    assert await store.prune(T0 + SECOND, keep=1) == 0
    assert await store.prune(T0 + 9 * SECOND, keep=1) == 2
    assert (await store.restore()).bindings == (last, not_ended)
