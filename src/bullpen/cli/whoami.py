"""`bullpen whoami`: whom the daemon takes us for."""

import click
import msgspec

from bullpen.api.talk import WhoAmI
from bullpen.cli.calls import ask
from bullpen.cli.options import json_option, no_start_option
from bullpen.cli.output import print_json
from bullpen.cli.speaking import refusals, secret
from bullpen.model.appearance import one_line

__all__ = ["command"]


@click.command(name="whoami")
@json_option
@no_start_option
@click.pass_context
def command(context: click.Context, *, as_json: bool) -> None:
    """Say whom the daemon takes you for: who holds the secret in BULLPEN_SECRET, or the user.

    A command that an agent runs is that agent's, with or without the secret.

    \b
    Examples:
      bullpen whoami
      bullpen whoami --json | jq -r .authority

    \b
    Exit codes:
      0  said
      1  there is no daemon
      2  wrong usage
      5  refused: nobody has such a secret, or no longer
    """  # noqa: D301 - click wants the character, not its name
    with refusals(context, as_json=as_json):
        found = ask(WhoAmI(secret()))
    if as_json:
        print_json(**msgspec.structs.asdict(found))
    else:
        click.echo(one_line(f"{found.name} ({found.authority})"))
