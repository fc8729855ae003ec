"""Where an agent is: for people to read, for lists to be sorted by, and the way there in tmux."""

from bullpen.model.appearance import one_line
from bullpen.model.views import AgentState, PanePlace

__all__ = [
    "OUTSIDE",
    "is_same_server",
    "jump_words",
    "place_of",
    "place_order",
    "place_words",
    "session_heading",
]

OUTSIDE = "outside tmux"
"""The heading of those who are in no pane."""


def is_same_server(one: str, other: str) -> bool:
    """Whether two paths of sockets are those of one tmux server.

    On macOS /tmp and /var are links to what is in /private: in its panes tmux says where they lead.
    """
    return _as_it_is_called(one) == _as_it_is_called(other)


def _as_it_is_called(path: str) -> str:
    public = path.removeprefix("/private")
    return public if public.startswith(("/tmp/", "/var/")) else path  # noqa: S108 - not made here


def place_words(session_name: str, window_index: int, pane_index: int) -> str:
    """Return a pane's place as tmux itself writes it."""
    return f"{session_name}:{window_index}.{pane_index}"


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


def place_order(agent: AgentState) -> tuple[object, ...]:
    """Return what agents are sorted by, so that neighbours on the screen are neighbours here."""
    place = agent.place
    if place is None:
        return 1, "", "", 0, 0, agent.name
    where = (place.tmux_socket, place.session_name, place.window_index, place.pane_index)
    return 0, *where, agent.name


def session_heading(place: PanePlace | None, *, several_servers: bool) -> str:
    """Return the heading for those in one tmux session, or in none."""
    if place is None:
        return OUTSIDE
    server = f" ({place.tmux_socket})" if several_servers else ""
    return one_line(f"{place.session_name}{server}")


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
