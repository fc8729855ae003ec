"""Posting to an address that somebody gave, without being used by him.

What a name leads to is looked up, checked, and that very address is connected to: so a name cannot
lead elsewhere in between. A redirection is not followed, nothing of the answer but its number is
read, no proxy of ours is gone through, and no connection is used twice.
"""

import asyncio
import contextlib
import ipaddress
import socket
import ssl
import threading
from collections.abc import Mapping
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import httpx

from bullpen.servers.a2a.v1.targets import Forbidden, check_address, check_url

__all__ = ["Poster", "Target", "Unanswered"]

MOST_AT_ONCE = 200
MOST_AT_ONE = 8  # of them, to one host: who hangs holds nobody else up
MOST_LOOKUPS = 16

Addresses = list[str]


class Unanswered(Exception):
    """Nothing came back, or nothing that is HTTP; it may next time. Its words are harmless."""


class Target(NamedTuple):
    """Where to post, and what to show there."""

    url: str
    headers: Mapping[str, str]
    is_local: bool
    """Whether it may lead to this machine."""


class Poster:
    """Posts; one for all targets."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._places = asyncio.Semaphore(MOST_AT_ONCE)
        self._hosts: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._names = _Names()
        self._verifying: ssl.SSLContext | None = None

    async def post(self, target: Target, payload: bytes) -> int:
        """Post JSON, and return the number of the answer.

        Raises:
            Forbidden: it leads where nothing is posted to.
            Unanswered: it was not answered in time, or not at all.
        """
        parts = check_url(target.url, is_local=target.is_local)
        host = self._hosts.setdefault(parts.netloc, asyncio.Semaphore(MOST_AT_ONE))
        try:
            async with host, self._places, asyncio.timeout(self._seconds):
                return await self._post(target, payload)
        except TimeoutError:
            raise Unanswered("it took too long") from None
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise Unanswered(type(error).__name__) from error

    async def _post(self, target: Target, payload: bytes) -> int:
        parts = check_url(target.url, is_local=target.is_local)
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
        addresses = await self._names.look_up(host, port)
        for address in addresses:
            check_address(address, is_local=target.is_local)
        headers = {**target.headers, "host": parts.netloc, "content-type": "application/json"}
        if self._verifying is None:
            self._verifying = await asyncio.to_thread(ssl.create_default_context)
        async with httpx.AsyncClient(
            verify=self._verifying, trust_env=False, follow_redirects=False, timeout=self._seconds
        ) as client:
            for address in addresses:
                literal = f"[{address}]" if ":" in address else address
                url = parts._replace(netloc=f"{literal}:{port}", fragment="").geturl()
                request = client.build_request(
                    "POST", url, content=payload, headers=headers, extensions=_named(host)
                )
                try:
                    response = await client.send(request, stream=True)
                except httpx.ConnectError:
                    if address == addresses[-1]:
                        raise
                    continue
                await response.aclose()
                return response.status_code
        raise Unanswered("its name leads nowhere")


def _named(host: str) -> dict[str, Any]:
    """Return how TLS is told whose certificate to ask for, and to see."""
    return {"sni_hostname": host}


class _Names:
    """Looks names up, each once at a time, in threads of its own.

    A lookup cannot be ended: one that hangs holds up its own name, and nothing else of ours.
    """

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(MOST_LOOKUPS)
        self._under_way: dict[tuple[str, int], asyncio.Future[Addresses]] = {}

    async def look_up(self, host: str, port: int) -> Addresses:
        """Return the addresses a name leads to.

        Raises:
            OSError, Forbidden: it leads nowhere.
        """
        with contextlib.suppress(ValueError):
            return [str(ipaddress.ip_address(host))]
        found = self._under_way.get((host, port))
        if found is None:
            await self._places.acquire()
            if (found := self._under_way.get((host, port))) is None:
                found = self._begin(host, port)
            else:
                self._places.release()
        return await asyncio.shield(found)

    def _begin(self, host: str, port: int) -> "asyncio.Future[Addresses]":
        loop = asyncio.get_running_loop()
        looking: asyncio.Future[Addresses] = loop.create_future()
        self._under_way[host, port] = looking

        def end(found: Addresses | Exception) -> None:
            self._places.release()
            del self._under_way[host, port]
            if isinstance(found, Exception):
                looking.set_exception(found)
                looking.exception()  # it is looked at, whether somebody still waits or not
            else:
                looking.set_result(found)

        def look() -> None:
            found: Addresses | Exception
            try:
                rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
                found = list(dict.fromkeys(str(each[4][0]) for each in rows))
            except UnicodeError:
                found = Forbidden("it is no URL")
            except OSError as error:
                found = error
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(end, found)

        threading.Thread(target=look, name="a2a-push-name", daemon=True).start()
        return looking
