"""Codex's app server: which threads there are, what they are called, and what they are doing.

There may be one that Codex's own programs share, which listens on a socket in Codex's directory: it
knows what every thread is doing that it runs, those of the terminal interface among them. Without
it we start a server of our own, which knows of other programs' threads only what is on disk: their
directories and names. Of such a thread it says `notLoaded`, and we assert nothing.

We only watch. What a server asks its clients (to approve a command, above all) is not ours to
answer, not even with "I do not know": on a shared server that would be an answer in the user's
name. So a request never becomes one on our side, see `decode_for_watching`. Nor do we take part in
threads: a client that does not is told of their status and names, and that is enough.
"""

import asyncio
import itertools
import logging
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import msgspec

from bullpen.agents.providers.codex import appserver
from bullpen.agents.providers.codex.appserver import Thread
from bullpen.agents.providers.codex.facts import CodexFact
from bullpen.agents.providers.codex.paths import control_socket
from bullpen.connection import (
    Connection,
    ConnectionClosed,
    Context,
    RemoteError,
    RequestTimeout,
    Transport,
    TransportError,
    open_transport,
)
from bullpen.connection.errors import CommandNotFound
from bullpen.connection.transports.subprocess import SubprocessTransport
from bullpen.errors import BullpenError
from bullpen.jsonrpc.codec import decode_frame
from bullpen.jsonrpc.wire import (
    Batch,
    Malformed,
    Message,
    Notification,
    Request,
    Response,
    decode_value,
)
from bullpen.model.observations import Origin
from bullpen.model.states import SourceKind
from bullpen.observe.sources.codex_facts import to_observation
from bullpen.observe.sources.port import Now, Source, SourceTrouble
from bullpen.terminal.tmux.backoff import Backoff

__all__ = ["CodexAppServer", "decode_for_watching"]

_One = Request | Notification | Response | Malformed

logger = logging.getLogger("bullpen.observe")

COMMAND: Final = ("codex", "app-server")
HANDSHAKE_SECONDS: Final = 10.0
ANSWER_SECONDS: Final = 5.0
FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 30.0
STEADY_SECONDS: Final = 10.0  # a server that was there for so long is not one that fails at once
# The first client of a server gives it its name. Whoever started it should be that one.
SETTLE_SECONDS: Final = 3.0
WHOLE_LIST_EVERY: Final = 10  # looks, when only some directories are watched
RECENT: Final = timedelta(minutes=15)  # a thread nobody runs that was used since may be resumed
MOST_THREADS: Final = 1000
MOST_HELD: Final = 100


