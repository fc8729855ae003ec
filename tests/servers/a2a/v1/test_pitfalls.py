"""What the SDK leaves open, by plain HTTP. The numbers are those of the list of its pitfalls."""

import asyncio
import json
import os
from typing import Any

import pytest

from bullpen.model.messages import MessageType
from bullpen.servers.a2a.room import ANONYMOUS, Caller, Scope
from bullpen.servers.a2a.v1.mapping import PRIORITY
from tests.daemon.wrapping import wrapped
from tests.servers.a2a.v1.guests import Guest, House, house, text_message

V1 = {"a2a-version": "1.0"}


async def done(there: House, guest: Guest, text: str = "hi", **more: Any) -> dict[str, Any]:
    """Have the agent answer a message; return the task."""
    message = text_message(text, **more)
    sending = asyncio.create_task(guest.ask("SendMessage", {"message": message}))
    typed = await there.agent.next()
    await there.agent.answer(typed, f"answer to {text}")
    task = (await sending)["task"]
    assert isinstance(task, dict)
    return task


@pytest.mark.requirement("a2a:strict", "a2a:priority", "pitfall:9", "pitfall:10")
async def test_requests_that_are_none_are_refused_and_the_server_goes_on() -> None:
    async with house() as (_, guest):
        for body, code in (
            (b"{", -32700),
            (b'"\xff"', -32700),
            (b'{"a": "\\ud800"}', -32700),
            (b"[" * 100_000, -32700),
            (b"[]", -32600),
            (b'[{"jsonrpc": "2.0", "id": 1, "method": "GetTask"}]', -32600),
            (b'{"id": 1, "method": "GetTask"}', -32600),
            (b'{"jsonrpc": "2.0", "id": 1, "method": "Nothing"}', -32601),
            (b'{"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": 7}', -32600),
            (b'{"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": 7}}', -32602),
        ):
            response = await guest.http.post(
                "a2a/jsonrpc", content=body, headers={**V1, "content-type": "application/json"}
            )
            assert response.status_code == 200
            assert response.json()["error"]["code"] == code, body[:60]
        for params, code in (
            ({}, -32602),
            ({"message": {}}, -32602),
            ({"message": text_message(role="ROLE_NOBODY")}, -32602),
            ({"message": text_message(parts=[{"kind": "text"}])}, -32602),
            ({"message": text_message(parts=[{"text": "a", "url": "b"}])}, -32602),
            ({"message": text_message(parts=[])}, -32602),
            ({"message": text_message(taskId="m-none")}, -32001),
            ({"message": text_message(metadata={PRIORITY: 9})}, -32602),
            ({"message": text_message(), "configuration": {"historyLength": -1}}, -32602),
            ({"message": text_message(parts=[{"data": 2**60}])}, -32602),  # 10: it loses digits
        ):
            assert await guest.refusal("SendMessage", params) == code, params
        # 9: words that nobody knows are not taken for none
        assert await guest.refusal("ListTasks", {"status": "TASK_STATE_NONE"}) == -32602
        for wrong in ({"pageSize": 0}, {"pageSize": 101}, {"pageToken": "?"}):
            assert await guest.refusal("ListTasks", wrong) == -32602
        for path in ("tasks?status=TASK_STATE_NONE", "tasks?pageSize=x", "tasks?pageToken=x"):
            response = await guest.http.get(f"a2a/rest/{path}", headers=V1)
            assert response.status_code == 400, path
            assert response.json()["error"]["status"] == "INVALID_ARGUMENT"
        assert (await guest.ask("ListTasks"))["tasks"] == []


