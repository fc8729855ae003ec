"""The real Codex: what its server, its session files and its hooks say while somebody works."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bullpen.model.events import activity_of
from bullpen.model.observations import Observation, Origin
from bullpen.model.states import Activity
from bullpen.observe.sources.codex_appserver import CodexAppServer
from bullpen.observe.sources.codex_hooks import CodexHooks
from bullpen.observe.sources.codex_rollout import CodexRollout
from bullpen.observe.sources.port import Source, SourceTrouble
from bullpen.testing.models import ModelServer
from bullpen.testing.tmux import PrivateTmux, eventually
from tests.observe.sources.codex_heard import Heard
from tests.observe.sources.codex_terminal import (
    codex_home,
    install_hooks,
    prepare,
    terminal,
)

pytestmark = [
    pytest.mark.program,
    pytest.mark.timeout(1000),  # the first run downloads
    pytest.mark.xdist_group("programs"),
]


def now() -> datetime:
    return datetime.now(UTC)


class Watcher:
    """A source that is looked through again and again, and what it has said an agent is doing."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.heard = Heard()
        self.titles: list[str] = []
        self.threads: set[str] = set()
        self.troubles: list[str] = []
        self._before: list[Activity] = []  # the last one that was waited for

    @property
    def activities(self) -> list[Activity]:
        """Return each change once."""
        told = [*self._before]
        for each in self.heard.observations:
            activity = activity_of(each.event_type)
            if activity is not None and told[-1:] != [activity]:
                told.append(activity)
        return told[len(self._before) :]

    async def look(self) -> None:
        try:
            await self.source.look()
        except SourceTrouble as trouble:
            self.troubles.append(str(trouble))

    async def look_for(self, condition: Callable[[], bool]) -> bool:
        await self.look()
        return condition()

    def hear(self, observation: Observation) -> None:
        self.heard(observation)
        self.threads.add(observation.session_key)
        if observation.event_type == "session.named":
            self.titles.append(observation.payload["title"])

    async def until(self, *expected: Activity) -> list[Observation]:
        """Look until it has told exactly these, in this order; return all it has said."""

        def is_told() -> bool:
            return len(self.activities) >= len(expected)

        with contextlib.suppress(TimeoutError):
            await eventually(lambda: self.look_for(is_told))
        assert self.activities == list(expected), self.troubles
        said = [*self.heard.observations]
        self._before = [expected[-1]]
        self.heard.clear()
        return said


@asynccontextmanager
async def watching(source: Source) -> AsyncIterator[Watcher]:
    watcher = Watcher(source)
    await source.open(watcher.hear)
    try:
        yield watcher
    finally:
        await source.aclose()


