"""The seed's dialect, spoken from outside: shapes, codes, and the order in which they come."""

import asyncio
import re
from typing import Any

import pytest

from bullpen.api.wrapping import Said
from bullpen.model.deliveries import ReceiptState
from bullpen.model.states import Activity
from tests.daemon.harness import until
from tests.daemon.wrapping import ScriptedWrapper, wrapped
from tests.servers.a2a.house import SECONDS, Web, linux_only, served

pytestmark = linux_only  # elsewhere a token is needed

STATES = {"submitted", "working", "input_required", "completed", "failed", "canceled"}
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


def text(*parts: str) -> dict[str, Any]:
    return {"message": {"role": "user", "parts": [{"type": "text", "text": p} for p in parts]}}


async def answer_next(agent: ScriptedWrapper, words: str) -> None:
    asked = await agent.next()
    await agent.step(asked, ReceiptState.SEEN)
    await agent.answer(asked, words)


async def over(web: Web, task_id: str) -> dict[str, Any]:
    async def look() -> dict[str, Any] | None:
        found = (await web.get(f"/tasks/{task_id}")).body
        assert found["status"] in STATES
        return found if found["status"] in ("completed", "failed", "canceled") else None

    found: dict[str, Any] = await until(look, SECONDS)
    return found


@pytest.mark.requirement("S-90", "S-91", "S-97", "S-154", "A1.12-d")
async def test_a_plain_message_is_a_task_at_every_door() -> None:
    async with served() as house, wrapped("codex") as agent:
        web = house.web.at("codex")
        sent = await web.post("/message", {"content": "hello", "priority": 1})
        task_id = sent.body["task_id"]
        assert (sent.status, sent.body) == (
            200,
            {"status": "sent", "priority": 1, "task_id": task_id},
        )
        assert (await web.get(f"/tasks/{task_id}")).body["status"] == "working"
        asked = await agent.next()
        assert (asked.text, asked.sender) == ("hello", "a2a")
        await agent.step(asked, ReceiptState.SEEN)
        await agent.answer(asked, "[DUMMY] You said: hello")
        found = await over(web, task_id)
        assert found["status"] == "completed"
        assert found["artifacts"] == [{"type": "text", "data": "[DUMMY] You said: hello"}]
        # Not a store of tasks of its own: the daemon's other doors know it.
        kept = await house.peer.ask("task.get", task_id=task_id)
        assert (kept["state"], kept["sender"]) == ("completed", "a2a")
        steps = (await house.peer.ask("mail.trace", message_id=task_id))["receipts"]
        assert (steps[0]["state"], steps[-1]["state"]) == ("accepted", "answered")


@pytest.mark.requirement("S-94", "S-96", "S-105", "S-106", "S-150", "S-151", "S-152")
async def test_a_task_is_answered_at_once_and_has_its_artifact_in_the_end() -> None:
    async with served() as house, wrapped("codex") as agent:
        web = house.web.at("codex")
        wanted = {**text("review this"), "context_id": "ctx-1", "metadata": {"ticket": 7}}
        sent = await web.post("/tasks/send", wanted)
        task = sent.body["task"]
        assert (sent.status, list(sent.body), task["status"]) == (200, ["task"], "working")
        assert list(task) == [
            "id",
            "status",
            "message",
            "artifacts",
            "created_at",
            "updated_at",
            "context_id",
            "metadata",
        ]
        assert task["message"] == wanted["message"]
        assert (task["artifacts"], task["context_id"]) == ([], "ctx-1")
        assert task["metadata"]["ticket"] == 7
        assert TIME.fullmatch(task["created_at"])
        assert TIME.fullmatch(task["updated_at"])
        between = (await web.get(f"/tasks/{task['id']}")).body
        assert (between["status"], between["artifacts"]) == ("working", [])
        await answer_next(agent, "fine")
        found = await over(web, task["id"])
        assert {**found, "metadata": None} == {
            **task,
            "status": "completed",
            "artifacts": [{"type": "text", "data": "fine"}],
            "updated_at": found["updated_at"],
            "metadata": None,
        }


@pytest.mark.requirement("S-107")
async def test_the_texts_of_a_message_are_joined_and_stripped() -> None:
    async with served() as house, wrapped("codex") as agent:
        body = text("  one", "two ")
        body["message"]["parts"].insert(1, {"type": "data", "data": {"n": 1}})
        body["message"]["parts"].insert(1, {"type": "file", "file": {"uri": "x"}})
        sent = await house.web.at("codex").post("/tasks/send", body)
        assert sent.body["task"]["message"]["parts"] == body["message"]["parts"]
        assert (await agent.next()).text == "one\ntwo"


