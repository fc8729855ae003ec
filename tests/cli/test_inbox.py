"""Agents and people read their mailboxes and answer; who they are is told by a secret alone."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from bullpen.api.talk import InboxReply, ReadInbox
from bullpen.cli.inbox import listing
from bullpen.model.deliveries import Delivery, ReceiptState
from bullpen.model.messages import Message, MessageMetadata, MessageType, Priority
from bullpen.model.states import Activity
from bullpen.testing.daemon import FakeDaemon, agent_state
from bullpen.testing.tmux import eventually
from tests.cli.commands import PROGRAM, SECONDS, execute, invoke, show

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


@pytest.fixture
def codex(daemon: FakeDaemon) -> FakeDaemon:
    daemon.set_agent(agent_state("codex", Activity.IDLE))
    return daemon


def message(content: str, **facts: object) -> Message:
    return Message(
        id="m-1",
        from_agent="codex",
        to_agent="user",
        type=MessageType.TASK_REQUEST,
        content=content,
        timestamp=NOW,
        **facts,  # type: ignore[arg-type]
    )


def delivery(content: str, **facts: object) -> Delivery:
    return Delivery(
        number=1,
        message=message(content, **facts),
        recipient="user",
        state=ReceiptState.QUEUED,
        accepted_at=NOW,
        available_at=NOW,
    )


# The inbox


def test_a_message_is_shown_with_what_it_is_above_what_it_says() -> None:
    shown = delivery(
        "first\n\n\x1b[2Jlast",
        metadata=MessageMetadata(priority=Priority.URGENT),
        reply_to="m-0",
    )
    assert listing(InboxReply((shown,), 3), NOW + timedelta(minutes=5)) == [
        "\x1b[1mm-1 from codex, task_request, urgent, 5m ago, answers m-0\x1b[0m",
        "  first",
        "",
        "  \N{REPLACEMENT CHARACTER}[2Jlast",
        "3 more wait",
    ]


async def test_looking_changes_nothing_and_taking_makes_it_seen(codex: FakeDaemon) -> None:
    secret = await codex.talk.secret_of("codex")
    await show("send", "codex", "one")
    await show("send", "codex", "two", "--priority", "high")
    for _ in range(2):
        looked = await execute("inbox", BULLPEN_SECRET=secret)
        assert [line for line in looked.lines if line.startswith(" ")] == ["  two", "  one"]
    limited = await execute("inbox", "--limit", "1", BULLPEN_SECRET=secret)
    assert limited.lines[-1] == "1 more wait"
    taken = await execute("inbox", "--take", "--json", BULLPEN_SECRET=secret)
    assert [each["state"] for each in taken.json["deliveries"]] == ["seen", "seen"]
    assert taken.json["deliveries"][0]["message"]["content"] == "two"
    assert await execute("inbox", BULLPEN_SECRET=secret) == (0, "no messages\n", "")
    assert "● seen m-1 by codex" in (await show("trace", "m-1")).out


async def test_a_person_may_look_into_any_mailbox_and_an_agent_may_not(codex: FakeDaemon) -> None:
    codex.set_agent(agent_state("claude-1", Activity.IDLE))
    await show("send", "codex", "for you only")
    assert "  for you only" in (await show("inbox", "--agent", "codex")).lines
    secret = await codex.talk.secret_of("claude-1")
    done = await execute("inbox", "--agent", "codex", BULLPEN_SECRET=secret)
    assert (done.code, done.out) == (5, "")
    assert (await invoke("inbox", "--agent", "codex", "--take")).code == 2
    assert (await invoke("inbox", "--agent", "codex", "--follow")).code == 2


async def test_what_comes_is_shown_as_it_comes(codex: FakeDaemon) -> None:
    secret = await codex.talk.secret_of("codex")
    following = await asyncio.create_subprocess_exec(
        *(PROGRAM, "inbox", "--follow", "--json"), stdout=asyncio.subprocess.PIPE
    )
    assert following.stdout is not None
    try:
        await eventually(lambda: any(isinstance(each, ReadInbox) for each in codex.requests))
        async with asyncio.timeout(SECONDS):
            for text in ("one", "two"):
                await execute("send", "user", text, BULLPEN_SECRET=secret)
                line = await following.stdout.readline()
                assert f'"content":"{text}"'.encode() in line
                assert b'"schema":1' in line
    finally:
        following.terminate()
        await following.wait()


# Answering


@pytest.mark.requirement("O-28")
async def test_an_answer_goes_to_who_asked_and_names_what_it_answers(codex: FakeDaemon) -> None:
    secret = await codex.talk.secret_of("codex")
    await show("send", "codex", "why?")
    assert (await execute("inbox", "--take", BULLPEN_SECRET=secret)).code == 0
    done = await execute("reply", "because", BULLPEN_SECRET=secret)
    assert (done.code, done.err) == (0, "")
    assert done.out == "○ accepted m-2 for user, in answer to m-1\n"
    inbox = await show("inbox", "--json")
    answer = inbox.json["deliveries"][0]["message"]
    assert (answer["from"], answer["reply_to"], answer["type"]) == (
        "codex",
        "m-1",
        "task_response",
    )
    task = (await show("task", "m-1", "--json")).json["task"]
    assert (task["state"], task["text"]) == ("completed", "because")


async def test_a_task_can_fail_with_its_reason_and_tell_how_it_goes(codex: FakeDaemon) -> None:
    secret = await codex.talk.secret_of("codex")
    await show("send", "codex", "do it")
    assert (await execute("inbox", "--take", BULLPEN_SECRET=secret)).code == 0
    half = await execute("reply", "half of it", "--progress", "--json", BULLPEN_SECRET=secret)
    assert half.json["message"]["type"] == "progress"
    assert (await show("task", "m-1", "--json")).json["task"]["state"] == "working"
    failed = ["reply", "no such file", "--fail", "--to", "m-1"]
    assert (await execute(*failed, BULLPEN_SECRET=secret)).code == 0
    task = (await show("task", "m-1", "--json")).json["task"]
    assert (task["state"], task["reason"], task["receipt"]) == ("failed", "no such file", "failed")


async def test_the_user_answers_what_agents_ask(codex: FakeDaemon) -> None:
    secret = await codex.talk.secret_of("codex")
    asking = asyncio.create_task(execute("ask", "user", "may I?", BULLPEN_SECRET=secret))
    await eventually(lambda: any(each.METHOD == "mail.wait" for each in codex.requests))
    await show("inbox", "--take")
    await show("reply", "yes")
    assert await asking == (0, "yes\n", "")


async def test_there_must_be_something_to_answer(codex: FakeDaemon) -> None:
    done = await invoke("reply", "hello")
    assert (done.code, done.out) == (4, "")
    await show("send", "codex", "why?")
    assert (await invoke("reply", "hello", "--to", "m-9")).code == 4
    not_ours = await invoke("reply", "hello", "--to", "m-1")
    assert (not_ours.code, not_ours.out) == (5, "")
    assert (await invoke("reply", "x", "--fail", "--progress")).code == 2
    assert (await invoke("reply")).code == 2


async def test_one_can_ask_who_one_is(codex: FakeDaemon) -> None:
    assert await show("whoami") == (0, "user (human)\n", "")
    secret = await codex.talk.secret_of("codex")
    assert (await execute("whoami", BULLPEN_SECRET=secret)).out == "codex (peer)\n"
    told = await execute("whoami", "--json", BULLPEN_SECRET=secret)
    assert told.json == {"schema": 1, "name": "codex", "authority": "peer"}
    assert (await execute("whoami", BULLPEN_SECRET="made up")).code == 5
