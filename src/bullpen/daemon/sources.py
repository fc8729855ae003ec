"""Making the sources that are switched on, and connecting them to the gateway.

Each is made by one function, called in the daemon's own process or in one that the source has for
itself; whoever pulls from it cannot tell the difference.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from bullpen.api.runtime import Paths
from bullpen.api.settings import Settings
from bullpen.errors import BullpenError
from bullpen.model.states import Provider, SourceKind
from bullpen.model.version import VERSION
from bullpen.model.views import PaneState
from bullpen.observe.gateway import Gateway
from bullpen.observe.snapshot import Rules
from bullpen.observe.sources.port import Now, Source
from bullpen.observe.sources.serve import SourceServer

__all__ = [
    "PUSHED",
    "Surroundings",
    "local_sources",
    "make_sources",
    "screen_rules",
    "utc_now",
]

PUSHED = frozenset([SourceKind.REPORT, SourceKind.PTY])
"""Nobody looks for these: they tell us themselves."""


def utc_now() -> datetime:
    """Return the time."""
    return datetime.now(UTC)


FindPanes = Callable[[], Awaitable[tuple[PaneState, ...]]]


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """All that a source may need to know of where it runs."""

    settings: Settings
    paths: Paths
    now: Now
    environment: Mapping[str, str]
    known_panes: tuple[PaneState, ...] = ()
    """From before a restart, so that a pane keeps its identity."""
    panes: FindPanes | None = None
    """Tells which panes there are now."""

    @property
    def home(self) -> Path:
        """The user's own directory."""
        return Path(self.environment.get("HOME") or Path.home())

    def directory(self, variable: str, default: str) -> Path:
        """Return where a program keeps its files, by its variable or below the home."""
        given = self.environment.get(variable)
        return Path(given) if given else self.home / default


def make_sources(kinds: Iterable[SourceKind], around: Surroundings) -> list[Source]:
    """Return the sources of some kinds. Two that share their eyes are made together."""
    wanted = [kind for kind in kinds if kind not in PUSHED]
    made: dict[SourceKind, Source] = {}
    if SourceKind.CODEX_CAPTURE in wanted:
        made[SourceKind.CODEX_CAPTURE] = _codex_capture(around)
    for kind in wanted:
        if kind is SourceKind.POLLER:
            made[kind] = _poller(around, [each for each in made.values() if hasattr(each, "see")])
        elif kind not in made:
            made[kind] = _MAKERS[kind](around)
    return list(made.values())


@asynccontextmanager
async def local_sources(
    gateway: Gateway, kinds: Iterable[SourceKind], around: Surroundings
) -> AsyncIterator[list[Source]]:
    """Look through sources in this process, for the length of a block."""
    kinds = tuple(kinds)
    # Rules are files, and what is made imports more.
    sources = await asyncio.to_thread(make_sources, kinds, around)
    async with AsyncExitStack() as stack:
        for source in sources:
            server = await stack.enter_async_context(SourceServer(source, around.now))
            gateway.attach(source.kind, server.open_channel)
        for kind in PUSHED.intersection(kinds):
            gateway.attach(kind, None)
        yield sources


def screen_rules(settings: Settings, paths: Paths, broken: list[str] | None = None) -> Rules:
    """Return what screens are judged by, and what is wrong with the user's own. It blocks."""
    from bullpen.terminal.rules.load import load_rules

    def note(error: BullpenError) -> None:
        if broken is not None:
            broken.append(f"{error}; without it, ours are used")

    directory = settings.rules.directory
    return load_rules(Path(directory) if directory else paths.rules, on_trouble=note)


# ------------------------------------------------------------------------------- one for each kind


