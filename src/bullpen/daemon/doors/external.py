"""The door to agents that are not ours: those elsewhere, and others of this machine, through A2A.

A message becomes a task of the agent. That it took it is `injected` and `submitted`, that it works
on it is `seen`, and how the task ends is the end of the turn. The task is followed until then,
also by the next daemon: its id stands in the receipt.

An agent that wants to know something has answered with its question; what is said in reply to that
goes into the same task. What belongs to one conversation here is one there.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final

from bullpen.agents.a2a.errors import A2AError, PeerRefused, PeerUnreachable
from bullpen.agents.a2a.messages import A2ATask, RemoteState
from bullpen.agents.a2a.peer import LOST_SECONDS, Peer
from bullpen.daemon.elsewhere import Elsewhere
from bullpen.mail.doors import Handed, Handover, Note, Rung
from bullpen.model.deliveries import Delivery, Evidence, ReceiptState
from bullpen.model.messages import Message
from bullpen.model.states import Activity
from bullpen.model.turns import Turn, TurnEnd

__all__ = ["ExternalDoor"]

logger = logging.getLogger("bullpen.mail")

BY: Final = "a2a"
MOST_CONVERSATIONS: Final = 1000
FIRST_PAUSE_SECONDS: Final = 2.0
LONGEST_PAUSE_SECONDS: Final = 60.0
FOLLOWED_SECONDS: Final = 24 * 3600.0

_S = ReceiptState
_ENDS: Final = {
    RemoteState.COMPLETED: TurnEnd.DONE,
    RemoteState.INPUT_REQUIRED: TurnEnd.DONE,
    RemoteState.CANCELED: TurnEnd.INTERRUPTED,
}
_WAITING: Final = (RemoteState.SUBMITTED, RemoteState.UNKNOWN)

Step = Callable[[str, str, ReceiptState, Evidence], Awaitable[None]]
"""Writes down a step of an agent's message that is known after the door has answered."""


