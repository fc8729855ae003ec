"""Agents elsewhere, and others of this machine, are written to like any other."""

import asyncio
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bullpen.api.client import Client
from bullpen.api.runtime import Paths
from bullpen.api.talk import TaskChanged, TaskOutput, WatchTasks
from bullpen.daemon.doors.external import ExternalDoor
from bullpen.daemon.elsewhere import Elsewhere
from bullpen.model.deliveries import Delivery, ReceiptState
from bullpen.model.messages import Message, MessageType
from bullpen.testing.a2a_agent import FakeA2AAgent
from tests.daemon.harness import Peer, RefusedError, running_daemon, until
from tests.daemon.wrapping import wrapped

SECONDS = 40.0
DIALECTS = ["seed", "0.3", "1.0"]


async def send(peer: Peer, to: str, content: str = "hi", **more: Any) -> str:
    reply = await peer.ask("mail.send", to=to, content=content, **more)
    return str(reply["message"]["id"])


async def answer(peer: Peer, message_id: str) -> Any:
    """Return what became of waiting for the answer to a message."""

    async def look() -> Any:
        waited = await peer.ask("mail.wait", message_id=message_id, timeout_seconds=1.0)
        return waited if waited["outcome"] != "timeout" else None

    return await until(look, SECONDS)


async def contact(peer: Peer, name: str) -> dict[str, Any] | None:
    contacts = await peer.ask("agent.contacts")
    return next((each for each in contacts if each["name"] == name), None)


async def state_of(peer: Peer, message_id: str) -> str:
    return str((await peer.ask("task.get", task_id=message_id))["state"])


def enter(home: Path, agent: FakeA2AAgent, kind: str, **more: Any) -> None:
    """Enter an agent where those of this machine do, as Synapse would."""
    directory = home / ".a2a/registry"
    directory.mkdir(parents=True, exist_ok=True)
    name = f"synapse-{kind}-{agent.port}"
    entry = {
        "agent_id": name,
        "agent_type": kind,
        "port": agent.port,
        "status": "READY",
        "pid": os.getpid(),
        "working_dir": "/somewhere",
        "endpoint": f"http://localhost:{agent.port}",
        "uds_path": "/nowhere",
        **more,
    }
    (directory / f"{name}.json").write_text(json.dumps(entry))


@pytest.mark.requirement("door:external", "S-05", "S-122", "S-130", "S-151")
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_message_to_an_agent_elsewhere_is_answered_and_every_step_is_known(
    dialect: str, home: Path
) -> None:
    async with FakeA2AAgent(dialect, is_automatic=False) as agent, running_daemon() as (peer, _):
        added = await peer.ask("external.discover", url=agent.url, alias="Echo")
        assert added["alias"] == "echo"
        found = await contact(peer, "echo")
        assert found is not None
        assert (found["is_present"], found["doors"], found["provider"]) == (True, ["own"], "other")
        assert (found["endpoint"], found["status"]) == (agent.url, "IDLE")
        message_id = await send(peer, "Echo", "look at this")
        await until(lambda: _sent(agent))
        assert agent.texts == ["look at this"]
        agent.work(agent.last)
        await until(lambda: _is(peer, message_id, "working"))
        found = await contact(peer, "echo")
        assert found is not None
        assert (found["status"], found["working_on"]) == ("BUSY", message_id)
        agent.complete(agent.last, "one", "two")
        waited = await answer(peer, message_id)
        assert (waited["outcome"], waited["reply"]["content"]) == ("reached", "one\ntwo")
        trace = await peer.ask("mail.trace", message_id=message_id)
        steps = [each["state"] for each in trace["receipts"]]
        assert steps == ["accepted", "queued", "injected", "submitted", "seen", "answered"]
        evidence = trace["receipts"][2]["evidence"]
        assert (evidence["by"], evidence["data"]) == ("a2a", {"turn_id": agent.last})
        kept = json.loads((home / ".a2a/external/echo.json").read_text())
        assert kept["last_seen"]
        assert len(agent.sent) == 1


