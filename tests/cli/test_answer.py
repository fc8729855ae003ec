"""`bullpen answer` shows what an agent asks, and answers it."""

import pytest

from bullpen.model.dialogs import Answered, Dialog
from bullpen.model.states import Activity
from bullpen.testing.daemon import FakeDaemon, agent_state
from bullpen.testing.tmux import eventually
from tests.cli.commands import execute, invoke, show

DIALOG = Dialog(id="d-1", text="Run it?\n\x1b[1m$ make", answers=("yes", "no"))


class FakeAsking:
    """An agent that asks."""

    def __init__(self) -> None:
        self.asked: Dialog | None = DIALOG
        self.said: list[str] = []

    def dialog(self, agent: str) -> Dialog | None:
        return self.asked if agent == "codex" else None

    def knows(self, agent: str) -> bool:
        return agent == "codex"

    async def answer_dialog(self, agent: str, dialog_id: str, said: str) -> Answered:
        assert (agent, dialog_id) == ("codex", "d-1")
        if said not in ("yes", "no"):
            return Answered.NOT_UNDERSTOOD
        self.said.append(said)
        self.asked = None
        return Answered.DONE


@pytest.fixture
def asking(daemon: FakeDaemon) -> FakeAsking:
    daemon.set_agent(agent_state("codex", Activity.WAITING_APPROVAL))
    daemon.set_agent(agent_state("claude-1", Activity.IDLE, pane="%2"))
    found = FakeAsking()
    daemon.talk.dialogs.add(found)
    return found


@pytest.mark.requirement("a2a:approval")
async def test_what_is_asked_is_shown_and_answered_once(asking: FakeAsking) -> None:
    shown = (await show("answer", "codex")).out
    assert shown.split("\n")[0] == "Run it?"
    assert "\x1b" not in shown
    assert "answer   yes, no\ndialog   d-1\n" in shown
    told = (await show("answer", "codex", "--json")).json
    assert (told["dialog"]["id"], told["dialog"]["answers"]) == ("d-1", ["yes", "no"])
    assert told["answered"] is None
    refused = await invoke("answer", "codex", "perhaps")
    assert (refused.code, refused.out) == (5, "")
    assert "it takes one of: yes; no" in refused.err
    assert (await invoke("answer", "codex", "yes", "--dialog", "d-0")).code == 5
    assert asking.said == []
    done = await show("answer", "codex", "yes", "--dialog", "d-1")
    assert done.out == "answered yes to codex\n"
    assert asking.said == ["yes"]
    again = await invoke("answer", "codex", "yes")
    assert (again.code, "asks nothing" in again.err) == (5, True)


@pytest.mark.requirement("a2a:approval")
async def test_who_asks_nothing_has_nothing_to_be_answered(asking: FakeAsking) -> None:
    nothing = await invoke("answer", "claude-1")
    assert (nothing.code, nothing.out) == (6, "")
    assert nothing.err == "bullpen: claude-1 asks nothing\n"
    assert (await invoke("answer", "claude-1", "yes")).code == 5
    assert (await invoke("answer", "nobody", "yes")).code == 4
    assert asking.said == []


@pytest.mark.requirement("a2a:approval")
async def test_an_agent_answers_for_nobody(asking: FakeAsking, daemon: FakeDaemon) -> None:
    secret = await daemon.talk.secret_of("claude-1")
    refused = await execute("answer", "codex", "yes", BULLPEN_SECRET=secret)
    assert refused.code == 5
    assert "for a person" in refused.err
    assert asking.said == []


@pytest.mark.requirement("a2a:approval")
async def test_a_task_shows_what_its_agent_asks(asking: FakeAsking, daemon: FakeDaemon) -> None:
    daemon.talk.door.lead_to("codex")
    await show("send", "codex", "clean up")
    await eventually(lambda: bool(daemon.talk.door.handed))
    told = (await show("task", "m-1", "--json")).json["task"]
    assert (told["state"], told["dialog"]["id"]) == ("input_required", "d-1")
    lines = (await show("task", "m-1")).out.split("\n")
    assert "  because   the agent waits for an approval" in lines
    assert "    Run it?" in lines
    assert "  answer it  bullpen answer codex yes | no" in lines
    await show("answer", "codex", "no")
    assert (await show("task", "m-1", "--json")).json["task"]["dialog"] is None
