"""An agent elsewhere that somebody has added: what is kept of it."""

from typing import Any

import msgspec

__all__ = ["ExternalAgent"]


class ExternalAgent(msgspec.Struct, frozen=True, kw_only=True):
    """An agent elsewhere. The fields are the seed's, and others read and write them, too."""

    name: str
    """What it calls itself."""
    url: str
    """Where its card is found; what it speaks is said there."""
    description: str = ""
    capabilities: dict[str, Any] = {}
    skills: tuple[dict[str, Any], ...] = ()
    alias: str
    """What it is called here: the address of messages to it."""
    added_at: str = ""
    last_seen: str = ""
    """When it last took something; empty if it never has."""
