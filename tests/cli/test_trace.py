"""Whatever became of a message can be looked up: steps, tasks, dead letters, topics, the log."""

import re
from datetime import UTC, datetime, timedelta

import pytest

from bullpen.api.talk import CommunicationEntry, MailTrace
from bullpen.cli.messages import listing as log_listing
from bullpen.cli.task import listing as task_listing
from bullpen.cli.task import task_lines
from bullpen.cli.trace import trace_lines
from bullpen.model.deliveries import (
    CommunicationLog,
    Delivery,
    Evidence,
    Receipt,
    ReceiptState,
)
from bullpen.model.messages import Message, MessageType
from bullpen.model.states import Activity
from bullpen.model.tasks import Task, TaskState
from bullpen.testing.daemon import FakeDaemon, agent_state
from tests.cli.commands import execute, invoke, show

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
STYLE = re.compile(r"\x1b\[[\d;]*m")


@pytest.fixture
def codex(daemon: FakeDaemon) -> FakeDaemon:
    daemon.set_agent(agent_state("codex", Activity.IDLE))
    return daemon


def message(name: str = "m-1", content: str = "review this", **facts: object) -> Message:
    given = {"from_agent": "user", "to_agent": "codex", "type": MessageType.TASK_REQUEST, **facts}
    return Message(id=name, content=content, timestamp=NOW, **given)  # type: ignore[arg-type]


def delivery(state: ReceiptState) -> Delivery:
    return Delivery(
        number=1,
        message=message(),
        recipient="codex",
        state=state,
        accepted_at=NOW,
        available_at=NOW,
    )


def plain(lines: list[str]) -> list[str]:
    return [STYLE.sub("", line) for line in lines]


# Steps


def test_every_step_is_shown_with_its_time_its_age_its_evidence_and_its_attempt() -> None:
    steps = [
        (ReceiptState.ACCEPTED, 0, 0, Evidence("mailbox", "it is kept")),
        (ReceiptState.INJECTED, 2, 1, Evidence("own", "taken", {"turn": "t-1"})),
        (ReceiptState.SEEN, 3, 1, Evidence("codex_appserver", "it •\nbegan")),
    ]
    trace = MailTrace(
        message=message(),
        deliveries=(delivery(ReceiptState.SEEN),),
        receipts=tuple(
            Receipt(
                message_id="m-1",
                recipient="codex",
                state=state,
                at=NOW + timedelta(seconds=seconds),
                evidence=evidence,
                attempt=attempt,
            )
            for state, seconds, attempt, evidence in steps
        ),
        thread=(message(), message("m-2", "done\nthere", from_agent="codex", to_agent="user")),
    )
    clock = [(NOW + timedelta(seconds=n)).astimezone().strftime("%H:%M:%S") for n in (0, 2, 3)]
    assert plain(trace_lines(trace, NOW + timedelta(seconds=10))) == [
        "m-1 from user, task_request, 10s ago",
        "  review this",
        "● seen m-1 by codex",
        f"  {clock[0]}.000  10s ago  ○ accepted             by mailbox          it is kept",
        f"  {clock[1]}.000  8s ago   → injected  attempt 1  by own              taken (turn t-1)",
        f"  {clock[2]}.000  7s ago   ● seen      attempt 1  by codex_appserver  it • began",
        "thread",
        "* m-1  user to codex, task_request: review this",
        "  m-2  codex to user, task_request: done there",
    ]


async def test_a_message_is_found_by_the_beginning_of_its_id(codex: FakeDaemon) -> None:
    codex.talk.door.lead_to("codex", lambda _: "done")
    await show("ask", "codex", "do it")
    assert "answered m-1 by codex" in (await show("trace", "m-1")).out
    assert (await invoke("trace", "m-")).code == 4  # the answer begins so, too
    assert (await invoke("trace", "m-9")).code == 4
    said = (await show("trace", "m-1", "--json")).json
    states = [each["state"] for each in said["receipts"]]
    assert states == ["accepted", "queued", "injected", "submitted", "seen", "answered"]
    assert said["receipts"][4]["evidence"] == {
        "by": "own",
        "what": "a turn began with it",
        "data": {"turn": "t-1"},
    }
    assert [each["id"] for each in said["thread"]] == ["m-1", "m-2"]
    assert said["message"]["metadata"] == {"priority": "normal"}


async def test_what_it_waits_for_is_shown(codex: FakeDaemon) -> None:
    codex.talk.door.lead_to("codex")
    codex.talk.door.closed = "it waits for an approval"
    await show("send", "codex", "do it")
    assert (await show("trace", "m-1")).lines[2] == (
        "○ accepted m-1 for codex; it waits: it waits for an approval"
    )


# Tasks


def task(state: TaskState, **facts: object) -> Task:
    given = {"receipt": ReceiptState.QUEUED, "created_at": NOW, "updated_at": NOW, **facts}
    return Task(
        id="m-1",
        context_id="m-1",
        state=state,
        sender="user",
        recipient="codex",
        message=message(),
        **given,  # type: ignore[arg-type]
    )


def test_tasks_are_listed_with_state_who_age_and_place() -> None:
    tasks = [
        task(TaskState.SUBMITTED, position=2, reason="it is working"),
        task(TaskState.COMPLETED, receipt=ReceiptState.ANSWERED),
    ]
    assert plain(task_listing(tasks, NOW + timedelta(hours=2))) == [
        "m-1  ○ submitted  user to codex   2h  number 2 in the queue: it is working  review this",
        "m-1  ✓ completed  user to codex   2h                                        review this",
    ]
    assert task_listing([], NOW) == ["no tasks"]


