"""A real program, started by its plan in a pane, with a server that writes down what it hears."""

import asyncio
import json
import os
import shlex
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bullpen.agents.launch import ours, plan_launch
from bullpen.agents.launching import Given, LaunchPlan
from bullpen.agents.profile import Profile
from bullpen.model.states import Provider
from bullpen.testing.models import ModelServer
from bullpen.testing.programs import Launch, NodeMissing, launch
from bullpen.testing.tmux import PrivateTmux
from tests.agents.hooks.listener import Listener
from tests.agents.launch import echo_server

SECRET = "a-secret-of-the-run"
SECONDS = 60.0
READY = {
    Provider.CLAUDE: "? for shortcuts",
    Provider.CODEX: "Ask Codex",
    Provider.COPILOT: "/ commands",
    Provider.GEMINI: "Type your message",
    Provider.OPENCODE: "ctrl+p commands",
}


class Daemon(Listener):
    """Hears what hooks report; what else is asked of a daemon is no report."""

    @property
    def reports(self) -> list[dict[str, Any]]:
        return [each["params"] for each in self.asked if each["method"] == "hook.report"]

    @property
    def asked(self) -> list[dict[str, Any]]:
        """Everything, in the order it came."""
        return [json.loads(line) for line in list(self.lines)]


class Run:
    """A program that runs."""

    def __init__(self, home: Path, models: ModelServer, tmux: PrivateTmux) -> None:
        self.home = home
        self.models = models
        self.directory = home / "one"
        self.log = home / "server.log"
        self.plan: LaunchPlan
        self.daemon: Daemon
        self._tmux = tmux
        self._pane = ""

    @property
    def heard(self) -> list[dict[str, Any]]:
        """What the server wrote down."""
        if not self.log.exists():
            return []
        return [json.loads(each) for each in self.log.read_text().splitlines()]

    @property
    def calls(self) -> list[dict[str, Any]]:
        """With what its tool was called."""
        asked = [each["params"] for each in self.heard if each.get("method") == "tools/call"]
        return [each["arguments"] for each in asked]

    async def start(self, plan: LaunchPlan, cwd: Path) -> None:
        self.plan = plan
        variables = shlex.join(f"{key}={value}" for key, value in plan.environment.items())
        command = f'env -i {variables} TMUX="$TMUX" {shlex.join(plan.command)}; exec sh'
        self._pane = await self._tmux.new_pane(command, cwd=cwd)

    async def screen(self) -> str:
        return await self._tmux.screen(self._pane)

    async def until(self, condition: Callable[[], bool | Awaitable[bool]], what: str) -> None:
        try:
            async with asyncio.timeout(SECONDS):
                while True:
                    holds = condition()
                    if holds if isinstance(holds, bool) else await holds:
                        return
                    await asyncio.sleep(0.05)
        except TimeoutError:
            screen = await self.screen()
            raise AssertionError(f"not {what}\n{self.heard}\n{screen}") from None

    async def shows(self, text: str) -> None:
        async def is_shown() -> bool:
            return text in await self.screen()

        await self.until(is_shown, f"shown: {text}")

    async def is_ready(self, provider: Provider) -> None:
        """Wait until it can be typed to, and knows our tools."""
        await self.shows(READY[provider])
        asked = "tools/list"
        await self.until(lambda: asked in [each.get("method") for each in self.heard], asked)

    async def submit(self, prompt: str) -> None:
        """Type a prompt, and press Enter until it is taken."""
        before = len(self.models.requests)
        await self._tmux.run("set-buffer", "-b", "prompt", prompt)
        await self._tmux.run("paste-buffer", "-p", "-d", "-b", "prompt", "-t", self._pane)
        await self.shows(prompt[-16:])
        async with asyncio.timeout(SECONDS):
            while len(self.models.requests) == before:
                # A program that has just drawn a paste may take the Enter for a part of it.
                await asyncio.sleep(0.5)
                await self._tmux.run("send-keys", "-t", self._pane, "Enter")
                await self._some_request(before)

    async def _some_request(self, before: int) -> None:
        for _ in range(100):
            if len(self.models.requests) > before:
                return
            await asyncio.sleep(0.05)

    async def call_tool(self, name: str) -> None:
        """Let the model call our tool, and see that nobody is asked whether it may."""
        script = f"<<tool {name} {json.dumps({'text': 'hi'})} ;; say it is | say done>>"
        await self.submit(script)
        await self.until(lambda: bool(self.calls), "called")
        assert self.calls == [{"text": "hi"}]


@asynccontextmanager
async def running(
    provider: Provider,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    arguments: Sequence[str] = (),
    variables: Mapping[str, str] | None = None,
    prepare: Callable[[Launch], None] = lambda _: None,
) -> AsyncIterator[Run]:
    """Start a program by its plan in a home of its own."""
    async with ModelServer() as models, PrivateTmux(width=120, height=40) as tmux:
        run = Run(home, models, tmux)
        server = (sys.executable, "-I", echo_server.__file__ or "", str(run.log))
        monkeypatch.setattr(ours, "MCP_COMMAND", server)
        started = await asyncio.to_thread(_launch, provider, home, models.url, variables or {})
        await asyncio.to_thread(prepare, started)
        given = Given(
            profile=Profile(
                name=provider.value,
                command=started.argv,
                idle_regex="",
                provider=provider,
            ),
            name="anna",
            secret=SECRET,
            directory=run.directory,
            daemon_socket=home / "run/bullpen/bullpend.sock",
            environment=dict(started.env),
            arguments=tuple(arguments),
            cwd=started.cwd,
        )
        with Daemon(home / "run/bullpen/bullpend.sock") as run.daemon:
            plan = await asyncio.to_thread(plan_launch, given)
            for path in run.directory.rglob("*"):
                assert path.is_symlink() or not path.stat().st_mode & 0o077, path
            async with _beside(plan, started.cwd):
                await run.start(plan, started.cwd)
                yield run


def _launch(provider: Provider, home: Path, url: str, variables: Mapping[str, str]) -> Launch:
    project = home / "project"
    project.mkdir(exist_ok=True)
    try:
        return launch(
            provider.value,
            "tui",
            home=home / "private",
            model_url=url,
            project=project,
            variables={
                "XDG_RUNTIME_DIR": str(home / "run"),
                "XDG_STATE_HOME": str(home / "state"),
                **variables,
            },
        )
    except NodeMissing as missing:
        pytest.skip(str(missing))


@asynccontextmanager
async def _beside(plan: LaunchPlan, cwd: Path) -> AsyncIterator[None]:
    processes: list[asyncio.subprocess.Process] = []
    try:
        for each in plan.beside:
            process = await asyncio.create_subprocess_exec(
                *each.command,
                env=plan.environment,
                cwd=cwd,
                stdin=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )
            processes.append(process)
            async with asyncio.timeout(SECONDS):
                while not each.socket.exists():
                    assert process.returncode is None
                    await asyncio.sleep(0.02)
        yield
    finally:
        for process in processes:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
