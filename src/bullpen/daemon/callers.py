"""Which processes led to a caller: what an agent runs speaks for the agent."""

import asyncio
import sys
from pathlib import Path
from weakref import WeakKeyDictionary

from bullpen.agents.processes import parents
from bullpen.api.peers import peer_pid
from bullpen.connection import Connection, SocketTransport, Transport
from bullpen.daemon.inside import InsideTransport

__all__ = ["Callers"]

MOST_ANCESTORS = 64


class Callers:
    """Who is at the other end of each connection, asked once for each."""

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[Connection, tuple[int, ...]] = WeakKeyDictionary()

    def peer(self, connection: Connection) -> str:
        """Return which peer from outside a connection within our process is for; often none."""
        transport = connection.transport
        return transport.peer if isinstance(transport, InsideTransport) else ""

    def is_boss(self, connection: Connection) -> bool:
        """Whether such a peer was let in to control agents."""
        transport = connection.transport
        return isinstance(transport, InsideTransport) and transport.is_boss

    async def ancestry(self, connection: Connection) -> tuple[int, ...]:
        """Return the process that connected and those above it; nothing if that is not known."""
        known = self._known.get(connection)
        if known is None:
            transport = connection.transport
            pid = _pid_behind(transport)
            known = await asyncio.to_thread(_ancestry, pid) if pid else ()
            self._known[connection] = known
        return known


def _pid_behind(transport: Transport | None) -> int:
    if isinstance(transport, InsideTransport):
        return transport.pid
    connected = transport.connected if isinstance(transport, SocketTransport) else None
    return peer_pid(connected) if connected is not None else 0


def _ancestry(pid: int) -> tuple[int, ...]:
    parent = _parent_in_proc if sys.platform == "linux" else parents().get
    found: list[int] = []
    above: int | None = pid
    while above is not None and above > 1 and len(found) < MOST_ANCESTORS:
        found.append(above)
        above = parent(above)
    return tuple(found)


def _parent_in_proc(pid: int) -> int | None:
    try:
        said = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return int(said.rpartition(")")[2].split()[1])  # behind a name that may say anything
    except (OSError, ValueError, IndexError):
        return None
