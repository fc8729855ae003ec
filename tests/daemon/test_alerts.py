"""What is wrong is told once, counted, and over when its condition is or somebody has seen it."""

from datetime import UTC, datetime, timedelta
from itertools import count

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from bullpen.daemon.alerts import AlertLedger
from bullpen.model.alerts import Alert, AlertLevel, ResolvePolicy

START = datetime(2026, 1, 1, tzinfo=UTC)
AUTO, OPERATOR = ResolvePolicy.AUTO, ResolvePolicy.OPERATOR


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def ledger(**bounds: int) -> AlertLedger:
    ids = map(str, count(1))
    return AlertLedger(lambda: next(ids), **bounds)


def notice(
    alerts: AlertLedger,
    key: str = "source:poller",
    level: AlertLevel = AlertLevel.WARN,
    policy: ResolvePolicy = AUTO,
    *,
    seconds: float = 0,
    message: str = "gone",
) -> Alert:
    return alerts.raise_alert(key, level, "source_failed", message, policy=policy, now=at(seconds))[
        0
    ]


@pytest.mark.requirement("A6-1", "A6-3")
@pytest.mark.parametrize("level", list(AlertLevel))
def test_an_alert_has_a_level_a_code_and_the_time_it_was_raised(level: AlertLevel) -> None:
    alerts = ledger()
    alert = notice(alerts, level=level)
    assert alerts.open == (alert,)
    assert (alert.level, alert.code, alert.raised_at) == (level, "source_failed", START)
    assert alert.is_open


def test_the_same_condition_is_counted_and_not_told_again() -> None:
    alerts = ledger()
    notice(alerts)
    notice(alerts, "another")
    again = notice(alerts, level=AlertLevel.ESCALATE, seconds=60, message="gone again")
    assert (again.alert_id, again.count) == ("1", 2)
    assert (again.raised_at, again.last_seen_at) == (at(0), at(60))
    assert (again.level, again.message) == (AlertLevel.ESCALATE, "gone again")
    assert len(alerts.open) == 2


@pytest.mark.requirement("A6-4")
def test_an_alert_is_over_when_its_condition_is() -> None:
    alerts = ledger()
    notice(alerts)
    [resolved] = alerts.clear("source:poller", now=at(5))
    assert resolved.resolved_at == at(5)
    assert (alerts.open, alerts.all) == ((), (resolved,))
    assert alerts.clear("source:poller", now=at(6)) == ()


@pytest.mark.requirement("A6-4")
def test_one_for_an_operator_stays_until_it_is_acknowledged() -> None:
    alerts = ledger()
    alert = notice(alerts, policy=OPERATOR)
    assert alerts.clear(alert.key, now=at(5)) == ()
    assert alert in alerts.open
    acknowledged = alerts.acknowledge(alert.alert_id, now=at(6))
    assert acknowledged is not None
    assert (acknowledged.acknowledged_at, acknowledged.resolved_at) == (at(6), at(6))
    assert not alerts.open


@pytest.mark.requirement("A6-4")
def test_acknowledging_does_not_end_a_condition_that_still_holds() -> None:
    alerts = ledger()
    alert = notice(alerts)
    acknowledged = alerts.acknowledge(alert.alert_id, now=at(5))
    assert acknowledged is not None
    assert (acknowledged.acknowledged_at, acknowledged.resolved_at) == (at(5), None)
    assert alerts.acknowledge(alert.alert_id, now=at(6)) == acknowledged  # once is enough
    again = notice(alerts, seconds=7)
    assert (again.acknowledged_at, again.count) == (at(5), 2)
    assert alerts.clear(alert.key, now=at(8))[0].resolved_at == at(8)


def test_a_condition_that_returns_is_a_new_alert() -> None:
    alerts = ledger()
    notice(alerts)
    alerts.clear("source:poller", now=at(1))
    again = notice(alerts, seconds=2)
    assert (again.alert_id, again.count) == ("2", 1)
    assert [each.alert_id for each in alerts.all] == ["2", "1"]


def test_an_alert_that_became_an_operators_stays_one() -> None:
    alerts = ledger()
    notice(alerts)
    notice(alerts, policy=OPERATOR)
    assert notice(alerts).policy is OPERATOR
    assert alerts.clear("source:poller", now=at(1)) == ()


def test_nobody_can_acknowledge_what_is_not_there() -> None:
    alerts = ledger()
    assert alerts.acknowledge("17", now=START) is None
    alert = notice(alerts)
    alerts.clear(alert.key, now=at(1))
    late = alerts.acknowledge(alert.alert_id, now=at(2))
    assert late is not None  # it is over already: nothing changes
    assert (late.acknowledged_at, late.resolved_at) == (None, at(1))


def test_alerts_of_an_earlier_run_are_known_again() -> None:
    before = ledger()
    kept = notice(before)
    notice(before, "over", seconds=1)
    before.clear("over", now=at(2))
    after = AlertLedger(lambda: "new")
    after.restore(before.all)
    assert after.all == before.all
    assert notice(after, seconds=9).alert_id == kept.alert_id
    assert notice(after, "fresh", seconds=9).alert_id == "new"


def test_the_newest_come_first() -> None:
    alerts = ledger()
    for number in range(3):
        notice(alerts, str(number), seconds=number)
    notice(alerts, "0", seconds=9)  # noticed again is not newer
    assert [each.key for each in alerts.open] == ["2", "1", "0"]


def test_what_is_kept_is_bounded_and_what_had_to_go_is_told() -> None:
    alerts = ledger(most_open=2, most_resolved=3)
    notice(alerts, "a")
    notice(alerts, "b", seconds=1)
    notice(alerts, "a", seconds=2)
    changed = alerts.raise_alert("c", AlertLevel.WARN, "x", "y", now=at(3))
    assert [(each.key, each.is_open) for each in changed] == [("c", True), ("b", False)]
    for number in range(10):
        notice(alerts, str(number), seconds=10 + number)
    assert len(alerts.open) == 2
    assert len(alerts.all) == 5


class Ledgers(RuleBasedStateMachine):
    """Whatever happens in whatever order."""

    def __init__(self) -> None:
        super().__init__()
        self.alerts = ledger(most_open=3, most_resolved=4)
        self.seconds = 0

    def now(self) -> datetime:
        self.seconds += 1
        return at(self.seconds)

    @rule(key=st.sampled_from("abcde"), policy=st.sampled_from(ResolvePolicy))
    def notice(self, key: str, policy: ResolvePolicy) -> None:
        changed = self.alerts.raise_alert(
            key, AlertLevel.WARN, "x", "y", policy=policy, now=self.now()
        )
        assert changed[0].key == key
        assert changed[0] in self.alerts.open

    @rule(key=st.sampled_from("abcde"))
    def clear(self, key: str) -> None:
        self.alerts.clear(key, now=self.now())
        held = [each for each in self.alerts.open if each.key == key]
        assert all(each.policy is OPERATOR for each in held)

    @rule(alert_id=st.integers(1, 30).map(str))
    def acknowledge(self, alert_id: str) -> None:
        alert = self.alerts.acknowledge(alert_id, now=self.now())
        if alert is not None and alert.is_open:
            assert alert.policy is AUTO

    @invariant()
    def one_open_alert_per_condition(self) -> None:
        keys = [each.key for each in self.alerts.open]
        assert len(keys) == len(set(keys)) <= 3
        assert len({each.alert_id for each in self.alerts.all}) == len(self.alerts.all) <= 7
        assert all(each.resolved_at is None for each in self.alerts.open)


TestLedgers = Ledgers.TestCase
TestLedgers.settings = settings(max_examples=50, stateful_step_count=30)
