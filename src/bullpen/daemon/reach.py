"""All the ways into agents, and everybody who tells of their turns, put together for one daemon.

Which door leads to whom changes as agents come and go: a wrapper says what its program was given, a
pane is seen, a waiter connects, a hook asks. Whatever is told of a turn, by hooks, journals, own
servers or screens, is handed on to the courier by the name of the agent.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Any

from bullpen.agents.journals import JOURNALS, Ears, Journal, find_journal
from bullpen.api.errors import ApiError
from bullpen.api.methods import HookAnswer, HookAsk, HookReport, HookTook
from bullpen.api.talk import AwaitWake, WakeReply
from bullpen.connection import Context, TypedRequest
from bullpen.daemon.doors.codex import CodexDoor
from bullpen.daemon.doors.external import BY, ExternalDoor
from bullpen.daemon.doors.hooks import DrainDoor, WakeDoor
from bullpen.daemon.doors.opencode import OpencodeDoor
from bullpen.daemon.doors.tmux import TmuxDoor
from bullpen.daemon.post import Post
from bullpen.daemon.wrappers import Wrapper
from bullpen.mail.turning import since_asked
from bullpen.model.deliveries import Delivery
from bullpen.model.messages import Message
from bullpen.model.observations import Origin
from bullpen.model.states import Activity, Provider
from bullpen.model.turns import Turn, Utterance
from bullpen.model.views import PaneState
from bullpen.observe.snapshot import Rules

__all__ = ["Reach"]

logger = logging.getLogger("bullpen.mail")

READ_SECONDS = 0.5  # between two looks into a journal
LINES_BEFORE = 1000  # of a journal that was found only after its agent had been given something


class Reach:
    """The doors of one daemon, for as long as `run` runs."""

    def __init__(
        self, post: Post, rules: Rules, *, find_pane: Callable[[str], PaneState | None]
    ) -> None:
        self._post = post
        self._find_pane = find_pane
        self._ears = Ears(post.hear, post.hear_said)
        self._wake = WakeDoor(activity_of=post.contacts.activity, on_change=post.wake)
        self._drain = DrainDoor(has_mail=self._has_mail, on_change=post.wake)
        heard = (post.hear, self._note_activity, post.now)
        self._codex = CodexDoor(*heard, on_said=post.hear_said)
        self._opencode = OpencodeDoor(*heard, on_said=post.hear_said)
        self._tmux = TmuxDoor(self._unwrapped_pane, rules, post.hear_on_sight)
        self._external = ExternalDoor(
            post.elsewhere,
            is_ours=post.contacts.is_ours,
            on_turn=post.hear,
            on_step=post.courier.note_step,
            on_output=lambda name, text: post.hear_said(name, Utterance(text=text)),
            on_change=lambda name: post.changed([name]),
            thread_of=self._thread_of,
            task_before=self._task_before,
        )
        post.dialogs.add(self._opencode)
        post.dialogs.add(self._codex)
        doors = (self._wake, self._drain, self._codex, self._opencode, self._tmux, self._external)
        for door in doors:
            post.courier.add_door(door)
        post.courier.on_handing = self._begin_reading
        post.courier.on_over = self._forget
        self._changed: set[str] = set()
        self._has_changed = asyncio.Event()
        self._reading: dict[str, asyncio.Task[None]] = {}

    # ------------------------------------------------------------------------------------- running

    async def run(self) -> None:
        """Open and close doors as agents come and go, until cancelled."""
        try:
            for agent, delivery in self._post.courier.under_way().items():
                self._begin_reading(agent, delivery)
                self._tmux.follow(delivery)
                if self._external.reaches(agent):
                    for task_id in (await self._post.turns_awaited(agent))[-1:]:
                        self._external.take_up(delivery, task_id)
            while True:
                await self._has_changed.wait()
                self._has_changed.clear()
                while self._changed:
                    await self._see_to(self._changed.pop())
        finally:
            for reading in self._reading.values():
                reading.cancel()
            await asyncio.gather(*self._reading.values(), return_exceptions=True)
            parts = (self._ears, self._codex, self._opencode, self._tmux, self._external)
            for part in parts:
                await part.aclose()

    def wrapper_changed(self, wrapper: Wrapper) -> None:
        """Learn that a wrapper came, went, or says something else of its program."""
        self._opencode.titled(wrapper.name, wrapper.state.title)
        self._changed.add(wrapper.name)
        self._has_changed.set()

    async def _see_to(self, name: str) -> None:
        wrapper = self._post.wrappers.find(name)
        doors = wrapper.doors if wrapper is not None else {}
        try:
            awaited = await self._post.turns_awaited(name) if doors else ()
            if address := doors.get("app_server"):
                await self._codex.open(name, address, awaited=awaited)
            else:
                await self._codex.close(name)
            if address := doors.get("http"):
                password = doors.get("http_password", "")
                await self._opencode.open(name, address, password=password, awaited=awaited)
            else:
                await self._opencode.close(name)
        except Exception:  # the boundary: one agent's server is not another's business
            logger.exception("the door into %s could not be opened", name)

    def _note_activity(self, agent: str, activity: Activity, is_ready: bool) -> None:
        """Take what an agent's own server says of it, which is more than its screen."""
        del is_ready  # its door knows
        wrapper = self._post.wrappers.find(agent)
        if wrapper is not None and wrapper.exact is not activity:
            wrapper.exact = activity
            self._post.wrapper_changed(wrapper)
        self._post.changed([agent])  # perhaps it asks something else

    def _unwrapped_pane(self, agent: str) -> PaneState | None:
        if self._post.wrappers.find(agent) is not None:
            return None  # its wrapper types better than we could
        return self._find_pane(agent)

    async def _thread_of(self, message: Message) -> str:
        """Return to which conversation a message belongs."""
        if not message.reply_to:
            return message.id
        thread = await self._post.mailboxes.thread(message.id)
        return thread[0].id if thread else message.id

    async def _task_before(self, message: Message) -> str:
        """Return the task that an agent elsewhere made of what it got before in a conversation."""
        if not message.reply_to:
            return ""
        thread = await self._post.mailboxes.thread(message.id)
        name = message.to_agent.lower()
        for each in reversed([each for each in thread if each.to_agent.lower() == name]):
            for receipt in reversed(await self._post.mailboxes.receipts(each.id)):
                if receipt.evidence.by == BY and (found := receipt.evidence.data.get("turn_id")):
                    return str(found)
        return ""

    async def _has_mail(self, agent: str) -> bool:
        return bool(await self._post.mailboxes.waiting(agent, limit=1))

    # --------------------------------------------------------------------------------------- hooks

    def requests(self) -> dict[type[TypedRequest[Any]], Callable[[Any, Context], Any]]:
        """Return how each request is answered."""
        return {AwaitWake: self._await_wake, HookTook: self._took}

    async def hear(self, report: HookReport, origin: Origin) -> None:
        """Take what a hook tells of a turn."""
        if name := self._whose(report.secret, origin):
            await self._ears.hear(name, report.provider, report.payload)

    async def ask(self, request: HookAsk, origin: Origin) -> HookAnswer:
        """Answer a hook that asks what comes next, after it was heard."""
        return await self._drain.ask(request, self._whose(request.secret, origin))

    async def _await_wake(self, request: AwaitWake, _: Context) -> WakeReply:
        return await self._wake.wake(request, self._post.identities.who(request.secret))

    async def _took(self, request: HookTook, _: Context) -> bool:
        took = await self._wake.took(request.attempt_id)
        return took or await self._drain.took(request.attempt_id)

    def _whose(self, secret: str, origin: Origin) -> str:
        if secret:
            with contextlib.suppress(ApiError):  # a hook of an agent that has ended meanwhile
                return self._post.identities.who(secret)
        return self._post.contacts.of_origin(origin) or ""

    # ------------------------------------------------------------------------------------ journals

    def _begin_reading(self, agent: str, delivery: Delivery) -> None:
        """Read the journal of an agent that is given something, if nobody tells of its turns."""
        addressee = self._post.contacts.find(agent)
        provider = self._post.contacts.provider(agent)
        if addressee is None or addressee.tells_turns or provider not in JOURNALS:
            return
        if (before := self._reading.pop(agent, None)) is not None:
            before.cancel()
        is_new = delivery.attempt > 0 and delivery.state == "queued"
        reading = self._read(agent, provider, delivery.message, is_new=is_new)
        self._reading[agent] = asyncio.create_task(reading, name=f"journal:{agent}")

    async def _read(
        self, agent: str, provider: Provider, message: Message, *, is_new: bool
    ) -> None:
        """Tell what a journal tells, until the agent's turn is over."""
        journal: Journal | None = None
        while True:
            turns: Sequence[Turn] = ()
            if journal is not None:
                turns = await journal.read()
            elif (path := await self._journal_of(agent, provider)) is not None:
                journal = Journal(provider, path, last_lines=0 if is_new else LINES_BEFORE)
                turns = since_asked(await journal.read(), message)
            is_new = False  # what is found later has begun with what the agent was given
            for turn in turns:
                self._post.hear(agent, turn)
            await asyncio.sleep(READ_SECONDS)

    async def _journal_of(self, agent: str, provider: Provider) -> Any:
        seen = self._post.contacts.agent(agent)
        if seen is None:
            return None
        return await asyncio.to_thread(
            find_journal,
            provider,
            session_id=seen.session_key or "",
            pid=seen.pid,
            cwd=seen.cwd,
        )

    def _forget(self, agent: str) -> None:
        """Follow an agent no more: what it was given is over."""
        self._tmux.forget(agent)
        self._external.forget(agent)
        self._post.sayings.forget(agent)
        if (reading := self._reading.pop(agent, None)) is not None:
            reading.cancel()
