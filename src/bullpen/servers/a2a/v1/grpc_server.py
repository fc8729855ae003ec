"""A2A 1.0 and 0.3 by gRPC, for those who have installed `bullpen[grpc]`: one server for all agents.

    server = await GrpcServer.open(path, handlers, guard, places)
    async with server.connect(way) as connected: ...

The bindings are the SDK's. Around them stands what they leave open: whose port a request came in
by, who asks, in which version, and the codes of the edition that holds for the agent. It listens at
a Unix socket that only we connect to, and knows each connection by the name our end of it has.
"""

import asyncio
import functools
import itertools
import logging
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import grpc
from a2a.compat.v0_3 import a2a_v0_3_pb2 as old_pb
from a2a.compat.v0_3.grpc_handler import CompatGrpcHandler
from a2a.compat.v0_3.proto_utils import FromProto
from a2a.server.context import ServerCallContext
from a2a.server.request_handlers.grpc_handler import (
    DefaultGrpcServerCallContextBuilder,
    GrpcHandler,
)
from a2a.types import a2a_pb2 as pb
from a2a.utils.error_handlers import A2A_DOMAIN
from a2a.utils.errors import (
    A2A_ERROR_MAPPING,
    A2AError,
    InvalidParamsError,
)
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from google.rpc import error_details_pb2, status_pb2
from grpc_status.rpc_status import to_status

from bullpen.api.errors import DaemonUnavailable
from bullpen.api.talk import Contact
from bullpen.connection import RequestTimeout
from bullpen.servers.a2a.grpc_ports import Way
from bullpen.servers.a2a.room import Caller
from bullpen.servers.a2a.security import Guard, Refused
from bullpen.servers.a2a.v1.card import card_of, with_old_interfaces
from bullpen.servers.a2a.v1.earlier import check_version
from bullpen.servers.a2a.v1.handler import CALLER, IS_LOCAL, MAKE_CARD, STREAMS, Handler
from bullpen.servers.a2a.v1.handlers import Handlers
from bullpen.servers.a2a.v1.rules import OURS, Rules

__all__ = ["GrpcServer", "Places"]

logger = logging.getLogger("bullpen.a2a")

VERSION_KEY = "a2a-version"
MOST_BYTES = 4 * 2**20  # a message of 1 MB, and what stands around it: nothing is escaped here
MOST_AT_ONCE = 256  # requests on one connection
HANDSHAKE_SECONDS = 10
IDLE_SECONDS = 300
STOP_SECONDS = 1.0
OPTIONS = (
    ("grpc.max_receive_message_length", MOST_BYTES),
    ("grpc.max_concurrent_streams", MOST_AT_ONCE),
    ("grpc.server_handshake_timeout_ms", HANDSHAKE_SECONDS * 1000),
    ("grpc.max_connection_idle_ms", IDLE_SECONDS * 1000),
)
CODES = {
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
}

Places = Callable[[Contact], tuple[str, str]]
"""Returns where an agent is served by HTTP, with a slash at the end, and by gRPC."""


