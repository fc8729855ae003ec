"""What comes off the wire for a session is read as it was meant, and nothing is made of it."""

import ast
import asyncio
import copy
import math
from pathlib import Path
from typing import Any, assert_never, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bullpen
from bullpen.agents.providers.copilot import gateway, session
from bullpen.connection import channel, errors, routed, router
from bullpen.connection.routed import (
    Idle,
    PendingToolCall,
    PermissionRequest,
    SessionEvent,
    StreamingOutcome,
    ToolCall,
    ToolCallParams,
)
from bullpen.errors import BullpenError
from bullpen.jsonrpc import codec
from bullpen.jsonrpc.codec import classify_message
from bullpen.jsonrpc.wire import Malformed, Notification, Request, Response
from bullpen.testing.cli_server import FakeCliServer
from tests.connection.routers import BareServer, in_pieces, next_event, opened, sockets
from tests.connection.routers import routed as routed_to

SOURCES = Path(bullpen.__file__).parent

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


# Classification


@pytest.mark.requirement("D-15", "D-10", "D-11", "D-12")
@pytest.mark.parametrize(
    ("value", "kind", "id_"),
    [
        ({"id": 1, "result": 2}, Response, 1),
        ({"id": "1", "result": None}, Response, "1"),
        ({"id": 0, "result": {}}, Response, 0),
        ({"id": -1, "error": {"code": 1, "message": "m"}}, Response, -1),
        ({"id": None, "error": {"code": 1, "message": "m"}}, Response, None),
        ({"id": 1, "method": "tool.call"}, Request, 1),
        ({"id": 0, "method": "tool.call", "params": {}}, Request, 0),
        ({"id": "", "method": "m"}, Request, ""),
        ({"id": None, "method": "m"}, Request, None),
        ({"id": -7, "method": "m", "result": 1}, Request, -7),
        ({"method": "session.event"}, Notification, None),
        ({"method": "", "params": []}, Notification, None),
        ({"id": True, "method": "m"}, Malformed, None),
        ({"id": 1.0, "method": "m"}, Malformed, None),
        ({"id": [1], "method": "m"}, Malformed, None),
        ({"id": {}, "method": "m"}, Malformed, None),
        ({"id": True, "result": 1}, Malformed, None),
        ({"id": 1.5, "result": 1}, Malformed, None),
        ({"id": 1, "method": 5}, Malformed, 1),
        ({"id": 1, "method": None}, Malformed, 1),
        ({"method": ["m"]}, Malformed, None),
        ({"id": 1}, Malformed, 1),
        ({"params": {}}, Malformed, None),
        ({}, Malformed, None),
        ({"result": 1}, Malformed, None),
        ({"id": 1, "result": 1, "error": {"code": 1, "message": "m"}}, Malformed, None),
        ({"id": 1, "error": "not an error"}, Malformed, None),
        ([], Malformed, None),
        (17, Malformed, None),
        (None, Malformed, None),
        ("text", Malformed, None),
    ],
    ids=str,
)
def test_a_message_is_what_its_id_and_method_make_it(value: Any, kind: type, id_: Any) -> None:
    message = classify_message(value)
    assert type(message) is kind
    if not isinstance(message, Notification):
        assert (message.id, type(message.id)) == (id_, type(id_))


@pytest.mark.requirement("D-15")
@given(
    value=st.dictionaries(
        st.sampled_from(["id", "method", "params", "result", "error"]), json_values
    )
)
def test_classifying_never_fails_and_changes_nothing(value: Any) -> None:
    before = copy.deepcopy(value)
    first, second = classify_message(value), classify_message(value)
    assert first == second
    assert value == before
    has_method = isinstance(value.get("method"), str)
    if has_method and "id" not in value:
        assert isinstance(first, Notification)
    if not has_method:
        assert isinstance(first, Response | Malformed)


# What a session receives


@pytest.mark.requirement("D-30")
@settings(max_examples=60)
@given(data=json_values, event_type=st.text(st.characters(codec="utf-8"), min_size=1))
async def test_an_event_is_passed_on_untouched_with_its_type_beside_it(
    data: Any, event_type: str
) -> None:
    for pair in (sockets, in_pieces(40)):
        server = FakeCliServer()
        async with asyncio.timeout(5), routed_to(server, pair) as router_:
            channel_, its_session = await opened(router_, server)
            event = {"type": event_type, "data": data, "id": "1", "parentId": None, "more": [1.5]}
            params = {"sessionId": channel_.session_id, "event": event}
            its_session.connection.send_notification("session.event", params)
            message = await channel_.recv()
            if isinstance(message, SessionEvent):
                assert message.event_type == message.event["type"] == event_type
                assert message.event == event
            else:  # only what asks for an answer becomes something else
                assert event_type in ("external_tool.requested", "permission.requested")


