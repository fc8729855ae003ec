"""An explanation in words for a person, the same in every face."""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

from bullpen.model.appearance import ACTIVITIES, EVIDENCE, age_words, one_line
from bullpen.model.states import Activity
from bullpen.model.views import AgentState, Claim, Explanation, PaneState

__all__ = ["explanation_lines", "state_words"]

StateWords = Callable[[Activity], str]


def state_words(activity: Activity) -> str:
    """Return a state as symbol and word."""
    return f"{ACTIVITIES[activity].symbol} {activity}"


def explanation_lines(
    explanation: Explanation, now: datetime, *, state: StateWords = state_words
) -> list[str]:
    """Return an explanation for a person to read. A face may put colour around each state."""
    lines = [*_head(explanation, now, state)]
    winners = [claim for claim in explanation.claims if claim.is_winner]
    losers = [claim for claim in explanation.claims if not claim.is_winner]
    for heading, claims in (("won", winners), ("lost", losers)):
        if claims:
            lines.append(heading)
            for claim in claims:
                lines += _claim_lines(claim, state)
    if explanation.refused:
        lines += ["refused", *(f"  {one_line(each)}" for each in explanation.refused)]
    return lines


def _head(explanation: Explanation, now: datetime, state: StateWords) -> Iterator[str]:
    if explanation.agent is not None:
        yield from _agent_lines(explanation.agent, now, state)
    else:
        yield f"{one_line(explanation.subject)}: no agent"
    if explanation.pane is not None:
        yield from _pane_lines(explanation.pane)


def _agent_lines(agent: AgentState, now: datetime, state: StateWords) -> Iterator[str]:
    ready = "ready for a message" if agent.is_ready else "not ready for a message"
    age = age_words((now - agent.since).total_seconds())
    yield f"{one_line(agent.name)} is {state(agent.activity)} for {age}, {ready}"
    yield f"  known     {EVIDENCE[agent.evidence_mode]} {agent.evidence_mode}, by {agent.source}"
    if agent.reason:
        yield f"  because   {one_line(agent.reason)}"
    if agent.session_key:
        yield f"  session   {one_line(agent.session_key)}"


def _pane_lines(pane: PaneState) -> Iterator[str]:
    place = pane.place
    where = f"{place.session_name}:{place.window_index}.{place.pane_index}"
    where = one_line(f"{where} {pane.pane_instance_id.pane_id}")
    yield f"  pane      {where}, {pane.binding_state}"
    yield (
        f"  provider  {one_line(pane.signature_reason) or 'nothing says that it is an agent'}"
        f" ({pane.signature_class}, confidence {pane.signature_confidence:.2f})"
    )


def _claim_lines(claim: Claim, state: StateWords) -> Iterator[str]:
    says = state(claim.activity) if claim.activity else "nothing of what it is doing"
    age, link_age = age_words(claim.age_seconds), age_words(claim.link_age_seconds)
    yield f"  {claim.source_kind} ({claim.tier}) says {says}"
    yield f"    by        {one_line(claim.event_type)}, {age} ago; last heard of {link_age} ago"
    if claim.why:
        yield f"    because   {one_line(claim.why)}"
    yield from _detail_lines(claim.details)


def _detail_lines(details: Any) -> Iterator[str]:
    """Yield what a source knows more. It may be of a later version, so any of it is shown."""
    if not isinstance(details, Mapping):
        if details is not None:
            yield f"    details   {one_line(str(details))}"
        return
    for key, value in details.items():
        if isinstance(value, (list, tuple)) and value:
            yield f"    {one_line(str(key))}"
            yield from (f"      {_words(each)}" for each in value)
        elif value not in (None, "", [], ()):
            yield f"    {one_line(str(key)):9} {_words(value)}"


def _words(value: Any) -> str:
    if isinstance(value, Mapping) and {"region", "text"} <= value.keys():
        row = value.get("row")
        line = f" in line {row + 1}" if isinstance(row, int) else ""
        return f"{one_line(str(value['region']))}: {one_line(repr(value['text']))}{line}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {one_line(str(each))}" for key, each in value.items())
    return one_line(str(value))