@pytest.mark.requirement("a2a:versions", "pitfall:4", "pitfall:5", "pitfall:7", "pitfall:13")
async def test_versions_types_and_addresses() -> None:
    async with house() as (there, guest):
        task = await done(there, guest)
        # 5: with a slash behind it, as clients with a base address ask
        asked = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": task["id"]}}
        response = await guest.http.post("a2a/jsonrpc/", json=asked, headers=V1)
        assert response.json()["result"]["id"] == task["id"]
        # Version negotiation: none is 0.3, which does not know the method; another is unknown.
        for version in ("", "0.3", "1.1", "01.0", "2.0", "x"):
            response = await guest.http.post(
                "a2a/jsonrpc", json=asked, headers={"a2a-version": version}
            )
            assert response.json()["error"]["code"] == -32009, version
        response = await guest.http.get(f"a2a/rest/tasks/{task['id']}")
        assert response.json()["error"]["details"][0]["reason"] == "VERSION_NOT_SUPPORTED"
        # It may be said in the address instead; what stands in the header goes first.
        for address, code in (
            ("A2A-Version=1.0", 200),
            ("a2a-version=1.0.1", 200),
            ("A2A-Version=1.1", 400),
        ):
            response = await guest.http.get(f"a2a/rest/tasks/{task['id']}?{address}")
            assert response.status_code == code, address
        response = await guest.http.post("a2a/jsonrpc?A2A-Version=1.0", json=asked)
        assert response.json()["result"]["id"] == task["id"]
        response = await guest.http.get("a2a/rest/tasks?A2A-Version=2.0", headers=V1)
        assert response.status_code == 200
        response = await guest.http.get(".well-known/agent-card.json?A2A-Version=0.3")
        assert response.json()["protocolVersion"] == "0.3.0"
        # 7: what is sent is JSON
        text = {**V1, "content-type": "text/plain"}
        response = await guest.http.post(
            "a2a/jsonrpc", content=json.dumps(asked).encode(), headers=text
        )
        assert response.json()["error"]["code"] == -32005
        response = await guest.http.post("a2a/rest/message:send", content=b"{}", headers=text)
        assert response.status_code == 400
        assert response.json()["error"]["details"][0]["reason"] == "CONTENT_TYPE_NOT_SUPPORTED"
        # 4: the paths of REST, with a tenant or without
        for path in (f"tasks/{task['id']}", f"somebody/tasks/{task['id']}"):
            response = await guest.http.get(f"a2a/rest/{path}", headers=V1)
            assert response.json() == task, path
            assert response.headers["content-type"] == "application/a2a+json"
        response = await guest.http.get("a2a/rest/tasks/m-none", headers=V1)
        assert response.status_code == 404
        assert response.json()["error"]["details"][0]["reason"] == "TASK_NOT_FOUND"
        response = await guest.http.post(f"a2a/rest/tasks/{task['id']}:cancel", headers=V1)
        assert response.status_code == 400
        assert response.json()["error"]["details"][0]["reason"] == "TASK_NOT_CANCELABLE"
        response = await guest.http.get("a2a/rest/extendedAgentCard", headers=V1)
        assert response.json()["name"] == there.agent.name
        # 13: nobody collects spans
        assert os.environ["OTEL_INSTRUMENTATION_A2A_SDK_ENABLED"] == "false"


@pytest.mark.requirement("a2a:again", "pitfall:8")
async def test_the_same_message_again_is_the_same_task() -> None:
    async with house() as (there, guest):
        task = await done(there, guest, "once", messageId="c-once")
        for _ in range(2):
            again = {"message": text_message("once", messageId="c-once")}
            assert (await guest.ask("SendMessage", again))["task"] == task
        other = {"message": text_message("another", messageId="c-once")}
        assert await guest.refusal("SendMessage", other) == -32602
        # 8: also where it goes on with a task
        sending = asyncio.create_task(guest.ask("SendMessage", {"message": text_message("go")}))
        await there.agent.next()
        await there.reply("which?", type=MessageType.PROGRESS, metadata={"asks": True})
        asked = (await sending)["task"]
        follow_up = {"message": text_message("left", taskId=asked["id"])}
        sending = asyncio.create_task(guest.ask("SendMessage", follow_up))
        await there.agent.answer(await there.agent.next(), "done")
        finished = (await sending)["task"]
        assert (await guest.ask("SendMessage", follow_up))["task"] == finished
        assert there.agent.typed.empty()