class ExternalDoor:
    """The door to everybody who is not ours.

    `on_turn` is told how turns end, `on_output` what is said on the way, `on_change` that an agent
    is to be looked at again; they must not wait. `thread_of` says to which conversation a message
    belongs, `task_before` which task of the agent's that was last in.
    """

    def __init__(
        self,
        elsewhere: Elsewhere,
        *,
        is_ours: Callable[[str], bool],
        on_turn: Callable[[str, Turn], None],
        on_step: Step,
        on_output: Callable[[str, str], None],
        on_change: Callable[[str], None],
        thread_of: Callable[[Message], Awaitable[str]],
        task_before: Callable[[Message], Awaitable[str]],
        pause_seconds: float = FIRST_PAUSE_SECONDS,
    ) -> None:
        self._elsewhere = elsewhere
        self._is_ours = is_ours
        self._on_turn = on_turn
        self._on_step = on_step
        self._on_output = on_output
        self._on_change = on_change
        self._thread_of = thread_of
        self._task_before = task_before
        self._pause_seconds = pause_seconds
        self._works: dict[str, _Work] = {}
        self._handing: dict[str, _Handing] = {}
        self._pauses: dict[str, _Pause] = {}
        self._conversations: OrderedDict[tuple[str, str], _Conversation] = OrderedDict()
        self._following: set[asyncio.Task[None]] = set()
        self._is_closed = False

    @property
    def rung(self) -> Rung:
        return Rung.OWN

    def reaches(self, agent: str) -> bool:
        return self._elsewhere.get(agent) is not None and not self._is_ours(agent)

    def is_open(self, agent: str) -> str:
        pause = self._pauses.get(agent)
        return pause.reason if pause is not None and pause.timer is not None else ""

    # ------------------------------------------------------------------------------- handing over

    async def hand_over(self, delivery: Delivery, note: Note) -> Handover:
        agent = delivery.recipient
        if not self.reaches(agent):
            return Handover(Handed.GONE, "it was removed")
        handing = self._handing[agent] = _Handing()
        try:
            return await self._hand_over(delivery, note, handing)
        finally:
            if self._handing.get(agent) is handing:
                del self._handing[agent]

    async def _hand_over(self, delivery: Delivery, note: Note, handing: "_Handing") -> Handover:
        agent, message = delivery.recipient, delivery.message
        thread = await self._thread_of(message)
        try:
            peer = await self._elsewhere.peer(agent)
            known = await self._conversation(agent, peer, message, thread)
            if handing.is_over:
                return Handover(Handed.NOT_READY, "it was over before the agent had it")
            task = await peer.send(
                message.content,
                message_id=message.id,
                sender=message.from_agent,
                priority=message.priority.rank,
                context_id=known.context_id,
                task_id=known.task_id,
            )
        except PeerRefused as refused:
            if refused.is_busy:
                return self._later(agent, f"it is busy: {refused.reason or refused.code}")
            return Handover(Handed.REFUSED, str(refused))
        except PeerUnreachable as error:
            if error.was_sent:
                return Handover(Handed.UNSURE, str(error))
            return self._later(agent, str(error))
        except A2AError as error:
            return self._later(agent, str(error))
        self._reopen(agent)
        await self._elsewhere.note_taken(agent)
        work = _Work(agent, message, thread, peer, task)
        await self._note_first(work, note)
        if handing.is_over:  # nobody waits for it; it may still be cancelled
            work.is_forgotten = True
            self._works[agent] = work
        else:
            self._begin(work)
        if handing.is_interrupted:
            await self._cancel(work)
        return Handover(Handed.TAKEN)

    async def _note_first(self, work: "_Work", note: Note) -> None:
        task = work.task
        what = f"it took it as task {task.id}" if task.id else "it answered at once"
        for state in (_S.INJECTED, _S.SUBMITTED):
            await note(state, work.evidence(what))
        if task.status not in _WAITING:
            work.is_seen = True
            await note(_S.SEEN, work.evidence(f"its task is {task.status}"))

    def _later(self, agent: str, reason: str) -> Handover:
        """Try again after a while, which grows each time."""
        pause = self._pauses.setdefault(agent, _Pause(self._pause_seconds))
        pause.reason = reason
        if pause.timer is None:
            loop = asyncio.get_running_loop()
            pause.timer = loop.call_later(pause.seconds, self._try_again, agent)
            pause.seconds = min(2 * pause.seconds, LONGEST_PAUSE_SECONDS)
        return Handover(Handed.NOT_READY, reason)

    def _try_again(self, agent: str) -> None:
        if (pause := self._pauses.get(agent)) is not None:
            pause.timer = None
        self._on_change(agent)

    def _reopen(self, agent: str) -> None:
        pause = self._pauses.pop(agent, None)
        if pause is not None and pause.timer is not None:
            pause.timer.cancel()

    async def interrupt(self, agent: str) -> bool:
        if (handing := self._handing.get(agent)) is not None:
            handing.is_interrupted = True  # as soon as it is known what there is to cancel
            return True
        work = self._works.get(agent)
        return work is not None and await self._cancel(work)

    async def _cancel(self, work: "_Work") -> bool:
        """Have an agent end its task; return whether it did."""
        if work.is_over or not work.task.id or work.task.status.is_over:
            return False
        try:
            await (work.peer or await self._elsewhere.peer(work.agent)).cancel(work.task.id)
        except A2AError as error:
            logger.info("%s did not cancel %s: %s", work.agent, work.task.id, error)
            return False
        return True

    # ---------------------------------------------------------------------------------- following

    def take_up(self, delivery: Delivery, task_id: str) -> None:
        """Follow what an agent was given before we began."""
        task = A2ATask(id=task_id, status=RemoteState.UNKNOWN)
        is_seen = delivery.state is _S.SEEN
        message = delivery.message
        work = _Work(delivery.recipient, message, message.id, None, task, is_seen=is_seen)
        self._begin(work)

    def forget(self, agent: str) -> None:
        """Follow an agent's task no more: what it was given is over. It may still be cancelled."""
        if (handing := self._handing.get(agent)) is not None:
            handing.is_over = True
        if (work := self._works.get(agent)) is not None:
            work.is_forgotten = True
            if work.following is not None:
                work.following.cancel()
            self._settle(agent)

    async def aclose(self) -> None:
        """Let go of everything. Tasks elsewhere go on, and are taken up by the next daemon."""
        self._is_closed = True
        for agent in list(self._pauses):
            self._reopen(agent)
        following = list(self._following)
        for each in following:
            each.cancel()
        await asyncio.gather(*following, return_exceptions=True)

    def _begin(self, work: "_Work") -> None:
        self._works[work.agent] = work
        self._remember(work)
        if self._elsewhere.note_activity(work.agent, Activity.RUNNING):
            self._on_change(work.agent)
        if self._is_closed:  # it was taken at the very end
            return
        work.following = asyncio.create_task(self._follow(work), name=f"a2a:{work.agent}")
        self._following.add(work.following)
        work.following.add_done_callback(self._following.discard)

    async def _follow(self, work: "_Work") -> None:
        try:
            async with asyncio.timeout(FOLLOWED_SECONDS):
                work.peer = work.peer or await self._find_peer(work)
                task = await work.peer.follow(work.task, work.tell(self._hear))
        except TimeoutError:
            await self._end(work, TurnEnd.FAILED, "it is not done after a day")
        except A2AError as error:
            await self._end(work, TurnEnd.FAILED, f"what became of it is not known: {error}")
        except Exception as error:  # the boundary: one agent's task is not another's business
            logger.exception("the task %s of %s cannot be followed", work.task.id, work.agent)
            await self._end(work, TurnEnd.FAILED, f"it cannot be followed: {error}")
        else:
            work.task = task
            words = task.text
            if task.status is RemoteState.AUTH_REQUIRED:
                words = f"it wants credentials. {words}".strip()
            await self._end(work, _ENDS.get(task.status, TurnEnd.FAILED), words)

    async def _find_peer(self, work: "_Work") -> Peer:
        """Return how to speak to an agent again that may be out of reach for a while."""
        loop = asyncio.get_running_loop()
        deadline, pause = loop.time() + LOST_SECONDS, 0.5
        while True:
            try:
                return await self._elsewhere.peer(work.agent)
            except PeerUnreachable:
                if loop.time() > deadline:
                    raise
            await asyncio.sleep(pause)
            pause = min(2 * pause, 10.0)

    async def _hear(self, work: "_Work", task: A2ATask) -> None:
        before, work.task = work.task.text, task
        self._remember(work)
        agent, message_id = work.agent, work.message.id
        if task.status in _WAITING:
            await self._on_step(agent, message_id, _S.SUBMITTED, work.evidence("it has the task"))
        elif not work.is_seen:
            work.is_seen = True
            evidence = work.evidence(f"its task is {task.status}")
            await self._on_step(agent, message_id, _S.SEEN, evidence)
        said = task.text
        if len(said) > len(before) and said.startswith(before) and not work.is_forgotten:
            self._on_output(agent, said[len(before) :])

    async def _end(self, work: "_Work", end: TurnEnd, words: str) -> None:
        work.is_over = not work.task.status.wants_something
        self._remember(work)
        if work.is_forgotten:
            return
        if not work.is_seen:
            work.is_seen = True
            evidence = work.evidence(f"its task is {work.task.status}")
            await self._on_step(work.agent, work.message.id, _S.SEEN, evidence)
        # A task that goes on after a question ends more than one turn.
        turn_id = f"{work.task.id}/{work.message.id}"
        self._on_turn(work.agent, Turn(by=BY, end=end, text=words, turn_id=turn_id))
        self._settle(work.agent)

    def _settle(self, agent: str) -> None:
        if self._elsewhere.note_activity(agent, Activity.IDLE):
            self._on_change(agent)

    async def _conversation(
        self, agent: str, peer: Peer, message: Message, thread: str
    ) -> "_Conversation":
        """Return where a message belongs; after a restart, by asking the agent."""
        known = self._conversations.get((agent, thread))
        if known is None and (task_id := await self._task_before(message)):
            try:
                known = _Conversation.of(await peer.get_task(task_id))
            except PeerRefused as refused:
                if refused.is_busy:
                    raise
                logger.info("%s knows the task %s no more: %s", agent, task_id, refused)
            except PeerUnreachable as error:  # of the message itself, nothing was sent yet
                raise PeerUnreachable(error.url, error.reason, was_sent=False) from error
        return known or _Conversation()

    def _remember(self, work: "_Work") -> None:
        """Keep what a reply needs to go into the same conversation, or the same task."""
        found, key = _Conversation.of(work.task), (work.agent, work.thread)
        if found.context_id or found.task_id:
            self._conversations[key] = found
            self._conversations.move_to_end(key)
        while len(self._conversations) > MOST_CONVERSATIONS:
            self._conversations.popitem(last=False)


