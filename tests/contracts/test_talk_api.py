"""Every daemon keeps the same promises about messages, whether its mailboxes outlive it or not.

There is one agent, that says of itself what it is doing and fetches its messages by itself, as
anybody's own agent would: a script that calls `bullpen`. What it runs speaks for it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bullpen.api import methods, talk
from bullpen.api.errors import reason_of
from bullpen.connection import Connection, RemoteError, SocketTransport, TypedRequest
from bullpen.model.deliveries import ReceiptState
from bullpen.model.messages import MAX_MESSAGE_BYTES, Message, MessageType
from bullpen.model.states import Activity
from bullpen.model.tasks import TaskState
from bullpen.testing.daemon import FakeDaemon
from bullpen.testing.tmux import eventually
from tests.cli.commands import PROGRAM
from tests.daemon.harness import running_daemon

SECONDS = 30.0  # for what is done at once on a machine with nothing else to do

Daemon = Callable[[str], AbstractAsyncContextManager[object]]
S = ReceiptState


@asynccontextmanager
async def real_daemon(socket_path: str) -> AsyncIterator[None]:
    async with running_daemon() as (peer, _):
        assert str(peer.path) == socket_path
        yield


DAEMONS: dict[str, Daemon] = {"fake": FakeDaemon, "real": real_daemon}


@pytest.fixture(params=DAEMONS)
async def socket_path(request: pytest.FixtureRequest, home: Path) -> AsyncIterator[str]:
    path = str(home / "run/bullpen/bullpend.sock")
    async with DAEMONS[request.param](path):
        await report(path, Activity.IDLE)
        yield path


async def ask(socket_path: str, request: TypedRequest[Any]) -> Any:
    async with Connection.builder().connect(SocketTransport.unix(socket_path)) as connection:
        return await connection.request(request, timeout=SECONDS)


async def refusal(socket_path: str, request: TypedRequest[Any]) -> str:
    with pytest.raises(RemoteError) as caught:
        await ask(socket_path, request)
    return reason_of(caught.value)


async def report(socket_path: str, activity: Activity, name: str = "mine") -> None:
    await ask(socket_path, methods.Report(name=name, activity=activity))

    async def is_known() -> bool:
        agents = await ask(socket_path, methods.ListAgents())
        return (name in [each.name for each in agents]) is (activity is not Activity.EXITED)

    await eventually(is_known)


async def send(socket_path: str, content: str = "hello", **facts: Any) -> Message:
    sent = await ask(socket_path, talk.SendMessage(**{"to": "mine", "content": content, **facts}))
    message: Message = sent.message
    return message


async def wait(socket_path: str, message: Message, until: str, seconds: float = SECONDS) -> Any:
    request = talk.WaitMessage(message_id=message.id, until=until, timeout_seconds=seconds)
    return await ask(socket_path, request)


@asynccontextmanager
async def script(*lines: str) -> AsyncIterator[None]:
    """Run an agent of one's own, which is the process that it reports, until it has done these."""
    program = "\n".join(['"$0" report mine idle --pid $$ >/dev/null', *lines])
    process = await asyncio.create_subprocess_exec("sh", "-ec", program, PROGRAM)
    try:
        yield
        async with asyncio.timeout(SECONDS):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


# Sending


async def test_who_is_there_can_be_written_to(socket_path: str) -> None:
    await send(socket_path)
    [contact] = await ask(socket_path, talk.ListContacts())
    assert (contact.name, contact.status, contact.waiting) == ("mine", "IDLE", 1)
    assert (contact.is_present, contact.is_wrapped, contact.working_on) == (True, False, None)


@pytest.mark.requirement("O-15", "O-20")
async def test_a_message_is_kept_with_its_place_and_what_it_waits_for(socket_path: str) -> None:
    first, second = await send(socket_path, "one"), await send(socket_path, "two")
    assert (second.from_agent, second.to_agent, second.type) == ("user", "mine", "task_request")

    async def held() -> Any:
        trace = await ask(socket_path, talk.TraceMessage(second.id))
        return trace if trace.holding.get("mine") else None

    await eventually(held)
    trace = await held()
    assert trace.positions == {"mine": 2}
    assert [each.state for each in trace.receipts] == [S.ACCEPTED, S.QUEUED]
    assert [each.state for each in trace.deliveries] == [S.QUEUED]
    assert trace.thread == (second,)
    assert first.id != second.id


