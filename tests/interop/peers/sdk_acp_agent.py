"""An ACP agent written with the official SDK, on stdio."""

import asyncio
from typing import Any

from acp import Agent, run_agent, update_agent_message_text
from acp.interfaces import Client
from acp.schema import (
    AgentCapabilities,
    AllowedOutcome,
    ClientCapabilities,
    Implementation,
    InitializeResponse,
    NewSessionResponse,
    PermissionOption,
    PromptResponse,
    TextContentBlock,
    ToolCallUpdate,
)


class SdkAgent(Agent):
    """Says the prompt back word by word, then asks leave for something.

    Told to wait, it does so until the turn is cancelled.
    """

    _client: Client

    def __init__(self) -> None:
        self._was_cancelled = asyncio.Event()

    def on_connect(self, conn: Client) -> None:
        self._client = conn

    async def initialize(
        self,
        protocol_version: int,
        client_capabilities: ClientCapabilities | None = None,
        client_info: Implementation | None = None,
        **kwargs: Any,
    ) -> InitializeResponse:
        return InitializeResponse(
            protocol_version=protocol_version,
            agent_capabilities=AgentCapabilities(),
            agent_info=Implementation(name="sdk-agent", version="1.0"),
        )

    async def new_session(
        self,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: list[Any] | None = None,
        **kwargs: Any,
    ) -> NewSessionResponse:
        return NewSessionResponse(session_id="session-1")

    async def prompt(self, session_id: str, prompt: list[Any], **kwargs: Any) -> PromptResponse:
        assert isinstance(prompt[0], TextContentBlock)
        text = prompt[0].text
        for word in text.split():
            await self._say(session_id, word)
        if text == "wait":
            await self._was_cancelled.wait()
            return PromptResponse(stop_reason="cancelled")
        answer = await self._client.request_permission(
            session_id=session_id,
            tool_call=ToolCallUpdate(tool_call_id="call-1", title="write a file"),
            options=[
                PermissionOption(option_id="yes", name="Allow", kind="allow_once"),
                PermissionOption(option_id="no", name="Reject", kind="reject_once"),
            ],
        )
        outcome = answer.outcome
        await self._say(
            session_id, outcome.option_id if isinstance(outcome, AllowedOutcome) else "cancelled"
        )
        return PromptResponse(stop_reason="end_turn")

    async def cancel(self, session_id: str, **kwargs: Any) -> None:
        self._was_cancelled.set()

    async def _say(self, session_id: str, text: str) -> None:
        await self._client.session_update(session_id, update_agent_message_text(text))


if __name__ == "__main__":
    # Not abstract: the SDK looks which of the methods of its protocol there are.
    asyncio.run(run_agent(SdkAgent()))  # type: ignore[abstract]
