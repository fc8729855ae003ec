"""One agent's pane of a tmux server: looked at, and typed into as long as the agent is in it.

Whose pane it is, is asked again right before each key: the same run of the server, the same process
in the pane, and the same agent in front. What can go wrong then is what happens within the moment
between the question and the key.
"""

import asyncio
import math
import secrets
import time
from collections.abc import Sequence

import msgspec

from bullpen.errors import BullpenError
from bullpen.model.states import Provider
from bullpen.model.views import PaneState
from bullpen.observe.snapshot import Programs, find_front
from bullpen.terminal.rules.engine import Verdict, decide
from bullpen.terminal.rules.format import ProviderRules
from bullpen.terminal.rules.layout import Layout
from bullpen.terminal.rules.screen import Cursor, read_screen
from bullpen.terminal.tmux.errors import TmuxError, TmuxNoServer, TmuxNotFound
from bullpen.terminal.tmux.panes import paint_command
from bullpen.terminal.tmux.processes import ProcessInfo, ProcessReader, ProcessTableUnavailable
from bullpen.terminal.tmux.runner import TmuxCommandRunner

__all__ = ["BY", "Look", "Paces", "PaneGone", "PaneTerminal"]

BY = "screen"  # who says so, of whatever is seen in a pane
HISTORY_LINES = 3000
PIECE_CHARACTERS = 4000  # of a message, per command: a line of tmux's control mode stays short

_FIELDS = (
    *("#{pid}.#{start_time}", "#{pane_pid}", "#{pane_dead}", "#{pane_tty}", "#{pane_width}"),
    *("#{cursor_x}", "#{cursor_y}", "#{cursor_flag}", "#{pane_in_mode}", "#{pane_synchronized}"),
    *("#{pane_input_off}", "#{bracket_paste_flag}", "#{pane_title}"),
)
_SEPARATOR = "|"


class PaneGone(BullpenError):
    """The agent is not in its pane any more. Nothing has been typed since it was."""


class Paces(msgspec.Struct, frozen=True, kw_only=True):
    """How often things are looked at, and how long they are waited for, in seconds."""

    look: float = 0.05
    """While a message is typed."""
    ready: float = 6.0
    """Until the prompt box is free; somebody else waits for longer."""
    youth: float = 30.0
    """Since an agent was started, in which its prompt box may show before it takes anything."""
    settle: float = 3.0
    """For which the prompt box of such an agent must have been free."""
    echo: float = 10.0
    """Until what was pasted is to be seen in it."""
    submit: float = 15.0
    """Until it has let go of it."""
    hand_over: float = 60.0
    """All of it, whatever happens."""
    seen: float = 5.0
    """Until something shows that the agent has what it was given."""
    follow: float = 0.4
    """Between two looks for the end of a turn."""
    hold: float = 0.8
    """For which the prompt must have been back: between two tools it may show for a moment."""
    unseen: float = 15.0
    """After which an agent that was never seen at work will not begin any more."""
    longest_turn: float = 24 * 3600.0
    interrupt: float = 8.0
    """To interrupt what goes on, trying again."""
    at_rest: float = 2.0
    """From an Escape to what comes of it."""
    escape: float = 0.3
    """Between two Escapes; at once they are another key."""


class Look(msgspec.Struct, frozen=True):
    """What a pane shows, and what else decides about typing into it."""

    verdict: Verdict
    box: str
    """What is in the prompt box."""
    lines: tuple[str, ...]
    width: int
    obstacle: str = ""
    """Why keys would not reach the agent, or not it alone, in words."""