@pytest.mark.requirement("door:external", "S-150")
async def test_an_agent_that_only_starts_may_yet_turn_out_to_be_ours(home: Path) -> None:
    async with FakeA2AAgent("seed") as one, FakeA2AAgent("seed") as two:
        enter(home, one, "gemini", status="STARTING")
        enter(home, two, "codex")
        async with running_daemon() as (peer, _):
            assert await contact(peer, f"codex-{two.port}") is not None
            assert await contact(peer, f"gemini-{one.port}") is None
            enter(home, one, "gemini")
            await until(lambda: contact(peer, f"gemini-{one.port}"))


@pytest.mark.requirement("door:external", "S-04", "S-48", "S-150")
async def test_an_agent_of_this_machine_goes_before_one_elsewhere_of_the_same_name(
    home: Path,
) -> None:
    async with (
        FakeA2AAgent("seed") as local,
        FakeA2AAgent("seed") as second,
        FakeA2AAgent("1.0") as other,
    ):
        enter(home, local, "gemini")
        enter(home, second, "codex", name="Helper")
        async with running_daemon() as (peer, _):
            await peer.ask("external.discover", url=other.url, alias="gemini")
            message_id = await send(peer, "gemini", metadata={"priority": "high"})
            waited = await answer(peer, message_id)
            assert waited["reply"]["content"] == "echo: hi"
            assert [each.path for each in local.sent] == ["/tasks/send-priority?priority=4"]
            body = local.sent[0].body
            assert body["message"] == {"role": "user", "parts": [{"type": "text", "text": "hi"}]}
            assert body["metadata"]["sender"] == {"sender_id": "user"}
            assert other.sent == []
            found = await contact(peer, f"gemini-{local.port}")
            assert found is not None
            assert (found["port"], found["pid"]) == (local.port, os.getpid())
            assert found["also"] == [f"synapse-gemini-{local.port}", "gemini"]
            assert await contact(peer, "gemini") is None  # nobody is called so any more
            for name in ("helper", f"codex-{second.port}", f"synapse-codex-{second.port}", "codex"):
                assert (await answer(peer, await send(peer, name)))["outcome"] == "reached"
            assert len(second.sent) == 4


@pytest.mark.requirement("door:external", "S-48")
async def test_an_agent_of_this_machine_is_found_beside_ours_of_its_type_and_of_its_name(
    home: Path,
) -> None:
    async with FakeA2AAgent("seed") as first, FakeA2AAgent("seed") as second:
        enter(home, first, "dummy")
        enter(home, second, "dummy", name="ours")
        async with running_daemon() as (peer, _):
            with pytest.raises(RefusedError) as refused:
                await send(peer, "dummy")
            assert refused.value.reason == "agent_ambiguous"
            assert set(refused.value.data["names"]) == {f"dummy-{first.port}", "ours"}
            async with wrapped("dummy") as dummy, wrapped("ours") as ours:
                for wrapper in (dummy, ours):
                    await send(peer, wrapper.name)
                    assert (await wrapper.next()).text == "hi"
                await until(lambda: contact(peer, f"dummy-{second.port}"), SECONDS)
                for agent in (first, second):
                    waited = await answer(peer, await send(peer, f"dummy-{agent.port}"))
                    assert waited["reply"]["content"] == "echo: hi"
                    assert len(agent.sent) == 1
                found = await contact(peer, "ours")
                assert found is not None
                assert found["is_wrapped"]


@pytest.mark.requirement("S-48")
async def test_the_name_of_an_agent_of_ours_is_no_alias_and_wins_over_one_that_was_there() -> None:
    async with FakeA2AAgent("1.0") as agent, running_daemon() as (peer, _):
        await peer.ask("external.discover", url=agent.url, alias="early")
        async with wrapped("early") as early, wrapped("ours"):
            await send(peer, "early")
            async with asyncio.timeout(SECONDS):
                assert (await early.typed.get()).text == "hi"
            found = await contact(peer, "early")
            assert found is not None
            assert found["is_wrapped"]
            with pytest.raises(RefusedError, match="an agent of ours"):
                await peer.ask("external.discover", url=agent.url, alias="ours")
        assert [each["alias"] for each in await peer.ask("external.list")] == ["early"]
        assert agent.sent == []


