"""Messages in a world that is broken: full, locked, turned back, lied to, flooded, asked too much.

Who can do something about it is told in clear words, what was accepted is not lost, and everybody
else goes on.
"""

import asyncio
import contextlib
import json
import sqlite3
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from bullpen.api import wrapping
from bullpen.api.errors import SettingsError
from bullpen.api.runtime import Paths
from bullpen.api.wrapping import InjectReply
from bullpen.connection import RemoteError, SocketTransport
from bullpen.errors import BullpenError
from bullpen.model.deliveries import Evidence, ReceiptState
from bullpen.model.states import Activity
from tests.daemon.harness import Clock, Peer, RefusedError, running_daemon, settings, until
from tests.daemon.houses import SECONDS, House, house
from tests.daemon.wrapping import ScriptedWrapper, wrapped

pytestmark = [pytest.mark.xdist_group("talk-trouble"), pytest.mark.timeout(120)]

S = ReceiptState
MEGABYTE = 2**20


@pytest.fixture(scope="module")
def shared() -> Iterator[House]:
    """One house for all that need a daemon of their own."""
    with house() as found:
        yield found


@pytest.fixture
async def here(shared: House) -> AsyncIterator[House]:
    if not hasattr(shared, "daemon") or shared.daemon.poll() is not None:
        await shared.start_daemon()
    yield shared
    shared.disarm()
    await shared.end_agents()


async def send(peer: Peer, to: str, content: str, **more: Any) -> str:
    sent = await peer.ask("mail.send", to=to, content=content, **more)
    return str(sent["message"]["id"])


async def refusal(peer: Peer, method: str = "mail.send", **params: Any) -> RefusedError:
    with pytest.raises(RefusedError) as refused:
        await peer.ask(method, **params)
    return refused.value


async def reaches(peer: Peer, message_id: str, *wanted: S) -> dict[str, Any]:
    async def look() -> Any:
        trace = await peer.ask("mail.trace", message_id=message_id)
        return trace if trace["deliveries"][0]["state"] in wanted else None

    found: dict[str, Any] = await until(look, SECONDS)
    return found


async def reason(peer: Peer, message_id: str) -> str:
    """Why a message ended, as who waits for it is told."""
    waited = await peer.ask("mail.wait", message_id=message_id, timeout_seconds=0)
    assert waited["outcome"] == "ended", waited
    return str(waited["reason"])


async def holds(peer: Peer, name: str, words: str) -> None:
    """Wait until it is said why an agent gets nothing."""

    async def look() -> bool:
        contacts = await peer.ask("agent.contacts")
        return any(each["name"] == name and words in each["holding"] for each in contacts)

    await until(look, SECONDS)


# ----------------------------------------------------------------------------------------- the disk


@contextlib.contextmanager
def full_disk(pid: int) -> Iterator[None]:
    """Let a process write nothing more to any file, for a block."""
    import resource

    limits = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)


linux = pytest.mark.skipif(sys.platform != "linux", reason="limits the size of files by prlimit")


@linux
@pytest.mark.requirement("talk:disk")
async def test_while_the_disk_is_full_nothing_is_accepted_and_an_answer_is_kept_later(
    here: House,
) -> None:
    agent = await here.agent("full")
    message_id = await send(here.peer, "full", "before work=go")
    await here.becomes(message_id, "seen")
    with full_disk(here.daemon.pid):
        refused = await refusal(here.peer, to="full", content="while it is full")
        assert refused.reason == "store_unavailable"
        agent.open("go")
        await here.see(lambda: agent.answers("before"))
        # It goes on answering, and claims nothing that it could not write down.
        for _ in range(20):
            assert (await here.delivery(message_id))["state"] == "seen"
            await asyncio.sleep(0.05)
    await here.becomes(message_id, "answered")
    thread = (await here.trace(message_id))["thread"]
    assert len(thread) == 2
    assert thread[1]["content"].endswith("done: [from user] before work=go")
    assert agent.lines("while it is full") == 0


