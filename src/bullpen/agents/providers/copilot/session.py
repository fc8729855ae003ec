"""One conversation with Copilot: a turn at a time, with tools of ours when they are wanted."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from bullpen.connection.channel import SessionChannel
from bullpen.connection.closable import Closable
from bullpen.connection.errors import RequestTimeout, SessionFailed
from bullpen.connection.routed import Cancelled, Idle, ToolCall
from bullpen.connection.router import MessageRouter

__all__ = ["CopilotSession", "Tool"]

MAX_TOOL_CALLS = 50  # in one turn; a model that calls more is going round in circles
SEND_SECONDS = 30.0  # the server takes a prompt within milliseconds, whatever it makes of it


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool the model may call; `run` gets the arguments and returns the result."""

    name: str
    description: str
    parameters: dict[str, Any]
    run: Callable[[Any], "Awaitable[Any] | Any"]

    def declaration(self) -> dict[str, Any]:
        """Return what the server is told of the tool."""
        return {
            "name": self.name,
            "description": self.description,
            "parameters": self.parameters,
            "skipPermission": True,  # it is ours: whoever gave it to the session allowed it
        }


class CopilotSession(Closable):
    """A session and, once tools were asked for, a second one that has them.

    A session works on one turn at a time; a second caller waits for the first turn to end.
    """

    def __init__(
        self,
        router: MessageRouter,
        channel: SessionChannel,
        params: dict[str, Any],
        options: dict[str, Any],
    ) -> None:
        self._router = router
        self._channel = channel
        self._params = params
        self._options = options
        self._turn = asyncio.Lock()
        self._tools: _ToolSession | None = None

    @property
    def session_id(self) -> str:
        return self._channel.session_id

    async def ask(self, prompt: str, on_chunk: Callable[[str], object] | None = None) -> str:
        """Send a prompt and return the whole answer, having called with each piece of it.

        Cancelling the caller ends the turn at the server; the next one begins clean.
        """
        async with self._turn:
            await self._send(self._channel, prompt)
            return await self._channel.read_streaming(on_chunk)

    async def ask_until(
        self,
        prompt: str,
        token: asyncio.Event,
        on_chunk: Callable[[str], object] | None = None,
    ) -> Idle | Cancelled:
        """As `ask`, but give the turn up when the token is set."""
        async with self._turn:
            await self._send(self._channel, prompt)
            return await self._channel.read_streaming_with_cancellation(on_chunk, token)

    async def ask_with_tools(
        self,
        prompt: str,
        tools: Sequence[Tool],
        on_chunk: Callable[[str], object] | None = None,
    ) -> str:
        """Send a prompt the model may use tools for, and return the whole answer.

        Raises:
            SessionFailed: the model called tools without end; the next turn begins clean.
        """
        async with self._turn:
            session = await self._tool_session(tools)
            channel = session.channel
            await self._send(channel, prompt)
            for _ in range(MAX_TOOL_CALLS):
                outcome = await channel.read_streaming_for_tools(on_chunk)
                if isinstance(outcome, Idle):
                    return outcome.text
                await session.run(outcome.call)
            outcome = await channel.read_streaming_for_tools(on_chunk)
            if isinstance(outcome, Idle):
                return outcome.text
            reason = f"more than {MAX_TOOL_CALLS} tool calls"
            await channel.answer_tool_call(outcome.call, error=reason)
            await channel.abort()
            raise SessionFailed(channel.session_id, reason)

    async def aclose(self) -> None:
        """End the session, at the server too."""
        if self._tools is not None:
            await self._tools.channel.aclose()
        await self._channel.aclose()

    async def _send(self, channel: SessionChannel, prompt: str) -> None:
        await channel.settle()
        params = {"sessionId": channel.session_id, "prompt": prompt}
        try:
            await self._router.request("session.send", params, timeout=SEND_SECONDS)
        except (asyncio.CancelledError, RequestTimeout):
            channel.leave_turn()  # for it may have begun
            raise

    async def _tool_session(self, tools: Sequence[Tool]) -> "_ToolSession":
        if self._tools is not None and self._tools.offers(tools):
            return self._tools
        if self._tools is not None:
            await self._tools.channel.aclose()
        params = {key: value for key, value in self._params.items() if key != "sessionId"}
        params["tools"] = [tool.declaration() for tool in tools]
        _, channel = await self._router.create_session(params, **self._options)
        self._tools = _ToolSession(channel, tools)
        return self._tools


class _ToolSession:
    """The second session of a conversation, which has tools."""

    def __init__(self, channel: SessionChannel, tools: Sequence[Tool]) -> None:
        self.channel = channel
        self._tools = {tool.name: tool for tool in tools}

    def offers(self, tools: Sequence[Tool]) -> bool:
        return list(self._tools.values()) == list(tools)

    async def run(self, call: ToolCall) -> None:
        """Run a tool and give the model its result; a tool that fails says so to the model."""
        tool = self._tools.get(call.params.tool_name)
        if tool is None:
            await self.channel.answer_tool_call(call, error=f"no tool {call.params.tool_name!r}")
            return
        try:
            try:
                result = tool.run(call.params.arguments)
                if inspect.isawaitable(result):
                    result = await result
            except Exception as error:  # noqa: BLE001 - the model is told, and may do better
                await self.channel.answer_tool_call(call, error=f"{type(error).__name__}: {error}")
            else:
                await self.channel.answer_tool_call(call, result)
        except BaseException:  # nobody waits for the turn any more
            self.channel.leave_turn()
            raise
