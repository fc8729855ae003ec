"""The demonstration shows agents in every state, and leaves nothing behind."""

import asyncio
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from bullpen.cli.group import run
from bullpen.testing.demo import CAST
from bullpen.testing.tmux import PrivateTmux

pytestmark = pytest.mark.tmux

SECONDS = 50  # on a busy machine


@pytest.fixture(autouse=True)
def needs_tmux() -> None:
    if shutil.which("tmux") is None:
        pytest.skip("there is no tmux here")


def processes_in(directory: Path) -> list[str]:
    """Return the command lines that name a directory."""
    words = ["ps", "-axww", "-o", "args="]
    listed = subprocess.run(words, check=True, capture_output=True, text=True)
    return [line for line in listed.stdout.splitlines() if str(directory) in line]


def left_in(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir() if path.name.startswith("bullpen-")]


async def has_nothing(directory: Path) -> bool:
    processes = await asyncio.to_thread(processes_in, directory)
    return not processes and not left_in(directory)


async def is_read(tmux: PrivateTmux, pane: str, words: str) -> bool:
    return words in await tmux.screen(pane)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait for what takes seconds, as a demonstration does."""
    async with asyncio.timeout(SECONDS):
        while True:
            if await condition():
                return
            await asyncio.sleep(0.1)


@pytest.fixture
def place(home: Path) -> Path:
    """A temporary directory that the demonstration will take for the system's."""
    place = home / "t"
    place.mkdir()
    return place


async def demo_in(tmux: PrivateTmux, place: Path) -> str:
    command = shlex.join([sys.executable, "-m", "bullpen", "--demo"])
    pane = await tmux.new_pane(f"TMPDIR={place} {command}; printf 'ended with %s.' $?; exec cat")
    await tmux.run("resize-window", "-t", pane, "-x", "120", "-y", "30")
    return pane


@pytest.mark.timeout(120)
async def test_the_board_shows_the_agents_and_q_ends_everything(place: Path) -> None:
    async with PrivateTmux(width=120, height=30) as tmux:
        pane = await demo_in(tmux, place)
        seen: set[str] = set()

        async def has_shown_them() -> bool:
            screen = await tmux.screen(pane)
            seen.update(re.findall(r"[●◆✓✗▲○] ([a-z_]+) +~", screen))
            return {"running", "waiting_approval", "idle"} <= seen and "fix-cart" in screen

        await until(has_shown_them)
        screen = await tmux.screen(pane)
        assert re.search(r"shop  \d agents?", screen)
        assert re.search(r"◆ \d waiting", screen)
        assert "~/src/shop fix-cart" in " ".join(screen.split())
        assert processes_in(place)
        await tmux.run("send-keys", "-t", pane, "q")
        await until(lambda: is_read(tmux, pane, "ended with 0."))
        await until(lambda: has_nothing(place))


@pytest.mark.timeout(120)
async def test_when_its_terminal_goes_everything_goes(place: Path) -> None:
    async with PrivateTmux(width=120, height=30) as tmux:
        pane = await demo_in(tmux, place)
        await until(lambda: is_read(tmux, pane, "6 agents"))
        await tmux.run("kill-pane", "-t", pane)
        await until(lambda: has_nothing(place))


@pytest.mark.timeout(120)
async def test_when_it_is_killed_everything_goes(place: Path) -> None:
    demo = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bullpen.testing.demo", "--seconds", "60"),
        env={**os.environ, "TMPDIR": str(place)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert demo.stdout is not None
        async with asyncio.timeout(SECONDS):
            while b"6 agents" not in await demo.stdout.readline():
                pass
    finally:
        demo.kill()
        await demo.wait()
    await until(lambda: has_nothing(place))


@pytest.mark.timeout(120)
def test_without_a_terminal_every_change_is_a_line(place: Path, home: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bullpen.testing.demo", "--seconds", "9"],
        env={**os.environ, "TMPDIR": str(place)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    states = set(re.findall(r"^\d\d:.*? [●◆✓✗▲○] ([a-z_]+)", done.stdout, re.MULTILINE))
    assert {"running", "waiting_approval", "waiting_input", "error"} <= states
    assert f"{len(CAST)} agents" in done.stdout
    assert left_in(place) == []
    assert not (home / ".local/state/bullpen").exists()
    assert not (home / "run/bullpen").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--demo", "ls"], "takes no command"), (["--demo", "-s", "/tmp/s"], "takes no socket")],
)
def test_it_has_everything_of_its_own(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    assert message in capsys.readouterr().err
