"""Telling those who asked for it, by posting to their address, what becomes of a task.

The daemon keeps the addresses; here is who posts, one worker for each address as long as its task
is open: so each gets every event in order, and one that hangs delays nobody else. What is not taken
is posted again a few times; then the address is told how things stand when there is something new.
The end of a task is posted for much longer. After a restart each address is told how its task
stands, and what comes of it from then on; one whose task ended meanwhile is told that.
"""

import asyncio
import hashlib
import logging
import random
import secrets
from collections.abc import Callable, Sequence
from contextlib import aclosing
from enum import Enum, auto
from typing import NamedTuple

import msgspec
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import InvalidParamsError, TaskNotFoundError
from a2a.utils.proto_utils import to_stream_response
from google.protobuf.json_format import MessageToDict, ParseDict

from bullpen.api.errors import ApiError, DaemonUnavailable, reason_of
from bullpen.api.push import EndPush, ListPush, RemovePush, SavePush
from bullpen.connection import RequestTimeout, RpcError
from bullpen.model.push import OWED, PushAddress
from bullpen.model.reasons import Reason
from bullpen.model.tasks import Task
from bullpen.servers.a2a.room import Caller, Room, Scope
from bullpen.servers.a2a.security import is_loopback
from bullpen.servers.a2a.v1 import mapping
from bullpen.servers.a2a.v1.events import Event
from bullpen.servers.a2a.v1.following import Followers
from bullpen.servers.a2a.v1.posting import Poster, Target, Unanswered
from bullpen.servers.a2a.v1.targets import MOST_CHARACTERS, Forbidden, check_url
from bullpen.servers.a2a.v1.turns import turns_of

__all__ = ["Pauses", "Push", "id_for"]

logger = logging.getLogger("bullpen.a2a.push")

POST_SECONDS = 10.0
LONGEST_ID = 200
DAEMON_SECONDS = 5.0  # until it is asked again
AGAIN = (408, 425, 429)
"""Refusals that may be none later, beside 500 and above."""


class Pauses(NamedTuple):
    """How long to wait between tries, in seconds; each is made a little longer or shorter."""

    of_event: Sequence[float] = (1.0, 4.0, 15.0)
    of_end: Sequence[float] = (1.0, 4.0, 15.0, 60.0, 120.0, 300.0, 600.0)
    chance: Callable[[], float] = random.random
    """Returns a number from 0 to 1."""

    def some(self, pause: float) -> float:
        """Return about so much, so that those who failed together do not return together."""
        return pause * (0.5 + self.chance())


PAUSES = Pauses()


class _Outcome(Enum):
    TAKEN = auto()
    MISSED = auto()
    REFUSED = auto()
    """And it will be, however often it is posted."""


class _Worker:
    """Tells one address. Made anew for one that is given again after its task ended."""

    def __init__(self, address: PushAddress) -> None:
        self.address = address
        self.is_behind = False
        """It has missed something, and is to be told how things stand."""
        self.task: asyncio.Task[None] | None = None


