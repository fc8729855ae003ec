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
import shutil
import stat
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bullpen.agents.providers.codex import appserver
from bullpen.agents.providers.codex.facts import CodexFact
from bullpen.agents.providers.codex.hearing import decode_for_watching, takes_nothing
from bullpen.agents.providers.codex.paths import control_socket
from bullpen.agents.providers.codex.threads import ThreadWatch
from bullpen.connection import (
    Connection,
    ConnectionClosed,
    RemoteError,
    RequestTimeout,
    Transport,
    TransportError,
    open_transport,
)
from bullpen.connection.transports.subprocess import SubprocessTransport
from bullpen.errors import BullpenError
from bullpen.jsonrpc.wire import Notification, Request, decode_value
from bullpen.model.observations import Origin
from bullpen.model.states import SourceKind
from bullpen.observe.sources.codex_facts import to_observation
from bullpen.observe.sources.port import Now, Source, SourceTrouble
from bullpen.terminal.tmux.backoff import Backoff

__all__ = ["CodexAppServer", "decode_for_watching"]

logger = logging.getLogger("bullpen.observe")

COMMAND: Final = ("codex", "app-server")
HANDSHAKE_SECONDS: Final = 10.0
ANSWER_SECONDS: Final = 5.0
# A look is not kept for longer than this by a server that takes its time to come up.
PATIENCE_SECONDS: Final = 5.0
JOIN_SECONDS: Final = 0.5  # the same, while we have another server
FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 30.0
STEADY_SECONDS: Final = 10.0  # a server that was there for so long is not one that fails at once
# The first client of a server gives it its name. Whoever started it should be that one.
SETTLE_SECONDS: Final = 3.0
WHOLE_LIST_EVERY: Final = 10  # looks, when only some directories are watched
READS_PER_LOOK: Final = 20
MOST_PATHS: Final = 1000
MOST_CWDS: Final = 200

