"""What is asked of one agent, answered straight from the room.

There is no store, queue or task here: a task is the daemon's, and how it looks in A2A's words is
`mapping`. Whoever waits for one watches it; who goes away ends nothing but the watching.
"""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any

import msgspec
from a2a.server.context import ServerCallContext
from a2a.server.request_handlers.request_handler import RequestHandler
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import (
    ExtendedAgentCardNotConfiguredError,
    ExtensionSupportRequiredError,
    InvalidParamsError,
    PushNotificationNotSupportedError,
    TaskNotCancelableError,
    UnsupportedOperationError,
)
from google.protobuf.json_format import MessageToDict

from bullpen.api.errors import reason_of
from bullpen.api.talk import Contact
from bullpen.connection import RpcError
from bullpen.model.reasons import Reason
from bullpen.model.tasks import Task, TaskState
from bullpen.servers.a2a.room import ANONYMOUS, Caller, Room, Scope
from bullpen.servers.a2a.v1 import mapping
from bullpen.servers.a2a.v1.answered import Answered
from bullpen.servers.a2a.v1.card import extended_card_of
from bullpen.servers.a2a.v1.errors import translated
from bullpen.servers.a2a.v1.following import Followers, settled
from bullpen.servers.a2a.v1.listing import page_of
from bullpen.servers.a2a.v1.push import Push, id_for
from bullpen.servers.a2a.v1.rules import Rules, rules_for
from bullpen.servers.a2a.v1.turns import turns_of

__all__ = ["CALLER", "CONTACT", "IS_LOCAL", "MAKE_CARD", "STREAMS", "Handler"]

CALLER = "caller"
IS_LOCAL = "is_local"
MAKE_CARD = "make_card"
CONTACT = "contact"
STREAMS = "streams"
"""What a binding says of a request in the state of its context: who asks, whether from this
machine, how the card looks from there, whom, and where the streams stand that are to be closed."""

LONGEST_ID = 100
BLOCKING_SECONDS = 3600.0  # after which who waits is told how things stand
MOST_LISTED = 500  # of our tasks in one look
MOST_LOOKS = 10
ANSWERS = "answers"  # of a message to an agent that has asked: which task it goes on with
KNOWN_SECONDS = 5.0  # how long the profile of an agent is believed


