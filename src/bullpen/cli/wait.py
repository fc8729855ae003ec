"""`bullpen wait`: go on when an agent is doing something."""

import click

from bullpen.api.errors import reason_of
from bullpen.api.lookup import UNTIL
from bullpen.api.methods import Wait
from bullpen.cli.calls import ask
from bullpen.cli.options import SECONDS, complete_agents, json_option, no_start_option
from bullpen.cli.output import print_json
from bullpen.connection import RemoteError
from bullpen.model.appearance import ACTIVITIES, one_line
from bullpen.model.reasons import Reason
from bullpen.model.views import AgentState

__all__ = ["GONE", "TIMEOUT", "command"]

WORDS = sorted(UNTIL)

TIMEOUT = 3
GONE = 4
CODES = {"reached": 0, "timeout": TIMEOUT, "gone": GONE}
ANSWER_SECONDS = 10.0  # beyond the time it was asked to wait


@click.command(name="wait")
@click.argument("agent", shell_complete=complete_agents)
@click.option(
    "--until",
    multiple=True,
    default=["done"],
    show_default=True,
    metavar="STATE",
    type=click.Choice(WORDS),
    help=f"One of {', '.join(WORDS)}; can be said more than once, then any of them will do.",
)
@click.option(
    "--timeout",
    type=SECONDS,
    default=3600.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait; with 0 it is only looked at.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print nothing; the exit code says it all.")
@json_option
@no_start_option
@click.pass_context
def command(
    context: click.Context,
    *,
    agent: str,
    until: tuple[str, ...],
    timeout: float,
    quiet: bool,
    as_json: bool,
) -> None:
    """Wait until AGENT is doing something; at once, if it is doing that already.

    AGENT is a name as in bullpen ls, a pane or a session. Beside the states there are waiting (for
    input or for an approval), done (no longer at work), ready (a message can be typed) and gone.

    \b
    Examples:
      bullpen wait claude-1 --until waiting --until done
      bullpen wait codex-2 --until idle --timeout 600 && make test
      bullpen wait %3 --until gone --quiet

    \b
    Exit codes:
      0  it is so
      1  there is no daemon, or it went away
      2  wrong usage
      3  the time is over and it is not so
      4  the agent is gone, or was not there
    """  # noqa: D301 - click wants the character, not its name
    try:
        reply = ask(Wait(agent, until, timeout), timeout=timeout + ANSWER_SECONDS)
    except RemoteError as error:
        if reason_of(error) != Reason.AGENT_NOT_FOUND.word:
            raise
        if as_json:
            print_json(outcome="gone", agent=None)
        elif not quiet:
            click.echo(f"bullpen: {error.message}", err=True)
        context.exit(GONE)
    if as_json:
        print_json(outcome=reply.outcome, agent=reply.agent)
    elif not quiet:
        is_so = reply.outcome == "reached"
        click.echo(_words(agent, reply.outcome, reply.agent), err=not is_so)
    context.exit(CODES[reply.outcome])


def _words(subject: str, outcome: str, agent: AgentState | None) -> str:
    if outcome == "gone" or agent is None:
        return f"{one_line(subject)} is gone"
    look = ACTIVITIES[agent.activity]
    state = click.style(f"{look.symbol} {agent.activity}", fg=look.colour)
    still = "still " if outcome == "timeout" else ""
    return f"{one_line(agent.name)} is {still}{state}"
