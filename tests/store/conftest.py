"""A store in a file of its own, and more of them on the same file."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from bullpen.store.store import Store
from tests.store.samples import T0

OpenStore = Callable[..., Awaitable[Store]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "state.db"


@pytest.fixture
async def open_store(path: Path) -> AsyncIterator[OpenStore]:
    stores: list[Store] = []

    async def open_one(path: Path | None = path, **options: Any) -> Store:
        stores.append(await Store.open(path, now=T0, **options))
        return stores[-1]

    yield open_one
    for store in stores:
        await store.aclose()


@pytest.fixture
async def store(open_store: OpenStore) -> Store:
    return await open_store()
