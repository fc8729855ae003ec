"""Where an agent is: for people to read, for lists to be sorted by, and the way there."""

import os
from collections.abc import Iterable, Mapping

from bullpen.api.errors import NobodyError
from bullpen.api.lookup import place_words
from bullpen.model.appearance import one_line
from bullpen.model.views import AgentState, PanePlace

__all__ = [
    "OUTSIDE",
    "is_same_socket",
    "jump_words",
    "next_agent",
    "place_of",
    "place_order",
    "server_of",
    "session_heading",
]

OUTSIDE = "outside tmux"
"""The heading of those who are in no pane."""


def place_order(agent: AgentState) -> tuple[object, ...]:
    """Return what agents are sorted by, so that neighbours on the screen are neighbours here."""
    place = agent.place
    if place is None:
        return 1, "", "", 0, 0, agent.name
    where = (place.tmux_socket, place.session_name, place.window_index, place.pane_index)
    return 0, *where, agent.name


def place_of(agent: AgentState) -> str:
    """Return where an agent is, as one would look for it."""
    if agent.pane is not None and agent.place is not None:
        place = agent.place
        where = place_words(place.session_name, place.window_index, place.pane_index)
        return f"{where} {agent.pane.pane_id}"
    return " ".join(
        each
        for each in (agent.tty.removeprefix("/dev/"), f"pid {agent.pid}" if agent.pid else "")
        if each
    )


def session_heading(place: PanePlace | None, *, several_servers: bool) -> str:
    """Return the heading for those in one tmux session, or in none."""
    if place is None:
        return OUTSIDE
    server = f" ({place.tmux_socket})" if several_servers else ""
    return one_line(f"{place.session_name}{server}")


# ----------------------------------------------------------------------------------- going there


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


def jump_words(pane_id: str, place: PanePlace, *, attach: bool) -> list[str]:
    """Return the command that goes to a pane, from within its server or from outside."""
    session = place.session_id or pane_id
    window = f"{place.session_id}:{place.window_id}" if place.session_id else pane_id
    verb = "attach-session" if attach else "switch-client"
    return [
        *("tmux", "-S", place.tmux_socket),
        *(verb, "-t", session),
        *(";", "select-window", "-t", window),
        *(";", "select-pane", "-t", pane_id),
    ]
