"""All commands by name, each imported when it is called."""

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

import click

from bullpen.cli.version import VERSION
from bullpen.errors import BullpenError

__all__ = ["COMMANDS", "bullpen", "run"]

COMMANDS = {
    "evaluate": "Measure the screen rules on a folder of labelled screens.",
    "explain": "Say what an agent is doing on a captured screen, and why.",
    "panes": "Look once at every tmux pane and the agent in it.",
}
"""What there is, with the words `bullpen --help` has for it."""

FAILED = 1


class LazyGroup(click.Group):
    """A group whose commands live in modules of their names."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return sorted(COMMANDS)

    def get_command(  # click's signature
        self,
        ctx: click.Context,  # noqa: ARG002
        cmd_name: str,
    ) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = import_module(f"bullpen.cli.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        formatter: click.HelpFormatter,
    ) -> None:
        """List the commands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done, 1 something named in the message went wrong, 2 wrong usage.",
)
@click.version_option(
    VERSION, "-V", "--version", prog_name="bullpen", message="%(prog)s %(version)s"
)
def bullpen() -> None:
    """An open room for coding agents.

    \b
    Examples:
      bullpen panes --waiting
      bullpen explain --file screen.txt --cmd claude
      bullpen evaluate tests/recordings/screens
    """  # noqa: D301 - click wants the character, not its name


def run(arguments: Sequence[str]) -> int:
    """Run a command and return its exit code; what we can name is told without a traceback."""
    try:
        bullpen.main(list(arguments), prog_name="bullpen", standalone_mode=False)
    except click.exceptions.Exit as exit_:
        return exit_.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return 130  # as a shell says of a program ended by ctrl-c
    except BullpenError as error:
        click.echo(f"bullpen: {error}", err=True)
        return FAILED
    except BrokenPipeError:
        _leave_quietly()
    return 0


def _leave_quietly() -> NoReturn:
    """End without a complaint when whoever read our output has gone."""
    sys.stderr.close()
    raise SystemExit(0)
