"""An agent of Synapse that asks is told the answer where everybody knows it, and nobody else is."""

from pathlib import Path
from typing import Any

import pytest

from bullpen.api.wrapping import Attempt
from bullpen.model.deliveries import ReceiptState
from bullpen.model.push import OWED
from bullpen.servers.a2a import callbacks
from bullpen.testing.a2a_agent import FakeA2AAgent
from tests.daemon.doors.test_external import enter
from tests.daemon.harness import until
from tests.daemon.wrapping import wrapped
from tests.servers.a2a.house import SECONDS, linux_only, served
from tests.servers.a2a.test_push_restart import are_all_told

pytestmark = [linux_only, pytest.mark.requirement("a2a:callbacks")]


def asked(agent: FakeA2AAgent, **more: Any) -> dict[str, Any]:
    """What Synapse says with a message."""
    return {
        "response_mode": "notify",
        "sender": {
            "sender_id": f"synapse-gemini-{agent.port}",
            "sender_type": "gemini",
            "sender_endpoint": f"http://localhost:{agent.port}",
        },
        "sender_task_id": "t-1",
        **more,
    }


def body(text: str, metadata: dict[str, Any]) -> dict[str, Any]:
    parts = [{"type": "text", "text": text}]
    return {"message": {"role": "user", "parts": parts}, "metadata": metadata}


async def test_who_asked_gets_the_answer_in_its_own_task(home: Path) -> None:
    async with FakeA2AAgent("seed") as theirs:
        enter(home, theirs, "gemini")
        async with served() as house, wrapped("codex") as agent:
            web = house.web.at("codex")
            for text, ended in (("one", {}), ("two", {"is_ok": False})):
                await web.post("/tasks/send", body(text, asked(theirs)))
                await agent.answer(await agent.next(), f"answer to {text}", **ended)
            await until(lambda: _has(theirs, 2), SECONDS)
            answered, failed = sorted(
                theirs.sent, key=lambda each: str(each.body["message"]["parts"])
            )
            assert answered.path == "/tasks/send"
            assert answered.body == {
                "message": {"role": "agent", "parts": [{"type": "text", "text": "answer to one"}]},
                "metadata": {
                    "sender": {"sender_id": "codex"},
                    "response_mode": "silent",
                    "in_reply_to": "t-1",
                },
            }
            assert failed.body["metadata"]["reply_status"] == "failed"


async def test_nobody_else_is_posted_to(home: Path) -> None:
    async with FakeA2AAgent("seed") as theirs, FakeA2AAgent("seed") as stranger:
        enter(home, theirs, "gemini")
        elsewhere = asked(theirs)
        elsewhere["sender"]["sender_endpoint"] = stranger.url
        unwanted = [
            elsewhere,  # who is known, at another address
            asked(stranger),  # who is not known
            asked(theirs, response_mode="silent"),
            asked(theirs, sender_task_id=7),
            {"response_mode": "wait", "sender": {"sender_id": "codex"}},
            {"sender": "me"},
        ]
        async with served() as house, wrapped("codex") as agent:
            web = house.web.at("codex")
            for number, metadata in enumerate([*unwanted, asked(theirs)]):
                sent = await web.post("/tasks/send", body(f"number {number}", metadata))
                assert sent.status == 200
                await agent.answer(await agent.next(), f"answer {number}")
            await until(lambda: _has(theirs, 1), SECONDS)
            assert [each.body["message"]["parts"][0]["text"] for each in theirs.sent] == [
                f"answer {len(unwanted)}"
            ]
            assert stranger.sent == []


async def test_an_answer_that_is_owed_is_handed_back_by_the_next_daemon(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callbacks, "PAUSES_SECONDS", (3600.0,))
    async with FakeA2AAgent("seed") as theirs:
        enter(home, theirs, "gemini")
        theirs.refuses = (500, {"detail": "not now"})
        async with served() as house, wrapped("codex") as agent:
            web = house.web.at("codex")
            sent = await web.post("/tasks/send", body("one", asked(theirs)))
            await agent.answer(await agent.next(), "said before")
            await until(lambda: _has(theirs, 1), SECONDS)  # which does not take it
            await web.post("/tasks/send", body("two", asked(theirs)))
            open_one, secret = await agent.next(), agent.secret
            configs = f"/a2a/rest/tasks/{sent.body['task']['id']}/pushNotificationConfigs"
            assert (await web.get(configs, A2A_Version="1.0")).raw == b"{}"
            taken = {"id": OWED, "url": theirs.url}
            refused = await web.post(configs, taken, A2A_Version="1.0")
            assert refused.status == 400
        theirs.refuses = None
        theirs.asked.clear()
        monkeypatch.setattr(callbacks, "PAUSES_SECONDS", (0.1,) * 100)
        under_way = Attempt(attempt_id=open_one.attempt_id, state=ReceiptState.SUBMITTED)
        back = {"secret": secret, "attempts": (under_way,)}
        async with served(), wrapped("codex", **back) as agent:
            await agent.answer(open_one, "said after")
            await until(lambda: _has(theirs, 2), SECONDS)
            await until(are_all_told, SECONDS)
            assert sorted(theirs.texts) == ["said after", "said before"]
        async with served():
            await until(are_all_told, SECONDS)
        assert len(theirs.sent) == 2


async def _has(agent: FakeA2AAgent, count: int) -> bool:
    return len(agent.sent) >= count
