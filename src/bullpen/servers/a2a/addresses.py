"""What a request was made to: which agent, and under which address it is reached."""

from collections.abc import Mapping
from typing import Any

from bullpen.api.talk import Contact

__all__ = ["CONTACT", "base_url_of", "contact_of"]

CONTACT = "bullpen.contact"


def contact_of(scope: Mapping[str, Any]) -> Contact:
    """Return the agent that a request is for, as it was when the request came."""
    contact = scope[CONTACT]
    assert isinstance(contact, Contact)
    return contact


def base_url_of(scope: Mapping[str, Any]) -> str:
    """Return the address of that agent, as the caller named us; without a slash at its end."""
    host = next((value for key, value in scope["headers"] if key == b"host"), b"")
    root = scope.get("root_path", "")
    return f"{scope['scheme']}://{host.decode('latin-1')}{root}".rstrip("/")
