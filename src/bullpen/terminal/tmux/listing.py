"""The panes of a server as tmux lists them, without I/O.

Names, titles and paths may contain anything, also newlines and whatever one would separate them by.
So each ends with a mark that nobody can guess, made anew for each listing.
"""

import re
from collections.abc import Callable
from typing import Any

import msgspec

from bullpen.terminal.tmux.errors import TmuxProtocolError
from bullpen.terminal.tmux.target import ServerIdentity

__all__ = ["PaneInfo", "PaneLists", "list_command", "parse_panes"]


class PaneInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A pane at one place in one session, as tmux describes it.

    A pane of a window that is linked into several sessions is listed once for each. Text that is
    not UTF-8 has replacement characters in it. A title is for display only: a program that ends
    leaves its title behind.
    """

    server: ServerIdentity
    session_id: str  # $3
    session_attached: int  # how many clients see the session
    session_created: int
    window_id: str  # @3
    window_index: int
    window_is_active: bool  # within its session
    window_activity: int  # when anything in the window was last printed, in whole seconds
    pane_id: str  # %3
    pane_index: int
    pane_pid: int  # the process tmux started in it
    tty: str
    width: int
    height: int
    is_active: bool  # within its window
    is_dead: bool  # its process ended and the pane remains
    dead_status: int | None  # with what exit status
    is_alternate: bool  # a program shows the alternate screen
    mode: str  # "copy-mode" and the like while somebody looks at it that way
    cursor_x: int
    cursor_y: int
    is_cursor_visible: bool
    history_size: int
    session_name: str
    window_name: str
    title: str
    current_command: str
    current_path: str
    start_command: str

    @property
    def is_visible(self) -> bool:
        """Whether somebody may be looking at it."""
        return self.session_attached > 0 and self.window_is_active


def _integer(value: str) -> int:
    return int(value) if value else 0


def _flag(value: str) -> bool:
    return value not in ("", "0")


def _status(value: str) -> int | None:
    return int(value) if value else None


def _id(kind: str) -> Callable[[str], str]:
    pattern = re.compile(rf"{re.escape(kind)}\d+")

    def check(value: str) -> str:
        if pattern.fullmatch(value) is None:
            raise ValueError(f"{value!r} is no id")
        return value

    return check


# What tmux calls it, and how it is read. No value of the first kind can contain the separator.
_SIMPLE: tuple[tuple[str, str, Callable[[str], Any]], ...] = (
    ("server_pid", "pid", int),
    ("server_start_time", "start_time", int),
    ("session_id", "session_id", _id("$")),
    ("session_attached", "session_attached", _integer),
    ("session_created", "session_created", _integer),
    ("window_id", "window_id", _id("@")),
    ("window_index", "window_index", _integer),
    ("window_is_active", "window_active", _flag),
    ("window_activity", "window_activity", _integer),
    ("pane_id", "pane_id", _id("%")),
    ("pane_index", "pane_index", _integer),
    ("pane_pid", "pane_pid", _integer),
    ("tty", "pane_tty", str),
    ("width", "pane_width", int),
    ("height", "pane_height", int),
    ("is_active", "pane_active", _flag),
    ("is_dead", "pane_dead", _flag),
    ("dead_status", "pane_dead_status", _status),
    ("is_alternate", "alternate_on", _flag),
    ("mode", "pane_mode", str),
    ("cursor_x", "cursor_x", _integer),
    ("cursor_y", "cursor_y", _integer),
    ("is_cursor_visible", "cursor_flag", _flag),
    ("history_size", "history_size", _integer),
)
_TEXTS = (
    ("session_name", "session_name"),
    ("window_name", "window_name"),
    ("title", "pane_title"),
    ("current_command", "pane_current_command"),
    ("current_path", "pane_current_path"),
    ("start_command", "pane_start_command"),
)
_SEPARATOR = "|"


def list_command(mark: str) -> tuple[str, ...]:
    """Return the command that lists every pane of the server. The mark is for `parse_panes`."""
    simple = _SEPARATOR.join(f"#{{{name}}}" for _, name, _ in _SIMPLE)
    texts = "".join(f"#{{{name}}}{mark}" for _, name in _TEXTS)
    return ("list-panes", "-a", "-F", f"{simple}{mark}{texts}")


class PaneLists:
    """Reads one listing after the other. A pane that is listed as before is the same object."""

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, ...], PaneInfo] = {}

    def read(self, output: bytes, mark: str) -> tuple[PaneInfo, ...]:
        """Return the panes that the command printed.

        Raises:
            TmuxProtocolError: it is not such a list, or not a whole one.
        """
        records = _records(output, mark)
        known = self._known
        self._known = {record: known.get(record) or _parse_pane(record) for record in records}
        return tuple(self._known[record] for record in records)


def parse_panes(output: bytes, mark: str) -> tuple[PaneInfo, ...]:
    """Return the panes that the command printed, whatever was printed before.

    Raises:
        TmuxProtocolError: it is not such a list, or not a whole one.
    """
    return PaneLists().read(output, mark)


def _records(output: bytes, mark: str) -> list[tuple[bytes, ...]]:
    pieces = output.split(mark.encode())
    size = len(_TEXTS) + 1
    if pieces.pop().strip() or len(pieces) % size:
        raise TmuxProtocolError(f"a list of panes is cut off: {output[-80:]!r}")
    return [tuple(pieces[at : at + size]) for at in range(0, len(pieces), size)]


def _parse_pane(record: tuple[bytes, ...]) -> PaneInfo:
    simple, *texts = (piece.decode(errors="replace") for piece in record)
    values = simple.removeprefix("\n").split(_SEPARATOR)
    try:
        fields: dict[str, Any] = {
            name: read(value) for (name, _, read), value in zip(_SIMPLE, values, strict=True)
        }
    except ValueError as error:
        raise TmuxProtocolError(f"not a pane: {simple[:200]!r}: {error}") from error
    server = ServerIdentity(fields.pop("server_pid"), fields.pop("server_start_time"))
    fields.update(zip((name for name, _ in _TEXTS), texts, strict=True))
    return PaneInfo(server=server, **fields)
