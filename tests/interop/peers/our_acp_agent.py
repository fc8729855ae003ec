"""An ACP agent on our connection. As a program it serves stdio."""

import asyncio
from typing import Any

from bullpen.connection import (
    ACP,
    Builder,
    Connection,
    Context,
    StdioTransport,
    TypedNotification,
    TypedRequest,
)


class Initialize(TypedRequest[dict[str, Any]], rename="camel"):
    METHOD = "initialize"
    protocol_version: int


class NewSession(TypedRequest[dict[str, Any]], rename="camel"):
    METHOD = "session/new"
    cwd: str


class Prompt(TypedRequest[dict[str, Any]], rename="camel"):
    METHOD = "session/prompt"
    session_id: str
    prompt: list[dict[str, Any]]


class Cancel(TypedNotification, rename="camel"):
    METHOD = "session/cancel"
    session_id: str


def acp_agent() -> Builder:
    """Describe the agent; the transport is somebody else's choice.

    It says the prompt back word by word, then asks leave for something. Told to wait, it does so
    until the turn is cancelled.
    """
    turns = _Turns()
    return (
        Connection.builder()
        .name("our-agent")
        .dialect(ACP)
        .on_request(Initialize, initialize)
        .on_request(NewSession, new_session)
        .on_request(Prompt, turns.prompt)
        .on_notification(Cancel, turns.cancel)
    )


def initialize(params: Initialize, _context: Context) -> dict[str, Any]:
    return {
        "protocolVersion": params.protocol_version,
        "agentCapabilities": {"loadSession": False},
        "agentInfo": {"name": "our-agent", "version": "1.0"},
        "authMethods": [],
    }


def new_session(_params: NewSession, _context: Context) -> dict[str, Any]:
    return {"sessionId": "session-1"}


class _Turns:
    def __init__(self) -> None:
        self._was_cancelled = asyncio.Event()

    async def prompt(self, params: Prompt, context: Context) -> dict[str, Any]:
        text = params.prompt[0]["text"]
        for word in text.split():
            await say(context, params.session_id, word)
        if text == "wait":
            await self._was_cancelled.wait()
            return {"stopReason": "cancelled"}
        answer = await context.connection.request(
            "session/request_permission",
            {
                "sessionId": params.session_id,
                "toolCall": {"toolCallId": "call-1", "title": "write a file"},
                "options": [
                    {"optionId": "yes", "name": "Allow", "kind": "allow_once"},
                    {"optionId": "no", "name": "Reject", "kind": "reject_once"},
                ],
            },
        )
        await say(context, params.session_id, answer["outcome"].get("optionId", "cancelled"))
        return {"stopReason": "end_turn"}

    def cancel(self, _params: Cancel, _context: Context) -> None:
        self._was_cancelled.set()


async def say(context: Context, session_id: str, text: str) -> None:
    update = {
        "sessionUpdate": "agent_message_chunk",
        "content": {"type": "text", "text": text},
    }
    await context.connection.notify("session/update", {"sessionId": session_id, "update": update})


if __name__ == "__main__":
    asyncio.run(acp_agent().serve_with(StdioTransport()))
