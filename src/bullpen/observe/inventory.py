"""The panes there are and what runs in them, as the poller last told: where sessions are found.

Agents say who they are and in which process or directory, seldom in which pane. From the most to
the least certain: the pane they name, the process, the terminal, the directory.
"""

from collections.abc import Iterator

import msgspec

from bullpen.model.observations import Origin, PaneInstanceId
from bullpen.model.places import is_same_server
from bullpen.model.states import Provider
from bullpen.model.views import PanePlace

__all__ = ["Inventory", "KnownPane", "normal_path"]


class KnownPane(msgspec.Struct, frozen=True):
    """A pane that was in the last look at its server."""

    pane: PaneInstanceId
    place: PanePlace
    pids: tuple[int, ...] = ()
    """Of the processes below it, parents first; empty if nobody could look."""
    provider: Provider | None = None
    """Whose program seems to run in it."""
    has_agent_process: bool = False
    """... and that by its processes, not only by what it shows."""
    agent_pid: int = 0
    """The process of that program; 0 if it is not known."""

    def is_anothers(self, provider: Provider) -> bool:
        """Whether a process of another program is the agent in it.

        What a variable names is then only where somebody was started from: an editor, perhaps.
        """
        return self.has_agent_process and self.provider not in (None, provider)

    def depth(self, pid: int) -> int | None:
        """Return how far below the pane a process is, if it is: a number to compare by."""
        return self.pids.index(pid) if pid in self.pids else None


class Inventory:
    """All known panes, found by what an agent may know of its own."""

    def __init__(self) -> None:
        self._panes: dict[PaneInstanceId, KnownPane] = {}
        self._by_pid: dict[int, PaneInstanceId] = {}

    def __iter__(self) -> Iterator[KnownPane]:
        return iter(self._panes.values())

    def __len__(self) -> int:
        return len(self._panes)

    def get(self, pane: PaneInstanceId) -> KnownPane | None:
        """Return what is known of an instance, if it is there."""
        return self._panes.get(pane)

    def put(self, known: KnownPane) -> None:
        """Take what a look told of a pane."""
        self.remove(known.pane)
        self._panes[known.pane] = known
        for pid in known.pids:
            self._by_pid[pid] = known.pane

    def remove(self, pane: PaneInstanceId) -> None:
        """Forget a pane that is gone."""
        known = self._panes.pop(pane, None)
        for pid in known.pids if known else ():
            if self._by_pid.get(pid) == pane:
                del self._by_pid[pid]

    def at(self, pane_id: str, server: str | None, generation: int | None) -> KnownPane | None:
        """Return the pane that has this id now, if it is a single one."""
        found = [
            each
            for each in self._panes.values()
            if each.pane.pane_id == pane_id
            and server in (None, "", each.pane.server)
            and generation in (None, each.pane.generation)
        ]
        return found[0] if len(found) == 1 else None

    def of_process(self, pid: int) -> KnownPane | None:
        """Return the pane that a process is below of."""
        pane = self._by_pid.get(pid)
        return self._panes[pane] if pane else None

    def find(
        self, origin: Origin, provider: Provider, taken: frozenset[PaneInstanceId] = frozenset()
    ) -> KnownPane | None:
        """Return the pane an agent of some provider is in, by what it knows of itself.

        `taken` are the panes that other sessions hold, which a directory alone does not undo.
        """
        if origin.pid and (known := self.of_process(origin.pid)):
            return known
        if origin.tmux_pane and (known := self._named(origin)) and not known.is_anothers(provider):
            return known
        if origin.tty and (known := self._on_tty(origin.tty)):
            return known
        if origin.pid or origin.tty:
            return None  # it runs elsewhere: that its directory is also a pane's means nothing
        return self._in_directory(origin.cwd, provider, taken) if origin.cwd else None

    def _named(self, origin: Origin) -> KnownPane | None:
        found = [
            each
            for each in self._panes.values()
            if each.pane.pane_id == origin.tmux_pane
            and (
                not origin.tmux_socket or is_same_server(origin.tmux_socket, each.place.tmux_socket)
            )
        ]
        return found[0] if len(found) == 1 else None

    def _on_tty(self, tty: str) -> KnownPane | None:
        return next((each for each in self._panes.values() if each.place.tty == tty), None)

    def _in_directory(
        self, cwd: str, provider: Provider, taken: frozenset[PaneInstanceId]
    ) -> KnownPane | None:
        """Return the pane with the provider's process in that directory.

        A pane in which nothing speaks for the provider is never chosen, whatever its directory:
        shells and editors live in the same ones.
        """
        wanted = normal_path(cwd)
        found = [
            each
            for each in self._panes.values()
            if each.provider is provider
            and each.pane not in taken
            and normal_path(each.place.current_path) == wanted
        ]
        found.sort(key=lambda each: (not each.has_agent_process, each.pane.pane_id))
        return found[0] if found else None


def normal_path(path: str) -> str:
    """Return a path so that two spellings of it compare equal. Links are resolved by the source."""
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            parts[-1:] = []
        elif part not in ("", "."):
            parts.append(part)
    return "/" + "/".join(parts)
