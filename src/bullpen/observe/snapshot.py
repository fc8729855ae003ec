"""From one look at a tmux pane to who is in it and what that agent is doing."""

from collections.abc import Mapping

from bullpen.model.states import Provider
from bullpen.observe.pane import PaneVerdict, judge_pane
from bullpen.observe.signature import PaneFacts, Process
from bullpen.terminal.rules.format import ProviderRules
from bullpen.terminal.rules.screen import Cursor, read_screen
from bullpen.terminal.tmux.panes import PaneSnapshot

__all__ = ["judge_snapshot"]


def judge_snapshot(snapshot: PaneSnapshot, rules: Mapping[Provider, ProviderRules]) -> PaneVerdict:
    """Say who is in a pane and what it does, by its processes, its title and its screen."""
    info, below = snapshot.info, snapshot.processes
    front = next((each for each in reversed(below or ()) if each.is_foreground), None)
    processes = tuple(Process(each.argv, each.depth) for each in below) if below else None
    screen = read_screen(
        "\n".join(snapshot.screen),
        cursor=Cursor(info.cursor_x, info.cursor_y),
        title=info.title,
        arguments=front.argv if front else (),
    )
    facts = PaneFacts(
        command=info.current_command,
        processes=() if info.is_dead else processes,
        title=screen.title,
        lines=screen.lines,
    )
    return judge_pane(facts, screen, rules)
