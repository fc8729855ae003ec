"""Whatever is sent is answered as its dialect has it, nothing of it is lost, and others are served.

Each table is tried in one house, as nothing that is tried may harm what is tried after it.
"""

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.wrapping import ScriptedWrapper, wrapped
from tests.servers.a2a.house import Answer, House, Web, linux_only, served

pytestmark = [linux_only, pytest.mark.requirement("a2a:bad-input", "a2a:errors")]

JSON = {"Content-Type": "application/json"}
V1 = {**JSON, "A2A-Version": "1.0"}
RPC, REST, SEED = "/a2a/jsonrpc", "/a2a/rest/message:send", "/tasks/send"
OURS = re.compile(
    r"Traceback|File \"|\.py\b|/home/|/tmp/|sqlite|msgspec|site-packages", re.IGNORECASE
)
"""What nobody outside needs to know."""

DEEP = b"[" * 100_000 + b"]" * 100_000
PARSE, REQUEST, METHOD, PARAMS, NO_TASK = -32700, -32600, -32601, -32602, -32001


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": value}
    return value


def message(**more: Any) -> dict[str, Any]:
    return {"messageId": "one", "role": "ROLE_USER", "parts": [{"text": "hi"}], **more}


def rpc(params: Any, method: Any = "SendMessage", **more: Any) -> bytes:
    asked = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params, **more}
    return json.dumps(asked).encode()


BODIES = {
    "empty": b"",
    "half": b"{",
    "not UTF-8": b'{"a": "\xff"}',
    "UTF-16": "{}".encode("utf-16"),
    "a lone surrogate": b'{"a": "\\ud800"}',
    "a NUL": b'{"a": "\x00"}',
    "no number": b'{"a": NaN}',
    "deep": DEEP,
    "too many digits": b'{"a": ' + b"9" * 5000 + b"}",
}
"""What is no JSON, or none that can be read."""

MESSAGES: dict[str, Any] = {
    "none": {},
    "a word": {"message": "hi"},
    "parts that are none": {"message": message(parts={})},
    "a part that is none": {"message": message(parts=[1])},
    "null for a part": {"message": message(parts=[None])},
    "no part": {"message": message(parts=[])},
    "an unknown part": {"message": message(parts=[{"video": "x"}])},
    "two in one part": {"message": message(parts=[{"text": "a", "url": "b"}])},
    "a number for a text": {"message": message(parts=[{"text": 5}])},
    "an unknown role": {"message": message(role="ROLE_KING")},
    "a role by number": {"message": message(role=77)},
    "a number for an id": {"message": message(messageId=5)},
    "no id": {"message": message(messageId="")},
    "a list for metadata": {"message": message(metadata=[])},
    "deep metadata": {"message": message(metadata=nested(40))},
    "deep data": {"message": message(parts=[{"data": nested(40)}])},
    "deeper data": {"message": message(parts=[{"data": nested(90)}])},
    "a huge number": {"message": message(parts=[{"data": 2**60}])},
    "a word for a configuration": {"message": message(), "configuration": "x"},
    "a negative length": {"message": message(), "configuration": {"historyLength": -1}},
}
"""What is JSON, and no message."""


def requests() -> Iterator[tuple[str, bytes, int]]:
    """Yield requests by JSON-RPC, and the code of each one's error."""
    for name, body in BODIES.items():
        yield name, body, PARSE
    for name, params in MESSAGES.items():
        yield name, rpc(params), PARAMS
        yield f"{name}, streaming", rpc(params, "SendStreamingMessage"), PARAMS
    infinite = rpc({"message": message(parts=[{"data": 7.25}])}).replace(b"7.25", b"1e400")
    yield "an infinite number", infinite, PARAMS
    for word in (b"[]", b"null", b'"x"', b"1", b'[{"jsonrpc": "2.0", "id": 1, "method": "x"}]'):
        yield word.decode(), word, REQUEST
    yield "no version", b'{"id": 1, "method": "GetTask", "params": {}}', REQUEST
    yield "another version", rpc({}, jsonrpc="1.0"), REQUEST
    for name, kind in (("null", None), ("number", 5), ("list", [])):
        yield f"a {name} for a method", rpc({}, kind), REQUEST
    for name, number in (("object", {}), ("boolean", True), ("fraction", 1.5)):
        yield f"a {name} for an id", rpc({"id": "x"}, "GetTask", id=number), REQUEST
    yield "an unknown method", rpc({}, "Nothing"), METHOD
    yield "a list for params", rpc([1]), PARAMS
    yield "null for params", rpc(None), PARAMS
    yield "a word for params", rpc("x"), REQUEST
    for length in (-1, 1.5, 2**31, "x"):
        yield f"{length} for a length", rpc({"id": "x", "historyLength": length}, "GetTask"), PARAMS
    for name, params in (
        ("pageSize", {"pageSize": "x"}),
        ("pageSize too", {"pageSize": -1}),
        ("pageToken", {"pageToken": "\0"}),
        ("status", {"status": "X"}),
        ("time", {"statusTimestampAfter": "yesterday"}),
    ):
        yield f"a wrong {name}", rpc(params, "ListTasks"), PARAMS
    for wanted in ("nothing", "", "\0", "../../etc/passwd", "x" * 100_000):
        for method in ("GetTask", "CancelTask", "SubscribeToTask"):
            yield f"{method} {wanted[:9]!r}", rpc({"id": wanted}, method), NO_TASK
    yield "an unknown task", rpc({"message": message(taskId="m-none")}), NO_TASK


