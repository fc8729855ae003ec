"""The real Claude Code in a terminal: what each source says of it, at every turn of its life."""

import asyncio
import json
import shlex
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bullpen.agents.providers.claude.hooks import HOOK_EVENTS
from bullpen.model.observations import Observation
from bullpen.model.states import SourceKind
from bullpen.observe.sources.claude_hooks import ClaudeHooks
from bullpen.observe.sources.claude_sessions import ClaudeSessions
from bullpen.observe.sources.claude_transcript import ClaudeTranscript
from bullpen.observe.sources.port import Source
from bullpen.testing.models import ModelServer
from bullpen.testing.programs import Launch, NodeMissing, launch
from bullpen.testing.tmux import PrivateTmux, eventually

pytestmark = [
    pytest.mark.program,
    pytest.mark.tmux,
    pytest.mark.timeout(1000),  # the first run downloads
    pytest.mark.skipif(shutil.which("tmux") is None, reason="there is no tmux here"),
]

HOOKS, SESSIONS, TRANSCRIPT = (
    SourceKind.CLAUDE_HOOKS,
    SourceKind.CLAUDE_SESSIONS,
    SourceKind.CLAUDE_TRANSCRIPT,
)
KINDS = (HOOKS, SESSIONS, TRANSCRIPT)
# As little as can be of a shim: it leaves each payload in the spool.
SHIM = """
import json, os, sys, time
name = f"claude-{time.time_ns()}-{os.getpid()}.json"
delivery = {"provider": "claude", "payload": json.load(sys.stdin), "at": time.time(),
            "pid": os.getppid(), "tmux": os.environ.get("TMUX", ""),
            "tmux_pane": os.environ.get("TMUX_PANE", ""), "cwd": os.getcwd()}
with open(os.path.join(sys.argv[1], "." + name), "w") as file:
    json.dump(delivery, file)
os.rename(os.path.join(sys.argv[1], "." + name), os.path.join(sys.argv[1], name))
"""
# The program's environment is its own; tmux adds where it runs.
IN_PANE = 'exec env -i {variables} TMUX="$TMUX" TMUX_PANE="$TMUX_PANE" {command}'


class Watch:
    """All sources of Claude Code, looked through again and again."""

    def __init__(self, home: Path, spool: Path) -> None:
        def now() -> datetime:
            return datetime.now(UTC)

        config = home / ".claude"
        self._sources: tuple[Source, ...] = (
            ClaudeHooks(now, spool),
            ClaudeSessions(now, config),
            ClaudeTranscript(now, config),
        )
        self.said: list[Observation] = []
        self._seen = 0

    async def open(self) -> None:
        for source in self._sources:
            await source.open(self.said.append)

    def types(self, kind: SourceKind) -> list[str]:
        """Return what a source has said since the last `until`."""
        new = self.said[self._seen :]
        return [each.event_type for each in new if each.source_kind is kind]

    async def until(self, expected: dict[SourceKind, str]) -> None:
        """Look until the last that each source said is what is expected of it."""

        async def is_said() -> bool:
            for source in self._sources:
                await source.look()
            found = {kind: self.types(kind)[-1:] for kind in expected}
            return found == {kind: [event_type] for kind, event_type in expected.items()}

        try:
            await eventually(is_said)
        except TimeoutError:
            found = {kind: self.types(kind) for kind in expected}
            pytest.fail(f"expected {expected}, but since the last they said {found}")
        self._seen = len(self.said)


def prepare(home: Path, spool: Path, models: ModelServer) -> Launch:
    """Write a home in which every hook leaves what it is told; return how to start in it."""
    project = home / "project"
    project.mkdir()
    spool.mkdir()
    shim = home / "shim.py"
    shim.write_text(SHIM)
    # In place of the shell that runs it, so that the program is its parent.
    command = f"exec {shlex.join([sys.executable, '-I', str(shim), str(spool)])}"
    hook = {"hooks": [{"type": "command", "command": command, "timeout": 10}]}
    settings = home / "private" / ".claude" / "settings.json"
    settings.parent.mkdir(parents=True)
    settings.write_text(json.dumps({"hooks": {event: [hook] for event in HOOK_EVENTS}}))
    private = home / "private"
    try:
        return launch("claude", "tui", home=private, model_url=models.url, project=project)
    except NodeMissing as missing:
        pytest.skip(str(missing))


