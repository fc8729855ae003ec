"""Whatever is wrong with the file: a clear word, the rest goes on, nothing is lost."""

import asyncio
import contextlib
import json
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bullpen.model.records import Commit
from bullpen.store.errors import StoreFull, StoreLocked, StoreTooNew
from bullpen.store.store import Store
from tests.store.conftest import OpenStore
from tests.store.samples import T0, ingested, pane, sql

PROGRAMS = Path(__file__).parent / "programs"
ROOT = Path(__file__).parents[2]
STEP = Commit(observations=(ingested(1),), panes=(pane(),))
NOBODY = 65534


def environment() -> dict[str, str]:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path.rstrip(os.pathsep)}


def content(path: Path) -> bytes:
    return path.read_bytes()


def write(path: Path, content: bytes) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def set_mode(path: Path, mode: int) -> None:
    path.chmod(mode)


def beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


async def assert_it_works(store: Store) -> None:
    await store.commit(STEP)
    assert (await store.restore()).panes == (pane(),)
    assert await store.events() == STEP.observations


# ------------------------------------------------------------------------------------- damage


async def fill(path: Path) -> None:
    """Make a database with a few hundred pages."""
    store = await Store.open(path, now=T0)
    rows = [ingested(number, payload="x" * 1000) for number in range(1, 301)]
    await store.commit(Commit(observations=tuple(rows), panes=(pane(),)))
    await store.aclose()