class GrpcServer:
    """Serves all agents. Made by `open`, ended by `aclose`."""

    def __init__(self, path: Path, handlers: Handlers, guard: Guard, places: Places) -> None:
        self._path = path
        self._handlers = handlers
        self._guard = guard
        self._places = places
        self._ways: dict[int, Way] = {}
        self._numbers = itertools.count(1)
        methods = [self._methods(each) for each in (_NEW, _OLD)]
        self._server = grpc.aio.server(handlers=methods, options=OPTIONS)

    @classmethod
    async def open(
        cls, path: Path, handlers: Handlers, guard: Guard, places: Places
    ) -> "GrpcServer":
        """Listen at a path."""
        grpc.aio.init_grpc_aio()  # and never let go: the last who does joins a thread, in the loop
        found = cls(path, handlers, guard, places)
        found._server.add_insecure_port(f"unix:{quote(str(path))}")
        await found._server.start()
        return found

    async def aclose(self) -> None:
        """End all requests, after a moment for what is just being answered."""
        await self._server.stop(STOP_SECONDS)

    @asynccontextmanager
    async def connect(self, way: Way) -> AsyncIterator[socket.socket]:
        """Have a connection to the server for a block, which it takes for the caller's."""
        number = next(self._numbers)
        own = self._path.with_name(f"{self._path.name}-{number}")
        self._ways[number] = way
        try:
            with socket.socket(socket.AF_UNIX) as connecting:
                await asyncio.to_thread(_connect, connecting, self._path, own)
                yield connecting
        finally:
            del self._ways[number]

    # ------------------------------------------------------------------------------------- requests

    def _methods(self, dialect: "_Dialect") -> grpc.GenericRpcHandler:
        methods = {each.name: self._method(dialect, each) for each in dialect.service.methods}
        return grpc.method_handlers_generic_handler(dialect.service.full_name, methods)

    def _method(self, dialect: "_Dialect", method: Any) -> grpc.RpcMethodHandler:
        async def answer(data: bytes, context: Any) -> Any:
            async with self._answering(dialect, method, data, context) as (servicer, request):
                return await getattr(servicer, method.name)(request, context)

        async def stream(data: bytes, context: Any) -> AsyncIterator[Any]:
            async with self._answering(dialect, method, data, context) as (servicer, request):
                async for each in getattr(servicer, method.name)(request, context):
                    yield each

        write = GetMessageClass(method.output_type).SerializeToString
        if method.server_streaming:
            return grpc.unary_stream_rpc_method_handler(stream, response_serializer=write)
        return grpc.unary_unary_rpc_method_handler(answer, response_serializer=write)

    @asynccontextmanager
    async def _answering(
        self, dialect: "_Dialect", method: Any, data: bytes, context: Any
    ) -> AsyncIterator[tuple[Any, Any]]:
        """Let a request in for a block, and have whatever goes wrong there told."""
        streams: list[Any] = []
        try:
            way = self._way(context)
            said = _said(context)
            caller = await self._guard.admit(way.connected, said.get("authorization", ""))
            way.is_known = True
            make_card = functools.partial(self._card, dialect)
            asked = _Asked(caller, way.connected.is_local, streams, make_card)
            servicer = dialect.servicer(self._handlers.of(way.agent), asked)
            try:
                dialect.check_version(said.get(VERSION_KEY, ""))
                request = dialect.read(method, data)
            except A2AError as error:
                await servicer.abort_context(error, context)
                raise  # never: it has been aborted
            yield servicer, request
        except Refused as refused:
            context.set_trailing_metadata(tuple(refused.wire_headers.items()))
            await context.abort(CODES.get(refused.status, grpc.StatusCode.UNKNOWN), refused.detail)
        except (DaemonUnavailable, RequestTimeout):
            await context.abort(grpc.StatusCode.UNAVAILABLE, "bullpen does not answer")
        except grpc.aio.AbortError:
            raise
        except Exception:  # the boundary: what is our own trouble is logged, and not told
            logger.exception("a request by gRPC could not be answered")
            await context.abort(grpc.StatusCode.INTERNAL, "Internal error")
        finally:
            for each in streams:
                await each.aclose()

    def _card(self, dialect: "_Dialect", contact: Contact, rules: Rules) -> pb.AgentCard:
        base_url, own = self._places(contact)
        card = card_of(contact, base_url, rules, grpc=own, needs_token=self._guard.needs_token)
        return with_old_interfaces(card) if dialect is _OLD else card

    def _way(self, context: Any) -> Way:
        number = context.peer().rpartition("-")[2]
        way = self._ways.get(int(number)) if number.isdecimal() else None
        if way is None:
            raise Refused(401, "this is not where agents are asked")
        return way


