"""Each real program lives through every state, and every one of them is told once, and rightly."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bullpen.agents.hooks import install
from bullpen.model.states import Provider
from bullpen.testing.models import ModelServer
from bullpen.testing.programs import NodeMissing, launch
from bullpen.testing.tmux import PrivateTmux
from tests.daemon.harness import Peer, running_daemon, settings
from tests.journeys.lives import HABITS, Life, living, project_in
from tests.thorough import thoroughly

pytestmark = [
    pytest.mark.program,
    pytest.mark.tmux,
    pytest.mark.timeout(1000),  # the first run downloads
    pytest.mark.xdist_group("real-programs"),  # two at a time are slow enough to look frozen
]

LIFE = [
    "idle",
    "running",
    "idle",
    "running",
    "waiting_approval",
    "running",
    "idle",
    "running",
    "idle",
    "running",
    "error",
    "exited",
]
# By what a life is known without hooks. Codex writes no record that it waits, opencode none that we
# can read, and Gemini one of what it has said.
MODES = {
    "claude": {"deterministic"},
    "codex": {"deterministic", "heuristic"},
    "copilot": {"deterministic"},
    "gemini": {"heuristic"},
    "opencode": {"heuristic"},
}
# Where a program keeps its files, so that the daemon looks there and not in the user's own.
HOMES = {
    "CLAUDE_CONFIG_DIR": ".claude",
    "CODEX_HOME": ".codex",
    "COPILOT_HOME": ".copilot",
}
TRUSTING = ("--dangerously-bypass-hook-trust",)  # else a person has to review them first
NEIGHBOURS = (
    "printf '\\033]2;✳ Claude Code\\007'; exec sh",
    "printf '│ > claude code │\\n? for shortcuts\\ncodex>\\n'; exec cat",
    "exec python3 -i -c 'claude = codex = \"esc to interrupt\"'",
)


@asynccontextmanager
async def a_life(
    provider: str, home: Path, monkeypatch: Any, *, with_hooks: bool = False
) -> AsyncIterator[tuple[Life, Peer]]:
    async with ModelServer() as models, PrivateTmux(width=120, height=40) as tmux:
        private, project = home / "private", project_in(home)
        for name, directory in HOMES.items():
            monkeypatch.setenv(name, str(private / directory))
        try:
            started = await asyncio.to_thread(
                launch,
                provider,
                "tui",
                home=private,
                model_url=models.url,
                project=project,
                arguments=TRUSTING if with_hooks and provider == "codex" else (),
                variables={"BULLPEN_SOCKET": str(home / "run/bullpen/bullpend.sock")},
            )
            if with_hooks:
                environment = {"HOME": str(private)}
                await asyncio.to_thread(install, Provider(provider), environment=environment)
        except NodeMissing as missing:
            pytest.skip(str(missing))
        for command in NEIGHBOURS:
            await tmux.new_pane(command, cwd=project)
        given = settings(
            observe={"poll_interval_ms": 1000, "tmux_socket": tmux.target.socket_path},
            sources={
                "claude_sessions": True,
                "claude_transcript": True,
                "codex_rollout": True,
                "codex_hooks": True,
                "copilot": True,
                "gemini": True,
            },
        )
        async with (
            running_daemon(given) as (peer, _),
            living(provider, started, models, tmux, peer) as life,
        ):
            yield life, peer


@pytest.mark.requirement("TG-7", "TG-11", "RES-12", "CX-6")
@pytest.mark.parametrize(
    "provider", thoroughly([each for each in HABITS if each != "opencode"], ["opencode"])
)
async def test_a_life_without_hooks_is_told_state_by_state(
    provider: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_life(provider, home, monkeypatch) as (life, peer):
        seen = await life.live()
        panes = await peer.panes()
        agents = await peer.agents()
    begun = ("starting", "unknown")  # how a program draws its first screen is its own business
    assert [each for each in life.activities if each not in begun] == LIFE
    names = {each["agent"]["name"] for each in life.transitions}
    assert names == {f"{provider}-1"}
    modes = {each["agent"]["evidence_mode"] for each in seen[:-1]}
    assert modes >= MODES[provider]
    assert provider not in ("claude", "opencode") or modes == MODES[provider]
    farewell = seen[-1]["agent"]["reason"]
    assert farewell == "no process of it is left" or "its session is over" in farewell
    assert [each["presence"] for each in panes.values()] == ["unmanaged"] * len(panes)
    assert agents == {}


@pytest.mark.requirement("SRC-6", "TG-6", "BND-4")
@pytest.mark.parametrize("provider", ["claude", "codex", "copilot", "gemini"])
async def test_a_life_with_hooks_is_told_by_the_program_itself(
    provider: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_life(provider, home, monkeypatch, with_hooks=True) as (life, peer):
        life.has_hooks = True
        seen = await life.live()
        agents = await peer.agents()
    begun = ("starting", "unknown")
    assert [each for each in life.activities if each not in begun] == LIFE
    told = [each["agent"] for each in seen]
    # Codex and Gemini say nothing before they have work to do.
    assert {each["evidence_mode"] for each in told[1:-1]} == {"deterministic"}
    [asked] = [each for each in told if each["activity"] == "waiting_approval"]
    assert asked["source"] in (f"{provider}_hooks", provider)
    assert agents == {}
