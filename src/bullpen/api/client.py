"""The one way to the daemon: typed requests, and what changes as it changes.

async with Client.connect() as client:          # starts a daemon if there is none
    for pane in await client.panes():
        ...
    async for told in client.subscribe():       # everything first, then each change
        ...
"""

import asyncio
import errno
import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from bullpen.api import methods
from bullpen.api.errors import DaemonUnavailable, ProtocolMismatchError
from bullpen.api.runtime import Paths
from bullpen.api.talk import TaskChanged, TaskOutput
from bullpen.connection import (
    AddressError,
    Builder,
    Connection,
    ConnectionClosed,
    Context,
    RemoteError,
    RequestTimeout,
    SocketTransport,
    Transport,
    TypedRequest,
)
from bullpen.model.alerts import Alert
from bullpen.model.records import SnapshotInfo
from bullpen.model.sources import SourceHealth, SourceRegistration
from bullpen.model.states import SourceKind
from bullpen.model.views import (
    AgentState,
    Explanation,
    PaneState,
    SessionState,
    StateChange,
    Summary,
)

__all__ = ["Client", "Resync", "Told"]

ANSWER_SECONDS = 10.0
MARGIN_SECONDS = 5.0  # beyond what the daemon was asked to wait at most
MOST_UNREAD = 10_000  # changes nobody has taken: after that everything is listed again

ABSENT = {errno.ENOENT, errno.ECONNREFUSED, errno.ENOTDIR}

R = TypeVar("R")


class Resync(msgspec.Struct, frozen=True, kw_only=True):
    """Everything there is, in the place of changes that were not told.

    It is at least as new as `version`; what is told next may repeat a part of it.
    """

    version: int
    panes: tuple[PaneState, ...]
    sessions: tuple[SessionState, ...]
    agents: tuple[AgentState, ...]
    summary: Summary


Told = StateChange | Summary | Resync
"""What a subscriber is told."""


