"""Sources in processes of their own: started in order, seen to be ready, started again, and ended.

A child serves `source.pull_events` at a socket of its own; it is ready when it answers that. A
start in which one does not become ready is no start: all are ended again. Later, one that fails is
started again after a pause (`restarts`) while the others go on; one that fails too often is held
down, and an operator is told. A child lives no longer than we do: at the end it is told by SIGTERM
and then by SIGKILL, and should we be killed, by the end of its stdin.
"""

import asyncio
import contextlib
import json
import logging
import random
import sys
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any, Protocol, Self

import msgspec

from bullpen.api.methods import PullEvents
from bullpen.api.runtime import Paths, make_private
from bullpen.connection import Clock, Connection, SocketTransport, StartError
from bullpen.connection.transports.process import ChildProcess
from bullpen.daemon.restarts import RestartHistory, RestartPolicy, after_failure
from bullpen.errors import BullpenError
from bullpen.model.alerts import AlertLevel, ResolvePolicy
from bullpen.model.states import SourceKind

__all__ = [
    "Alarm",
    "ChildSpec",
    "ChildState",
    "ChildStatus",
    "NotReadyError",
    "Supervisor",
    "source_child",
]

logger = logging.getLogger("bullpen.daemon")

READY_SECONDS = 10.0  # for a child, from its start until it answers
GATE_SECONDS = 20.0  # for all of them, when we begin
PROBE_SECONDS = 2.0  # for one answer
FIRST_LOOK_SECONDS = 0.02  # nothing tells when a child listens: we have to look
LONGEST_LOOK_SECONDS = 0.25
STOP_SECONDS = 0.4  # from SIGTERM to SIGKILL
MAX_LINE_BYTES = 64 * 2**10

FAILED = "source_failed"
HELD_DOWN = "source_held_down"


class NotReadyError(BullpenError):
    """Not every child became ready, so none of them runs. `waiting` says why, by name."""

    def __init__(self, waiting: Mapping[str, str]) -> None:
        reasons = "; ".join(f"{name}: {why}" for name, why in waiting.items())
        super().__init__(f"not ready: {reasons}")
        self.waiting = dict(waiting)


class Alarm(Protocol):
    """Whom an operator hears from."""

    def sound(
        self,
        key: str,
        level: AlertLevel,
        reason: str,
        message: str,
        *,
        policy: ResolvePolicy = ...,
    ) -> None: ...

    def clear(self, key: str) -> None: ...


class ChildSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A child to be."""

    name: str
    command: tuple[str, ...]
    socket: Path
    after: tuple[str, ...] = ()
    """Those that have to be ready before it is started."""
    environment: Mapping[str, str] | None = None
    """All of its environment; ours if there is none."""


class ChildState(StrEnum):
    """Where a child is in its life."""

    WAITING = "waiting"
    """For those it depends on."""
    STARTING = "starting"
    READY = "ready"
    PAUSING = "pausing"
    """It failed, and is started again soon."""
    HELD_DOWN = "held_down"
    STOPPED = "stopped"


class ChildStatus(msgspec.Struct, frozen=True):
    """How a child fares."""

    name: str
    state: ChildState
    pid: int = 0
    starts: int = 0
    reason: str = ""
    """How it failed last; empty while it is ready."""


def source_child(
    kind: SourceKind,
    paths: Paths,
    *,
    after: tuple[str, ...] = (),
    environment: Mapping[str, str] | None = None,
) -> ChildSpec:
    """Return the child that is a source of ours."""
    socket = paths.source_socket(kind.value)
    # -P: whatever lies in the directory we were started from is not what is meant by `bullpen`.
    program = (sys.executable, "-P", "-m", "bullpen", "source", kind.value)
    return ChildSpec(
        name=kind.value,
        command=(*program, "--socket-path", str(socket)),
        socket=socket,
        after=after,
        environment=environment,
    )


class Supervisor:
    """Keeps children running, from `start` (or entering a block) to `aclose` (or leaving it)."""

    def __init__(
        self,
        children: Iterable[ChildSpec],
        alarm: Alarm,
        *,
        policy: RestartPolicy | None = None,
        ready_seconds: float = READY_SECONDS,
        gate_seconds: float = GATE_SECONDS,
        clock: Clock | None = None,
        chance: Callable[[], float] = random.random,
        on_ready: Callable[[str], None] = lambda _: None,
    ) -> None:
        specs = {spec.name: spec for spec in children}
        # A circle, or somebody nobody knows, is a mistake in the program: it raises here.
        sorter = TopologicalSorter({name: spec.after for name, spec in specs.items()})
        self._children = {name: _Child(specs[name]) for name in sorter.static_order()}
        self._alarm = alarm
        self._policy = policy or RestartPolicy()
        self._ready_seconds = ready_seconds
        self._gate_seconds = gate_seconds
        self._clock = clock
        self._chance = chance
        self._on_ready = on_ready
        self._tending: list[asyncio.Task[None]] = []

    @property
    def status(self) -> tuple[ChildStatus, ...]:
        """How each child fares, those first that others depend on."""
        return tuple(child.status for child in self._children.values())

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def start(self) -> None:
        """Start all children, each after those it depends on, and wait until all are ready.

        Raises:
            NotReadyError: one did not become ready in time. All have been ended again.
            DirectoryError: the directory of a socket cannot be used.
        """
        for directory in {child.spec.socket.parent for child in self._children.values()}:
            await asyncio.to_thread(make_private, directory)
        loop = asyncio.get_running_loop()
        self._tending = [
            loop.create_task(self._tend(child), name=f"supervise {name}")
            for name, child in self._children.items()
        ]
        try:
            async with asyncio.timeout(self._gate_seconds):
                for child in self._children.values():
                    await child.was_ready.wait()
        except TimeoutError:
            waiting = {
                name: child.reason or str(child.state)
                for name, child in self._children.items()
                if not child.was_ready.is_set()
            }
            await self.aclose()
            raise NotReadyError(waiting) from None
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        """End all children, within a second, and leave nothing of them. It may be called twice."""
        tending, self._tending = self._tending, []
        for task in tending:
            task.cancel()
        if tending:
            await asyncio.wait(tending)  # each of them is bounded
        for child in self._children.values():
            child.state = ChildState.STOPPED

    # ----------------------------------------------------------------------------- one child's life

    async def _tend(self, child: "_Child") -> None:
        for name in child.spec.after:
            await self._children[name].was_ready.wait()
        while True:
            begun = self._now()
            try:
                reason = await self._run(child)
            except Exception as error:  # the boundary: the others go on
                logger.exception("%s cannot be supervised", child.spec.name)
                reason = repr(error)
            await self._pause(child, reason, ran_seconds=self._now() - begun)

    async def _run(self, child: "_Child") -> str:
        """Start it and wait for its end; return in words how that came."""
        spec = child.spec
        child.state = ChildState.STARTING
        child.starts += 1
        ended = asyncio.Event()
        # What one of an earlier run left would be taken for this one.
        await asyncio.to_thread(spec.socket.unlink, missing_ok=True)
        try:
            process = await ChildProcess.spawn(
                spec.command,
                env=spec.environment,
                cwd="/",
                on_exit=ended.set,
                on_stderr=_Lines(spec.name).feed,
            )
        except StartError as error:
            return str(error)
        child.pid = process.pid
        process.drain_stdout(lambda _: None, lambda: None)
        try:
            if not await self._becomes_ready(spec.socket, ended):
                if ended.is_set():
                    return _how(process)
                return f"it was not ready within {self._ready_seconds:g} s"
            self._note_ready(child)
            await ended.wait()
            return _how(process)
        finally:
            child.pid = 0
            await process.stop(by_force=True, seconds=STOP_SECONDS)
            process.release()

    def _note_ready(self, child: "_Child") -> None:
        name = child.spec.name
        child.state = ChildState.READY
        child.reason = ""
        child.was_ready.set()
        logger.info("%s is ready", name, extra={"source": name, "child_pid": child.pid})
        self._alarm.clear(f"{FAILED}:{name}")
        self._on_ready(name)

    async def _becomes_ready(self, socket: Path, ended: asyncio.Event) -> bool:
        pause = FIRST_LOOK_SECONDS
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._ready_seconds):
                while not ended.is_set():
                    if await _answers(socket):
                        return not ended.is_set()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(pause):
                            await ended.wait()
                    pause = min(pause * 2, LONGEST_LOOK_SECONDS)
        return False

    async def _pause(self, child: "_Child", reason: str, *, ran_seconds: float) -> None:
        name = child.spec.name
        child.reason = reason
        child.history, verdict = after_failure(
            child.history,
            self._now(),
            ran_seconds=ran_seconds,
            chance=self._chance(),
            policy=self._policy,
        )
        message = f"{name}: {reason}; it is started again in {verdict.pause_seconds:.1f} s"
        logger.warning("%s", message, extra={"source": name})
        self._alarm.sound(
            f"{FAILED}:{name}", AlertLevel.WARN, FAILED, message, policy=ResolvePolicy.AUTO
        )
        if verdict.is_held_down:
            self._alarm.sound(
                f"{HELD_DOWN}:{name}",
                AlertLevel.ESCALATE,
                HELD_DOWN,
                f"{message}, for it fails too often",
                policy=ResolvePolicy.OPERATOR,
            )
        child.state = ChildState.HELD_DOWN if verdict.is_held_down else ChildState.PAUSING
        await self._sleep(verdict.pause_seconds)

    def _now(self) -> float:
        return (self._clock or asyncio.get_running_loop()).time()

    async def _sleep(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        woken = asyncio.Event()
        timer = (self._clock or loop).call_later(seconds, woken.set)
        try:
            await woken.wait()
        finally:
            timer.cancel()


class _Child:
    """What is known of one child."""

    def __init__(self, spec: ChildSpec) -> None:
        self.spec = spec
        self.state = ChildState.WAITING
        self.pid = 0
        self.starts = 0
        self.reason = ""
        self.history = RestartHistory()
        self.was_ready = asyncio.Event()

    @property
    def status(self) -> ChildStatus:
        return ChildStatus(self.spec.name, self.state, self.pid, self.starts, self.reason)


async def _answers(socket: Path) -> bool:
    transport = SocketTransport.unix(str(socket))
    try:
        async with Connection.builder().name("supervisor").connect(transport) as connection:
            await connection.request(PullEvents(limit=1), timeout=PROBE_SECONDS)
    except (BullpenError, msgspec.ValidationError):
        return False
    return True


def _how(process: ChildProcess) -> str:
    """Return how a process ended, with the last line it said about that."""
    status = process.status
    ended = f"it was ended by signal {-status}" if status and status < 0 else f"it exited: {status}"
    said = [line for line in process.stderr_tail.splitlines() if line.strip()]
    return f"{ended} ({said[-1].strip()[:200]})" if said else ended


# -------------------------------------------------------------------------- what a child has to say


class _Lines:
    """Takes what a child writes to stderr, and puts it into our log line by line."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._rest = b""

    def feed(self, data: bytes) -> None:
        *lines, rest = (self._rest + data).split(b"\n")
        if len(rest) > MAX_LINE_BYTES:
            lines, rest = [*lines, rest], b""
        self._rest = rest
        for line in lines:
            if line.strip():
                self._log(line[:MAX_LINE_BYTES].decode(errors="replace"))

    def _log(self, line: str) -> None:
        try:
            record = json.loads(line)
            level = logging.getLevelNamesMapping()[record.pop("level").upper()]
            event, name = str(record.pop("event")), str(record.pop("logger"))
        except (ValueError, KeyError, TypeError, AttributeError):  # it is no record of ours
            logger.warning("%s: %s", self._name, line, extra={"source": self._name})
            return
        extra: dict[str, Any] = {k: v for k, v in record.items() if k not in _RESERVED}
        logging.getLogger(name).log(level, "%s", event, extra={"source": self._name, **extra})


_RESERVED = {*logging.makeLogRecord({}).__dict__, "message", "asctime", "timestamp"}