def _poller(around: Surroundings, listeners: list[Any]) -> Source:
    from bullpen.observe.sources.poller import PollerSource
    from bullpen.observe.sources.terminals import TmuxFinder

    settings = around.settings.observe
    broken: list[str] = []
    rules = screen_rules(around.settings, around.paths, broken)
    return PollerSource(
        around.now,
        rules,
        finder=TmuxFinder(
            around.environment,
            socket_name=settings.tmux_socket or None,
            only=bool(settings.tmux_socket),
        ),
        interval_seconds=settings.poll_interval_ms / 1000,
        history_lines=settings.history_lines,
        known=around.known_panes,
        listeners=listeners,
        tmux_only=settings.tmux_only,
        troubles=broken,
    )


def _codex_capture(around: Surroundings) -> Source:
    from bullpen.agents.providers.codex.exec_json import translate
    from bullpen.observe.sources.codex_capture import CodexCapture

    def read(line: str) -> tuple[str, str | None, Any] | None:
        said = translate(line)
        return (said.event_type, said.session_id, said.payload) if said else None

    return CodexCapture(around.now, read)


def _codex_appserver(around: Surroundings) -> Source:
    from bullpen.observe.sources.codex_appserver import CodexAppServer

    return CodexAppServer(
        around.now,
        home=around.directory("CODEX_HOME", ".codex"),
        command=(around.settings.sources.codex_command, "app-server"),
        environment=around.environment,
        client_version=VERSION,
        find_cwds=partial(_codex_cwds, around.panes) if around.panes else None,
    )


async def _codex_cwds(panes: FindPanes) -> set[str]:
    """Return the directories in which Codex seems to run."""
    codex = (each for each in await panes() if each.provider is Provider.CODEX)
    return {each.place.current_path for each in codex} - {""}


def _codex_rollout(around: Surroundings) -> Source:
    from bullpen.observe.sources.codex_rollout import CodexRollout

    return CodexRollout(around.now, around.directory("CODEX_HOME", ".codex"))


def _codex_hooks(around: Surroundings) -> Source:
    from bullpen.observe.sources.codex_hooks import CodexHooks

    return CodexHooks(around.now, around.paths.spool)


def _claude_hooks(around: Surroundings) -> Source:
    from bullpen.observe.sources.claude_hooks import ClaudeHooks

    return ClaudeHooks(around.now, around.paths.spool)


def _claude_sessions(around: Surroundings) -> Source:
    from bullpen.observe.sources.claude_sessions import ClaudeSessions

    return ClaudeSessions(around.now, around.directory("CLAUDE_CONFIG_DIR", ".claude"))


def _claude_transcript(around: Surroundings) -> Source:
    from bullpen.observe.sources.claude_transcript import ClaudeTranscript

    return ClaudeTranscript(around.now, around.directory("CLAUDE_CONFIG_DIR", ".claude"))


def _copilot(around: Surroundings) -> Source:
    from bullpen.observe.sources.copilot import CopilotSource

    return CopilotSource(
        around.now, around.paths.spool, around.directory("COPILOT_HOME", ".copilot")
    )


def _gemini(around: Surroundings) -> Source:
    from bullpen.observe.sources.gemini import GeminiHooks

    return GeminiHooks(around.now, around.paths.spool)


def _opencode(around: Surroundings) -> Source:
    from bullpen.observe.sources.opencode import OpencodeSource

    return OpencodeSource(around.now, around.paths.spool)


_MAKERS: dict[SourceKind, Callable[[Surroundings], Source]] = {
    SourceKind.CLAUDE_HOOKS: _claude_hooks,
    SourceKind.CLAUDE_SESSIONS: _claude_sessions,
    SourceKind.CLAUDE_TRANSCRIPT: _claude_transcript,
    SourceKind.CODEX_APPSERVER: _codex_appserver,
    SourceKind.CODEX_HOOKS: _codex_hooks,
    SourceKind.CODEX_ROLLOUT: _codex_rollout,
    SourceKind.COPILOT: _copilot,
    SourceKind.GEMINI: _gemini,
    SourceKind.OPENCODE: _opencode,
}
