"""`bullpen external`: agents elsewhere are added, shown, talked to and removed, with exit codes."""

from collections.abc import AsyncIterator

import pytest

from bullpen.testing.a2a_agent import FakeA2AAgent
from tests.cli.commands import invoke, show
from tests.daemon.harness import running_daemon
from tests.daemon.wrapping import wrapped


@pytest.fixture
async def agent() -> AsyncIterator[FakeA2AAgent]:
    """An agent elsewhere, and a daemon that may be told of it."""
    async with FakeA2AAgent("1.0") as agent, running_daemon():
        yield agent


@pytest.mark.requirement("S-144", "S-120", "S-124", "S-129")
async def test_agents_are_added_shown_and_removed(agent: FakeA2AAgent) -> None:
    assert (await show("external", "list")).out.startswith("no external agents")
    added = await show("external", "add", agent.url)
    assert added.out == f"added echo-agent: Echo Agent at {agent.url}\n"
    again = await show("external", "add", agent.url, "--alias", "Bob", "--json")
    assert (again.json["schema"], again.json["agent"]["alias"]) == (1, "bob")
    listed = await show("external", "list")
    assert [line.split()[0] for line in listed.lines] == ["ALIAS", "bob", "echo-agent"]
    said = await show("external", "list", "--json")
    assert [each["alias"] for each in said.json["agents"]] == ["bob", "echo-agent"]
    told = await show("external", "info", "bob")
    assert told.lines[0] == f"bob is Echo Agent at {agent.url}"
    assert "  skill      Echo" in told.lines
    assert "  last seen  never" in told.lines
    assert (await show("external", "info", "bob", "--json")).json["agent"]["name"] == "Echo Agent"
    assert (await show("external", "remove", "bob")).out == "removed bob\n"
    done = await show("external", "remove", "echo-agent", "--json")
    assert done.json["removed"] == "echo-agent"
    assert (await show("external", "list", "--json")).json["agents"] == []


@pytest.mark.requirement("S-144", "S-122", "S-152")
async def test_what_is_sent_is_answered_by_either_command(agent: FakeA2AAgent) -> None:
    await show("external", "add", agent.url, "--alias", "echo")
    done = await show("external", "send", "echo", "hi", "--wait")
    assert done.lines[-1] == "echo: hi"
    said = await show("external", "send", "Echo", "you", "--wait", "--json")
    assert (said.json["outcome"], said.json["reply"]["content"]) == ("reached", "echo: you")
    assert (await show("ask", "echo", "there")).out == "echo: there\n"
    accepted = await show("external", "send", "echo", "later")
    assert "for echo" in accepted.out
    row = next(line for line in (await show("list")).lines if line.startswith("echo "))
    assert agent.url in row
    assert "own" in row.split()


async def test_each_trouble_has_its_exit_code_and_words(agent: FakeA2AAgent) -> None:
    done = await invoke("external", "add", f"{agent.url}/nowhere")
    assert (done.code, done.out) == (5, "")
    assert "there is none (status 404)" in done.err
    said = await invoke("external", "add", "ftp://x", "--json")
    assert (said.code, said.json["error"]["reason"]) == (5, "agent_unreachable")
    for arguments in (["info", "x"], ["remove", "x"], ["send", "x", "hi"]):
        done = await invoke("external", *arguments)
        assert (done.code, done.err) == (4, "bullpen: there is no external agent x\n")
    await show("external", "add", agent.url, "--alias", "echo")
    agent.refuses = (400, {"error": {"code": 400, "message": "no"}})
    done = await invoke("external", "send", "echo", "hi", "--wait")
    assert done.code == 6
    assert "refused it: no (400)" in done.err + done.out
    agent.refuses, agent.is_automatic = None, False
    done = await invoke("external", "send", "echo", "hi", "--wait", "--timeout", "0.1")
    assert done.code == 3
    async with wrapped("echo"):
        done = await invoke("external", "send", "echo", "hi")
        assert (done.code, done.err) == (
            5,
            "bullpen: echo is also an agent of ours, which goes first\n",
        )