@pytest.mark.requirement("pitfall:11")
async def test_a_context_is_the_clients_or_ours_and_holds_its_tasks_together() -> None:
    async with house() as (there, guest):
        first = await done(there, guest, "one", contextId="my-context")
        second = await done(there, guest, "two", contextId="my-context")
        third = await done(there, guest, "three")
        fourth = await done(there, guest, "four", contextId=third["contextId"])
        assert first["contextId"] == second["contextId"] == "my-context"
        assert third["contextId"] == fourth["contextId"] != "my-context"
        listed = await guest.ask("ListTasks", {"contextId": "my-context"})
        assert [each["id"] for each in listed["tasks"]] == [second["id"], first["id"]]
        assert listed["totalSize"] == 2
        wrong = text_message(taskId=first["id"], contextId="another")
        assert await guest.refusal("SendMessage", {"message": wrong}) == -32602
        # 11: whoever may read finds it, in one place for all
        there.caller = Caller(name="a2a:other", scopes=frozenset({Scope.READ}))
        assert await guest.ask("GetTask", {"id": first["id"]}) == first
        assert await guest.refusal("SendMessage", {"message": text_message()}) == -32600
        response = await guest.http.post(
            "a2a/rest/message:send", json={"message": text_message()}, headers=V1
        )
        assert response.status_code == 403


async def test_what_was_asked_of_another_agent_is_not_found_at_this_one() -> None:
    async with house() as (there, guest), wrapped("gemini"):
        other = await there.room.send(ANONYMOUS, "gemini", "hello")
        assert await guest.refusal("GetTask", {"id": other.id}) == -32001
        assert await guest.refusal("CancelTask", {"id": other.id}) == -32001
        assert (await guest.ask("ListTasks"))["totalSize"] == 0


@pytest.mark.requirement("a2a:listing")
async def test_pages_hold_each_task_once_newest_first() -> None:
    async with house() as (there, guest):
        ids = [(await done(there, guest, str(each)))["id"] for each in range(5)]
        found: list[str] = []
        token = ""
        while True:
            page = await guest.ask("ListTasks", {"pageSize": 2, "pageToken": token})
            assert page["totalSize"] == 5
            assert all("artifacts" not in each for each in page["tasks"])
            found += [each["id"] for each in page["tasks"]]
            token = page["nextPageToken"]
            if not token:
                break
        assert found == ids[::-1]
        whole = await guest.ask("ListTasks", {"includeArtifacts": True, "historyLength": 0})
        assert all(each["artifacts"] and not each.get("history") for each in whole["tasks"])
        completed = await guest.ask("ListTasks", {"status": "TASK_STATE_COMPLETED"})
        assert completed["totalSize"] == 5
        assert (await guest.ask("ListTasks", {"status": "TASK_STATE_FAILED"}))["tasks"] == []


@pytest.mark.requirement("a2a:sending", "a2a:cancelling", "pitfall:15")
async def test_a_message_need_not_be_waited_for_and_can_be_cancelled() -> None:
    async with house() as (there, guest):
        now = {"configuration": {"returnImmediately": True}}
        task = (await guest.ask("SendMessage", {"message": text_message("slow"), **now}))["task"]
        assert task["status"]["state"] == "TASK_STATE_SUBMITTED"
        urgent = text_message("queued", metadata={PRIORITY: 1})
        queued = (await guest.ask("SendMessage", {"message": urgent, **now}))["task"]
        await there.agent.next()
        canceled = await guest.ask("CancelTask", {"id": task["id"]})  # 15: it is interrupted
        assert canceled["status"]["state"] == "TASK_STATE_CANCELED"
        assert there.agent.interrupts == 1
        second = await there.agent.next()
        await there.agent.answer(second, "after all")
        async with asyncio.timeout(20):
            while True:
                found = await guest.ask("GetTask", {"id": queued["id"]})
                if found["status"]["state"] == "TASK_STATE_COMPLETED":
                    break
        racing = await asyncio.gather(
            *(guest.rpc("CancelTask", {"id": queued["id"]}) for _ in range(5))
        )
        assert {each["error"]["code"] for each in racing} == {-32002}


