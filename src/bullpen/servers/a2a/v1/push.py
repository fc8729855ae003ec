"""Telling those who asked for it, by posting to their address, what becomes of a task.

Each address gets every event, in order, at least once if it takes it within a few tries; one that
hangs delays nobody else and is given up. Which addresses may be posted to is asked twice: when one
is given, and of the address its name leads to when it is used; and that one is connected to, so
that a name cannot lead elsewhere in between. A redirection is never followed.
"""

import asyncio
import contextlib
import ipaddress
import logging
import secrets
import socket
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple
from urllib.parse import SplitResult, urlsplit

import httpx
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import InvalidParamsError, TaskNotFoundError
from a2a.utils.proto_utils import to_stream_response
from google.protobuf.json_format import MessageToDict

from bullpen.errors import BullpenError
from bullpen.servers.a2a.v1.events import Event

__all__ = ["Forbidden", "Push", "check_url"]

logger = logging.getLogger("bullpen.a2a.push")

POST_SECONDS = 10.0
PAUSES_SECONDS = (1.0, 4.0, 15.0)  # between tries
MOST_TASKS = 1000
MOST_PER_TASK = 20
MOST_UNSENT = 1000  # events for one address
MOST_CHARACTERS = 4096

Address = tuple[str, int]


class Forbidden(BullpenError):
    """An address that is not posted to. Another can be given."""


class _Entry(NamedTuple):
    config: pb.TaskPushNotificationConfig
    is_local: bool
    """It was given by somebody on this machine, who may have it posted to this machine."""


class Push:
    """Who is to be told of which task."""

    def __init__(
        self,
        *,
        pauses: Sequence[float] = PAUSES_SECONDS,
        post_seconds: float = POST_SECONDS,
    ) -> None:
        self._entries: OrderedDict[str, dict[str, _Entry]] = OrderedDict()
        self._pauses = tuple(pauses)
        self._seconds = post_seconds

    # ------------------------------------------------------------------------------- who is told

    def add(
        self, config: pb.TaskPushNotificationConfig, *, is_local: bool
    ) -> pb.TaskPushNotificationConfig:
        """Take an address, or change one.

        Raises:
            InvalidParamsError: it is none that could be posted to, or there are too many.
        """
        self.check(config, is_local=is_local)
        kept = pb.TaskPushNotificationConfig()
        kept.CopyFrom(config)
        kept.id = config.id or secrets.token_hex(8)
        entries = self._entries.setdefault(config.task_id, {})
        if kept.id not in entries and len(entries) >= MOST_PER_TASK:
            raise InvalidParamsError(f"a task has at most {MOST_PER_TASK} addresses to post to")
        entries[kept.id] = _Entry(kept, is_local)
        self._entries.move_to_end(config.task_id)
        while len(self._entries) > MOST_TASKS:
            self._entries.popitem(last=False)
        return kept

    def check(self, config: pb.TaskPushNotificationConfig, *, is_local: bool) -> None:
        """See that an address could be taken. Raises as `add` does."""
        try:
            check_url(config.url, is_local=is_local)
        except Forbidden as error:
            raise InvalidParamsError(f"url: {error}") from error
        for name, value in (
            ("token", config.token),
            ("authentication.scheme", config.authentication.scheme),
            ("authentication.credentials", config.authentication.credentials),
        ):
            if len(value) > MOST_CHARACTERS or not value.isprintable() or not value.isascii():
                raise InvalidParamsError(f"{name}: it cannot stand in a header")

    def get(self, task_id: str, config_id: str) -> pb.TaskPushNotificationConfig:
        """Return one; the first if none is named.

        Raises:
            TaskNotFoundError: there is none.
        """
        entries = self._entries.get(task_id, {})
        found = entries.get(config_id) if config_id else next(iter(entries.values()), None)
        if found is None:
            raise TaskNotFoundError(f"there is no push notification config {config_id}")
        return found.config

    def configs(self, task_id: str) -> list[pb.TaskPushNotificationConfig]:
        """Return all of a task."""
        return [each.config for each in self._entries.get(task_id, {}).values()]

    def remove(self, task_id: str, config_id: str) -> None:
        """Forget one; it need not be there."""
        entries = self._entries.get(task_id, {})
        entries.pop(config_id, None)
        if not entries:
            self._entries.pop(task_id, None)

    # ------------------------------------------------------------------------------------ telling

    async def tell(self, task_id: str, events: AsyncIterator[Event]) -> None:
        """Post each event to who is to be told of a task at that time."""
        queues: dict[str, asyncio.Queue[dict[str, Any] | None]] = {}
        async with asyncio.TaskGroup() as group:
            async for event in events:
                payload = MessageToDict(to_stream_response(event))
                for config_id in self._entries.get(task_id, {}):
                    if config_id not in queues:
                        queues[config_id] = asyncio.Queue(MOST_UNSENT)
                        group.create_task(self._post_all(task_id, config_id, queues[config_id]))
                    with contextlib.suppress(asyncio.QueueFull):  # it takes nothing anyway
                        queues[config_id].put_nowait(payload)
            for queue in queues.values():
                if queue.full():
                    queue.get_nowait()
                queue.put_nowait(None)

    async def _post_all(
        self, task_id: str, config_id: str, queue: "asyncio.Queue[dict[str, Any] | None]"
    ) -> None:
        async with httpx.AsyncClient(trust_env=False, follow_redirects=False) as client:
            while (payload := await queue.get()) is not None:
                entry = self._entries.get(task_id, {}).get(config_id)
                if entry is None:
                    return  # it was removed
                if not await self._deliver(client, entry, payload):
                    return  # what comes later is not told before what came earlier

    async def _deliver(
        self, client: httpx.AsyncClient, entry: _Entry, payload: dict[str, Any]
    ) -> bool:
        """Post an event, a few times if need be; return whether it was taken."""
        why = ""
        for pause in (*self._pauses, None):
            try:
                async with asyncio.timeout(self._seconds):
                    status = await _post(client, entry, payload)
                if status < 300:
                    return True
                why = f"it answered {status}"
                if status < 500 and status not in (408, 425, 429):
                    break
            except (httpx.HTTPError, httpx.InvalidURL, OSError, TimeoutError) as error:
                why = type(error).__name__
            except Forbidden as error:
                why = str(error)
                break
            if pause is not None:
                await asyncio.sleep(pause)
        logger.warning("the push notifications of %s are given up: %s", entry.config.task_id, why)
        return False