class Client:
    """A connection to a daemon. Made by `connect`, or by `over` any transport."""

    def __init__(self, connection: Connection, info: methods.DaemonInfo, unread: "_Unread") -> None:
        self._connection = connection
        self._unread = unread
        self.info = info
        """Which daemon it is, as of when we connected."""

    def __repr__(self) -> str:
        return f"<Client of pid {self.info.pid} at {self.info.socket_path}>"

    # ------------------------------------------------------------------------------ connecting

    @classmethod
    @asynccontextmanager
    async def connect(
        cls,
        where: Paths | str | os.PathLike[str] | None = None,
        *,
        start: bool = True,
        start_command: Sequence[str] | None = None,
        timeout_seconds: float = ANSWER_SECONDS,
    ) -> AsyncIterator["Client"]:
        """Speak to the daemon at the usual socket, or another, for a block.

        Without a daemon there, one is started, unless `start` says not to.

        Raises:
            DaemonUnavailable: there is none, or it does not answer, or not in our version.
            DirectoryError: our directories cannot be used.
            SocketPathError: no socket can be made at such a path.
        """
        paths = where if isinstance(where, Paths) else Paths.resolve(socket=where)
        try:
            client = await cls._open(paths.socket, timeout_seconds)
        except _Absent as absent:
            if not start:
                raise DaemonUnavailable(f"no daemon is running: {absent}") from absent
            from bullpen.api.start import start_daemon  # what most calls need not load

            await start_daemon(paths, command=start_command)
            client = await cls._open(paths.socket, timeout_seconds)
        try:
            yield client
        finally:
            await client._connection.aclose()

    @classmethod
    @asynccontextmanager
    async def over(
        cls, transport: Transport, *, timeout_seconds: float = ANSWER_SECONDS
    ) -> AsyncIterator["Client"]:
        """Speak to the daemon at the other end of a transport, for a block."""
        unread = _Unread()
        async with unread.builder.connect(transport) as connection:
            connection.on_close(unread.close)
            yield cls(connection, await _greet(connection, "", timeout_seconds), unread)

    @classmethod
    async def _open(cls, socket: Path, seconds: float) -> "Client":
        unread = _Unread()
        try:
            connection = await unread.builder.open(SocketTransport.unix(str(socket)))
        except AddressError as error:
            cause = error.__cause__
            if isinstance(cause, OSError) and cause.errno in ABSENT:
                raise _Absent(str(error)) from error
            raise DaemonUnavailable(f"the daemon cannot be reached: {error}") from error
        connection.on_close(unread.close)
        try:
            return cls(connection, await _greet(connection, f" at {socket}", seconds), unread)
        except BaseException:
            await connection.aclose()
            raise

    @property
    def is_closed(self) -> bool:
        """Whether the daemon, or we, have hung up."""
        return self._connection.is_closed

    async def wait_closed(self) -> None:
        """Wait until the daemon, or we, have hung up."""
        await self._connection.wait_closed()

    # -------------------------------------------------------------------------------- requests

    async def request(self, request: TypedRequest[R], *, timeout: float = ANSWER_SECONDS) -> R:
        """Ask anything.

        Raises:
            RemoteError: the daemon refused; `reason_of` says why.
            DaemonUnavailable: it is gone.
            RequestTimeout: it does not answer.
        """
        try:
            return await self._connection.request(request, timeout=timeout)
        except ConnectionClosed as closed:
            raise _gone(closed) from closed
        except msgspec.ValidationError as error:
            raise DaemonUnavailable(
                f"the daemon's answer to {request.METHOD} makes no sense: {error}"
            ) from error

    async def panes(self) -> tuple[PaneState, ...]:
        """Return every pane of every tmux server, with an agent in it or not."""
        return await self.request(methods.ListPanes())

    async def sessions(self) -> tuple[SessionState, ...]:
        """Return every session of an agent, in a pane or not."""
        return await self.request(methods.ListSessions())

    async def agents(self) -> tuple[AgentState, ...]:
        """Return every agent, wherever it runs."""
        return await self.request(methods.ListAgents())

    async def summary(self) -> Summary:
        """Return all of it in numbers."""
        return await self.request(methods.GetSummary())

    async def source_health(self) -> dict[SourceKind, SourceHealth]:
        """Return how each source fares."""
        health = await self.request(methods.ListSourceHealth())
        return dict(health)

    async def source_registry(self) -> tuple[SourceRegistration, ...]:
        """Return which sources have said hello."""
        return await self.request(methods.ListSourceRegistry())

    async def alerts(self, *, include_resolved: bool = False) -> tuple[Alert, ...]:
        """Return the alerts, newest first."""
        return await self.request(methods.ListAlerts(include_resolved=include_resolved))

    async def ack_alert(self, alert_id: str) -> Alert:
        """Acknowledge an alert."""
        return await self.request(methods.AckAlert(alert_id=alert_id))

    async def tmux_status(self) -> str:
        """Return one line for tmux's status bar."""
        return await self.request(methods.TmuxStatus())

    async def explain(self, subject: str) -> Explanation:
        """Return why we say what we say of an agent, a pane or a session."""
        return await self.request(methods.Explain(subject=subject))

    async def latency(self) -> dict[str, methods.LatencyStatus]:
        """Return how late changes are told, by tier."""
        return await self.request(methods.GetLatency())

    async def changes(
        self, since_version: int, *, timeout_seconds: float = 0.0
    ) -> methods.ChangesReply:
        """Return what became different since a version; wait for it if nothing did."""
        request = methods.GetChanges(since_version=since_version, timeout_seconds=timeout_seconds)
        return await self.request(request, timeout=timeout_seconds + MARGIN_SECONDS)

    async def wait(
        self, agent: str, *until: str, timeout_seconds: float = 60.0
    ) -> methods.WaitReply:
        """Wait until an agent is doing one of these; at once if it is already."""
        request = methods.Wait(agent=agent, until=until, timeout_seconds=timeout_seconds)
        return await self.request(request, timeout=timeout_seconds + MARGIN_SECONDS)

    async def report(self, report: methods.Report) -> methods.IngestReply:
        """Say what an agent of one's own is doing."""
        return await self.request(report)

    async def bind_pane(self, pane: str, session_key: str, *, expected_version: int) -> PaneState:
        """Say which session is in a pane."""
        return await self.request(
            methods.BindPane(pane=pane, session_key=session_key, expected_version=expected_version)
        )

    async def save_snapshot(self, reason: str = "manual") -> SnapshotInfo:
        """Keep a copy of the state."""
        return await self.request(methods.SaveSnapshot(reason=reason))

    async def snapshots(self) -> tuple[SnapshotInfo, ...]:
        """Return the copies there are, newest first."""
        return await self.request(methods.ListSnapshots())

    async def restore_snapshot(
        self, snapshot_id: str, *, dry_run: bool = True
    ) -> methods.RestoreReport:
        """Go back to a copy, or see what that would do."""
        return await self.request(methods.RestoreSnapshot(snapshot_id=snapshot_id, dry_run=dry_run))

    async def shutdown(self) -> None:
        """End the daemon. It may still be closing when this returns."""
        await self.request(methods.Shutdown())

    # --------------------------------------------------------------------------------- changes

    async def subscribe(self, *, since_version: int | None = None) -> AsyncIterator[Told]:
        """Yield what changes, as long as the daemon is there.

        Without a version to go on from, everything there is comes first; so it does where changes
        were not told, by whoever's fault. No change comes twice. One may subscribe once at a time.

        Raises:
            DaemonUnavailable: it is gone. What it had told before has been yielded.
        """
        unread = self._unread
        unread.begin()
        try:
            reply = await self.request(methods.Subscribe(since_version=since_version))
            if since_version is None or reply.resync_required:
                version = reply.version
                yield await self._list_everything(version)
            else:
                version = since_version
            while True:
                told = await unread.take()
                if isinstance(told, StateChange):
                    if told.version <= version:
                        continue
                    if told.version > version + 1:
                        yield await self._list_everything(told.version)
                    version = told.version
                yield told
        except ConnectionClosed as closed:
            raise _gone(closed) from closed
        finally:
            unread.end()

    def on_task(self, hear: Callable[[TaskChanged | TaskOutput], None]) -> None:
        """Have somebody told what is told of tasks, in order; `WatchTasks` says of which."""
        self._unread.hear_task = hear

    async def _list_everything(self, version: int) -> Resync:
        """List everything, after `version` was told: so nothing in it is older than that."""
        panes, sessions, agents, summary = await asyncio.gather(
            self.panes(), self.sessions(), self.agents(), self.summary()
        )
        return Resync(
            version=version, panes=panes, sessions=sessions, agents=agents, summary=summary
        )