class _Asked(DefaultGrpcServerCallContextBuilder):
    """Tells what a request is asked with."""

    def __init__(
        self,
        caller: Caller,
        is_local: bool,
        streams: list[Any],
        make_card: Callable[[Contact, Rules], pb.AgentCard],
    ) -> None:
        self._state = {
            CALLER: caller,
            IS_LOCAL: is_local,
            STREAMS: streams,
            MAKE_CARD: make_card,
        }

    def build(self, context: Any) -> ServerCallContext:
        """Return it."""
        built = super().build(context)
        built.state.update(self._state)
        return built


class _Servicer(GrpcHandler):
    """The SDK's binding, with errors of the edition that holds."""

    def __init__(self, handler: Handler, asked: _Asked) -> None:
        super().__init__(handler, asked)
        self._handler = handler

    async def abort_context(self, error: A2AError, context: Any) -> None:
        """End a request with an error, in the words of the edition that holds."""
        reason, code = await _reason_and_code(self._handler, error)
        detail = AnyMessage()
        detail.Pack(error_details_pb2.ErrorInfo(reason=reason, domain=A2A_DOMAIN))
        status = status_pb2.Status(code=code.value[0], message=error.message, details=[detail])
        rich = to_status(status)
        context.set_trailing_metadata(rich.trailing_metadata)
        await context.abort(rich.code, rich.details)


class _OldServicer(CompatGrpcHandler):
    """The same for 0.3."""

    def __init__(self, handler: Handler, asked: _Asked) -> None:
        super().__init__(handler, asked)
        self._handler = handler

    async def abort_context(self, error: A2AError, context: Any) -> None:
        """End a request with an error, which 0.3 knows by its name before the words."""
        _, code = await _reason_and_code(self._handler, error)
        await context.abort(code, f"{type(error).__name__}: {error.message}")


class _Dialect(NamedTuple):
    """An edition of A2A, which has a service of its own."""

    major: int
    service: Any
    servicer: Callable[[Handler, _Asked], Any]

    def check_version(self, said: str) -> None:
        """See that a request is made in this edition; who says none speaks 0.3.

        Raises:
            VersionNotSupportedError: it is made in another.
        """
        check_version(said or "0.3", self.major)

    def read(self, method: Any, data: bytes) -> Any:
        """Return a request.

        Raises:
            InvalidParamsError: it is none.
        """
        try:
            request = GetMessageClass(method.input_type).FromString(data)
            if isinstance(request, old_pb.SendMessageRequest):
                FromProto.message_send_params(request)  # which the SDK does later, and unguarded
        except (DecodeError, ValueError):
            raise InvalidParamsError(f"this is not what {method.name} is asked with") from None
        return request


_NEW = _Dialect(1, pb.DESCRIPTOR.services_by_name["A2AService"], _Servicer)
_OLD = _Dialect(0, old_pb.DESCRIPTOR.services_by_name["A2AService"], _OldServicer)


async def _reason_and_code(handler: Handler, error: A2AError) -> tuple[str, grpc.StatusCode]:
    known = A2A_ERROR_MAPPING.get(type(error))
    reason, code = (known.reason, known.grpc_status) if known else ("INTERNAL", "INTERNAL")
    said = (error.data or {}).get("refusal", reason)
    try:
        rules = await handler.rules()
    except A2AError:
        rules = OURS  # the agent is gone
    refusal = rules.refusals.get(said)
    return reason, grpc.StatusCode[refusal.status if refusal else code]


def _said(context: Any) -> dict[str, str]:
    """Return what is said beside a request."""
    found = context.invocation_metadata() or ()
    return {key.lower(): value for key, value in found if isinstance(value, str)}


def _connect(connecting: socket.socket, path: Path, own: Path) -> None:
    """Connect to a path from another, whose name stays when the file is gone."""
    own.unlink(missing_ok=True)  # of one who died just here
    connecting.bind(str(own))
    try:
        connecting.connect(str(path))
    finally:
        own.unlink()
    connecting.setblocking(False)
