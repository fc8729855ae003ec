"""Write steps to a store without end, and print the number of each once it is written."""

import asyncio
import sys
from pathlib import Path

from bullpen.model.records import Commit
from bullpen.store.store import Store
from tests.store.samples import T0, ingested, pane


async def main(path: Path) -> None:
    store = await Store.open(path, now=T0)
    number = (await store.restore()).last_ingest_seq
    while True:
        number += 1
        step = Commit(observations=(ingested(number, payload="x" * 500),), panes=(pane(number),))
        await store.commit(step)
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()


asyncio.run(main(Path(sys.argv[1])))
