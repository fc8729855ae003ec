"""One look at every pane of a tmux server, without a daemon."""

import asyncio
import os
from collections.abc import Sequence
from typing import Any

from bullpen.cli.output import Cell, columns, state_cell, text
from bullpen.model.appearance import counted
from bullpen.observe.pane import PaneVerdict
from bullpen.observe.snapshot import judge_snapshot
from bullpen.terminal.rules.load import load_rules
from bullpen.terminal.tmux import ProcessReader, TmuxPanes, TmuxServer, resolve_target
from bullpen.terminal.tmux.panes import PaneSnapshot

__all__ = ["Seen", "listing", "look", "record"]

Seen = tuple[PaneSnapshot, PaneVerdict]


def look(tmux_socket: str | None, *, agents: bool, waiting: bool) -> list[Seen]:
    """Judge every pane by its processes and its screen; nothing is typed, started or changed."""
    rules = load_rules()
    snapshots = asyncio.run(_look(tmux_socket))
    seen = [(snapshot, judge_snapshot(snapshot, rules)) for snapshot in snapshots]
    if agents or waiting:
        seen = [each for each in seen if each[1].provider is not None]
    if waiting:
        seen = [each for each in seen if each[1].activity and each[1].activity.is_waiting]
    return seen


async def _look(socket: str | None) -> list[PaneSnapshot]:
    server = TmuxServer(resolve_target(os.environ, user_id=os.getuid(), socket=socket))
    try:
        processes = await ProcessReader().read()
        return await TmuxPanes(server).look(processes)
    finally:
        await server.aclose()


def record(snapshot: PaneSnapshot, judged: PaneVerdict) -> dict[str, Any]:
    """Return what was seen of a pane, for programs."""
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


def listing(seen: Sequence[Seen]) -> list[str]:
    """Return the lines that show what was seen."""
    agents = sum(judged.provider is not None for _, judged in seen)
    waiting = sum(bool(judged.activity and judged.activity.is_waiting) for _, judged in seen)
    rows = [_row(*each) for each in seen]
    return [
        *columns(rows),
        f"{counted(len(seen), 'pane')}, {counted(agents, 'agent')}, {waiting} waiting",
    ]


def _row(snapshot: PaneSnapshot, judged: PaneVerdict) -> list[Cell]:
    info = snapshot.info
    place = text(f"{info.session_name}:{info.window_index}.{info.pane_index} {info.pane_id}")
    if judged.provider is None or judged.activity is None:
        return [place, Cell("-"), text(info.current_command), text(info.current_path)]
    return [place, Cell(judged.provider), state_cell(judged.activity), text(info.current_path)]