@linux
@pytest.mark.requirement("talk:disk", "talk:crash")
async def test_what_was_typed_while_the_disk_was_full_is_not_typed_again(here: House) -> None:
    agent = await here.agent("fuller")
    here.arm("hold:leased")
    message_id = await send(here.peer, "fuller", "typed once")
    await here.reached()
    with full_disk(here.daemon.pid):
        here.disarm()
        await here.see(lambda: agent.lines("typed once"))
        await asyncio.sleep(1.0)  # for as long as nothing can be written
    await here.becomes(message_id, "answered")
    assert agent.lines("typed once") == 1


@pytest.mark.requirement("talk:disk")
async def test_a_database_that_somebody_else_locks_is_waited_for_or_said_to_be_locked(
    here: House,
) -> None:
    agent = await here.agent("locked")
    path = here.home / ".local/state/bullpen/state.db"
    other = sqlite3.connect(path, isolation_level=None, timeout=SECONDS)
    try:
        other.execute("BEGIN IMMEDIATE")
        sending = asyncio.create_task(_send_or_not(here.peer, "locked", "while it is locked"))
        contacts = await here.peer.ask("agent.contacts")  # who only reads does not wait
        assert any(each["name"] == "locked" for each in contacts)
        outcome = await sending
        assert outcome == "store_unavailable"
    finally:
        other.execute("ROLLBACK")
        other.close()
    message_id = await send(here.peer, "locked", "afterwards")
    await here.becomes(message_id, "answered")
    assert (agent.lines("while it is locked"), agent.lines("afterwards")) == (0, 1)


async def _send_or_not(peer: Peer, to: str, content: str) -> str:
    try:
        return await send(peer, to, content)
    except RefusedError as refused:
        return str(refused.reason)


# ---------------------------------------------------------------------------------------- the clock


@pytest.mark.requirement("talk:clock", "O-30")
async def test_what_is_too_old_is_ended_in_time_by_a_clock_that_was_set_back(home: Path) -> None:
    clock = Clock()
    async with running_daemon(clock=clock) as (peer, _), wrapped("codex") as agent:
        await agent.tell(Activity.RUNNING)
        await holds_when_running(peer, "codex")
        message_id = await send(peer, "codex", "hi", metadata={"ttl": 30})
        clock.advance(-3600)
        other = await send(peer, "codex", "hi", metadata={"ttl": 3600})
        await asyncio.sleep(1.5)  # it has been looked at since
        clock.advance(31)
        await reaches(peer, message_id, S.EXPIRED)
        assert "expired" in await reason(peer, message_id)
        assert (await peer.ask("mail.trace", message_id=other))["positions"] == {"codex": 1}


async def holds_when_running(peer: Peer, name: str) -> None:
    async def look() -> bool:
        contacts = await peer.ask("agent.contacts")
        return any(each["name"] == name and each["activity"] == "running" for each in contacts)

    await until(look, SECONDS)


@pytest.mark.requirement("talk:clock", "O-77")
async def test_a_rate_neither_grows_nor_ends_by_a_clock_that_is_set_back(home: Path) -> None:
    clock = Clock()
    slow = settings(mail={"rate_per_second": 0.1, "rate_burst": 2.0})
    async with running_daemon(slow, clock=clock) as (peer, _), wrapped("codex") as agent:
        said = {"to": "user", "content": "x", "secret": agent.secret}
        for _ in range(2):
            await peer.ask("mail.send", **said)
        clock.advance(-3600)
        refused = await refusal(peer, **said)
        assert refused.reason == "rate_limited"
        assert 0 < refused.data["retry_after_seconds"] <= 10
        clock.advance(11)
        await peer.ask("mail.send", **said)


@pytest.mark.requirement("talk:clock")
async def test_what_may_have_arrived_is_given_up_in_time_by_a_clock_that_was_set_back(
    home: Path,
) -> None:
    clock = Clock()
    async with running_daemon(clock=clock) as (peer, daemon), wrapped("codex") as agent:
        agent.replies.append(InjectReply(outcome="unsure", reason="nothing shows it"))
        message_id = await send(peer, "codex", "hi")
        await reaches(peer, message_id, S.INJECTED)
        clock.advance(-3600)
        daemon.post.wake("codex")
        await asyncio.sleep(0.2)  # it has looked at the clock
        clock.advance(61)
        daemon.post.wake("codex")
        await reaches(peer, message_id, S.FAILED)
        assert await reason(peer, message_id) == "nothing shows whether the agent has had it"


