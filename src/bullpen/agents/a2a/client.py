"""The client: discovering agents elsewhere, and talking to them by their aliases.

It is the seed's `A2AClient`, for agents of every dialect. The daemon's door uses it to deliver
messages; whoever wants to speak to an agent without a daemon may use it as well.
"""

import asyncio
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urljoin

from bullpen.agents.a2a.card import (
    CARD_PATHS,
    Card,
    cut,
    is_address,
    is_loopback,
    local_card,
    read_card,
)
from bullpen.agents.a2a.errors import (
    AliasError,
    CardError,
    PeerRefused,
    PeerUnreachable,
    UnknownAgentError,
)
from bullpen.agents.a2a.external import ExternalAgentRegistry, alias_of
from bullpen.agents.a2a.messages import A2ATask
from bullpen.agents.a2a.peer import ANSWER_SECONDS, LOOK_SECONDS, Peer, Tell
from bullpen.agents.http import HttpAnswer, HttpError, HttpServer
from bullpen.model.external import ExternalAgent

__all__ = ["A2AClient", "base_of"]

WAIT_SECONDS: Final = 60.0
CARD_BYTES: Final = 2**20
MOST_REDIRECTS: Final = 5
KEPT_SECONDS: Final = 300.0  # a card that was read is believed so long
MOVED: Final = frozenset({301, 302, 303, 307, 308})


