"""Messages to the real programs: each arrives exactly, once, and its receipt tells the truth."""

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from bullpen.testing.tmux import PrivateTmux
from tests.daemon.harness import until
from tests.journeys.talking import SECONDS, Agent, Room, room, said

pytestmark = [
    pytest.mark.program,
    pytest.mark.timeout(1000),  # the first run downloads
    pytest.mark.xdist_group("real-programs"),  # two at a time are slow enough to look frozen
]

ODD = "! ls -la 日本語 😀 \"quoted\" 'and' `code` {{}}\n  indented, 二行目\n\n\t/last"
LONG = "\n".join(f"{number:03} 長い行 the quick brown fox jumps over it" for number in range(220))
REPLY = r"# こんにちは\n\n  * one  two\n\n```\na\\b\n```\nand 三行目"
SPOKEN = "# こんにちは\n\n  * one  two\n\n```\na\\b\n```\nand 三行目"
STILL = 8  # looks at a screen that shows the same
DRAFT = "<<say to a person>>"

IN_ORDER = ["accepted", "queued", "injected", "submitted", "seen", "answered", "failed", "dead"]


@pytest.fixture
def a_room(home: Path) -> Iterator[Room]:
    with room(home) as found:
        yield found


def live(agent: Agent) -> None:
    """Go through everything that can befall a message."""
    it_is_idle(agent)
    it_is_busy(agent)
    it_asks_for_permission(agent)
    somebody_has_begun_to_write(agent)
    its_model_fails(agent)
    it_is_interrupted(agent)
    it_ends_and_comes_back(agent)
    every_step_is_told(agent)


def it_is_idle(agent: Agent) -> None:
    """What was said arrives to the character, and so does the answer."""
    asked = agent.ask(f"{ODD}\n<<say {REPLY}>>")
    assert (asked.code, asked.out) == (0, SPOKEN + "\n"), (asked, agent.situation())
    [heard] = agent.heard("二行目")
    sent = f"[from user]\n{ODD}\n<<say {REPLY}>>"
    ways = [] if agent.known.is_typed else [sent]
    if "pty" in agent.known.by:
        ways.append(sent.replace("\t", "    "))  # a tab is a key, and would complete something
    assert heard.prompt.endswith(tuple(ways))
    assert len(LONG.encode()) > 10_000
    asked = agent.ask(f"{LONG}\n<<say long>>")
    assert (asked.code, asked.out) == (0, "long\n"), (asked, agent.situation())
    [heard] = agent.heard("003 長い行")
    assert heard.prompt.endswith(f"[from user]\n{LONG}\n<<say long>>")


def it_is_busy(agent: Agent) -> None:
    """One message after the other, in their order; and no daemon is needed for that to go on."""
    first = agent.send("<<prewait busy | say one>>")
    agent.at("busy")
    agent.until(lambda: agent.task(first)["state"] == "working", "working")
    said = agent.room.bullpen("send", agent.name, "<<say two>>").out
    assert "queued" in said or "waits" in said, said
    second = agent.tasks()[0]["id"]
    third = agent.send("<<say three>>")
    assert [agent.task(each)["position"] for each in (first, second, third)] == [None, 1, 2]
    assert "number 2" in agent.room.bullpen("task", third).out
    agent.room.kill_daemon()
    agent.until(lambda: agent.contact.get("is_present"), "back")
    agent.models.release("busy")
    assert [agent.answer(each) for each in (first, second, third)] == ["one", "two", "three"]
    prompts = [
        each.prompt.rpartition("say ")[2] for each in agent.models.requests if each.is_prompt
    ]
    assert prompts[-3:] == ["one>>", "two>>", "three>>"]


