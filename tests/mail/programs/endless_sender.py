"""Send, deliver and answer messages without end, and print each promise once it is made."""

import asyncio
import sys
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from bullpen.mail.sqlite import SqliteMailboxes
from bullpen.model.deliveries import Evidence, ReceiptState
from bullpen.model.messages import Message, MessageType
from bullpen.store.database import Database
from bullpen.store.migrate import migrate


def now() -> datetime:
    return datetime.now(UTC)


def say(*words: str) -> None:
    sys.stdout.write(" ".join(words) + "\n")
    sys.stdout.flush()


async def exchange(mailboxes: SqliteMailboxes, run: str, pair: int) -> None:
    sender, recipient = f"a{pair}", f"b{pair}"
    number = 0
    while True:
        number += 1
        message_id = f"{run}-{pair}-{number}"
        sent = Message(
            id=message_id,
            from_agent=sender,
            to_agent=recipient,
            type=MessageType.TASK_REQUEST,
            content="x" * 300,
            timestamp=now(),
        )
        await mailboxes.append(sent, now=now())
        say(message_id, "queued")
        deliveries = await mailboxes.lease(recipient, now=now())
        held = next(each for each in deliveries if each.message.id == message_id)
        evidence = Evidence(recipient, "a turn began")
        await mailboxes.record(held, ReceiptState.INJECTED, now=now(), evidence=evidence)
        say(message_id, "injected")
        await mailboxes.acknowledge(held, now=now(), evidence=evidence)
        say(message_id, "seen")
        reply = Message(
            id=f"{message_id}-reply",
            from_agent=recipient,
            to_agent=sender,
            type=MessageType.TASK_COMPLETE,
            content="done",
            timestamp=now(),
            reply_to=message_id,
        )
        await mailboxes.append(reply, now=now())
        say(message_id, "answered")
        for each in await mailboxes.lease(sender, now=now(), limit=10):
            await mailboxes.acknowledge(each, now=now(), evidence=evidence)


async def main(path: Path, run: str) -> None:
    database = await Database.open(path, prepare=partial(migrate, path=str(path)))
    mailboxes = SqliteMailboxes(database)
    async with asyncio.TaskGroup() as group:
        for pair in range(8):
            group.create_task(exchange(mailboxes, f"{run}", pair))


asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
