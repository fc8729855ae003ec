"""Agents that only pretend are taken for real ones, by the rules we ship."""

import asyncio
import shlex
import sys
from pathlib import Path

import pytest

from bullpen.model.states import Activity, Provider, SignatureClass
from bullpen.observe.pane import judge_screen
from bullpen.observe.signature import Signature
from bullpen.terminal.rules.load import shipped_rules
from bullpen.terminal.rules.screen import Cursor, read_screen
from bullpen.testing.agents import LIFE, NAMES, STATES, draw, install
from bullpen.testing.tmux import PrivateTmux

RULES = shipped_rules()


def test_there_is_one_for_every_family_and_a_drawing_for_every_state() -> None:
    assert set(NAMES) == set(Provider) - {Provider.OTHER}
    assert set(STATES) == set(Activity) - {Activity.EXITED, Activity.UNKNOWN}
    assert {state for state, _ in LIFE} == {*STATES, "exit"} - {"starting"}


@pytest.mark.parametrize("width", [60, 120])
@pytest.mark.parametrize("frame", [0, 5])
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("name", NAMES)
def test_what_is_drawn_is_recognised(name: str, state: str, frame: int, width: int) -> None:
    drawing = draw(name, state, width=width, frame=frame, task="Sort the shelves")
    cursor = Cursor(*drawing.cursor) if drawing.cursor else None
    signature = Signature(Provider(name), SignatureClass.HEURISTIC, 1.0, "it was given")
    for title in (drawing.title, ""):
        screen = read_screen(
            "\n".join(drawing.lines), width=width, height=24, cursor=cursor, title=title
        )
        verdict = judge_screen(signature, screen, RULES).verdict
        assert verdict is not None
        assert verdict.activity == state, (verdict.rule, verdict.losers)
        assert verdict.ready == (state in ("idle", "error", "rate_limited"))


@pytest.mark.tmux
async def test_an_agent_shows_what_it_is_told_and_goes_when_it_is_told(tmp_path: Path) -> None:
    await asyncio.to_thread(install, tmp_path / "bin")
    async with PrivateTmux() as tmux:
        program = shlex.join([sys.executable, "-I", str(tmp_path / "bin/claude"), "--task", "Sort"])
        pane = await tmux.new_pane(f"{program}; printf 'it is %s' over; exec cat")
        await tmux.run("send-keys", "-t", pane, "waiting_approval", "Enter")
        await tmux.wait_for(pane, "Do you want to proceed?")
        assert "❯ Sort" in await tmux.screen(pane)
        title = await tmux.run("display", "-p", "-t", pane, "#{pane_title}")
        assert title == "✳ Sort"
        await tmux.run("send-keys", "-t", pane, "idle", "Enter")
        await tmux.wait_for(pane, "? for shortcuts")
        await tmux.run("send-keys", "-t", pane, "exit", "Enter")
        await tmux.wait_for(pane, "it is over")
        assert "Sort" not in await tmux.screen(pane)
