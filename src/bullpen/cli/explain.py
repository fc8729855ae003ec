"""`bullpen explain`: why we say what we say of an agent, a pane or a captured screen."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import click
import msgspec

from bullpen.cli.options import complete_agents, json_option, no_start_option
from bullpen.cli.output import print_json
from bullpen.model.appearance import ACTIVITIES, EVIDENCE, age_words, one_line
from bullpen.model.states import Activity, Provider
from bullpen.model.views import AgentState, Claim, Explanation, PaneState

__all__ = ["command", "explanation_lines"]


@click.command(name="explain")
@click.argument("subject", metavar="[AGENT|PANE]", required=False, shell_complete=complete_agents)
@click.option(
    "--file",
    "path",
    metavar="SCREEN",
    help="A captured screen, with or without escape sequences; - reads standard input.",
)
@click.option("--title", default="", help="With --file: the title of the terminal.")
@click.option("--cmd", default="", help="With --file: the command in front, by name or whole.")
@click.option(
    "--provider",
    type=click.Choice([each.value for each in Provider if each is not Provider.OTHER]),
    help="With --file: whose program it is, if that is known; else it is found out.",
)
@click.option(
    "--agent-version", default="", metavar="VERSION", help="With --file: the program's version."
)
@click.option(
    "--cursor", metavar="X,Y", default="", help="With --file: where the cursor is, from 0,0."
)
@json_option
@no_start_option
def command(*, subject: str | None, path: str | None, as_json: bool, **facts: Any) -> None:
    """Say what an agent is doing, and why we say so.

    For an AGENT by its name or session, or a PANE by its id, every source that has something to say
    is listed with its age, who won, who lost and why. With --file a captured screen is judged
    without any daemon: the rule that won is named with the region and the text it was found in, and
    so is every rule that lost or nearly held. `unknown` means that nothing holds.

    \b
    Examples:
      bullpen explain claude-1
      bullpen explain %3 --json | jq '.claims[] | select(.is_winner)'
      tmux capture-pane -pe -t %3 | bullpen explain --file - --cmd claude
      bullpen explain --file screen.txt --provider codex --title '[ ! ] Action Required'

    \b
    Exit codes:
      0  explained, also if there is no agent or its state is unknown
      1  there is no such agent or pane, or the screen or a rule file cannot be read
      2  wrong usage
    """  # noqa: D301 - click wants the character, not its name
    if path is not None and subject is None:
        _explain_file(path, as_json=as_json, **facts)
    elif path is None and subject is not None:
        if any(facts.values()):
            raise click.UsageError("that option is for --file")
        _explain_subject(subject, as_json=as_json)
    else:
        raise click.UsageError("give an agent, a pane or --file, and one of them only")


def _explain_file(path: str, *, as_json: bool, **facts: Any) -> None:
    from bullpen.cli.screen import judge_file, verdict_lines

    judged, screen = judge_file(path, **facts)
    if as_json:
        print_json(**msgspec.to_builtins(judged))
    else:
        click.echo("\n".join(verdict_lines(judged, screen)))


def _explain_subject(subject: str, *, as_json: bool) -> None:
    from bullpen.api.methods import Explain
    from bullpen.cli.calls import ask

    explanation = ask(Explain(subject))
    if as_json:
        print_json(**msgspec.structs.asdict(explanation))
    else:
        click.echo("\n".join(explanation_lines(explanation, datetime.now(UTC))))


def explanation_lines(explanation: Explanation, now: datetime) -> list[str]:
    """Return an explanation for a person to read."""
    lines = [*_head(explanation, now)]
    winners = [claim for claim in explanation.claims if claim.is_winner]
    losers = [claim for claim in explanation.claims if not claim.is_winner]
    for heading, claims in (("won", winners), ("lost", losers)):
        if claims:
            lines.append(heading)
            for claim in claims:
                lines += _claim_lines(claim)
    if explanation.refused:
        lines += ["refused", *(f"  {one_line(each)}" for each in explanation.refused)]
    return lines


def _head(explanation: Explanation, now: datetime) -> Iterator[str]:
    if explanation.agent is not None:
        yield from _agent_lines(explanation.agent, now)
    else:
        yield f"{one_line(explanation.subject)}: no agent"
    if explanation.pane is not None:
        yield from _pane_lines(explanation.pane)


def _agent_lines(agent: AgentState, now: datetime) -> Iterator[str]:
    ready = "ready for a message" if agent.is_ready else "not ready for a message"
    age = age_words((now - agent.since).total_seconds())
    yield f"{one_line(agent.name)} is {_state(agent.activity)} for {age}, {ready}"
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


def _claim_lines(claim: Claim) -> Iterator[str]:
    says = _state(claim.activity) if claim.activity else "nothing of what it is doing"
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


def _state(activity: Activity) -> str:
    look = ACTIVITIES[activity]
    return click.style(f"{look.symbol} {activity}", fg=look.colour)