class Handler(RequestHandler):
    """Answers for one agent."""

    def __init__(self, room: Room, agent: str, push: Push | None = None) -> None:
        self._room = room
        self._agent = agent
        self._push = push or room.part(Push)
        self._followers = Followers(room)
        self._answered = Answered()
        self._rules: tuple[float, Rules] | None = None

    async def contact(self) -> Contact:
        """Return the agent.

        Raises:
            UnsupportedOperationError: it is gone.
        """
        with translated():
            found = await self._room.contact(self._agent, counts=True)
        if found is None:
            raise UnsupportedOperationError(f"there is no agent {self._agent}")
        return found

    async def rules(self) -> Rules:
        """Return what holds for the agent."""
        now = asyncio.get_running_loop().time()
        if self._rules is None or self._rules[0] < now:
            found = rules_for((await self.contact()).profile)
            self._rules = (now + KNOWN_SECONDS, found)
        return self._rules[1]

    async def _require_streaming(self) -> None:
        if not (await self.rules()).has_streaming:
            raise UnsupportedOperationError("the agent does not stream")

    async def _require_push(self) -> None:
        if not (await self.rules()).has_push:
            raise PushNotificationNotSupportedError("the agent tells nobody by post")

    # ------------------------------------------------------------------------------------ sending

    async def on_message_send(
        self, params: pb.SendMessageRequest, context: ServerCallContext
    ) -> pb.Task | pb.Message:
        history_length = _history_length(params.configuration)
        with translated():
            earlier, turn = await self._send(params, context)
            if not params.configuration.return_immediately and await self._is_there(context):
                turn = await self._settled(turn)
        if turn.state.is_over and turn.answers and mapping.shape_of(turn.answers[-1]).is_message:
            return mapping.answer_message(turn.answers[-1], earlier[0] if earlier else turn)
        return mapping.task_of([*earlier, turn], history_length=history_length)

    def on_message_send_stream(
        self, params: pb.SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[Any]:
        return _noted(self._send_streaming(params, context), context)

    async def _send_streaming(
        self, params: pb.SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[Any]:
        await self._require_streaming()
        with translated():
            earlier, turn = await self._send(params, context)
            async with aclosing(self._followers.turn(earlier, turn)) as events:
                async for event in events:
                    yield event

    async def _send(
        self, params: pb.SendMessageRequest, context: ServerCallContext
    ) -> tuple[list[Task], Task]:
        """Send a message; return the turns of its task before it, and the one it is."""
        _history_length(params.configuration)
        rules = await self.rules()
        caller = _caller(context, Scope.SEND)
        text, kept = mapping.read_message(params.message, is_lenient=rules.takes_any_part)
        requested = frozenset(context.requested_extensions)
        if missing := rules.missing(requested, kept.message_id):
            raise ExtensionSupportRequiredError(f"the extension {missing} is needed")
        metadata = _struct(params, "metadata")
        priority = mapping.priority_of(kept.metadata, metadata)
        if params.configuration.HasField("task_push_notification_config"):
            await self._require_push()
            config = params.configuration.task_push_notification_config
            self._push.check(config, is_local=_is_local(context))
        turns = await self._turns(kept.task_id) if kept.task_id else []
        if turns:
            if rules.is_idempotent and (again := _sent_before(turns, kept)) is not None:
                return turns[:again], turns[again]
            if rules.is_idempotent and self._answered.knows(turns[0].id, kept.message_id):
                return turns[:-1], turns[-1]
            self._check_follow_up(turns, kept)
            kept = msgspec.structs.replace(kept, context_id=mapping.context_of(turns[0]))
            if turns[-1].state is TaskState.INPUT_REQUIRED and not mapping.is_question(turns[-1]):
                with self._answered.once(turns[0].id, kept.message_id):
                    await self._room.answer(caller, self._agent, text, _dialog(turns[-1], kept))
                await self._tell_of([], turns[0], params.configuration, context)
                return turns[:-1], await self._room.task(turns[-1].id)
        answers = {ANSWERS: turns[-1].id} if turns and mapping.is_question(turns[-1]) else {}
        first = turns[0] if turns else await self._last_in(kept.context_id)
        turn = await self._room.send(
            caller,
            self._agent,
            text,
            priority=priority,
            metadata={mapping.A2A: msgspec.to_builtins(kept), **answers},
            reply_to=first.id if first else None,
            idempotency_key=self._key(kept.message_id) if rules.is_idempotent else None,
        )
        if turns:
            self._followers.begin(turns[0].id, turn)
        await self._tell_of(turns, turn, params.configuration, context)
        return turns, turn

    def _key(self, message_id: str) -> str:
        """Return by what a message is known again; a long id by what stands for it."""
        if len(message_id) > LONGEST_ID:
            message_id = hashlib.sha256(message_id.encode()).hexdigest()
        return f"a2a/{self._agent}/{message_id}"

    def _check_follow_up(self, turns: Sequence[Task], kept: mapping.Kept) -> None:
        if kept.context_id and kept.context_id != mapping.context_of(turns[0]):
            raise InvalidParamsError("message.contextId: the task belongs to another context")
        if mapping.is_over(mapping.state_of(turns[-1])):
            raise UnsupportedOperationError("the task is over; send a message without its id")

    async def _last_in(self, context_id: str) -> Task | None:
        """Return a task of a conversation that is to go on."""
        if not context_id:
            return None
        found = await self._room.tasks(agent=self._agent, context_id=context_id, limit=1)
        if not found:
            recent = await self._room.tasks(agent=self._agent, limit=MOST_LISTED)
            found = tuple(each for each in recent if mapping.context_of(each) == context_id)
        return found[-1] if found else None

    async def _is_there(self, context: ServerCallContext) -> bool:
        """Whether the agent is; one that has ended has its mail when it returns."""
        contact = context.state.get(CONTACT) or await self._room.contact(self._agent)
        return contact is not None and contact.is_present

    async def _settled(self, turn: Task) -> Task:
        """Return a turn when it is over, or waits for somebody, perhaps for its agent to return."""

        async def is_there() -> bool:
            found = await self._room.contact(self._agent)
            return found is not None and found.is_present

        return await settled(self._room, turn, is_there, BLOCKING_SECONDS)

    # ------------------------------------------------------------------------------------- asking

    async def on_get_task(
        self, params: pb.GetTaskRequest, context: ServerCallContext
    ) -> pb.Task | None:
        history_length = _history_length(params)
        with translated():
            _caller(context, Scope.READ)
            return mapping.task_of(await self._turns(params.id), history_length=history_length)

    async def on_list_tasks(
        self, params: pb.ListTasksRequest, context: ServerCallContext
    ) -> pb.ListTasksResponse:
        with translated():
            _caller(context, Scope.READ)
            found: list[Task] = []
            for _ in range(MOST_LOOKS):
                before = found[-1].created_at if found else None
                more = await self._room.tasks(agent=self._agent, before=before, limit=MOST_LISTED)
                found.extend(more)
                if len(more) < MOST_LISTED:
                    break
        return page_of(mapping.fold(found).values(), params)

    async def on_cancel_task(
        self, params: pb.CancelTaskRequest, context: ServerCallContext
    ) -> pb.Task | None:
        with translated():
            caller = _caller(context, Scope.SEND)
            turns = await self._turns(params.id)
            if mapping.is_over(mapping.state_of(turns[-1])):
                raise TaskNotCancelableError("the task is over")
            for turn in reversed(turns):
                if not turn.state.is_over:
                    await self._cancel(caller, turn)
            return mapping.task_of(await self._turns(params.id))

    async def _cancel(self, caller: Caller, turn: Task) -> None:
        try:
            await self._room.cancel(caller, turn.id)
        except RpcError as error:
            # It is cancelled then, and its agent works on what nobody waits for; or it was, with
            # the turn that it went on with.
            is_over = reason_of(error) == Reason.TASK_OVER.word and bool(turn.next_turn)
            if reason_of(error) != Reason.AGENT_UNREACHABLE.word and not is_over:
                raise

    def on_subscribe_to_task(
        self, params: pb.SubscribeToTaskRequest, context: ServerCallContext
    ) -> AsyncGenerator[Any]:
        return _noted(self._subscribe(params, context), context)

    async def _subscribe(
        self, params: pb.SubscribeToTaskRequest, context: ServerCallContext
    ) -> AsyncGenerator[Any]:
        await self._require_streaming()
        with translated():
            _caller(context, Scope.READ)
            turns = await self._turns(params.id)
            if mapping.is_over(mapping.state_of(turns[-1])):
                raise UnsupportedOperationError("the task is over; nothing more will come of it")
            async with aclosing(self._followers.task(turns)) as events:
                async for event in events:
                    yield event

    async def on_get_extended_agent_card(
        self,
        params: pb.GetExtendedAgentCardRequest,  # noqa: ARG002 - it has nothing but a tenant
        context: ServerCallContext,
    ) -> pb.AgentCard:
        with translated():
            _caller(context, Scope.READ)
            contact = await self.contact()
        rules = await self.rules()
        make: Callable[[Contact, Rules], pb.AgentCard] | None = context.state.get(MAKE_CARD)
        if make is None or not rules.has_extended_card:
            raise ExtendedAgentCardNotConfiguredError
        return extended_card_of(make(contact, rules), contact)

    async def _turns(self, task_id: str) -> list[Task]:
        """Return the turns of a task, the oldest first; raises as `turns_of` does."""
        return await turns_of(self._room, self._agent, task_id)

    # --------------------------------------------------------------------------- push notifications

    async def _tell_of(
        self,
        turns: Sequence[Task],
        turn: Task,
        configuration: pb.SendMessageConfiguration,
        context: ServerCallContext,
    ) -> None:
        """Have those told of a new turn who asked for it, now or earlier."""
        task_id = turns[0].id if turns else turn.id
        if turns:
            self._push.go_on(task_id, turn)
        if configuration.HasField("task_push_notification_config"):
            config = configuration.task_push_notification_config
            config.task_id, config.id = task_id, id_for(config)
            await self._push.add(
                config,
                agent=self._agent,
                caller=_caller(context, Scope.SEND),
                is_local=_is_local(context),
            )

    async def on_create_task_push_notification_config(
        self, params: pb.TaskPushNotificationConfig, context: ServerCallContext
    ) -> pb.TaskPushNotificationConfig:
        await self._require_push()
        with translated():
            caller = _caller(context, Scope.SEND)
            turns = await self._turns(params.task_id)
            return await self._push.add(
                params,
                agent=self._agent,
                caller=caller,
                is_local=_is_local(context),
                is_over=mapping.is_over(mapping.state_of(turns[-1])),
            )

    async def on_get_task_push_notification_config(
        self, params: pb.GetTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> pb.TaskPushNotificationConfig:
        await self._require_push()
        with translated():
            caller = _caller(context, Scope.READ)
            await self._turns(params.task_id)
            return await self._push.get(caller, params.task_id, params.id)

    async def on_list_task_push_notification_configs(
        self, params: pb.ListTaskPushNotificationConfigsRequest, context: ServerCallContext
    ) -> pb.ListTaskPushNotificationConfigsResponse:
        await self._require_push()
        with translated():
            caller = _caller(context, Scope.READ)
            await self._turns(params.task_id)
            configs = await self._push.configs(caller, params.task_id)
        return pb.ListTaskPushNotificationConfigsResponse(configs=configs)

    async def on_delete_task_push_notification_config(
        self, params: pb.DeleteTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> None:
        await self._require_push()
        with translated():
            caller = _caller(context, Scope.SEND)
            await self._turns(params.task_id)
            await self._push.remove(caller, params.task_id, params.id)


def _dialog(turn: Task, kept: mapping.Kept) -> str:
    """Return what is to be answered: what the client says that it has seen, or what is asked."""
    said = kept.metadata.get(mapping.DIALOG)
    return said if isinstance(said, str) else turn.dialog.id if turn.dialog is not None else ""


def _sent_before(turns: Sequence[Task], kept: mapping.Kept) -> int | None:
    ids = [mapping.kept_of(each.message).message_id for each in turns]
    return ids.index(kept.message_id) if kept.message_id in ids else None


def _noted(stream: AsyncGenerator[Any], context: ServerCallContext) -> AsyncGenerator[Any]:
    """Have a stream closed by who ends the answer: the SDK closes none it has not read out."""
    context.state.setdefault(STREAMS, []).append(stream)
    return stream


def _caller(context: ServerCallContext, scope: Scope) -> Caller:
    caller = context.state.get(CALLER, ANONYMOUS)
    assert isinstance(caller, Caller)
    caller.require(scope)
    return caller


def _is_local(context: ServerCallContext) -> bool:
    return bool(context.state.get(IS_LOCAL, False))


def _history_length(asked: pb.SendMessageConfiguration | pb.GetTaskRequest) -> int | None:
    if not asked.HasField("history_length"):
        return None
    if asked.history_length < 0:
        raise InvalidParamsError("historyLength: it is not negative")
    return asked.history_length


def _struct(message: Any, name: str) -> dict[str, Any]:
    return dict(MessageToDict(getattr(message, name))) if message.HasField(name) else {}
