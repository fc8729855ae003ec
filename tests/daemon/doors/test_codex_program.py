"""The door into the real Codex: in its terminal, on an app server of its own, offline."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bullpen.daemon.doors.codex import CodexDoor
from bullpen.mail.doors import Handed, Handover
from bullpen.model.deliveries import ReceiptState
from bullpen.model.states import Activity
from bullpen.model.turns import TurnEnd
from bullpen.testing.models import ModelServer, Say, Turn
from bullpen.testing.tmux import PrivateTmux, eventually
from tests.daemon.doors.talk import AGENT, Ear, now
from tests.observe.sources.codex_terminal import Terminal, prepare, terminal

pytestmark = [
    pytest.mark.program,
    pytest.mark.tmux,
    pytest.mark.timeout(1000),  # the first run downloads
    pytest.mark.xdist_group("programs"),
]

TAKEN = Handover(Handed.TAKEN)
ALL_STEPS = [ReceiptState.INJECTED, ReceiptState.SUBMITTED, ReceiptState.SEEN]
WORKING = "the agent is working"
DIALOG = "a dialog is open"
LONG = (
    "! not a command\n\n日本語の長い本文、改行と「記号」つき。\n\ttab and \\backslash\\\n"
    + "語x " * 3500
)
ANSWER = "# はい\n\n```python\nprint('!')\n```\n\n" + "答え " * 3000 + "\n終わり"


class Site:
    """Codex in its terminal, and the door to it."""

    def __init__(self, codex: Terminal, models: ModelServer, server: asyncio.subprocess.Process):
        self.codex = codex
        self.models = models
        self.server = server
        self.ear = Ear()
        self.door = CodexDoor(self.ear.on_turn, self.ear.on_activity, now)

    async def hand_over(self, content: str, message_id: str) -> Handover:
        self.ear.steps.clear()
        return await self.ear.hand_over(self.door, content, message_id)

    async def ended(self) -> tuple[TurnEnd, str]:
        """Wait for the end of the turn that runs, and return it."""
        await self.ear.until_open(self.door)
        end = self.ear.ends[-1]
        self.ear.turns.clear()
        return end


@asynccontextmanager
async def site(home: Path) -> AsyncIterator[Site]:
    socket = home / "codex.sock"
    async with ModelServer() as models, PrivateTmux(width=120, height=40) as tmux:
        served = await prepare("app-server", home, models, ["--listen", f"unix://{socket}"])
        server = await asyncio.create_subprocess_exec(
            *served.argv, env=dict(served.env), cwd=served.cwd, stdin=asyncio.subprocess.DEVNULL
        )
        try:
            await eventually(lambda: asyncio.to_thread(socket.exists))
            started = await prepare("tui", home, models, ["--remote", f"unix://{socket}"])
            async with terminal(tmux, started) as codex:
                found = Site(codex, models, server)
                await found.door.open(AGENT, f"unix://{socket}")
                try:
                    await found.ear.until_open(found.door)
                    yield found
                finally:
                    await found.door.aclose()
        finally:
            if server.returncode is None:
                server.kill()  # told to end, it waits for the turns that run
            await server.wait()


@pytest.mark.requirement("door:codex", "door:answer", "door:approval", "door:draft", "door:lost")
async def test_messages_arrive_whole_are_answered_exactly_and_touch_nothing_else(
    home: Path,
) -> None:
    async with site(home) as here:
        codex, models, ear, door = here.codex, here.models, here.ear, here.door

        # Nothing was said so far, and somebody has begun to type.
        models.script("not a command", Turn(Say("on the way"), Say(ANSWER)))
        await codex.tmux.run("send-keys", "-t", codex.pane, "-l", "my own draft")
        await codex.shows("my own draft")
        assert await here.hand_over(LONG, "m1") == TAKEN
        assert ear.states == ALL_STEPS
        typed = "[from bob]\n" + LONG.rstrip()
        assert ear.prompts == [typed]
        assert await here.ended() == (TurnEnd.DONE, ANSWER)
        asked = [each.prompt for each in models.requests if each.is_prompt]
        assert asked == [typed]
        agents = {each.headers["user-agent"].partition("/")[0] for each in models.requests}
        assert "bullpen" not in agents  # it is the user's Codex all the same
        await codex.shows("終わり")
        await codex.shows("my own draft")

        # The draft is sent by who wrote it; we wait until the agent is done.
        await codex.press("C-u")
        await codex.type("<<wait one | say hello>>")
        await ear.until(lambda: door.is_open(AGENT) == WORKING)
        assert await here.hand_over("hello", "m2") == Handover(Handed.NOT_READY, WORKING)
        models.release("one")
        assert await here.ended() == (TurnEnd.DONE, "hello")

        # It asks for approval: in its terminal, and nobody else's word counts.
        assert await here.hand_over("<<bashesc touch made ;; say done>>", "m3") == TAKEN
        await ear.until(lambda: door.is_open(AGENT) == DIALOG)
        assert ear.activities[-1] == (Activity.WAITING_APPROVAL, False)
        assert await here.hand_over("yes", "m4") == Handover(Handed.NOT_READY, DIALOG)
        await codex.shows("Would you like to run")
        await codex.press("y")
        assert await here.ended() == (TurnEnd.DONE, "done")
        assert await asyncio.to_thread((home / "project" / "made").exists)

        assert await here.hand_over("<<say begun | hang>>", "m5") == TAKEN
        await codex.shows("• begun")
        assert await door.interrupt(AGENT)
        assert await here.ended() == (TurnEnd.INTERRUPTED, "begun")
        assert not await door.interrupt(AGENT)
        assert await here.hand_over("<<err 429 slow down>>", "m6") == TAKEN
        end, reason = await here.ended()
        assert (end, "429" in reason) == (TurnEnd.RATE_LIMITED, True)

        # The terminal turns to a new thread, and messages follow it.
        told = len(ear.activities)
        await codex.type("/new")
        await ear.until(lambda: len(ear.activities) > told)
        assert await here.hand_over("<<say fresh>>", "m7") == TAKEN
        assert await here.ended() == (TurnEnd.DONE, "fresh")
        await codex.shows("• fresh")

        # It goes away in the midst of a turn.
        assert await here.hand_over("<<say begun again | hang>>", "m8") == TAKEN
        await codex.shows("• begun again")
        await codex.tmux.run("kill-pane", "-t", codex.pane)
        here.server.kill()
        await ear.until(lambda: not door.reaches(AGENT))
        assert ear.activities[-1] == (Activity.UNKNOWN, False)
        assert ear.ends == []
        assert (await here.hand_over("hello", "m9")).outcome in (Handed.NOT_READY, Handed.GONE)
        assert ear.steps == []
