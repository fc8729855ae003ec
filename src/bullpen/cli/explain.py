"""`bullpen explain`: what a screen says about the agent on it, by which rule, and who lost."""

import shlex
import sys
from pathlib import Path

import click
import msgspec

from bullpen.errors import BullpenError
from bullpen.model.states import Provider, SignatureClass
from bullpen.observe.pane import PaneVerdict, judge_pane, judge_screen
from bullpen.observe.signature import PaneFacts, Signature
from bullpen.terminal.rules.engine import Verdict
from bullpen.terminal.rules.load import load_rules
from bullpen.terminal.rules.screen import Cursor, Screen, read_screen

__all__ = ["UnreadableScreenError", "command"]


class UnreadableScreenError(BullpenError):
    """A captured screen cannot be read. The message says why."""


@click.command(name="explain")
@click.option(
    "--file",
    "path",
    required=True,
    metavar="SCREEN",
    help="A captured screen, with or without escape sequences; - reads standard input.",
)
@click.option("--title", default="", help="The title of the terminal.")
@click.option("--cmd", default="", help="The command in front: its name, or its command line.")
@click.option(
    "--provider",
    type=click.Choice([each.value for each in Provider if each is not Provider.OTHER]),
    help="Whose program it is, if that is known; else it is found out.",
)
@click.option("--agent-version", default="", metavar="VERSION", help="The program's version.")
@click.option("--cursor", metavar="X,Y", default="", help="Where the cursor is, from 0,0.")
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON.")
def command(
    *,
    path: str,
    title: str,
    cmd: str,
    provider: str | None,
    agent_version: str,
    cursor: str,
    as_json: bool,
) -> None:
    """Say which agent is on a captured screen, what it is doing, and why.

    The rule that won is named with the region and the text it was found in, and so is every rule
    that lost or nearly held. `unknown` means that no rule holds.

    \b
    Examples:
      tmux capture-pane -pe -t %3 | bullpen explain --file - --cmd claude
      bullpen explain --file screen.txt --provider codex --title '[ ! ] Action Required'
      bullpen explain --file screen.txt --json | jq .verdict.rule

    \b
    Exit codes:
      0  explained, also if there is no agent or its state is unknown
      1  the screen or a rule file cannot be read
      2  wrong usage
    """  # noqa: D301 - click wants the character, not its name
    arguments, where = tuple(_split(cmd)), _cursor(cursor)
    rules = load_rules()
    screen = read_screen(_read(path), cursor=where, title=title, arguments=arguments)
    if provider:
        given = Signature(Provider(provider), SignatureClass.HEURISTIC, 1.0, "it was given")
        judged = judge_screen(given, screen, rules, version=agent_version)
    else:
        facts = PaneFacts(
            command=arguments[0] if arguments else "",
            arguments=arguments if len(arguments) > 1 else None,
            title=screen.title,
            lines=screen.lines,
        )
        judged = judge_pane(facts, screen, rules, version=agent_version)
    if as_json:
        encoded = msgspec.json.encode({"schema": 1, **msgspec.to_builtins(judged)})
        click.echo(msgspec.json.format(encoded).decode())
    else:
        click.echo("\n".join(_lines(judged, screen)))


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
    x, _, y = text.partition(",")
    if not (x.isdigit() and y.isdigit()):
        raise click.BadParameter(f"{text!r} is not X,Y", param_hint="--cursor")
    return Cursor(int(x), int(y))


def _lines(judged: PaneVerdict, screen: Screen) -> list[str]:
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