def overwrite(path: Path, start: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(start)
        file.write(content)


DAMAGES: dict[str, Any] = {
    "not a database": lambda path: path.write_bytes(b"this is a letter to my mother" * 100),
    "its first page is gone": lambda path: overwrite(path, 0, b"\0" * 4096),
    "its schema is garbage": lambda path: overwrite(path, 100, b"\xff" * 3000),
    "it is cut off": lambda path: os.truncate(path, 4096 * 5),
    "pages in the middle are garbage": lambda path: overwrite(path, 4096 * 20, b"\xab" * 40_960),
    "a table is missing": lambda path: sql(path, "DROP TABLE pane_state_v2"),
    "a column is missing": lambda path: sql(path, "ALTER TABLE alert_ledger_v1 DROP COLUMN count"),
    "it is somebody else's": lambda path: (
        sql(path, "PRAGMA user_version = 0"),
        sql(path, "CREATE TABLE IF NOT EXISTS mine (a)"),
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_damaged_file_is_put_aside_and_a_new_one_begun(
    path: Path, open_store: OpenStore, damage: str
) -> None:
    await fill(path)
    DAMAGES[damage](path)
    damaged = content(path)
    store = await open_store()
    aside = path.with_name("state.db.corrupt-20260131T120000Z")
    assert store.is_persistent
    [notice] = store.notices
    assert notice.startswith(f"{path}: is damaged or no database of bullpen: ")
    assert notice.endswith(f"; it was kept as {aside}, and a new one was begun")
    assert content(aside) == damaged
    assert await store.events() == ()
    await assert_it_works(store)
    await store.aclose()
    assert (await open_store()).notices == ()


async def test_what_belongs_to_a_damaged_file_goes_with_it(
    path: Path, open_store: OpenStore
) -> None:
    for suffix in ("", "-wal", "-shm"):
        write(beside(path, suffix), b"garbage" * 1000 + suffix.encode())
    store = await open_store()
    await assert_it_works(store)
    aside = path.with_name("state.db.corrupt-20260131T120000Z")
    for suffix in ("", "-wal", "-shm"):
        assert beside(aside, suffix) in path.parent.iterdir()
    for suffix in ("", "-wal"):  # what is in the third SQLite makes anew
        assert content(beside(aside, suffix)) == b"garbage" * 1000 + suffix.encode()


async def test_each_damaged_file_is_kept(path: Path, open_store: OpenStore) -> None:
    for number in range(3):
        write(path, b"garbage %d" % number * 1000)
        await (await open_store()).aclose()
    kept = sorted(path.parent.glob("state.db.corrupt-*"))
    assert [content(each)[:9] for each in kept] == [b"garbage 0", b"garbage 1", b"garbage 2"]


async def test_an_empty_file_is_a_new_database(path: Path, open_store: OpenStore) -> None:
    write(path, b"")
    store = await open_store()
    assert store.notices == ()
    await assert_it_works(store)


# ------------------------------------------------------------------------- nowhere to write to


@pytest.fixture
async def unprivileged(tmp_path: Path) -> AsyncIterator[Path]:
    """Give a directory to a user for whom permissions count, who we are meanwhile.

    That user may not enter `tmp_path`, nor perhaps read Python's modules: all is loaded before.
    """
    await fill(tmp_path / "before.db")
    with tempfile.TemporaryDirectory(prefix="bullpen-") as name:
        directory = Path(name)
        if os.geteuid() == 0:
            os.chown(directory, NOBODY, -1)
            os.seteuid(NOBODY)
        try:
            yield directory
        finally:
            if os.getuid() == 0:
                os.seteuid(0)
            set_mode(directory, 0o700)


async def test_a_file_that_cannot_be_written_is_left_alone(
    unprivileged: Path, open_store: OpenStore
) -> None:
    path = unprivileged / "state.db"
    await fill(path)
    set_mode(path, 0o400)
    before = content(path)
    store = await open_store(path)
    assert not store.is_persistent
    [notice] = store.notices
    assert notice.startswith(f"{path}: cannot be read or written: ")
    assert notice.endswith("; everything is kept in memory only, until the next start")
    await assert_it_works(store)
    await store.aclose()
    assert content(path) == before


@pytest.mark.parametrize("has_file", [False, True])
async def test_a_directory_that_cannot_be_written_is_left_alone(
    unprivileged: Path, open_store: OpenStore, has_file: bool
) -> None:
    path = unprivileged / "state.db"
    if has_file:
        await fill(path)
    set_mode(unprivileged, 0o500)
    store = await open_store(path)
    assert not store.is_persistent
    assert len(store.notices) == 1
    await assert_it_works(store)


async def test_a_damaged_file_that_cannot_be_put_aside_is_left_alone(
    unprivileged: Path, open_store: OpenStore
) -> None:
    path = unprivileged / "state.db"
    write(path, b"garbage" * 1000)
    set_mode(unprivileged, 0o500)
    store = await open_store(path)
    assert not store.is_persistent
    await assert_it_works(store)
    assert content(path) == b"garbage" * 1000


@pytest.mark.parametrize("place", ["file/state.db", "directory"])
async def test_a_place_where_no_file_can_be_is_told_of(
    tmp_path: Path, open_store: OpenStore, place: str
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "directory").mkdir()
    store = await open_store(tmp_path / place)
    assert not store.is_persistent
    assert store.notices[0].startswith(f"{tmp_path / place}: cannot be read or written: ")
    await assert_it_works(store)


async def test_files_are_for_their_owner_only(path: Path, open_store: OpenStore) -> None:
    old_umask = os.umask(0)
    try:
        store = await open_store()
        await assert_it_works(store)
    finally:
        os.umask(old_umask)
    modes = {each.name: mode(each) for each in path.parent.iterdir()}
    assert modes == {"state.db": 0o600, "state.db-wal": 0o600, "state.db-shm": 0o600}
    assert mode(path.parent) == 0o700


async def test_an_old_file_that_others_can_read_is_closed_to_them(
    path: Path, open_store: OpenStore
) -> None:
    await fill(path)
    set_mode(path, 0o644)
    await assert_it_works_again(await open_store())
    assert mode(path) == 0o600


async def assert_it_works_again(store: Store) -> None:
    assert store.notices == ()
    await store.commit(Commit(panes=(pane(2),)))
    assert (await store.restore()).panes == (pane(2),)


# ------------------------------------------------------------------------------ no room, no lock


async def test_a_full_database_takes_the_same_step_once_there_is_room(store: Store) -> None:
    def limit(pages: int) -> Any:
        return lambda connection: connection.execute(f"PRAGMA max_page_count = {pages}")

    step = Commit(observations=(ingested(1, payload="x" * 200_000),), panes=(pane(),))
    await store._database.write(limit(1))  # as few as there are
    with pytest.raises(StoreFull, match="there is no room on the disk"):
        await store.commit(step)
    assert (await store.restore()).panes == ()
    assert await store.events() == ()
    await store._database.write(limit(2**30))
    await store.commit(step)
    assert (await store.restore()).panes == (pane(),)
    assert await store.events() == step.observations


def run_out_of_room(kind: str, directory: Path, *prefix: str) -> dict[str, Any]:
    program = [sys.executable, str(PROGRAMS / "full_disk.py"), kind, str(directory)]
    done = subprocess.run(
        [*prefix, *program], env=environment(), capture_output=True, timeout=50, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return dict(json.loads(done.stdout))


def assert_nothing_was_lost(result: dict[str, Any]) -> None:
    written = result["written"]
    assert written > 5
    assert result["while_full"] == [written, written]
    assert result["after"] == [written + 1, written + 1]
    assert result["restarted"] == [written + 1, written + 1]
    assert (result["is_persistent"], result["notices"]) == (True, [])


def test_a_limit_on_the_size_of_files_loses_nothing(tmp_path: Path) -> None:
    result = run_out_of_room("limit", tmp_path)
    assert_nothing_was_lost(result)
    assert {name for name, _ in result["errors"]} <= {"StoreFull", "StoreUnavailable"}


def _can_mount() -> bool:
    command = ["unshare", "-rm", "mount", "-t", "tmpfs", "x", "/mnt"]
    if shutil.which("unshare") is None:
        return False
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    if not _can_mount():
        pytest.skip("no file system can be mounted here")
    result = run_out_of_room("disk", tmp_path, "unshare", "-rm")
    assert_nothing_was_lost(result)
    assert {name for name, _ in result["errors"]} == {"StoreFull"}


def test_without_any_room_from_the_start_it_is_in_memory(tmp_path: Path) -> None:
    if not _can_mount():
        pytest.skip("no file system can be mounted here")
    result = run_out_of_room("none", tmp_path, "unshare", "-rm")
    [notice] = result["notices"]
    assert notice.startswith(f"{tmp_path / 'state.db'}: there is no room on the disk")
    assert result["written"] == [1, 1]
    assert (result["kept"], result["later_notices"]) == ([False, True], [])


async def test_a_database_that_another_process_holds_is_not_opened(
    path: Path, open_store: OpenStore
) -> None:
    await fill(path)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreLocked, match="another process holds the database"):
            await open_store(lock_timeout_seconds=0.05)
        other.execute("ROLLBACK")
    await assert_it_works_again(await open_store())


async def test_a_database_of_a_later_version_is_not_touched(
    path: Path, open_store: OpenStore
) -> None:
    await fill(path)
    sql(path, "PRAGMA user_version = 99")
    before = {each: content(each) for each in path.parent.iterdir()}
    with pytest.raises(StoreTooNew, match="has schema version 99; this bullpen knows up to"):
        await open_store()
    assert content(path) == before[path]


async def test_a_later_version_that_is_in_the_write_ahead_log_only_is_not_touched(
    path: Path, open_store: OpenStore
) -> None:
    await fill(path)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA wal_autocheckpoint = 0")
        other.execute("PRAGMA user_version = 99")
        copies = path.parent.with_name("copy")
        shutil.copytree(path.parent, copies)  # as a process that was killed leaves it
    log = content(copies / "state.db-wal")
    before = content(copies / "state.db")
    with pytest.raises(StoreTooNew):
        await open_store(copies / "state.db")
    assert content(copies / "state.db") == before
    assert content(copies / "state.db-wal") == log


# ------------------------------------------------------------------------------------- killed


@pytest.mark.requirement("PER-2")
async def test_a_process_that_is_killed_leaves_every_step_it_had_written(
    path: Path, open_store: OpenStore
) -> None:
    written = 0
    for _ in range(3):
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            PROGRAMS / "endless_writer.py",
            path,
            env=environment(),
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        try:
            async with asyncio.timeout(30):
                for _ in range(100):
                    written = int(await process.stdout.readline())
        finally:
            process.kill()
            rest = await process.stdout.read()
            await process.wait()
        if rest:  # what it had said before it was killed; the last line may be cut
            written = int(rest.rpartition(b"\n")[0].splitlines()[-1] or written)
        store = await open_store()
        assert store.notices == ()
        log = await store.events(limit=100_000)
        assert [each.ingest_seq for each in log] == list(range(1, len(log) + 1))
        assert len(log) in (written, written + 1)  # one may have been written and not yet said
        assert (await store.restore()).panes[0].state_version == len(log)
        await store.aclose()
