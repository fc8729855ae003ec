"""Agents elsewhere, as requests to the daemon: adding them by their cards, listing, removing.

Once added, an agent is an address like any other: what is sent to its alias is sent to it.
"""

from bullpen.connection import TypedRequest
from bullpen.model.external import ExternalAgent

__all__ = ["DISCOVER_SECONDS", "DiscoverAgent", "ListExternal", "RemoveExternal"]

DISCOVER_SECONDS = 75.0
"""How long to wait for a discovery: its two requests may take thirty each."""


class DiscoverAgent(TypedRequest[ExternalAgent]):
    """Read the card of an agent elsewhere, and keep the agent. Only a person or a boss may."""

    METHOD = "external.discover"
    url: str
    """Where its card is found, or that of the card itself."""
    alias: str | None = None
    """What to call it here; else its name in lower case, with `-` for spaces."""
    secret: str = ""


class ListExternal(TypedRequest[tuple[ExternalAgent, ...]]):
    """The agents elsewhere that were added, by their aliases."""

    METHOD = "external.list"


class RemoveExternal(TypedRequest[bool]):
    """Forget an agent elsewhere; whether it was known. Only a person or a boss may."""

    METHOD = "external.remove"
    alias: str
    secret: str = ""