@asynccontextmanager
async def in_pane(started: Launch) -> AsyncIterator[tuple[PrivateTmux, str]]:
    """Run a program in a pane of its own; yield the tmux server and the pane."""
    variables = shlex.join(f"{key}={value}" for key, value in started.env.items())
    command = IN_PANE.format(variables=variables, command=shlex.join(started.argv))
    async with PrivateTmux(width=120, height=40) as tmux:
        pane = await tmux.new_pane(command, cwd=started.cwd)
        yield tmux, pane


async def submit(tmux: PrivateTmux, pane: str, text: str) -> None:
    await tmux.run("set-buffer", "-b", "prompt", text)
    await tmux.run("paste-buffer", "-p", "-d", "-b", "prompt", "-t", pane)
    await tmux.wait_for(pane, text[-20:])
    await tmux.run("send-keys", "-t", pane, "Enter")


@pytest.mark.requirement("SRC-6", "DET-9", "TTL-1", "TTL-4")
async def test_each_source_says_what_it_can_of_a_whole_life(home: Path) -> None:
    spool = home / "spool"
    async with ModelServer() as models:
        started = await asyncio.to_thread(prepare, home, spool, models)
        watch = Watch(home / "private", spool)
        await watch.open()
        async with in_pane(started) as (tmux, pane):
            # idle
            await tmux.wait_for(pane, "? for shortcuts")
            await watch.until({HOOKS: "session.started", SESSIONS: "activity.idle"})

            # running, idle
            await submit(tmux, pane, "<<prewait first | say hello>>")
            await watch.until(
                {
                    HOOKS: "prompt.submitted",
                    SESSIONS: "activity.running",
                    TRANSCRIPT: "prompt.submitted",
                }
            )
            models.release("first")
            finished = {
                HOOKS: "turn.completed",
                SESSIONS: "activity.idle",
                TRANSCRIPT: "turn.completed",
            }
            await watch.until(finished)

            # running, waiting for approval
            await submit(tmux, pane, "<<bash touch a.txt ;; prewait second | say ok>>")
            await tmux.wait_for(pane, "Do you want to proceed?")
            await watch.until(
                {
                    HOOKS: "approval.requested",
                    SESSIONS: "activity.waiting_approval",
                    TRANSCRIPT: "tool.started",  # of the waiting it knows nothing
                }
            )

            # approved: running, idle
            await tmux.run("send-keys", "-t", pane, "Enter")
            await watch.until(
                {
                    HOOKS: "model.requested",
                    SESSIONS: "activity.running",
                    TRANSCRIPT: "tool.completed",
                }
            )
            models.release("second")
            await watch.until(finished)

            # interrupted: no hook tells
            await submit(tmux, pane, "<<say begun | wait never | say ended>>")
            await tmux.wait_for(pane, "● begun")
            await watch.until({HOOKS: "prompt.submitted", SESSIONS: "activity.running"})
            await tmux.run("send-keys", "-t", pane, "Escape")
            await watch.until({SESSIONS: "activity.idle", TRANSCRIPT: "turn.interrupted"})
            assert watch.types(HOOKS) == []

            # an error: its own file calls that idle
            await submit(tmux, pane, "<<err 400 broken>>")
            await watch.until(
                {HOOKS: "turn.failed", SESSIONS: "activity.idle", TRANSCRIPT: "turn.failed"}
            )

            # another session of the same process
            await submit(tmux, pane, "/clear")
            await watch.until({HOOKS: "session.started", SESSIONS: "activity.idle"})

            # exited
            await submit(tmux, pane, "/exit")
            await watch.until({HOOKS: "session.ended", SESSIONS: "session.ended"})
    check_who_it_was(watch.said, pane)


def check_who_it_was(said: list[Observation], pane: str) -> None:
    """All sources speak of the same two sessions of one process, and name what they say."""
    by_kind = {kind: [each for each in said if each.source_kind is kind] for kind in KINDS}
    sessions = {kind: {each.session_key for each in by_kind[kind]} for kind in KINDS}
    assert sessions[HOOKS] == sessions[SESSIONS]
    assert len(sessions[SESSIONS]) == 2
    assert sessions[TRANSCRIPT] <= sessions[SESSIONS]
    assert {each.origin.tmux_pane for each in by_kind[HOOKS] if each.origin} == {pane}
    assert len({each.origin.pid for each in said if each.origin}) == 1
    assert all(each.source_event_id and each.origin and each.origin.cwd for each in said)
    titles = {each.payload["title"] for each in said if each.event_type == "session.named"}
    assert titles == {"Scripted title"}
    ids = [(each.source_kind, each.session_key, each.event_id) for each in said]
    assert len(set(ids)) == len(ids)
