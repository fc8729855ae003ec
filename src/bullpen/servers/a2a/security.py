"""Who is let in, and with what: asked of every request before anything of it is read.

By what address it was called (a page in a browser may reach us by a name of its own), from which
page, who calls, whether too often; then its body, up to a limit and within a time. Somebody without
a token is let in only from this machine and under our own user.
"""

import asyncio
import contextlib
import ipaddress
import json
import os
import sys
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from pathlib import Path
from typing import Any

import msgspec

from bullpen.api.settings import A2aSettings
from bullpen.servers.a2a.room import ANONYMOUS, Caller, Room
from bullpen.servers.a2a.tokens import Tokens
from bullpen.servers.a2a.uids import Address, uid_of

__all__ = [
    "CONNECTED",
    "Connected",
    "Door",
    "Guard",
    "Refused",
    "Tables",
    "caller_of",
    "is_loopback",
    "needs_token",
    "shown_in",
]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
"""As ASGI has them."""

CALLER = "bullpen.caller"
CONNECTED = "bullpen.connected"

MOST_BYTES = 8 * 2**20
"""A message of 1 MB in which every character is escaped, and what stands around it."""
MOST_HEAD_BYTES = 64 * 1024
"""Of a head that comes in pieces, h11 takes no more; one that comes at once it takes whole."""
BODY_SECONDS = 20.0
DISCARD_SECONDS = 5.0  # for what nobody wants, so that who sends it hears why
HOPELESS = (400, 408)  # then there is nothing more to come, or it never comes
CALLERS_REMEMBERED = 1000
ONCE = ("host", "origin", "authorization")  # of two, we might look at another than others do
LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1", "ip6-localhost"})
TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))


class Refused(Exception):
    """A request is not answered otherwise than by this."""

    def __init__(self, status: int, detail: Any, **headers: str) -> None:
        super().__init__(str(detail))
        self.status = status
        self.detail = detail
        self.wire_headers = {key.replace("_", "-"): value for key, value in headers.items()}

    async def send(self, send: Send) -> None:
        """Answer so, and let go of the connection: what was not read of the request is there."""
        body = json.dumps({"detail": self.detail}).encode()
        headers = {
            "content-type": "application/json",
            "content-length": str(len(body)),
            "connection": "close",
            **self.wire_headers,
        }
        raw = [(key.encode(), value.encode("latin-1")) for key, value in headers.items()]
        await send({"type": "http.response.start", "status": self.status, "headers": raw})
        await send({"type": "http.response.body", "body": body})


class Connected:
    """One connection: its two ends, and whether the other is ours, asked once."""

    def __init__(
        self, client: Address | None, server: Address | None, tables: "Tables | None" = None
    ) -> None:
        self._client = client
        self._server = server
        self._tables = tables or Tables()
        self._is_own: bool | None = None

    @property
    def is_local(self) -> bool:
        """Whether it is from this machine to itself, by loopback."""
        return (
            self._client is not None
            and self._server is not None
            and is_loopback(self._client[0])
            and is_loopback(self._server[0])
        )

    async def is_own(self) -> bool:
        """Whether the other end is a process of ours; False where that cannot be told."""
        if self._is_own is None:
            self._is_own = self.is_local and await self._is_of_our_user()
        return self._is_own

    async def _is_of_our_user(self) -> bool:
        assert self._client is not None
        assert self._server is not None
        return uid_of(self._client, self._server, *await self._tables.read()) == os.getuid()


class Tables:
    """The kernel's tables of connections, which may be long: many who ask share one look."""

    def __init__(self) -> None:
        self._next: asyncio.Task[list[str]] | None = None
        self._one = asyncio.Lock()

    async def read(self) -> list[str]:
        """Return them as they are at some time after this was asked."""
        if self._next is None:
            self._next = asyncio.create_task(self._read())
        return await asyncio.shield(self._next)

    async def _read(self) -> list[str]:
        async with self._one:
            self._next = None  # who asks from now on may have come too late for this look
            return await asyncio.to_thread(_read_tables)


def _read_tables() -> list[str]:
    tables = []
    for path in TABLES:
        with contextlib.suppress(OSError):
            tables.append(path.read_text(encoding="ascii", errors="replace"))
    return tables


class Guard:
    """Tells who calls, and whether too often: one for all ways in."""

    def __init__(self, room: Room, tokens: Tokens, settings: A2aSettings) -> None:
        self._room = room
        self._tokens = tokens
        self._settings = settings
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    @property
    def needs_token(self) -> bool:
        """Whether even who is on this machine needs a token."""
        return needs_token(self._settings, is_local=True)

    async def admit(self, connected: Connected, authorization: str) -> Caller:
        """Return who calls, by what it says of its authorization.

        Raises:
            Refused: it is not let in, or not now.
        """
        caller = await self._who(connected, shown_in(authorization))
        self._check_rate(caller)
        return caller

    async def _who(self, connected: Connected, shown: str) -> Caller:
        if shown:
            return await self._whose(shown)
        if self._settings.loopback == "open" and await connected.is_own():
            return ANONYMOUS
        raise _unauthorized("a token is needed")

    async def _whose(self, shown: str) -> Caller:
        if (caller := await asyncio.to_thread(self._tokens.find, shown)) is not None:
            return caller
        if (agent := await self._room.whose(shown)) is not None:
            return Caller(name=agent, secret=shown)
        raise _unauthorized("nobody was given this token, or nobody any more", "invalid_token")

    def _check_rate(self, caller: Caller) -> None:
        now = asyncio.get_running_loop().time()
        bucket = self._buckets.get(caller.name)
        if bucket is None:
            bucket = self._buckets[caller.name] = _Bucket(self._settings.rate_burst, now)
            while len(self._buckets) > CALLERS_REMEMBERED:
                self._buckets.popitem(last=False)
        self._buckets.move_to_end(caller.name)
        rate = self._settings.rate_per_second
        gained = max(0.0, now - bucket.at) * rate
        bucket.tokens = min(self._settings.rate_burst, bucket.tokens + gained)
        bucket.at = now
        if bucket.tokens < 1:
            wait = (1 - bucket.tokens) / rate
            raise Refused(429, "too many requests", retry_after=str(int(wait) + 1))
        bucket.tokens -= 1