@pytest.mark.requirement("D-30")
async def test_over_a_channel_an_event_is_the_very_object_that_was_sent() -> None:
    server = FakeCliServer()
    async with asyncio.timeout(5), routed_to(server) as router_:
        channel_, its_session = await opened(router_, server)
        data = {"of": object()}
        its_session.emit("anything", data)
        message = await next_event(channel_, "anything")
        assert message.event["data"] is data
        assert message.data is data


@pytest.mark.requirement("D-31", "D-11")
@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("arguments", [{}, {"city": "Oslo"}, [1, None], "text", 0, None])
async def test_a_tool_call_has_the_fields_of_the_wire(protocol: int, arguments: Any) -> None:
    server = BareServer()
    async with asyncio.timeout(5), server.routed() as router_:
        channel_ = await server.open(router_)
        call = {"toolCallId": "call_3_0", "toolName": "get_weather", "arguments": arguments}
        if protocol == 2:
            params = {"sessionId": channel_.session_id, **call}
            server.say({"jsonrpc": "2.0", "id": 4, "method": "tool.call", "params": params})
        else:
            data = {"requestId": "d32a", "sessionId": channel_.session_id, **call}
            server.say(server.event(channel_.session_id, "external_tool.requested", **data))
        message = await channel_.recv()
        assert isinstance(message, ToolCall)
        assert message.request_id == (4 if protocol == 2 else "d32a")
        assert message.params == ToolCallParams(
            session_id=channel_.session_id,
            tool_call_id="call_3_0",
            tool_name="get_weather",
            arguments=arguments,
        )


@pytest.mark.requirement("D-31", "L-4")
async def test_a_tool_called_by_an_event_that_names_none_is_answered_too() -> None:
    server = FakeCliServer()
    async with asyncio.timeout(5), routed_to(server, sockets) as router_:
        channel_, its_session = await opened(router_, server)
        reading = asyncio.ensure_future(channel_.read_streaming())
        its_session.emit("external_tool.requested", {"requestId": "r", "toolName": 7})
        its_session.emit("permission.requested", {"requestId": "p"})
        (tool,) = await server.wait_for("session.tools.handlePendingToolCall")
        assert tool.params["requestId"] == "r"
        assert tool.params["result"]["resultType"] == "failure"
        (leave,) = await server.wait_for("session.permissions.handlePendingPermissionRequest")
        assert leave.params["result"]["kind"] == "reject"
        its_session.idle()
        assert await reading == ""


@pytest.mark.requirement("D-31")
@pytest.mark.parametrize("protocol", [2, 3])
async def test_a_permission_has_its_kind_and_details(protocol: int) -> None:
    server = FakeCliServer(protocol=protocol)
    async with asyncio.timeout(5), routed_to(server, sockets) as router_:
        channel_, its_session = await opened(router_, server)
        answer = its_session.ask_permission("shell", fullCommandText="touch x")
        message = await channel_.recv()
        assert isinstance(message, PermissionRequest)
        assert message.kind == message.details["kind"] == "shell"
        assert message.details["fullCommandText"] == "touch x"
        del answer


# The text of a turn


@pytest.mark.requirement("D-32")
def test_the_outcomes_of_a_reading_can_be_matched_exhaustively() -> None:
    def words(outcome: StreamingOutcome) -> str:
        match outcome:
            case Idle(text):
                return f"said {text}"
            case PendingToolCall(text, call):
                return f"said {text} and wants {call.params.tool_name}"
            case _:
                assert_never(outcome)  # a third kind would fail the type check of this file

    params = ToolCallParams(session_id="s", tool_call_id="c", tool_name="t")
    assert words(Idle("it")) == "said it"
    assert words(PendingToolCall("it", ToolCall(1, params))) == "said it and wants t"
    assert set(get_args(StreamingOutcome)) == {Idle, PendingToolCall}


DELTA, MESSAGE = "assistant.message_delta", "assistant.message"
COMPLETED, TURN_END = "assistant.message.completed", "assistant.turn_end"


async def text_of(*events: tuple[str, dict[str, Any]]) -> str:
    """Return what a turn of these events is read as, having seen that its chunks agree."""
    server = FakeCliServer()
    chunks: list[str] = []
    async with asyncio.timeout(5), routed_to(server) as router_:
        channel_, its_session = await opened(router_, server)
        for event_type, data in events:
            its_session.emit(event_type, data)
        its_session.idle()
        text = await channel_.read_streaming(chunks.append)
    assert "".join(chunks) == text
    return text


