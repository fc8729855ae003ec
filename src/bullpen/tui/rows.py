"""What the board has lines for: agents under the tmux session they are in, and who is left out."""

from collections.abc import Callable, Iterable
from itertools import groupby

import msgspec

from bullpen.model.places import session_heading
from bullpen.model.states import Presence
from bullpen.model.views import AgentState, PanePlace, PaneState

__all__ = ["Filter", "Heading", "Line", "Row", "board_lines", "next_waiting", "parse_filter"]

FIELDS = ("provider", "state")


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One agent, or one pane without any."""

    key: str
    """The same for the same agent or pane, whatever becomes of it."""
    agent: AgentState | None = None
    pane: PaneState | None = None
    directory: str = ""
    """Where it works, as its owner would write it."""
    branch: str = ""

    @property
    def is_waiting(self) -> bool:
        """Whether nothing goes on here until somebody answers."""
        return self.agent is not None and self.agent.activity.is_waiting

    @property
    def place(self) -> PanePlace | None:
        """Where it is in tmux, if it is there."""
        if self.agent is not None:
            return self.agent.place
        return self.pane.place if self.pane is not None else None

    @property
    def pane_id(self) -> str:
        """Its pane, if it is in one."""
        if self.agent is not None:
            return self.agent.pane.pane_id if self.agent.pane else ""
        return self.pane.pane_instance_id.pane_id if self.pane is not None else ""

    @property
    def subject(self) -> str:
        """What to ask the daemon for an explanation of."""
        if self.agent is not None:
            return self.agent.name
        return str(self.pane.pane_instance_id) if self.pane is not None else ""


class Heading(msgspec.Struct, frozen=True, kw_only=True):
    """What stands above the rows of one tmux session, or of those in none."""

    title: str
    agents: int = 0
    waiting: int = 0


Line = Heading | Row
Known = Callable[[str], tuple[str, str]]
"""What is shown of a directory: how its owner would write it, and its branch."""


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Who is wanted: all words have to be found, and one of the values of each field."""

    words: tuple[str, ...] = ()
    providers: tuple[str, ...] = ()
    states: tuple[str, ...] = ()

    def wants(self, row: Row) -> bool:
        """Whether a row is to be shown."""
        agent = row.agent
        if self.providers and not (agent and agent.provider.startswith(self.providers)):
            return False
        if self.states and not (agent and _is_in_state(agent, self.states)):
            return False
        text = _searchable(row)
        return all(word in text for word in self.words)


EVERYBODY = Filter()


def parse_filter(text: str) -> Filter:
    """Return the filter somebody typed: `api provider:claude state:waiting`.

    A value may be the beginning of one; `state:waiting` is whoever waits. A field that is not known
    is a word like any other, so nothing that can be typed is wrong.
    """
    values: dict[str, list[str]] = {field: [] for field in FIELDS}
    words: list[str] = []
    for word in text.lower().split():
        field, colon, value = word.partition(":")
        if colon and field in FIELDS:
            if value:  # else it is not typed to its end yet
                values[field].append(value)
        else:
            words.append(word)
    return Filter(
        words=tuple(words), providers=tuple(values["provider"]), states=tuple(values["state"])
    )


def board_lines(
    agents: Iterable[AgentState],
    panes: Iterable[PaneState] = (),
    *,
    wanted: Filter = EVERYBODY,
    known: Known = lambda path: (path, ""),
) -> list[Line]:
    """Return the lines: for each session its heading, then its rows as they are in tmux.

    Of the panes, only those are shown that no agent is in; who wants none of them gives none.
    """
    rows = [_agent_row(agent, known) for agent in agents]
    rows += [_pane_row(each, known) for each in panes if each.presence is Presence.UNMANAGED]
    several = len({row.place.tmux_socket for row in rows if row.place}) > 1
    rows = sorted(filter(wanted.wants, rows), key=_order)
    lines: list[Line] = []
    for title, group in groupby(
        rows, key=lambda row: session_heading(row.place, several_servers=several)
    ):
        members = list(group)
        lines.append(
            Heading(
                title=title,
                agents=sum(row.agent is not None for row in members),
                waiting=sum(row.is_waiting for row in members),
            )
        )
        lines += members
    return lines


def next_waiting(lines: list[Line], after: str | None) -> str | None:
    """Return the next row that waits behind another, after the last the first; None without any."""
    rows = [line for line in lines if isinstance(line, Row)]
    start = next((n for n, row in enumerate(rows, start=1) if row.key == after), 0)
    return next((row.key for row in (*rows[start:], *rows[:start]) if row.is_waiting), None)


def _agent_row(agent: AgentState, known: Known) -> Row:
    directory, branch = known(agent.cwd)
    return Row(key=f"agent {agent.name}", agent=agent, directory=directory, branch=branch)


def _pane_row(pane: PaneState, known: Known) -> Row:
    directory, branch = known(pane.place.current_path)
    key = f"pane {pane.pane_instance_id}"
    return Row(key=key, pane=pane, directory=directory, branch=branch)


def _order(row: Row) -> tuple[object, ...]:
    place = row.place
    if place is None:
        return 1, "", "", 0, 0, row.key
    where = (place.session_name, place.tmux_socket, place.window_index, place.pane_index)
    return 0, *where, row.key


def _is_in_state(agent: AgentState, states: tuple[str, ...]) -> bool:
    return agent.activity.startswith(states)  # so that `waiting` stands for both


def _searchable(row: Row) -> str:
    place = row.place
    parts = [row.directory, row.branch, row.pane_id]
    if row.agent is not None:
        agent = row.agent
        parts += [agent.name, agent.provider, agent.activity, agent.title]
    if row.pane is not None:
        parts += [row.pane.place.current_command, row.pane.title]
    if place is not None:
        parts += [place.session_name, place.window_name]
    return "\n".join(parts).lower()
