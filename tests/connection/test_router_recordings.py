"""What the real server once said, said again: every event reaches its session, and every text.

Three recordings of Copilot CLI: ten sessions at once of the newer generation, ten of the older,
which asks with requests and starts sessions before it tells their ids, and one long session with
errors, an abort and calls that fail.
"""

import asyncio
import contextlib
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import pytest

from bullpen.connection import Message, RemoteError, Request, Response, Transport
from bullpen.connection.channel import SessionChannel
from bullpen.connection.errors import RouterStopped, SessionFailed
from bullpen.connection.routed import (
    PendingToolCall,
    PermissionRequest,
    RoutedMessage,
    SessionEvent,
    ToolCall,
)
from bullpen.connection.router import MessageRouter
from bullpen.jsonrpc.codec import classify_message
from bullpen.jsonrpc.wire import decode_value
from bullpen.testing.transports import Recorder
from tests.connection.routers import in_pieces, settle

RECORDINGS = Path(__file__).parents[1] / "recordings" / "copilot"

recordings = pytest.mark.parametrize(
    ("name", "sessions"),
    [("multi_10_stdio", 10), ("v2_multi_10", 10), ("single_session", 1)],
    ids=["ten-of-the-newer", "ten-of-the-older", "one-long"],
)
pieces = pytest.mark.parametrize("piece", [37, 4096, 2**20])


def rows_of(name: str) -> list[tuple[str, Any]]:
    lines = (RECORDINGS / f"{name}.ndjson").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    return [(row["dir"], row["msg"]) for row in rows if row["dir"] in ("->", "<-")]


def messages_of(rows: Iterable[tuple[str, Any]]) -> dict[str, list[Any]]:
    """Return what the server said to each session, in order."""
    said: dict[str, list[Any]] = defaultdict(list)
    for direction, message in rows:
        method, params = message.get("method", ""), message.get("params", {})
        if direction == "<-" and method and "sessionId" in params:
            if method == "session.event":
                said[params["sessionId"]].append(params["event"])
            elif "id" in message:
                said[params["sessionId"]].append(message)
    return said


class Replay:
    """The server's side of a recording, and the client's done by a router."""

    def __init__(self, router: MessageRouter, far: Transport, recorder: Recorder) -> None:
        self._router = router
        self._far = far
        self._recorder = recorder
        self._ids: dict[Any, Any] = {}  # those of the recording, and those of today
        self._creating: list[asyncio.Task[tuple[str, SessionChannel]]] = []
        self._asking: list[asyncio.Task[Any]] = []

    async def run(self, rows: list[tuple[str, Any]]) -> dict[str, SessionChannel]:
        """Go through the recording; return the channels by their ids."""
        for direction, message in rows:
            if direction == "<-":
                self.say(message)
            elif "method" in message:
                await self._ask(message)
            else:
                await self._respond(Response(message["id"], message["result"]))
        await settle()
        outcomes = await asyncio.gather(*self._creating, return_exceptions=True)
        assert all(isinstance(outcome, tuple | RemoteError) for outcome in outcomes)
        return dict(outcome for outcome in outcomes if isinstance(outcome, tuple))

    def say(self, message: Any) -> None:
        if "method" not in message:
            message = {**message, "id": self._ids[message["id"]]}
        said = classify_message(message)
        self._far.send(said)

    async def end(self) -> None:
        await self._far.close()
        await asyncio.gather(*self._asking, return_exceptions=True)

    async def _respond(self, response: Response) -> None:
        while True:
            try:
                self._router.send_response(response)
            except KeyError:  # we have not been asked yet
                await settle()
            else:
                return

    async def _ask(self, message: Any) -> None:
        before = len(self._requests())
        method, params = message["method"], message["params"]
        if method == "session.create":
            self._creating.append(asyncio.ensure_future(self._router.create_session(params)))
        else:
            self._asking.append(asyncio.ensure_future(self._router.request(method, params)))
        while len(self._requests()) == before:
            await settle(1)
        asked = self._requests()[-1]
        assert asked.method == method
        self._ids[message["id"]] = asked.id

    def _requests(self) -> list[Request]:
        return [m for m in self._recorder.messages if isinstance(m, Request)]


@contextlib.asynccontextmanager
async def replayed(piece: int, recorder: Recorder) -> AsyncIterator[Replay]:
    near, far = in_pieces(piece)()
    await far.start(recorder)
    async with asyncio.timeout(30), await MessageRouter.open(near) as router:
        replay = Replay(router, far, recorder)
        yield replay
        await replay.end()


async def received(channel: SessionChannel) -> list[RoutedMessage]:
    """Return all that is in a channel, up to its end."""
    messages = []
    try:
        while True:
            messages.append(await channel.recv())
    except RouterStopped:
        return messages


