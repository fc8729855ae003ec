"""The handler chain: which functions a request or notification reaches, in which order.

Handlers are asked in the order they were registered. One registered for a method sees that method
only; one registered with `on_message` sees whatever nobody before it claimed. A handler claims by
returning, declines by returning `DECLINED`, and rewrites for those after it by returning
`Declined(message)`.
"""

import contextlib
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec import Raw

from bullpen.jsonrpc.errors import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, RpcError
from bullpen.jsonrpc.wire import Error, Notification, Request, decode_value

__all__ = ["DECLINED", "Chain", "Declined", "Handler", "Link", "error_for"]

Handler = Callable[[Any, Any], Any | Awaitable[Any]]
"""Called with the params (or the whole message) and a `Context`; what it returns is the result."""


class Declined(msgspec.Struct, frozen=True):
    """Returned by a handler to pass a message on, rewritten if `message` is given."""

    message: Request | Notification | None = None


DECLINED = Declined()

# What some clients send instead of leaving the member out.
_NO_PARAMS = (b"null", b"[]")


class Link:
    """One registered handler."""

    __slots__ = ("_decode", "_params_type", "handler", "is_async", "kind", "method")

    def __init__(
        self,
        handler: Handler,
        kind: type[Request] | type[Notification] | None,  # None: any message
        method: str = "",
        params_type: Any = Any,
    ) -> None:
        self.handler = handler
        self.kind = kind
        self.method = method
        self.is_async = inspect.iscoroutinefunction(handler)
        self._params_type = params_type
        self._decode = msgspec.json.Decoder(params_type).decode

    def matches(self, kind: type | None, method: str) -> bool:
        return self.kind is None or (self.kind is kind and self.method == method)

    def argument(self, message: Request | Notification) -> Any:
        """Return what the handler is called with.

        Raises:
            RpcError: the params do not fit; the text names the path and the type, never a value.
        """
        if self.kind is None:
            return message
        params = message.params
        try:
            if params.__class__ is Raw:
                try:
                    return self._decode(params)
                except UnicodeDecodeError:
                    pass  # a lone surrogate, perhaps: the patient way below knows
                except msgspec.ValidationError:
                    if bytes(params) in _NO_PARAMS:
                        with contextlib.suppress(msgspec.ValidationError):
                            return self._decode(b"{}")
                    raise
                except msgspec.DecodeError:
                    pass
            return decode_value(params, self._params_type)
        except msgspec.ValidationError as error:
            raise RpcError(INVALID_PARAMS, f"Invalid params: {_without_value(error)}") from error
        except (ValueError, RecursionError) as error:
            raise RpcError(INVALID_PARAMS, "Invalid params: not readable") from error


class Chain:
    """The registered handlers of one connection."""

    def __init__(self, links: tuple[Link, ...]) -> None:
        self._links = links
        # The first link a message of some method reaches. A peer that invents methods must not
        # make this grow: only registered ones are in it.
        self.requests = self._by_method(Request)
        self.notifications = self._by_method(Notification)
        self.any = next((link for link in links if link.kind is None), None)

    async def pass_on(
        self, declined: Declined, link: Link, message: Request | Notification, context: Any
    ) -> Any:
        """Ask those after the link that declined; return what the first to claim returned.

        Raises:
            RpcError: nobody claimed it, its params do not fit, or a handler said so.
        """
        outcome: Any = declined
        while outcome.__class__ is Declined:
            message = outcome.message or message
            link = self._next(link, message)
            outcome = link.handler(link.argument(message), context)
            if link.is_async or hasattr(outcome, "__await__"):
                outcome = await outcome
        return outcome

    def _next(self, link: Link, message: Request | Notification) -> Link:
        for later in self._links[self._links.index(link) + 1 :]:
            if later.matches(message.__class__, message.method):
                return later
        raise not_found(message.method)

    def _by_method(self, kind: type) -> dict[str, Link]:
        methods = {link.method for link in self._links if link.kind is kind}
        return {
            method: next(link for link in self._links if link.matches(kind, method))
            for method in methods
        }


def _without_value(error: msgspec.ValidationError) -> str:
    """Return what is wrong and where. Of some types msgspec also says with which value."""
    text = str(error)
    for beginning in ("Invalid enum value", "Invalid value"):
        if text.startswith(beginning):
            place = text.rfind(" - at `")
            return beginning + text[place:] if place >= 0 else beginning
    return text


def not_found(method: str) -> RpcError:
    """Return the error for a method nobody handles."""
    return RpcError(METHOD_NOT_FOUND, f"Method not found: {method}", {"method": method})


def error_for(exception: BaseException, correlation: str, *, debug: bool) -> Error:
    """Return the error object for whatever a handler raised: the one place that decides."""
    if isinstance(exception, RpcError):
        return Error(exception.code, exception.message, exception.data)
    data = {"correlation": correlation}
    if debug:
        data["exception"] = repr(exception)
    return Error(INTERNAL_ERROR, "Internal error", data)
