"""The handlers of all agents: each is made once, and answers in every binding of its agent."""

from collections import OrderedDict

from bullpen.servers.a2a.room import Room
from bullpen.servers.a2a.v1.handler import Handler

__all__ = ["Handlers"]

MOST = 512  # agents; who was asked least recently is forgotten


class Handlers:
    """Finds the handler of an agent."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._found: OrderedDict[str, Handler] = OrderedDict()

    def of(self, agent: str) -> Handler:
        """Return it."""
        found = self._found.get(agent)
        if found is None:
            found = self._found[agent] = Handler(self._room, agent)
            while len(self._found) > MOST:
                self._found.popitem(last=False)
        self._found.move_to_end(agent)
        return found
