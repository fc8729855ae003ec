"""Which tmux server is meant, without asking any.

The first that is set decides: what the caller says, `BULLPEN_TMUX_SOCKET_PATH`,
`BULLPEN_TMUX_SOCKET_NAME`, `TMUX` (which tmux sets in its panes), tmux's own default.
"""

from collections.abc import Mapping

import msgspec

__all__ = ["NAME_VARIABLE", "PATH_VARIABLE", "ServerIdentity", "TmuxTarget", "resolve_target"]

PATH_VARIABLE = "BULLPEN_TMUX_SOCKET_PATH"
NAME_VARIABLE = "BULLPEN_TMUX_SOCKET_NAME"


class ServerIdentity(msgspec.Struct, frozen=True, order=True):
    """Which run of a server it is: what was known of another says nothing about this one."""

    pid: int
    start_time: int

    def __str__(self) -> str:
        return f"{self.pid}.{self.start_time}"


class TmuxTarget(msgspec.Struct, frozen=True):
    """One tmux server, running or not, by the path of its socket."""

    socket_path: str
    source: str = "caller"  # which setting named it

    @property
    def arguments(self) -> tuple[str, ...]:
        """What tells the tmux program to speak to this server."""
        return ("-S", self.socket_path)

    def __str__(self) -> str:
        return self.socket_path


def resolve_target(
    environment: Mapping[str, str], *, user_id: int, socket: str | None = None
) -> TmuxTarget:
    """Choose the server. A socket without a slash is a name, as with `tmux -L`."""
    if socket:
        return TmuxTarget(_path(socket, environment, user_id), "--tmux-socket")
    if path := environment.get(PATH_VARIABLE):
        return TmuxTarget(path, PATH_VARIABLE)
    if name := environment.get(NAME_VARIABLE):
        return TmuxTarget(_named(name, environment, user_id), NAME_VARIABLE)
    path = environment.get("TMUX", "").rsplit(",", 2)[0]  # path, server's pid, number of session
    if path:
        return TmuxTarget(path, "TMUX")
    return TmuxTarget(_named("default", environment, user_id), "default")


def _path(socket: str, environment: Mapping[str, str], user_id: int) -> str:
    return socket if "/" in socket else _named(socket, environment, user_id)


def _named(name: str, environment: Mapping[str, str], user_id: int) -> str:
    """Return where tmux itself puts the socket of a name."""
    directory = environment.get("TMUX_TMPDIR") or "/tmp"  # noqa: S108  (tmux's own rule)
    return f"{directory.rstrip('/')}/tmux-{user_id}/{name}"
