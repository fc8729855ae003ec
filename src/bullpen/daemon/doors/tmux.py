"""Into an agent in a pane of tmux that nobody started through us: pasted, as a person would.

Typed is only what the screen allows (`terminal.injection`), and only while the agent is the one in
front of its pane (`pane`). How far a message came is what was seen: that it stood in the prompt
box, that the box let go of it, that the agent works or has it in its conversation. From then on the
screen is watched until the prompt is back, and what the agent said is read off it. Whoever hears of
the end in a better way says `forget`.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from bullpen.daemon.doors.pane import Paces, PaneGone, PaneTerminal
from bullpen.daemon.doors.pane_turns import PaneTurn
from bullpen.daemon.doors.pane_typing import PaneTyping
from bullpen.mail.doors import Handed, Handover, Note, Rung
from bullpen.model.deliveries import Delivery, ReceiptState
from bullpen.model.states import Activity, Provider
from bullpen.model.turns import Turn, TurnEnd
from bullpen.model.views import PaneState
from bullpen.observe.snapshot import Programs, Rules
from bullpen.terminal.injection import prepare
from bullpen.terminal.tmux.errors import TmuxError
from bullpen.terminal.tmux.runner import TmuxCommandRunner
from bullpen.terminal.tmux.server import TmuxServer
from bullpen.terminal.tmux.target import TmuxTarget

__all__ = ["TmuxDoor"]

logger = logging.getLogger("bullpen.daemon.doors")

_ESCAPES: Final = {Provider.COPILOT: 2, Provider.OPENCODE: 2}
"""How many times Escape interrupts a program, where that is not once."""

_NOT_OPEN: Final = {
    Activity.RUNNING: "the agent is working",
    Activity.STARTING: "the agent is starting",
    Activity.WAITING_APPROVAL: "the agent waits for an approval",
    Activity.WAITING_INPUT: "the agent waits for an answer",
    Activity.IDLE: "something is in its prompt box, or in front of it",
    Activity.EXITED: "the agent has ended",
}


class TmuxDoor:
    """The panes of all tmux servers. `on_turn` is told of the ends of turns and must not wait."""

    def __init__(
        self,
        find: Callable[[str], PaneState | None],
        rules: Rules,
        on_turn: Callable[[str, Turn], None],
        *,
        make_runner: Callable[[TmuxTarget], TmuxCommandRunner] = TmuxServer,
        paces: Paces | None = None,
    ) -> None:
        """Nothing is connected to before it is needed.

        Args:
            find: returns the pane of an agent, as it was last seen; None if it has none, or none
                that may be typed into.
            rules: what screens are judged by.
            on_turn: hears how a turn that a message began has ended, with the name of the agent.
            make_runner: makes what commands are given to a tmux server by.
            paces: how often to look, and how long to wait.
        """
        self._find = find
        self._rules = rules
        self._programs = Programs(rules)
        self._on_turn = on_turn
        self._make_runner = make_runner
        self._paces = paces or Paces()
        self._runners: dict[str, TmuxCommandRunner] = {}
        self._following: dict[str, asyncio.Task[None]] = {}
        self._last_typed: dict[str, str] = {}  # what an interruption may put back into the box
        self._put_back: set[str] = set()  # agents in whose box it may be: they seem not ready
        self._typing: set[str] = set()

    @property
    def rung(self) -> Rung:
        return Rung.TMUX

    def reaches(self, agent: str) -> bool:
        pane = self._find(agent)
        return pane is not None and pane.provider in self._rules and bool(pane.place.tmux_socket)

    def is_open(self, agent: str) -> str:
        pane = self._find(agent)
        if pane is None or not self.reaches(agent):
            return "it is in no pane of tmux"
        if agent in self._typing:
            return "another message is being typed"
        if pane.is_ready or (agent in self._put_back and pane.activity_state is Activity.IDLE):
            return ""
        return _NOT_OPEN.get(pane.activity_state, "it is not known whether the agent is ready")

    def is_following(self, agent: str) -> bool:
        """Whether a turn of an agent is being watched."""
        return agent in self._following

    def forget(self, agent: str) -> None:
        """Follow an agent's turn no more: its end is known, or of no interest."""
        if (following := self._following.pop(agent, None)) is not None:
            following.cancel()

    def follow(self, delivery: Delivery) -> None:
        """Follow the turn of a message that the agent has, put in before we were started."""
        terminal = self._terminal(delivery.recipient)
        if terminal is not None and delivery.recipient not in self._following:
            message = delivery.message
            text = prepare(message.content, message.from_agent, is_bracketed=True).text
            has_begun = delivery.state is ReceiptState.SEEN
            self._follow(delivery.recipient, terminal, text, has_begun=has_begun)

    async def aclose(self) -> None:
        """Follow nothing, and let go of all servers."""
        following = list(self._following.values())
        for agent in list(self._following):
            self.forget(agent)
        await asyncio.gather(*following, return_exceptions=True)
        for runner in self._runners.values():
            await runner.aclose()
        self._runners.clear()

    # ------------------------------------------------------------------------------- handing over

    async def hand_over(self, delivery: Delivery, note: Note) -> Handover:
        agent = delivery.recipient
        terminal = self._terminal(agent)
        if terminal is None:
            return Handover(Handed.GONE, "it is in no pane of tmux")
        if agent in self._typing:
            return Handover(Handed.NOT_READY, "another message is being typed")
        typing = PaneTyping(
            terminal, delivery, note, self._paces, leftover=self._last_typed.get(agent, "")
        )
        self._put_back.discard(agent)
        self._typing.add(agent)
        try:
            async with asyncio.timeout(self._paces.hand_over):
                handover = await typing.run()
        except PaneGone as gone:
            handover = typing.broken_off(Handed.GONE, str(gone))
        except TmuxError as error:
            handover = typing.broken_off(Handed.NOT_READY, str(error))
        except TimeoutError:
            handover = typing.broken_off(Handed.NOT_READY, "tmux took too long")
        finally:
            self._typing.discard(agent)
            if typing.is_pasted:
                self.forget(agent)
                self._last_typed[agent] = typing.text
        if handover.outcome is Handed.TAKEN:
            self._follow(agent, terminal, typing.text, has_begun=typing.has_begun)
        return handover

    async def interrupt(self, agent: str) -> bool:
        terminal = self._terminal(agent)
        if terminal is None or agent in self._typing:
            return False
        is_pressed = False
        try:
            async with asyncio.timeout(self._paces.interrupt):
                # Escapes that come at the wrong moment are lost, so it is looked what came of them.
                while await self._is_working(terminal):
                    escapes = _ESCAPES.get(terminal.provider, 1)
                    await terminal.press("Escape", times=escapes, gap=self._paces.escape)
                    is_pressed = True
                    await self._until_at_rest(terminal)
        except (PaneGone, TmuxError, TimeoutError) as error:
            logger.info("%s may not have been interrupted: %r", agent, error)
        return is_pressed

    async def _is_working(self, terminal: PaneTerminal) -> bool:
        """Whether Escape would interrupt: in a dialog it would be an answer."""
        look = await terminal.look()
        return not look.obstacle and look.verdict.activity is Activity.RUNNING

    async def _until_at_rest(self, terminal: PaneTerminal) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._paces.at_rest
        while True:
            if loop.time() >= deadline or not await self._is_working(terminal):
                return
            await asyncio.sleep(self._paces.look)

    def _terminal(self, agent: str) -> PaneTerminal | None:
        pane = self._find(agent)
        if pane is None or pane.provider is None or not self.reaches(agent):
            return None
        socket = pane.place.tmux_socket
        if socket not in self._runners:
            self._runners[socket] = self._make_runner(TmuxTarget(socket, "door"))
        rules = self._rules[pane.provider]
        return PaneTerminal(self._runners[socket], pane, rules, self._programs)

    # ---------------------------------------------------------------------------------- following

    def _follow(self, agent: str, terminal: PaneTerminal, text: str, *, has_begun: bool) -> None:
        following = PaneTurn(terminal, text, self._paces, has_begun=has_begun)

        async def follow() -> None:
            try:
                turn = await following.run()
            except Exception:  # the boundary: nobody waits for this
                logger.exception("the turn of %s could not be followed", agent)
                return
            finally:
                if self._following.get(agent) is asyncio.current_task():
                    del self._following[agent]
            if turn is not None:
                if turn.end is TurnEnd.INTERRUPTED:
                    self._put_back.add(agent)
                self._on_turn(agent, turn)

        self._following[agent] = asyncio.create_task(follow(), name=f"tmux-turn:{agent}")
