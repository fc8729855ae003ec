"""All commands by name, each imported when it is called."""

import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

import click

from bullpen.cli.options import with_socket_path
from bullpen.errors import BullpenError
from bullpen.model.version import VERSION

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

__all__ = ["COMMANDS", "COMPLETE_VARIABLE", "bullpen", "run"]

COMMANDS = {
    "a2a": "Say where A2A peers reach your agents, and let them in.",
    "alerts": "List what an operator should know, or acknowledge it.",
    "answer": "Answer what an agent asks in its terminal.",
    "ask": "Ask an agent something, and print its answer.",
    "attach": "Show a wrapped agent in this terminal, and type to it.",
    "completions": "Print what makes bash, zsh or fish complete our commands.",
    "config": "Print the settings in effect, and where each comes from.",
    "daemon": "Run the daemon in the foreground.",
    "dead-letters": "List messages that were never delivered, or send them again.",
    "doctor": "Look for what is wrong, and say what to do about it.",
    "down": "End the daemon.",
    "evaluate": "Measure the screen rules on a folder of labelled screens.",
    "explain": "Say why an agent is said to be doing what it is doing.",
    "external": "Add agents elsewhere that speak A2A, and talk to them.",
    "hooks": "Let agent programs tell us what they do, and no longer.",
    "inbox": "Show the messages that wait for you.",
    "interrupt": "Interrupt what an agent is doing.",
    "list": "List everybody a message can be sent to.",
    "list-panes": "The same as panes.",
    "logs": "Print what a wrapped agent wrote.",
    "ls": "List every agent: what it is doing, for how long, and where.",
    "mcp": "Let an agent talk to the others through MCP.",
    "messages": "List which messages were delivered, and how fast.",
    "panes": "List every tmux pane and the agent in it.",
    "pick": "Go to the next agent that waits for somebody.",
    "profiles": "List the programs that can be run as agents.",
    "replay": "Live through a recorded log again, or record one.",
    "reply": "Answer a message you were sent.",
    "report": "Say what your own agent is doing.",
    "run": "Run a program here, as an agent others can talk to.",
    "send": "Send a message to an agent, and say what became of it.",
    "send-keys": "Press keys in a wrapped agent's terminal.",
    "sessions": "List every session of an agent.",
    "shell": "Read messages to agents, and commands, line by line.",
    "snapshot": "Save, list and restore copies of what is known.",
    "source": "",
    "sources": "List who looks, and how each fares.",
    "start": "Start an agent without a terminal.",
    "status": "Say how many agents there are, and whether they are watched.",
    "stop": "End wrapped agents.",
    "subscribe": "Get what is sent to a topic.",
    "task": "List what was asked of agents, show it, or end it.",
    "tmux-status": "Print one line for tmux's status bar.",
    "topics": "List every topic and who listens to it.",
    "trace": "Show every step of a message, with its evidence.",
    "up": "Start the daemon, if there is none.",
    "wait": "Wait until an agent is doing something.",
    "watch": "Follow what becomes of every agent.",
    "whoami": "Say whom the daemon takes you for.",
}
"""What there is, with the words `bullpen --help` has for it; without any, it is not for people."""

MODULES = {"list": "contacts", "list-panes": "panes"}
COMPLETE_VARIABLE = "_BULLPEN_COMPLETE"

FAILED = 1
INTERRUPTED = 130  # as a shell says of a program ended by ctrl-c


class LazyGroup(click.Group):
    """A group whose commands live in modules of their names."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return [name for name, words in sorted(COMMANDS.items()) if words]

    def get_command(  # click's signature
        self,
        ctx: click.Context,  # noqa: ARG002
        cmd_name: str,
    ) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return _profile_command(cmd_name)
        module = MODULES.get(cmd_name, cmd_name.replace("-", "_"))
        command = import_module(f"bullpen.cli.{module}").command
        assert isinstance(command, click.Command)
        _look_for_garbage()
        return with_socket_path(command)

    def format_commands(
        self,
        ctx: click.Context,
        formatter: click.HelpFormatter,
    ) -> None:
        """List the commands without importing any."""
        from bullpen.cli.wrapped import profile_descriptions

        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name]) for name in self.list_commands(ctx)])
        with formatter.section("Profiles, which are run by their names"):
            formatter.write_dl(
                [each for each in profile_descriptions().items() if each[0] not in COMMANDS]
            )

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        """Complete a command's name without importing any."""
        from click.shell_completion import CompletionItem

        from bullpen.cli.wrapped import profile_descriptions

        words = {name: COMMANDS[name] for name in self.list_commands(ctx)}
        named = [
            CompletionItem(name, help=help_)
            for name, help_ in (profile_descriptions() | words).items()
            if name.startswith(incomplete)
        ]
        return [*named, *click.Command.shell_complete(self, ctx, incomplete)]


def _profile_command(name: str) -> click.Command | None:
    """Return what runs the profile of a name, if there is one."""
    from bullpen.cli.wrapped import profile_names

    if name not in profile_names():
        return None
    from bullpen.cli.run import command_of

    _look_for_garbage()
    return with_socket_path(command_of(name))


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done, 1 something named in the message went wrong, 2 wrong usage, "
    "130 ended by ctrl-c; what waits and what sends have more.",
)
@click.version_option(
    VERSION, "-V", "--version", prog_name="bullpen", message="%(prog)s %(version)s"
)
@click.option("--demo", is_flag=True, help="Show the board with agents that only pretend.")
@click.pass_context
def bullpen(context: click.Context, *, demo: bool) -> None:
    """An open room for coding agents: see what each is doing and how we know, and talk to any.

    Without a command it shows the board, or, where nobody could see one, the same as ls. With
    --demo the agents on it live in a tmux server of their own, which ends with the board.

    \b
    Examples:
      bullpen
      bullpen --demo
      bullpen ls --waiting
      bullpen wait claude-1 --until done && make test
      bullpen explain claude-1
      bullpen ask codex "which tests cover src/parser.py?"
    """  # noqa: D301 - click wants the character, not its name
    if context.invoked_subcommand is not None:
        if demo:
            raise click.UsageError("--demo shows the board, and takes no command")
        return
    if demo:
        from bullpen.cli.board import show_demo as show
    elif sys.stdin.isatty() and sys.stdout.isatty():
        from bullpen.cli.board import show
    else:
        from bullpen.cli.ls import show
    _look_for_garbage()
    show()


with_socket_path(bullpen)


def run(arguments: Sequence[str]) -> int:
    """Run a command and return its exit code; what we can name is told without a traceback."""
    if COMPLETE_VARIABLE in os.environ:  # a shell asks what could come next
        bullpen.main(prog_name="bullpen", complete_var=COMPLETE_VARIABLE)
    try:
        with bullpen.make_context("bullpen", list(arguments), color=_wants_colour()) as context:
            bullpen.invoke(context)
    except click.exceptions.Exit as exit_:
        return exit_.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BullpenError as error:
        # The number of a refusal is for programs.
        click.echo(f"bullpen: {getattr(error, 'message', error)}", err=True)
        return FAILED
    return 0


def _look_for_garbage() -> None:
    """Go on as usual once everything is loaded, if `main` has told the collector to wait."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


def _wants_colour() -> bool | None:
    """Whether colours are wanted; None if that depends on who is looking."""
    if os.environ.get("NO_COLOR"):
        return False
    return True if os.environ.get("FORCE_COLOR") else None
