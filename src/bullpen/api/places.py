"""Going to an agent: from where one is, to whom, and whether tmux can take one there."""

import os
from collections.abc import Iterable, Mapping

from bullpen.api.errors import NobodyError
from bullpen.model.places import place_of, place_order
from bullpen.model.views import AgentState

__all__ = ["is_same_socket", "next_agent", "server_of"]


def server_of(environment: Mapping[str, str]) -> str:
    """Return the socket of the tmux server one is in; empty outside of tmux."""
    return environment.get("TMUX", "").rpartition(",")[0].rpartition(",")[0]


def is_same_socket(one: str, other: str) -> bool:
    """Whether two paths lead to the same socket, and not nowhere."""
    return bool(other) and os.path.realpath(one) == os.path.realpath(other)


def next_agent(agents: Iterable[AgentState], server: str, pane_id: str) -> AgentState:
    """Return the agent behind a pane, in the order of `bullpen ls`; after the last, the first.

    Raises:
        NobodyError: none of them is in a pane.
    """
    agents = list(agents)
    ordered = sorted((each for each in agents if each.pane and each.place), key=place_order)
    if not ordered:
        raise NobodyError([(each.name, place_of(each)) for each in agents])
    for number, agent in enumerate(ordered, start=1):
        assert agent.pane is not None
        assert agent.place is not None
        if agent.pane.pane_id == pane_id and is_same_socket(agent.place.tmux_socket, server):
            return ordered[number % len(ordered)]
    return ordered[0]