@pytest.mark.requirement("door:external")
async def test_what_goes_wrong_elsewhere_is_told_with_the_reason() -> None:
    async with FakeA2AAgent("1.0", is_automatic=False) as agent, running_daemon() as (peer, _):
        await peer.ask("external.discover", url=agent.url, alias="echo")
        message_id = await send(peer, "echo")
        await until(lambda: _sent(agent))
        agent.fail(agent.last, "no such file")
        waited = await answer(peer, message_id)
        assert waited["outcome"] == "ended"
        assert waited["reason"] == "the turn failed: no such file"
        message_id = await send(peer, "echo")
        await until(lambda: _sent(agent, 2))
        agent.forget(agent.last)
        assert "Task not found" in (await answer(peer, message_id))["reason"]
        agent.refuses = (200, {"error": {"code": -32005, "message": "no text, please"}})
        waited = await answer(peer, await send(peer, "echo"))
        assert "no text, please" in waited["reason"]
        assert [each["state"] for each in waited["deliveries"]] == ["dead"]


@pytest.mark.requirement("door:external")
async def test_a_busy_agent_and_one_out_of_reach_get_their_message_later() -> None:
    async with running_daemon() as (peer, _):
        async with FakeA2AAgent("seed") as agent:
            await peer.ask("external.discover", url=agent.url, alias="echo")
            agent.refuses = (409, {"detail": "Agent already has a working task"})
            first = await send(peer, "echo", "one")
            await until(lambda: _holds(peer, "it is busy: Agent already has"))
            agent.refuses = None
            assert (await answer(peer, first))["reply"]["content"] == "echo: one"
        second = await send(peer, "echo", "two")
        await until(lambda: _holds(peer, "does not answer"))
        async with FakeA2AAgent("seed", port=agent.port) as agent:
            assert (await answer(peer, second))["reply"]["content"] == "echo: two"
            assert agent.texts == ["two"]


@pytest.mark.requirement("door:external")
@pytest.mark.parametrize("dialect", ["seed", "1.0"])
async def test_the_next_daemon_takes_up_what_is_under_way(dialect: str) -> None:
    async with FakeA2AAgent(dialect, is_automatic=False) as agent:
        async with running_daemon() as (peer, _):
            await peer.ask("external.discover", url=agent.url, alias="echo")
            message_id = await send(peer, "echo")
            await until(lambda: _sent(agent))
            await until(lambda: _has_step(peer, message_id, "submitted"))
        agent.complete(agent.last, "while you were away")
        async with running_daemon() as (peer, _):
            waited = await answer(peer, message_id)
            assert waited["reply"]["content"] == "while you were away"
        assert len(agent.sent) == 1


@pytest.mark.requirement("door:external")
async def test_of_what_may_have_arrived_it_is_not_said_that_it_is_being_handed_over() -> None:
    async with FakeA2AAgent("1.0") as agent, running_daemon() as (peer, _):
        await peer.ask("external.discover", url=agent.url, alias="echo")
        agent.refuses = (200, "what?")  # it has it, or not
        message_id = await send(peer, "echo")

        async def is_unsure() -> bool:
            waited = await peer.ask("mail.wait", message_id=message_id, timeout_seconds=0.1)
            return bool(waited["reason"] == "it may have arrived, and nothing shows that yet")

        await until(is_unsure, SECONDS)
        assert len(agent.sent) == 1


@pytest.mark.requirement("door:external", "S-123")
async def test_a_task_that_is_cancelled_here_is_cancelled_there() -> None:
    async with FakeA2AAgent("0.3", is_automatic=False) as agent, running_daemon() as (peer, _):
        await peer.ask("external.discover", url=agent.url, alias="echo")
        message_id = await send(peer, "echo")
        await until(lambda: _has_step(peer, message_id, "submitted"))
        task = await peer.ask("task.cancel", task_id=message_id)
        assert task["state"] == "canceled"
        assert agent.tasks[agent.last]["state"] == "canceled"
        agent.is_automatic = True
        assert (await answer(peer, await send(peer, "echo")))["outcome"] == "reached"


