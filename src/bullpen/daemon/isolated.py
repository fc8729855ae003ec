"""Sources in processes of their own, and the daemon's connection to them.

The poller and whoever reads along with it share their eyes, so they share a process, with a socket
for each. What panes were known before goes to the poller in a file beside its socket, so that a
pane keeps its identity when only the poller was started anew.
"""

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import msgspec

from bullpen.api.files import write_private
from bullpen.api.runtime import Paths
from bullpen.api.settings import Settings, describe, resolve
from bullpen.connection import open_transport
from bullpen.daemon.log import open_log
from bullpen.daemon.signals import stop_on_signals
from bullpen.daemon.sources import PUSHED, Surroundings, make_sources, utc_now
from bullpen.daemon.supervisor import Alarm, Supervisor, source_child
from bullpen.model.states import SourceKind
from bullpen.model.views import PaneState
from bullpen.observe.gateway import Gateway
from bullpen.observe.sources.serve import serve_source

__all__ = ["isolated_sources", "keep_panes", "run_source"]

logger = logging.getLogger("bullpen.daemon")

PANES = "panes.json"
_SHARED = {SourceKind.CODEX_CAPTURE: SourceKind.POLLER}


@asynccontextmanager
async def isolated_sources(
    gateway: Gateway, kinds: Iterable[SourceKind], around: Surroundings, alarm: Alarm
) -> AsyncIterator[None]:
    """Look through sources in processes of their own, for the length of a block.

    Raises:
        NotReadyError: one of them did not begin to answer; none of them runs then.
    """
    kinds = tuple(kinds)
    hosts = {kind: _SHARED.get(kind, kind) for kind in kinds if kind not in PUSHED}
    environment = _environment(around.settings, around.environment)
    children = [
        source_child(kind, around.paths, environment=environment)
        for kind in dict.fromkeys(hosts.values())
    ]
    await asyncio.to_thread(keep_panes, around.paths, around.known_panes)
    async with Supervisor(children, alarm):
        for kind in hosts:
            socket = around.paths.source_socket(kind.value)
            gateway.attach(kind, partial(open_transport, f"unix://{socket}"))
        for kind in PUSHED.intersection(kinds):
            gateway.attach(kind, None)
        yield


def keep_panes(paths: Paths, panes: Iterable[PaneState]) -> None:
    """Write down which panes there are, for a poller that is started anew."""
    paths.sources.mkdir(mode=0o700, exist_ok=True)
    write_private(paths.sources / PANES, msgspec.json.encode(tuple(panes)))


def _known_panes(directory: Path) -> tuple[PaneState, ...]:
    with contextlib.suppress(OSError, msgspec.ValidationError, msgspec.DecodeError):
        return msgspec.json.decode((directory / PANES).read_bytes(), type=tuple[PaneState, ...])
    return ()


def _environment(settings: Settings, environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment by which a child has our settings, wherever they came from."""
    told = dict(environment)
    for info in describe():
        value = getattr(getattr(settings, info.section), info.name)
        if value != info.default:
            is_flag = isinstance(value, bool)
            told[info.variables[0]] = str(value).lower() if is_flag else str(value)
    return told


def run_source(kind: SourceKind, socket_path: str) -> int:
    """Serve one source at a socket until we are told to end, or our parent is gone."""
    paths = Paths.resolve()
    settings = resolve(paths.config, os.environ).settings
    log = open_log(None, level=settings.daemon.log_level, console=sys.stderr, as_json=True)
    try:
        asyncio.run(_serve(kind, Path(socket_path), settings, paths))
    finally:
        log.close()
    return 0


async def _serve(kind: SourceKind, socket: Path, settings: Settings, paths: Paths) -> None:
    around = Surroundings(
        settings=settings,
        paths=paths,
        now=utc_now,
        environment=dict(os.environ),
        known_panes=await asyncio.to_thread(_known_panes, socket.parent),
        panes=partial(asyncio.to_thread, _known_panes, socket.parent),
    )
    enabled = settings.sources.enabled
    together = [kind, *(each for each, host in _SHARED.items() if host is kind and each in enabled)]
    sources = await asyncio.to_thread(make_sources, together, around)
    with stop_on_signals(with_parent=True) as stop:
        async with AsyncExitStack() as stack:
            group = await stack.enter_async_context(asyncio.TaskGroup())
            serving = [
                group.create_task(
                    serve_source(source, str(socket.with_name(f"{source.kind}.sock")), utc_now)
                )
                for source in sources
            ]
            await stop.wait()
            for task in serving:
                task.cancel()