# ------------------------------------------------------------------------------- what is sent


@pytest.mark.requirement("O-30")
async def test_a_ttl_of_nothing_is_told_at_once(home: Path) -> None:
    async with running_daemon() as (peer, _), wrapped("codex") as agent:
        sent = await peer.ask("mail.send", to="codex", content="late", metadata={"ttl": 0})
        assert sent["deliveries"][0]["state"] == "expired"
        assert "within 0" in await reason(peer, sent["message"]["id"])
        assert agent.typed.empty()
        refused = await refusal(peer, to="codex", content="x", metadata={"ttl": -1})
        assert refused.reason == "invalid_message"


@pytest.mark.requirement("O-110", "O-111")
async def test_a_message_has_a_megabyte_and_not_a_byte_more(home: Path) -> None:
    async with running_daemon() as (peer, _), wrapped("codex") as agent:
        small = await peer.ask("mail.send", to="codex", content="é")
        await agent.answer(await agent.next(), "yes")
        room = MEGABYTE - small["deliveries"][0]["size"]
        whole = "é" + "x" * room
        sent = await peer.ask("mail.send", to="codex", content=whole)
        assert sent["deliveries"][0]["size"] == MEGABYTE
        typed = await agent.next()
        assert typed.text == whole
        await agent.answer(typed, whole * 2)  # which is too long, and is cut
        trace = await reaches(peer, sent["message"]["id"], S.ANSWERED)
        assert trace["thread"][1]["content"].endswith("characters more]")
        refused = await refusal(peer, to="codex", content=whole + "x")
        assert (refused.reason, refused.data["size"], refused.data["limit"]) == (
            *("message_too_large", MEGABYTE + 1, MEGABYTE),
        )
        thought = "é" * (50 * 2**10)
        await peer.ask("mail.send", to="codex", content="x", thinking=thought)
        refused = await refusal(peer, to="codex", content="x", thinking=thought + "x")
        assert (refused.reason, refused.data["limit"]) == ("thinking_too_large", 102_400)


@pytest.mark.requirement("O-75", "talk:names")
async def test_a_name_that_is_nobodys_is_refused_and_nothing_is_kept(home: Path) -> None:
    names = [
        "ghost",
        "",
        "a b",
        "../codex",
        "codex\n",
        "CODEX",
        "\u202excodex",
        "x" * 5000,
        "%c",
        "-",
    ]
    async with running_daemon() as (peer, _), wrapped("codex"):
        for name in names:
            refused = await refusal(peer, to=name, content="hi")
            assert refused.reason in ("agent_not_found", "invalid_message"), name
        assert await peer.ask("task.list") == []
        assert "there are codex" in str(await refusal(peer, to="kodex", content="hi"))


@pytest.mark.requirement("talk:names")
async def test_a_name_that_cannot_be_one_is_given_to_nobody(home: Path) -> None:
    names = [
        "user",
        "a b",
        "../x",
        "x\n",
        "\u202ex",
        "x" * 65,
        "%x",
        "-",
        "@x",
        "#x",
        "*",
        "\udcff",
    ]
    async with running_daemon() as (peer, _):
        for name in names:
            with pytest.raises(BullpenError, match=r"is no name for an agent|not UTF-8|surrogates"):
                await _register(name=name)
        assert await peer.ask("agent.contacts") == []