class Door:
    """Lets requests through to an app, with who asks."""

    def __init__(self, app: App, guard: Guard, settings: A2aSettings) -> None:
        self._app = app
        self._guard = guard
        self._hosts = LOCAL_NAMES | set(_words(settings.hosts)) | {settings.bind.lower()}
        self._origins = frozenset(_words(settings.origins))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = _Headers(scope["headers"])
        try:
            _check_head(scope)
            self._check_address(headers)
            connected: Connected = scope["state"][CONNECTED]
            scope[CALLER] = await self._guard.admit(connected, headers.first("authorization"))
            body = await _read(headers, receive)
        except Refused as refused:
            if refused.status not in HOPELESS and not headers.first("expect"):
                await _discard(receive)  # or it would not hear why; who waits for our word does
            await refused.send(send)
            return
        await self._app(scope, _replay(body, receive), send)

    def _check_address(self, headers: "_Headers") -> None:
        for name in ONCE:
            if headers.count(name) > 1:
                raise Refused(400, f"{name} is said more than once")
        if _host_name(headers.first("host")) not in self._hosts:
            raise Refused(421, "this is not served under that name; a2a.hosts lists more")
        origin = headers.first("origin")
        if origin and origin.lower() not in self._origins:
            raise Refused(403, "pages of this origin may not call; a2a.origins lists those that do")


def caller_of(scope: Mapping[str, Any]) -> Caller:
    """Return who asks, of a request that was let through."""
    caller = scope[CALLER]
    assert isinstance(caller, Caller)
    return caller


def needs_token(settings: A2aSettings, *, is_local: bool) -> bool:
    """Whether everybody needs a token who comes from this machine, or from elsewhere."""
    return settings.loopback != "open" or not is_local or sys.platform != "linux"


def shown_in(authorization: str) -> str:
    """Return what is shown to be let in; not empty if anything is, so that nothing bad passes."""
    scheme, _, token = authorization.partition(" ")
    return (token.strip() if scheme.lower() == "bearer" else "") or authorization


def is_loopback(host: str) -> bool:
    """Whether an address is one of this machine that only it can reach."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host.lower() == "localhost"
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


# ---------------------------------------------------------------------------------- what was sent


class _Bucket(msgspec.Struct):
    tokens: float
    at: float


class _Headers:
    def __init__(self, raw: list[tuple[bytes, bytes]]) -> None:
        self._raw = raw

    def count(self, name: str) -> int:
        wanted = name.encode()
        return sum(key == wanted for key, _ in self._raw)

    def first(self, name: str) -> str:
        wanted = name.encode()
        found = (value for key, value in self._raw if key == wanted)
        return next(found, b"").decode("latin-1").strip()


def _check_head(scope: Scope) -> None:
    fields = sum(len(key) + len(value) for key, value in scope["headers"])
    if len(scope["raw_path"]) + len(scope["query_string"]) + fields > MOST_HEAD_BYTES:
        raise Refused(431, f"the head of the request has more than {MOST_HEAD_BYTES} bytes")


async def _read(headers: _Headers, receive: Receive) -> bytes:
    """Return the whole body of a request."""
    declared = headers.first("content-length")
    if declared.isdigit() and int(declared) > MOST_BYTES:
        raise _too_large()
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Refused(400, "the request is not whole")
                body += message.get("body", b"")
                if len(body) > MOST_BYTES:
                    raise _too_large()
                if not message.get("more_body", False):
                    return bytes(body)
    except TimeoutError:
        raise Refused(408, f"the request was not whole after {BODY_SECONDS:.0f} s") from None


async def _discard(receive: Receive) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DISCARD_SECONDS):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect" or not message.get("more_body", False):
                    return


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a way to receive a body that was read, and then what comes after it."""
    unread = [body]

    async def replay() -> MutableMapping[str, Any]:
        if unread:
            return {"type": "http.request", "body": unread.pop(), "more_body": False}
        return await receive()

    return replay


def _too_large() -> Refused:
    return Refused(413, f"the request has more than {MOST_BYTES} bytes")


def _unauthorized(detail: str, error: str = "") -> Refused:
    challenge = f'Bearer error="{error}"' if error else "Bearer"
    return Refused(401, detail, www_authenticate=challenge)


def _host_name(host: str) -> str:
    """Return the name in a Host header, without the port."""
    name, bracket, rest = host.partition("]")
    if not bracket and host.count(":") == 1:
        name, _, rest = host.partition(":")
    port = rest.removeprefix(":")
    if port and not (port.isascii() and port.isdecimal()):
        return host.lower()  # which is none of ours
    return name.removeprefix("[").lower()


def _words(text: str) -> list[str]:
    return [each.lower() for each in text.replace(",", " ").split()]
