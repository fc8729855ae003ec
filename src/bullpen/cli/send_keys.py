"""`bullpen send-keys`: type into a wrapped agent's terminal, whatever it shows."""

import click

from bullpen.api.talk import SendKeys
from bullpen.cli.calls import ask
from bullpen.cli.keys import encode
from bullpen.cli.options import no_start_option
from bullpen.cli.speaking import refusals, secret
from bullpen.cli.wrapped import complete_wrapped

__all__ = ["command"]


@click.command(name="send-keys", context_settings={"ignore_unknown_options": True})
@click.argument("agent", shell_complete=complete_wrapped)
@click.argument("keys", nargs=-1, required=True)
@click.option("-l", "--literal", is_flag=True, help="Type the words as they stand, none is a key.")
@no_start_option
@click.pass_context
def command(context: click.Context, *, agent: str, keys: tuple[str, ...], literal: bool) -> None:
    """Press KEYS in the terminal of a wrapped agent, whatever it shows.

    This is the way out when nothing else helps, and for people only: nobody looks whether the keys
    are in place. A message is sent by bullpen send. Keys are Enter, Escape, Tab, Space, BSpace,
    Up, Down, Left, Right, Home, End, PageUp, PageDown, Insert, Delete, F1 to F12, C-x, M-x; any
    other word is typed as it stands, and nothing is put between words.

    \b
    Examples:
      bullpen send-keys claude Escape
      bullpen send-keys codex C-c
      bullpen send-keys claude -l "/clear"
      bullpen send-keys claude 2 Enter

    \b
    Exit codes:
      0  pressed
      1  there is no daemon, or no such key
      2  wrong usage
      4  there is no such agent
      5  refused: it was not started through bullpen, or you are an agent
    """  # noqa: D301 - click wants the character, not its name
    data = encode(keys, is_literal=literal)
    with refusals(context):
        ask(SendKeys(agent, data, secret()))
