"""A chain of proxies between a client and an agent, in this process or between real ones.

    python examples/conductor.py
    python examples/conductor.py --agent 'stdio:python examples/echo_agent.py'
    python examples/conductor.py --agent 'stdio:python examples/echo_agent.py' --client stdio:

The first runs client, proxies and agent here, with no byte of JSON between them. The second starts
the agent as a program. The third is a conductor proper: somebody else's client starts it as if it
were the agent. What is done to the messages is the same in all three.
"""

import argparse
import asyncio
import sys
from typing import Any

from bullpen.connection import (
    ACP,
    Connection,
    Context,
    Message,
    Notification,
    Request,
    Response,
    Transport,
    channel_pair,
    listen,
    open_transport,
)
from bullpen.connection.proxy import Direction, conduct
from bullpen.errors import BullpenError
from bullpen.jsonrpc.wire import decode_value

HERE = "inproc:echo"


def redact(message: Message, direction: Direction) -> Message:
    """Keep a secret from the agent: rewrite the prompts on their way down."""
    if isinstance(message, Request) and message.method == "prompt" and direction is Direction.DOWN:
        params: dict[str, Any] = decode_value(message.params)
        text = str(params["text"]).replace("hunter2", "[secret]")
        return Request(message.id, message.method, {**params, "text": text})
    return message


def refuse_shutdown(message: Message, _: Direction) -> Message:
    """Answer in the agent's place: it never sees the request."""
    if isinstance(message, Request) and message.method == "shutdown":
        return Response(message.id, {"refused": True})
    return message


def mute(message: Message, direction: Direction) -> Message | None:
    """Swallow what the client should not hear."""
    if isinstance(message, Notification) and direction is Direction.UP:
        return None if decode_value(message.params)["word"] == "um" else message
    return message


PROXIES = [redact, refuse_shutdown, mute]  # from the client's side to the agent's


async def echo(params: dict[str, str], context: Context) -> dict[str, str]:
    for word in params["text"].split():
        await context.connection.notify("update", {"word": word})
    return {"stopReason": "end_turn"}


async def ask(transport: Transport) -> None:
    """Be the client."""
    client = (
        Connection.builder()
        .name("client")
        .dialect(ACP)
        .on_notification("update", lambda params, _: print("update:", params["word"]))
    )
    async with client.connect(transport) as connection:
        prompt = {"text": "um my password is hunter2"}
        print("prompt:", await connection.request("prompt", prompt))
        print("shutdown:", await connection.request("shutdown"))


async def main(agent_address: str, client_address: str | None) -> None:
    agent = Connection.builder().name("agent").dialect(ACP).on_request("prompt", echo)
    async with listen(HERE, agent):
        far = open_transport(agent_address)
        if client_address is not None:
            await conduct(open_transport(client_address), PROXIES, far)
            return
        near, client = channel_pair()
        chain, asking = conduct(client, PROXIES, far), ask(near)
        for outcome in await asyncio.gather(chain, asking, return_exceptions=True):
            if outcome is not None:
                raise outcome  # the chain's own failure first: it knows why


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--agent", default=HERE, help="its address (one in this process)")
    parser.add_argument("--client", help="whom to serve (a client in this process)")
    options = parser.parse_args()
    try:
        asyncio.run(main(options.agent, options.client))
    except BullpenError as error:
        sys.exit(f"the chain broke: {error}")
