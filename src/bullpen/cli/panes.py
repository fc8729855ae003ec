"""`bullpen panes`: one look at every pane of a tmux server, and what its agent is doing."""

import asyncio
import os
from collections.abc import Sequence
from typing import Any

import click
import msgspec

from bullpen.model.states import Activity
from bullpen.observe.pane import PaneVerdict
from bullpen.observe.snapshot import judge_snapshot
from bullpen.terminal.rules.load import load_rules
from bullpen.terminal.tmux import ProcessReader, TmuxPanes, TmuxServer, resolve_target
from bullpen.terminal.tmux.panes import PaneSnapshot

__all__ = ["command"]

# Never by colour alone: a symbol, a word and a colour.
SYMBOLS = {
    Activity.STARTING: ("○", "cyan"),
    Activity.RUNNING: ("●", "green"),
    Activity.IDLE: ("✓", "blue"),
    Activity.WAITING_INPUT: ("◆", "yellow"),
    Activity.WAITING_APPROVAL: ("◆", "yellow"),
    Activity.RATE_LIMITED: ("▲", "magenta"),
    Activity.ERROR: ("✗", "red"),
    Activity.EXITED: ("·", None),
    Activity.UNKNOWN: ("?", None),
}

Seen = tuple[PaneSnapshot, PaneVerdict]


@click.command(name="panes")
@click.option(
    "--tmux-socket", metavar="SOCKET", help="The server's socket: a path, or a name as for tmux -L."
)
@click.option("--agents", is_flag=True, help="Only panes with an agent in them.")
@click.option("--waiting", is_flag=True, help="Only agents that wait for somebody.")
@click.option("--json", "as_json", is_flag=True, help="Print what was seen as JSON.")
def command(*, tmux_socket: str | None, agents: bool, waiting: bool, as_json: bool) -> None:
    """Look once at every tmux pane: which agent is in it, and what it is doing.

    It is judged by the processes below the pane and by its screen, and says so: `bullpen explain`
    tells more about one screen. Nothing is typed, started or changed. The server is the one of
    --tmux-socket, else of BULLPEN_TMUX_SOCKET_PATH or BULLPEN_TMUX_SOCKET_NAME, else the one you
    are in, else tmux's default.

    \b
    Examples:
      bullpen panes
      bullpen panes --waiting
      bullpen panes --json | jq '.panes[] | select(.activity == "idle")'

    \b
    Exit codes:
      0  looked, also if there is no agent
      1  there is no tmux, or no server, or a rule file cannot be read
      2  wrong usage
    """  # noqa: D301 - click wants the character, not its name
    rules = load_rules()
    seen = [
        (snapshot, judge_snapshot(snapshot, rules)) for snapshot in asyncio.run(_look(tmux_socket))
    ]
    if agents or waiting:
        seen = [each for each in seen if each[1].provider is not None]
    if waiting:
        seen = [each for each in seen if each[1].activity and each[1].activity.is_waiting]
    if as_json:
        encoded = msgspec.json.encode({"schema": 1, "panes": [_record(*each) for each in seen]})
        click.echo(msgspec.json.format(encoded).decode())
    else:
        for line in _table(seen):
            click.echo(line)


async def _look(socket: str | None) -> list[PaneSnapshot]:
    server = TmuxServer(resolve_target(os.environ, user_id=os.getuid(), socket=socket))
    try:
        processes = await ProcessReader().read()
        return await TmuxPanes(server).look(processes)
    finally:
        await server.aclose()


def _record(snapshot: PaneSnapshot, judged: PaneVerdict) -> dict[str, Any]:
    info = snapshot.info
    return {
        "pane_id": info.pane_id,
        "session": info.session_name,
        "window": info.window_name,
        "command": info.current_command,
        "title": info.title,
        "path": info.current_path,
        "provider": judged.provider,
        "activity": judged.activity,
        "ready": judged.is_ready,
        "signature_class": judged.signature.signature_class,
        "signature_reason": judged.signature.reason,
        "signature_confidence": judged.signature.confidence,
        "rule": judged.verdict.rule if judged.verdict else None,
    }


def _table(seen: Sequence[Seen]) -> list[str]:
    rows = [_cells(*each) for each in seen]
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(3)]
    lines = []
    for (_, judged), row in zip(seen, rows, strict=True):
        # Padded before it is coloured: escape sequences have no width.
        place, agent, state = (cell.ljust(width) for cell, width in zip(row, widths, strict=False))
        colour = SYMBOLS[judged.activity][1] if judged.activity else None
        lines.append(f"{place}  {agent}  {click.style(state, fg=colour)}  {row[3]}".rstrip())
    agents = sum(judged.provider is not None for _, judged in seen)
    waiting = sum(bool(judged.activity and judged.activity.is_waiting) for _, judged in seen)
    lines.append(f"{len(seen)} panes, {agents} agents, {waiting} waiting")
    return lines


def _cells(snapshot: PaneSnapshot, judged: PaneVerdict) -> tuple[str, str, str, str]:
    info = snapshot.info
    place = f"{info.session_name}:{info.window_index}.{info.pane_index} {info.pane_id}"
    if judged.provider is None or judged.activity is None:
        return _one_line(place), "-", info.current_command, _one_line(info.current_path)
    state = f"{SYMBOLS[judged.activity][0]} {judged.activity}"
    return _one_line(place), judged.provider, state, _one_line(info.current_path)


def _one_line(text: str) -> str:
    return "".join(each if each.isprintable() else "�" for each in text)
