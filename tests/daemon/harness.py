"""A daemon in the test's own process, spoken to as anybody would: by lines of JSON."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from bullpen.api.runtime import Paths, prepare
from bullpen.api.settings import Settings
from bullpen.daemon.main import Daemon

LINE_LIMIT = 16 * 2**20
SECONDS = 10.0

_IDS = itertools.count(1)


class Clock:
    """A time that passes with the machine's, and may be set ahead."""

    def __init__(self) -> None:
        self._ahead = timedelta(0)

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self._ahead

    def advance(self, seconds: float) -> None:
        self._ahead += timedelta(seconds=seconds)


class RefusedError(Exception):
    """What the daemon answered instead of a result."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error["message"])
        self.code = error["code"]
        self.data: dict[str, Any] = error.get("data") or {}
        self.reason = self.data.get("reason", "")


class Peer:
    """One who speaks to the daemon without any of our code."""

    def __init__(self, path: Path) -> None:
        self.path = path

    async def ask(self, method: str, /, **params: Any) -> Any:
        """Send one request over a connection of its own; return the result."""
        answer = await self.exchange({"id": 7, "method": method, "params": params})
        assert answer["id"] == 7
        if "error" in answer:
            raise RefusedError(answer["error"])
        return answer["result"]

    async def exchange(self, message: Any) -> Any:
        """Send one line; return the one that comes back."""
        line = message if isinstance(message, bytes) else json.dumps(message).encode()
        async with asyncio.timeout(SECONDS):
            reader, writer = await asyncio.open_unix_connection(str(self.path), limit=LINE_LIMIT)
            try:
                writer.write(line + b"\n")
                return json.loads(await reader.readline())
            finally:
                writer.close()
                await writer.wait_closed()

    @asynccontextmanager
    async def follow(self, **params: Any) -> AsyncIterator[list[dict[str, Any]]]:
        """Subscribe; everything that is told is put into the list."""
        told: list[dict[str, Any]] = []
        reader, writer = await asyncio.open_unix_connection(str(self.path), limit=LINE_LIMIT)
        writer.write(
            json.dumps({"id": 1, "method": "subscribe", "params": params}).encode() + b"\n"
        )
        told.append(json.loads(await reader.readline())["result"])

        async def read() -> None:
            while line := await reader.readline():
                told.append(json.loads(line))

        reading = asyncio.create_task(read())
        try:
            yield told
        finally:
            reading.cancel()
            await asyncio.wait([reading])
            writer.close()

    # Short words

    async def panes(self) -> dict[str, dict[str, Any]]:
        return {each["pane_instance_id"]["pane_id"]: each for each in await self.ask("list_panes")}

    async def agents(self) -> dict[str, dict[str, Any]]:
        return {each["name"]: each for each in await self.ask("list_agents")}

    async def sessions(self) -> dict[str, dict[str, Any]]:
        return {each["session_key"]: each for each in await self.ask("list_sessions")}

    async def health(self) -> dict[str, dict[str, Any]]:
        return dict(await self.ask("list_source_health"))

    async def hello(self, kind: str, **more: Any) -> Any:
        nonce = (await self.ask("daemon.info"))["nonce"]
        return await self.ask("source.hello", source_kind=kind, nonce=nonce, **more)

    async def ingest(self, *events: dict[str, Any], kind: str = "") -> Any:
        return await self.ask(
            "source.ingest", source_kind=kind or events[0]["source_kind"], events=list(events)
        )


def event(
    event_type: str = "turn.completed",
    *,
    kind: str = "claude_hooks",
    provider: str = "claude",
    session: str = "claude:one",
    at: datetime | None = None,
    pane: dict[str, Any] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Return an observation as a source outside would write it."""
    where = pane["pane_instance_id"] if pane else {}
    return {
        "event_id": f"e{next(_IDS)}",
        "provider": provider,
        "source_kind": kind,
        "tier": "heuristic" if kind == "poller" else "deterministic",
        "observed_at": (at or datetime.now(UTC)).isoformat(),
        "session_key": session,
        "event_type": event_type,
        "source_event_id": "turn-1",
        "pane_id": where.get("pane_id"),
        "pane_generation": where.get("generation"),
        "pane_birth_ts": where.get("birth_ts"),
        "tmux_server": where.get("server"),
        "payload": {},
        "confidence": 1.0,
    } | more


def settings(**sections: dict[str, Any]) -> Settings:
    """Settings with nothing switched on but the poller and the reports, and those given."""
    quiet: dict[str, dict[str, Any]] = {
        "sources": {
            "claude_sessions": False,
            "claude_transcript": False,
            "codex_appserver": "off",
            "codex_rollout": False,
            "copilot": False,
            "gemini": False,
            "opencode": False,
        },
        # Not the agents of whoever else works on this machine.
        "observe": {"poll_interval_ms": 200, "tmux_only": True},
    }
    for name, values in sections.items():
        quiet[name] = {**quiet.get(name, {}), **values}
    return msgspec.convert(quiet, Settings)


@asynccontextmanager
async def running_daemon(
    given: Settings | None = None, *, clock: Clock | None = None
) -> AsyncIterator[tuple[Peer, Daemon]]:
    """Run a daemon for a block."""
    paths = Paths.resolve()
    await asyncio.to_thread(prepare, paths)
    async with Daemon(given or settings(), paths, now=clock or Clock()) as daemon:
        yield Peer(paths.socket), daemon


async def until(look: Callable[[], Awaitable[Any]], seconds: float = SECONDS) -> Any:
    """Wait until a look finds something; return what it found."""
    async with asyncio.timeout(seconds):
        while not (found := await look()):  # noqa: ASYNC110 - it looks from outside
            await asyncio.sleep(0.02)
        return found
