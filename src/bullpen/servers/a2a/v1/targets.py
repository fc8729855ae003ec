"""Which addresses are posted to: public ones; this machine for who is on it. It only decides."""

import contextlib
import ipaddress
from collections.abc import Iterator
from urllib.parse import SplitResult, urlsplit

from bullpen.errors import BullpenError

__all__ = ["MOST_CHARACTERS", "Forbidden", "check_address", "check_url"]

MOST_CHARACTERS = 4096

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_TRANSLATED = ipaddress.ip_network("64:ff9b::/96")  # by a gateway, to the IPv4 address in its end
_METADATA = frozenset({ipaddress.ip_address("168.63.129.16")})  # of a cloud, and looks public


class Forbidden(BullpenError):
    """An address that is not posted to. Another can be given."""


def check_url(url: str, *, is_local: bool) -> SplitResult:
    """Return an address in its parts, if it may be posted to as far as one sees.

    `is_local`: it may lead to this machine. Where a name leads is not known yet.

    Raises:
        Forbidden: it may not, or is none.
    """
    if len(url) > MOST_CHARACTERS or not url.isprintable() or not url.isascii() or " " in url:
        raise Forbidden("it is no URL")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
        if host is not None:
            host.encode("idna")  # as it is done when it is looked up
    except ValueError as error:
        raise Forbidden("it is no URL") from error
    if parts.scheme not in ("http", "https") or not host or port == 0:
        raise Forbidden("it is to begin with http:// or https:// and a host")
    if parts.username is not None or parts.password is not None:
        raise Forbidden("a name and a password do not belong into a URL")
    if host == "localhost" or host.endswith(".localhost"):
        check_address("127.0.0.1", is_local=is_local)
    with contextlib.suppress(ValueError):
        check_address(str(ipaddress.ip_address(host)), is_local=is_local)
    return parts


def check_address(address: str, *, is_local: bool) -> None:
    """See that an IP address may be posted to.

    Raises:
        Forbidden: it is none of the public ones, nor of this machine where that may be.
    """
    found: _Address = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    if found.is_loopback and is_local:
        return
    if not all(_is_public(each) for each in _reached(found)):
        raise Forbidden("it leads to an address that is not public")


def _reached(address: _Address) -> Iterator[_Address]:
    """Yield an address, or where it leads, and what it leads through."""
    if isinstance(address, ipaddress.IPv6Address):
        if address in _TRANSLATED:
            yield ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
            return
        if address.sixtofour is not None:
            yield address.sixtofour
        yield from address.teredo or ()
    yield address


def _is_public(address: _Address) -> bool:
    return (
        address.is_global
        and not address.is_multicast
        and not address.is_reserved
        and not getattr(address, "is_site_local", False)
        and address not in _METADATA
    )
