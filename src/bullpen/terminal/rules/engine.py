"""Deciding from one screen what a program is doing, and saying why.

Pure: a screen and rules in, a verdict out. Every verdict names the rule that won, in which region
and on which text, and every rule that lost or nearly held. No rule holding is an answer too.
"""

import re
from collections.abc import Iterator

import msgspec

from bullpen.model.states import Activity, Provider
from bullpen.terminal.rules.format import Clause, PromptState, ProviderRules, Rule
from bullpen.terminal.rules.layout import Layout, Region
from bullpen.terminal.rules.screen import Screen

__all__ = ["Evidence", "Loser", "Verdict", "decide"]

_MAX_TEXT = 200  # characters of a line worth showing


class Evidence(msgspec.Struct, frozen=True):
    """A piece of a screen that made a clause hold."""

    region: str
    text: str
    row: int | None = None
    """Counted from 0 at the top; None if it is not on the screen, such as a title."""


class Loser(msgspec.Struct, frozen=True):
    """A rule that held but was outranked, or of which something was found but not all."""

    rule: str
    activity: Activity
    why: str


class Verdict(msgspec.Struct, frozen=True):
    """What a screen says, and on what evidence. Without a rule the activity is unknown."""

    provider: Provider
    activity: Activity
    ready: bool
    reason: str
    prompt: PromptState
    rule: str | None = None
    evidence: tuple[Evidence, ...] = ()
    not_ready: str = ""
    """Why no message can be typed now although the agent could take one."""
    losers: tuple[Loser, ...] = ()


class _Outcome(msgspec.Struct):
    rule: Rule
    evidence: list[Evidence]
    missing: str = ""


_NOT_READY = {
    "absent": "there is no prompt box",
    "draft": "a draft is in the prompt box",
    "shell": "the prompt box takes shell commands",
    "unfocused": "the cursor is not in the prompt box",
}


def decide(screen: Screen, provider: ProviderRules, *, version: str = "") -> Verdict:
    """Say what the provider's program is doing, judged by this screen alone."""
    layout = Layout(screen, provider)
    outcomes = [
        _try(rule, layout, layout.screen)
        for rule in provider.by_priority
        if version in rule.version_range
    ]
    winner = next((outcome for outcome in outcomes if not outcome.missing), None)
    losers = tuple(_losers(outcomes, winner))
    state = layout.prompt_state
    if winner is None:
        return Verdict(
            provider=provider.provider,
            activity=Activity.UNKNOWN,
            ready=False,
            reason="no rule holds on this screen",
            prompt=state,
            losers=losers,
        )
    rule = winner.rule
    return Verdict(
        provider=provider.provider,
        activity=rule.activity,
        ready=rule.ready and state == "empty",
        reason=rule.reason,
        prompt=state,
        rule=rule.name,
        evidence=tuple(winner.evidence),
        not_ready=_NOT_READY.get(state, "") if rule.ready else "",
        losers=losers,
    )


def _losers(outcomes: list[_Outcome], winner: _Outcome | None) -> Iterator[Loser]:
    for outcome in outcomes:
        if outcome is winner:
            continue
        if not outcome.missing and winner:
            why = f"outranked: priority {outcome.rule.priority}, not {winner.rule.priority}"
        elif outcome.evidence:
            why = f"{outcome.missing}, though {_describe(outcome.evidence[0])}"
        else:
            continue
        yield Loser(outcome.rule.name, outcome.rule.activity, why)


def _describe(evidence: Evidence) -> str:
    return f"{evidence.region} has {evidence.text!r}"


def _try(rule: Rule, layout: Layout, screen: Screen) -> _Outcome:
    """Find what there is for a rule. What is missing is the first thing that it wants in vain."""
    outcome = _Outcome(rule, [])
    for clause in rule.when:
        region = layout.region(clause.region)
        if missing := _missing(clause, region, screen, outcome.evidence):
            outcome.missing = outcome.missing or missing
    if rule.prompt and layout.prompt_state not in rule.prompt:
        wanted = " or ".join(rule.prompt)
        outcome.missing = f"the prompt box is {layout.prompt_state}, not {wanted}"
    elif rule.prompt and not outcome.missing and layout.prompt:
        text = _shown(layout.prompt.text.partition("\n")[0])
        outcome.evidence.append(Evidence("prompt", text, layout.prompt.top))
    return outcome


def _missing(clause: Clause, region: Region, screen: Screen, found: list[Evidence]) -> str:
    """Append what is found to `found`; return what is not, or is but must not be."""
    for pattern in clause.none:
        if unwanted := _find(clause, pattern, region, screen):
            return f"{_describe(unwanted)}"
    for pattern in clause.all:
        evidence = _find(clause, pattern, region, screen)
        if evidence is None:
            return f"{region.name} has no {pattern}"
        found.append(evidence)
    for pattern in clause.any:
        if evidence := _find(clause, pattern, region, screen):
            found.append(evidence)
            break
    else:
        if clause.any:
            return f"{region.name} has none of {', '.join(clause.any)}"
    return ""


def _find(clause: Clause, text: str, region: Region, screen: Screen) -> Evidence | None:
    pattern = clause.patterns[text]
    if isinstance(pattern, str):
        if pattern not in region.flowing:
            return None
        return _locate(pattern, region)
    for match in pattern.finditer(region.text):
        evidence = _at(region, match)
        if not clause.tone or region.top is None:
            return evidence
        if not (screen.has_colours if clause.tone in ("red", "coloured") else screen.has_tones):
            return None if clause.tone_required else evidence
        start = match.start("tone") if "tone" in pattern.groupindex else match.start()
        row, column = _place(region, start)
        if (screen.tone(row, column) or "") in clause.tones:
            return evidence
    return None


def _locate(literal: str, region: Region) -> Evidence:
    """The line a literal stands on, or the one it begins on if it is wrapped."""
    for offset, line in enumerate(region.lines):
        if literal in " ".join(line.split()):
            return Evidence(region.name, _shown(line), _row(region, offset))
    return Evidence(region.name, literal, region.top)


def _at(region: Region, match: re.Match[str]) -> Evidence:
    begin = match.start() + len(match[0]) - len(match[0].lstrip())  # `^\s*` may begin lines before
    offset = region.text.count("\n", 0, begin)
    line = region.lines[offset] if region.lines else ""
    return Evidence(region.name, _shown(line), _row(region, offset))


def _place(region: Region, position: int) -> tuple[int, int]:
    before = region.text[:position]
    row = (region.top or 0) + before.count("\n")
    return row, len(before) - (before.rfind("\n") + 1)


def _shown(line: str) -> str:
    return " ".join(line.split())[:_MAX_TEXT]


def _row(region: Region, offset: int) -> int | None:
    return None if region.top is None else region.top + offset
