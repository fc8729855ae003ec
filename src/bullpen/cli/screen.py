"""What a captured screen says about the agent on it: judged here, without a daemon."""

import shlex
import sys
from pathlib import Path

import click

from bullpen.errors import BullpenError
from bullpen.model.states import Provider, SignatureClass
from bullpen.observe.pane import PaneVerdict, judge_pane, judge_screen
from bullpen.observe.signature import PaneFacts, Signature
from bullpen.terminal.rules.engine import Verdict
from bullpen.terminal.rules.load import load_rules
from bullpen.terminal.rules.screen import Cursor, Screen, read_screen

__all__ = ["UnreadableScreenError", "judge_file", "verdict_lines"]


class UnreadableScreenError(BullpenError):
    """A captured screen cannot be read. The message says why."""


def judge_file(
    path: str, *, title: str, cmd: str, provider: str | None, agent_version: str, cursor: str
) -> tuple[PaneVerdict, Screen]:
    """Judge a screen from a file, or from standard input.

    Raises:
        UnreadableScreenError: there is none.
    """
    arguments, where = tuple(_split(cmd)), _cursor(cursor)
    rules = load_rules()
    screen = read_screen(_read(path), cursor=where, title=title, arguments=arguments)
    if provider:
        given = Signature(Provider(provider), SignatureClass.HEURISTIC, 1.0, "it was given")
        return judge_screen(given, screen, rules, version=agent_version), screen
    facts = PaneFacts(
        command=arguments[0] if arguments else "",
        arguments=arguments if len(arguments) > 1 else None,
        title=screen.title,
        lines=screen.lines,
    )
    return judge_pane(facts, screen, rules, version=agent_version), screen


def _read(path: str) -> str:
    try:
        content = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise UnreadableScreenError(f"{path}: {error.strerror}") from error
    return content.decode(errors="replace")


def _split(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--cmd") from error


def _cursor(text: str) -> Cursor | None:
    if not text:
        return None
    place, _, hidden = text.partition(",hidden")
    x, _, y = place.partition(",")
    if hidden or not (x.isdigit() and y.isdigit()):
        raise click.BadParameter(f"{text!r} is not X,Y or X,Y,hidden", param_hint="--cursor")
    return Cursor(int(x), int(y), is_visible=place == text)


def verdict_lines(judged: PaneVerdict, screen: Screen) -> list[str]:
    """Return what is said of a screen, and why."""
    signature = judged.signature
    if judged.verdict is None:
        return ["no agent", f"  because   {signature.reason}"]
    verdict = judged.verdict
    ready = "ready for a message" if verdict.ready else "not ready for a message"
    lines = [
        f"{verdict.provider} is {verdict.activity}, {ready}",
        f"  because   {verdict.reason}",
        f"  rule      {verdict.rule or 'none'}",
    ]
    lines += [
        f"  {each.region:9} {each.text!r}"
        + (f" in line {each.row + 1} of {len(screen.lines)}" if each.row is not None else "")
        for each in verdict.evidence
    ]
    lines.append(f"  box       {verdict.prompt}{_why_not(verdict)}")
    lines.append(f"  provider  {signature.reason} (confidence {signature.confidence:.2f})")
    if verdict.losers:
        lines.append("lost")
        lines += [f"  {each.rule} ({each.activity}): {each.why}" for each in verdict.losers]
    return lines


def _why_not(verdict: Verdict) -> str:
    return f": {verdict.not_ready}" if verdict.not_ready else ""
