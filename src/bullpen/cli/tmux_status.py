"""`bullpen tmux-status`: what the hot path does not answer, and the lines for `.tmux.conf`."""

import os
import shlex
import shutil
import sys

import click

from bullpen.api.locations import socket_path as default_socket_path
from bullpen.cli import hot
from bullpen.cli.options import json_option, socket_path
from bullpen.cli.output import print_json

__all__ = ["command", "snippet"]


@click.command(name="tmux-status")
@click.option("--snippet", "show_snippet", is_flag=True, help="Print the lines for .tmux.conf.")
@json_option
def command(*, show_snippet: bool, as_json: bool) -> None:
    """Print one line for tmux's status bar: A: agents, U: other panes, ◆ who waits for somebody.

    It starts no daemon and never waits for long; without one it prints -. There is no newline at
    the end.

    \b
    Examples:
      bullpen tmux-status
      bullpen tmux-status --snippet >> ~/.tmux.conf

    \b
    Exit codes:
      0  always, but for
      2  wrong usage
    """  # noqa: D301 - click wants the character, not its name
    if show_snippet:
        click.echo("\n".join(snippet(_executable(), socket_path())))
        return
    path = socket_path() or default_socket_path(os.environ, os.getuid())
    line = hot.tmux_status(["--socket-path", path])
    if as_json:
        print_json(line=line)
    else:
        click.echo(line, nl=False)


def snippet(executable: str, socket: str | None) -> list[str]:
    """Return what belongs into `.tmux.conf`. A path is absolute: tmux has a `PATH` of its own.

    Read once more, it adds nothing. Its right side holds 40 characters unless told otherwise, of
    which a long title, a time and a date leave none to us.
    """
    words = [executable, "tmux-status", *(("-s", socket) if socket else ())]
    pick = [executable, "pick", *(("-s", socket) if socket else ())]
    # A sharp and a per cent sign mean something to tmux there.
    shown = shlex.join(words).replace("#", "##").replace("%", "%%")
    append = f"set -ga status-right {_quoted(f' #({shown})')}"
    jump = f"TMUX_PANE=#{{pane_id}} {shlex.join(pick).replace('#', '##')}"
    return [
        "# bullpen: agents, other panes, and who waits; prefix + j goes to the next who waits",
        'if-shell -F "#{m:??,#{status-right-length}}" "set -g status-right-length 100"',
        f'if-shell -F "#{{m:* tmux-status*,#{{status-right}}}}" "" {_quoted(append)}',
        f"bind-key j run-shell {_quoted(jump)}",
    ]


def _quoted(word: str) -> str:
    """Return a word as tmux's own configuration has it."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$")
    return f'"{escaped}"'


def _executable() -> str:
    """Return where we are, so that tmux finds us."""
    called = sys.argv[0]
    if os.path.basename(called) == "bullpen" and os.access(called, os.X_OK):  # noqa: PTH119
        return os.path.abspath(called)  # noqa: PTH100 - a link to us is as good
    beside = os.path.join(os.path.dirname(sys.executable), "bullpen")  # noqa: PTH118, PTH120
    return beside if os.access(beside, os.X_OK) else shutil.which("bullpen") or "bullpen"
