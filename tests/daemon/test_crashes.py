"""Whoever is killed, and at whichever step of a message: nothing is lost, twice, or a lie.

Everybody is a real process and dies by SIGKILL; then whoever died is started again, as a user
would. Whatever happened, of every message this holds:

- who was told that it is accepted finds it, and sending it again with its key is no second one;
- no agent was given it twice, and it has no second answer;
- its receipt moves along its arrows, is `seen` only if the agent had read it, and `answered` only
  with what the agent said; where nobody can know, it is `failed` and says so;
- its sender is told what became of it, once; and the next message is delivered.

What becomes of it (`n`: how often the agent was given it):

| killed at       | daemon       | wrapper           | agent program     | sender          |
|-----------------|--------------|-------------------|-------------------|-----------------|
| before accept   | answered, 1  | answered, 1 (a)   | answered, 1 (a)   | answered, 1     |
| accepted/queued | answered, 1  | answered, 1 (a)   | answered, 1 (a)   | answered, 1     |
| leased          | answered, 1  | failed, 0 (b)     | (c)               | answered, 1     |
| being typed     | answered, 1  | as injected       | as injected       | as injected     |
| injected        | answered, 1  | failed, 1 (b)     | failed, 1 (b)     | answered, 1     |
| submitted       | answered, 1  | failed, 1 (b)     | failed, 1 (b)     | answered, 1     |
| seen            | answered, 1  | failed, 1         | failed, 1         | answered, 1     |
| answer is told  | answered, 1  | either, 1 (d)     | failed, 1         | answered, 1     |
| answered        | answered, 1  | answered, 1       | answered, 1       | answered, 1 (e) |

(a) It waits, and the agent that is started again under the name has it. (b) It may have had it, or
not, and that is what is said: it is never typed into another one by itself. (c) The wrapper finds
out that its program is gone before or while it types: then it waits for the next, or fails.
(d) The daemon may have heard it. (e) Who asks again with the key gets the answer.

*Being typed* is a step of its own for the daemon alone: it is what the daemon has not written down
yet. For the others it is the moment before `injected`.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from bullpen.mail.receipts import TRANSITIONS
from bullpen.model.deliveries import ReceiptState
from tests.daemon.houses import SECONDS, Agent, House, end, house

pytestmark = [pytest.mark.xdist_group("crashes"), pytest.mark.timeout(120)]

S = ReceiptState
FINAL = ("answered", "failed", "dead", "expired")
MAY_HAVE = ("may have had it", "ended without answering", "has ended", "does not answer")


@pytest.fixture(scope="module")
def shared() -> Iterator[House]:
    """One house for all: its daemon is started by who needs it, and goes on for the next."""
    with house() as found:
        yield found


@pytest.fixture
async def here(shared: House) -> AsyncIterator[House]:
    if not hasattr(shared, "daemon") or shared.daemon.poll() is not None:
        await shared.start_daemon()
    yield shared
    shared.disarm()
    with contextlib.suppress(ProcessLookupError):
        shared.daemon.send_signal(signal.SIGCONT)
    await shared.end_agents()


def name_of(victim: str, step: str) -> str:
    return f"{victim}-{step}"


# ------------------------------------------------------------------------------------- what holds


async def check(
    here: House, agent: Agent, message_id: str, text: str, *, states: tuple[str, ...], given: int
) -> None:
    """Make sure of all that is promised about a message, whatever befell it."""
    await here.becomes(message_id, *states)
    trace = await here.trace(message_id)
    steps = [S(each["state"]) for each in trace["receipts"]]
    assert steps[0] is S.ACCEPTED
    assert steps[-1] == trace["deliveries"][0]["state"]
    for before, after in pairwise(steps):
        assert after in TRANSITIONS[before] or before is after is S.QUEUED, steps
    assert agent.lines(text) == given, "how often the agent was given it"
    if S.SEEN in steps:
        assert agent.lines(text) == 1, "nobody has seen what he was not given"
    answers = [each for each in trace["thread"] if each["reply_to"] == message_id]
    assert len(answers) == 1, "it has one answer, or one word that there will be none"
    [answer] = answers
    if steps[-1] is S.ANSWERED:
        assert answer["type"] == "task_response"
        assert answer["content"].splitlines()[-1] == f"done: [from user] {text}"
    else:
        assert answer["type"] == "task_failed"
        assert any(words in answer["content"] for words in MAY_HAVE), answer["content"]
    await check_told(here, message_id, answer)
    if not agent.words:  # else it takes its time
        await check_next(here, agent, f"{text} next")


async def check_told(here: House, message_id: str, answer: dict[str, Any]) -> None:
    waited = await here.peer.ask("mail.wait", message_id=message_id, until="ended")
    assert waited["reply"]["id"] == answer["id"]
    [delivery] = (await here.trace(answer["id"]))["deliveries"]
    inbox = (await here.peer.ask("mail.inbox", take=True, limit=500))["deliveries"]
    mine = [each for each in inbox if each["message"]["reply_to"] == message_id]
    assert len(mine) == (delivery["state"] == "queued"), "who did not wait for it finds it"


async def check_next(here: House, agent: Agent, text: str) -> None:
    sent = await here.send(agent.name, text)
    await here.becomes(sent["message"]["id"], "answered")
    assert agent.lines(text) == 1


# ------------------------------------------------------------------------------------- the daemon


@pytest.mark.requirement("talk:crash", "talk:restart")
@pytest.mark.parametrize(
    "point",
    [
        "before-accepted",
        "accepted",
        "leased",
        "before-injected",
        "injected",
        "submitted",
        "seen",
        "before-answered",
        "answered",
    ],
)
async def test_the_daemon_is_killed(here: House, point: str) -> None:
    agent = await here.agent(name_of("daemon", point))
    text = f"a task {point}"
    here.arm(point)
    key = f"key {point}"
    sent = None
    with contextlib.suppress(OSError, ValueError):  # it is killed before it has answered
        sent = await here.send(agent.name, text, idempotency_key=key)
    await here.daemon_ended()
    await here.start_daemon()
    again = await here.send(agent.name, text, idempotency_key=key)
    assert again["is_new"] is (point == "before-accepted")
    if sent is not None:
        assert again["message"]["id"] == sent["message"]["id"]
    await check(here, agent, again["message"]["id"], text, states=("answered",), given=1)


# -------------------------------------------------------------- the wrapper and the agent program


class Story:
    """A message on its way to an agent, stopped at a step."""

    def __init__(self, here: House, victim: str, step: str) -> None:
        self.here = here
        self.victim = victim
        self.step = step
        self.text = f"{victim} {step}"
        self.agent: Agent
        self.message_id = ""
        self.key = f"key {victim} {step}"

    async def begin(self) -> None:
        words = ["noecho"] if self.step == "injected" else []
        name = name_of(self.victim, self.step)
        self.agent = await self.here.agent(name, *words)

    async def send(self) -> None:
        sent = await self.here.send(self.agent.name, self.text, idempotency_key=self.key)
        self.message_id = sent["message"]["id"]

    async def go_to_step(self) -> None:
        """Send the message and wait until it is where it is to be stopped."""
        await getattr(self, f"_until_{self.step}")()

    async def _until_queued(self) -> None:
        busy = await self.here.send(self.agent.name, "keep busy work=busy")
        await self.here.becomes(busy["message"]["id"], "seen")
        await self.send()

    async def _until_leased(self) -> None:
        self.agent.wrapper.send_signal(signal.SIGSTOP)
        await self.send()
        await self.here.until(self.message_id, lambda each: each["leased_by"] == "pty")

    async def _until_injected(self) -> None:
        self.text += " quiet=go"
        await self.send()
        # It is so for some seconds, while an echo is waited for.
        await self.here.becomes(self.message_id, "injected", "submitted")
        await self._has_read()

    async def _until_submitted(self) -> None:
        self.text += " quiet=go"
        await self.send()
        await self.here.becomes(self.message_id, "submitted")
        await self._has_read()

    async def _until_seen(self) -> None:
        self.text += " work=go"
        await self.send()
        await self.here.becomes(self.message_id, "seen")

    async def _until_answered(self) -> None:
        await self.send()
        await self.here.becomes(self.message_id, "answered")

    async def _has_read(self) -> None:
        await self.here.see(lambda: self.agent.lines(self.text))

    async def start_again(self) -> None:
        """Start the agent again, as it is started usually."""
        self.agent.words = ()
        await self.agent.start()

    def go_on(self) -> None:
        """Let everybody go on who is left."""
        for gate in ("go", "busy"):
            self.agent.open(gate)


OUTCOMES: dict[str, tuple[tuple[str, ...], int]] = {
    "before": (("answered",), 1),
    "queued": (("answered",), 1),
    "leased": (("failed",), 0),
    "injected": (("failed",), 1),
    "submitted": (("failed",), 1),
    "seen": (("failed",), 1),
    "answered": (("answered",), 1),
}


@pytest.mark.requirement("talk:crash", "talk:ended")
@pytest.mark.parametrize("step", OUTCOMES)
async def test_a_wrapper_is_killed(here: House, step: str) -> None:
    story = Story(here, "wrapper", step)
    await story.begin()
    if step != "before":
        await story.go_to_step()
    await end(story.agent.wrapper)
    if step == "before":
        await story.send()
    await story.start_again()
    story.go_on()
    states, given = OUTCOMES[step]
    await check(here, story.agent, story.message_id, story.text, states=states, given=given)


@pytest.mark.requirement("talk:crash")
async def test_a_wrapper_is_killed_while_it_tells_the_answer(here: House) -> None:
    story = Story(here, "wrapper", "answering")
    await story.begin()
    story.text += " work=go"
    await story.send()
    await here.becomes(story.message_id, "seen")
    here.daemon.send_signal(signal.SIGSTOP)  # so that it hears nothing
    story.go_on()
    await here.see(lambda: story.agent.answers(story.text))
    await end(story.agent.wrapper)
    here.daemon.send_signal(signal.SIGCONT)
    await story.start_again()
    states = ("answered", "failed")
    await check(here, story.agent, story.message_id, story.text, states=states, given=1)


@pytest.mark.requirement("talk:crash", "talk:ended")
@pytest.mark.parametrize("step", OUTCOMES)
async def test_an_agent_program_is_killed(here: House, step: str) -> None:
    story = Story(here, "agent", step)
    await story.begin()
    pid = await story.agent.pid()
    if step != "before":
        await story.go_to_step()
    os.kill(pid, signal.SIGKILL)
    story.agent.wrapper.send_signal(signal.SIGCONT)
    await asyncio.to_thread(story.agent.wrapper.wait, SECONDS)
    if step == "before":
        await story.send()
    await story.start_again()
    story.go_on()
    states, given = OUTCOMES[step]
    if step == "leased":
        states = ("answered", "failed")
        await here.becomes(story.message_id, *states)
        given = int((await here.delivery(story.message_id))["state"] == "answered")
    await check(here, story.agent, story.message_id, story.text, states=states, given=given)


@pytest.mark.requirement("talk:crash", "talk:failure")
async def test_an_agent_program_dies_behind_its_answer(here: House) -> None:
    story = Story(here, "agent", "answering")
    await story.begin()
    story.text += " die"
    await story.send()
    await asyncio.to_thread(story.agent.wrapper.wait, SECONDS)
    await story.start_again()
    await check(here, story.agent, story.message_id, story.text, states=("failed",), given=1)


# ------------------------------------------------------------------------------------- the sender

HOLDS = {
    "before": "hold:before-accepted",
    "accepted": "hold:accepted",
    "answering": "hold:before-answered",
}


@pytest.mark.requirement("talk:crash")
@pytest.mark.parametrize(
    "step",
    ["before", "accepted", "queued", "leased", "injected", "submitted", "seen", "answering"],
)
async def test_a_sender_is_killed(here: House, step: str) -> None:
    story = Story(here, "sender", step)
    await story.begin()
    busy = None
    if step == "queued":
        busy = await here.send(story.agent.name, "keep busy work=busy")
        await here.becomes(busy["message"]["id"], "seen")
    if step == "leased":
        story.agent.wrapper.send_signal(signal.SIGSTOP)
    if step in ("injected", "submitted"):
        story.text += " quiet=go"
    if step == "seen":
        story.text += " work=go"
    if step in HOLDS:
        here.arm(HOLDS[step])
    words = ("send", story.agent.name, story.text, "--key", story.key, "--wait", "answered")
    sender = here.command(*words, "--json")
    if step in HOLDS:
        await here.reached()
    else:
        story.message_id = await _waiting_for(here, story.agent.name, story.text)
        if step == "leased":
            await here.until(story.message_id, lambda each: each["leased_by"] == "pty")
        elif step == "injected":
            await here.becomes(story.message_id, "injected", "submitted")
        elif step != "queued":
            await here.becomes(story.message_id, step)
    await end(sender)
    here.disarm()
    story.agent.wrapper.send_signal(signal.SIGCONT)
    story.go_on()
    again = await here.send(story.agent.name, story.text, idempotency_key=story.key)
    if story.message_id:
        assert again["message"]["id"] == story.message_id
    await check(
        here, story.agent, again["message"]["id"], story.text, states=("answered",), given=1
    )


async def _waiting_for(here: House, agent: str, text: str) -> str:
    """Return the id of a message once it is there."""
    found: list[str] = []

    async def look() -> bool:
        tasks = await here.peer.ask("task.list", recipient=agent)
        found[:] = [each["id"] for each in tasks if each["message"]["content"] == text]
        return bool(found)

    async with asyncio.timeout(SECONDS):
        while not await look():  # noqa: ASYNC110 - it looks from outside
            await asyncio.sleep(0.02)
    return found[0]


@pytest.mark.requirement("talk:crash")
async def test_a_sender_is_killed_with_the_answer_before_him(here: House) -> None:
    story = Story(here, "sender", "answered")
    await story.begin()
    story.text += " work=go"
    words = ("send", story.agent.name, story.text, "--key", story.key, "--wait", "answered")
    sender = here.command(*words, "--json")
    story.message_id = await _waiting_for(here, story.agent.name, story.text)
    await here.becomes(story.message_id, "seen")
    sender.send_signal(signal.SIGSTOP)
    story.go_on()
    await here.becomes(story.message_id, "answered")
    await end(sender)
    again = here.command(*words, "--json")
    said, _ = await asyncio.to_thread(again.communicate, timeout=SECONDS)
    record = msgspec.json.decode(said)
    assert again.returncode == 0, record
    assert "done: [from user] sender answered" in str(record)
    await check(here, story.agent, story.message_id, story.text, states=("answered",), given=1)
