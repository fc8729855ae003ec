"""Many sessions on one connection: each reads its own stream, none waits for another.

    python examples/many_sessions.py

The server is a fake of Copilot CLI's, in this process; `MessageRouter.spawn(["copilot", …])` would
start the real one. The prompts tell the fake what to do: see `bullpen.testing.cli_server`.
"""

import asyncio

from bullpen.connection.errors import SessionFailed
from bullpen.connection.routed import PendingToolCall
from bullpen.connection.router import MessageRouter
from bullpen.testing.cli_server import FakeCliServer


async def ask(router: MessageRouter, prompt: str) -> str:
    """Open a session, ask once, and return the answer. Leaving the block ends the session."""
    session_id, channel = await router.create_session({"model": "fake"})
    async with channel:
        await router.request("session.send", {"sessionId": session_id, "prompt": prompt})
        outcome = await channel.read_streaming_for_tools()
        while isinstance(outcome, PendingToolCall):
            print(f"the model calls {outcome.params.tool_name}")
            await channel.answer_tool_call(outcome.call, "sunny")
            outcome = await channel.read_streaming_for_tools()
        return outcome.text


async def main() -> None:
    server = FakeCliServer("")
    async with server.connected() as transport, await MessageRouter.open(transport) as router:
        answers = await asyncio.gather(
            ask(router, "Hello from the first."),
            ask(router, 'do: tool weather {"city": "Bern"}'),
            ask(router, "do: fail out of tokens"),
            return_exceptions=True,
        )
        for answer in answers:
            print(f"failed: {answer.message}" if isinstance(answer, SessionFailed) else answer)
        stats = router.stats()
        print(f"{server.connections} connection, {stats.events} events, {stats.routes} open")


if __name__ == "__main__":
    asyncio.run(main())