@pytest.mark.requirement("talk:keys")
async def test_an_id_or_a_key_says_the_same_or_is_refused(home: Path) -> None:
    async with running_daemon() as (peer, _), wrapped("codex") as agent, wrapped("bob") as bob:
        one = await send(peer, "codex", "one", idempotency_key="k", id="my-id")
        again = await peer.ask("mail.send", to="codex", content="one", idempotency_key="k")
        assert (again["message"]["id"], again["is_new"]) == (one, False)
        for more in ({"idempotency_key": "k"}, {"id": "my-id"}):
            refused = await refusal(peer, to="codex", content="other", **more)
            assert (refused.reason, refused.data["message_id"]) == ("idempotency_conflict", one)
        # The key is a sender's own, the id is everybody's.
        said = {"to": "codex", "content": "other", "secret": bob.secret}
        assert (await peer.ask("mail.send", **said, idempotency_key="k"))["is_new"]
        assert (await refusal(peer, **said, id="my-id")).reason == "idempotency_conflict"
        assert (await agent.next()).text == "one"


@pytest.mark.requirement("talk:full")
async def test_a_full_mailbox_refuses_and_its_owner_still_gets_what_he_asked_for(
    home: Path,
) -> None:
    few = settings(mail={"mailbox_limit": 2})
    async with running_daemon(few) as (peer, _), wrapped("codex") as agent:
        ids = [await send(peer, "codex", "task 0")]
        typed = await agent.next()
        ids += [await send(peer, "codex", f"task {number}") for number in (1, 2)]
        refused = await refusal(peer, to="codex", content="one too many")
        assert (refused.reason, refused.data) == (
            "mailbox_full",
            {"reason": "mailbox_full", "agent_id": "codex", "limit": 2},
        )
        for _ in range(2):
            await peer.ask("mail.send", to="user", content="news", secret=agent.secret)
        said = {"to": "user", "content": "news", "secret": agent.secret}
        assert (await refusal(peer, **said)).reason == "mailbox_full"
        for number in range(3):
            await agent.answer(typed, f"answer {number}")
            await reaches(peer, ids[number], S.ANSWERED)
            if number < 2:
                typed = await agent.next()
        inbox = (await peer.ask("mail.inbox", take=True))["deliveries"]
        assert [each["message"]["content"] for each in inbox] == [
            *("news", "news", "answer 0", "answer 1", "answer 2"),
        ]


@pytest.mark.requirement("talk:waiters")
async def test_a_thousand_wait_for_one_message_and_nobody_else_waits_for_them(home: Path) -> None:
    async with running_daemon() as (peer, _), wrapped("codex") as agent:
        message_id = await send(peer, "codex", "hi")
        typed = await agent.next()
        asked = {"message_id": message_id, "timeout_seconds": 60}
        lines = [
            json.dumps({"id": number, "method": "mail.wait", "params": asked}).encode() + b"\n"
            for number in range(100)
        ]
        async with contextlib.AsyncExitStack() as stack:
            readers = []
            for _ in range(10):
                path = str(Paths.resolve().socket)
                reader, writer = await asyncio.open_unix_connection(path, limit=2**24)
                stack.callback(writer.close)
                writer.writelines(lines)
                readers.append(reader)
            assert await peer.ask("daemon.info")
            await agent.answer(typed, "here you are")
            async with asyncio.timeout(60):
                for reader in readers:
                    for _ in lines:
                        answer = json.loads(await reader.readline())
                        assert answer["result"]["reply"]["content"] == "here you are"


# ----------------------------------------------------------------------------- agents that are bad


@pytest.mark.requirement("O-81", "talk:flood")
@pytest.mark.parametrize(
    ("content", "words"),
    [("x" * 5000, "a line of its terminal holds"), ("short", "")],
    ids=["longer than a line", "a line"],
)
async def test_an_agent_that_never_reads_is_told_of_and_holds_nobody_up(
    here: House, content: str, words: str
) -> None:
    agent = await here.agent("deaf" + ("" if words else "er"), "deaf")
    message_id = await send(here.peer, agent.name, content)
    if words:
        await here.becomes(message_id, "dead")
        assert words in await reason(here.peer, message_id)
        return
    await here.becomes(message_id, "submitted")
    next_id = await send(here.peer, agent.name, "another")
    waited = await here.peer.ask("mail.wait", message_id=next_id, timeout_seconds=0.2)
    assert (waited["outcome"], waited["agent_id"]) == ("timeout", agent.name)
    assert waited["reason"] == f"it has the message {message_id}"
    cancelled = await here.peer.ask("task.cancel", task_id=message_id)
    assert cancelled["state"] == "canceled"