class Case:
    """One who sends what he should not, and asks after each how the server is."""

    def __init__(self, house: House, agent: ScriptedWrapper) -> None:
        self.house = house
        self.agent = agent
        self.web: Web = house.web.at(agent.name)

    async def send(self, name: str, path: str, body: bytes, method: str = "POST") -> Answer:
        headers = V1 if path.startswith("/a2a") else JSON
        answer = await self.web.ask(method, path, body, **headers)
        assert not OURS.search(answer.raw.decode()), (name, answer)
        assert len(answer.raw) < 2000, name
        assert self.agent.typed.empty(), name
        return answer

    async def serves_on(self) -> None:
        for path in ("/status", "/tasks", "/a2a/rest/tasks"):
            assert (await self.web.get(path, **V1)).status == 200, path
        listed = await self.web.post(RPC, rpc({}, "ListTasks"), **V1)
        assert "error" not in listed.body, listed


async def test_requests_by_json_rpc_have_the_codes_of_their_errors(home: Path) -> None:
    async with served() as house, wrapped("codex") as agent:
        case = Case(house, agent)
        for name, body, code in requests():
            answer = await case.send(name, RPC, body)
            assert answer.status == 200, name
            assert (answer.body["jsonrpc"], answer.body["error"]["code"]) == ("2.0", code), name
            assert answer.body["id"] in (1, None), name
        old = {"kind": "message", "messageId": "one", "role": "user", "parts": [{"kind": "video"}]}
        for method, params in (("message/send", {"message": old}), ("tasks/get", {"id": 5})):
            answer = await case.web.post(RPC, rpc(params, method), **JSON)
            assert answer.body["error"]["code"] == PARAMS, method
        await case.serves_on()


async def test_requests_by_rest_have_a_status_and_the_same_in_their_body(home: Path) -> None:
    async with served() as house, wrapped("codex") as agent:
        case = Case(house, agent)
        sent = {**BODIES, **{name: json.dumps(each).encode() for name, each in MESSAGES.items()}}
        sent |= {each.decode(): each for each in (b"[]", b"null", b'"x"', b"1")}
        for name, body in sent.items():
            for path in (REST, "/a2a/rest/message:stream"):
                answer = await case.send(name, path, body)
                told = answer.body["error"]
                assert (answer.status, told["code"], told["status"]) == (
                    400,
                    400,
                    "INVALID_ARGUMENT",
                ), name
        for method, path, status in (
            ("GET", "/tasks?pageSize=x", 400),
            ("GET", "/tasks?pageSize=99999999999999999999", 400),
            ("GET", "/tasks?status=x", 400),
            ("GET", "/tasks?pageToken=%00", 400),
            ("GET", "/tasks/x?historyLength=-1", 400),
            ("GET", "/tasks/nothing", 404),
            ("GET", "/tasks/%00", 404),
            ("GET", "/tasks/%ff%fe", 404),
            ("GET", f"/tasks/{'x' * 20_000}", 404),
            ("POST", "/tasks/nothing:cancel", 404),
            ("POST", "/tasks/nothing:subscribe", 404),
            ("POST", "/tasks/nothing/pushNotificationConfigs", 400),
        ):
            answer = await case.send(path[:40], f"/a2a/rest{path}", b"", method)
            assert (answer.status, answer.body["error"]["code"]) == (status, status), path[:40]
        await case.serves_on()


