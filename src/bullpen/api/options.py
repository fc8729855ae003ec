"""What the daemon can be told when it is started, by whoever starts it."""

import msgspec

__all__ = ["DaemonOptions"]


class DaemonOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What was said on the command line. None leaves it to the environment and the settings."""

    socket_path: str | None = None
    poll_interval_ms: int | None = None
    tmux_socket: str | None = None
    """The one server to watch, by path or name; else all that are found."""
    isolate_sources: bool | None = None
    """Whether each source gets a process of its own."""
    log_level: str | None = None
    foreground: bool = True
    """Whether it belongs to a terminal: it logs there too, and ends with it."""
