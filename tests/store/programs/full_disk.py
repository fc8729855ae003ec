"""Write to a store until there is no room, make room, and go on; print what happened as JSON.

Room ends at a size of a file (`limit`) or of a disk in memory (`disk`), or there is none from the
start (`none`).
"""

import asyncio
import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

from bullpen.model.records import Commit
from bullpen.store.errors import StoreError
from bullpen.store.store import Store
from tests.store.samples import T0, ingested, pane

BALLAST = "ballast"


def step(number: int) -> Commit:
    observation = ingested(number, payload="x" * 20_000)
    return Commit(observations=(observation,), panes=(pane(number),))


def take_room(kind: str, directory: Path) -> None:
    if kind == "limit":
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))
    else:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "x", directory], check=True)
        size = 1_500_000 if kind == "disk" else 3 * 2**20
        (directory / BALLAST).write_bytes(b"x" * size)


def make_room(kind: str, directory: Path) -> None:
    if kind == "limit":
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    else:
        (directory / BALLAST).unlink()


async def main(kind: str, directory: Path) -> dict[str, Any]:
    take_room(kind, directory)
    store = await Store.open(directory / "state.db", now=T0)
    return await (begin_without if kind == "none" else run_out)(store, kind, directory)


async def begin_without(store: Store, kind: str, directory: Path) -> dict[str, Any]:
    await store.commit(step(1))
    written = await report(store)
    await store.aclose()
    make_room(kind, directory)
    later = await Store.open(directory / "state.db", now=T0)
    await later.aclose()
    return {
        "notices": store.notices,
        "kept": [store.is_persistent, later.is_persistent],
        "written": written,
        "later_notices": later.notices,
    }


async def run_out(store: Store, kind: str, directory: Path) -> dict[str, Any]:
    written = 0
    errors: list[list[str]] = []
    while len(errors) < 3 and written < 1000:
        try:
            await store.commit(step(written + 1))
            written += 1
        except StoreError as error:
            errors.append([type(error).__name__, str(error)])
    while_full = await report(store)
    make_room(kind, directory)
    await store.commit(step(written + 1))
    after = await report(store)
    await store.aclose()
    store = await Store.open(directory / "state.db", now=T0)
    restarted = await report(store)
    await store.aclose()
    return {
        "written": written,
        "errors": errors,
        "while_full": while_full,
        "after": after,
        "restarted": restarted,
        "notices": store.notices,
        "is_persistent": store.is_persistent,
    }


async def report(store: Store) -> list[int]:
    """Return how many observations there are, and the version of the pane."""
    states = await store.restore()
    return [len(await store.events(limit=10_000)), states.panes[0].state_version]


sys.stdout.write(json.dumps(asyncio.run(main(sys.argv[1], Path(sys.argv[2])))))
