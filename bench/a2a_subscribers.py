"""Two hundred who follow one task: each is to hear all of it, once, and in its order.

The agent is a process of its own that counts to fifty, each number a message, and then answers.
Half of those who follow do so by A2A's `SubscribeToTask`, which tells every number; the others by
the seed's stream of events, which tells each status and the end. All of them are there before the
agent is told to begin.
"""

import asyncio
import json
from collections import Counter
from typing import Any

from bench.a2a import a2a_port
from bench.echo_agent import COUNT, echo_agent
from bench.figure import Figure
from bench.talk import limited, loaded, talking_daemon
from bench.web import Web, message, post, request

__all__ = ["run"]

ROW = "a2a-subscribers"
SUBSCRIBERS = 200
NUMBERS = 50
AGENT = "echo"
BASE = f"/agents/{AGENT}"
SECONDS = 120.0


async def run(quick: bool) -> list[Figure]:
    subscribers, numbers = (10, 5) if quick else (SUBSCRIBERS, NUMBERS)
    async with talking_daemon(beside=None) as (_, home, _), echo_agent(home, AGENT):
        port = await a2a_port(home)
        task = await send(port, f"{COUNT}{numbers}")
        webs = [await Web.connect(port) for _ in range(subscribers)]
        for number, web in enumerate(webs):
            await web.begin(newest(task) if number % 2 else seeds(task))
        async with asyncio.timeout(SECONDS):
            await send(port, "begin")
            heard = await asyncio.gather(*map(all_of, webs))
        for web in webs:
            web.close()
    told = [counted(each) for each in heard[1::2]]
    wanted = [f"number {number}" for number in range(numbers)]
    lost = sum(1 for each in told for number in wanted if number not in each)
    twice = sum(times - 1 for each in told for times in Counter(each).values())
    whole = sum(each == wanted for each in told) + sum(map(has_ended, heard[::2]))
    return [
        loaded(ROW),
        Figure(
            row=ROW,
            what="of those who follow a task, have heard all of it",
            ours=whole,
            theirs=subscribers,
            unit="",
            against="who follow",
            at_least=1.0,
        ),
        limited(ROW, "events that somebody did not hear, and one", 1 + lost, 1, ""),
        limited(ROW, "events that somebody heard twice, and one", 1 + twice, 1, ""),
    ]


async def send(port: int, text: str) -> str:
    """Send something to the agent; return the task."""
    web = await Web.connect(port)
    line = message(f"{BASE}/a2a/jsonrpc", f"bench-{text}", text, is_awaited=False)
    sent = json.loads(await web.exchange(line))
    web.close()
    return str(sent["result"]["task"]["id"])


def newest(task: str) -> bytes:
    """Return how a task is followed in A2A 1.0."""
    body = {"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": task}}
    return post(f"{BASE}/a2a/jsonrpc", body)


def seeds(task: str) -> bytes:
    """Return how it is followed in the seed's dialect."""
    return request("GET", f"{BASE}/tasks/{task}/subscribe")


async def all_of(web: Web) -> list[dict[str, Any]]:
    """Return all that is told, to the end."""
    heard = []
    while (told := await web.event()) is not None:
        heard.append(told)
    return heard


def counted(heard: list[dict[str, Any]]) -> list[str]:
    """Return the numbers that one has heard, in that order."""
    found = []
    for told in heard:
        status = told["result"].get("statusUpdate", {}).get("status", {})
        texts = [part.get("text", "") for part in status.get("message", {}).get("parts", ())]
        found += [text for text in texts if text.startswith("number ")]
    return found


def has_ended(heard: list[dict[str, Any]]) -> bool:
    """Whether one has heard each status once, and the end last."""
    kinds = [(told["type"], told.get("status")) for told in heard]
    return kinds[-1] == ("done", "completed") and len(kinds) == len(set(kinds))
