"""What can go wrong with tmux.

BullpenError
└── TmuxError               tmux did not do what it was asked; `target` says which
    ├── TmuxNotInstalled    there is no such program here
    ├── TmuxTooOld          ... or it cannot do what is needed
    ├── TmuxNoServer        no server runs there, or one without a session; it may start later
    ├── TmuxServerGone      the server, or our connection to it, ended while we waited
    ├── TmuxTimeout         it did not answer in time
    ├── TmuxBusy            too much is waiting for its answers already
    ├── TmuxRefused         it would not let us connect, in its own words
    ├── TmuxProtocolError   what came is not what tmux says
    └── TmuxCommandFailed   it ran one command and that failed, in its own words
        └── TmuxNotFound    ... because the pane, window or session is not there
"""

from bullpen.errors import BullpenError

__all__ = [
    "TmuxBusy",
    "TmuxCommandFailed",
    "TmuxError",
    "TmuxNoServer",
    "TmuxNotFound",
    "TmuxNotInstalled",
    "TmuxProtocolError",
    "TmuxRefused",
    "TmuxServerGone",
    "TmuxTimeout",
    "TmuxTooOld",
    "failure",
]


class TmuxError(BullpenError):
    """Tmux did not do what it was asked. The next command may succeed."""

    def __init__(self, message: str, *, target: str = "") -> None:
        super().__init__(f"{target}: {message}" if target else message)
        self.target = target


class TmuxNotInstalled(TmuxError):
    """There is no tmux to run. Nothing works until there is."""

    def __init__(self, executable: str, reason: object = "") -> None:
        super().__init__(f"cannot run {executable}" + (f": {reason}" if reason else ""))
        self.executable = executable


class TmuxTooOld(TmuxError):
    """This tmux cannot do it. One process per command still works."""

    def __init__(self, version: str, needed: str, *, target: str = "") -> None:
        super().__init__(f"tmux {version} is older than {needed}", target=target)
        self.version = version
        self.needed = needed


class TmuxNoServer(TmuxError):
    """No server runs there, or none with a session. It is not started by looking; look again."""

    def __init__(self, words: str = "", *, target: str = "") -> None:
        super().__init__(words or "no server is running", target=target)
        self.words = words


class TmuxServerGone(TmuxError):
    """The server or the connection to it ended. What was asked may have been done or not."""

    def __init__(self, reason: str, *, target: str = "") -> None:
        super().__init__(f"the connection to tmux ended: {reason}", target=target)
        self.reason = reason


class TmuxTimeout(TmuxError):
    """Tmux did not answer in time. What was asked may still be done."""

    def __init__(self, command: str, seconds: float, *, target: str = "") -> None:
        super().__init__(f"no answer to {command} in {seconds:g} s", target=target)
        self.command = command
        self.seconds = seconds


class TmuxBusy(TmuxError):
    """Too many commands wait for their answers. This one has not been sent."""

    def __init__(self, waiting: int, *, target: str = "") -> None:
        super().__init__(f"{waiting} commands wait for their answers", target=target)
        self.waiting = waiting


class TmuxRefused(TmuxError):
    """Tmux would not open a control-mode connection. One process per command may work."""

    def __init__(self, words: str, *, target: str = "") -> None:
        super().__init__(f"tmux refused the connection: {words}", target=target)
        self.words = words


class TmuxProtocolError(TmuxError):
    """What came cannot be tmux's words. The connection is given up; another can be opened."""


class TmuxCommandFailed(TmuxError):
    """Tmux ran the command and it failed. Others are not affected."""

    def __init__(self, command: str, words: str, *, target: str = "") -> None:
        super().__init__(f"{command} failed: {words}", target=target)
        self.command = command
        self.words = words


class TmuxNotFound(TmuxCommandFailed):
    """The pane, window, session or client is not there, or not any more."""


def failure(command: str, words: str, *, target: str = "") -> TmuxCommandFailed:
    """Return the error for the words with which tmux refused a command."""
    is_missing = words.startswith(("can't find ", "no such ", "no current ", "no sessions"))
    kind = TmuxNotFound if is_missing else TmuxCommandFailed
    return kind(command, words, target=target)
