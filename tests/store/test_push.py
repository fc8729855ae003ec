"""Addresses to post to are kept within bounds, and go with the task they belong to."""

import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bullpen.model.push import PushAddress
from bullpen.store.push import PushAddresses
from bullpen.store.store import Store
from tests.mail.samples import T0

SECRET = "very-secret"


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    found = await Store.open(tmp_path / "state.db", now=T0)
    yield found
    await found.aclose()


def address(task_id: str = "m-1", name: str = "a", **more: Any) -> PushAddress:
    config = {"url": "https://example.com/", "token": SECRET}
    said = {"agent": "codex", "owner": "a2a", "is_local": False, "config": config, **more}
    return PushAddress(task_id=task_id, id=name, **said)


async def save(kept: PushAddresses, *more: PushAddress, of_task: int = 3, most: int = 5) -> bool:
    return all([await kept.save(each, most_of_task=of_task, most=most) for each in more])


@pytest.mark.requirement("a2a:push")
async def test_an_address_is_kept_changed_ended_and_forgotten(store: Store) -> None:
    kept = PushAddresses(store.database)
    assert await save(kept, address(), address(name="b"))
    changed = address(owner="a2a:ci", is_local=True)
    assert await save(kept, changed)
    assert await kept.of_task("m-1") == (changed, address(name="b"))
    await kept.end("m-1", "b")
    assert await kept.unfinished() == (changed,)
    for _ in range(2):
        await kept.remove("m-1", "a")
    assert await kept.of_task("m-1") == (address(name="b"),)


async def test_there_is_only_so_much_room_and_the_oldest_that_are_over_give_it(
    store: Store,
) -> None:
    kept = PushAddresses(store.database)
    assert await save(kept, *(address(name=each) for each in "abc"))
    assert not await save(kept, address(name="d"))  # in its task
    assert await save(kept, address(name="a"))  # which is no new one
    assert await save(kept, address("m-2", "a"), address("m-2", "b"))
    assert not await save(kept, address("m-3"))  # in all
    await kept.end("m-1", "b")
    assert await save(kept, address("m-3"))
    assert [each.id for each in await kept.of_task("m-1")] == ["a", "c"]


@pytest.mark.requirement("a2a:push")
async def test_it_goes_with_its_task_and_nobody_else_can_read_it(store: Store) -> None:
    kept = PushAddresses(store.database)
    await save(kept, address(), address("m-2"))
    row = ("m-1", "a2a", "task_request", None, "m-1", T0.isoformat(), 1, "{}")
    query = "INSERT INTO message_v1 VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
    await store.database.write(lambda it: it.execute(query, row))
    await store.database.write(lambda it: it.execute("DELETE FROM message_v1"))
    assert await kept.unfinished() == (address("m-2"),)
    assert store.path is not None
    for path in store.path.parent.glob("state.db*"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_is_printed_of_it_has_no_secret() -> None:
    shown = address()
    assert SECRET not in f"{shown} {shown!r} {[shown]}"
    assert SECRET in msgspec.json.encode(shown).decode()
