"""The door into the real opencode: in its terminal, with its server behind a password, offline."""

import asyncio
import shlex
import socket
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from bullpen.daemon.doors.opencode import OpencodeDoor
from bullpen.mail.doors import Handed, Handover
from bullpen.model.deliveries import ReceiptState
from bullpen.model.states import Activity
from bullpen.model.turns import TurnEnd
from bullpen.testing.models import ModelServer, Say, Turn
from bullpen.testing.programs import Launch, NodeMissing, launch
from bullpen.testing.tmux import PrivateTmux
from tests.daemon.doors.talk import AGENT, SECONDS, Ear, now

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
PASSWORD = "let me in"


class Site:
    """opencode in a pane, and the door to it."""

    def __init__(self, tmux: PrivateTmux, pane: str, models: ModelServer) -> None:
        self.models = models
        self.ear = Ear()
        self.door = OpencodeDoor(self.ear.on_turn, self.ear.on_activity, now)
        self._tmux = tmux
        self._pane = pane
        self._title = ""
        self.sessions: set[str] = set()

    async def hand_over(self, content: str, message_id: str) -> Handover:
        self.ear.steps.clear()
        return await self.ear.hand_over(self.door, content, message_id)

    async def ended(self) -> tuple[TurnEnd, str]:
        """Wait for the end of the turn that runs, and return it."""
        await self.ear.until_open(self.door)
        end = self.ear.ends[-1]
        self.sessions |= {each.session_id for each in self.ear.turns}
        self.ear.turns.clear()
        return end

    async def shows(self, text: str) -> None:
        await self._until(lambda screen: text in screen)

    async def shows_home(self) -> None:
        """Wait until it shows no session, and the door was told so."""
        await self._until(lambda screen: "Ask anything" in screen and self._title == "OpenCode")

    async def _until(self, is_meant: Callable[[str], bool]) -> None:
        async with asyncio.timeout(SECONDS):
            while True:
                if is_meant(await self._tmux.screen(self._pane)):
                    return
                await asyncio.sleep(0.05)

    async def type(self, text: str) -> None:
        await self._tmux.run("send-keys", "-t", self._pane, "-l", text)
        await self.shows(text)

    async def press(self, key: str) -> None:
        await self._tmux.run("send-keys", "-t", self._pane, key)

    async def submit(self, text: str) -> None:
        await self.type(text)
        await asyncio.sleep(0.4)  # it takes an Enter right behind the text for a part of it
        await self.press("Enter")

    async def watch_title(self) -> None:
        """Tell the door of the terminal's title, as a wrapper does."""
        with suppress(subprocess.CalledProcessError):  # until the pane is gone
            while True:
                asked = ("display-message", "-p", "-t", self._pane, "#{pane_title}")
                self._title = await self._tmux.run(*asked)
                self.door.titled(AGENT, self._title)
                await asyncio.sleep(0.1)

    async def kill(self) -> None:
        await self._tmux.run("kill-pane", "-t", self._pane)


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


async def prepare(home: Path, models: ModelServer, port: int) -> Launch:
    project = home / "project"
    project.mkdir()
    try:
        return await asyncio.to_thread(
            launch,
            "opencode",
            "tui",
            home=home / "private",
            model_url=models.url,
            project=project,
            arguments=("--port", str(port), "--hostname", "127.0.0.1"),
            variables={"OPENCODE_SERVER_PASSWORD": PASSWORD},
        )
    except NodeMissing as missing:
        pytest.skip(str(missing))


@asynccontextmanager
async def site(home: Path) -> AsyncIterator[Site]:
    port = free_port()
    async with ModelServer() as models, PrivateTmux(width=120, height=40) as tmux:
        started = await prepare(home, models, port)
        variables = shlex.join(f"{key}={value}" for key, value in started.env.items())
        command = f"exec env -i {variables} {shlex.join(started.argv)}"
        pane = await tmux.new_pane(command, cwd=started.cwd)
        here = Site(tmux, pane, models)
        await here.door.open(AGENT, f"http://127.0.0.1:{port}", password=PASSWORD)
        watching = asyncio.create_task(here.watch_title())
        try:
            await here.ear.until_open(here.door)
            yield here
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            await here.door.aclose()


@pytest.mark.requirement("door:opencode", "door:answer", "door:approval", "door:draft", "door:lost")
async def test_messages_arrive_whole_are_answered_exactly_and_touch_nothing_else(
    home: Path,
) -> None:
    async with site(home) as here:
        models, ear, door = here.models, here.ear, here.door

        # There is no session yet, and somebody has begun to type.
        await here.shows("Ask anything")
        models.script("not a command", Turn(Say(ANSWER)))
        await here.type("my own draft")
        assert await here.hand_over(LONG, "m1") == TAKEN
        assert ear.states == ALL_STEPS
        typed = "[from bob]\n" + LONG.rstrip()
        assert ear.prompts == [typed]
        assert await here.ended() == (TurnEnd.DONE, ANSWER)
        asked = [each.prompt for each in models.requests if each.is_prompt]
        assert asked == [typed]
        await here.shows("終わり")
        await here.shows("my own draft")

        # Who wrote the draft sends something else; we wait until the agent is done.
        await here.press("C-u")
        await here.submit("<<wait one | say hello>>")
        await ear.until(lambda: door.is_open(AGENT) == WORKING)
        assert await here.hand_over("hello", "m2") == Handover(Handed.NOT_READY, WORKING)
        models.release("one")
        assert await here.ended() == (TurnEnd.DONE, "hello")

        # It asks for approval: in its terminal, and nobody else's word counts.
        assert await here.hand_over("<<say first | bash touch made ;; say done>>", "m3") == TAKEN
        await ear.until(lambda: door.is_open(AGENT) == DIALOG)
        assert ear.activities[-1] == (Activity.WAITING_APPROVAL, False)
        assert await here.hand_over("yes", "m4") == Handover(Handed.NOT_READY, DIALOG)
        await here.shows("Permission required")
        await here.press("Enter")
        assert await here.ended() == (TurnEnd.DONE, "done")
        assert await asyncio.to_thread((home / "project" / "made").exists)

        assert await here.hand_over("<<say begun | hang>>", "m5") == TAKEN
        await here.shows("begun")
        assert await door.interrupt(AGENT)
        assert (await here.ended())[0] is TurnEnd.INTERRUPTED
        assert not await door.interrupt(AGENT)
        assert await here.hand_over("<<err 400 broken>>", "m6") == TAKEN
        assert await here.ended() == (TurnEnd.FAILED, "broken")
        assert len(here.sessions) == 1

        # The user wants a new session, and messages go to where he is.
        await here.submit("/new")
        await here.shows_home()
        assert await here.hand_over("<<say all new>>", "m7") == TAKEN
        assert await here.ended() == (TurnEnd.DONE, "all new")
        await here.shows("all new")
        assert len(here.sessions) == 2

        # It goes away in the midst of a turn.
        assert await here.hand_over("<<say begun again | hang>>", "m8") == TAKEN
        await here.shows("begun again")
        await here.kill()
        await ear.until(lambda: not door.reaches(AGENT))
        assert ear.activities[-1] == (Activity.UNKNOWN, False)
        assert ear.ends in ([], [(TurnEnd.INTERRUPTED, "")], [(TurnEnd.INTERRUPTED, "begun again")])
        assert (await here.hand_over("hello", "m9")).outcome in (Handed.NOT_READY, Handed.GONE)
        assert ear.steps == []