def test_a_task_is_shown_with_its_answers() -> None:
    answers = (
        message("m-2", "half", type=MessageType.PROGRESS),
        message("m-3", "done\nwell", type=MessageType.TASK_RESPONSE),
    )
    shown = task(TaskState.COMPLETED, receipt=ReceiptState.ANSWERED, answers=answers)
    assert plain(task_lines(shown, NOW)) == [
        "m-1 is ✓ completed: user to codex, 0s ago, answered",
        "  asked",
        "    review this",
        "  progress",
        "    half",
        "  task_response",
        "    done",
        "    well",
    ]


async def test_tasks_can_be_chosen_and_ended(codex: FakeDaemon) -> None:
    codex.set_agent(agent_state("claude-1", Activity.IDLE))
    await show("send", "codex", "one")
    await show("send", "claude-1", "two")
    await show("send", "claude-1", "not a task", "--type", "info")
    both = (await show("task", "--list", "--json")).json["tasks"]
    assert [each["message"]["content"] for each in both] == ["two", "one"]
    assert [each["position"] for each in both] == [1, 1]
    chosen = await show("task", "--to", "codex", "--from", "user", "--state", "submitted", "--json")
    assert [each["id"] for each in chosen.json["tasks"]] == ["m-1"]
    ended = await show("task", "--cancel", "m-1")
    assert ended.lines[0].startswith("m-1 is · canceled: user to codex")
    assert (await invoke("task", "--cancel", "m-1")).code == 5
    assert (await invoke("task", "m-9")).code == 4
    assert (await invoke("task", "m-1", "--list")).code == 2


# Dead letters


@pytest.mark.requirement("O-30")
async def test_what_expired_is_told_and_can_be_sent_again(codex: FakeDaemon) -> None:
    done = await execute("send", "codex", "at once", "--ttl", "0", "--wait", "seen")
    assert done.code == 6
    assert done.out.startswith("▲ expired m-1 for codex")
    for listing in (["dead-letters"], ["dead-letters", "list", "--to", "codex"]):
        [line] = (await show(*listing)).lines
        assert line.split("  ") == ["m-1", "▲ expired", "user to codex", "0s ago", "at once"]
    assert (await show("dead-letters", "--to", "claude-1")).out == "no dead letters\n"
    again = await show("dead-letters", "resend", "m-1", "--json")
    assert (again.json["delivery"]["state"], again.json["delivery"]["message_id"]) == (
        "queued",
        "m-1",
    )
    assert (await invoke("dead-letters", "resend", "m-9")).code == 4


async def test_what_is_no_dead_letter_is_not_sent_again(codex: FakeDaemon) -> None:
    await show("send", "codex", "one")
    done = await invoke("dead-letters", "resend", "m-1")
    assert (done.code, done.out) == (5, "")


# Topics and the log


async def test_topics_are_listed_with_who_listens(codex: FakeDaemon) -> None:
    assert (await show("topics")).out == "no topics\n"
    assert (await show("subscribe", "#builds")).out == "#builds: user\n"
    assert (await show("subscribe", "builds", "--agent", "codex")).out == "#builds: codex, user\n"
    assert (await show("topics")).out == "#builds  codex, user\n"
    assert (await show("topics", "--json")).json["topics"] == {"builds": ["codex", "user"]}
    assert (await show("subscribe", "builds", "--off", "--json")).json["subscribers"] == ["codex"]
    assert (await invoke("subscribe", "builds", "--agent", "nobody")).code == 4
    assert (await invoke("subscribe", "#")).code == 2


def test_the_log_tells_size_duration_and_what_went_wrong() -> None:
    def entry(number: int, **facts: object) -> CommunicationEntry:
        given = {"duration_ms": None, "success": False, **facts}
        return CommunicationEntry(
            number,
            CommunicationLog(
                timestamp=NOW,
                from_agent="user",
                to_agent="codex",
                message_type=MessageType.INFO,
                message_size=12,
                **given,  # type: ignore[arg-type]
            ),
        )

    at = NOW.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    lines = log_listing([entry(1, duration_ms=3.4, success=True), entry(2, error="too\nold")])
    assert plain(lines) == [
        f"1  {at}  user to codex  info  12 bytes  3 ms  ✓ delivered",
        f"2  {at}  user to codex  info  12 bytes        ✗ not delivered  too old",
    ]


@pytest.mark.requirement("O-120")
async def test_each_message_that_ended_is_in_the_log(codex: FakeDaemon) -> None:
    codex.talk.door.lead_to("codex", lambda _: "done")
    await show("ask", "codex", "do it")
    await show("inbox", "--take")
    entries = (await show("messages", "--json")).json["messages"]
    assert [(each["from_agent"], each["to_agent"], each["success"]) for each in entries] == [
        ("user", "codex", True),
        ("codex", "user", True),
    ]
    assert (await show("messages", "--after", str(entries[-1]["number"]))).out == "no messages\n"


async def test_a_long_message_is_cut_in_a_list_and_whole_where_it_is_shown(
    codex: FakeDaemon,
) -> None:
    await show("send", "codex", "x" * 5000, "--ttl", "0")
    for command in ("task", "dead-letters"):
        (line,) = (await show(command)).out.splitlines()
        assert "x" * 100 in line
        assert len(line) < 400
    assert "x" * 5000 in (await show("task", "m-1")).out