@pytest.mark.requirement("D-35", "L-13")
@pytest.mark.parametrize(
    "events",
    [
        [(MESSAGE, {"content": "hello", "messageId": "m"})],
        [(COMPLETED, {"content": "hello", "messageId": "m"})],
        [("assistant.message_completed", {"content": "hello"})],
        [(TURN_END, {"content": "hello", "turnId": "0"})],
        [(MESSAGE, {"content": "hello"}), (TURN_END, {"content": "hello"})],
        [(MESSAGE, {"content": "hello"}), (COMPLETED, {"content": "hello"})],
        [(MESSAGE, {"content": "hello", "messageId": "m"}), (COMPLETED, {"content": "hello"})],
        [(MESSAGE, {"content": "hello"}), (COMPLETED, {"content": "hello", "messageId": "m"})],
        [(DELTA, {"deltaContent": "he"}), (DELTA, {"deltaContent": "llo"})],
        [
            (DELTA, {"deltaContent": "he", "messageId": "m"}),
            (DELTA, {"deltaContent": "llo", "messageId": "m"}),
            (MESSAGE, {"content": "hello", "messageId": "m"}),
            (COMPLETED, {"content": "hello", "messageId": "m"}),
            (TURN_END, {"content": "hello"}),
        ],
        [
            (DELTA, {"deltaContent": "hello"}),
            (MESSAGE, {"content": "hello", "messageId": "m"}),
            (COMPLETED, {"content": "hello", "messageId": "m"}),
        ],
        [
            (DELTA, {"deltaContent": "hello", "messageId": "m"}),
            (MESSAGE, {"content": "hello"}),
            (COMPLETED, {"content": "hello"}),
        ],
        [
            (MESSAGE, {"content": "", "messageId": "m"}),
            (DELTA, {"deltaContent": "hello", "messageId": "m"}),
            (MESSAGE, {"content": None, "messageId": ["m"]}),
        ],
    ],
    ids=lambda events: "+".join(event_type.removeprefix("assistant.") for event_type, _ in events),
)
async def test_every_shape_of_an_answer_gives_its_text_once(
    events: list[tuple[str, dict[str, Any]]],
) -> None:
    assert await text_of(*events) == "hello"


@pytest.mark.requirement("D-35", "L-13")
@pytest.mark.parametrize("shape", [MESSAGE, COMPLETED, TURN_END])
@pytest.mark.parametrize("has_ids", [True, False])
async def test_several_messages_of_one_turn_are_all_there(shape: str, has_ids: bool) -> None:
    events = []
    for number, text in enumerate(["Let me look. ", "Looking. ", "It rains."]):
        data = {"content": text, "messageId": f"m{number}"} if has_ids else {"content": text}
        events += [(shape, data), ("tool.execution_start", {"toolName": "t"})]
    assert await text_of(*events) == "Let me look. Looking. It rains."


@pytest.mark.requirement("L-13")
@settings(max_examples=60)
@given(
    messages=st.lists(
        st.tuples(
            st.lists(st.text("ab ", min_size=1, max_size=4), min_size=1, max_size=4),
            st.sampled_from(["deltas", "deltas+message", "message", "message+completed", "all"]),
        ),
        max_size=5,
    ),
    has_ids=st.booleans(),
)
async def test_messages_streamed_and_completed_in_any_way_are_each_said_once(
    messages: list[tuple[list[str], str]], has_ids: bool
) -> None:
    events: list[tuple[str, dict[str, Any]]] = []
    expected = ""
    for number, (pieces, shape) in enumerate(messages):
        # Without ids, messages in the same words could not be told from one said in two ways.
        pieces = pieces if has_ids else [f"{number}:", *pieces]
        id_ = {"messageId": f"m{number}"} if has_ids else {}
        text = "".join(pieces)
        expected += text
        if "deltas" in shape or shape == "all":
            events += [(DELTA, {"deltaContent": piece, **id_}) for piece in pieces]
        if "message" in shape or shape == "all" or not has_ids:
            events.append((MESSAGE, {"content": text, **id_}))
        if "completed" in shape or shape == "all":
            events.append((COMPLETED, {"content": text, **id_}))
    assert await text_of(*events) == expected


@pytest.mark.requirement("L-13")
async def test_what_was_said_in_one_turn_may_be_said_again_in_the_next() -> None:
    server = FakeCliServer()
    async with asyncio.timeout(5), routed_to(server) as router_:
        channel_, its_session = await opened(router_, server)
        for _ in range(2):
            its_session.message("the same", "same-id")
            its_session.idle()
            assert await channel_.read_streaming() == "the same"