async def is_running(web: Web) -> bool:
    return bool((await web.get("/status")).body["status"] == "BUSY")


@pytest.mark.requirement("S-95", "S-153", "S-154")
async def test_the_highest_priority_interrupts_before_it_is_typed() -> None:
    async with served() as house, wrapped("codex") as agent:
        web = house.web.at("codex")
        first = (await web.post("/tasks/send-priority", text("a long one"))).body["task"]
        assert first["metadata"]["bullpen"]["priority"] == 1
        await agent.step(await agent.next(), ReceiptState.SEEN)
        await agent.tell(Activity.RUNNING)
        await until(lambda: is_running(web), SECONDS)
        assert agent.interrupts == 0
        urgent = await web.post("/tasks/send-priority?priority=5", text("stop"))
        assert urgent.body["task"]["metadata"]["bullpen"]["priority"] == 5
        asked = await agent.next()
        assert asked.text == "stop"
        assert agent.interrupts == 1
        await agent.step(asked, ReceiptState.SEEN)
        await agent.answer(asked, "stopped")
        assert (await over(web, urgent.body["task"]["id"]))["status"] == "completed"


@pytest.mark.requirement("S-92", "S-172")
async def test_the_status_shows_the_newest_of_the_screen() -> None:
    async with served() as house, wrapped("codex") as agent:
        agent.screen = "x" * 5000 + "the end> "
        shown = (await house.web.at("codex").get("/status")).body
        assert list(shown) == ["status", "context"]
        assert shown["status"] == "IDLE"
        assert len(shown["context"]) == 2000
        assert shown["context"].endswith("the end> ")


@pytest.mark.requirement("S-93", "A1.12-f")
async def test_the_card_has_the_seeds_fields() -> None:
    async with served() as house, wrapped("codex", submit_sequence="\r"):
        web = house.web.at("codex")
        card = (await web.get("/.well-known/agent.json")).body
        assert (card["name"], card["url"]) == (
            "codex",
            f"http://127.0.0.1:{web.port}/agents/codex",
        )
        assert set(card) == {
            "name",
            "description",
            "url",
            "version",
            "capabilities",
            "skills",
            "securitySchemes",
            "extensions",
        }
        assert set(card["capabilities"]) == {"streaming", "pushNotifications", "multiTurn"}
        assert [each["id"] for each in card["skills"]] == ["chat", "interrupt"]
        assert card["extensions"]["synapse"] == {
            "pty_wrapped": True,
            "priority_interrupt": True,
            "at_agent_syntax": True,
            "submit_sequence": "'\\r'",
        }


@pytest.mark.requirement("S-101")
async def test_tasks_are_listed_and_cancelled() -> None:
    async with served() as house, wrapped("codex") as agent, wrapped("claude"):
        web = house.web.at("codex")
        first = (await web.post("/tasks/send", {**text("one"), "context_id": "c"})).body["task"]
        await agent.step(await agent.next(), ReceiptState.SEEN)
        second = (await web.post("/tasks/send", text("two"))).body["task"]
        listed = (await web.get("/tasks")).body
        assert [each["id"] for each in listed] == [first["id"], second["id"]]
        assert [each["id"] for each in (await web.get("/tasks?context_id=c")).body] == [first["id"]]
        elsewhere = house.web.at("claude")
        assert (await elsewhere.get("/tasks")).body == []
        assert (await elsewhere.get(f"/tasks/{first['id']}")).status == 404
        canceled = await web.post(f"/tasks/{first['id']}/cancel", b"")
        assert canceled.body == {"status": "canceled", "task_id": first["id"]}
        assert agent.interrupts == 1
        assert (await web.get(f"/tasks/{first['id']}")).body["status"] == "canceled"
        again = await web.post(f"/tasks/{first['id']}/cancel", b"")
        assert (again.status, again.body["detail"]) == (
            400,
            "Cannot cancel task in canceled state",
        )


WRONG: list[tuple[str, Any, int]] = [
    ("/tasks/send", {"message": {"parts": [{"type": "data", "data": {}}]}}, 400),
    ("/tasks/send", {"message": {"parts": [{"type": "text", "text": " \n"}]}}, 400),
    ("/tasks/send", {"message": {"parts": []}}, 400),
    ("/message", {"content": " ", "priority": 1}, 400),
    ("/tasks/m-none/cancel", b"", 404),
    ("/nothing", {}, 404),
    ("/tasks/send", b"{", 422),
    ("/tasks/send", b"[" * 100_000, 422),
    ("/tasks/send", b'{"message":{"parts":[{"type":"text","text":"\\ud800"}]}}', 422),
    ("/tasks/send", {"message": "hello"}, 422),
    ("/tasks/send", {"message": {"parts": [{"type": "poem", "text": "x"}]}}, 422),
    ("/tasks/send", {"message": {"role": "boss", "parts": []}}, 422),
    ("/message", {"content": "x"}, 422),
    ("/message", {"content": "x", "priority": 0}, 422),
    ("/message", {"content": "x", "priority": 6}, 422),
    ("/message", {"content": "x", "priority": "1"}, 422),
    ("/tasks/send-priority?priority=6", text("x"), 422),
    ("/tasks/send-priority?priority=high", text("x"), 422),
]


