"""The shipped rules read the recorded screens as well as we promise."""

import pytest

from bullpen.cli.evaluate import evaluate_directory
from bullpen.observe.evaluate import Report
from bullpen.terminal.rules import shipped_rules
from tests.terminal.recorded import SCREENS, labels


@pytest.fixture(scope="module")
def report() -> Report:
    return evaluate_directory(SCREENS, shipped_rules())


def test_every_recording_is_judged(report: Report) -> None:
    assert report.rows == len(labels()) >= 286


@pytest.mark.requirement("TG-13", "accuracy:weighted-f1")
def test_weighted_f1_is_at_least_99_percent(report: Report) -> None:
    assert report.weighted_f1 >= 0.99, report.misses


@pytest.mark.requirement("TG-13", "accuracy:waiting-recall")
def test_no_waiting_agent_is_overlooked(report: Report) -> None:
    assert report.waiting_recall == 1.0, report.misses


@pytest.mark.requirement("accuracy:false-agents")
def test_no_other_program_is_taken_for_an_agent(report: Report) -> None:
    assert report.false_agents == 0, report.misses


@pytest.mark.requirement("accuracy:approvals-called-idle")
def test_no_approval_is_called_idle(report: Report) -> None:
    assert report.approvals_called_idle == 0, report.misses


@pytest.mark.requirement("accuracy:ready-errors")
def test_nothing_would_be_typed_where_it_must_not_or_held_back_where_it_could_go(
    report: Report,
) -> None:
    assert report.ready_errors == 0, report.misses


def test_every_agent_is_known_for_what_it_is(report: Report) -> None:
    assert report.provider_errors == 0, report.misses