def it_asks_for_permission(agent: Agent) -> None:
    """A dialog is for people: no message is typed into it, and no peer answers it."""
    made = agent.room.project / "made.txt"
    first = agent.send(f"<<{agent.known.shell} touch made.txt ;; say allowed>>")
    agent.reaches("waiting_approval")
    agent.until(lambda: agent.task(first)["state"] == "input_required", "input required")
    with agent.room.peer("peer") as secret:
        second = agent.send("y\n1\n<<say late>>", secret=secret)
        urgent = agent.send("<<say never>>", "--priority", "urgent", secret=secret)
        for each in (second, urgent):
            agent.held(each, "a person's decision")
        assert agent.room.bullpen("task", "--cancel", urgent).code == 0
        refused = agent.room.bullpen("send-keys", agent.name, "Enter", secret=secret)
        assert refused.code == 5, refused
        agent.held(second, "a person's decision")
        assert agent.heard("say late") == []
        assert not made.exists()
        agent.press(*agent.known.approve)
        assert agent.answer(first) == "allowed"
        assert made.exists()
        assert agent.answer(second) == "late"


def somebody_has_begun_to_write(agent: Agent) -> None:
    """What a person writes stays as it is, and is sent when that person sends it."""
    agent.press("-l", DRAFT)
    agent.shows(DRAFT)
    sent = agent.send("<<say beside>>")
    if agent.known.is_typed:
        agent.held(sent, "draft")
    else:
        assert agent.answer(sent) == "beside"
    assert DRAFT in agent.screen
    agent.press("Enter")
    agent.until(lambda: agent.heard(DRAFT), "what the person wrote")
    [typed] = agent.heard(DRAFT)
    assert typed.prompt == DRAFT
    assert agent.answer(sent) == "beside"


def its_model_fails(agent: Agent) -> None:
    """An error is no answer."""
    asked = agent.ask("<<err 400 it is broken>>")
    assert (asked.code, asked.out) == (6, ""), (asked, agent.situation())
    assert "it is broken" in asked.err
    if agent.known.limit:
        asked = agent.ask("<<err 429 no more of it>>")
        assert (asked.code, asked.out) == (6, ""), (asked, agent.situation())
        assert agent.known.limit in asked.err


def it_is_interrupted(agent: Agent) -> None:
    """What is urgent does not wait."""
    first = agent.send("<<say begun | wait never | say ended>>")
    agent.at("never")
    assert agent.ask("<<say at once>>", "--priority", "urgent").out == "at once\n"
    task = agent.over(first)
    assert (task["state"], "interrupted" in task["reason"]) == ("failed", True), task


def it_ends_and_comes_back(agent: Agent) -> None:
    """Who asked is told of its end; and what is sent meanwhile is there when it is."""
    asking = agent.room.begin("ask", agent.name, "<<prewait gone | say never>>")
    agent.at("gone")
    agent.reaches("running")
    os.kill(agent.contact["pid"], signal.SIGKILL)
    asked = said(asking)
    assert (asked.code, asked.out) == (6, ""), asked
    assert "ended" in asked.err
    agent.until(lambda: not agent.contact.get("is_present"), "gone")
    waiting = agent.send("<<say back again>>")
    assert agent.task(waiting)["receipt"] == "queued"
    assert agent.room.start(agent.name) is agent
    assert agent.answer(waiting) == "back again"


def every_step_is_told(agent: Agent) -> None:
    """Nothing is skipped but what nobody saw, and nothing is claimed without a reason."""
    tasks = agent.tasks()
    assert len(tasks) > 10
    for task in tasks:
        steps = agent.steps(task["id"])
        states = [state for state, _, _ in steps]
        assert all(by and what for _, by, what in steps)
        assert states == [each for each in IN_ORDER if each in states]
        assert states[:2] == ["accepted", "queued"]
        injected = [by for state, by, _ in steps if state == "injected"]
        assert set(injected) <= set(agent.known.by), steps
        assert task["state"] in ("completed", "failed", "canceled")
        if task["state"] == "completed":
            assert {"seen", "answered"} <= set(states)  # what was seen need not be seen on its way
        else:
            assert task["reason"]
    answered = next(each["id"] for each in tasks if each["state"] == "completed")
    lines = agent.room.bullpen("trace", answered).out.splitlines()
    for state, by, what in agent.steps(answered):
        assert [each for each in lines if state in each and f"by {by}" in each and what in each]