@pytest.mark.requirement("L-28", "L-35")
async def test_halves_of_a_character_are_not_lost_from_the_text() -> None:
    server = BareServer()
    async with asyncio.timeout(5), server.routed() as router_:
        channel_ = await server.open(router_)
        frame = (
            b'{"method":"session.event","params":{"sessionId":"%s","event":{"type":'
            b'"assistant.message_delta","data":{"messageId":"m","deltaContent":"%s"}}}}'
        )
        halves = [b"see ", rb"\ud83d", rb"\ude00", b" and ", "😀".encode()]
        server.say_raw(*[frame % (channel_.session_id.encode(), half) for half in halves])
        server.say(server.event(channel_.session_id, "session.idle"))
        chunks: list[str] = []
        assert await channel_.read_streaming(chunks.append) == "see \ud83d\ude00 and 😀"
        assert len(chunks) == 5


@pytest.mark.requirement("L-28")
@pytest.mark.parametrize("id_", [7, None, [], {}, 1.5, math.pi])
async def test_a_piece_of_text_counts_whatever_its_other_members_are(id_: Any) -> None:
    server = BareServer()
    async with asyncio.timeout(5), server.routed() as router_:
        channel_ = await server.open(router_)
        piece = server.event(
            channel_.session_id, "assistant.message_delta", messageId=id_, deltaContent="hello"
        )
        whole = server.event(
            channel_.session_id, "assistant.message", messageId=id_, content="hello"
        )
        idle = server.event(channel_.session_id, "session.idle")
        for said in ([piece, idle], [piece, whole, idle], [whole, idle]):
            server.say(*said)
            assert await channel_.read_streaming() == "hello"


@pytest.mark.requirement("L-13")
@pytest.mark.parametrize("value", [b"1" * 5000, b"1e999", b'"\\ud83d"', b"[]", b"null"])
async def test_a_completed_message_that_cannot_be_read_does_not_end_the_turn(value: bytes) -> None:
    server = BareServer()
    async with asyncio.timeout(5), server.routed() as router_:
        channel_ = await server.open(router_)
        server.say_raw(
            b'{"method":"session.event","params":{"sessionId":"%s","event":{"type":'
            b'"assistant.message","data":{"messageId":%s,"content":%s}}}}'
            % (channel_.session_id.encode(), value, b"[1]")
        )
        server.say(
            server.event(channel_.session_id, "assistant.message_delta", deltaContent="fine"),
            server.event(channel_.session_id, "session.idle"),
        )
        assert await channel_.read_streaming() == "fine"


# Where things are


def imports_of(module: Any) -> set[str]:
    """Return the modules of ours that a module imports."""
    found = set()
    for node in ast.walk(ast.parse(Path(module.__file__).read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("bullpen"):
            found.add(str(node.module))
    return found


@pytest.mark.requirement("D-51")
def test_each_part_of_the_router_has_a_module_of_its_own() -> None:
    homes = {
        router: ["MessageRouter"],
        channel: ["SessionChannel"],
        routed: ["RoutedMessage", "StreamingOutcome"],
        codec: ["classify_message"],
        session: ["CopilotSession"],
        gateway: ["CopilotGateway"],
        errors: ["RouterStopped", "TransportClosed"],
    }
    for module, names in homes.items():
        for name in names:
            assert name in module.__all__, name


@pytest.mark.requirement("D-51", "D-44")
def test_gateway_session_router_and_what_is_below_import_downwards_only() -> None:
    order = [gateway, session, router, channel, routed, errors, codec]
    names = [module.__name__ for module in order]
    for position, module in enumerate(order):
        upwards = imports_of(module) & set(names[:position])
        if module is channel:  # for the type checker only
            upwards.discard(router.__name__)
        assert not upwards, (module.__name__, upwards)


@pytest.mark.requirement("D-44")
def test_nobody_but_gateway_and_session_knows_the_router() -> None:
    allowed = {gateway.__file__, session.__file__}
    for path in SOURCES.rglob("*.py"):
        room = path.relative_to(SOURCES).parts[0]
        if str(path) in allowed or room in ("connection", "testing"):
            continue
        assert "bullpen.connection.router" not in path.read_text(encoding="utf-8"), path


@pytest.mark.requirement("D-52")
def test_every_error_has_one_base_and_says_what_remains_possible() -> None:
    for name in errors.__all__:
        kind = getattr(errors, name)
        assert issubclass(kind, BullpenError)
        assert (kind.__doc__ or "").strip().endswith(".")
        assert name in (errors.__doc__ or ""), f"{name} is missing in the tree"


@pytest.mark.requirement("L-8")
def test_frames_are_built_in_one_place() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in SOURCES.rglob("*.py")}
    builders = [
        str(path.relative_to(SOURCES))
        for path, text in texts.items()
        if "Content-Length: " in text and "HTTP/1" not in text  # which has such a header, too
    ]
    assert builders == ["jsonrpc/framing.py"]