@pytest.mark.requirement("SRC-2", "SRC-3", "CX-1", "CX-2", "CX-5", "TTL-4")
async def test_a_server_of_our_own_lists_what_others_have_run(home: Path) -> None:
    async with ModelServer() as models:
        ran = await prepare("prompt", home, models, prompt="<<say done>>")
        process = await asyncio.create_subprocess_exec(
            *ran.argv,
            env=dict(ran.env),
            cwd=ran.cwd,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        assert await process.wait() == 0
        started = await prepare("app-server", home, models)
        source = CodexAppServer(
            now, home=codex_home(home), command=started.argv, environment=started.env
        )
        async with watching(source) as watcher:
            source.watch_cwds([str(started.cwd)])
            for _ in range(3):
                await source.look()
            assert source.is_alive
            assert source.version == "0.166.0"
            [listed] = watcher.heard.observations
            assert listed.event_type == "thread.listed"
            assert listed.payload["status"] == "notLoaded"
            assert listed.payload["source"] == "exec"
            assert listed.payload["preview"] == "<<say done>>"
            cwd = await asyncio.to_thread(os.path.realpath, started.cwd)
            assert listed.origin == Origin(cwd=cwd)


@pytest.mark.tmux
@pytest.mark.requirement("CX-6", "CX-11", "TTL-4", "DET-9")
async def test_a_shared_server_tells_all_that_is_done_in_a_terminal(home: Path) -> None:
    control = codex_home(home) / "app-server-control"
    control.mkdir(parents=True)
    socket = control / "app-server-control.sock"
    made = home / "project" / "made"
    async with ModelServer() as models, PrivateTmux(width=120, height=40) as tmux:
        served = await prepare("app-server", home, models, ["--listen", f"unix://{socket}"])
        server = await asyncio.create_subprocess_exec(
            *served.argv, env=dict(served.env), cwd=served.cwd, stdin=asyncio.subprocess.DEVNULL
        )
        try:
            await eventually(lambda: asyncio.to_thread(socket.exists))
            started = await prepare("tui", home, models, ["--remote", f"unix://{socket}"])
            source = CodexAppServer(
                now, home=codex_home(home), command=("nobody-is-started",), settle_seconds=0.0
            )
            async with terminal(tmux, started) as codex, watching(source) as watcher:
                await watcher.until(Activity.IDLE)
                assert source.is_shared
                await codex.type("<<wait one | say hello>>")
                await watcher.until(Activity.RUNNING)
                models.release("one")
                await watcher.until(Activity.IDLE)
                await eventually(lambda: watcher.titles == ["Scripted title"])

                await codex.type("<<bashesc touch made ;; say done>>")
                await watcher.until(Activity.RUNNING, Activity.WAITING_APPROVAL)
                await codex.shows("Would you like to run")
                # Somebody who only watched leaves: that is no answer.
                await source.aclose()
                await codex.shows("Would you like to run")
                assert not await asyncio.to_thread(made.exists)
                await watcher.look()
                assert "thread.waitingOnApproval" in watcher.heard.types()
                await codex.press("y")
                await watcher.until(Activity.RUNNING, Activity.IDLE)
                assert await asyncio.to_thread(made.exists)

                await codex.type("<<say begun | hang>>")
                await watcher.until(Activity.RUNNING)
                await codex.shows("• begun")
                await codex.press("Escape")
                await watcher.until(Activity.IDLE)
                await codex.type("<<err 400 no>>")
                await watcher.until(Activity.RUNNING, Activity.ERROR)
                assert len(watcher.threads) == 1  # not the one that thought of the title
        finally:
            server.kill()  # told to end, it waits for the turns that run
            await server.wait()


@pytest.mark.tmux
@pytest.mark.requirement("COR-3", "DET-9")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds processes by /proc")
async def test_files_and_hooks_tell_all_that_is_done_in_a_terminal(home: Path) -> None:
    async with ModelServer() as models, PrivateTmux(width=120, height=40) as tmux:
        ours = home / "bullpen"
        arguments = ["--dangerously-bypass-hook-trust"]
        started = await prepare("tui", home, models, arguments, BULLPEN_HOME=str(ours))
        install_hooks(home)
        async with (
            terminal(tmux, started) as codex,
            watching(CodexRollout(now, codex_home(home))) as files,
            watching(CodexHooks(now, ours / "state" / "spool")) as hooks,
        ):
            await files.look()
            await hooks.look()
            cwd = await asyncio.to_thread(os.path.realpath, started.cwd)
            assert files.activities == hooks.activities == []  # before a prompt there is no thread

            await codex.type("<<wait one | say hello>>")
            await files.until(Activity.RUNNING)
            await hooks.until(Activity.RUNNING)
            models.release("one")
            told = [*await files.until(Activity.IDLE), *await hooks.until(Activity.IDLE)]
            origins = [each.origin for each in told if each.origin is not None]
            assert {each.pid for each in origins} == {codex.pid}
            assert {each.cwd for each in origins} == {cwd}
            assert {each.tmux_pane for each in origins} == {"", codex.pane}
            assert files.threads == hooks.threads
            assert len(files.threads) == 1
            await eventually(lambda: files.look_for(lambda: files.titles == ["Scripted title"]))

            await codex.type("<<bashesc touch made ;; say done>>")
            await hooks.until(Activity.RUNNING, Activity.WAITING_APPROVAL)
            await files.until(Activity.RUNNING)  # they know nothing of permission
            await codex.shows("Would you like to run")
            await codex.press("y")
            await hooks.until(Activity.RUNNING, Activity.IDLE)
            await files.until(Activity.IDLE)

            await codex.type("<<bashesc touch unmade ;; say done>>")
            await hooks.until(Activity.RUNNING, Activity.WAITING_APPROVAL)
            await codex.shows("Would you like to run")
            await codex.press("Escape")
            await hooks.until(Activity.IDLE)
            await files.until(Activity.RUNNING, Activity.IDLE)

            await codex.type("<<say begun | hang>>")
            await hooks.until(Activity.RUNNING)
            await files.until(Activity.RUNNING)
            await codex.shows("• begun")
            await codex.press("Escape")
            await hooks.until(Activity.IDLE)
            await files.until(Activity.IDLE)

            await codex.type("<<err 400 no>>")
            await hooks.until(Activity.RUNNING, Activity.ERROR)
            await files.until(Activity.RUNNING, Activity.ERROR)
            await codex.type("<<err 429 no>>")
            await hooks.until(Activity.RUNNING, Activity.RATE_LIMITED)
            await files.until(Activity.RUNNING, Activity.RATE_LIMITED)

            await codex.type("<<wait two | say hello>>")
            await files.until(Activity.RUNNING)
            await hooks.until(Activity.RUNNING)
            await codex.press("C-c")
            await files.until(Activity.IDLE)
            await hooks.until(Activity.IDLE)

            await codex.type("/quit")
            await hooks.until(Activity.EXITED)
            await files.until(Activity.EXITED)
            assert files.troubles == hooks.troubles == []
