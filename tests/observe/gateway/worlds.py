"""What the tests of the gateway share: a time that stands still, observations, a source."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from bullpen.connection import listen_unix, open_transport
from bullpen.model.observations import Observation, Origin
from bullpen.model.states import Provider, SourceKind
from bullpen.observe.feed import OpenTransport
from bullpen.observe.gateway import Gateway, GatewayLimits
from bullpen.observe.sources.port import Source
from bullpen.observe.sources.serve import SourceServer

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
NONCE = "this run"
OWNER = 1000
_PROGRAMS = {each.value: each for each in Provider}


class Time:
    """A clock that stands still until it is moved; itself a `Now`."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> datetime:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


def observation(
    event_id: str = "1", kind: SourceKind = SourceKind.CLAUDE_HOOKS, **changes: Any
) -> Observation:
    program = kind.value.partition("_")[0]
    fields: dict[str, Any] = {
        "event_id": event_id,
        "provider": _PROGRAMS.get(program, Provider.CLAUDE),
        "source_kind": kind,
        "tier": kind.tier,
        "observed_at": NOON,
        "session_key": "claude:s",
        "event_type": "turn.started",
    }
    return Observation(**{**fields, **changes})


class FakeSource(Source):
    """A source that says what it is told to, and looks as it is told to."""

    interval_seconds = 0.01

    def __init__(
        self,
        now: Callable[[], datetime],
        kind: SourceKind = SourceKind.CLAUDE_HOOKS,
        look: Callable[[], Any] = lambda: None,
    ) -> None:
        super().__init__(now)
        self.kind = kind
        self.looks = 0
        self.delivered: list[Any] = []
        self.is_closed = False
        self.said = 0
        self._do = look

    async def look(self) -> None:
        self.looks += 1
        doing = self._do()
        if doing is not None:
            await doing

    async def deliver(self, payload: Any, at: datetime, origin: Origin) -> None:
        if isinstance(payload, Exception):
            raise payload
        self.delivered.append((payload, at, origin))
        self.say(f"delivered-{len(self.delivered)}")

    async def aclose(self) -> None:
        self.is_closed = True

    def say(self, *event_ids: str, **changes: Any) -> None:
        for event_id in event_ids:
            self.said += 1
            self._emit(observation(event_id, self.kind, **changes))


def new_gateway(time: Time, **options: Any) -> Gateway:
    options.setdefault("limits", GatewayLimits(pull_timeout_seconds=2, patience_seconds=5))
    return Gateway(time, nonce=NONCE, owner_uid=OWNER, **options)


@asynccontextmanager
async def served(over: str, source: FakeSource, home: Path) -> AsyncIterator[OpenTransport]:
    """Serve a source over a channel or a Unix socket, and yield how to reach it."""
    async with SourceServer(source, source._now) as server:
        await asyncio.wait_for(server._opened.wait(), 5)
        if over == "channel":
            yield server.open_channel
            return
        path = home / f"{source.kind}.sock"
        async with listen_unix(str(path), server.builder()):
            yield lambda: open_transport(f"unix://{path}")
