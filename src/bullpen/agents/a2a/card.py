"""The card: what an agent says of itself, and in which dialect it is spoken to.

There are three generations of cards. Those of A2A 1.0 list interfaces, each with the version it
speaks; those of 0.2 and 0.3 have one address and perhaps more; the seed's have an address and none
of what the others must have. What we do not know in a card is passed over; what we need and is
wrong is an error.
"""

from enum import StrEnum
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from bullpen.agents.a2a.errors import CardError
from bullpen.agents.providers.values import mapping, text

__all__ = [
    "CARD_PATHS",
    "Binding",
    "Card",
    "Dialect",
    "cut",
    "is_address",
    "is_loopback",
    "local_card",
    "read_card",
]

CARD_PATHS: Final = ("/.well-known/agent-card.json", "/.well-known/agent.json")
"""Where a card is found: the place of today first, then that of the seed and of 0.2."""

LONGEST_NAME: Final = 200
LONGEST_DESCRIPTION: Final = 4000
MOST_SKILLS: Final = 200
PRIORITY: Final = "priority"

_SPOKEN: Final = {"JSONRPC": "JSONRPC", "HTTP+JSON": "HTTP+JSON"}


class Dialect(StrEnum):
    """What an agent speaks."""

    SEED = "seed"
    """`/tasks/send` and its kin, with tasks that are polled."""
    V03 = "0.3"
    V10 = "1.0"


class Binding(StrEnum):
    """How the dialect is put into HTTP."""

    PATHS = "paths"
    """The seed's."""
    JSONRPC = "JSONRPC"
    REST = "HTTP+JSON"


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent says of itself, as far as we need it."""

    name: str
    dialect: Dialect
    binding: Binding
    url: str
    """Where it is spoken to."""
    description: str = ""
    version: str = ""
    tenant: str = ""
    """What has to be said again in every request of 1.0."""
    can_stream: bool = False
    has_priorities: bool = False
    """It takes a priority, as agents of this machine do."""
    priority_uri: str = ""
    """The extension by which an agent of 1.0 takes one."""
    capabilities: dict[str, Any] = {}
    skills: tuple[dict[str, Any], ...] = ()
    is_here: bool = False
    """It was found on this machine, and may so lead there."""


def read_card(value: object, found_at: str, *, is_here: bool = False) -> Card:
    """Return what a card says that was found below an address; on this machine, if `is_here`.

    Raises:
        CardError: it is none, or it speaks nothing that we do, or it points where it must not.
    """
    if not isinstance(value, dict):
        raise CardError(found_at, "it is no JSON object")
    name = " ".join(text(value.get("name")).split())[:LONGEST_NAME]
    if not name:
        raise CardError(found_at, "it has no name")
    is_here = is_here or is_loopback(found_at)
    capabilities = mapping(value.get("capabilities"))
    skills = value.get("skills")
    dialect, binding, url, tenant = _spoken(value, found_at)
    return Card(
        name=name,
        description=text(value.get("description"))[:LONGEST_DESCRIPTION],
        version=text(value.get("version"))[:LONGEST_NAME],
        dialect=dialect,
        binding=binding,
        url=_checked(url, found_at, is_here=is_here),
        tenant=tenant,
        can_stream=capabilities.get("streaming") is True and dialect is not Dialect.SEED,
        priority_uri=_priority_uri(capabilities),
        capabilities=capabilities,
        skills=tuple(each for each in skills if isinstance(each, dict))[:MOST_SKILLS]
        if isinstance(skills, list)
        else (),
        is_here=is_here,
    )


def local_card(name: str, endpoint: str) -> Card:
    """Return the card of an agent of this machine's registry: it speaks as the seed does."""
    return Card(
        name=name,
        dialect=Dialect.SEED,
        binding=Binding.PATHS,
        url=endpoint.rstrip("/"),
        has_priorities=True,
        is_here=True,
    )


