"""A connection to the app server of one agent's terminal, kept up and listened to.

The terminal interface of Codex is a client of that server, and so are we. We hear which thread it
shows and what happens in it, begin turns and interrupt them. What the server asks its clients is
the user's to answer: it is heard, and answered only with what somebody said who may.

A thread is there as soon as the terminal is, but until something was said in it nobody else can
join it. So a first turn may run, and even end, before we hear of it: it is looked up then.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

from bullpen.agents.providers.codex import appserver, turns
from bullpen.agents.providers.codex.facts import mapping, text
from bullpen.agents.providers.codex.hearing import decode_for_watching, takes_nothing
from bullpen.agents.providers.codex.questions import Question, Questions
from bullpen.agents.providers.codex.shown import ShownThread
from bullpen.agents.providers.codex.turns import TurnReader
from bullpen.agents.providers.turn_news import Sign, TurnNews
from bullpen.connection import (
    Connection,
    Notification,
    RemoteError,
    Request,
    open_transport,
)
from bullpen.daemon.doors.staying import stay_connected
from bullpen.errors import BullpenError
from bullpen.jsonrpc.wire import Response, decode_value
from bullpen.model.version import VERSION

__all__ = ["CodexLink", "NotConnected"]

logger = logging.getLogger("bullpen.daemon")

HANDSHAKE_SECONDS: Final = 10.0
ANSWER_SECONDS: Final = 10.0
# The first client of a server gives it its name, which model servers are told. That is to be the
# terminal, which joins within half a second.
SETTLE_SECONDS: Final = 2.0
MOST_FAILURES: Final = 8
JOIN_SECONDS: Final = 0.05  # to the next attempt to join a thread whose first turn runs
DOUBT_SECONDS: Final = 1.0
READS_AT_ONCE: Final = 20
MOST_AWAITED: Final = 100

_UNIX: Final = "unix://"


class NotConnected(BullpenError):
    """There is no server to send something to; nothing was sent."""

    def __init__(self, address: str) -> None:
        super().__init__(f"nobody is connected to the app server at {address}")
        self.address = address


class CodexLink:
    """The connection to one server, from `start` to `aclose`, through losses of it.

    `tell` is called with what is new of turns, and `changed` when the thread that is shown, its
    status or the connection has changed; both in the order things happened, and they must not wait.
    """

    def __init__(
        self,
        address: str,
        tell: Callable[[TurnNews], None],
        changed: Callable[[], None],
        *,
        now: Callable[[], datetime],
        awaited: Iterable[str] = (),
        handshake_seconds: float = HANDSHAKE_SECONDS,
        answer_seconds: float = ANSWER_SECONDS,
        settle_seconds: float = SETTLE_SECONDS,
        most_failures: int = MOST_FAILURES,
    ) -> None:
        """Nothing is done before `start`. `awaited` are turns whose end is to be looked up."""
        self.address = address
        self.shown = ShownThread()
        self.reader = TurnReader()
        self.is_gone = False
        """Whether it was given up: the server did not come (back)."""
        self._tell = tell
        self._changed = changed
        self._now = now
        self._handshake_seconds = handshake_seconds
        self._answer_seconds = answer_seconds
        self._settle_seconds = settle_seconds
        self._most_failures = most_failures
        self._awaited: dict[str, None] = dict.fromkeys(awaited)
        self._marks: dict[str, None] = {}  # of what we said ourselves
        self._joined: set[str] = set()
        self._young: set[str] = set()  # threads in which nothing was said when we came
        self._doubted: dict[str, float] = {}  # threads to look at again, and when
        self._connection: Connection | None = None
        self._is_settled = False
        self._was_connected = False
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._announced: object = None
        self.questions = Questions()
        """What the server asks its clients."""
        self._told = asyncio.Event()

    @property
    def is_connected(self) -> bool:
        """Whether the server is within hearing, and what it has is known."""
        connection = self._connection
        return connection is not None and not connection.is_closed and self._is_settled

    @property
    def is_coming(self) -> bool:
        """Whether it is still to be expected, as right after its start."""
        return not (self._was_connected or self.is_gone)

    @property
    def turn_id(self) -> str:
        """The turn that runs in the thread that is shown. Its end is told after the status."""
        return self.reader.running(self.shown.thread_id)

    def start(self) -> None:
        """Connect, and stay connected."""
        self._task = asyncio.create_task(self._run(), name="codex:link")

    async def aclose(self) -> None:
        """Let go of the server; it goes on."""
        self.is_gone = True
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def begin_turn(self, message: str, client_id: str) -> str:
        """Say something in the thread that is shown; return the turn it is said in.

        Raises:
            NotConnected: it was not sent.
            RemoteError: it was refused.
            RequestTimeout, ConnectionClosed, TransportError: it may have been taken, or not.
        """
        connection = self._connection
        if connection is None or connection.is_closed or not self.shown.thread_id:
            raise NotConnected(self.address)
        for table in (self._marks, self._awaited):
            _keep(table, client_id)
        params = turns.start_params(self.shown.thread_id, message, client_id)
        answer = await connection.request(turns.START, params)
        turn_id = text(mapping(mapping(answer).get("turn")).get("id"))
        _keep(self._awaited, turn_id)
        self._wake.set()  # perhaps the thread can be joined now
        return turn_id

    async def interrupt(self) -> bool:
        """Interrupt the turn that runs in the thread that is shown; whether it was."""
        thread_id, turn_id = self.shown.thread_id, self.turn_id
        connection = self._connection
        if connection is None or not turn_id:
            return False
        params = {"threadId": thread_id, "turnId": turn_id}
        try:
            await connection.request(turns.INTERRUPT, params)
        except (BullpenError, OSError):
            # A turn that has just ended by itself is not answered for.
            return self.is_connected and self.reader.running(thread_id) != turn_id
        return True

    @property
    def question(self) -> Question | None:
        """What is asked in the thread that is shown; None if nothing is, as far as was heard."""
        is_asking = self.is_connected and bool(self.shown.status.flags)
        return self.questions.last_in(self.shown.thread_id) if is_asking else None

    async def answer(self, question: Question, result: dict[str, Any]) -> bool:
        """Answer a question; return whether it counted: the first answer does.

        Raises:
            NotConnected: it was not sent.
        """
        connection = self._connection
        if connection is None or connection.is_closed or self.question is not question:
            raise NotConnected(self.address)
        connection.send_response(Response(question.request_id, result))
        with suppress(TimeoutError):
            async with asyncio.timeout(self._answer_seconds):
                while not question.is_resolved and not connection.is_closed:
                    self._told.clear()
                    await self._told.wait()
        return question.is_resolved

    # ------------------------------------------------------------------------- being connected

    async def _run(self) -> None:
        await stay_connected(
            self._try_to_serve,
            was_connected=lambda: self._was_connected,
            most_failures=self._most_failures,
        )
        self.is_gone = True
        self._announce()

    async def _try_to_serve(self) -> None:
        try:
            await self._serve()
        except (BullpenError, OSError, TimeoutError) as error:
            logger.debug("the app server at %s: %s", self.address, error)
        self._lose()

    async def _serve(self) -> None:
        """Connect, and listen until the connection is lost."""
        await self._let_settle()
        builder = (
            Connection.builder()
            .name("codex")
            .timeout(self._answer_seconds)
            .route(takes_nothing, decode=partial(decode_for_watching, on_request=self._note))
            .on_message(lambda message, _: self._hear(message))
        )
        address = self.address
        if address.startswith(_UNIX):
            address = f"ws+{address}"
        async with asyncio.timeout(self._handshake_seconds):
            connection = await builder.open(open_transport(address))
        try:
            params = turns.introduction(VERSION)
            async with asyncio.timeout(self._handshake_seconds):
                await connection.request(appserver.INITIALIZE, params, timeout=None)
                await connection.notify(appserver.INITIALIZED, {})
            connection.on_close(lambda _: self._wake.set())
            self._connection = connection
            await self._listen(connection)
        finally:
            await connection.aclose()

    async def _let_settle(self) -> None:
        """Let the terminal be the first client of a server that was just started."""
        if not self.address.startswith(_UNIX) or self._was_connected:
            return
        path = Path(self.address.removeprefix(_UNIX))
        age = self._now().timestamp() - (await asyncio.to_thread(path.stat)).st_mtime
        if 0 <= age < self._settle_seconds:
            await asyncio.sleep(self._settle_seconds - age)

    async def _listen(self, connection: Connection) -> None:
        answer = await connection.request(appserver.LOADED, {})
        data = mapping(answer).get("data")
        loaded = [text(each) for each in data] if isinstance(data, list) else []
        self.shown.begin(loaded)
        while not connection.is_closed:
            self._wake.clear()
            pause = await self._attend(connection)
            self._is_settled = self._was_connected = True
            self._announce()
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wake.wait()

    def _lose(self) -> None:
        self._connection = None
        self._is_settled = False
        self._joined.clear()
        self._doubted.clear()
        self.reader.forget()
        self.questions.forget()
        self._announce()

    # --------------------------------------------------------------------------------- asking

    async def _attend(self, connection: Connection) -> float | None:
        """Ask what is to be asked; return when to ask again if nothing happens, in seconds."""
        while unknown := self.shown.unknown[:READS_AT_ONCE]:
            for thread_id in unknown:
                await self._read(connection, thread_id)
        self.shown.settle()
        thread_id = self.shown.thread_id
        if thread_id in self._doubted:
            return await self._look_again(connection, thread_id)
        if not thread_id or thread_id in self._joined:
            return None
        if await self._join(connection, thread_id):
            self._joined.add(thread_id)
            return DOUBT_SECONDS if thread_id in self._doubted else None
        self._young.add(thread_id)
        return JOIN_SECONDS if self.shown.status.type == appserver.ACTIVE else None

    async def _read(self, connection: Connection, thread_id: str) -> None:
        try:
            answer = await connection.request(appserver.READ, {"threadId": thread_id})
        except RemoteError:
            answer = None  # it is gone already
        thread = appserver.read_thread(answer)
        if thread is None or thread.thread_id != thread_id:
            self.shown.forget(thread_id)
        else:
            self.shown.learn(thread)

    async def _join(self, connection: Connection, thread_id: str) -> bool:
        """Have all told that happens in a thread; False if that cannot be yet."""
        try:
            await connection.request(turns.RESUME, turns.resume_params(thread_id))
            answer = await connection.request(turns.TURNS, turns.turns_params(thread_id))
            latest = mapping(answer).get("data")
        except RemoteError:
            params = turns.resume_params(thread_id, is_plain=True)
            try:
                answer = await connection.request(turns.RESUME, params)
            except RemoteError:
                return False  # nothing was said in it so far
            oldest_first = mapping(mapping(answer).get("thread")).get("turns")
            latest = oldest_first[::-1] if isinstance(oldest_first, list) else None
        found = latest if isinstance(latest, list) else []
        if turns.is_doubtful(found):
            self._doubted[thread_id] = asyncio.get_running_loop().time() + DOUBT_SECONDS
        self._recall(thread_id, found)
        return True

    async def _look_again(self, connection: Connection, thread_id: str) -> float | None:
        """Find out whether a turn was interrupted that may only have been about to begin."""
        left = self._doubted[thread_id] - asyncio.get_running_loop().time()
        if left > 0:
            return left
        del self._doubted[thread_id]
        with suppress(RemoteError):
            answer = await connection.request(turns.TURNS, turns.turns_params(thread_id))
            latest = mapping(answer).get("data")
            self._recall(thread_id, latest if isinstance(latest, list) else [], is_sure=True)
        return None

    def _recall(self, thread_id: str, latest: list[Any], *, is_sure: bool = False) -> None:
        recalled = self.reader.recall(
            thread_id,
            latest,
            None if thread_id in self._young else self._awaited,
            is_active=self.shown.status.type == appserver.ACTIVE,
            is_sure=is_sure,
        )
        for news in recalled:
            self._tell(news)

    # ----------------------------------------------------------------------------- being told

    def _note(self, request: Request) -> None:
        """Take a question, in the order they come, and before what is told later."""
        self.questions.ask(request.id, request.method, decode_value(request.params))

    def _hear(self, message: Request | Notification) -> None:
        """Take a notification, in the order they come, and before any later answer."""
        method, params = message.method, decode_value(message.params)
        self.shown.hear(method, params)
        self.questions.hear(method, params)
        self._told.set()
        news = self.reader.hear(method, params)
        if news is not None:
            if news.sign is Sign.ASKED and news.client_id not in self._marks:
                self.shown.turn_to(news.session_id)  # the user said it, who sees the terminal
            self._tell(news)
        if self.shown.unknown or self.shown.thread_id not in self._joined:
            self._wake.set()
        if self._is_settled:
            self._announce()

    def _announce(self) -> None:
        shown = self.shown
        link = (self.is_connected, self.is_gone)
        thread = (shown.thread_id, shown.status, shown.is_ambiguous, bool(self.turn_id))
        state = (*link, *thread, self.question)
        if state != self._announced:
            self._announced = state
            self._changed()


def _keep(table: dict[str, None], key: str) -> None:
    table[key] = None
    if len(table) > MOST_AWAITED:
        del table[next(iter(table))]
