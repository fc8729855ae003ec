"""`bullpen topics`: names that any number of agents listen to."""

import click

from bullpen.api.talk import ListTopics
from bullpen.cli.calls import ask
from bullpen.cli.options import json_option, no_start_option
from bullpen.cli.output import columns, print_json, text

__all__ = ["command"]


@click.command(name="topics")
@json_option
@no_start_option
def command(*, as_json: bool) -> None:
    """List every topic and who listens to it. Send to one with `bullpen send '#TOPIC' TEXT`.

    \b
    Examples:
      bullpen topics
      bullpen subscribe builds --agent codex
      bullpen send '#builds' "main is green" --type info

    \b
    Exit codes:
      0  listed, also if there is none
      1  there is no daemon
      2  wrong usage
    """  # noqa: D301 - click wants the character, not its name
    topics = ask(ListTopics())
    if as_json:
        print_json(topics=topics)
        return
    rows = [[text(f"#{name}"), text(", ".join(who))] for name, who in sorted(topics.items())]
    click.echo("\n".join(columns(rows) or ["no topics"]))