class PaneTerminal:
    """The pane an agent was last seen in."""

    def __init__(
        self,
        runner: TmuxCommandRunner,
        pane: PaneState,
        rules: ProviderRules,
        programs: Programs,
    ) -> None:
        self._runner = runner
        self._pane = pane
        self._id = pane.pane_instance_id.pane_id
        self._rules = rules
        self._programs = programs
        self._agent: ProcessInfo | None = None

    @property
    def provider(self) -> Provider:
        """Whose program the agent is."""
        return self._rules.provider

    async def look(self) -> Look:
        """Return what the pane shows now.

        Raises:
            PaneGone: it is closed, or somebody else's.
            TmuxError: tmux does not answer.
        """
        asked = ("display-message", "-p", "-t", self._id, _SEPARATOR.join(_FIELDS))
        facts, painted = await self._answers([asked, paint_command(self._id)])
        values = _split(facts, _FIELDS)
        server, pid, is_dead, _, width, x, y, flag, *modes, title = values
        self._check(server, pid, is_dead)
        screen = read_screen(
            painted,
            width=int(width or 0),
            cursor=Cursor(int(x or 0), int(y or 0), flag != "0"),
            title=title,
            arguments=self._agent.argv if self._agent else (),
        )
        layout = Layout(screen, self._rules)
        prompt = layout.prompt
        return Look(
            verdict=decide(screen, self._rules),
            box=prompt.text if prompt else "",
            lines=layout.screen.lines,
            width=layout.screen.width,
            obstacle=_obstacle(*modes),
        )

    async def paste(self, text: str) -> None:
        """Paste a text, bracketed if the agent asked for that, as known agents do.

        Raises:
            PaneGone: the agent is not there any more. Nothing was pasted.
            TmuxError: tmux does not answer. It may have been pasted.
        """
        name = f"bullpen-{secrets.token_hex(8)}"
        pieces = [text[at : at + PIECE_CHARACTERS] for at in range(0, len(text), PIECE_CHARACTERS)]
        first, *rest = [("set-buffer", "-b", name, "--", piece) for piece in pieces]
        await self._answers([first, *((*each[:1], "-a", *each[1:]) for each in rest)])
        try:
            await self.check()
        except BaseException:
            await self._answers([("delete-buffer", "-b", name)])
            raise
        # A newline stays one (`-r`): to a program that does not know pastes yet, a return would
        # send off what stands before it.
        await self._answers([("paste-buffer", "-p", "-r", "-d", "-b", name, "-t", self._id)])

    async def press(self, key: str, *, times: int = 1, gap: float = 0.0) -> None:
        """Press a key, by the name tmux has for it, as often as said, seconds apart.

        Raises:
            PaneGone: the agent is not there any more. Nothing was pressed.
            TmuxError: tmux does not answer. It may have been pressed.
        """
        await self.check()
        await self._answers([("send-keys", "-t", self._id, key)])
        for _ in range(times - 1):
            await asyncio.sleep(gap)
            await self._answers([("send-keys", "-t", self._id, key)])

    async def history(self) -> list[str]:
        """Return what the pane shows, with much of what has left it at its top.

        Lines that the terminal itself has wrapped are joined.

        Raises:
            PaneGone: it is closed.
            TmuxError: tmux does not answer.
        """
        command = ("capture-pane", "-p", "-J", "-S", f"-{HISTORY_LINES}", "-t", self._id)
        [shown] = await self._answers([command])
        return [line.rstrip() for line in shown.split("\n")]

    @property
    def age(self) -> float:
        """For how many seconds the agent has been running; as good as for ever if nobody knows."""
        began = self._agent.start_time if self._agent is not None else 0.0
        return time.time() - began if began else math.inf

    async def check(self) -> None:
        """Make sure that the agent is still the one whose pane it is.

        Raises:
            PaneGone: it is not.
        """
        asked = ("display-message", "-p", "-t", self._id, _SEPARATOR.join(_FIELDS[:4]))
        [facts] = await self._answers([asked])
        server, pid, is_dead, tty = _split(facts, _FIELDS[:4])
        self._check(server, pid, is_dead)
        try:
            # Not the reader of the poller, which does not read everything every time.
            table = await ProcessReader().read()
        except ProcessTableUnavailable:
            return  # the screen has to do
        agent = find_front(table.below(int(pid)), tty, self._programs).agent
        if agent is None or self._programs.provider_of(agent.argv) is not self.provider:
            raise PaneGone("the agent is not the program in front of its pane")
        if self._agent is not None and (self._agent.pid, self._agent.start) != (
            agent.pid,
            agent.start,
        ):
            raise PaneGone("the agent was started anew")
        self._agent = agent

    def _check(self, server: str, pid: str, is_dead: str) -> None:
        if not pid:
            raise PaneGone("the pane was closed")
        if server != self._pane.pane_instance_id.server:
            raise PaneGone("another tmux server has its place")
        if pid != str(self._pane.place.pane_pid):
            raise PaneGone("another program has its pane")
        if is_dead != "0":
            raise PaneGone("the program in the pane has ended")

    async def _answers(self, commands: Sequence[Sequence[str]]) -> list[str]:
        try:
            answers = await self._runner.run_many(commands)
        except TmuxNoServer as error:
            raise PaneGone("its tmux server has ended") from error
        texts = []
        for answer in answers:
            if isinstance(answer, TmuxNotFound):
                raise PaneGone("the pane was closed") from answer
            if isinstance(answer, TmuxError):
                raise answer
            texts.append(answer.text)
        return texts


def _split(facts: str, fields: Sequence[str]) -> list[str]:
    """Return what tmux said of each field; of a pane that is not there it says nothing."""
    values = facts.split(_SEPARATOR, len(fields) - 1)
    return values if len(values) == len(fields) else [""] * len(fields)


def _obstacle(mode: str, synchronized: str, is_off: str, is_bracketed: str) -> str:
    if mode not in ("", "0"):
        return "somebody looks at the history of the pane"
    if synchronized == "1":
        return "its window types into all its panes at once"
    if is_off == "1":
        return "the pane takes no input"
    if is_bracketed == "0":  # older versions of tmux do not tell
        return "the agent does not take pastes yet"
    return ""