@pytest.mark.requirement("S-102", "A1.12-g")
async def test_what_is_wrong_with_a_request_has_its_number() -> None:
    async with served() as house, wrapped("codex") as agent:
        web = house.web.at("codex")
        for path, body, status in WRONG:
            answer = await web.post(path, body)
            assert (answer.status, set(answer.body)) == (status, {"detail"}), (path, body)
            if status == 422:
                [detail] = answer.body["detail"]
                assert set(detail) == {"loc", "msg", "type"}
        assert agent.typed.empty()
        assert (await web.get("/status")).status == 200


@pytest.mark.requirement("S-102")
async def test_who_is_not_running_is_not_asked_and_who_is_unknown_is_not_found() -> None:
    async with served() as house:
        async with wrapped("codex") as agent:
            await agent.end()

        async def gone() -> bool:
            found = (await house.web.get("/agents")).body
            return "codex" not in [each["name"] for each in found]

        await until(gone, SECONDS)
        for path in ("/agents/ghost/status", "/somewhere"):
            assert (await house.web.get(path)).status == 404
        await house.peer.ask("mail.send", to="codex", content="for your return")
        web = house.web.at("codex")
        # What is malformed is told first, as the seed does; then that nobody is there.
        assert (await web.post("/tasks/send", b"{")).status == 422
        refused = await web.post("/tasks/send", text(""))
        assert (refused.status, refused.body) == (503, {"detail": "Agent not running"})


@pytest.mark.requirement("S-190")
async def test_a_stream_tells_what_becomes_of_a_task() -> None:
    async with served() as house, wrapped("codex") as agent:
        web = house.web.at("codex")
        task = (await web.post("/tasks/send", text("review this"))).body["task"]
        following = asyncio.create_task(web.events(f"/tasks/{task['id']}/subscribe"))
        await answer_next(agent, "fine")
        async with asyncio.timeout(SECONDS):
            events = await following
        done = {
            "type": "done",
            "status": "completed",
            "artifacts": [{"type": "text", "data": "fine"}],
        }
        assert events[-1] == done
        assert events[:-1] in ([], [{"type": "status", "status": "working"}])
        assert await web.events(f"/tasks/{task['id']}/subscribe") == [done]
        assert (await web.get("/tasks/m-none/subscribe")).status == 404


@pytest.mark.requirement("S-190")
async def test_a_stream_has_what_is_said_once_however_much_is_written() -> None:
    async with served() as house, wrapped("codex") as agent:
        web = house.web.at("codex")
        task = (await web.post("/tasks/send", text("count"))).body["task"]
        asked = await agent.next()
        await agent.step(asked, ReceiptState.SEEN)
        said, told = "", list[str]()
        async with web.stream(f"/tasks/{task['id']}/subscribe") as lines:
            async with asyncio.timeout(SECONDS):
                async for event in lines:
                    if event["type"] == "output":
                        told.append(event["data"])
                    if event["type"] == "done":
                        break
                    if len(told) == 12:
                        await agent.answer(asked, "counted")
                        continue
                    tick = f"tick {len(told)} \u3042\n"
                    agent.screen += tick * 1000  # more than is ever kept
                    piece = Said(attempt_id=asked.attempt_id, at=len(said), text=tick)
                    await agent.connection.notify(piece)
                    said += tick
        assert "".join(told) == said


@pytest.mark.requirement("S-103", "S-104")
async def test_many_at_once_have_a_task_each() -> None:
    async with served() as house, wrapped("codex"):
        web = house.web.at("codex")
        sent = await asyncio.gather(
            *(web.post("/tasks/send", text(f"number {n}")) for n in range(40))
        )
        assert {each.status for each in sent} == {200}
        ids = [each.body["task"]["id"] for each in sent]
        assert len(set(ids)) == 40
        listed = {each["id"]: each for each in (await web.get("/tasks")).body}
        for number, task_id in enumerate(ids):
            [part] = listed[task_id]["message"]["parts"]
            assert part["text"] == f"number {number}"
