"""`bullpen run`: a program in this terminal, as an agent that others can talk to."""

from typing import TYPE_CHECKING

import click

from bullpen.cli.calls import daemon_paths
from bullpen.cli.options import may_start, no_start_option
from bullpen.cli.wrapped import (
    arguments_argument,
    complete_profiles,
    name_option,
    port_option,
)

if TYPE_CHECKING:
    from bullpen.wrapper.options import WrapperOptions

__all__ = ["command", "command_of", "prepared"]


@click.command(name="run")
@click.argument("profile", shell_complete=complete_profiles)
@arguments_argument
@name_option
@port_option
@no_start_option
@click.pass_context
def command(
    context: click.Context, *, profile: str, arguments: tuple[str, ...], name: str, port: int | None
) -> None:
    """Run the program of PROFILE here, as an agent that others can see and talk to.

    It looks and behaves as without us. What stands behind -- is given to the program. At its
    prompt, @name and a text is a message to another agent. bullpen profiles lists what can be run;
    bullpen PROFILE is the same for short.

    \b
    Examples:
      bullpen run claude
      bullpen run codex --name reviewer
      bullpen claude -- --continue

    \b
    Exit codes:
      0  the program ended well; else its own code, or 128 and the number of a signal
      1  there is no such profile, or no terminal, or the port is taken
      2  wrong usage
      127  the program cannot be found
    """  # noqa: D301 - click wants the character, not its name
    from bullpen.wrapper.main import run

    context.exit(run(prepared(profile, name, port, arguments)))


def command_of(profile: str) -> click.Command:
    """Return the command that runs a profile by its name alone."""

    @click.command(
        name=profile,
        help=f"""Run {profile} here, as bullpen run {profile} does.

        \b
        Examples:
          bullpen {profile}
          bullpen {profile} --name reviewer -- --help

        \b
        Exit codes:
          0  the program ended well; else its own code, or 128 and the number of a signal
          1  there is no terminal, or the profile is wrong, or the port is taken
          2  wrong usage
          127  the program cannot be found
        """,
    )
    @arguments_argument
    @name_option
    @port_option
    @no_start_option
    @click.pass_context
    def run(
        context: click.Context, *, arguments: tuple[str, ...], name: str, port: int | None
    ) -> None:
        context.invoke(command, profile=profile, arguments=arguments, name=name, port=port)

    return run


def prepared(
    profile: str,
    name: str,
    port: int | None,
    arguments: tuple[str, ...],
    *,
    is_detached: bool = False,
) -> "WrapperOptions":
    """Return what a wrapper is told.

    Raises:
        ProfileError: there is no such profile, or it cannot be used.
        PortTakenError: the port is somebody else's.
    """
    from bullpen.wrapper.preparing import prepare

    return prepare(
        daemon_paths(),
        profile,
        name=name,
        port=port,
        arguments=arguments,
        is_detached=is_detached,
        starts_daemon=may_start(),
    )
