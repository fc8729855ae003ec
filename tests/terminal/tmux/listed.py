"""Panes as a listing has them, for tests without tmux."""

from typing import Any

import msgspec

from bullpen.terminal.tmux.listing import PaneInfo
from bullpen.terminal.tmux.target import ServerIdentity

__all__ = ["SERVER", "pane", "printed"]

SERVER = ServerIdentity(10, 1000)

_PANE = PaneInfo(
    server=SERVER,
    session_id="$1",
    session_attached=1,
    session_created=1000,
    window_id="@2",
    window_index=0,
    window_is_active=True,
    window_activity=2000,
    pane_id="%3",
    pane_index=0,
    pane_pid=300,
    tty="/dev/pts/3",
    width=80,
    height=24,
    is_active=True,
    is_dead=False,
    dead_status=None,
    is_alternate=False,
    mode="",
    cursor_x=0,
    cursor_y=0,
    is_cursor_visible=True,
    history_size=0,
    session_name="main",
    window_name="sh",
    title="",
    current_command="sh",
    current_path="/",
    start_command="",
)


def pane(pane_id: str = "%3", **changes: Any) -> PaneInfo:
    """A pane like any other, but for the changes."""
    return msgspec.structs.replace(_PANE, pane_id=pane_id, **changes)


def printed(info: PaneInfo, mark: str) -> bytes:
    """What tmux prints of a pane in a listing with that mark."""
    fields = [
        *(info.server.pid, info.server.start_time, info.session_id, info.session_attached),
        *(info.session_created, info.window_id, info.window_index, int(info.window_is_active)),
        *(info.window_activity, info.pane_id, info.pane_index, info.pane_pid, info.tty),
        *(info.width, info.height, int(info.is_active), int(info.is_dead)),
        "" if info.dead_status is None else info.dead_status,
        *(int(info.is_alternate), info.mode, info.cursor_x, info.cursor_y),
        *(int(info.is_cursor_visible), info.history_size),
    ]
    texts = [
        *(info.session_name, info.window_name, info.title),
        *(info.current_command, info.current_path, info.start_command),
    ]
    line = "|".join(map(str, fields)) + mark + "".join(text + mark for text in texts) + "\n"
    return line.encode()