@pytest.mark.requirement("O-81", "talk:flood")
async def test_a_screen_that_takes_no_keys_fills_and_that_is_told(here: House) -> None:
    """Without lines to be edited nothing limits them; what is not read fills the terminal."""
    agent = await here.agent("stuck", "deaf", "raw")
    message_id = await send(here.peer, agent.name, "x" * 200_000)
    trace = await reaches(here.peer, message_id, S.INJECTED)
    assert "does not read" in str(trace["receipts"])
    assert await agent.is_idle() in (True, False)  # its wrapper answers
    await here.peer.ask("agent.stop", agent=agent.name)
    await here.becomes(message_id, "failed")
    assert await reason(here.peer, message_id) == "the agent ended; it may have had it"


@pytest.mark.requirement("talk:flood")
async def test_an_agent_that_floods_is_alone_with_it(here: House) -> None:
    quiet, flooding = await here.agent("quiet"), await here.agent("flooding")
    message_id = await send(here.peer, flooding.name, "a flood")
    await here.becomes(message_id, "seen")
    wrapper = psutil.Process(flooding.wrapper.pid)
    daemon = psutil.Process(here.daemon.pid)
    before = daemon.memory_info().rss
    for number in range(5):
        asked = await send(here.peer, quiet.name, f"are you there? {number}")
        await here.becomes(asked, "answered")
        assert await here.peer.ask("agent.output", agent=flooding.name, limit=1000)
    assert wrapper.memory_info().rss < 200 * MEGABYTE
    assert daemon.memory_info().rss - before < 50 * MEGABYTE
    await here.peer.ask("agent.stop", agent=flooding.name)
    await here.becomes(message_id, "failed")


@pytest.mark.requirement("talk:loop")
async def test_agents_that_send_everything_back_are_cut(here: House) -> None:
    one, other = await here.agent("echo-1", "echo"), await here.agent("echo-2", "echo")
    await send(here.peer, one.name, f"pass it on to {other.name}")

    async def cut() -> Any:
        log = await here.peer.ask("mail.log", after=0, limit=500)
        errors = [each["entry"]["error"] or "" for each in log]
        return [each for each in errors if "messages that came of one" in each]

    await until(cut, SECONDS)

    async def at_rest() -> Any:
        both = [await each.contact() for each in (one, other)]
        return not any(each["waiting"] or each["activity"] != "idle" for each in both)

    await until(at_rest, SECONDS)
    given = one.lines("pass it on") + other.lines("pass it on")
    assert given < 300
    await asyncio.sleep(0.5)
    assert given == one.lines("pass it on") + other.lines("pass it on")


# ------------------------------------------------------------------------------ wrappers that lie


@pytest.mark.requirement("talk:lies")
async def test_a_wrapper_speaks_of_what_it_was_given_and_of_nothing_else(home: Path) -> None:
    async with (
        running_daemon() as (peer, _),
        wrapped("honest") as honest,
        wrapped("liar") as liar,
    ):
        theirs = await send(peer, "honest", "mine")
        asked = await honest.next()
        await reaches(peer, theirs, S.SUBMITTED)
        own = await send(peer, "liar", "yours")
        given = await liar.next()
        await reaches(peer, own, S.SUBMITTED)
        evidence = Evidence("pty", "believe me")
        for attempt in (asked.attempt_id, "m-none:1", f"{own}:7", own, "", ":", "x" * 10**6):
            for state in (S.SEEN, S.ANSWERED, S.FAILED):
                step = wrapping.StepTaken(attempt, state, evidence)
                await liar.connection.notify(step)
            answered = wrapping.Answered(
                attempt_id=attempt, is_ok=True, text="lies", how="prompt_back", evidence=evidence
            )
            await liar.connection.request(answered, timeout=SECONDS)
        for state in (S.ANSWERED, S.FAILED, S.DEAD, S.EXPIRED, S.QUEUED, S.ACCEPTED):
            await liar.step(given, state)
        await peer.ask("agent.contacts")
        for message_id in (theirs, own):
            trace = await peer.ask("mail.trace", message_id=message_id)
            assert trace["deliveries"][0]["state"] == "submitted", trace["receipts"]
        await honest.answer(asked, "the truth")
        assert (await reaches(peer, theirs, S.ANSWERED))["thread"][1]["content"] == "the truth"