async def _post(client: httpx.AsyncClient, entry: _Entry, payload: dict[str, Any]) -> int:
    config = entry.config
    parts = check_url(config.url, is_local=entry.is_local)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    address = await _resolve(host, port, entry.is_local)
    headers = {"host": parts.netloc.rpartition("@")[2], "content-type": "application/json"}
    if config.token:
        headers["x-a2a-notification-token"] = config.token
    if config.HasField("authentication"):
        said = f"{config.authentication.scheme} {config.authentication.credentials}"
        headers["authorization"] = said.strip()
    literal = f"[{address}]" if ":" in address else address
    url = parts._replace(netloc=f"{literal}:{port}", fragment="").geturl()
    request = client.build_request(
        "POST", url, json=payload, headers=headers, extensions={"sni_hostname": host}
    )
    response = await client.send(request, stream=True)
    await response.aclose()  # nothing it says is read
    return response.status_code


async def _resolve(host: str, port: int, is_local: bool) -> str:
    """Return the address a name leads to, if each that it leads to may be posted to."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = list(dict.fromkeys(str(each[4][0]) for each in found))
    for address in addresses:
        _check_address(address, is_local)
    return addresses[0]


def check_url(url: str, *, is_local: bool) -> SplitResult:
    """Return an address in its parts, if it may be posted to as far as one sees.

    Raises:
        Forbidden: it may not, or is none.
    """
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise Forbidden("it is no URL") from error
    if len(url) > MOST_CHARACTERS or not url.isprintable() or not url.isascii() or " " in url:
        raise Forbidden("it is no URL")
    if parts.scheme not in ("http", "https") or not host:
        raise Forbidden("it is to begin with http:// or https:// and a host")
    if parts.username is not None or parts.password is not None:
        raise Forbidden("a name and a password do not belong into a URL")
    if host == "localhost" or host.endswith(".localhost"):
        _check_address("127.0.0.1", is_local)
    with contextlib.suppress(ValueError):
        _check_address(str(ipaddress.ip_address(host)), is_local)
    return parts


def _check_address(address: str, is_local: bool) -> None:
    found = ipaddress.ip_address(address.partition("%")[0])
    found = getattr(found, "ipv4_mapped", None) or found
    if found.is_loopback and is_local:
        return
    if not found.is_global or found.is_multicast:
        raise Forbidden("it leads to an address that is not public")