@pytest.mark.requirement("pitfall:12")
async def test_sixteen_at_once_are_each_answered_their_own() -> None:
    async with house() as (there, guest):  # 12: the store takes all of them
        sending = [
            asyncio.create_task(guest.ask("SendMessage", {"message": text_message(f"no {each}")}))
            for each in range(16)
        ]
        for _ in sending:
            typed = await there.agent.next()
            await there.agent.answer(typed, f"to {typed.text.rpartition(' ')[2]}")
        for number, each in enumerate(await asyncio.gather(*sending)):
            assert each["task"]["artifacts"][0]["parts"] == [{"text": f"to {number}"}]


@pytest.mark.requirement("a2a:card", "a2a:extended-card", "A1.12-f")
async def test_the_card_is_strict_and_merged_for_those_who_speak_the_old_version() -> None:
    async with house() as (there, guest):
        response = await guest.http.get(".well-known/agent-card.json")
        card = response.json()
        assert set(card) == {
            *("name", "description", "version", "supportedInterfaces", "capabilities"),
            *("defaultInputModes", "defaultOutputModes", "skills", "securitySchemes"),
        }
        assert [each["url"] for each in card["supportedInterfaces"]] == [
            f"{there.url}a2a/jsonrpc",
            f"{there.url}a2a/rest",
        ]
        assert card["capabilities"]["extensions"][0]["uri"] == PRIORITY
        assert response.headers["vary"] == "A2A-Version"
        assert "max-age" in response.headers["cache-control"]
        assert response.headers["last-modified"]
        unchanged = await guest.http.get(
            ".well-known/agent-card.json", headers={"if-none-match": response.headers["etag"]}
        )
        assert (unchanged.status_code, unchanged.content) == (304, b"")
        old = await guest.http.get("v0.3/.well-known/agent-card.json")
        asked = await guest.http.get(".well-known/agent-card.json", headers={"a2a-version": "0.3"})
        assert old.json() == asked.json()
        assert old.json()["url"] == f"{there.url}a2a/jsonrpc"
        assert old.json()["preferredTransport"] == "JSONRPC"
        extended = await guest.ask("GetExtendedAgentCard")
        assert extended["capabilities"]["extensions"][-1]["params"]["isPresent"] is True


