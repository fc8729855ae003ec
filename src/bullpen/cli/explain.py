"""`bullpen explain`: why we say what we say of an agent, a pane or a captured screen."""

from datetime import UTC, datetime
from typing import Any

import click
import msgspec

from bullpen.cli.options import complete_agents, json_option, no_start_option
from bullpen.cli.output import print_json
from bullpen.model.appearance import ACTIVITIES
from bullpen.model.explaining import explanation_lines, state_words
from bullpen.model.states import Activity, Provider

__all__ = ["command"]


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
    "--cursor",
    metavar="X,Y[,hidden]",
    default="",
    help="With --file: where the cursor is, from 0,0, and whether it is hidden.",
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
        click.echo("\n".join(explanation_lines(explanation, datetime.now(UTC), state=_state)))


def _state(activity: Activity) -> str:
    return click.style(state_words(activity), fg=ACTIVITIES[activity].colour)