class Push:
    """Who is to be told of which task, and telling them. One for a room."""

    def __init__(
        self, room: Room, *, pauses: Pauses | None = None, post_seconds: float | None = None
    ) -> None:
        self._room = room
        self._pauses = pauses or PAUSES
        self._poster = Poster(post_seconds or POST_SECONDS)
        self._followers = Followers(room)
        self._workers: dict[tuple[str, str], _Worker] = {}

    # ------------------------------------------------------------------------------- who is told

    def check(self, config: pb.TaskPushNotificationConfig, *, is_local: bool) -> None:
        """See that an address could be taken.

        Raises:
            InvalidParamsError: it is none that could be posted to.
        """
        try:
            check_url(config.url, is_local=self._may_post_here(is_local))
        except Forbidden as error:
            raise InvalidParamsError(f"url: {error}") from error
        if len(config.id) > LONGEST_ID:
            raise InvalidParamsError(f"id: it has more than {LONGEST_ID} characters")
        if config.id == OWED:
            raise InvalidParamsError("id: it is one of ours; give another, or none")
        if config.HasField("authentication") and not config.authentication.scheme:
            raise InvalidParamsError("authentication.scheme: it is missing")
        for name, value in (
            ("token", config.token),
            ("authentication.scheme", config.authentication.scheme),
            ("authentication.credentials", config.authentication.credentials),
        ):
            if len(value) > MOST_CHARACTERS or not value.isprintable() or not value.isascii():
                raise InvalidParamsError(f"{name}: it cannot stand in a header")

    async def add(
        self,
        config: pb.TaskPushNotificationConfig,
        *,
        agent: str,
        caller: Caller,
        is_local: bool,
        is_over: bool = False,
    ) -> pb.TaskPushNotificationConfig:
        """Take an address of a task of an agent's, or change one, and begin to tell it.

        With `is_over`, nothing more will become of the task.

        Raises:
            InvalidParamsError: it is none that could be posted to, or there are too many.
            ApiError: another of that id is somebody else's.
        """
        self.check(config, is_local=is_local)
        kept = pb.TaskPushNotificationConfig()
        kept.CopyFrom(config)
        kept.id = config.id or secrets.token_hex(8)
        known = await self._find(kept.task_id, kept.id)
        if known is not None:
            _check_owner(caller, known)
        address = PushAddress(
            task_id=kept.task_id,
            id=kept.id,
            agent=agent,
            owner=caller.name,
            is_local=is_local,
            config=MessageToDict(kept),
        )
        if not await self._room.ask(SavePush(address)):
            raise InvalidParamsError("there are too many addresses to post to; remove some")
        if is_over:
            await self._room.ask(EndPush(address.task_id, address.id))
        else:
            self._begin(address)
        return kept

    async def get(
        self, caller: Caller, task_id: str, config_id: str
    ) -> pb.TaskPushNotificationConfig:
        """Return one; the first if none is named.

        Raises:
            TaskNotFoundError: there is none.
        """
        found = await self._find(task_id, config_id)
        if found is None:
            raise TaskNotFoundError("there is no such push notification config")
        return _shown(found, caller)

    async def configs(self, caller: Caller, task_id: str) -> list[pb.TaskPushNotificationConfig]:
        """Return all of a task."""
        return [_shown(each, caller) for each in await self._kept(task_id)]

    async def remove(self, caller: Caller, task_id: str, config_id: str) -> None:
        """Forget one; it need not be there.

        Raises:
            ApiError: it is somebody else's.
        """
        found = await self._find(task_id, config_id) if config_id else None
        if found is None:
            return
        _check_owner(caller, found)
        await self._room.ask(RemovePush(task_id, config_id))
        worker = self._workers.pop((task_id, config_id), None)
        if worker is not None and worker.task is not None:
            worker.task.cancel()

    async def _find(self, task_id: str, config_id: str) -> PushAddress | None:
        found = await self._kept(task_id) if task_id else []
        return next((each for each in found if config_id in ("", each.id)), None)

    async def _kept(self, task_id: str = "") -> list[PushAddress]:
        """Return what is kept of a task, or is to go on; but for answers owed to Synapse agents."""
        found = await self._room.ask(ListPush(task_id))
        return [each for each in found if not each.is_owed]

    def _may_post_here(self, is_local: bool) -> bool:
        """Whether an address may lead to this machine.

        Where we have other names than loopback's, whoever seems to be here may have been passed on.
        """
        settings = self._room.settings
        is_private = is_loopback(settings.bind) and not settings.hosts.strip()
        return settings.push_to_loopback or (is_local and is_private)

    # ------------------------------------------------------------------------------------ telling

    async def resume(self) -> None:
        """Begin to tell everybody who was not told how a task ended, before a restart."""
        for address in await self._kept():
            self._begin(address)

    def go_on(self, task_id: str, turn: Task) -> None:
        """Learn that a task has a further turn."""
        self._followers.begin(task_id, turn)

    def _begin(self, address: PushAddress) -> None:
        key = (address.task_id, address.id)
        worker = self._workers.get(key)
        if worker is not None:
            worker.address = address  # from the next event on
            return
        worker = self._workers[key] = _Worker(address)
        worker.task = self._room.begin(self._work(worker))

    async def _work(self, worker: _Worker) -> None:
        key = (worker.address.task_id, worker.address.id)
        try:
            while not await self._has_told(worker):  # noqa: ASYNC110 - nobody tells that it is back
                await asyncio.sleep(self._pauses.some(DAEMON_SECONDS))
        except TaskNotFoundError:
            logger.info("there is nothing more to tell of %s: it is forgotten", key[0])
        except Exception as error:  # noqa: BLE001 - nobody waits for it, and others go on
            logger.warning("the push notifications of %s end: %s", key[0], type(error).__name__)
        finally:
            if self._workers.get(key) is worker:
                del self._workers[key]

    async def _has_told(self, worker: _Worker) -> bool:
        """Tell an address what becomes of its task, to the end; False if the daemon was away."""
        task_id, config_id = worker.address.task_id, worker.address.id
        try:
            try:
                await self._tell(worker)
                await self._room.ask(EndPush(task_id, config_id))
            except TaskNotFoundError:
                await self._room.ask(RemovePush(task_id, config_id))
                raise
        except (DaemonUnavailable, RequestTimeout):
            return False
        except RpcError as error:
            if reason_of(error) != Reason.STORE_UNAVAILABLE.word:
                raise
            return False
        return True

    async def _tell(self, worker: _Worker) -> None:
        while True:
            turns = await self._turns(worker)
            async with aclosing(self._followers.task(turns)) as events:
                is_first = True
                async for event in events:
                    # A turn that began before we followed was not told to us.
                    if is_first and (await self._turns(worker))[-1].id != turns[-1].id:
                        break
                    is_first = False
                    if not await self._has_delivered(worker, event):
                        return
                else:
                    if mapping.is_over(mapping.state_of((await self._turns(worker))[-1])):
                        return

    async def _turns(self, worker: _Worker) -> list[Task]:
        return await turns_of(self._room, worker.address.agent, worker.address.task_id)

    async def _has_delivered(self, worker: _Worker, event: Event) -> bool:
        """Post an event; False if nothing more is to be posted to its address."""
        is_end = _is_end(event)
        pauses = self._pauses.of_event
        if is_end:
            pauses = self._pauses.of_end
        elif worker.is_behind:
            pauses = ()
        if worker.is_behind:
            event = mapping.task_of(await self._turns(worker))
        outcome, why = await self._post(worker, event, pauses)
        worker.is_behind = outcome is not _Outcome.TAKEN
        if outcome is _Outcome.REFUSED or (is_end and worker.is_behind):
            task_id = worker.address.task_id
            logger.warning("the push notifications of %s are given up: %s", task_id, why)
            return False
        return True

    async def _post(
        self, worker: _Worker, event: Event, pauses: Sequence[float]
    ) -> tuple[_Outcome, str]:
        payload = msgspec.json.encode(MessageToDict(to_stream_response(event)))
        why = ""
        for pause in (*pauses, None):
            try:
                status = await self._poster.post(self._target(worker.address), payload)
                if status < 300:
                    return _Outcome.TAKEN, ""
                why = f"it answered {status}"
                if status < 500 and status not in AGAIN:
                    return _Outcome.REFUSED, why
            except Unanswered as error:
                why = str(error)
            except Forbidden as error:
                return _Outcome.REFUSED, str(error)
            if pause is not None:
                await asyncio.sleep(self._pauses.some(pause))
        return _Outcome.MISSED, why

    def _target(self, address: PushAddress) -> Target:
        config = _config(address)
        headers = {}
        if config.token:
            headers["x-a2a-notification-token"] = config.token
        if config.HasField("authentication"):
            said = f"{config.authentication.scheme} {config.authentication.credentials}"
            headers["authorization"] = said.strip()
        return Target(config.url, headers, self._may_post_here(address.is_local))


def id_for(config: pb.TaskPushNotificationConfig) -> str:
    """Return what an address that came with a message is called, also if it comes again."""
    return config.id or hashlib.sha256(config.url.encode()).hexdigest()[:16]


def _is_end(event: Event) -> bool:
    if isinstance(event, pb.Task | pb.TaskStatusUpdateEvent):
        return mapping.is_over(event.status.state)
    return False


def _config(address: PushAddress) -> pb.TaskPushNotificationConfig:
    empty = pb.TaskPushNotificationConfig()
    return ParseDict(address.config, empty, ignore_unknown_fields=True)


def _shown(address: PushAddress, caller: Caller) -> pb.TaskPushNotificationConfig:
    config = _config(address)
    if address.owner != caller.name:
        config.ClearField("token")
        config.authentication.ClearField("credentials")
    return config


def _check_owner(caller: Caller, address: PushAddress) -> None:
    if caller.name != address.owner and Scope.CONTROL not in caller.scopes:
        raise ApiError(
            Reason.NOT_PERMITTED,
            f"{caller.name} did not give this address, and may not change it",
            agent_id=caller.name,
        )
