"""`bullpen answer`: what an agent asks its user, and an answer to it."""

import click

from bullpen.api.talk import AnswerAgent, ReadDialog
from bullpen.cli.calls import ask
from bullpen.cli.options import complete_agents, json_option, no_start_option
from bullpen.cli.output import print_json
from bullpen.cli.speaking import refusals, secret
from bullpen.model.appearance import one_line
from bullpen.model.dialogs import Dialog
from bullpen.model.mailing import plain_text

__all__ = ["command"]

NOTHING = 6
SECONDS = 180.0  # a dialog may be answered key by key; it takes a moment


@click.command(name="answer")
@click.argument("agent", shell_complete=complete_agents)
@click.argument("text", required=False)
@click.option("--dialog", "dialog_id", default="", metavar="ID", help="Only if it still asks that.")
@json_option
@no_start_option
@click.pass_context
def command(
    context: click.Context, *, agent: str, text: str | None, dialog_id: str, as_json: bool
) -> None:
    """Show what AGENT asks in its terminal and waits for, or answer it.

    TEXT is yes, no, always, the number of a choice or its words: what can be answered is shown.
    It is answered only if the agent still asks, and nothing is typed that it does not offer. This
    is for people; an agent may not. A question that an agent sent you is answered by bullpen reply.

    \b
    Examples:
      bullpen answer codex
      bullpen answer codex yes
      bullpen answer claude 2
      bullpen answer claude no --dialog 3f2a9c0d11e4-1

    \b
    Exit codes:
      0  shown, or answered
      1  there is no daemon
      2  wrong usage
      4  there is no such agent
      5  refused: you are an agent, it is no answer, or it asks something else by now
      6  it asks nothing
    """  # noqa: D301 - click wants the character, not its name
    with refusals(context, as_json=as_json):
        if text is None:
            dialog = ask(ReadDialog(agent))
        else:
            dialog = ask(AnswerAgent(agent, text, dialog_id, secret()), timeout=SECONDS)
    if as_json:
        print_json(dialog=dialog, answered=text if dialog is not None else None)
    elif text is not None and dialog is not None:
        click.echo(f"answered {one_line(text)} to {one_line(agent)}")
    elif dialog is not None:
        show(dialog)
    else:
        click.echo(f"bullpen: {one_line(agent)} asks nothing", err=True)
    context.exit(0 if dialog is not None else NOTHING)


def show(dialog: Dialog) -> None:
    """Print what is asked."""
    click.echo(plain_text(dialog.text))
    can = ", ".join(map(one_line, dialog.answers))
    words = can or "only in its terminal"
    more = ", or any text" if dialog.takes_text else ""
    click.echo(f"answer   {words}{more}")
    click.echo(f"dialog   {one_line(dialog.id)}")
