"""Following a task from turn to turn, as the messages come that go on with it."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress

from bullpen.model.tasks import Task, TaskState
from bullpen.servers.a2a.room import Output, Room
from bullpen.servers.a2a.v1.events import Event, Telling

__all__ = ["Followers", "settled"]

LOOK_SECONDS = 10.0
MOST_TURNS = 100  # that one who follows has not read

_Told = Task | Output


class Followers:
    """Those who follow tasks of one agent."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._waiting: dict[str, set[asyncio.Queue[Task]]] = {}

    def begin(self, task_id: str, turn: Task) -> None:
        """Learn that a task has a further turn."""
        for news in self._waiting.get(task_id, ()):
            if not news.full():
                news.put_nowait(turn)

    async def turn(self, earlier: Sequence[Task], turn: Task) -> AsyncGenerator[Event]:
        """Yield what becomes of a turn: first the task, last where it ends or waits."""
        async with aclosing(self._room.watch(turn.id)) as told:
            telling: Telling | None = None
            async for each in told:
                if telling is None:
                    assert isinstance(each, Task)
                    telling = Telling(earlier, each)
                    yield telling.task()
                else:
                    for event in _events(telling, each):
                        yield event
                if telling.is_over:
                    return

    async def task(self, turns: Sequence[Task]) -> AsyncGenerator[Event]:
        """Yield what becomes of a task to its end, through all turns that are still to come."""
        news: asyncio.Queue[Task] = asyncio.Queue(MOST_TURNS)
        followers = self._waiting.setdefault(turns[0].id, set())
        followers.add(news)
        try:
            telling = Telling(turns[:-1], turns[-1])
            yield telling.task()
            turn: Task | None = turns[-1]
            known = {each.id for each in turns}
            while turn is not None:
                following: Task | None = None
                async with aclosing(self._either(turn, news)) as told:
                    async for is_turn, each in told:
                        if isinstance(each, Task) and each.next_turn:
                            is_turn, each = True, await self._room.task(each.next_turn)
                        if not is_turn or not isinstance(each, Task):
                            events = _events(telling, each)
                        elif each.id in known:
                            following = turn  # it was told already
                            break
                        else:
                            known.add(each.id)
                            following = each
                            events = list(telling.go_on(each))
                        for event in events:
                            yield event
                        if telling.has_ended:
                            return
                        if following is not None:
                            break
                turn = following
        finally:
            followers.discard(news)
            if not followers and self._waiting.get(turns[0].id) is followers:
                del self._waiting[turns[0].id]

    async def _either(
        self, turn: Task, news: "asyncio.Queue[Task]"
    ) -> AsyncGenerator[tuple[bool, _Told]]:
        """Yield what is told of a turn, until there is a further one: that is the last."""
        async with aclosing(self._room.watch(turn.id)) as told:
            further = asyncio.ensure_future(news.get())
            following = asyncio.ensure_future(anext(told))
            try:
                while True:
                    await asyncio.wait([further, following], return_when=asyncio.FIRST_COMPLETED)
                    if following.done():
                        try:
                            yield False, following.result()
                        except StopAsyncIteration:
                            return
                        following = asyncio.ensure_future(anext(told))
                    elif further.done():
                        yield True, further.result()
                        return
            finally:
                for each in (further, following):
                    each.cancel()
                await asyncio.wait([further, following])
                if not following.cancelled():
                    following.exception()  # it is looked at, so that nobody is told of it


async def settled(
    room: Room, turn: Task, is_there: Callable[[], Awaitable[bool]], seconds: float
) -> Task:
    """Return a turn when it is over, or waits for somebody, or as it is after so many seconds.

    One that nobody has begun waits for its agent when that is no longer there: `is_there` is asked
    from time to time.
    """

    async def look() -> None:
        await asyncio.sleep(LOOK_SECONDS)
        while turn.state is not TaskState.SUBMITTED or await is_there():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(LOOK_SECONDS)
        limit.reschedule(asyncio.get_running_loop().time())

    with suppress(TimeoutError):
        async with asyncio.timeout(seconds) as limit, aclosing(room.watch(turn.id)) as told:
            looking = asyncio.create_task(look())
            try:
                async for each in told:
                    if isinstance(each, Task):
                        turn = each
                        if each.state.is_over or each.state is TaskState.INPUT_REQUIRED:
                            break
            finally:
                looking.cancel()
                await asyncio.wait([looking])
                if not looking.cancelled():
                    looking.exception()  # it is looked at, so that nobody is told of it
    return turn


def _events(telling: Telling, told: _Told) -> "list[Event]":
    if isinstance(told, Output):
        return list(telling.say(told.text, is_new=told.is_new))
    return list(telling.change(told))