def check(message: RoutedMessage, said: Any) -> None:
    """See that a message is what the server said."""
    if isinstance(message, SessionEvent):
        assert message.event == said
        assert message.event_type == said["type"]
    elif "type" in said:  # the newer server asks by event
        data = said["data"]
        assert message.request_id == data["requestId"]
        if isinstance(message, ToolCall):
            assert message.params.tool_call_id == data["toolCallId"]
            assert message.params.arguments == data["arguments"]
        else:
            assert isinstance(message, PermissionRequest)
            assert message.details == data["permissionRequest"]
    else:  # the older by request, and its ids begin at 0
        assert message.request_id == said["id"]
        if isinstance(message, ToolCall):
            assert message.params.tool_name == said["params"]["toolName"]
            assert message.params.arguments == said["params"]["arguments"]
        else:
            assert isinstance(message, PermissionRequest)
            assert message.details == said["params"]["permissionRequest"]


@pytest.mark.requirement("D-02", "D-14", "D-19", "D-30", "L-1", "L-3")
@recordings
@pieces
async def test_every_event_reaches_the_channel_of_its_session_in_order(
    name: str, sessions: int, piece: int
) -> None:
    rows = rows_of(name)
    expected = messages_of(rows)
    async with replayed(piece, Recorder()) as replay:
        channels = await replay.run(rows)
        await replay.end()
        assert set(channels) == set(expected)
        assert len(channels) == sessions
        for session_id, channel in channels.items():
            messages = [
                message
                for message in await received(channel)
                if not (
                    isinstance(message, SessionEvent) and message.event_type == "session.lifecycle"
                )
            ]
            assert len(messages) == len(expected[session_id])
            for message, said in zip(messages, expected[session_id], strict=True):
                check(message, said)


class AnsweringRecorder(Recorder):
    """Answers every request of the client's but those of the recording."""

    def __init__(self) -> None:
        super().__init__()
        self.replay: Replay | None = None
        self.answered: list[Any] = []

    def receive(self, message: Message, size: int) -> None:
        super().receive(message, size)
        if isinstance(message, Request) and message.method != "session.create":
            self.answered.append((message.method, decode_value(message.params)))
            assert self.replay is not None
            self.replay._far.send(Response(message.id, {"success": True}))
        elif isinstance(message, Response):
            self.answered.append(("response", decode_value(message.result)))


def turns_of(events: list[Any]) -> list[str | tuple[str, str]]:
    """Return the text or the error of each turn, read off the recording in another way.

    A completed message is its text; the deltas of one that was never completed are its text.
    """
    turns: list[str | tuple[str, str]] = []
    messages: dict[str, str] = {}
    deltas: dict[str, str] = {}
    has_failed = False
    for event in events:
        data = event.get("data", {})
        if event.get("type") == "assistant.message":
            messages[data["messageId"]] = data["content"]
        elif event.get("type") == "assistant.message_delta":
            messages.setdefault(data["messageId"], "")
            deltas[data["messageId"]] = deltas.get(data["messageId"], "") + data["deltaContent"]
        elif event.get("type") == "session.error":
            turns.append(("error", data["message"]))
            has_failed = True
        elif event.get("type") == "session.idle":
            if not has_failed:
                turns.append(
                    "".join(
                        text or deltas[id_]
                        for id_, text in messages.items()
                        if text or id_ in deltas
                    )
                )
            messages, deltas, has_failed = {}, {}, False
    return turns


async def turns_read(channel: SessionChannel) -> list[str | tuple[str, str]]:
    turns: list[str | tuple[str, str]] = []
    chunks: list[str] = []
    while True:
        try:
            outcome = await channel.read_streaming_for_tools(chunks.append)
        except SessionFailed as failure:
            turns.append(("error", failure.message))
            chunks.clear()
        except RouterStopped:
            return turns
        else:
            if isinstance(outcome, PendingToolCall):
                await channel.answer_tool_call(outcome.call, "an answer")
            else:
                assert "".join(chunks) == outcome.text
                turns.append(outcome.text)
                chunks.clear()


@pytest.mark.requirement("D-27", "D-28", "D-34", "D-35", "L-9", "L-13", "L-28")
@recordings
@pieces
async def test_every_turn_is_read_with_exactly_its_text(
    name: str, sessions: int, piece: int
) -> None:
    rows = [
        (direction, message)
        for direction, message in rows_of(name)
        if direction == "<-" or message.get("method") == "session.create"
    ]
    created = {m["id"] for d, m in rows if d == "->"}
    rows = [(d, m) for d, m in rows if "method" in m or m["id"] in created]
    expected = {id_: turns_of(said) for id_, said in messages_of(rows).items()}
    assert sum(map(len, expected.values())) >= 9
    recorder = AnsweringRecorder()
    async with replayed(piece, recorder) as replay:
        recorder.replay = replay
        channels = await replay.run(rows)
        reading = {id_: asyncio.ensure_future(turns_read(c)) for id_, c in channels.items()}
        await settle(2000)
        await replay.end()
        for session_id, turns in reading.items():
            assert await turns == expected[session_id]
    said = [message for messages in messages_of(rows).values() for message in messages]
    by_event = {"external_tool.requested", "permission.requested"}
    asked = [m for m in said if m.get("type") in by_event or "method" in m]
    answers = [params for _, params in recorder.answered if "result" in params]
    assert len(answers) == len(asked) > 0
