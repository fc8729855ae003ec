"""A snapshot is a copy of all states, and is given out only if it is what was saved."""

import hashlib
from pathlib import Path

import pytest

from bullpen.model.records import Commit
from bullpen.store.errors import SnapshotInvalid, SnapshotNotFound, StoreError
from bullpen.store.store import Store
from tests.store.conftest import OpenStore
from tests.store.samples import SECOND, T0, alert, counted, ingested, link, pane, session, sql

STEP = Commit(
    observations=(ingested(1),),
    panes=(pane(title="a \ud83d"),),
    sessions=(session(),),
    bindings=(link(),),
    alerts=(alert(),),
)


@pytest.mark.requirement("A7-1", "A7-3")
async def test_a_snapshot_is_what_the_states_were(store: Store, path: Path) -> None:
    await store.commit(STEP)
    states = await store.restore()
    info = await store.save_snapshot("shutdown", T0, counted())
    await store.commit(Commit(panes=(pane(2),), observations=(ingested(2),)))
    assert await store.load_snapshot("s1") == (info, states)
    assert (info.snapshot_id, info.created_at, info.reason) == ("s1", T0, "shutdown")
    assert (info.panes, info.sessions, info.last_ingest_seq) == (1, 1, 1)
    assert sql(path, "SELECT length(CAST(content AS BLOB)), sha256 FROM state_snapshot_v2") == [
        (info.size_bytes, info.sha256)
    ]


async def test_snapshots_outlive_a_restart_and_are_listed_the_newest_first(
    open_store: OpenStore,
) -> None:
    store = await open_store()
    ids = counted()
    saved = [await store.save_snapshot("periodic", T0 + n * SECOND, ids) for n in (0, 2, 1, 1)]
    await store.aclose()
    listed = await (await open_store()).list_snapshots()
    assert listed == (saved[1], saved[3], saved[2], saved[0])


@pytest.mark.requirement("A7-1")
async def test_only_the_newest_snapshots_are_kept(open_store: OpenStore) -> None:
    store = await open_store(snapshots_kept=3)
    ids = counted()
    for number in range(5):
        await store.save_snapshot("periodic", T0 + number * SECOND, ids)
    assert [each.snapshot_id for each in await store.list_snapshots()] == ["s5", "s4", "s3"]


async def test_a_snapshot_that_is_not_there_is_not_found(store: Store) -> None:
    with pytest.raises(SnapshotNotFound, match="there is no snapshot s9"):
        await store.load_snapshot("s9")


@pytest.mark.requirement("A7-2")
async def test_a_snapshot_that_was_changed_is_not_given_out(store: Store, path: Path) -> None:
    await store.commit(STEP)
    await store.save_snapshot("manual", T0, counted())
    sql(path, "UPDATE state_snapshot_v2 SET content = replace(content, 'claude:a', 'claude:b')")
    with pytest.raises(SnapshotInvalid, match="snapshot s1 cannot be used: its checksum"):
        await store.load_snapshot("s1")
    sql(path, "UPDATE state_snapshot_v2 SET content = CAST(content AS BLOB)")
    with pytest.raises(SnapshotInvalid, match="checksum"):
        await store.load_snapshot("s1")


async def test_a_snapshot_that_this_version_cannot_read_is_invalid(
    store: Store, path: Path
) -> None:
    await store.save_snapshot("manual", T0, counted())
    content = '{"panes": 1}'
    checksum = hashlib.sha256(content.encode()).hexdigest()
    sql(path, "UPDATE state_snapshot_v2 SET content = ?, sha256 = ?", content, checksum)
    with pytest.raises(SnapshotInvalid, match="Expected `array`"):
        await store.load_snapshot("s1")
    sql(path, "UPDATE state_snapshot_v2 SET created_at = 'yesterday'")
    with pytest.raises(SnapshotInvalid, match="Invalid isoformat"):
        await store.load_snapshot("s1")


async def test_saving_a_snapshot_under_a_name_that_is_taken_changes_nothing(store: Store) -> None:
    info = await store.save_snapshot("manual", T0, lambda: "same")
    with pytest.raises(StoreError, match="UNIQUE"):
        await store.save_snapshot("manual", T0 + SECOND, lambda: "same")
    assert await store.list_snapshots() == (info,)
