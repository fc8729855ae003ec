"""Tmux, through one control-mode connection per server.

`TmuxServer` runs commands: it connects when it is used, again after the server was gone, and never
starts one. `TmuxPanes` lists and captures panes over it, only those that changed, and tells one
life of a pane from another. `ProcessReader` reads who runs below them. Nothing here judges what a
screen means, types into a pane, or runs in the background.

`TmuxCommandRunner` is the port: `TmuxServer` over `TmuxClient` in production, `TmuxExecutor` with a
process per command where tmux is too old, `bullpen.testing.tmux.FakeTmux` in tests. Pure modules:
`protocol`, `target`, `backoff`, `listing`, `generations`, `changes`.
"""

from bullpen.terminal.tmux.client import TmuxClient
from bullpen.terminal.tmux.errors import (
    TmuxBusy,
    TmuxCommandFailed,
    TmuxError,
    TmuxNoServer,
    TmuxNotFound,
    TmuxNotInstalled,
    TmuxProtocolError,
    TmuxRefused,
    TmuxServerGone,
    TmuxTimeout,
    TmuxTooOld,
)
from bullpen.terminal.tmux.executor import TmuxExecutor
from bullpen.terminal.tmux.generations import PaneGenerations, PaneInstance
from bullpen.terminal.tmux.listing import PaneInfo
from bullpen.terminal.tmux.panes import Capture, PaneSnapshot, TmuxPanes
from bullpen.terminal.tmux.processes import ProcessInfo, ProcessReader, ProcessTable
from bullpen.terminal.tmux.runner import Answer, TmuxCommandRunner
from bullpen.terminal.tmux.server import TmuxServer, find_targets
from bullpen.terminal.tmux.target import ServerIdentity, TmuxTarget, resolve_target

__all__ = [
    "Answer",
    "Capture",
    "PaneGenerations",
    "PaneInfo",
    "PaneInstance",
    "PaneSnapshot",
    "ProcessInfo",
    "ProcessReader",
    "ProcessTable",
    "ServerIdentity",
    "TmuxBusy",
    "TmuxClient",
    "TmuxCommandFailed",
    "TmuxCommandRunner",
    "TmuxError",
    "TmuxExecutor",
    "TmuxNoServer",
    "TmuxNotFound",
    "TmuxNotInstalled",
    "TmuxPanes",
    "TmuxProtocolError",
    "TmuxRefused",
    "TmuxServer",
    "TmuxServerGone",
    "TmuxTarget",
    "TmuxTimeout",
    "TmuxTooOld",
    "find_targets",
    "resolve_target",
]
