"""Agents elsewhere, in the seed's dialect: added, listed, written to and removed over HTTP."""

import asyncio
import json
from typing import Any

import pytest

from bullpen.agents.a2a.external import ExternalAgentRegistry
from bullpen.api.runtime import Paths, make_private
from bullpen.model.deliveries import ReceiptState
from bullpen.model.external import ExternalAgent
from bullpen.testing.a2a_agent import FakeA2AAgent
from tests.daemon.harness import until
from tests.daemon.wrapping import wrapped
from tests.servers.a2a.house import SECONDS, Web, served
from tests.servers.a2a.test_security import TOKEN, give

CHIEF = {"Authorization": f"Bearer {TOKEN}"}
FAR = "https://far.example:1"


@pytest.fixture
def _control() -> None:
    """A token is given out that may do everything."""
    directory = Paths.resolve().a2a_tokens
    make_private(directory)
    path = directory / "chief.json"
    path.touch(mode=0o600)
    path.write_text(json.dumps({"token": TOKEN, "scopes": ["read", "send", "control"]}))


async def add(web: Web, **wanted: Any) -> Any:
    return await web.post("/external/discover", wanted, **CHIEF)


@pytest.mark.requirement("S-98", "S-99", "S-101")
@pytest.mark.usefixtures("_control")
async def test_agents_elsewhere_are_added_listed_and_removed() -> None:
    async with FakeA2AAgent("1.0") as agent, served() as house, wrapped("codex"):
        web = house.web.at("codex")
        added = await add(web, url=agent.url, alias="echo")
        assert (added.status, added.body["alias"], added.body["url"]) == (200, "echo", agent.url)
        assert (await web.get("/external/agents")).body == [added.body]
        assert (await web.get("/external/agents/echo")).body == added.body
        assert (await web.get("/external/agents/nobody")).status == 404
        failed = await add(web, url=f"{agent.url}/nothing")
        assert (failed.status, "404" in failed.body["detail"]) == (400, True)
        assert (await add(web, url=agent.url, alias="../x")).status == 400
        assert (await add(web, link=agent.url)).status == 422
        removed = await web.ask("DELETE", "/external/agents/echo", None, **CHIEF)
        assert removed.body == {"status": "removed", "alias": "echo"}
        assert (await web.ask("DELETE", "/external/agents/echo", None, **CHIEF)).status == 404


@pytest.mark.requirement("S-98", "S-101")
async def test_who_shows_no_token_adds_and_removes_agents_of_this_machine_alone() -> None:
    async with FakeA2AAgent("seed") as agent, served() as house, wrapped("codex"):
        web = house.web.at("codex")
        added = await web.post("/external/discover", {"url": agent.url, "alias": "echo"})
        assert (added.status, added.body["alias"]) == (200, "echo")
        removed = await web.ask("DELETE", "/external/agents/echo", None)
        assert removed.body == {"status": "removed", "alias": "echo"}
        assert (await web.ask("DELETE", "/external/agents/echo", None)).status == 404
        assert (await web.post("/external/discover", {"url": "no address"})).status == 400


@pytest.mark.requirement("S-98")
async def test_who_may_not_control_adds_and_removes_nobody_of_another_machine() -> None:
    async with served() as house, wrapped("codex"):
        registry = ExternalAgentRegistry()
        await asyncio.to_thread(registry.add, ExternalAgent(name="far", url=FAR, alias="far"))
        web, far = house.web.at("codex"), {"url": FAR}
        refused = await web.post("/external/discover", far)
        assert (refused.status, refused.headers["www-authenticate"]) == (401, "Bearer")
        assert (await web.ask("DELETE", "/external/agents/far", None)).status == 401
        give("ci", "read", "send")
        assert (await web.post("/external/discover", far, **CHIEF)).status == 403
        assert (await web.ask("DELETE", "/external/agents/far", None, **CHIEF)).status == 403
        give("ci", "read")
        assert (await web.post("/external/discover", {"url": "localhost:1"}, **CHIEF)).status == 403
        [left] = await asyncio.to_thread(registry.list_agents)
        assert left.url == FAR


@pytest.mark.requirement("S-100")
async def test_a_message_to_an_agent_elsewhere_is_a_task() -> None:
    async with FakeA2AAgent("seed") as agent, served() as house, wrapped("codex"):
        await house.peer.ask("external.discover", url=agent.url, alias="echo")
        web, path = house.web.at("codex"), "/external/agents/echo/send"
        sent = await web.post(path, {"message": "hi"})
        assert (sent.status, sent.body["status"], sent.body["artifacts"]) == (200, "working", [])
        wanted = {"message": "and now", "wait_for_completion": True, "timeout": 15}
        done = await web.post(path, wanted)
        assert done.body["status"] == "completed"
        assert done.body["artifacts"] == [{"type": "text", "data": "echo: and now"}]
        kept = await house.peer.ask("task.get", task_id=done.body["id"])
        assert (kept["sender"], kept["recipient"]) == ("a2a", "echo")
        assert (await web.post("/external/agents/nobody/send", {"message": "hi"})).status == 404
        assert (await web.post(path, {"message": ""})).status == 422
        assert (await web.post(path, {"message": 5})).status == 422
        agent.refuses = (400, {"detail": "no, thanks"})
        failed = await web.post(path, wanted)
        assert failed.status == 500
        assert "no, thanks" in failed.body["detail"]


@pytest.mark.requirement("door:external", "a2a:dialects")
async def test_what_is_served_here_is_understood_here() -> None:
    async with served() as house, wrapped("codex") as agent:
        url = f"http://127.0.0.1:{house.web.port}/agents/codex"
        await house.peer.ask("external.discover", url=url, alias="mirror")
        sent = await house.peer.ask("mail.send", to="mirror", content="look")
        asked = await agent.next()
        assert asked.text == "look"
        await agent.step(asked, ReceiptState.SEEN)
        await agent.answer(asked, "seen it")
        message_id = sent["message"]["id"]

        async def reply() -> Any:
            wait = house.peer.ask("mail.wait", message_id=message_id, timeout_seconds=1.0)
            return (await wait)["reply"]

        assert (await until(reply, SECONDS))["content"] == "seen it"
        sent = await house.peer.ask("mail.send", to="mirror", content="and this")
        await agent.step(await agent.next(), ReceiptState.SEEN)
        second_id = sent["message"]["id"]

        async def taken() -> bool:
            return bool((await house.peer.ask("task.get", task_id=second_id))["receipt"] == "seen")

        await until(taken, SECONDS)  # before that, nobody knows which task it is there
        await house.peer.ask("task.cancel", task_id=second_id)
        [there, *_] = await house.peer.ask("task.list", recipient="codex")
        assert (there["state"], agent.interrupts) == ("canceled", 1)
