"""Who watches a task is told; who does no more, and what nobody watches, is forgotten."""

from bullpen.api.talk import WatchTasks
from bullpen.connection import Connection, Context
from bullpen.connection.transports.channel import channel_pair
from bullpen.daemon.watching import TaskWatch
from bullpen.model.tasks import Task


async def nothing(_: str) -> Task | None:
    return None


async def test_nothing_is_kept_of_what_was_watched_once() -> None:
    watch = TaskWatch(nothing)
    asked: list[Connection] = []

    def answer(request: WatchTasks, context: Context) -> bool:
        asked.append(context.connection)
        return watch.watch(request, context)

    here, there = channel_pair()
    daemon = Connection.builder().on_request(WatchTasks, answer)
    async with daemon.connect(there), Connection.builder().connect(here) as client:
        for number in range(3):
            wanted = (f"m-{number}",)
            await client.request(WatchTasks(task_ids=wanted, recipient="codex"), timeout=20)
            assert watch.is_watched(f"m-{number}")
            await client.request(WatchTasks(task_ids=wanted, watch=False), timeout=20)
            assert not watch.is_watched(f"m-{number}")
        [*_, connection] = asked
        assert len(connection._on_close) == 1, "one word at the end is enough"
        await client.request(WatchTasks(task_ids=("m-9",)), timeout=20)
    assert not watch.is_watched("m-9"), "who is gone watches nothing"