async def test_the_same_key_is_the_same_message(socket_path: str) -> None:
    request = talk.SendMessage(to="mine", content="once", idempotency_key="k")
    first, again = await ask(socket_path, request), await ask(socket_path, request)
    assert (first.is_new, again.is_new) == (True, False)
    assert again.message.id == first.message.id
    other = talk.SendMessage(to="mine", content="something else", idempotency_key="k")
    assert await refusal(socket_path, other) == "idempotency_conflict"


@pytest.mark.requirement("O-101", "O-110")
@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"to": "ghost"}, "agent_not_found"),
        ({"to": "#nothing"}, "nobody_listens"),
        ({"content": "x" * MAX_MESSAGE_BYTES}, "message_too_large"),
        ({"thinking": "x" * 102_401}, "thinking_too_large"),
        ({"metadata": {"priority": "soon"}}, "invalid_message"),
        ({"metadata": {"ttl": -1}}, "invalid_message"),
        ({"secret": "made up"}, "identity_unknown"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_what_cannot_be_sent_is_refused_by_its_reason(
    facts: dict[str, Any], reason: str, socket_path: str
) -> None:
    request = talk.SendMessage(**{"to": "mine", "content": "hello", **facts})
    assert await refusal(socket_path, request) == reason
    assert await ask(socket_path, talk.ListTasks()) == ()


async def test_without_a_secret_one_is_the_user(socket_path: str) -> None:
    assert await ask(socket_path, talk.WhoAmI()) == talk.Identify("user", "human")
    assert await refusal(socket_path, talk.WhoAmI("made up")) == "identity_unknown"


# Reading and answering


@pytest.mark.requirement("O-28")
async def test_what_an_agent_runs_reads_and_answers_as_that_agent(
    socket_path: str, home: Path
) -> None:
    taken = home / "taken"
    message = await send(socket_path, "what is 6 * 7?")
    async with script(
        f'"$0" inbox --take > "{taken}"',
        '"$0" reply --progress "let me see" >/dev/null',
        '"$0" reply "42" >/dev/null',
    ):
        seen = await wait(socket_path, message, "seen")
        answered = await wait(socket_path, message, "answered")
    assert (seen.outcome, answered.outcome, answered.agent_id) == ("reached", "reached", "mine")
    assert (answered.reply.content, answered.reply.from_agent) == ("42", "mine")
    assert answered.reply.reply_to == message.id
    assert "what is 6 * 7?" in await asyncio.to_thread(taken.read_text)
    trace = await ask(socket_path, talk.TraceMessage(message.id))
    assert [each.state for each in trace.receipts] == [S.ACCEPTED, S.QUEUED, S.SEEN, S.ANSWERED]
    assert [each.content for each in trace.thread] == [message.content, "let me see", "42"]
    task = await ask(socket_path, talk.GetTask(message.id))
    assert (task.state, task.text, task.position) == (TaskState.COMPLETED, "42", None)


async def test_a_failure_is_told_with_its_reason(socket_path: str) -> None:
    message = await send(socket_path)
    async with script('"$0" inbox --take >/dev/null', '"$0" reply --fail "no" >/dev/null'):
        waited = await wait(socket_path, message, "answered")
    assert (waited.outcome, waited.reason, waited.reply.type) == ("ended", "no", "task_failed")
    [failed] = await ask(socket_path, talk.ListTasks(state=TaskState.FAILED))
    assert (failed.id, failed.reason) == (message.id, "no")


async def test_an_agent_asks_the_user_who_answers(socket_path: str, home: Path) -> None:
    answer = home / "answer"
    async with script(f'"$0" ask user "may I?" > "{answer}"'):
        request = talk.ReadInbox(take=True, timeout_seconds=SECONDS)
        [delivery] = (await ask(socket_path, request)).deliveries
        assert (delivery.message.from_agent, delivery.state) == ("mine", S.SEEN)
        await ask(socket_path, talk.ReplyMessage("yes", delivery.message.id))
    assert await asyncio.to_thread(answer.read_text) == "yes\n"


async def test_looking_takes_nothing(socket_path: str) -> None:
    await send(socket_path, "low", metadata={"priority": "low"})
    await send(socket_path, "high", metadata={"priority": "high"})
    for _ in range(2):
        looked = await ask(socket_path, talk.ReadInbox(agent="mine", limit=1))
        assert ([each.message.content for each in looked.deliveries], looked.waiting) == (
            ["high"],
            1,
        )
    taking = talk.ReadInbox(agent="mine", take=True)
    assert await refusal(socket_path, taking) == "not_permitted"


async def test_waiting_ends_with_its_time_and_says_what_it_waits_for(socket_path: str) -> None:
    message = await send(socket_path)

    async def is_held() -> bool:
        return bool((await ask(socket_path, talk.TraceMessage(message.id))).holding.get("mine"))

    await eventually(is_held)
    waited = await wait(socket_path, message, "seen", 0.01)
    assert (waited.outcome, waited.reply, waited.timeout_seconds) == ("timeout", None, 0.01)
    assert waited.reason
    assert await refusal(socket_path, talk.WaitMessage("m-none")) == "message_not_found"


# The end of messages


@pytest.mark.requirement("O-30", "O-120")
async def test_what_expired_is_a_dead_letter_and_can_be_sent_again(socket_path: str) -> None:
    message = await send(socket_path, metadata={"ttl": 0})
    waited = await wait(socket_path, message, "answered")
    assert (waited.outcome, [each.state for each in waited.deliveries]) == ("ended", [S.EXPIRED])
    [dead] = await ask(socket_path, talk.ListDeadLetters(recipient="mine"))
    assert dead.message.id == message.id
    [entry] = await ask(socket_path, talk.ReadCommunication())
    assert (entry.entry.to_agent, entry.entry.success) == ("mine", False)
    again = await ask(socket_path, talk.RequeueMessage(message.id))
    assert again.state is S.QUEUED
    assert await ask(socket_path, talk.ListDeadLetters(recipient="other")) == ()


async def test_a_task_can_be_ended_once(socket_path: str) -> None:
    message = await send(socket_path)
    assert await refusal(socket_path, talk.RequeueMessage(message.id)) == "impossible_receipt"
    ended = await ask(socket_path, talk.CancelTask(message.id))
    assert (ended.state, ended.receipt) == (TaskState.CANCELED, S.DEAD)
    assert await refusal(socket_path, talk.CancelTask(message.id)) == "task_over"
    assert await refusal(socket_path, talk.GetTask("m-none")) == "message_not_found"


async def test_what_is_sent_to_who_has_gone_waits_for_its_return(socket_path: str) -> None:
    await send(socket_path, "before")
    await report(socket_path, Activity.EXITED)
    message = await send(socket_path, "after")
    contacts = {each.name: each for each in await ask(socket_path, talk.ListContacts())}
    assert (contacts["mine"].is_present, contacts["mine"].waiting) == (False, 2)
    async with script('"$0" inbox --take >/dev/null'):
        assert (await wait(socket_path, message, "seen")).outcome == "reached"


# Many


async def test_a_topic_reaches_who_listens(socket_path: str) -> None:
    await report(socket_path, Activity.IDLE, "other")
    for agent in ("mine", "other"):
        await ask(socket_path, talk.SubscribeTopic("builds", agent=agent))
    assert await ask(socket_path, talk.ListTopics()) == {"builds": ("mine", "other")}
    info = talk.SendMessage(to="#builds", content="green", type=MessageType.INFO)
    sent = await ask(socket_path, info)
    assert {each.recipient for each in sent.deliveries} == {"mine", "other"}
    left = await ask(socket_path, talk.SubscribeTopic("builds", subscribe=False, agent="mine"))
    assert left == ("other",)
    everybody = await ask(socket_path, talk.SendMessage(to="*", content="hello"))
    assert {each.recipient for each in everybody.deliveries} == {"mine", "other"}
    ghost = talk.SubscribeTopic("builds", agent="ghost")
    assert await refusal(socket_path, ghost) == "agent_not_found"
