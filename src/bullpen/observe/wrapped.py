"""Which processes and panes belong to agents that were launched through us, and their names.

What is seen of such an agent by other sources is the same agent and has the name it was launched
with. As long as nobody else sees anything of it, its wrapper speaks for it.
"""

from collections.abc import Collection

import msgspec

from bullpen.model.places import is_same_server

__all__ = ["Wrapped", "WrappedAgent", "wrapped_key"]


class WrappedAgent(msgspec.Struct, frozen=True):
    """Where a wrapped agent is to be found."""

    name: str
    pids: frozenset[int]
    tmux_socket: str = ""
    pane_id: str = ""
    sessions: frozenset[str] = frozenset()
    """The keys of its sessions, as far as its program has told them."""


class Wrapped:
    """All wrapped agents that are there."""

    def __init__(self) -> None:
        self._agents: dict[str, WrappedAgent] = {}

    def note(
        self,
        name: str,
        pids: Collection[int],
        *,
        tmux_socket: str = "",
        pane_id: str = "",
        sessions: Collection[str] = (),
    ) -> None:
        """Learn where an agent is."""
        found = frozenset(pids) - {0}
        self._agents[name] = WrappedAgent(name, found, tmux_socket, pane_id, frozenset(sessions))

    def forget(self, name: str) -> None:
        """Learn that it is gone."""
        self._agents.pop(name, None)

    def of_process(self, pid: int) -> str:
        """Return the name of the agent a process belongs to; empty if it is nobody's."""
        return next((each.name for each in self._agents.values() if pid in each.pids), "")

    def of_session(self, key: str, pid: int) -> str:
        """Return the name of the agent a session is of; empty if it is nobody's."""
        named = (each.name for each in self._agents.values() if key in each.sessions)
        return next(named, "") or (self.of_process(pid) if pid else "")

    def in_pane(self, tmux_socket: str, pane_id: str) -> str:
        """Return the name of the agent in a pane; empty if none of ours is."""
        return next(
            (
                each.name
                for each in self._agents.values()
                if pane_id
                and each.pane_id == pane_id
                and is_same_server(each.tmux_socket, tmux_socket)
            ),
            "",
        )


def wrapped_key(name: str) -> str:
    """Return the key of the session that stands for a wrapped agent."""
    return f"pty:{name}"
