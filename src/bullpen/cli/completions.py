"""`bullpen completions`: what makes a shell complete our commands, options and agents."""

import click
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

from bullpen.cli.group import COMPLETE_VARIABLE, bullpen

__all__ = ["SHELLS", "command"]

SHELLS: dict[str, type[ShellComplete]] = {
    "bash": BashComplete,
    "zsh": ZshComplete,
    "fish": FishComplete,
}


@click.command(name="completions")
@click.argument("shell", type=click.Choice(list(SHELLS)))
def command(*, shell: str) -> None:
    """Print what SHELL has to read to complete bullpen's commands.

    \b
    Examples:
      eval "$(bullpen completions bash)"
      bullpen completions zsh > ~/.zfunc/_bullpen
      bullpen completions fish > ~/.config/fish/completions/bullpen.fish

    \b
    Exit codes:
      0  printed
      2  wrong usage
    """  # noqa: D301 - click wants the character, not its name
    complete = SHELLS[shell](bullpen, {}, "bullpen", COMPLETE_VARIABLE)
    # Not `source`, which starts a bash to see how old it is, and complains if there is none.
    click.echo(complete.source_template % complete.source_vars())
