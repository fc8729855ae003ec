"""Five timeouts, each of which covers something else."""

import pytest

from bullpen.mail.timeouts import Timeout, Timeouts, answer_timeout
from bullpen.model.messages import MessageType
from tests.mail.samples import SECOND, T0


@pytest.mark.requirement("O-85")
def test_the_defaults_are_those_of_the_seed_and_can_be_set() -> None:
    assert {each.value: Timeouts().seconds(each) for each in Timeout} == {
        "start": 30,
        "send": 10,
        "receive": 60,
        "task": 300,
        "idle": 120,
    }
    assert Timeouts(task=1.5).seconds(Timeout.TASK) == 1.5


@pytest.mark.requirement("B1.13-i")
def test_only_a_task_has_the_time_of_a_task() -> None:
    long = [kind for kind in MessageType if answer_timeout(kind) is Timeout.TASK]
    assert long == [MessageType.TASK_REQUEST]
    assert answer_timeout(MessageType.PING) is Timeout.RECEIVE


@pytest.mark.requirement("B1.13-h")
def test_a_silent_task_is_not_idle() -> None:
    timeouts = Timeouts()
    assert not timeouts.is_idle(T0, T0 + 299 * SECOND, outstanding=1)
    assert not timeouts.is_idle(T0, T0 + 119 * SECOND, outstanding=0)
    assert timeouts.is_idle(T0, T0 + 120 * SECOND, outstanding=0)


@pytest.mark.parametrize(
    ("timeout", "seconds", "shown"), [(Timeout.START, 30.0, "30"), (Timeout.SEND, 0.5, "0.5")]
)
def test_the_time_that_ran_out_is_told(timeout: Timeout, seconds: float, shown: str) -> None:
    data = Timeouts(start=seconds, send=seconds).data(timeout, "middle_manager")
    assert data == {"timeout_seconds": seconds, "agent_id": "middle_manager"}
    assert str(data["timeout_seconds"]) == shown
