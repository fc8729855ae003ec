"""Messages through the daemon's socket: kept, handed over, answered, and the truth about each."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bullpen.api import talk
from bullpen.api.wrapping import InjectReply
from bullpen.connection import Connection, SocketTransport
from bullpen.model.deliveries import ReceiptState
from bullpen.model.states import Activity
from bullpen.model.tasks import TaskState
from bullpen.model.turns import Turn, Utterance
from tests.daemon.harness import Clock, Peer, RefusedError, event, running_daemon, settings, until
from tests.daemon.wrapping import wrapped

S = ReceiptState


async def send(peer: Peer, to: str, content: str, **more: Any) -> str:
    sent = await peer.ask("mail.send", to=to, content=content, **more)
    return str(sent["message"]["id"])


async def state(peer: Peer, message_id: str) -> str:
    trace = await peer.ask("mail.trace", message_id=message_id)
    return str(trace["deliveries"][0]["state"])


async def reaches(peer: Peer, message_id: str, wanted: S) -> None:
    async def look() -> bool:
        return await state(peer, message_id) == wanted

    await until(look, 20.0)


async def history(peer: Peer, message_id: str) -> list[str]:
    trace = await peer.ask("mail.trace", message_id=message_id)
    return [each["state"] for each in trace["receipts"]]


@pytest.mark.requirement("O-60", "O-28", "S-151", "talk:receipts")
async def test_a_message_is_typed_seen_and_answered_and_every_step_is_told(home: Path) -> None:
    async with running_daemon() as (peer, _), wrapped("codex") as agent:
        message_id = await send(peer, "codex", "review this")
        typed = await agent.next()
        assert (typed.sender, typed.text) == ("user", "review this")
        assert await peer.ask("mail.wait", message_id=message_id, timeout_seconds=0) == {
            "outcome": "timeout",
            "deliveries": (await peer.ask("mail.trace", message_id=message_id))["deliveries"],
            "reply": None,
            "replies": [],
            "reason": "it is being handed over",
            "timeout_seconds": 0.0,
            "agent_id": "codex",
        }
        await reaches(peer, message_id, S.SUBMITTED)
        await agent.tell(Activity.RUNNING)
        await agent.step(typed, S.SEEN)
        await reaches(peer, message_id, S.SEEN)
        await agent.tell(Activity.IDLE)
        await agent.answer(typed, "it is fine")
        waited = await peer.ask("mail.wait", message_id=message_id, timeout_seconds=10)
        assert waited["outcome"] == "reached"
        assert waited["reply"]["content"] == "it is fine"
        assert waited["reply"]["reply_to"] == message_id
        assert await history(peer, message_id) == [
            *("accepted", "queued", "injected", "submitted", "seen", "answered"),
        ]
        [mine] = (await peer.ask("mail.inbox", take=True))["deliveries"]
        assert mine["message"]["content"] == "it is fine"
        assert (await peer.ask("mail.inbox"))["deliveries"] == []


@pytest.mark.requirement("talk:queue")
async def test_a_busy_agent_gets_its_messages_one_after_the_other(home: Path) -> None:
    async with running_daemon() as (peer, _), wrapped("codex") as agent:
        await agent.tell(Activity.RUNNING)
        await until(lambda: _is_running(peer, "codex"))
        first = await send(peer, "codex", "one")
        second = await send(peer, "codex", "two")
        high = await send(peer, "codex", "three", metadata={"priority": "high"})
        positions = [
            (await peer.ask("mail.trace", message_id=each))["positions"]["codex"]
            for each in (first, second, high)
        ]
        assert positions == [2, 3, 1]
        await until(lambda: _holds(peer, "codex", "the agent is working"))
        await agent.tell(Activity.IDLE)
        for text in ("three", "one", "two"):
            typed = await agent.next()
            assert typed.text == text
            assert agent.typed.empty()
            await agent.step(typed, S.SEEN)
            await agent.answer(typed, text.upper())
        await reaches(peer, second, S.ANSWERED)


async def _holds(peer: Peer, name: str, *words: str) -> bool:
    [contact] = [each for each in await peer.ask("agent.contacts") if each["name"] == name]
    return contact["holding"] in words


@pytest.mark.requirement("S-153", "talk:urgent")
async def test_an_urgent_message_interrupts_and_no_other_does(home: Path) -> None:
    async with running_daemon() as (peer, _), wrapped("codex") as agent:
        await agent.tell(Activity.RUNNING)
        await until(lambda: _is_running(peer, "codex"))
        await send(peer, "codex", "later", metadata={"priority": "high"})
        await send(peer, "codex", "now", metadata={"priority": "urgent"})
        typed = await agent.next()
        assert (typed.text, typed.interrupts, agent.interrupts) == ("now", True, 1)


async def _is_running(peer: Peer, name: str) -> bool:
    [contact] = [each for each in await peer.ask("agent.contacts") if each["name"] == name]
    return bool(contact["activity"] == "running")


@pytest.mark.requirement("talk:draft")
@pytest.mark.parametrize(
    ("activity", "prompt", "why"),
    [
        (Activity.IDLE, "draft", "a draft is in the prompt box"),
        (Activity.WAITING_APPROVAL, "absent", "the agent waits for an approval"),
        (Activity.STARTING, "absent", "the agent is starting"),
    ],
    ids=["draft", "dialog", "starting"],
)
async def test_what_must_not_be_typed_into_is_not(
    home: Path, activity: Activity, prompt: str, why: str
) -> None:
    async with running_daemon() as (peer, _), wrapped("codex") as agent:
        await agent.tell(activity, is_ready=False, prompt=prompt)
        message_id = await send(peer, "codex", "hello", metadata={"priority": "urgent"})

        async def held() -> bool:
            trace = await peer.ask("mail.trace", message_id=message_id)
            return bool(trace["holding"]["codex"] == why)

        await until(held)
        assert agent.typed.empty()
        assert agent.interrupts == 0
        await agent.tell(Activity.IDLE)
        assert (await agent.next()).text == "hello"


@pytest.mark.requirement("talk:restart", "O-92")
async def test_what_may_have_arrived_is_not_typed_again(home: Path) -> None:
    async with running_daemon() as (peer, _), wrapped("codex") as agent:
        agent.replies.append(InjectReply(outcome="unsure", reason="nothing shows it"))
        message_id = await send(peer, "codex", "hello")
        typed = await agent.next()
        await reaches(peer, message_id, S.INJECTED)
        await agent.step(typed, S.SEEN)  # after all
        await reaches(peer, message_id, S.SEEN)
        assert agent.typed.empty()
        assert "nothing shows it" in str(await peer.ask("mail.trace", message_id=message_id))


@pytest.mark.requirement("talk:retry")
async def test_what_was_not_typed_is_tried_when_the_agent_is_ready(home: Path) -> None:
    async with running_daemon() as (peer, _), wrapped("codex") as agent:
        agent.replies += [InjectReply(outcome="not_ready", reason="a dialog is open")] * 8
        message_id = await send(peer, "codex", "hello")
        for _ in range(8):  # more often than what fails is tried
            await agent.next()
            await agent.tell(Activity.IDLE)
        typed = await agent.next()
        await agent.answer(typed, "hi")
        await reaches(peer, message_id, S.ANSWERED)
        assert "dead" not in await history(peer, message_id)


@pytest.mark.requirement("talk:ended")
async def test_the_sender_is_told_when_the_agent_ends_without_answering(home: Path) -> None:
    async with running_daemon() as (peer, _), wrapped("codex") as agent:
        message_id = await send(peer, "codex", "hello")
        typed = await agent.next()
        await agent.step(typed, S.SEEN)
        await reaches(peer, message_id, S.SEEN)
        await agent.end()
        waited = await peer.ask("mail.wait", message_id=message_id, timeout_seconds=10)
        assert (waited["outcome"], waited["reason"]) == (
            "ended",
            "the agent ended without answering",
        )
        assert waited["reply"]["type"] == "task_failed"
        later = await send(peer, "codex", "are you there?")
        assert await state(peer, later) == S.QUEUED
        async with wrapped("codex") as again:
            assert (await again.next()).text == "are you there?"


@pytest.mark.requirement("talk:ended", "talk:names")
async def test_what_is_for_an_agent_that_ended_does_not_go_to_another_of_its_kind(
    home: Path,
) -> None:
    async with running_daemon() as (peer, _):
        await peer.hello("codex_appserver")
        await peer.ingest(
            event("turn.started", kind="codex_appserver", provider="codex", session="codex:one")
        )

        async def is_seen() -> bool:
            return [*await peer.agents()] == ["codex-1"]

        await until(is_seen)
        async with wrapped("codex") as agent:
            await agent.end()
        sent = await peer.ask("mail.send", to="codex", content="are you there?")
        assert [each["recipient"] for each in sent["deliveries"]] == ["codex"]
        async with wrapped("codex") as again:
            assert (await again.next()).text == "are you there?"


@pytest.mark.requirement("talk:failure")
@pytest.mark.parametrize(
    ("how", "text", "reason"),
    [
        ("error", "API Error: 500", "the turn failed: API Error: 500"),
        ("rate_limit", "limit reached", "the agent has reached its usage limit: limit reached"),
        ("interrupted", "", "the turn was interrupted"),
    ],
    ids=str,
)
async def test_what_is_no_answer_fails_with_its_reason(
    home: Path, how: str, text: str, reason: str
) -> None:
    async with running_daemon() as (peer, _), wrapped("codex") as agent:
        message_id = await send(peer, "codex", "hello")
        typed = await agent.next()
        await agent.step(typed, S.SEEN)
        await reaches(peer, message_id, S.SEEN)
        await agent.answer(typed, text, is_ok=False, how=how)
        await reaches(peer, message_id, S.FAILED)
        task = await peer.ask("task.get", task_id=message_id)
        assert (task["state"], task["reason"]) == ("failed", reason)


@pytest.mark.requirement("talk:identity")
async def test_who_holds_the_secret_is_the_sender_whatever_he_says(home: Path) -> None:
    async with running_daemon() as (peer, _), wrapped("alice") as alice, wrapped("bob") as bob:
        assert await peer.ask("agent.whoami", secret=alice.secret) == {
            "name": "alice",
            "authority": "peer",
        }
        assert (await peer.ask("agent.whoami"))["authority"] == "human"
        await peer.ask(
            "mail.send",
            to="bob",
            content="hi",
            secret=alice.secret,
            metadata={"from": "user"},
            **{"from": "user"},
        )
        typed = await bob.next()
        assert typed.sender == "alice"
        reply = await peer.ask("mail.reply", content="hello alice", secret=bob.secret)
        assert reply["message"]["to"] == "alice"
        assert (await alice.next()).text == "hello alice"


@pytest.mark.requirement("talk:secrets")
async def test_a_secret_that_is_nobodys_here_is_refused(home: Path) -> None:
    async with running_daemon() as (peer, _), wrapped("alice") as alice:
        for secret, reason in (
            ("bp_00000000_else", "identity_foreign"),
            (alice.secret[:-2] + "??", "identity_unknown"),
            ("nonsense", "identity_unknown"),
        ):
            with pytest.raises(RefusedError) as refused:
                await peer.ask("mail.send", to="user", content="hi", secret=secret)
            assert refused.value.reason == reason
        await alice.end()
        with pytest.raises(RefusedError) as refused:
            await peer.ask("mail.send", to="user", content="hi", secret=alice.secret)
        assert refused.value.reason == "identity_expired"
        assert alice.secret not in refused.value.args[0]


@pytest.mark.requirement("O-103", "O-104", "talk:policy")
async def test_the_rules_of_a_team_are_kept(home: Path) -> None:
    config = home / ".config/bullpen"
    config.mkdir(parents=True)
    (config / "policy.toml").write_text(
        'boss = "grand_boss"\n[agents.specialist]\npeers = ["manager"]\n'
    )
    async with (
        running_daemon() as (peer, _),
        wrapped("grand_boss") as boss,
        wrapped("manager"),
        wrapped("specialist") as specialist,
    ):

        async def refusal(to: str, secret: str = "") -> str:
            with pytest.raises(RefusedError) as refused:
                await peer.ask("mail.send", to=to, content="hi", secret=secret)
            return str(refused.value.reason)

        assert await refusal("user", specialist.secret) == "boss_only"
        assert await refusal("specialist") == "boss_only"
        assert await refusal("grand_boss", specialist.secret) == "recipient_not_allowed"
        await peer.ask("mail.send", to="manager", content="done", secret=specialist.secret)
        await peer.ask("mail.send", to="user", content="done", secret=boss.secret)
        log = [each["entry"] for each in await peer.ask("mail.log")]
        assert sum(not each["success"] for each in log) == 3
        for method, params in (
            ("agent.keys", {"data": "eQ=="}),
            ("agent.stop", {}),
            ("agent.interrupt", {}),
        ):
            with pytest.raises(RefusedError) as refused:
                await peer.ask(method, agent="manager", secret=specialist.secret, **params)
            assert refused.value.reason == "not_permitted"
        for agent in (specialist, boss):
            with pytest.raises(RefusedError) as refused:
                await peer.ask("agent.answer", agent="manager", text="yes", secret=agent.secret)
            assert refused.value.reason == "approval_forbidden"


@pytest.mark.requirement("O-75", "O-110", "O-111", "O-77", "O-30")
async def test_what_cannot_be_sent_is_refused_for_a_reason_and_nothing_is_kept(home: Path) -> None:
    slow = settings(mail={"rate_per_second": 0.001, "rate_burst": 2.0})
    async with running_daemon(slow) as (peer, _), wrapped("codex") as agent:

        async def refusal(**message: Any) -> str:
            with pytest.raises(RefusedError) as refused:
                await peer.ask("mail.send", **{"to": "codex", "content": "x", **message})
            return str(refused.value.reason)

        assert await refusal(to="ghost") == "agent_not_found"
        assert await refusal(content="x" * 2**20) == "message_too_large"
        assert await refusal(thinking="x" * (100 * 2**10 + 1)) == "thinking_too_large"
        assert await refusal(to="#nobody") == "nobody_listens"
        assert await refusal(metadata={"priority": "loud"}) == "invalid_message"
        for _ in range(2):
            await peer.ask("mail.send", to="user", content="x", secret=agent.secret)
        assert await refusal(to="user", secret=agent.secret) == "rate_limited"
        assert agent.typed.empty()
        expired = await send(peer, "codex", "old", metadata={"ttl": 0})
        assert await state(peer, expired) == S.EXPIRED
        [dead] = await peer.ask("mail.dead_letters")
        assert dead["message"]["id"] == expired


@pytest.mark.requirement("talk:restart")
async def test_mail_outlives_the_daemon(home: Path) -> None:
    async with running_daemon() as (peer, _), wrapped("codex") as agent:
        await agent.tell(Activity.RUNNING)
        await until(lambda: _is_running(peer, "codex"))
        waiting = await send(peer, "codex", "one")
        secret = agent.secret
    async with running_daemon() as (peer, _):
        assert await state(peer, waiting) == S.QUEUED
        async with wrapped("", secret=secret) as agent:
            assert agent.name == "codex"
            typed = await agent.next()
            await agent.step(typed, S.SEEN)
            await reaches(peer, waiting, S.SEEN)
    async with running_daemon() as (peer, _), wrapped("", secret=secret) as agent:
        assert agent.typed.empty()
        await agent.answer(typed, "done")
        await reaches(peer, waiting, S.ANSWERED)


@pytest.mark.requirement("talk:completion")
@pytest.mark.parametrize("awaits", [True, False], ids=["awaited", "not-awaited"])
async def test_an_answer_that_is_awaited_comes_in_no_other_way_however_fast_it_is(
    home: Path, awaits: bool
) -> None:
    async with running_daemon() as (peer, _), wrapped("alice") as alice, wrapped("bob") as bob:
        said = talk.SendMessage(to="bob", content="hi", awaits=awaits, secret=alice.secret)
        sent = await alice.connection.request(said, timeout=20)
        await bob.answer(await bob.next(), "here")
        await reaches(peer, sent.message.id, S.ANSWERED)
        wait = talk.WaitMessage(message_id=sent.message.id, take=True, secret=alice.secret)
        if not awaits:
            assert (await alice.next()).text == "here"
            return
        waited = await alice.connection.request(wait, timeout=20)
        assert waited.reply is not None
        assert waited.reply.content == "here"
        assert alice.typed.empty()
        assert await state(peer, waited.reply.id) == S.SEEN


@pytest.mark.requirement("O-26", "O-27")
async def test_a_ping_is_answered_and_a_shutdown_ends_the_agent(home: Path) -> None:
    async with running_daemon() as (peer, _), wrapped("codex") as agent, wrapped("bob") as bob:
        await agent.tell(Activity.RUNNING)  # which is no reason not to answer
        ping = await send(peer, "codex", "", type="ping")
        waited = await peer.ask("mail.wait", message_id=ping, timeout_seconds=10)
        assert (waited["outcome"], waited["reply"]["type"]) == ("reached", "pong")
        with pytest.raises(RefusedError) as refused:
            await peer.ask("mail.send", to="codex", content="", type="shutdown", secret=bob.secret)
        assert refused.value.reason == "not_permitted"
        await send(peer, "codex", "", type="shutdown")
        async with asyncio.timeout(20):
            await agent.stopped.wait()


@pytest.mark.requirement("talk:cancel")
async def test_a_task_can_be_cancelled_while_it_waits_and_while_it_is_worked_on(
    home: Path,
) -> None:
    async with running_daemon() as (peer, _), wrapped("codex") as agent:
        first = await send(peer, "codex", "one")
        second = await send(peer, "codex", "two")
        typed = await agent.next()
        await agent.step(typed, S.SEEN)
        await reaches(peer, first, S.SEEN)
        assert (await peer.ask("task.cancel", task_id=second))["state"] == "canceled"
        assert (await peer.ask("task.cancel", task_id=first))["state"] == "canceled"
        assert agent.interrupts == 1
        with pytest.raises(RefusedError) as refused:
            await peer.ask("task.cancel", task_id=first)
        assert refused.value.reason == "task_over"
        states = {each["id"]: each["state"] for each in await peer.ask("task.list")}
        assert states == {first: "canceled", second: "canceled"}


@pytest.mark.requirement("talk:topics")
async def test_topics_and_everybody(home: Path) -> None:
    async with running_daemon() as (peer, _), wrapped("alice") as alice, wrapped("bob") as bob:
        await peer.ask("mail.subscribe", topic="news", secret=alice.secret)
        assert await peer.ask("mail.subscribe", topic="news", agent="bob") == ["alice", "bob"]
        await peer.ask("mail.send", to="#news", content="hello", secret=alice.secret, type="info")
        assert (await bob.next()).text == "hello"
        assert alice.typed.empty()
        sent = await peer.ask("mail.send", to="*", content="all", type="info")
        assert {each["recipient"] for each in sent["deliveries"]} == {"alice", "bob"}
        assert await peer.ask("mail.topics") == {"news": ["alice", "bob"]}


@pytest.mark.requirement("talk:topics")
async def test_who_waits_for_several_gets_the_answer_of_each(home: Path) -> None:
    async with running_daemon() as (peer, _), wrapped("alice") as alice, wrapped("bob") as bob:
        message_id = await send(peer, "*", "how many?", awaits=True)
        waiting = {"message_id": message_id, "take": True}
        await alice.answer(await alice.next(), "one")
        await reaches(peer, message_id, S.ANSWERED)  # of the first of the two
        waited = await peer.ask("mail.wait", timeout_seconds=0, **waiting)
        assert (waited["outcome"], waited["agent_id"]) == ("timeout", "bob")
        assert [each["content"] for each in waited["replies"]] == ["one"]
        await bob.answer(await bob.next(), "two")
        waited = await peer.ask("mail.wait", timeout_seconds=20, **waiting)
        assert waited["outcome"] == "reached"
        replies = {each["from"]: each["content"] for each in waited["replies"]}
        assert replies == {"alice": "one", "bob": "two"}
        assert waited["reply"]["content"] == "two"
        assert (await peer.ask("mail.inbox"))["deliveries"] == []


@pytest.mark.requirement("O-28")
async def test_a_person_answers_what_he_has_only_looked_at(home: Path) -> None:
    async with running_daemon() as (peer, _), wrapped("alice") as alice, wrapped("bob") as bob:
        first = await send(peer, "user", "may I?", secret=alice.secret)
        assert len((await peer.ask("mail.inbox"))["deliveries"]) == 1
        reply = await peer.ask("mail.reply", content="yes")
        assert (reply["message"]["to"], reply["message"]["reply_to"]) == ("alice", first)
        assert (await alice.next()).text == "yes"
        assert (await peer.ask("mail.inbox"))["deliveries"] == []
        second = await send(peer, "user", "and I?", secret=bob.secret)
        third = await send(peer, "user", "may I again?", secret=alice.secret)
        with pytest.raises(RefusedError, match=f"{third} of alice or {second} of bob"):
            await peer.ask("mail.reply", content="no")
        await peer.ask("mail.reply", content="no", to_message=second)
        assert (await bob.next()).text == "no"
        assert (await peer.ask("mail.reply", content="yes"))["message"]["reply_to"] == third


@pytest.mark.requirement("O-101")
async def test_nobody_is_asked_nothing(home: Path) -> None:
    async with running_daemon() as (peer, _), wrapped("alice") as alice:
        for nothing in ("", " \n\t "):
            with pytest.raises(RefusedError, match="nothing in it to say"):
                await peer.ask("mail.send", to="alice", content=nothing)
        await peer.ask("mail.send", to="alice", content="", type="ping")
        assert alice.typed.empty()


@pytest.mark.requirement("talk:loop")
async def test_two_that_echo_each_other_are_cut(home: Path) -> None:
    async with running_daemon() as (peer, _), wrapped("alice") as alice, wrapped("bob") as bob:
        await peer.ask("mail.send", to="bob", content="hi", secret=alice.secret, type="info")
        agents = {"bob": (bob, "alice"), "alice": (alice, "bob")}
        reason, name = "", "bob"
        for _ in range(40):
            agent, other = agents[name]
            await agent.next()
            try:
                await peer.ask("mail.send", to=other, content="hi", secret=agent.secret)
            except RefusedError as refused:
                reason = refused.reason
                break
            name = other
        assert reason in ("message_loop", "too_many_hops")


@pytest.mark.requirement("talk:names")
async def test_a_wrapped_agent_is_seen_under_its_name(home: Path) -> None:
    async with running_daemon() as (peer, _), wrapped("helper") as agent:

        async def seen() -> Any:
            return (await peer.agents()).get("helper")

        shown = await until(seen)
        assert (shown["activity"], shown["source"]) == ("idle", "pty")
        async with wrapped("helper") as second, wrapped("Helper") as third:
            assert second.name == "helper-2"
            assert third.name == "Helper-3"
        await agent.tell(Activity.WAITING_APPROVAL, is_ready=False)

        async def waits() -> Any:
            return (await peer.agents())["helper"]["activity"] == "waiting_approval"

        await until(waits)
        await agent.end()

        async def gone() -> Any:
            return "helper" not in await peer.agents()

        await until(gone)


@pytest.mark.requirement("talk:expire")
async def test_what_is_too_old_is_told_to_its_sender(home: Path) -> None:
    clock = Clock()
    async with running_daemon(clock=clock) as (peer, _), wrapped("codex") as agent:
        await agent.tell(Activity.RUNNING)
        await until(lambda: _is_running(peer, "codex"))
        message_id = await send(peer, "codex", "hi", metadata={"ttl": 30})
        clock.advance(31)
        waited = await peer.ask("mail.wait", message_id=message_id, timeout_seconds=20)
        assert waited["outcome"] == "ended"
        assert "expired" in waited["reason"]
        assert await state(peer, message_id) == S.EXPIRED


@pytest.mark.requirement("talk:watch")
async def test_who_watches_a_task_is_told_of_everything_that_becomes_of_it(home: Path) -> None:
    async with running_daemon() as (peer, daemon), wrapped("codex") as agent:
        told: list[Any] = []
        builder = (
            Connection.builder()
            .on_notification(talk.TaskChanged, lambda it, _: told.append(it.task))
            .on_notification(talk.TaskOutput, lambda it, _: told.append(it.text))
        )
        async with builder.connect(SocketTransport.unix(str(peer.path))) as watcher:
            sent = await watcher.request(talk.SendMessage(to="codex", content="do it"), timeout=20)
            task_id = sent.message.id
            await watcher.request(talk.WatchTasks(task_ids=(task_id[:10],)), timeout=20)
            typed = await agent.next()
            await agent.step(typed, S.SEEN)

            async def shown(look: Any) -> Any:
                async def found() -> Any:
                    return look(told)

                return await until(found, 20.0)

            await shown(lambda it: it and it[-1].state is TaskState.WORKING)
            await agent.tell(Activity.WAITING_APPROVAL, is_ready=False)
            await shown(lambda it: it[-1].state is TaskState.INPUT_REQUIRED)
            daemon.post.hear("codex", Turn(by="codex_hooks", prompt="do it", turn_id="t-2"))
            other = Utterance(text="for somebody else", turn_id="t-1", is_new=True)
            daemon.post.hear_said("codex", other)
            assert daemon.post.sayings.so_far(task_id) is None
            own = Utterance(text="half of it", turn_id="t-2", is_new=True)
            daemon.post.hear_said("codex", own)
            await shown(lambda it: "half of it" in it)
            await agent.answer(typed, "an answer")
            await shown(lambda it: it[-1] != "half of it" and it[-1].text == "an answer")
            await watcher.request(talk.WatchTasks(task_ids=(task_id,), watch=False), timeout=20)
