"""Who is told by post is told on by the daemon that comes after, whatever became of the task."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bullpen.api.runtime import Paths
from bullpen.api.wrapping import Attempt
from bullpen.model.deliveries import ReceiptState
from bullpen.servers.a2a.v1 import push
from bullpen.servers.a2a.v1.push import Pauses
from tests.daemon.harness import until
from tests.daemon.wrapping import ScriptedWrapper, wrapped
from tests.servers.a2a.house import SECONDS, House, linux_only, served
from tests.servers.a2a.v1.hooks import hooked

SECRET = "hush-hush"


async def begin(house: House, agent: ScriptedWrapper, url: str) -> tuple[str, Any]:
    said = {
        "message": {"messageId": url, "role": "ROLE_USER", "parts": [{"text": "go"}]},
        "configuration": {
            "returnImmediately": True,
            "taskPushNotificationConfig": {"url": url, "token": SECRET},
        },
    }
    asked = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": said}
    headers = {"Content-Type": "application/json", "A2A-Version": "1.0"}
    answer = await house.web.at(agent.name).post("/a2a/jsonrpc", asked, **headers)
    return answer.body["result"]["task"]["id"], await agent.next()


async def are_all_told() -> bool:
    def read() -> bool:
        with closing(sqlite3.connect(Paths.resolve().state_db)) as kept:
            return not kept.execute("SELECT 1 FROM push_v1 WHERE is_over = 0").fetchall()

    return await asyncio.to_thread(read)


def _under_way(attempt_id: str) -> Attempt:
    return Attempt(attempt_id=attempt_id, state=ReceiptState.SUBMITTED)


@linux_only
@pytest.mark.requirement("a2a:push")
async def test_after_a_restart_open_tasks_are_told_of_and_ended_ones_are_told_to_be_over(
    home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(push, "PAUSES", Pauses((), (3600.0,)))
    async with hooked(*[200] * 2) as open_one, hooked(*[500] * 20) as ended_one:
        async with served() as house, wrapped("codex") as agent:
            _, typed = await begin(house, agent, ended_one.url)
            await agent.answer(typed, "done")  # which cannot be told, and the daemon ends
            await ended_one.until(lambda hook: hook.tries > 0)
            _, typed = await begin(house, agent, open_one.url)
            await open_one.until(lambda hook: len(hook.got) > 0)
            secret = agent.secret
        assert "COMPLETED" not in [*open_one.states, *ended_one.states]
        ended_one.statuses.clear()
        before = len(open_one.got)
        monkeypatch.setattr(push, "PAUSES", Pauses((), (0.01,) * 9))
        back = {"secret": secret, "attempts": (_under_way(typed.attempt_id),)}
        async with served(), wrapped("codex", **back) as agent:
            await ended_one.told("COMPLETED")
            assert ended_one.got[-1][1]["task"]["artifacts"][0]["parts"] == [{"text": "done"}]
            await open_one.until(lambda hook: len(hook.got) > before)
            assert "task" in open_one.got[before][1]  # how it stands, first
            await agent.answer(typed, "this, too")
            await open_one.told("COMPLETED")
            await until(are_all_told, SECONDS)  # so nothing is told anew by the next one
        assert {each["x-a2a-notification-token"] for each, _ in open_one.got} == {SECRET}
    assert SECRET not in caplog.text
