"""What agents ask: who is believed about it, and when it is told."""

from typing import cast

import pytest

from bullpen.api.errors import ApiError
from bullpen.daemon.dialogs import Dialogs
from bullpen.daemon.wrappers import Wrappers
from bullpen.model.dialogs import Answered, Dialog
from bullpen.model.reasons import Reason

OWN = Dialog(id="own-1", text="Run it?", answers=("yes", "no"))
SHOWN = Dialog(id="shown-1", text="Run it?\n1. Yes\n2. No", answers=("yes", "no"))


class Nobody:
    """No agent is wrapped."""

    def find(self, name: str) -> None:
        del name


class Asking:
    def __init__(self, asked: Dialog | None, *, knows: bool = False) -> None:
        self.asked = asked
        self.is_knowing = knows
        self.said: list[str] = []
        self.outcome = Answered.DONE

    def dialog(self, agent: str) -> Dialog | None:
        del agent
        return self.asked

    def knows(self, agent: str) -> bool:
        del agent
        return self.is_knowing

    async def answer_dialog(self, agent: str, dialog_id: str, said: str) -> Answered:
        del agent, dialog_id
        self.said.append(said)
        return self.outcome


def dialogs(*known: Asking) -> Dialogs:
    """Those who know, the best one last."""
    found = Dialogs(cast(Wrappers, Nobody()), lambda _: None)
    for each in known:
        found.add(each)
    return found


@pytest.mark.requirement("a2a:approval")
async def test_an_agents_own_server_is_believed_rather_than_its_screen() -> None:
    screen, own = Asking(SHOWN), Asking(OWN)
    asked = dialogs(screen, own)
    assert asked.of("codex") == OWN
    own.asked, own.is_knowing = None, True
    assert asked.of("codex") is None  # it asks nothing, whatever is still painted
    own.is_knowing = False
    assert asked.of("codex") == SHOWN  # what it asked was asked before anybody listened


@pytest.mark.requirement("a2a:approval")
async def test_what_was_answered_is_asked_no_more_though_its_screen_still_shows_it() -> None:
    screen, own = Asking(SHOWN), Asking(OWN)
    asked = dialogs(screen, own)
    assert await asked.answer("codex", "yes", "own-1") == OWN
    assert (own.said, screen.said) == (["yes"], [])
    assert asked.of("codex") is None
    with pytest.raises(ApiError) as refused:
        await asked.answer("codex", "yes")
    assert refused.value.code == Reason.NOT_ASKED
    own.asked = Dialog(id="own-2", text="Really?", answers=("yes", "no"))
    assert asked.of("codex") == own.asked


@pytest.mark.requirement("a2a:approval")
@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (Answered.NOT_ASKED, Reason.NOT_ASKED),
        (Answered.NOT_UNDERSTOOD, Reason.INVALID_MESSAGE),
        (Answered.UNSURE, Reason.AGENT_UNREACHABLE),
    ],
    ids=["not-asked", "not-understood", "unsure"],
)
async def test_what_was_not_taken_is_still_asked(outcome: Answered, reason: Reason) -> None:
    own = Asking(OWN)
    own.outcome = outcome
    asked = dialogs(own)
    with pytest.raises(ApiError) as refused:
        await asked.answer("codex", "yes")
    assert refused.value.code == reason
    assert asked.of("codex") == OWN


@pytest.mark.requirement("a2a:approval")
async def test_nothing_is_said_to_another_dialog_or_to_one_that_takes_no_answer() -> None:
    own = Asking(OWN)
    asked = dialogs(own)
    with pytest.raises(ApiError) as refused:
        await asked.answer("codex", "yes", "own-0")
    assert refused.value.code == Reason.NOT_ASKED
    own.asked = Dialog(id="form", text="Fill in this form")
    with pytest.raises(ApiError) as refused:
        await asked.answer("codex", "yes")
    assert refused.value.code == Reason.INVALID_MESSAGE
    assert own.said == []