class A2AClient:
    """Speaks to agents elsewhere that are kept in a registry, and to those of this machine."""

    def __init__(
        self,
        registry: ExternalAgentRegistry | None = None,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        seconds: float = ANSWER_SECONDS,
        look_seconds: float = LOOK_SECONDS,
        **peer_options: Any,
    ) -> None:
        self.registry = registry or ExternalAgentRegistry()
        self._now = now
        self._seconds = seconds
        self._peer_options = {"seconds": seconds, "look_seconds": look_seconds, **peer_options}
        self._peers: dict[str, tuple[float, Peer]] = {}

    # -------------------------------------------------------------------------------- discovering

    async def discover(self, url: str, alias: str | None = None) -> ExternalAgent:
        """Read the card of an agent, and keep the agent.

        An agent that is kept already is kept with what it says now.

        Raises:
            A2AError: it does not answer, or its card makes no sense, or the alias is another's.
        """
        given = base_of(url)
        card = await self._fetch(given)
        name = alias_of(card.name, alias)
        known = await asyncio.to_thread(self.registry.get, name)
        if known is not None and known.url != given:
            raise AliasError(name, f"it is the alias of {known.url}; give another")
        agent = ExternalAgent(
            name=card.name,
            url=given,
            description=card.description,
            capabilities=card.capabilities,
            skills=card.skills,
            alias=name,
            added_at=known.added_at if known is not None else self._now().isoformat(),
            last_seen=known.last_seen if known is not None else "",
        )
        await asyncio.to_thread(self.registry.add, agent)
        self._keep(given, card)
        return agent

    async def list_agents(self) -> tuple[ExternalAgent, ...]:
        """Return the agents that were added."""
        return await asyncio.to_thread(self.registry.list_agents)

    async def remove_agent(self, alias: str) -> bool:
        """Forget an agent; return whether it was there."""
        return await asyncio.to_thread(self.registry.remove, alias)

    # ------------------------------------------------------------------------------------ talking

    async def send_message(
        self, alias: str, content: str, *, wait: bool = False, timeout_seconds: float = WAIT_SECONDS
    ) -> A2ATask:
        """Send a message to an agent that was added, and perhaps wait for what comes of it.

        Raises:
            A2AError: there is no such agent, or it said no, or nothing.
            TimeoutError: it took it, and is not done in time.
        """
        peer = await self.peer(alias)
        task = await peer.send(content, message_id=uuid.uuid4().hex)
        await self.note_seen(alias)
        return await _wait(peer, task, timeout_seconds) if wait else task

    async def send_to_local(
        self,
        endpoint: str,
        content: str,
        priority: int = 1,
        *,
        wait: bool = False,
        timeout_seconds: float = WAIT_SECONDS,
    ) -> A2ATask:
        """Send a message to an agent of this machine. Raises as `send_message` does."""
        peer = self.local_peer(endpoint)
        task = await peer.send(content, message_id=uuid.uuid4().hex, priority=priority)
        return await _wait(peer, task, timeout_seconds) if wait else task

    async def get_task(self, alias: str, task_id: str) -> A2ATask:
        """Return how a task stands. Raises as `send_message` does."""
        return await (await self.peer(alias)).get_task(task_id)

    async def wait(
        self, alias: str, task: A2ATask, *, timeout_seconds: float = WAIT_SECONDS
    ) -> A2ATask:
        """Wait until a task is over, or wants something. Raises as `send_message` does."""
        return await _wait(await self.peer(alias), task, timeout_seconds)

    async def stream(self, alias: str, task: A2ATask, tell: Tell) -> A2ATask:
        """Follow a task, telling every change of it; return how it ended."""
        return await (await self.peer(alias)).follow(task, tell)

    async def cancel_task(self, alias: str, task_id: str) -> bool:
        """End a task; return whether the agent did. Raises if it does not answer."""
        try:
            await (await self.peer(alias)).cancel(task_id)
        except PeerRefused:
            return False
        return True

    async def note_seen(self, alias: str) -> None:
        """Note that an agent has just taken something."""
        at = self._now().isoformat()
        await asyncio.to_thread(self.registry.update_last_seen, alias, at)

    # -------------------------------------------------------------------------------------- peers

    async def peer(self, alias: str) -> Peer:
        """Return how to speak to an agent that was added, as its card says.

        Raises:
            A2AError: there is none of that alias, or its card cannot be read.
        """
        agent = await asyncio.to_thread(self.registry.get, alias)
        if agent is None:
            raise UnknownAgentError(alias)
        read_at, peer = self._peers.get(agent.url, (0.0, None))
        if peer is not None and _time() - read_at < KEPT_SECONDS:
            return peer
        return self._keep(agent.url, await self._fetch(base_of(agent.url)))

    def local_peer(self, endpoint: str, name: str = "") -> Peer:
        """Return how to speak to an agent of this machine's registry."""
        if not is_address(endpoint) or not is_loopback(endpoint):
            raise CardError(endpoint, "it is no address of this machine")
        return Peer(local_card(name, endpoint), **self._peer_options)

    def _keep(self, url: str, card: Card) -> Peer:
        peer = Peer(card, **self._peer_options)
        self._peers[url] = (_time(), peer)
        return peer

    async def _fetch(self, base: str) -> Card:
        """Return the card that is found below an address."""
        answer = None
        for path in CARD_PATHS:
            found_at, answer = await self._get(base, path)
            if answer.is_ok and answer.value is not None:
                return read_card(answer.value, found_at, is_here=answer.is_here)
        assert answer is not None
        reason = "it is no JSON" if answer.is_ok else f"there is none (status {answer.status})"
        raise CardError(base, reason)

    async def _get(self, base: str, path: str) -> tuple[str, HttpAnswer]:
        url, seen, keeps_out = base + path, set[str](), False
        while True:
            seen.add(url)
            answer = await self._get_once(url, keeps_out=keeps_out)
            keeps_out = not answer.is_here
            if answer.status not in MOVED:
                break
            there = urljoin(url, answer.headers.get("location", ""))
            if there in seen or len(seen) > MOST_REDIRECTS:
                raise CardError(base, "it sends us around in circles")
            if not is_address(there):
                raise CardError(base, "it sends us to what is no address")
            if url.startswith("https:") and not there.startswith("https:"):
                raise CardError(base, "it sends us from TLS to an address without")
            if is_loopback(there) and keeps_out:
                raise CardError(base, "it is elsewhere and sends us to this machine")
            url = there
        found_at = next((url.removesuffix(each) for each in CARD_PATHS if url.endswith(each)), "")
        return found_at or cut(url)[0], answer

    async def _get_once(self, url: str, *, keeps_out: bool) -> HttpAnswer:
        headers = {"Accept": "application/json", "A2A-Version": "1.0"}
        base, path = cut(url)
        server = HttpServer(base, headers=headers, seconds=self._seconds, keeps_out=keeps_out)
        try:
            return await server.request("GET", path, most_bytes=CARD_BYTES)
        except HttpError as error:
            raise PeerUnreachable(base, error.reason, was_sent=False) from error


async def _wait(peer: Peer, task: A2ATask, seconds: float) -> A2ATask:
    async with asyncio.timeout(seconds):
        return await peer.follow(task)


def base_of(url: str) -> str:
    """Return the address below which a card is found, whether it or the card was named.

    Raises:
        CardError: it is no address.
    """
    url = url.strip()
    if "://" not in url:
        url = f"http://{url}" if is_loopback(f"http://{url}") else f"https://{url}"
    for path in CARD_PATHS:
        url = url.removesuffix(path)
    url = url.rstrip("/")
    if not is_address(url) or "?" in url or "#" in url:
        raise CardError(url[:200], "it is no http address")
    return url


def _time() -> float:
    return asyncio.get_running_loop().time()
