"""A stdio agent: whoever starts it speaks JSON-RPC with it, one message per line.

    echo '{"jsonrpc":"2.0","id":1,"method":"prompt","params":{"text":"hello there"}}' |
        python examples/echo_agent.py

It streams a prompt back word by word and stops when the peer cancels or leaves. While it serves,
a stray `print` goes to stderr and never onto the wire.
"""

import asyncio
import sys

from bullpen.connection import (
    ACP,
    Connection,
    ConnectionClosed,
    Context,
    StdioTransport,
    TypedNotification,
    TypedRequest,
)


class Prompt(TypedRequest[dict[str, str]]):
    METHOD = "prompt"
    text: str


class Update(TypedNotification):
    METHOD = "update"
    word: str


async def prompt(asked: Prompt, context: Context) -> dict[str, str]:
    print(f"was asked {asked.text!r}")
    for word in asked.text.split():
        await context.connection.notify(Update(word=word))
    return {"stopReason": "end_turn"}


agent = Connection.builder().name("echo-agent").dialect(ACP).on_request(Prompt, prompt)


def main() -> int:
    try:
        asyncio.run(agent.serve_with(StdioTransport()))
    except ConnectionClosed as closed:
        print(f"the peer is gone: {closed.cause}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