@pytest.mark.requirement("door:external", "S-123")
async def test_what_is_cancelled_while_it_is_handed_over_is_cancelled_there_too() -> None:
    async with FakeA2AAgent("1.0", is_automatic=False) as agent, running_daemon() as (peer, _):
        await peer.ask("external.discover", url=agent.url, alias="echo")
        agent.lets_wait = asyncio.Event()
        first = await send(peer, "echo", "one")
        await until(lambda: _sent(agent))
        assert (await peer.ask("task.cancel", task_id=first))["state"] == "canceled"
        second = await send(peer, "echo", "two")
        cancelled = agent.last
        agent.lets_wait.set()

        async def is_cancelled() -> bool:
            return bool(agent.tasks[cancelled]["state"] == "canceled")

        await until(is_cancelled)
        await until(lambda: _has_step(peer, second, "submitted"))
        assert agent.last != cancelled
        agent.work(agent.last)
        await until(lambda: _has_step(peer, second, "seen"))
        agent.complete(agent.last, "to the second")
        assert (await answer(peer, second))["reply"]["content"] == "to the second"
        assert await state_of(peer, first) == "canceled"


@pytest.mark.requirement("door:external")
async def test_a_question_is_the_answer_and_what_is_said_to_it_goes_into_the_same_task() -> None:
    async with FakeA2AAgent("1.0", is_automatic=False) as agent, running_daemon() as (peer, _):
        await peer.ask("external.discover", url=agent.url, alias="echo")
        first = await send(peer, "echo", "mend it")
        await until(lambda: _sent(agent))
        agent.require(agent.last, "which file?")
        waited = await answer(peer, first)
        assert waited["reply"]["content"] == "which file?"
        second = await send(peer, "echo", "that one", reply_to=waited["reply"]["id"])
        await until(lambda: _sent(agent, 2))
        message = agent.sent[1].body["params"]["message"]
        assert (message["taskId"], message["contextId"]) == (agent.last, "context-1")
        agent.complete(agent.last, "mended")
        assert (await answer(peer, second))["reply"]["content"] == "mended"
        agent.is_automatic = True
        third = await send(peer, "echo", "thanks", reply_to=second)
        assert (await answer(peer, third))["outcome"] == "reached"
        message = agent.sent[2].body["params"]["message"]
        assert "taskId" not in message
        assert message["contextId"] == "context-1"


@pytest.mark.requirement("door:external")
@pytest.mark.parametrize("has_forgotten", [False, True], ids=["known", "forgotten"])
async def test_what_is_said_to_a_question_goes_into_the_same_task_also_after_a_restart(
    has_forgotten: bool,
) -> None:
    async with FakeA2AAgent("1.0", is_automatic=False) as agent:
        async with running_daemon() as (peer, _):
            await peer.ask("external.discover", url=agent.url, alias="echo")
            first = await send(peer, "echo", "mend it")
            await until(lambda: _sent(agent))
            agent.require(agent.last, "which file?")
            asked = (await answer(peer, first))["reply"]["id"]
            task_id = agent.last
        if has_forgotten:
            agent.forget(task_id)
        async with running_daemon() as (peer, _):
            second = await send(peer, "Echo", "that one", reply_to=asked)
            await until(lambda: _sent(agent, 2))
            message = agent.sent[1].body["params"]["message"]
            if not has_forgotten:
                assert (message["taskId"], message["contextId"]) == (task_id, "context-1")
            agent.complete(agent.last, "mended")
            assert (await answer(peer, second))["reply"]["content"] == "mended"