class _Unread:
    """What the daemon has told and nobody has taken yet."""

    def __init__(self) -> None:
        self._told: deque[StateChange | Summary] = deque()
        self._is_wanted = False
        self._is_new = asyncio.Event()
        self._closed: ConnectionClosed | None = None
        self.hear_task: Callable[[TaskChanged | TaskOutput], None] = lambda _: None

    @property
    def builder(self) -> Builder:
        """A connection that puts here what it is told."""
        return (
            Connection.builder()
            .name("client")
            .timeout(ANSWER_SECONDS)
            .on_notification(methods.StateChanged, self._state_changed)
            .on_notification(methods.SummaryChanged, self._summary_changed)
            .on_notification(TaskChanged, lambda told, _: self.hear_task(told))
            .on_notification(TaskOutput, lambda told, _: self.hear_task(told))
        )

    def begin(self) -> None:
        if self._is_wanted:
            raise RuntimeError("this client has subscribed already")
        self._is_wanted = True

    def end(self) -> None:
        self._is_wanted = False
        self._told.clear()

    def close(self, cause: BaseException | None) -> None:
        self._closed = ConnectionClosed(cause)
        self._is_new.set()

    async def take(self) -> StateChange | Summary:
        while not self._told:
            if self._closed is not None:
                raise self._closed
            self._is_new.clear()
            await self._is_new.wait()
        return self._told.popleft()

    def _state_changed(self, told: methods.StateChanged, _: Context) -> None:
        self._put(told.change)

    def _summary_changed(self, told: methods.SummaryChanged, _: Context) -> None:
        self._put(told.summary)

    def _put(self, told: StateChange | Summary) -> None:
        if not self._is_wanted:
            return
        if len(self._told) >= MOST_UNREAD:
            self._told.clear()  # the gap in the versions tells
        self._told.append(told)
        self._is_new.set()


class _Absent(DaemonUnavailable):
    """There is nobody at the socket, or not any more."""


async def _greet(connection: Connection, where: str, seconds: float) -> methods.DaemonInfo:
    """Ask the daemon who it is, and see that we understand each other."""
    try:
        said: Any = await connection.request(methods.GetInfo.METHOD, timeout=seconds)
    except RequestTimeout as error:
        raise DaemonUnavailable(f"the daemon{where} does not answer: {error}") from error
    except RemoteError as error:
        raise DaemonUnavailable(f"the daemon{where} refuses: {error.message}") from error
    except ConnectionClosed as error:  # it is just closing
        raise _Absent(str(_gone(error))) from error
    said = msgspec.to_builtins(said)  # over a channel it is the object itself
    theirs = said.get("protocol_version") if isinstance(said, dict) else None
    if isinstance(theirs, int) and theirs != methods.PROTOCOL_VERSION:
        pid, version = said.get("pid", 0), said.get("version", "?")
        raise ProtocolMismatchError(pid, version, theirs, methods.PROTOCOL_VERSION)
    try:
        return msgspec.convert(said, methods.DaemonInfo)
    except msgspec.ValidationError as error:
        raise DaemonUnavailable(f"what answers{where} is no daemon of ours: {error}") from error


def _gone(closed: ConnectionClosed) -> DaemonUnavailable:
    why = f": {closed.cause}" if closed.cause else ""
    return DaemonUnavailable(f"the daemon is gone{why}")
