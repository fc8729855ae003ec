"""A2A 1.0 by gRPC, for those who have installed `bullpen[grpc]`.

    async with serve_grpc(handler, who, base_url="http://127.0.0.1:8101/") as address: ...

The binding is the SDK's. Around it stands what it leaves open: the version of a request, who asks,
and the codes of the edition that holds for the agent.
"""

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import grpc
from a2a.server.context import ServerCallContext
from a2a.server.request_handlers.grpc_handler import (
    DefaultGrpcServerCallContextBuilder,
    GrpcHandler,
)
from a2a.types import a2a_pb2 as pb
from a2a.types.a2a_pb2_grpc import add_A2AServiceServicer_to_server
from a2a.utils.error_handlers import A2A_DOMAIN
from a2a.utils.errors import (
    A2A_ERROR_MAPPING,
    A2AError,
    InvalidRequestError,
    VersionNotSupportedError,
)
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc import error_details_pb2, status_pb2
from grpc_status.rpc_status import to_status

from bullpen.api.talk import Contact
from bullpen.servers.a2a.room import Caller
from bullpen.servers.a2a.v1.card import card_of
from bullpen.servers.a2a.v1.handler import CALLER, IS_LOCAL, MAKE_CARD, STREAMS, Handler
from bullpen.servers.a2a.v1.rules import Rules

__all__ = ["Who", "serve_grpc"]

VERSION_KEY = "a2a-version"
MOST_BYTES = 8 * 2**20
MOST_AT_ONCE = 400
STOP_SECONDS = 1.0

Who = Callable[[str, Mapping[str, str]], Awaitable[Caller | None]]
"""Returns who asks, by the other end's address (`ipv4:127.0.0.1:4711`) and what is said beside the
request; None if nobody is let in with that."""


@asynccontextmanager
async def serve_grpc(
    handler: Handler, who: Who, *, base_url: str, address: str = "127.0.0.1:0"
) -> AsyncIterator[str]:
    """Serve an agent for a block; yield where. `base_url` is where it is served by HTTP."""
    server = grpc.aio.server(
        maximum_concurrent_rpcs=MOST_AT_ONCE,
        options=[("grpc.max_receive_message_length", MOST_BYTES), ("grpc.so_reuseport", 0)],
    )
    where = f"{address.rpartition(':')[0]}:{server.add_insecure_port(address)}"
    servicer = _Servicer(handler, _Contexts(base_url, where), who)
    add_A2AServiceServicer_to_server(servicer, server)  # type: ignore[no-untyped-call]
    await server.start()
    try:
        yield where
    finally:
        await server.stop(STOP_SECONDS)


class _Contexts(DefaultGrpcServerCallContextBuilder):
    """Tells what a request is asked with."""

    def __init__(self, base_url: str, where: str) -> None:
        self._base_url = base_url
        self._where = where

    def build(self, context: Any) -> ServerCallContext:
        """Return it.

        Raises:
            VersionNotSupportedError: it is asked in another version.
        """
        version = _said(context).get(VERSION_KEY, "")
        if version.partition(".")[0] != "1":
            raise VersionNotSupportedError(f"version {version or '0.3'} is not served here")
        built = super().build(context)
        built.state[MAKE_CARD] = self._make_card
        built.state[STREAMS] = []
        built.state[IS_LOCAL] = ":127.0.0.1:" in context.peer() or "[::1]" in context.peer()
        return built

    def _make_card(self, contact: Contact, rules: Rules) -> pb.AgentCard:
        return card_of(contact, self._base_url, rules, grpc=self._where)


class _Servicer(GrpcHandler):
    """The SDK's binding, with a door, and with errors of the edition that holds."""

    def __init__(self, handler: Handler, contexts: _Contexts, who: Who) -> None:
        super().__init__(handler, contexts)
        self._handler = handler
        self._who = who

    async def _handle_unary(
        self, request: Any, context: Any, handler_func: Any, default_response: Any
    ) -> Any:
        async def asked(server_context: ServerCallContext) -> Any:
            await self._let_in(context, server_context)
            return await handler_func(server_context)

        return await super()._handle_unary(request, context, asked, default_response)

    async def _handle_stream(
        self, request: Any, context: Any, handler_func: Any
    ) -> AsyncIterable[Any]:
        async def asked(server_context: ServerCallContext) -> AsyncIterable[Any]:
            await self._let_in(context, server_context)
            try:
                async for event in handler_func(server_context):
                    yield event
            finally:
                for stream in server_context.state[STREAMS]:
                    await stream.aclose()

        async for event in super()._handle_stream(request, context, asked):
            yield event

    async def _let_in(self, context: Any, server_context: ServerCallContext) -> None:
        caller = await self._who(context.peer(), _said(context))
        if caller is None:
            refused = {"refusal": "UNAUTHENTICATED"}
            raise InvalidRequestError("a token is needed, or another one", refused)
        server_context.state[CALLER] = caller

    async def abort_context(self, error: A2AError, context: Any) -> None:
        """End a request with an error, in the words of the edition that holds."""
        known = A2A_ERROR_MAPPING.get(type(error))
        reason, code = (known.reason, known.grpc_status) if known else ("INTERNAL", "INTERNAL")
        said = (error.data or {}).get("refusal", reason)
        refusal = (await self._handler.rules()).refusals.get(said)
        code = "UNAUTHENTICATED" if said == "UNAUTHENTICATED" else code
        found = grpc.StatusCode[refusal.status if refusal else code]
        detail = AnyMessage()
        detail.Pack(error_details_pb2.ErrorInfo(reason=reason, domain=A2A_DOMAIN))
        status = status_pb2.Status(code=found.value[0], message=error.message, details=[detail])
        rich = to_status(status)
        context.set_trailing_metadata(rich.trailing_metadata)
        await context.abort(rich.code, rich.details)


def _said(context: Any) -> dict[str, str]:
    """Return what is said beside a request."""
    found = context.invocation_metadata() or ()
    return {key.lower(): value for key, value in found if isinstance(value, str)}