def _spoken(card: dict[str, Any], found_at: str) -> tuple[Dialect, Binding, str, str]:
    if "supportedInterfaces" in card:
        return _of_interfaces(card["supportedInterfaces"], found_at)
    if _is_of_the_seed(card):
        return Dialect.SEED, Binding.PATHS, found_at, ""
    return _of_transports(card, found_at)


def _of_interfaces(interfaces: object, found_at: str) -> tuple[Dialect, Binding, str, str]:
    if not isinstance(interfaces, list):
        raise CardError(found_at, "its interfaces are no list")
    found: dict[Dialect, tuple[Dialect, Binding, str, str]] = {}
    for each in map(mapping, interfaces):
        binding, url = _SPOKEN.get(text(each.get("protocolBinding"))), text(each.get("url"))
        dialect = _dialect(text(each.get("protocolVersion")) or Dialect.V10)
        if binding and url and dialect is not None and dialect not in found:
            found[dialect] = (dialect, Binding(binding), url, text(each.get("tenant")))
    for dialect in (Dialect.V10, Dialect.V03):
        if dialect in found:
            return found[dialect]
    raise CardError(found_at, "it has no interface that we speak")


def _of_transports(card: dict[str, Any], found_at: str) -> tuple[Dialect, Binding, str, str]:
    if _dialect(text(card.get("protocolVersion")) or Dialect.V03) is not Dialect.V03:
        raise CardError(found_at, f"it speaks A2A {card.get('protocolVersion')!r}")
    first = {"transport": card.get("preferredTransport") or "JSONRPC", "url": card.get("url")}
    others = card.get("additionalInterfaces")
    for each in map(mapping, [first, *(others if isinstance(others, list) else [])]):
        binding, url = _SPOKEN.get(text(each.get("transport"))), text(each.get("url"))
        if binding and url:
            return Dialect.V03, Binding(binding), url, ""
    raise CardError(found_at, "it has no interface that we speak")


def _dialect(version: str) -> Dialect | None:
    major = version.strip().removeprefix("v").split(".")[0]
    return {"1": Dialect.V10, "0": Dialect.V03}.get(major)


def _is_of_the_seed(card: dict[str, Any]) -> bool:
    """Whether a card is as the seed has it: it says nothing that A2A has wanted since."""
    if "synapse" in mapping(card.get("extensions")):
        return True
    newer = ("protocolVersion", "preferredTransport", "additionalInterfaces", "defaultInputModes")
    return not any(each in card for each in newer)


def _checked(url: str, found_at: str, *, is_here: bool) -> str:
    if not is_address(url):
        raise CardError(found_at, f"{url[:LONGEST_NAME]!r} is no http address")
    if is_loopback(url) and not is_here:
        raise CardError(found_at, f"it is elsewhere and points at this machine ({url})")
    if found_at.startswith("https:") and not url.startswith("https:"):
        raise CardError(found_at, f"it was found through TLS and points at {url}, which is without")
    return url.rstrip("/")


def is_address(url: str) -> bool:
    """Whether this is the address of an HTTP server."""
    try:
        parts = urlsplit(url)
        is_one = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return is_one and not any(each <= " " for each in url) and "@" not in parts.netloc


def cut(url: str) -> tuple[str, str]:
    """Return the server of an address, and what is asked of it."""
    parts = urlsplit(url)
    query = f"?{parts.query}" if parts.query else ""
    return f"{parts.scheme}://{parts.netloc}", f"{parts.path}{query}"


def is_loopback(url: str) -> bool:
    """Whether an address is one of this machine's own."""
    host = urlsplit(url).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def _priority_uri(capabilities: dict[str, Any]) -> str:
    extensions = capabilities.get("extensions")
    uris = [
        text(mapping(each).get("uri"))
        for each in (extensions if isinstance(extensions, list) else [])
    ]
    return next((each for each in uris if PRIORITY in each and "bullpen" in each), "")