# ------------------------------------------------------------------------------ one of each program


@pytest.mark.requirement("talk:programs:claude")
def test_claude_code_is_talked_to(a_room: Room) -> None:
    live(a_room.start("claude"))


@pytest.mark.requirement("talk:programs:codex")
def test_codex_is_talked_to(a_room: Room) -> None:
    live(a_room.start("codex"))


@pytest.mark.requirement("talk:programs:opencode")
def test_opencode_is_talked_to(a_room: Room) -> None:
    live(a_room.start("opencode"))


@pytest.mark.requirement("talk:programs:gemini")
def test_gemini_cli_is_talked_to(a_room: Room) -> None:
    live(a_room.start("gemini"))


@pytest.mark.requirement("talk:programs:copilot")
def test_copilot_cli_is_talked_to(a_room: Room) -> None:
    live(a_room.start("copilot"))


# ------------------------------------------------------------------------------- with one another


@pytest.mark.requirement("talk:programs:mcp")
def test_claude_code_asks_codex_and_reads_its_answer(a_room: Room) -> None:
    """Each of them is who it was launched as, whatever its model says."""
    a_room.start("codex")
    claude = a_room.start("claude")
    question = json.dumps({"to": "codex", "content": "6 * 7 は? «say 答えは 42»"})
    asked = claude.ask(f"<<tool mcp__bullpen__send_message {question} ;; results>>")
    assert asked.code == 0, (asked, claude.situation())
    assert "答えは 42" in asked.out
    [told] = [each for each in a_room.models.requests if "答えは 42" in "".join(each.tool_results)]
    assert told.dialect == "anthropic"
    [sent] = a_room.asked("task.list", recipient="codex")
    assert (sent["sender"], sent["state"]) == ("claude", "completed")
    assert sent["answers"][-1]["content"] == "答えは 42"
    assert len(claude.heard("[from claude] 6 * 7 は? «say 答えは 42»")) == 1


@pytest.mark.tmux
@pytest.mark.requirement("talk:programs:keyboard")
async def test_a_person_at_codex_writes_to_claude(a_room: Room) -> None:
    """What begins with a name goes to whom it names, and Codex knows nothing of it."""
    claude = await asyncio.to_thread(a_room.start, "claude")
    codex = await asyncio.to_thread(a_room.prepare, "codex")
    async with PrivateTmux(width=120, height=40) as tmux:
        pane = await tmux.new_pane(a_room.command("codex"), cwd=a_room.project)

        async def shows(text: str, *, not_any_more: bool = False) -> None:
            async def is_so() -> bool:
                return (text in await tmux.screen(pane)) is not not_any_more

            await until(is_so, SECONDS)

        async def type_line(text: str) -> None:
            await tmux.run("send-keys", "-t", pane, "-l", text)
            await shows(text)
            await tmux.run("send-keys", "-t", pane, "Enter")

        await asyncio.to_thread(codex.reaches, "idle")
        await shows("Ask Codex to do anything")
        before = await settled(tmux, pane)
        await type_line("@claude <<say 届いた>>")
        await shows("[→ claude (local)]")
        [sent] = await asyncio.to_thread(claude.until, claude.tasks, "a message")
        assert (sent["sender"], sent["message"]["content"]) == ("user", "<<say 届いた>>")
        assert await asyncio.to_thread(claude.answer, sent["id"]) == "届いた"
        assert {each.dialect for each in claude.heard("届いた")} == {"anthropic"}
        await shows("[→ claude (local)]", not_any_more=True)
        assert await settled(tmux, pane) == before
        await type_line("<<say it is all here>>")
        await shows("• it is all here")


async def settled(tmux: PrivateTmux, pane: str) -> str:
    """Wait until a pane shows the same for a while; return what."""
    shown: list[str] = []

    async def is_still() -> bool:
        await asyncio.sleep(0.2)
        shown.append(await tmux.screen(pane))
        return len(shown) > STILL and len(set(shown[-STILL:])) == 1

    await until(is_still, SECONDS)
    return shown[-1]