FindCwds = Callable[[], Awaitable[Iterable[str]]]
"""Tells which directories to ask about."""


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
        find_cwds: FindCwds | None = None,
        clock: Callable[[], float] = time.monotonic,
        handshake_seconds: float = HANDSHAKE_SECONDS,
        answer_seconds: float = ANSWER_SECONDS,
        patience_seconds: float = PATIENCE_SECONDS,
        settle_seconds: float = SETTLE_SECONDS,
    ) -> None:
        """Nothing is started before the first look.

        Args:
            now: the time.
            home: Codex's own directory.
            command: how to start a server; the program is looked for on the PATH.
            environment: what it is started with instead of our own.
            client_version: which version of us it is told.
            find_cwds: tells in which directories Codex runs, asked at each look.
            clock: what pauses are measured by.
            handshake_seconds: how long a server may take to become ready.
            answer_seconds: how long it may take to answer.
            patience_seconds: how long a look waits for a server that is not ready yet.
            settle_seconds: how old a shared server is to be before we become its client.
        """
        super().__init__(now)
        self._home = home
        self._command = tuple(command)
        self._environment = environment
        self._client_version = client_version
        self._find_cwds = find_cwds
        self._clock = clock
        self._handshake_seconds = handshake_seconds
        self._answer_seconds = answer_seconds
        self._patience_seconds = patience_seconds
        self._settle_seconds = settle_seconds
        self._starting = _backoff()
        self._joining = _backoff()
        self._trouble = "codex app-server was not started yet"
        self._join_trouble = ""  # why a shared server cannot be heard
        self._link: _Link | None = None
        self._attempt: asyncio.Task[_Link | None] | None = None
        self._wanted: tuple[str, ...] = ()
        self._watched: tuple[str, ...] = ()
        self._has_new_cwds = False
        self._real_paths: dict[str, str] = {}
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
        wanted = tuple(sorted(set(paths)))[:MOST_CWDS]
        self._has_new_cwds |= wanted != self._wanted
        self._wanted = wanted

    async def look(self) -> None:
        link = await self._reach()
        if self._find_cwds is not None:
            self.watch_cwds(await self._find_cwds())
        try:
            await self._list_threads(link)
        except (ConnectionClosed, RequestTimeout, TransportError) as error:
            await self._lose(link, error)
        except RemoteError as error:
            raise SourceTrouble(f"codex does not list its threads: {error}") from error
        if self._clock() - link.since >= STEADY_SECONDS:
            self._backoff_of(link).succeeded()
        if self._join_trouble:
            raise SourceTrouble(self._join_trouble)

    async def aclose(self) -> None:
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.cancel()
            [outcome] = await asyncio.gather(attempt, return_exceptions=True)
            if isinstance(outcome, _Link):  # it was made and never used
                await outcome.connection.aclose()
        await self._let_go()

    # ------------------------------------------------------------------------- being connected

    async def _reach(self) -> "_Link":
        """Return the server we are connected to.

        Raises:
            SourceTrouble: there is none, or it is not ready, or not time to try again.
        """
        if self._link is not None and self._link.connection.is_closed:
            await self._lose(self._link, self._link.connection.cause)
        if self._link is None or not self._link.is_shared:
            await self._seek()
        if self._link is None:
            raise SourceTrouble(self._trouble, is_down=True)
        return self._link

    async def _seek(self) -> None:
        """Look for a better server than the one we have, and wait a little for it."""
        if self._attempt is None:
            socket = await asyncio.to_thread(self._find_socket)
            now = self._clock()
            if socket is None:
                self._join_trouble = ""
            elif not self._joining.may_try(now):
                socket = None
            if socket is None and (self._link is not None or not self._starting.may_try(now)):
                return
            if socket is None and not await asyncio.to_thread(self._is_installed):
                raise SourceTrouble(f"{self._command[0]} is not installed", is_absent=True)
            self._attempt = asyncio.create_task(self._attach(socket), name="codex:attach")
        patience = self._patience_seconds if self._link is None else JOIN_SECONDS
        await asyncio.wait([self._attempt], timeout=patience)
        if not self._attempt.done():
            self._trouble = "codex app-server is not ready yet"
            return
        attempt, self._attempt = self._attempt, None
        if (found := attempt.result()) is not None:
            await self._let_go()
            self._link = found

    async def _attach(self, socket: str | None) -> "_Link | None":
        """Return the server at a socket, else one that we start unless we have it already."""
        joined = await self._join(socket) if socket is not None else None
        if joined is None and self._link is None and self._starting.may_try(self._clock()):
            return await self._start()
        return joined

    async def _join(self, socket: str) -> "_Link | None":
        try:
            link = await self._connect(open_transport(f"ws+unix://{socket}"), is_shared=True)
        except (BullpenError, TimeoutError) as error:
            self._joining.failed(self._clock())
            heard = f"the app server that codex shares cannot be heard: {self._words(error)}"
            self._join_trouble = "" if _is_left_behind(error) else heard
            return None
        self._join_trouble = ""
        return link

    async def _start(self) -> "_Link | None":
        transport = SubprocessTransport(self._command, env=self._environment, cwd="/")
        try:
            return await self._connect(transport, is_shared=False)
        except (BullpenError, TimeoutError) as error:
            said = transport.stderr_tail.strip().splitlines()[-1:]
            self._starting.failed(self._clock())
            self._trouble = ": ".join(
                ["codex app-server cannot be used", self._words(error), *said]
            )
            return None

    async def _connect(self, transport: Transport, *, is_shared: bool) -> "_Link":
        watch = ThreadWatch(lambda fact: self._tell(watch, fact), is_shared=is_shared)
        builder = (
            Connection.builder()
            .name("codex")
            .timeout(self._answer_seconds)
            .route(takes_nothing, decode=decode_for_watching)
            .on_message(lambda message, _: self._hear(watch, message))
        )
        async with asyncio.timeout(self._handshake_seconds):
            connection = await builder.open(transport)
            try:
                params = appserver.initialize_params(self._client_version)
                answer = await connection.request(appserver.INITIALIZE, params, timeout=None)
                await connection.notify(appserver.INITIALIZED, {})
            except BaseException:
                await connection.aclose()
                raise
        self.version = appserver.version_of(answer)
        whose = "shared" if is_shared else "started by us"
        logger.info("codex app-server %s, %s, is connected", self.version, whose)
        return _Link(connection, watch, is_shared=is_shared, since=self._clock())

    def _is_installed(self) -> bool:
        environment = os.environ if self._environment is None else self._environment
        return shutil.which(self._command[0], path=environment.get("PATH")) is not None

    def _find_socket(self) -> str | None:
        """Return the socket of a shared server: of ours, and not of one that just starts."""
        try:
            path = os.path.realpath(control_socket(self._home))
            status = os.stat(path)  # noqa: PTH116  (what connects wants a text)
        except OSError:
            return None
        age = self._now().timestamp() - status.st_mtime
        is_ours = stat.S_ISSOCK(status.st_mode) and status.st_uid == os.getuid()
        return path if is_ours and not 0 <= age < self._settle_seconds else None

    async def _lose(self, link: "_Link", cause: object) -> None:
        """Let go of a server that is not what it was.

        Raises:
            SourceTrouble: always, to say so.
        """
        await self._let_go()
        self._backoff_of(link).failed(self._clock())
        self._trouble = f"codex app-server was lost: {self._words(cause)}"
        raise SourceTrouble(self._trouble, is_down=True)

    async def _let_go(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            await link.connection.aclose()

    def _backoff_of(self, link: "_Link") -> Backoff:
        return self._joining if link.is_shared else self._starting

    def _words(self, error: object) -> str:
        if isinstance(error, TimeoutError):
            return f"it was not ready within {self._handshake_seconds:g} s"
        return str(error) or type(error).__name__

    # ---------------------------------------------------------------------------------- asking

    async def _list_threads(self, link: "_Link") -> None:
        if self._has_new_cwds:
            self._has_new_cwds = False
            self._watched = await asyncio.to_thread(_with_real_paths, self._wanted)
        is_whole = not self._watched or link.looks % WHOLE_LIST_EVERY == 0
        if link.is_shared and link.looks == 0:
            link.watch.ask_about(await self._loaded(link))
        link.looks += 1
        if self._watched:
            await self._list(link, self._watched)
        if is_whole:
            await self._list(link, ())
        for thread_id in link.watch.unknown[:READS_PER_LOOK]:
            await self._read(link, thread_id)

    async def _list(self, link: "_Link", cwds: Sequence[str]) -> None:
        link.watch.ask_for_list()
        try:
            answer = await self._ask_list(link, cwds)
        except RemoteError:
            if link.is_plain:
                raise
            link.is_plain = True  # perhaps it does not know all that we ask for
            answer = await self._ask_list(link, cwds)
        threads = appserver.parse_threads(answer)
        await self._resolve(thread.cwd for thread in threads)
        for thread in threads:
            link.watch.learn(thread, self._now())

    async def _ask_list(self, link: "_Link", cwds: Sequence[str]) -> Any:
        params = appserver.list_params(cwds, is_plain=link.is_plain)
        return await link.connection.request(appserver.LIST, params)

    async def _loaded(self, link: "_Link") -> list[str]:
        """Return the threads a server runs. One without a prompt is not in the list yet."""
        try:
            answer = await link.connection.request(appserver.LOADED, {})
        except RemoteError:
            return []
        data = answer.get("data") if isinstance(answer, dict) else None
        return [each for each in data if isinstance(each, str)] if isinstance(data, list) else []

    async def _read(self, link: "_Link", thread_id: str) -> None:
        """Ask about a thread of which something was told before we knew whose it is."""
        try:
            answer = await link.connection.request(appserver.READ, {"threadId": thread_id})
        except RemoteError:
            answer = None  # it is gone already
        thread = appserver.read_thread(answer)
        if thread is None or thread.thread_id != thread_id:
            link.watch.forget(thread_id)
            return
        await self._resolve([thread.cwd])
        link.watch.learn(thread, self._now())

    async def _resolve(self, paths: Iterable[str]) -> None:
        """Find out where directories really are: panes are in those."""
        new = {path for path in paths if path not in self._real_paths}
        if not new:
            return
        if len(self._real_paths) > MOST_PATHS:
            self._real_paths.clear()
        self._real_paths |= await asyncio.to_thread(_real_paths, new)

    # ----------------------------------------------------------------------------- being told

    def _hear(self, watch: ThreadWatch, message: Request | Notification) -> None:
        """Take a notification, in the order they come, and before any later answer."""
        watch.hear(message.method, decode_value(message.params), self._now())

    def _tell(self, watch: ThreadWatch, fact: CodexFact) -> None:
        cwd = watch.cwd_of(fact.thread_id)
        observation = to_observation(
            fact,
            self.kind,
            event_id=f"{self._instance}:{next(self._numbers)}",
            at=self._now(),
            origin=Origin(cwd=self._real_paths.get(cwd, cwd)),
        )
        self._emit(observation)


class _Link:
    """A connection to one server, and what it has told us."""

    def __init__(
        self, connection: Connection, watch: ThreadWatch, *, is_shared: bool, since: float
    ) -> None:
        self.connection = connection
        self.watch = watch
        self.is_shared = is_shared
        self.since = since
        self.looks = 0
        self.is_plain = False


def _backoff() -> Backoff:
    return Backoff(first_seconds=FIRST_PAUSE_SECONDS, longest_seconds=LONGEST_PAUSE_SECONDS)


def _with_real_paths(paths: Sequence[str]) -> tuple[str, ...]:
    """Return the paths, and where they lead: Codex compares them letter by letter."""
    return tuple(sorted({*paths, *map(os.path.realpath, paths)}))


def _real_paths(paths: Iterable[str]) -> dict[str, str]:
    return {path: os.path.realpath(path) if path else "" for path in paths}


def _is_left_behind(error: BaseException) -> bool:
    """Whether a socket is there and nobody behind it, as after a server was killed."""
    return isinstance(error.__cause__, ConnectionRefusedError | FileNotFoundError)