class CodexAppServer(Source):
    """Watches the app server that Codex's programs share, or else one of our own."""

    kind = SourceKind.CODEX_APPSERVER

    def __init__(
        self,
        now: Now,
        *,
        home: Path,
        command: Sequence[str] = COMMAND,
        environment: Mapping[str, str] | None = None,
        client_version: str = "0",
        clock: Callable[[], float] = time.monotonic,
        handshake_seconds: float = HANDSHAKE_SECONDS,
        answer_seconds: float = ANSWER_SECONDS,
        settle_seconds: float = SETTLE_SECONDS,
    ) -> None:
        """Nothing is started before the first look.

        Args:
            now: the time.
            home: Codex's own directory.
            command: how to start a server; the program is looked for on the PATH.
            environment: what it is started with instead of our own.
            client_version: which version of us it is told.
            clock: what pauses are measured by.
            handshake_seconds: how long a server may take to become ready.
            answer_seconds: how long it may take to answer.
            settle_seconds: how old a shared server is to be before we become its client.
        """
        super().__init__(now)
        self._home = home
        self._command = tuple(command)
        self._environment = environment
        self._client_version = client_version
        self._clock = clock
        self._handshake_seconds = handshake_seconds
        self._answer_seconds = answer_seconds
        self._settle_seconds = settle_seconds
        self._backoff = _backoff()
        self._joining = _backoff()
        self._join_trouble = ""  # why a shared server cannot be heard
        self._trouble = "it was not started yet"
        self._link: _Link | None = None
        self._watched: tuple[str, ...] = ()
        self._wanted: tuple[str, ...] = ()
        self._has_new_cwds = False
        self._instance = secrets.token_hex(4)
        self._numbers = itertools.count(1)

    @property
    def is_alive(self) -> bool:
        """Whether a server is connected; if not, Codex is to be observed in other ways."""
        return self._link is not None and not self._link.connection.is_closed

    @property
    def is_shared(self) -> bool:
        """Whether it is the server of Codex's own programs, which knows what they are doing."""
        return self.is_alive and self._link is not None and self._link.is_shared

    def watch_cwds(self, paths: Iterable[str]) -> None:
        """Ask for threads in these directories; of all others only now and then."""
        wanted = tuple(sorted(set(paths)))
        self._has_new_cwds |= wanted != self._wanted
        self._wanted = wanted

    async def look(self) -> None:
        link = await self._reach()
        try:
            await self._list_threads(link)
        except (ConnectionClosed, RequestTimeout, TransportError) as error:
            await self._lose(link, error)
        except RemoteError as error:
            raise SourceTrouble(f"codex does not list its threads: {error}") from error
        if self._clock() - link.since >= STEADY_SECONDS:
            self._backoff.succeeded()
        if self._join_trouble:
            raise SourceTrouble(self._join_trouble)

    async def aclose(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            await link.connection.aclose()

    # ------------------------------------------------------------------------- being connected

    async def _reach(self) -> "_Link":
        """Return the server we are connected to, or connect to one.

        Raises:
            SourceTrouble: there is none, or it is not time to try again.
        """
        if self._link is not None and self._link.connection.is_closed:
            await self._lose(self._link, self._link.connection.cause)
        if self._link is None or not self._link.is_shared:
            shared = await self._join()
            if shared is not None:
                await self.aclose()
                self._link = shared
        if self._link is None:
            self._link = await self._start()
        return self._link

    async def _lose(self, link: "_Link", cause: object) -> None:
        """Let go of a server that is not what it was.

        Raises:
            SourceTrouble: always, to say so.
        """
        self._link = None
        await link.connection.aclose()
        reason = f"codex app-server was lost: {_words(cause)}"
        raise self._down(reason, self._joining if link.is_shared else self._backoff)

    def _down(self, reason: str, backoff: Backoff) -> SourceTrouble:
        backoff.failed(self._clock())
        self._trouble = reason
        return SourceTrouble(reason, is_down=True)

    async def _start(self) -> "_Link":
        if not self._backoff.may_try(self._clock()):
            raise SourceTrouble(self._trouble, is_down=True)
        transport = SubprocessTransport(self._command, env=self._environment, cwd="/")
        try:
            return await self._connect(transport, is_shared=False)
        except CommandNotFound as error:
            raise self._down(f"codex cannot be started: {error}", self._backoff) from error
        except (BullpenError, TimeoutError) as error:
            said = transport.stderr_tail.strip().splitlines()[-1:]
            late = f"no answer within {self._handshake_seconds:g} s"
            why = late if isinstance(error, TimeoutError) else _words(error)
            reason = ": ".join(["codex app-server is not ready", why, *said])
            raise self._down(reason, self._backoff) from error

    async def _join(self) -> "_Link | None":
        """Connect to the server that Codex's programs share, if there is one that can be heard."""
        path = await asyncio.to_thread(self._find_socket)
        if path is None:
            self._join_trouble = ""
            return None
        if not self._joining.may_try(self._clock()):
            return None
        try:
            link = await self._connect(open_transport(f"ws+unix://{path}"), is_shared=True)
        except (BullpenError, TimeoutError) as error:
            self._joining.failed(self._clock())
            self._join_trouble = "" if _is_left_behind(error) else _unheard(error)
            return None
        self._joining.succeeded()
        self._join_trouble = ""
        return link

    def _find_socket(self) -> str | None:
        """Return the socket of a shared server: of ours, and not of one that just starts."""
        try:
            path = os.path.realpath(control_socket(self._home))
            status = os.stat(path)  # noqa: PTH116  (the rest speaks of paths as text)
        except OSError:
            return None
        age = time.time() - status.st_mtime
        is_ours = stat.S_ISSOCK(status.st_mode) and status.st_uid == os.getuid()
        return path if is_ours and not 0 <= age < self._settle_seconds else None

    async def _connect(self, transport: Transport, *, is_shared: bool) -> "_Link":
        link = _Link(is_shared, self._clock())
        builder = (
            Connection.builder()
            .name("codex")
            .timeout(self._answer_seconds)
            .route(_takes_nothing, decode=decode_for_watching)
            .on_message(lambda message, context: self._hear(link, message, context))
        )
        async with asyncio.timeout(self._handshake_seconds):
            link.connection = await builder.open(transport)
            try:
                params = appserver.initialize_params(self._client_version)
                answer = await link.connection.request(appserver.INITIALIZE, params, timeout=None)
                await link.connection.notify(appserver.INITIALIZED, {})
            except BaseException:
                await link.connection.aclose()
                raise
        self.version = appserver.version_of(answer)
        logger.info(
            "codex app-server %s: %s", self.version, "shared" if is_shared else "started by us"
        )
        return link

    # ---------------------------------------------------------------------------------- asking

    async def _list_threads(self, link: "_Link") -> None:
        if self._has_new_cwds:
            self._has_new_cwds = False
            self._watched = await asyncio.to_thread(_with_real_paths, self._wanted)
        is_whole = not self._watched or link.looks % WHOLE_LIST_EVERY == 0
        if link.is_shared and link.looks == 0:
            link.unknown |= await self._loaded(link)
        link.looks += 1
        if self._watched:
            await self._list(link, self._watched)
        if is_whole:
            await self._list(link, ())
        await self._read_unknown(link)

    async def _list(self, link: "_Link", cwds: Sequence[str]) -> None:
        link.changed.clear()
        try:
            answer = await self._ask_list(link, cwds)
        except RemoteError:
            if link.is_plain:
                raise
            link.is_plain = True  # perhaps it does not know all that we ask for
            answer = await self._ask_list(link, cwds)
        newest: set[str] = set()  # directories of which the latest thread was seen
        for thread in appserver.parse_threads(answer):
            is_newest = thread.cwd in self._watched and thread.cwd not in newest
            newest.add(thread.cwd)
            self._learn(link, thread, is_worth_telling=is_newest)

    async def _ask_list(self, link: "_Link", cwds: Sequence[str]) -> Any:
        params = appserver.list_params(cwds, is_plain=link.is_plain)
        return await link.connection.request(appserver.LIST, params)

    async def _loaded(self, link: "_Link") -> set[str]:
        """Return the threads a server runs. One without a prompt is not in the list yet."""
        try:
            answer = await link.connection.request(appserver.LOADED, {})
        except RemoteError:
            return set()
        data = answer.get("data") if isinstance(answer, dict) else None
        return {each for each in data if isinstance(each, str)} if isinstance(data, list) else set()

    async def _read_unknown(self, link: "_Link") -> None:
        """Ask about threads of which something was told before we knew whose they are."""
        link.unknown -= link.threads.keys() | link.hidden
        for thread_id in sorted(link.unknown)[:MOST_HELD]:
            link.unknown.discard(thread_id)
            try:
                answer = await link.connection.request(appserver.READ, {"threadId": thread_id})
            except RemoteError:
                link.held.pop(thread_id, None)  # it is gone already
                continue
            if (thread := appserver.read_thread(answer)) is not None:
                self._learn(link, thread)

    # ----------------------------------------------------------------------------- being told

    def _hear(self, link: "_Link", message: Request | Notification, _context: Context) -> None:
        """Take a notification, in the order they come, and before any later answer."""
        params = decode_value(message.params)
        if message.method == "thread/started":
            if (thread := appserver.read_thread(params)) is not None:
                self._learn(link, thread)
            return
        fact = appserver.translate(message.method, params)
        if fact is None or fact.thread_id in link.hidden:
            return
        # The thread that thinks of a title exists on shared servers only, and may have begun
        # before we came. There, whoever we do not know has to wait until we have asked.
        if link.is_shared and fact.thread_id not in link.threads:
            link.hold(fact)
        else:
            self._tell(link, fact)

    def _learn(self, link: "_Link", thread: Thread, *, is_worth_telling: bool = False) -> None:
        """Take note of a thread, and tell what is new about it."""
        thread_id = thread.thread_id
        link.unknown.discard(thread_id)
        if thread.is_hidden:
            link.hide(thread_id)
            return
        link.know(thread)
        for fact in link.held.pop(thread_id, ()):
            self._tell(link, fact)
        if is_worth_telling or self._is_worth_telling(thread):
            self._tell_card(link, thread)
        event_type = thread.status.event_type
        # What we were told since we asked is newer than the answer.
        if (
            event_type is None
            or thread_id in link.changed
            or link.told.get(thread_id) == event_type
        ):
            return
        payload = {"status": thread.status.type, "flags": list(thread.status.flags)}
        self._tell(link, CodexFact(event_type=event_type, thread_id=thread_id, payload=payload))

    def _is_worth_telling(self, thread: Thread) -> bool:
        """Whether a thread is more than history."""
        if thread.status.event_type is not None or not thread.updated_at:
            return True
        return self._now().timestamp() - thread.updated_at <= RECENT.total_seconds()

    def _tell_card(self, link: "_Link", thread: Thread) -> None:
        """Tell a thread's name and place, once for each state of them. It asserts no activity."""
        card = {
            "title": thread.name,
            "cwd": thread.cwd,
            "status": thread.status.type,
            "updated_at": thread.updated_at,
            "preview": thread.preview,
            "source": thread.source,
        }
        if link.cards.get(thread.thread_id) == card:
            return
        link.cards[thread.thread_id] = card
        event_type = "session.named" if thread.name else "thread.listed"
        self._emit_fact(
            link, CodexFact(event_type=event_type, thread_id=thread.thread_id, payload=card)
        )

    def _tell(self, link: "_Link", fact: CodexFact) -> None:
        if fact.event_type.startswith("thread."):
            link.told[fact.thread_id] = fact.event_type
            link.changed.add(fact.thread_id)
        elif fact.event_type == "session.ended":
            link.told.pop(fact.thread_id, None)
        self._emit_fact(link, fact)

    def _emit_fact(self, link: "_Link", fact: CodexFact) -> None:
        thread = link.threads.get(fact.thread_id)
        observation = to_observation(
            fact,
            self.kind,
            event_id=f"{self._instance}:{next(self._numbers)}",
            at=self._now(),
            origin=Origin(cwd=thread.cwd if thread is not None else ""),
        )
        self._emit(observation)


class _Link:
    """A connection to one server, and what it has told us."""

    connection: Connection

    def __init__(self, is_shared: bool, since: float) -> None:
        self.is_shared = is_shared
        self.since = since
        self.looks = 0
        self.is_plain = False
        self.threads: dict[str, Thread] = {}
        self.hidden: set[str] = set()
        self.cards: dict[str, dict[str, Any]] = {}
        self.told: dict[str, str] = {}
        self.changed: set[str] = set()  # threads whose status we were told since we asked
        self.unknown: set[str] = set()
        self.held: dict[str, list[CodexFact]] = {}

    def know(self, thread: Thread) -> None:
        """Keep a thread; forget the one that was not heard of for longest, if there are many."""
        self.threads.pop(thread.thread_id, None)
        self.threads[thread.thread_id] = thread
        if len(self.threads) > MOST_THREADS:
            oldest = next(iter(self.threads))
            for table in (self.threads, self.cards, self.told):
                table.pop(oldest, None)

    def hide(self, thread_id: str) -> None:
        """Remember that a thread is nobody's."""
        self.held.pop(thread_id, None)
        if len(self.hidden) >= MOST_THREADS:
            self.hidden.clear()  # we shall ask again
        self.hidden.add(thread_id)

    def hold(self, fact: CodexFact) -> None:
        """Keep what was told of a thread until we know whose it is."""
        if fact.thread_id not in self.held and len(self.held) >= MOST_HELD:
            return
        facts = self.held.setdefault(fact.thread_id, [])
        facts.append(fact)
        del facts[:-MOST_HELD]
        self.unknown.add(fact.thread_id)


def decode_for_watching(frame: bytes) -> Message:
    """Return the message in a frame, so that there is nothing to answer.

    A connection owes every request an answer, if only that it is closing. Somebody who watches a
    server that others use must not give any, so a request becomes news of it.
    """
    message = decode_frame(frame)
    if isinstance(message, Batch):
        return Batch(map(_as_news, message))
    return _as_news(message)


def _as_news(message: _One) -> _One:
    if isinstance(message, Request):
        return Notification(message.method, message.params)
    if isinstance(message, Malformed):
        return msgspec.structs.replace(message, is_response=True)  # which nobody answers
    return message


def _takes_nothing(_message: Message, _context: Context | None, _size: int) -> bool:
    return False


def _backoff() -> Backoff:
    return Backoff(first_seconds=FIRST_PAUSE_SECONDS, longest_seconds=LONGEST_PAUSE_SECONDS)


def _with_real_paths(paths: Sequence[str]) -> tuple[str, ...]:
    """Return the paths, and where they lead: Codex compares them letter by letter."""
    return tuple(sorted({*paths, *map(os.path.realpath, paths)}))


def _is_left_behind(error: BaseException) -> bool:
    """Whether a socket is there and nobody behind it, as after a server was killed."""
    return isinstance(error.__cause__, ConnectionRefusedError | FileNotFoundError)


def _unheard(error: BaseException) -> str:
    return f"the app server that codex shares cannot be heard: {_words(error)}"


def _words(error: object) -> str:
    return str(error) or type(error).__name__