async def test_requests_of_the_seed_are_told_where_they_are_wrong(home: Path) -> None:
    text = {"type": "text", "text": "x"}
    async with served() as house, wrapped("codex") as agent:
        case = Case(house, agent)
        for path in (SEED, "/tasks/send-priority?priority=1", "/message"):
            for name, body in BODIES.items():
                answer = await case.send(name, path, body)
                assert (answer.status, answer.body["detail"][0]["loc"]) == (422, ["body"]), name
        for said in (
            {"message": {"parts": 5}},
            {"message": {"parts": [{"type": "video"}]}},
            {"message": {"parts": [text], "role": "king"}},
            {"message": {"parts": [text]}, "metadata": []},
            {"message": {"parts": [text]}, "context_id": 5},
            {"message": {"parts": [text]}, "metadata": nested(40)},
            {"message": {"parts": [text, {"type": "data", "data": nested(900)}]}},
        ):
            answer = await case.send(str(said)[:80], SEED, json.dumps(said).encode())
            assert answer.status == 422, said
        for priority in ("x", "0", "6", "9" * 5000, "%ff", "1e400"):
            answer = await case.send(priority, f"/tasks/send-priority?priority={priority}", b"{}")
            assert answer.status == 422, priority
        for path in ("/tasks/nothing", "/tasks/%00", "/tasks/%ff", "/external/agents/%00"):
            assert (await case.send(path, path, b"", "GET")).status == 404, path
        # What is as deep as may be is told in every dialect.
        deep = {"message": {"parts": [text]}, "metadata": {"a": nested(25), "b": 2**60}}
        assert (await case.web.post(SEED, deep, **JSON)).status == 200
        await agent.answer(await agent.next(), "done")
        sent = {"message": message(parts=[{"text": "x"}, {"data": nested(25)}])}
        sending = asyncio.create_task(case.web.post(RPC, rpc(sent), **V1))
        await agent.answer(await agent.next(), "done")
        assert "error" not in (await sending).body
        # Another door lets more pass; nobody is harmed by it.
        poisons: list[Any] = [nested(400), {"metadata": nested(90)}, {"parts": [nested(60)]}, [], 5]
        for poison in poisons:
            said = {"to": "codex", "content": "hi", "metadata": {"a2a": poison}}
            await house.peer.ask("mail.send", **said)
        await case.serves_on()


async def test_a_message_that_comes_again_is_the_same_and_another_of_its_id_is_refused(
    home: Path,
) -> None:
    async with served() as house, wrapped("codex") as agent:
        web = house.web.at("codex")
        at_once = {"returnImmediately": True}
        for name in ("short", "long" * 100):
            asked = rpc({"message": message(messageId=name), "configuration": at_once})
            answers = await asyncio.gather(*(web.post(RPC, asked, **V1) for _ in range(4)))
            ids = {each.body["result"]["task"]["id"] for each in answers}
            assert len(ids) == 1, ids
            typed = await agent.next()
            assert agent.typed.empty()
            other = message(messageId=name, parts=[{"text": "something else"}])
            refused = await web.post(RPC, rpc({"message": other}), **V1)
            assert refused.body["error"]["code"] == PARAMS
            assert "something else" in refused.body["error"]["message"]
            same = await web.post(REST, {"message": other}, **V1)
            assert (same.status, same.body["error"]["status"]) == (400, "INVALID_ARGUMENT")
            await agent.answer(typed, "done")
            again = await web.post(RPC, asked, **V1)  # which is over by now
            assert {again.body["result"]["task"]["id"]} == ids


async def test_a_cancellation_that_comes_with_the_end_has_one_answer(home: Path) -> None:
    async with served() as house, wrapped("codex") as agent:
        web = house.web.at("codex")
        seen = set()
        for number in range(6):
            said = message(messageId=str(number))
            asked = rpc({"message": said, "configuration": {"returnImmediately": True}})
            task_id = (await web.post(RPC, asked, **V1)).body["result"]["task"]["id"]
            typed = await agent.next()
            cancel = rpc({"id": task_id}, "CancelTask")
            first, second, _ = await asyncio.gather(
                web.post(RPC, cancel, **V1),
                web.post(f"/tasks/{task_id}/cancel", b""),
                agent.answer(typed, "done"),
                return_exceptions=True,
            )
            assert isinstance(first, Answer)
            assert isinstance(second, Answer)
            task = (await web.post(RPC, rpc({"id": task_id}, "GetTask"), **V1)).body["result"]
            state = task["status"]["state"].removeprefix("TASK_STATE_")
            told = first.body.get("error", {}).get("code", "result")
            seen.add((state, told, second.status))
            assert state in ("CANCELED", "COMPLETED")
            assert told in ("result", -32002), first
            assert second.status in (200, 400), second
            if state == "COMPLETED":
                assert (told, second.status) == (-32002, 400), seen
            else:
                assert "result" in told if second.status == 400 else True, seen
            late = await web.post(RPC, cancel, **V1)
            assert late.body["error"]["code"] == -32002
