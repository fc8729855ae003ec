"""The figures mean what they say, and every miss is told with its reason."""

import pytest

from bullpen.model.states import Activity, Provider, SignatureClass
from bullpen.observe.evaluate import Label, Report, score
from bullpen.observe.pane import PaneVerdict
from bullpen.observe.signature import Signature
from bullpen.terminal.rules import Verdict


def row(
    truth: str, found: str, *, ready: bool = False, found_ready: bool = False
) -> tuple[Label, PaneVerdict]:
    """Return a label and a verdict, each written as `provider activity` or `none`."""
    provider, _, activity = truth.partition(" ")
    label = Label("f.txt", provider, activity or "none", ready)
    who, _, what = found.partition(" ")
    if who == "none":
        return label, PaneVerdict(Signature(None, SignatureClass.NONE, 0.0, "a shell"), None)
    signature = Signature(Provider(who), SignatureClass.HEURISTIC, 1.0, "process")
    verdict = Verdict(Provider(who), Activity(what), found_ready, "because", "empty", rule="r")
    return label, PaneVerdict(signature, verdict)


def test_a_perfect_reading_has_no_miss() -> None:
    report = score(
        [
            row("claude idle", "claude idle", ready=True, found_ready=True),
            row("codex waiting_approval", "codex waiting_approval"),
            row("none", "none"),
        ]
    )
    assert report.weighted_f1 == 1.0
    assert report.waiting_recall == 1.0
    assert report.misses == ()


def test_f1_is_weighted_by_how_many_screens_a_class_has() -> None:
    report = score([row("claude idle", "claude idle")] * 3 + [row("claude error", "claude idle")])
    by_label = {each.label: each for each in report.classes}
    assert by_label["idle"].precision == 0.75
    assert by_label["idle"].recall == 1.0
    assert by_label["error"].recall == 0.0
    assert report.weighted_f1 == pytest.approx(0.75 * (2 * 3 / (3 + 4)))


def test_waiting_is_recalled_whichever_kind_of_waiting_is_named() -> None:
    rows = [
        row("claude waiting_approval", "claude waiting_input"),
        row("claude waiting_input", "claude idle"),
    ]
    assert score(rows).waiting_recall == 0.5


@pytest.mark.parametrize(
    ("pair", "figure", "what"),
    [
        (row("none", "claude idle"), "false_agents", "false agent"),
        (
            row("claude waiting_approval", "claude idle"),
            "approvals_called_idle",
            "approval called idle",
        ),
        (row("codex idle", "claude idle"), "provider_errors", "provider"),
        (row("codex idle", "none"), "provider_errors", "provider"),
        (
            row("claude idle", "claude idle", found_ready=True),
            "ready_errors",
            "typed where it must not",
        ),
        (
            row("claude idle", "claude idle", ready=True),
            "ready_errors",
            "held back where it could go",
        ),
    ],
)
def test_each_grave_mistake_has_a_figure_of_its_own(
    pair: tuple[Label, PaneVerdict], figure: str, what: str
) -> None:
    report = score([pair])
    assert getattr(report, figure) == 1
    assert what in report.misses[0].what
    others = {"false_agents", "approvals_called_idle", "provider_errors", "ready_errors"}
    assert [name for name in sorted(others) if getattr(report, name)] == [figure]


def test_a_menu_counts_only_for_whether_the_screen_was_ready() -> None:
    report = score(
        [
            row("claude menu", "claude idle"),
            row("claude menu", "claude waiting_input"),
            row("claude menu", "claude idle", found_ready=True),
        ]
    )
    assert report.classes == ()
    assert report.ready_errors == 1
    assert [miss.what for miss in report.misses] == [("typed where it must not",)]


def test_a_miss_says_what_was_expected_what_was_found_and_why() -> None:
    (miss,) = score([row("claude idle", "claude running", ready=True)]).misses
    assert miss.file == "f.txt"
    assert miss.expected == "claude idle, ready"
    assert miss.found == "claude running"
    assert miss.explanation == "process; because; rule r"


def test_no_rows_make_no_division_by_zero() -> None:
    assert score([]) == Report(0, 1.0, 1.0, 0, 0, 0, 0, (), ())