@pytest.mark.requirement("talk:lies")
async def test_what_a_wrapper_says_is_kept_no_longer_than_it_is_of_use(home: Path) -> None:
    async with running_daemon() as (peer, _), wrapped("liar") as liar:
        long = "x" * 10**6
        told = wrapping.WrapperState(
            activity=Activity.IDLE, status=long, is_ready=True, prompt=long, why=long, title=long
        )
        await liar.connection.notify(told)
        message_id = await send(peer, "liar", "hi")
        typed = await liar.next()
        evidence = Evidence(long, long, {"screen": long})
        await liar.connection.notify(wrapping.StepTaken(typed.attempt_id, S.SEEN, evidence))
        trace = await reaches(peer, message_id, S.SEEN)
        assert len(str(trace)) < 20_000
        assert len(str(await peer.ask("agent.contacts"))) < 20_000


@pytest.mark.requirement("talk:lies", "O-101")
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("wrapper.step", {"attempt_id": 7, "state": "seen", "evidence": {"by": "x"}}),
        ("wrapper.step", {"attempt_id": "m:1", "state": "eaten", "evidence": {"by": "x"}}),
        ("wrapper.step", {"attempt_id": "m:1", "state": "seen", "evidence": []}),
        ("wrapper.answered", {"attempt_id": "m:1"}),
        ("wrapper.answered", []),
        ("wrapper.state", {"activity": "dancing", "status": "IDLE"}),
        ("wrapper.state", None),
        ("wrapper.ended", {"status": "well"}),
        ("wrapper.register", {"profile": "x", "provider": "nobody", "wrapper_pid": 1, "cwd": ""}),
        ("wrapper.register", {"profile": [], "provider": "other", "wrapper_pid": -1, "cwd": 7}),
        ("wrapper.started", {"pid": -1, "tty": "", "command": [], "doors": {"pids": 7}}),
    ],
    ids=lambda each: each if isinstance(each, str) else json.dumps(each)[:40],
)
async def test_what_makes_no_sense_spoils_nothing(home: Path, method: str, params: Any) -> None:
    async with running_daemon() as (peer, _), wrapped("codex") as agent:
        with contextlib.suppress(ConnectionError, ValueError):
            async with asyncio.timeout(SECONDS):
                await peer.exchange({"id": 1, "method": method, "params": params})
        message_id = await send(peer, "codex", "hi")
        await agent.answer(await agent.next(), "yes")
        await reaches(peer, message_id, S.ANSWERED)


@pytest.mark.requirement("talk:secrets")
async def test_the_secret_of_who_has_ended_opens_nothing(home: Path) -> None:
    async with running_daemon() as (peer, _):
        async with wrapped("codex") as agent:
            old = agent.secret
            await agent.end()
        assert (await refusal(peer, to="user", content="x", secret=old)).reason == (
            "identity_expired"
        )
        with pytest.raises(RemoteError, match="has ended"):
            await _register(secret=old)
        async with wrapped("codex") as again:  # the next of its name
            with pytest.raises(RemoteError, match="has ended"):
                await _register(secret=old)
            message_id = await send(peer, "codex", "for the one that is there")
            assert (await again.next()).text == "for the one that is there"
            await reaches(peer, message_id, S.SUBMITTED)


async def _register(**more: Any) -> None:
    wrapper = ScriptedWrapper()
    transport = SocketTransport.unix(str(Paths.resolve().socket))
    async with wrapper.builder.connect(transport) as wrapper.connection:
        await wrapper.register(**more)


