"""`bullpen send` and `ask` say truthfully what became of a message, in words and by exit code."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from bullpen.api.errors import ApiError
from bullpen.api.outputs import Output
from bullpen.api.talk import SendMessage, WaitMessage
from bullpen.cli.voice import Voice, rest_of
from bullpen.mail.policy import Policy, RateLimit
from bullpen.model.deliveries import ReceiptState
from bullpen.model.reasons import Reason
from bullpen.model.states import Activity
from bullpen.model.turns import Turn, TurnEnd, Utterance
from bullpen.terminal.pty import PtyProcess
from bullpen.testing.daemon import FakeDaemon, agent_state
from bullpen.testing.tmux import eventually
from tests.cli.commands import PROGRAM, SECONDS, Done, execute, invoke, pipe, show

NO_WAY = "there is no way into it; it can fetch its messages by itself"


@pytest.fixture
def codex(daemon: FakeDaemon) -> FakeDaemon:
    """A daemon with an agent that nothing can be put into."""
    daemon.set_agent(agent_state("codex", Activity.IDLE))
    return daemon


def sent(daemon: FakeDaemon) -> SendMessage:
    """Return what was sent last."""
    return [each for each in daemon.requests if isinstance(each, SendMessage)][-1]


def is_asked_to_wait(daemon: FakeDaemon) -> bool:
    return any(isinstance(each, WaitMessage) for each in daemon.requests)


# Accepting


@pytest.mark.requirement("O-20", "S-144")
async def test_what_is_accepted_is_said_to_be_accepted_and_no_more(codex: FakeDaemon) -> None:
    done = await show("send", "codex", "review this")
    assert done.out == f"○ accepted m-1 for codex; it waits: {NO_WAY}\n"
    said = await show("send", "codex", "and this", "--json")
    assert (said.json["schema"], said.json["outcome"], said.json["is_new"]) == (1, None, True)
    message = said.json["message"]
    assert (message["from"], message["to"], message["type"], message["content"]) == (
        "user",
        "codex",
        "task_request",
        "and this",
    )
    [delivery] = said.json["deliveries"]
    assert (delivery["state"], delivery["position"], delivery["holding"]) == ("queued", 2, NO_WAY)


async def test_how_many_wait_before_it_is_said(codex: FakeDaemon) -> None:
    codex.talk.door.lead_to("codex")
    codex.talk.door.closed = "it is working"
    await show("send", "codex", "first")
    await show("send", "codex", "second")
    done = await show("send", "codex", "third")
    assert done.out == "○ accepted m-3 for codex; 2 wait before it: it is working\n"


@pytest.mark.requirement("O-21", "O-24", "O-28", "S-144")
async def test_everything_that_can_be_said_of_a_message_arrives(codex: FakeDaemon) -> None:
    await show("send", "codex", "first")
    said = await show(
        *("send", "codex", "text", "--priority", "high", "--type", "info", "--ttl", "60"),
        *("--reply-to", "m-1", "--key", "k", "--thinking", "hm", "--json"),
    )
    message = said.json["message"]
    assert (message["type"], message["thinking"]) == ("info", "hm")
    assert (message["reply_to"], message["idempotency_key"]) == ("m-1", "k")
    assert message["metadata"] == {"priority": "high", "ttl": 60}


@pytest.mark.requirement("O-25", "S-144")
@pytest.mark.parametrize(
    ("given", "priority"),
    [("1", "low"), ("2", "low"), ("3", "normal"), ("4", "high"), ("5", "urgent"), ("low", "low")],
)
async def test_a_priority_is_a_word_or_a_number(
    given: str, priority: str, codex: FakeDaemon
) -> None:
    await show("send", "codex", "now", "-p", given)
    assert sent(codex).metadata == {"priority": priority}


async def test_the_same_key_is_the_same_message(codex: FakeDaemon) -> None:
    await show("send", "codex", "once", "--key", "k")
    done = await invoke("send", "codex", "once", "--key", "k")
    assert (done.code, done.out.split()[2]) == (0, "m-1")
    assert done.err == "it was sent before with the same key; this is what became of it\n"
    assert (await show("send", "codex", "once", "--key", "k", "--json")).json["is_new"] is False
    other = await invoke("send", "codex", "something else", "--key", "k")
    assert (other.code, other.out) == (5, "")


@pytest.mark.requirement("O-22", "O-26")
async def test_a_ping_needs_no_text_and_is_answered_by_a_pong(codex: FakeDaemon) -> None:
    done = await show("send", "codex", "--type", "ping", "--wait", "answered", "--json")
    assert done.json["reply"]["type"] == "pong"
    assert done.json["reply"]["reply_to"] == done.json["message"]["id"]


@pytest.mark.requirement("S-145")
async def test_the_recipient_can_be_named_by_an_option(codex: FakeDaemon) -> None:
    await show("send", "--target", "codex", "--priority", "1", "message")
    assert (sent(codex).to, sent(codex).content) == ("codex", "message")


@pytest.mark.requirement("S-145")
async def test_an_address_that_could_be_several_is_1_with_all_of_them(daemon: FakeDaemon) -> None:
    for name in ("codex-1", "codex-2"):
        daemon.set_agent(agent_state(name, session_key="codex:same"))
    done = await execute("send", "--target", "codex:same", "hello")
    assert (done.code, done.out) == (1, "")
    assert "codex-1, codex-2" in done.err


async def test_everybody_and_a_topic_are_addresses(codex: FakeDaemon) -> None:
    codex.set_agent(agent_state("claude-1", Activity.IDLE))
    everybody = await show("send", "--all", "stand up")
    assert [line.split("; ")[0] for line in everybody.lines] == [
        "○ accepted m-1 for codex",
        "○ accepted m-1 for claude-1",
    ]
    await show("subscribe", "builds", "--agent", "codex")
    assert (
        (await show("send", "#builds", "green", "--type", "info"))
        .lines[0]
        .startswith("○ accepted m-2 for codex")
    )


# Where the text comes from


async def test_a_text_can_be_read_from_a_pipe_or_a_file(codex: FakeDaemon, tmp_path: Path) -> None:
    text = "a\tb\n  日本語 🎌\n\n!last"
    assert (await pipe(text.encode(), "send", "codex", "-")).code == 0
    assert sent(codex).content == text
    assert (await pipe(f"{text}\n".encode(), "send", "codex", "--file", "-")).code == 0
    assert sent(codex).content == text
    path = tmp_path / "task.md"
    await asyncio.to_thread(path.write_text, f"{text}\n\n", encoding="utf-8")
    await show("send", "codex", "--file", str(path))
    assert sent(codex).content == f"{text}\n"


async def test_what_is_no_text_is_not_sent(codex: FakeDaemon, tmp_path: Path) -> None:
    done = await pipe(b"\xff\xfe", "send", "codex", "-")
    assert done == (1, "", "bullpen: -: it is not UTF-8 text\n")
    gone = await execute("send", "codex", "--file", "nowhere.md")
    assert gone == (1, "", "bullpen: nowhere.md: No such file or directory\n")
    assert not codex.requests


@pytest.mark.parametrize(
    "arguments",
    [
        ["send"],
        ["send", "codex"],
        ["send", "codex", ""],
        ["send", "codex", "text", "--file", "x"],
        ["send", "codex", "text", "--target", "claude-1"],
        ["send", "--all", "--target", "claude-1", "text"],
        ["send", "codex", "text", "--priority", "6"],
        ["send", "codex", "text", "--priority", "soon"],
        ["send", "codex", "text", "--type", "letter"],
        ["send", "codex", "text", "--ttl", "-1"],
        ["send", "codex", "text", "--timeout", "3"],
        ["send", "codex", "text", "--wait", "delivered"],
        ["send", "codex", "text", "--wait", "seen", "--return"],
        ["ask"],
        ["ask", "codex"],
        ["ask", "codex", "text", "--wait", "seen"],
    ],
    ids=lambda arguments: " ".join(arguments) or "nothing",
)
async def test_wrong_usage_is_2(arguments: list[str], codex: FakeDaemon) -> None:
    done = await invoke(*arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"Usage: bullpen {arguments[0]}")
    assert not codex.requests


# Refusals


async def test_who_is_not_there_is_4(codex: FakeDaemon) -> None:
    done = await execute("send", "claude-9", "hello")
    assert (done.code, done.out) == (4, "")
    assert done.err.startswith("bullpen: there is no agent 'claude-9'")
    assert (await invoke("send", "#nobody", "hello")).code == 4
    assert (await invoke("ask", "claude-9", "hello")).code == 4
    told = await invoke("send", "claude-9", "hello", "--json")
    assert (told.code, told.json["error"]["reason"]) == (4, "agent_not_found")


@pytest.mark.requirement("O-102", "O-110")
@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        (Policy(boss="boss"), "boss_only"),
        (Policy(max_message_bytes=100), "message_too_large"),
        (Policy(user_rate=RateLimit(per_second=0.001, burst=0.5)), "rate_limited"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_what_the_rules_refuse_is_5(policy: Policy, reason: str, codex: FakeDaemon) -> None:
    await show("send", "codex", "so that the rate is used up")
    codex.talk.policy = policy
    done = await invoke("send", "codex", "hello", "--json")
    assert (done.code, done.json["error"]["reason"]) == (5, reason)
    assert (await invoke("ask", "codex", "hello")).code == 5


async def test_a_store_that_is_not_there_is_1(codex: FakeDaemon) -> None:
    codex.script("mail.send", ApiError(Reason.STORE_UNAVAILABLE, "the disk is full"))
    assert await invoke("send", "codex", "hello") == (1, "", "bullpen: the disk is full\n")


async def test_a_secret_that_nobody_was_given_is_refused(codex: FakeDaemon) -> None:
    done = await execute("send", "codex", "hello", BULLPEN_SECRET="made up")
    assert (done.code, done.out) == (5, "")
    assert done.err.startswith("bullpen: nobody was given this secret")


async def test_the_sender_is_who_holds_the_secret(codex: FakeDaemon) -> None:
    secret = await codex.talk.secret_of("codex")
    assert (await execute("send", "user", "may I?", BULLPEN_SECRET=secret)).code == 0
    inbox = await show("inbox", "--json")
    assert inbox.json["deliveries"][0]["message"]["from"] == "codex"


async def test_without_a_daemon_there_is_nobody_to_send_it(home: Path) -> None:
    done = await execute("send", "codex", "hello", "--no-start")
    assert done.code == 1
    assert done.err.startswith("bullpen: no daemon is running")


# Waiting


async def test_it_waits_until_the_agent_has_it(codex: FakeDaemon) -> None:
    waiting = asyncio.create_task(execute("send", "codex", "hello", "--wait", "seen"))
    await eventually(lambda: is_asked_to_wait(codex))
    assert not waiting.done()
    secret = await codex.talk.secret_of("codex")
    assert (await execute("inbox", "--take", BULLPEN_SECRET=secret)).code == 0
    assert await waiting == (0, "● seen m-1 by codex\n", "")


@pytest.mark.requirement("O-28", "S-144")
@pytest.mark.parametrize("option", [["--wait", "answered"], ["--return"], ["-r"]], ids=" ".join)
async def test_it_waits_for_the_answer_and_prints_it(option: list[str], codex: FakeDaemon) -> None:
    codex.talk.door.lead_to("codex", lambda message: f"You said {message.content!r}.\nBye.")
    done = await show("send", "codex", "hello", *option)
    assert done.out == "✓ answered m-1 by codex\nYou said 'hello'.\nBye.\n"
    told = (await show("send", "codex", "again", *option, "--json")).json
    assert (told["outcome"], told["reply"]["from"]) == ("reached", "codex")
    assert told["reply"]["reply_to"] == told["message"]["id"]


@pytest.mark.requirement("talk:topics")
async def test_of_several_the_answer_of_each_is_printed(codex: FakeDaemon) -> None:
    codex.set_agent(agent_state("claude-1", Activity.IDLE))
    codex.talk.door.lead_to("codex", lambda _: "I am codex.")
    codex.talk.door.lead_to("claude-1", lambda _: "I am claude-1.")
    done = await show("send", "--all", "who is there?", "--wait", "answered")
    for name in ("codex", "claude-1"):
        assert f"✓ answered m-1 by {name}\n" in done.out
        assert f"from {name}:\nI am {name}.\n" in done.out
    told = (await show("ask", "*", "and now?", "--json")).json
    assert {each["content"] for each in told["replies"]} == {"I am codex.", "I am claude-1."}
    assert (await show("inbox")).out == "no messages\n"


async def outcome_of(codex: FakeDaemon, state: ReceiptState | None) -> Done:
    """Return what is said of a message that has come so far and no further."""
    if state is ReceiptState.ANSWERED:
        codex.talk.door.lead_to("codex", lambda _: "done")
        return await invoke("ask", "codex", "hello")
    if state is ReceiptState.FAILED:
        codex.talk.door.lead_to("codex")
        waiting = asyncio.create_task(execute("ask", "codex", "hello"))
        await eventually(lambda: bool(codex.talk.door.handed))
        codex.talk.hear("codex", Turn(by="own", end=TurnEnd.RATE_LIMITED, text="until noon"))
        return await waiting
    if state is ReceiptState.EXPIRED:
        return await invoke("send", "codex", "hello", "--ttl", "0", "--wait", "answered")
    if state is ReceiptState.DEAD:
        waiting = asyncio.create_task(execute("ask", "codex", "hello"))
        await eventually(lambda: is_asked_to_wait(codex))
        await show("task", "--cancel", "m-1")
        return await waiting
    return await invoke("ask", "codex", "hello", "--timeout", "0.01")


@pytest.mark.requirement("O-30", "S-144")
@pytest.mark.parametrize(
    ("state", "code", "words"),
    [
        (ReceiptState.ANSWERED, 0, "done"),
        (None, 3, f"m-1: the time of 0.01 seconds is over: {NO_WAY}"),
        (ReceiptState.FAILED, 6, "the agent has reached its usage limit: until noon"),
        (ReceiptState.EXPIRED, 6, "expired m-1 for codex"),
        (ReceiptState.DEAD, 6, "m-1: user cancelled it"),
    ],
    ids=["answered", "under-way", "failed", "expired", "dead"],
)
async def test_the_exit_code_says_what_became_of_it(
    state: ReceiptState | None, code: int, words: str, codex: FakeDaemon
) -> None:
    done = await outcome_of(codex, state)
    assert done.code == code, done
    assert words in done.out + done.err
    assert bool(done.out) is (state in (ReceiptState.ANSWERED, ReceiptState.EXPIRED))


async def test_each_step_is_told_while_somebody_looks_on(codex: FakeDaemon) -> None:
    codex.talk.door.closed = "it is working"
    codex.talk.door.lead_to("codex", lambda _: "done")
    waiting = asyncio.create_task(invoke("ask", "codex", "hello", "--verbose"))
    await eventually(lambda: is_asked_to_wait(codex))
    codex.talk.door.closed = ""
    codex.talk.wake("codex")
    done = await waiting
    assert (done.code, done.out) == (0, "done\n")
    steps = [line for line in done.err.splitlines() if "it waits" not in line]
    assert steps == [
        "  codex: ○ accepted (it is kept in the mailbox)",
        "  codex: ○ queued (it is kept in the mailbox)",
        "  codex: → injected (it was put into its box)",
        "  codex: → submitted (the box was sent off)",
        "  codex: ● seen (a turn began with it)",
        "  codex: ✓ answered (replied: task_response)",
    ]


async def test_nothing_but_the_answer_is_printed_and_thinking_elsewhere(codex: FakeDaemon) -> None:
    secret = await codex.talk.secret_of("codex")
    waiting = asyncio.create_task(invoke("ask", "codex", "why?", "--thinking"))
    await eventually(lambda: is_asked_to_wait(codex))
    reply = ["reply", "because", "--to", "m-1", "--thinking", "hm"]
    assert (await execute(*reply, BULLPEN_SECRET=secret)).code == 0
    assert await waiting == (0, "because\n", "hm\n")


async def test_a_daemon_that_goes_away_meanwhile_is_asked_again_about_the_same_message(
    home: Path,
) -> None:
    path = home / "run/bullpen/bullpend.sock"
    async with FakeDaemon(path, agents=[agent_state("codex")]) as first:
        # What is kept outlives a daemon; in memory, it is handed on.
        second = FakeDaemon(path, agents=[agent_state("codex")], mailboxes=first.talk.mailboxes)
        waiting = asyncio.create_task(invoke("ask", "codex", "hello", "--no-start"))
        await eventually(lambda: is_asked_to_wait(first))
    async with second:
        second.talk.door.lead_to("codex", lambda _: "at last")
        second.talk.wake("codex")
        assert await waiting == (0, "at last\n", "")
        keys = {sent(each).idempotency_key for each in (first, second)}
        assert len(keys) == 1
        assert len((await show("task", "--json")).json["tasks"]) == 1


async def test_that_it_is_kept_is_said_when_the_daemon_does_not_come_back(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bullpen.cli.sending.RETURN_SECONDS", 0.0)
    path = home / "run/bullpen/bullpend.sock"
    async with FakeDaemon(path, agents=[agent_state("codex")]) as daemon:
        waiting = asyncio.create_task(invoke("ask", "codex", "hello"))
        await eventually(lambda: is_asked_to_wait(daemon))
    done = await waiting
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("bullpen: no daemon is running")
    assert done.err.endswith("; m-1 is kept, and is delivered when there is a daemon again\n")


async def test_what_an_agent_wrote_is_exact_in_a_pipe_and_harmless_on_a_terminal(
    codex: FakeDaemon,
) -> None:
    codex.talk.door.lead_to("codex", lambda _: "a\x1b[31mb\tc\nd")
    assert (await execute("ask", "codex", "hello")).out == "a\x1b[31mb\tc\nd\n"
    command = [PROGRAM, "ask", "codex", "hello"]
    async with (
        asyncio.timeout(SECONDS),
        await PtyProcess.spawn(command, env=dict(os.environ)) as terminal,
    ):
        shown = b""
        while data := await terminal.read():
            shown += data
    assert shown.decode().endswith("\r\na\N{REPLACEMENT CHARACTER}[31mb c\r\nd\r\n")
    assert "  codex: \x1b[32m● seen\x1b[0m (a turn began with it)\r\n" in shown.decode()


async def test_who_waited_for_an_answer_has_it_and_does_not_get_it_again(codex: FakeDaemon) -> None:
    codex.set_agent(agent_state("claude-1", Activity.IDLE))
    codex.talk.door.lead_to("codex", lambda _: "done")
    codex.talk.door.lead_to("claude-1")
    secret = await codex.talk.secret_of("claude-1")
    assert (await execute("ask", "codex", "do it", BULLPEN_SECRET=secret)).out == "done\n"
    assert "● seen m-2 by claude-1" in (await show("trace", "m-2")).out
    assert [each.recipient for each in codex.talk.door.handed] == ["codex"]
    await show("send", "codex", "and this")  # nobody waits for the answer to this one
    await eventually(lambda: asyncio.to_thread(lambda: len(codex.talk.door.handed) == 2))
    await show("ask", "codex", "the user, too")
    inbox = (await show("inbox", "--json")).json["deliveries"]
    assert [each["message"]["reply_to"] for each in inbox] == ["m-3"]


@pytest.mark.parametrize(
    "words", [["ask", "codex", "hello"], ["send", "-r", "codex", "hello"]], ids=["ask", "send"]
)
async def test_who_gives_up_waiting_is_told_that_the_message_goes_on(
    words: list[str], codex: FakeDaemon
) -> None:
    process = await asyncio.create_subprocess_exec(
        PROGRAM, *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    await eventually(lambda: is_asked_to_wait(codex))
    process.send_signal(signal.SIGINT)
    async with asyncio.timeout(SECONDS):
        out, err = await process.communicate()
    assert (process.returncode, out) == (130, b"")
    said = "bullpen: m-1 is still under way; bullpen task --cancel m-1 ends it\n"
    assert err.decode() == said
    assert (await show("task", "m-1", "--json")).json["task"]["state"] == "submitted"


@pytest.mark.requirement("a2a:deltas")
async def test_what_an_agent_says_is_printed_as_it_says_it(codex: FakeDaemon) -> None:
    codex.talk.door.lead_to("codex")
    program = (PROGRAM, "ask", "codex", "hello", "--stream")
    asking = await asyncio.create_subprocess_exec(*program, stdout=asyncio.subprocess.PIPE)
    assert asking.stdout is not None
    try:
        await eventually(lambda: bool(codex.talk.door.handed))
        async with asyncio.timeout(SECONDS):
            for text, is_new in (("I shall look", False), ("one\n", True), ("\x1b[1mtwo", False)):
                codex.talk.hear_said("codex", Utterance(text=text, is_new=is_new))
                assert await asking.stdout.readexactly(len(text) + 2 * (text == "one\n"))
            codex.talk.hear("codex", Turn(by="own", end=TurnEnd.DONE, text="one\n\x1b[1mtwo three"))
            assert await asking.stdout.read() == b" three\n"
            assert await asking.wait() == 0
    finally:
        if asking.returncode is None:
            asking.kill()
            await asking.wait()


def test_the_answer_follows_whole_if_something_else_was_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    voice = Voice()
    voice(Output("it is red"))
    assert voice.rest("it is red") == ""
    assert voice.rest("it is blue") == "it is blue"
    assert capsys.readouterr().out == "it is red\n\n"


@pytest.mark.parametrize(
    ("said", "rest"),
    [
        ("It works.\n\n• one\n• two", "\n\nThe end."),
        ("It works.\n\n• one", "\n- `two`\n\nThe end."),
        ("It works.\n\n1 print(1)", None),
        ("It fails.", None),
        ("It works.\n\n• one\n• two\n\nThe end. And more.", None),
        ("● ", None),
    ],
    ids=["to-a-mark", "part", "numbered", "other", "longer", "nothing"],
)
def test_what_was_read_off_a_terminal_is_not_said_again(said: str, rest: str | None) -> None:
    assert rest_of("It **works**.\n\n- one\n- `two`\n\nThe end.", said) == rest


def test_what_a_block_of_code_is_written_in_is_shown_on_no_terminal() -> None:
    answer = "It works.\n\n```text\none\n```\ntwo"
    assert rest_of(answer, "It works.\n\n  one") == "\n```\ntwo"


async def test_a_stream_is_for_people() -> None:
    assert (await invoke("ask", "codex", "hello", "--stream", "--json")).code == 2