async def test_what_an_agent_says_on_the_way_is_told_to_who_watches() -> None:
    async with (
        FakeA2AAgent("1.0", is_automatic=False, streams=True) as agent,
        running_daemon() as (peer, _),
        Client.connect(Paths.resolve(), start=False) as client,
    ):
        said: list[str] = []
        has_said = asyncio.Event()

        def hear(told: TaskChanged | TaskOutput) -> None:
            if isinstance(told, TaskOutput):
                said.append(told.text)
                has_said.set()

        client.on_task(hear)
        await peer.ask("external.discover", url=agent.url, alias="echo")
        message_id = await send(peer, "echo")
        await client.request(WatchTasks(task_ids=(message_id,)))
        await until(lambda: _sent(agent))
        await until(lambda: _is_followed(agent))
        agent.work(agent.last)
        for word in ("one", " two"):
            has_said.clear()
            agent.say(agent.last, word)
            async with asyncio.timeout(SECONDS):
                await has_said.wait()
        agent.complete(agent.last)
        assert (await answer(peer, message_id))["reply"]["content"] == "one two"
        assert said == ["one", " two"]


async def test_what_is_for_everybody_does_not_leave_the_room() -> None:
    async with FakeA2AAgent("seed") as agent, running_daemon() as (peer, _):
        await peer.ask("external.discover", url=agent.url, alias="echo")
        with pytest.raises(RefusedError):
            await send(peer, "*")
        assert agent.sent == []


@pytest.mark.requirement("S-98", "S-99", "S-124")
async def test_agents_are_added_listed_and_removed_by_requests() -> None:
    async with FakeA2AAgent("seed") as agent, running_daemon() as (peer, _):
        added = await peer.ask("external.discover", url=agent.url)
        assert (added["alias"], added["name"], added["url"]) == (
            "echo-agent",
            "Echo Agent",
            agent.url,
        )
        assert await peer.ask("external.list") == [added]
        assert await peer.ask("external.remove", alias="echo-agent")
        assert not await peer.ask("external.remove", alias="echo-agent")
        assert await contact(peer, "echo-agent") is None
        with pytest.raises(RefusedError) as refused:
            await send(peer, "echo-agent")
        assert refused.value.reason == "agent_not_found"
        with pytest.raises(RefusedError) as refused:
            await peer.ask("external.discover", url=f"{agent.url}/nothing/here")
        assert refused.value.reason == "agent_unreachable"
        with pytest.raises(RefusedError) as refused:
            await peer.ask("external.discover", url=agent.url, alias="../../x")
        assert refused.value.reason == "invalid_message"


# ------------------------------------------------------------------------------------- conditions


async def _sent(agent: FakeA2AAgent, count: int = 1) -> bool:
    return len(agent.sent) >= count and len(agent.tasks) >= 1


async def _is_followed(agent: FakeA2AAgent) -> bool:
    return bool(agent._streams.get(agent.last))


async def _is(peer: Peer, message_id: str, state: str) -> bool:
    return await state_of(peer, message_id) == state


async def _holds(peer: Peer, words: str) -> bool:
    found = await contact(peer, "echo")
    return found is not None and words in found["holding"]


async def _has_step(peer: Peer, message_id: str, state: str) -> bool:
    trace = await peer.ask("mail.trace", message_id=message_id)
    return state in [each["state"] for each in trace["receipts"]]


async def test_what_is_taken_at_the_very_end_is_left_to_the_next_daemon(home: Path) -> None:
    now = datetime.now(UTC)
    message = Message(
        id="m-1",
        from_agent="user",
        to_agent="echo",
        type=MessageType.TASK_REQUEST,
        content="hi",
        timestamp=now,
    )
    delivery = Delivery(
        number=1,
        message=message,
        recipient="echo",
        state=ReceiptState.SUBMITTED,
        accepted_at=now,
        available_at=now,
        expires_at=None,
        size=2,
    )
    told: list[object] = []

    async def tell(*about: object) -> str:
        told.append(about)
        return ""

    door = ExternalDoor(
        Elsewhere(Paths.resolve(), lambda: now),
        is_ours=lambda _: False,
        on_turn=lambda *about: told.append(about),
        on_step=tell,  # type: ignore[arg-type]  # whatever it returns
        on_output=lambda *about: told.append(about),
        on_change=lambda _: None,
        thread_of=tell,
        task_before=tell,
    )
    await door.aclose()
    door.take_up(delivery, "t-1")  # and no task is left behind
    await asyncio.sleep(0)
    assert told == []