# ---------------------------------------------------------------------------------------- the rules


@pytest.mark.requirement("talk:policy")
async def test_rules_that_cannot_be_read_leave_those_that_hold(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = home / ".config/bullpen"
    config.mkdir(parents=True)
    rules = config / "policy.toml"
    rules.write_text('boss = "grand_boss"\n')
    async with running_daemon() as (peer, daemon), wrapped("codex"):
        assert (await refusal(peer, to="codex", content="hi")).reason == "boss_only"
        for broken in ("boss = [", 'boss = "x"\nunknown = 1\n', "boss = 7\n", "\0"):
            rules.write_text(broken)
            for _ in range(3):
                await daemon.post._read_policy()
            assert (await refusal(peer, to="codex", content="hi")).reason == "boss_only"
        [alert] = await peer.ask("list_alerts")
        assert alert["code"] == "policy_invalid"
        assert str(rules) in alert["message"]
        told = [each for each in caplog.records if "the rules are not changed" in each.message]
        assert {each.levelname for each in told} == {"ERROR"}
        assert len(told) == 4, "each is told once"
        rules.unlink()

        async def free() -> bool:
            try:
                await send(peer, "codex", "hi")
            except RefusedError:
                return False
            return True

        await until(free, SECONDS)
        assert await peer.ask("list_alerts") == []


async def test_a_daemon_does_not_start_with_rules_that_it_cannot_read(home: Path) -> None:
    config = home / ".config/bullpen"
    config.mkdir(parents=True)
    (config / "policy.toml").write_text('boss = "x"\nunknown = 1\n')
    with pytest.raises(SettingsError, match=r"policy\.toml: .* unknown field `unknown`"):
        async with running_daemon():
            pytest.fail("nobody would know who may write to whom")


# ------------------------------------------------------------------------------------- forgetting


@pytest.mark.requirement("mail:retention")
async def test_what_has_ended_is_forgotten_in_time(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bullpen.daemon.main.HOUSEKEEPING_SECONDS", 0.1)
    clock = Clock()
    kept = settings(mail={"retention_days": 2.0})
    async with running_daemon(kept, clock=clock) as (peer, _), wrapped("codex") as agent:
        done = await send(peer, "codex", "one")
        await agent.answer(await agent.next(), "yes")
        await reaches(peer, done, S.ANSWERED)
        await peer.ask("mail.inbox", take=True)
        waits = await send(peer, "codex", "two")
        await agent.next()
        clock.advance(24 * 3600)
        await asyncio.sleep(0.3)  # the house was kept
        assert (await peer.ask("mail.trace", message_id=done))["thread"]
        clock.advance(25 * 3600)

        async def is_forgotten() -> bool:
            try:
                await peer.ask("mail.trace", message_id=done)
            except RefusedError as refused:
                return bool(refused.reason == "message_not_found")
            return False

        await until(is_forgotten, SECONDS)
        assert [each["id"] for each in await peer.ask("task.list")] == [waits]


# ------------------------------------------------------------------------------- time that runs out


@pytest.mark.requirement("O-80", "O-85")
async def test_an_agent_that_does_not_become_ready_is_told_of(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    impatient = settings(mail={"start_seconds": 0.2})
    async with running_daemon(impatient) as (peer, _), wrapped("codex") as ready:
        late = ScriptedWrapper()
        transport = SocketTransport.unix(str(Paths.resolve().socket))
        async with late.builder.connect(transport) as late.connection:
            await late.register(name="late")
            started = wrapping.WrapperStarted(pid=0, tty="", command=("late",))
            await late.connection.request(started, timeout=SECONDS)
            message_id = await send(peer, "late", "hi")
            await holds(peer, "late", "it has not become ready within 0.2 s of its start")
            await until(lambda: _said(caplog, "late has not become ready"), SECONDS)
            await late.tell(Activity.IDLE)  # after all
            await late.answer(await late.next(), "yes")
            await reaches(peer, message_id, S.ANSWERED)
        assert not await _said(caplog, f"{ready.name} has not become ready")


async def _said(caplog: pytest.LogCaptureFixture, words: str) -> bool:
    return any(words in each.message for each in caplog.records if each.levelname == "WARNING")


@pytest.mark.requirement("O-82", "O-83", "O-85")
@pytest.mark.parametrize(
    ("kind", "seconds"), [("info", 0.2), ("task_request", 0.3)], ids=["receive", "task"]
)
async def test_an_answer_is_waited_for_as_long_as_is_set_for_its_type(
    home: Path, kind: str, seconds: float, caplog: pytest.LogCaptureFixture
) -> None:
    impatient = settings(mail={"receive_seconds": 0.2, "task_seconds": 0.3})
    async with running_daemon(impatient) as (peer, _), wrapped("codex") as agent:
        message_id = await send(peer, "codex", "hi", type=kind)
        await agent.next()
        waited = await peer.ask("mail.wait", message_id=message_id)
        assert (waited["outcome"], waited["timeout_seconds"], waited["agent_id"]) == (
            *("timeout", seconds, "codex"),
        )
        assert await _said(caplog, f"{message_id} is not answered after {seconds:g} s")


@pytest.mark.requirement("O-90", "O-92", "O-31")
async def test_who_cannot_be_reached_is_tried_six_times_and_then_that_is_told(home: Path) -> None:
    clock = Clock()
    async with running_daemon(clock=clock) as (peer, daemon), wrapped("codex") as agent:
        agent.is_broken = True
        message_id = await send(peer, "codex", "", type="ping")

        async def tried() -> Any:
            [delivery] = (await peer.ask("mail.trace", message_id=message_id))["deliveries"]
            is_free = delivery["leased_until"] is None
            return delivery if delivery["attempt"] == attempt and is_free else None

        for attempt in range(1, 7):
            delivery = await until(tried, SECONDS)
            if attempt < 6:
                assert delivery["state"] == "queued"
                clock.advance(2 ** (attempt - 1))
                daemon.post.wake("codex")
        await reaches(peer, message_id, S.DEAD)
        assert "does not answer" in await reason(peer, message_id)
        [dead] = await peer.ask("mail.dead_letters")
        assert dead["message"]["id"] == message_id
        agent.is_broken = False
        await peer.ask("mail.requeue", message_id=message_id)
        await reaches(peer, message_id, S.ANSWERED)


# ------------------------------------------------------------------------------------------ the log


@pytest.mark.requirement("O-121")
@pytest.mark.parametrize("level", ["debug", "info", "warning", "error"])
async def test_each_level_of_the_log_tells_what_it_is_for(
    home: Path, level: str, here: House
) -> None:
    said = await _live(here, level)
    expected = {
        "debug": ("says: a word in the log", "is seen for talker"),
        "info": ("user → talker: task_request",),
        "warning": ("the connection with the wrapper of talker is lost", "is not answered after"),
        "error": ("is failed: the agent ended",),
    }
    levels = list(expected)
    for each, words in expected.items():
        is_told = levels.index(each) >= levels.index(level)
        for word in words:
            assert (word in said) is is_told, (each, word)


async def _live(here: House, level: str) -> str:
    """Have a daemon at a level see a message answered, one that is not, and an agent that dies."""
    here.daemon.terminate()
    await asyncio.to_thread(here.daemon.wait, SECONDS)
    log = here.home / ".local/state/bullpen/bullpen.log"
    log.unlink(missing_ok=True)
    here.environment["BULLPEN_LOG"] = level
    await here.start_daemon()
    del here.environment["BULLPEN_LOG"]
    agent = await here.agent("talker")
    answered = await send(here.peer, agent.name, "a word in the log")
    await here.becomes(answered, "answered")
    never = await send(here.peer, agent.name, "never work=go")
    await here.becomes(never, "seen")
    await here.peer.ask("mail.wait", message_id=never, timeout_seconds=0.1)
    await agent.end()
    await here.becomes(never, "failed")
    here.daemon.terminate()
    await asyncio.to_thread(here.daemon.wait, SECONDS)
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    return "\n".join(json.loads(line)["event"] for line in lines)
