"""Messages through two mailboxes on disk: sent and taken, answered, and that taken too.

Thirty-five agents ask thirty-five others, each one message at a time, first at a steady rate and
then as fast as it goes. A message counts when who it was for has taken it, so that an exchange is
two. *There* is the time of a message, from before it is sent until that it was taken is on disk;
*there and back* that of a whole exchange. The last lines are the same through the daemon's socket,
where each of the steps is a request of another process.
"""

import asyncio
import itertools
import tempfile
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from bench.figure import Figure
from bench.talk import Callers, limited, loaded, percentiles, talking_daemon
from bullpen.mail.mailboxes import Mailboxes
from bullpen.mail.sqlite import SqliteMailboxes
from bullpen.model.deliveries import Evidence
from bullpen.model.messages import Message, MessageType
from bullpen.store.store import Store

__all__ = ["run"]

ROW = "mail-end-to-end"
PAIRS = 35
TEXT = "please look at the parser, " * 10
RATE = 3000.0  # messages a second, of which an exchange is two
EVIDENCE = Evidence("bench", "fetched it from its mailbox")

Exchange = Callable[[int], Awaitable[float]]
"""One exchange of a pair, by its number; returns when the first of its messages was there."""


class Took(NamedTuple):
    """How long the first message of each exchange took, and the exchange."""

    there: list[float]
    and_back: list[float]


async def run(quick: bool) -> list[Figure]:
    steady, flat_out, through = (2, 2, 1) if quick else (100, 200, 40)
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        store = await Store.open(Path(directory) / "state.db", now=now())
        mailboxes = SqliteMailboxes(store.database)
        try:
            one = exchange_over(mailboxes)
            paced, _ = await measure(one, steady, rate=RATE / 2)
            before = time.process_time()
            most, seconds = await measure(one, flat_out)
            used = time.process_time() - before
        finally:
            await mailboxes.aclose()
            await store.aclose()
    async with talking_daemon() as (_, _home, callers):
        asked = await exchange_through(callers)
        served, served_seconds = await measure(asked, through)
    messages = len(most.there) + len(most.and_back)
    return [
        loaded(ROW),
        *percentiles(ROW, "there, 3,000 messages a second", paced.there, p50=5, p99=50),
        *percentiles(
            ROW, "there and back, 3,000 messages a second", paced.and_back, p50=10, p99=100
        ),
        limited(
            ROW, "messages, a second of processor time", messages / used, RATE, "/s", at_least=1
        ),
        limited(ROW, "messages, as fast as it goes", messages / seconds, RATE, "/s", at_least=1),
        *percentiles(ROW, "there, as fast as it goes", most.there, p50=5, p99=50),
        limited(
            ROW,
            "messages, through the socket",
            2 * len(served.there) / served_seconds,
            RATE,
            "/s",
            counts=False,
        ),
        *percentiles(ROW, "there, through the socket", served.there, p99=50),
    ]


async def measure(
    exchange: Exchange, each: int, *, rate: float | None = None
) -> tuple[Took, float]:
    """Have every pair make so many exchanges; return what they took, and all of it.

    At a rate, an exchange that is late because of those before it began when it should have.
    """
    took = Took([], [])
    began = time.perf_counter()

    async def talk(pair: int) -> None:
        for number in range(each):
            due = time.perf_counter()
            if rate is not None:
                due = began + (number * PAIRS + pair) / rate
                await asyncio.sleep(max(due - time.perf_counter(), 0))
            took.there.append(await exchange(pair) - due)
            took.and_back.append(time.perf_counter() - due)

    await asyncio.gather(*map(talk, range(PAIRS)))
    return took, time.perf_counter() - began


def exchange_over(mailboxes: Mailboxes) -> Exchange:
    """Return how an exchange is made by who has the mailboxes."""
    ids = itertools.count()

    async def send(sender: str, to: str, kind: MessageType, reply_to: str | None) -> Message:
        sent = Message(
            id=f"m-{next(ids)}",
            from_agent=sender,
            to_agent=to,
            type=kind,
            content=TEXT,
            timestamp=now(),
            reply_to=reply_to,
        )
        await mailboxes.append(sent, now=now())
        [taken] = await mailboxes.take(to, now=now(), evidence=EVIDENCE)
        return taken.message

    async def exchange(pair: int) -> float:
        asks, answers = f"a{pair}", f"b{pair}"
        asked = await send(asks, answers, MessageType.TASK_REQUEST, None)
        there = time.perf_counter()
        await send(answers, asks, MessageType.TASK_RESPONSE, asked.id)
        return there

    return exchange


async def exchange_through(callers: Callers) -> Exchange:
    """Return how an exchange is made by agents that fetch their messages from a daemon."""
    asking = [await callers.agent(f"a{pair}") for pair in range(PAIRS)]
    answering = [await callers.agent(f"b{pair}") for pair in range(PAIRS)]

    async def exchange(pair: int) -> float:
        asks, answers = asking[pair], answering[pair]
        await asks.ask("mail.send", to=answers.name, content=TEXT)
        [asked] = (await answers.ask("mail.inbox", take=True))["deliveries"]
        there = time.perf_counter()
        await answers.ask("mail.reply", to_message=asked["message"]["id"], content=TEXT)
        [_] = (await asks.ask("mail.inbox", take=True))["deliveries"]
        return there

    return exchange


def now() -> datetime:
    """Return the time as messages have it."""
    return datetime.now(UTC)
