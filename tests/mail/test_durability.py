"""What mailboxes promised holds after a crash, and under many callers at once."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from bullpen.mail.errors import LeaseLost
from bullpen.mail.receipts import IN_FLIGHT, TRANSITIONS
from bullpen.mail.sqlite import SqliteMailboxes
from bullpen.model.deliveries import Evidence, ReceiptState
from bullpen.model.messages import MessageType
from bullpen.store.database import Database
from bullpen.store.errors import StoreClosed, StoreError
from bullpen.store.migrate import migrate
from tests.mail.samples import SEEN_BY_HOOK, T0, message

PROGRAM = Path(__file__).parent / "programs" / "endless_sender.py"
S = ReceiptState
ORDER = [S.QUEUED, S.INJECTED, S.SEEN, S.ANSWERED]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
async def database(path: Path) -> AsyncIterator[Database]:
    database = await open_database(path)
    yield database
    await database.aclose()


@pytest.fixture
async def mailboxes(database: Database) -> AsyncIterator[SqliteMailboxes]:
    mailboxes = SqliteMailboxes(database)
    yield mailboxes
    await mailboxes.aclose()


async def open_database(path: Path) -> Database:
    return await Database.open(path, prepare=partial(migrate, path=str(path)))


async def run_until_killed(path: Path, run: str) -> dict[str, S]:
    """Return the last promise about each message of a run that ended by SIGKILL."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, PROGRAM, path, run), env=environment, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    lines: list[bytes] = []
    try:
        async with asyncio.timeout(30):
            lines += [await process.stdout.readline() for _ in range(150)]
    finally:
        process.kill()
        rest = await process.stdout.read()
        await process.wait()
    lines += [line for line in rest.splitlines(keepends=True) if line.endswith(b"\n")]
    promises = (line.decode().split() for line in lines)
    return {message_id: S(state) for message_id, state in promises}


@pytest.mark.requirement("mail:durable")
async def test_what_was_accepted_survives_a_kill(path: Path) -> None:
    promised: dict[str, S] = {}
    for run in ("first", "second"):
        promised |= await run_until_killed(path, run)
        database = await open_database(path)
        mailboxes = SqliteMailboxes(database)
        for message_id, state in promised.items():
            [delivery] = await mailboxes.deliveries(message_id)
            steps = [each.state for each in await mailboxes.receipts(message_id)]
            assert steps[-1] is delivery.state, "the receipt tells where the delivery is"
            assert ORDER.index(delivery.state) >= ORDER.index(state), "nothing promised is lost"
            assert steps.count(S.ANSWERED) <= 1, "nothing is answered twice"
            assert all(after in TRANSITIONS[before] for before, after in pairwise(steps))
        recovered = await mailboxes.recover()
        assert {each.state for each in recovered.in_flight} <= {*IN_FLIGHT}
        await mailboxes.aclose()
        await database.aclose()
    assert len(promised) >= 16


async def test_of_many_who_lease_at_once_each_delivery_goes_to_one(
    mailboxes: SqliteMailboxes,
) -> None:
    sent = [message(number) for number in range(100)]
    await asyncio.gather(*(mailboxes.append(each, now=T0) for each in sent))
    leased = await asyncio.gather(*(mailboxes.lease("coder", now=T0) for _ in range(120)))
    ids = [each.message.id for some in leased for each in some]
    assert sorted(ids) == sorted(each.id for each in sent)


async def test_one_refusal_does_not_disturb_who_writes_at_the_same_time(
    mailboxes: SqliteMailboxes,
) -> None:
    await mailboxes.append(message(0), now=T0)
    [stale] = await mailboxes.lease("coder", now=T0, seconds=0)
    [held] = await mailboxes.lease("coder", now=T0)
    results = await asyncio.gather(
        mailboxes.append(message(1), now=T0),
        mailboxes.acknowledge(stale, now=T0, evidence=SEEN_BY_HOOK),
        mailboxes.acknowledge(held, now=T0, evidence=SEEN_BY_HOOK),
        mailboxes.append(message(2), now=T0),
        return_exceptions=True,
    )
    assert [isinstance(each, LeaseLost) for each in results] == [False, True, False, False]
    steps = [each.state for each in await mailboxes.receipts("m0")]
    assert steps == [S.ACCEPTED, S.QUEUED, S.SEEN]
    assert len(await mailboxes.waiting("coder")) == 2


async def test_a_write_that_fails_changes_nothing(
    mailboxes: SqliteMailboxes, database: Database
) -> None:
    await mailboxes.append(message(1, type=MessageType.TASK_REQUEST), now=T0)
    trigger = (
        "CREATE TRIGGER no_more BEFORE UPDATE ON delivery_v1"
        " BEGIN SELECT RAISE(ABORT, 'no more'); END"
    )
    await database.write(lambda connection: connection.execute(trigger))
    reply = message(2, sender="coder", to="boss", type=MessageType.TASK_COMPLETE, reply_to="m1")
    with pytest.raises(StoreError, match="no more"):
        await mailboxes.append(reply, now=T0)
    assert await mailboxes.waiting("boss") == ()
    assert len(await mailboxes.receipts("m1")) == 2


async def test_what_was_asked_is_written_before_it_is_closed(database: Database) -> None:
    mailboxes = SqliteMailboxes(database)
    async with asyncio.TaskGroup() as group:
        appending = group.create_task(mailboxes.append(message(), now=T0))
        await asyncio.sleep(0)
        group.create_task(mailboxes.aclose())
    assert appending.result().is_new
    with pytest.raises(StoreClosed):
        await mailboxes.append(message(2), now=T0)
    await mailboxes.aclose()


async def test_evidence_that_is_no_text_is_kept(mailboxes: SqliteMailboxes) -> None:
    await mailboxes.append(message(), now=T0)
    evidence = Evidence("screen", "\ud800", {"path": "\udcff"})
    await mailboxes.settle("m1", "coder", S.SEEN, now=T0, evidence=evidence)
    assert (await mailboxes.receipts("m1"))[-1].evidence == evidence


async def test_a_refusal_of_what_is_no_text_is_kept(mailboxes: SqliteMailboxes) -> None:
    await mailboxes.log_refusal(message(sender="\udcff"), "no text: \udcff", now=T0)
    [(_, record)] = await mailboxes.communication()
    assert (record.from_agent, record.error, record.message_size) == (
        *("\udcff", "no text: \udcff", 0),
    )