@pytest.mark.requirement("a2a:0.3", "pitfall:14")
async def test_the_old_version_is_served_at_the_same_addresses() -> None:
    async with house() as (there, guest):
        old = {"a2a-version": "0.3"}

        async def ask(method: str, params: Any) -> dict[str, Any]:
            asked = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            told = (await guest.http.post("a2a/jsonrpc", json=asked, headers=old)).json()
            assert isinstance(told, dict)
            return told

        message = {
            "kind": "message",
            "messageId": "c-old",
            "role": "user",
            "parts": [{"kind": "text", "text": "hi"}],
        }
        sending = asyncio.create_task(ask("message/send", {"message": message}))
        await there.agent.answer(await there.agent.next(), "hello")
        task = (await sending)["result"]
        assert (task["kind"], task["status"]["state"]) == ("task", "completed")
        assert task["artifacts"][0]["parts"] == [{"kind": "text", "text": "hello"}]
        # 14: wrong parameters, a configuration without its name, an answer that is nothing
        assert (await ask("message/send", {"message": {}}))["error"]["code"] == -32602
        config = {"url": "https://example.com/hook", "id": "one"}
        given = {"taskId": task["id"], "pushNotificationConfig": config}
        assert "result" in await ask("tasks/pushNotificationConfig/set", given)
        found = await ask("tasks/pushNotificationConfig/get", {"id": task["id"]})
        assert found["result"]["pushNotificationConfig"]["id"] == "one"
        removed = {"id": task["id"], "pushNotificationConfigId": "one"}
        gone = await ask("tasks/pushNotificationConfig/delete", removed)
        assert gone["result"] is None
        response = await guest.http.get(f"a2a/rest/v1/tasks/{task['id']}", headers=old)
        assert response.json()["id"] == task["id"]
        asked = {"message": {"messageId": "c-2", "role": "ROLE_USER", "content": [{"text": "2"}]}}
        streaming = asyncio.create_task(
            guest.http.post("a2a/rest/v1/message:stream", json=asked, headers=old)
        )
        await there.agent.answer(await there.agent.next(), "two")
        lines = (await streaming).text.splitlines()
        told = [json.loads(each.removeprefix("data:")) for each in lines if each]
        assert "task" in told[0]
        assert told[-1]["statusUpdate"]["final"] is True
        card = (await ask("agent/getAuthenticatedExtendedCard", {}))["result"]
        assert (card["protocolVersion"], card["url"]) == ("0.3", f"{there.url}a2a/jsonrpc")
        assert card["capabilities"]["extensions"][-1]["params"]["isPresent"] is True
        assert (await guest.http.get("a2a/rest/v1/card")).json()["url"] == card["url"]
        wrong = await guest.http.get("a2a/rest/v1/tasks/m-none:subscribe", headers=old)
        assert "TASK_NOT_FOUND" in wrong.text


@pytest.mark.parametrize("profile", ["conformance"])
async def test_the_kits_agent_is_served_by_the_kits_edition(profile: str) -> None:
    async with house(profile, profile=profile) as (there, guest):
        task = await done(there, guest, messageId="tck-complete-task")
        again = await done(there, guest, messageId="tck-complete-task")
        assert task["id"] != again["id"]
        response = await guest.http.post(f"a2a/rest/tasks/{task['id']}:cancel", headers=V1)
        assert response.status_code == 409
        assert response.json()["error"]["code"] == 409
        response = await guest.http.get(f"a2a/rest/tasks/{task['id']}", headers=V1)
        assert response.headers["content-type"] == "application/json"
        missing = {"message": text_message(messageId="tck-cap-ext-004-x")}
        assert await guest.refusal("SendMessage", missing) == -32008  # 7: it is enforced


async def test_an_agent_that_can_do_less_says_so_and_refuses_the_rest() -> None:
    async with house("conformance-bare", profile="conformance-bare") as (there, guest):
        card = (await guest.http.get(".well-known/agent-card.json")).json()["capabilities"]
        assert not card["streaming"]
        assert not card["pushNotifications"]
        assert not card["extendedAgentCard"]
        task = await done(there, guest)
        config = {"taskId": task["id"], "id": "p1", "url": "http://127.0.0.1:9/hook"}
        asked = {"message": text_message(), "configuration": {"taskPushNotificationConfig": config}}
        for method, params, code in (
            ("SendStreamingMessage", {"message": text_message()}, -32004),
            ("SubscribeToTask", {"id": task["id"]}, -32004),
            ("SendMessage", asked, -32003),
            ("CreateTaskPushNotificationConfig", config, -32003),
            ("GetTaskPushNotificationConfig", config, -32003),
            ("ListTaskPushNotificationConfigs", config, -32003),
            ("DeleteTaskPushNotificationConfig", config, -32003),
            ("GetExtendedAgentCard", {}, -32007),
        ):
            assert await guest.refusal(method, params) == code, method
        assert there.agent.typed.empty()  # nothing of it has reached the agent
