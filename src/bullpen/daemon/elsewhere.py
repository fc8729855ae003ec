"""Agents that are not ours: those elsewhere that were added, and others of this machine.

Others of this machine are found where all agents say that they are there, in `~/.a2a/registry`;
they speak as the seed does. Each has a name that is an address like any other, and none of them
takes that of an agent of ours: what it is called does not depend on who else is of its type.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Protocol

import msgspec

from bullpen.agents.a2a.card import is_address, is_loopback
from bullpen.agents.a2a.client import A2AClient, base_of
from bullpen.agents.a2a.errors import A2AError, AliasError, UnknownAgentError
from bullpen.agents.a2a.external import ExternalAgentRegistry, RegistryUnusable, alias_of
from bullpen.agents.a2a.peer import Peer
from bullpen.agents.instances import Instances
from bullpen.agents.providers.values import text
from bullpen.agents.registry import STARTING, AgentRegistry
from bullpen.api.errors import ApiError
from bullpen.api.external import DiscoverAgent, ListExternal, RemoveExternal
from bullpen.api.runtime import Paths
from bullpen.connection import Context, TypedRequest
from bullpen.mail.policy import Authority
from bullpen.model.external import ExternalAgent
from bullpen.model.reasons import Reason
from bullpen.model.states import Activity

__all__ = ["Elsewhere", "Neighbour", "external_requests"]

logger = logging.getLogger("bullpen.mail")


class Neighbour(msgspec.Struct, frozen=True, kw_only=True):
    """An agent that is not ours."""

    name: str
    url: str
    is_external: bool
    """Whether somebody has added it; else it is one of this machine."""
    profile: str = ""
    also: tuple[str, ...] = ()
    """By what it is found as well, if nobody else is called so: its type, for one."""
    pid: int = 0
    cwd: str = ""
    port: int | None = None


class Elsewhere:
    """Everybody who is not ours, as of the last look."""

    def __init__(
        self, paths: Paths, now: Callable[[], datetime], client: A2AClient | None = None
    ) -> None:
        self.client = client or A2AClient(ExternalAgentRegistry(), now=now)
        self._instances = Instances(paths.agents)
        self._registry = AgentRegistry(instances=self._instances)
        self._known: dict[str, Neighbour] = {}
        self.is_ours: Callable[[str], bool] = lambda _: False
        """Whether a name is that of an agent of ours, which nobody else is then called by."""
        self._activities: dict[str, Activity] = {}

    async def look(self) -> set[str]:
        """Look who is there; return the names of those who came, went or moved."""
        external, local = await asyncio.to_thread(self._read)
        before, self._known = self._known, self._named(external, local)
        names = {*before, *self._known}
        return {each for each in names if before.get(each) != self._known.get(each)}

    def get(self, name: str) -> Neighbour | None:
        """Return who has a name."""
        return self._known.get(name)

    def meant(self, address: str) -> tuple[Neighbour, ...]:
        """Return who is called so, however it is spelled: one by a name, or all of a type."""
        name = address.lower()
        if (found := self._known.get(name)) is not None:
            return (found,)
        return tuple(each for each in self._known.values() if name in each.also)

    def all(self) -> tuple[Neighbour, ...]:
        """Return everybody."""
        return tuple(self._known.values())

    def activity(self, name: str) -> Activity:
        """Return what one of them is doing, as far as we have to do with it."""
        return self._activities.get(name, Activity.IDLE)

    def note_activity(self, name: str, activity: Activity) -> bool:
        """Learn what one of them is doing; return whether that is new."""
        before = self.activity(name)
        if activity is Activity.IDLE:
            self._activities.pop(name, None)
        else:
            self._activities[name] = activity
        return activity is not before

    async def peer(self, name: str) -> Peer:
        """Return how to speak to one of them.

        Raises:
            A2AError: it is gone, or its card cannot be read.
        """
        found = self._known.get(name)
        if found is None:
            raise UnknownAgentError(name)
        if found.is_external:
            return await self.client.peer(name)
        return self.client.local_peer(found.url, name)

    async def note_taken(self, name: str) -> None:
        """Note that one of them has just taken something."""
        found = self._known.get(name)
        if found is not None and found.is_external:
            try:
                await self.client.note_seen(name)
            except RegistryUnusable as error:
                logger.warning("when %s was last seen is not noted: %s", name, error)

    async def discover(self, url: str, alias: str | None) -> ExternalAgent:
        """Add an agent by its card; raises as the client does."""
        found = await self.client.discover(url, alias)
        await self.look()
        return found

    async def remove(self, alias: str) -> bool:
        """Forget an agent that was added; return whether there was one."""
        was_there = await self.client.remove_agent(alias.lower())
        await self.look()
        return was_there

    # -------------------------------------------------------------------------------------- files

    def _read(self) -> tuple[tuple[ExternalAgent, ...], tuple[dict[str, Any], ...]]:
        """Return the agents that were added, and what those of this machine say of themselves."""
        listed = self._registry.list_agents()
        ours = self._instances.all()  # read last: one of ours has its file as long as it is listed
        ids, pids = {each.agent_id for each in ours}, {each.pid for each in ours}
        local = tuple(
            fields
            for agent_id, fields in listed.items()
            if fields.get("status") != STARTING  # nor is it known yet whether it is one of ours
            and agent_id not in ids
            and fields.get("pid") not in pids
        )
        return self.client.registry.list_agents(), local

    def _named(
        self, external: Iterable[ExternalAgent], local: Iterable[Mapping[str, Any]]
    ) -> dict[str, Neighbour]:
        """Return everybody by a name that no agent of ours has; those of this machine first."""
        found: dict[str, Neighbour] = {}
        for fields in local:
            names = _names(fields)
            free = [each for each in names if each not in found and not self.is_ours(each)]
            if free:
                found[free[0]] = _neighbour(fields, free[0], names)
        taken = {*found, *(each for one in found.values() for each in one.also)}
        for agent in external:
            if agent.alias not in taken:
                found[agent.alias] = Neighbour(name=agent.alias, url=agent.url, is_external=True)
        return found


def _names(fields: Mapping[str, Any]) -> list[str]:
    """Return what an agent of this machine can be called by: none if it cannot be spoken to.

    Its own name comes first, if it has one, then its type and port, which nobody else has.
    """
    port, kind = fields.get("port"), text(fields.get("agent_type"))
    url = text(fields.get("endpoint"))
    if not isinstance(port, int) or not is_address(url) or not is_loopback(url):
        return []
    names = []
    for wanted in (text(fields.get("name")), f"{kind}-{port}", text(fields.get("agent_id"))):
        with contextlib.suppress(AliasError):
            names += [alias_of("", wanted)] if wanted else []
    return names


def _neighbour(fields: Mapping[str, Any], name: str, names: Iterable[str]) -> Neighbour:
    kind = text(fields.get("agent_type"))
    return Neighbour(
        name=name,
        url=text(fields.get("endpoint")).rstrip("/"),
        is_external=False,
        profile=kind,
        also=tuple(dict.fromkeys(each for each in (*names, kind.lower()) if each != name)),
        pid=fields["pid"],
        cwd=text(fields.get("working_dir")),
        port=fields["port"],
    )


# --------------------------------------------------------------------------------------- requests


class Require(Protocol):
    """Sees that who asks may do something, and returns who it is."""

    def __call__(
        self, authority: Authority, secret: str, context: Context, what: str
    ) -> Awaitable[str]: ...


def external_requests(
    elsewhere: Elsewhere, is_ours: Callable[[str], bool], require: Require
) -> dict[type[TypedRequest[Any]], Callable[[Any, Context], Any]]:
    """Return how each request about agents elsewhere is answered."""

    async def discover(request: DiscoverAgent, context: Context) -> ExternalAgent:
        needed = _needed_for(request.url)
        await require(needed, request.secret, context, "add agents that are not on this machine")
        known = {each.alias for each in await elsewhere.client.list_agents()}
        try:
            found = await elsewhere.discover(request.url, request.alias)
            if is_ours(found.alias) and found.alias not in known:
                await elsewhere.remove(found.alias)
                raise AliasError(found.alias, "it is the name of an agent of ours; give another")
            return found
        except AliasError as error:
            raise ApiError(Reason.INVALID_MESSAGE, str(error), alias=error.alias) from error
        except A2AError as error:
            raise ApiError(Reason.AGENT_UNREACHABLE, str(error), url=request.url) from error

    async def remove(request: RemoveExternal, context: Context) -> bool:
        known = {each.alias: each.url for each in await elsewhere.client.list_agents()}
        needed = _needed_for(known.get(request.alias.lower(), ""))
        await require(needed, request.secret, context, "remove agents that are not on this machine")
        try:
            return await elsewhere.remove(request.alias)
        except A2AError as error:
            raise ApiError(Reason.STORE_UNAVAILABLE, str(error), alias=request.alias) from error

    async def listed(*_: object) -> tuple[ExternalAgent, ...]:
        return await elsewhere.client.list_agents()

    return {DiscoverAgent: discover, ListExternal: listed, RemoveExternal: remove}


def _needed_for(url: str) -> Authority:
    """Return who may add or remove an agent: who adds one has us ask an address of his choice."""
    try:
        is_here = is_loopback(base_of(url))
    except A2AError:
        is_here = True  # there is nobody to be asked
    return Authority.PEER if is_here else Authority.BOSS
