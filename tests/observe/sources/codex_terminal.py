"""The real Codex in a terminal of its own, offline, driven like a person would."""

import asyncio
import contextlib
import json
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import bullpen.agents.hooks.shim
from bullpen.agents.providers.codex.hooks import EVENTS
from bullpen.testing.models import ModelServer
from bullpen.testing.programs import Launch, NodeMissing, ensure, launch
from bullpen.testing.tmux import PrivateTmux, eventually
from tests.observe.sources.codex_heard import is_gone

READY = "Ask Codex"


class Terminal:
    """A pane in which Codex runs."""

    def __init__(self, tmux: PrivateTmux, pane: str, pid: int) -> None:
        self.tmux = tmux
        self.pane = pane
        self.pid = pid

    async def type(self, text: str) -> None:
        """Type a prompt and submit it, as two writes: glued together Codex takes it for a paste."""
        await self.tmux.run("send-keys", "-t", self.pane, "-l", text)
        await self.shows(text[:20])
        await self.press("Enter")

    async def press(self, key: str) -> None:
        await self.tmux.run("send-keys", "-t", self.pane, key)

    async def shows(self, text: str) -> None:
        await self.tmux.wait_for(self.pane, text)


async def prepare(
    mode: str,
    home: Path,
    models: ModelServer,
    arguments: Sequence[str] = (),
    *,
    prompt: str | None = None,
    **variables: str,
) -> Launch:
    """Return how to start Codex in a mode, or skip where it cannot be had."""
    project = home / "project"
    project.mkdir(exist_ok=True)

    def recipe() -> Launch:
        ensure("codex")
        return launch(
            "codex",
            mode,
            home=home / "private",
            model_url=models.url,
            project=project,
            prompt=prompt,
            arguments=arguments,
            variables=variables,
        )

    try:
        return await asyncio.to_thread(recipe)
    except NodeMissing as missing:
        pytest.skip(str(missing))


def codex_home(home: Path) -> Path:
    return home / "private" / ".codex"


def install_hooks(home: Path) -> None:
    """Have every hook call the shim, as `bullpen hooks install` would."""
    shim = bullpen.agents.hooks.shim.__file__
    command = [sys.executable, "-I", "-S", shim, "codex"]
    hooks = {
        event: [{"hooks": [{"type": "command", "command": shlex.join([*command, event])}]}]
        for event in EVENTS
    }
    path = codex_home(home) / "hooks.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"hooks": hooks}))


@asynccontextmanager
async def terminal(tmux: PrivateTmux, started: Launch) -> AsyncIterator[Terminal]:
    """Start Codex in a new pane and wait until it takes a prompt."""
    variables = [f"{name}={shlex.quote(value)}" for name, value in started.env.items()]
    command = shlex.join(started.argv)
    # The rest of the environment is not its business, but for the pane it is in.
    line = f'exec env -i {" ".join(variables)} TMUX="$TMUX" TMUX_PANE="$TMUX_PANE" {command}'
    pane = await tmux.new_pane(line, cwd=started.cwd)
    pid = int(await tmux.run("display-message", "-p", "-t", pane, "#{pane_pid}"))
    codex = Terminal(tmux, pane, pid)
    await codex.shows(READY)
    try:
        yield codex
    finally:
        with contextlib.suppress(subprocess.CalledProcessError):  # it has ended by itself
            await tmux.run("kill-pane", "-t", pane)
        await eventually(lambda: is_gone(pid))
