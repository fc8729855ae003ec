"""Which tmux servers there are to look at: the one that was named, and all others of the user."""

import asyncio
import os
import socket
from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec

from bullpen.terminal.tmux.server import find_targets
from bullpen.terminal.tmux.target import TmuxTarget, resolve_target

__all__ = ["FoundServer", "TmuxFinder", "is_listening"]

MOST_SERVERS = 64  # at once; tmux itself makes one only if it is asked for by name


class FoundServer(msgspec.Struct, frozen=True):
    """A socket of tmux, and whether anybody is behind it."""

    target: TmuxTarget
    is_listening: bool


class TmuxFinder:
    """Finds the servers of the user anew whenever it is asked. It starts none.

    The one that is configured (see `resolve_target`) comes first, whether it runs or not; with
    `only` it is the only one.
    """

    def __init__(
        self,
        environment: Mapping[str, str] | None = None,
        *,
        socket_name: str | None = None,
        only: bool = False,
    ) -> None:
        self._environment = dict(os.environ if environment is None else environment)
        self._only = only
        configured = resolve_target(self._environment, user_id=os.getuid(), socket=socket_name)
        if socket_name:  # wherever that was set: `bullpen config --show-sources` tells
            configured = msgspec.structs.replace(configured, source="observe.tmux_socket")
        self.configured = configured

    async def find(self, connected: Collection[str] = ()) -> list[FoundServer]:
        """Return the servers, each once. Those that are connected are not asked whether they are.

        `connected` are paths of sockets. More than `MOST_SERVERS` are not looked at.
        """
        others = [] if self._only else await find_targets(self._environment)
        return await asyncio.to_thread(_probe, [self.configured, *others], frozenset(connected))


async def is_listening(target: TmuxTarget) -> bool:
    """Whether a server is behind a socket. One that hangs is."""
    return await asyncio.to_thread(_is_listening, target.socket_path)


def _probe(targets: list[TmuxTarget], connected: frozenset[str]) -> list[FoundServer]:
    found: dict[str, FoundServer] = {}
    for target in targets:
        path = os.path.realpath(target.socket_path)  # /tmp is a link on some systems
        if path in found or not (target is targets[0] or _is_ours(path)):
            continue
        is_there = target.socket_path in connected or _is_listening(target.socket_path)
        found[path] = FoundServer(target, is_there)
        if len(found) == MOST_SERVERS:
            break
    return list(found.values())


def _is_ours(path: str) -> bool:
    try:
        return Path(path).stat().st_uid == os.getuid()
    except OSError:
        return False


def _is_listening(path: str) -> bool:
    # A server that ended by force leaves its socket behind. To ask that is cheaper than tmux is.
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except BlockingIOError:
            return True  # it is there, and too busy to answer
        except (OSError, ValueError):  # nobody, no such file, not ours, or a path beyond all bounds
            return False
        return True