class _Conversation:
    """Where what is said next belongs."""

    def __init__(self, context_id: str = "", task_id: str = "") -> None:
        self.context_id = context_id
        self.task_id = task_id
        """The task that waits for an answer, if one does."""

    @classmethod
    def of(cls, task: A2ATask) -> "_Conversation":
        """Return where what is said next to a task belongs."""
        return cls(task.context_id, task.id if task.status is RemoteState.INPUT_REQUIRED else "")


class _Handing:
    """A message that is just being handed over, and what has come of it meanwhile."""

    def __init__(self) -> None:
        self.is_over = False
        """Nobody waits for it any more."""
        self.is_interrupted = False
        """What the agent makes of it is to be cancelled."""


class _Pause:
    """Why nothing is handed to an agent, and for how long."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.reason = ""
        self.timer: asyncio.TimerHandle | None = None


class _Work:
    """What an agent was given, and the task that it made of it."""

    def __init__(
        self,
        agent: str,
        message: Message,
        thread: str,
        peer: Peer | None,
        task: A2ATask,
        *,
        is_seen: bool = False,
    ) -> None:
        self.agent = agent
        self.message = message
        self.thread = thread
        self.peer = peer
        self.task = task
        self.is_seen = is_seen
        self.is_over = False
        self.is_forgotten = False
        """Nobody here waits for it any more."""
        self.following: asyncio.Task[None] | None = None

    def evidence(self, what: str) -> Evidence:
        """Return how a step is known, with what the next daemon needs to go on."""
        return Evidence(BY, what, {"turn_id": self.task.id} if self.task.id else {})

    def tell(
        self, hear: Callable[["_Work", A2ATask], Awaitable[None]]
    ) -> Callable[[A2ATask], Awaitable[None]]:
        """Return who is told how the task goes on."""

        async def tell(task: A2ATask) -> None:
            await hear(self, task)

        return tell
