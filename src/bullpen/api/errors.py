"""What the daemon refuses, each with a number and a reason, and what keeps one from reaching it.

BullpenError
├── RpcError                     any error that goes over the wire
│   └── ApiError                 one of the table; `data.reason` is its name
├── DaemonUnavailable            there is no daemon to speak to
│   ├── DaemonStartError         ... none could be started
│   └── ProtocolMismatchError    ... the one there is speaks another version
├── DirectoryError               a directory of ours cannot be used
├── SocketPathError              the socket's path is too long for a socket
├── SettingsError                a setting is wrong
├── NobodyError                  there is no agent to go to
└── TmuxFailedError              tmux could not go there
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bullpen.connection import RpcError
from bullpen.errors import BullpenError
from bullpen.model.appearance import one_line
from bullpen.model.reasons import Reason

__all__ = [
    "ApiError",
    "DaemonStartError",
    "DaemonUnavailable",
    "DirectoryError",
    "NobodyError",
    "ProtocolMismatchError",
    "SettingsError",
    "SocketPathError",
    "TmuxFailedError",
    "reason_of",
]


class ApiError(RpcError):
    """The daemon refused. `reason` says why; nothing has been changed."""

    def __init__(self, reason: Reason, message: str, **facts: Any) -> None:
        super().__init__(int(reason), message, {"reason": reason.word, **facts})
        self.reason = reason


class DaemonUnavailable(BullpenError):
    """There is no daemon, and none could be started. The message says what was tried."""


class DaemonStartError(DaemonUnavailable):
    """A daemon was started and did not come up. `log_tail` is what it said last."""

    def __init__(self, what: str, log_path: Path, log_tail: Sequence[str] = ()) -> None:
        said = "".join(f"\n  {line}" for line in log_tail)
        super().__init__(f"{what}; see {log_path}{':' if said else ''}{said}")
        self.log_path = log_path
        self.log_tail = tuple(log_tail)


class ProtocolMismatchError(DaemonUnavailable):
    """The daemon is of another version. Ending it lets one of ours be started."""

    def __init__(self, pid: int, version: str, theirs: int, ours: int) -> None:
        super().__init__(
            f"the daemon (pid {pid}, version {version}) speaks protocol {theirs}, we speak {ours}; "
            "end it with `bullpen down` and try again"
        )
        self.pid = pid
        self.version = version
        self.theirs = theirs
        self.ours = ours


class DirectoryError(BullpenError):
    """A directory of ours cannot be used. Nothing has been changed about it."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"cannot use the directory {path}: {reason}")
        self.path = path
        self.reason = reason


class SocketPathError(BullpenError):
    """A path is too long for a Unix socket. One elsewhere can be chosen."""

    def __init__(self, path: Path, length: int, limit: int) -> None:
        super().__init__(
            f"the socket path {path} has {length} bytes and may have {limit}; "
            "choose a shorter one with --socket-path or BULLPEN_HOME"
        )
        self.path = path
        self.length = length
        self.limit = limit


class SettingsError(BullpenError):
    """Settings are wrong: where, and what was expected. None of them is in effect."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class NobodyError(BullpenError):
    """There is nobody to go to. The message says whether somebody waits where tmux cannot go."""

    def __init__(self, elsewhere: Sequence[tuple[str, str]] = ()) -> None:
        named = [f"{name} ({place or 'nobody knows where'})" for name, place in elsewhere]
        outside = f" in tmux; outside of it: {', '.join(named)}" if named else ""
        super().__init__(one_line(f"nobody waits{outside}"))
        self.elsewhere = tuple(elsewhere)


class TmuxFailedError(BullpenError):
    """Tmux could not go there. The message is its own."""


def reason_of(error: RpcError) -> str:
    """Return the name of a refusal that came over the wire; empty if it is none of the table."""
    data = error.data if isinstance(error.data, dict) else {}
    word = data.get("reason", "")
    return word if isinstance(word, str) else ""
