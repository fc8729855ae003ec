"""`bullpen shell`: a prompt for messages to agents and for commands."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from bullpen.api.errors import reason_of
from bullpen.api.talk import ListContacts
from bullpen.cli.calls import ask, daemon_paths
from bullpen.cli.contacts import contact_lines, listing
from bullpen.cli.options import may_start, no_start_option, socket_path
from bullpen.cli.receipts import echo_text
from bullpen.cli.send import message_of
from bullpen.cli.sending import Sent, deliver
from bullpen.connection import RemoteError
from bullpen.errors import BullpenError
from bullpen.model.appearance import one_line
from bullpen.model.mailing import delivery_words
from bullpen.model.messages import MessageType, Priority
from bullpen.model.reasons import Reason

__all__ = ["command"]

PROMPT = "bullpen> "
ANSWER_SECONDS = 30.0
HELP = """\
  @agent message             send it, and go on
  @agent --response message  wait 30 seconds for the answer; --return is the same
  list                       who is there
  status AGENT               how one of them is
  cd DIRECTORY, exit         as everywhere
Any other line is run by your shell."""


@click.command(name="shell")
@no_start_option
def command() -> None:
    """Read lines: messages to agents, and commands for your own shell.

    `@agent message` sends a message; `@agent --response message` also waits 30 seconds for the
    answer. `list` and `status AGENT` tell who is there and how one is; `help` lists it all. Any
    other line is run by $SHELL. It reads a pipe as well, to its end.

    \b
    Examples:
      bullpen shell
      printf '@codex --response which branch is this?\\n' | bullpen shell

    \b
    Exit codes:
      0  the input, or you, have ended it
      1  there is no daemon
      2  wrong usage
    """  # noqa: D301 - click wants the character, not its name
    ask(ListContacts())  # without a daemon there is nothing to begin with
    for line in _lines():
        try:
            if not _obey(line):
                return
        except BullpenError as error:
            click.echo(f"bullpen: {one_line(str(getattr(error, 'message', error)))}", err=True)
        except KeyboardInterrupt:
            click.echo()


def _lines() -> Iterator[str]:
    """Yield what is typed or piped, line by line, without what is around it."""
    is_typed = sys.stdin.isatty()
    if is_typed:
        import readline  # noqa: F401 - from now on lines can be edited and recalled
    while True:
        try:
            if is_typed:
                line = input(PROMPT)
            else:
                click.echo(PROMPT, nl=False)
                line = sys.stdin.readline()
                if not line:
                    raise EOFError
        except EOFError:
            click.echo()
            return
        except KeyboardInterrupt:
            click.echo()
            continue
        if line.strip():
            yield line.strip()


def _obey(line: str) -> bool:
    """Do what a line says; return whether to go on."""
    word, _, rest = line.partition(" ")
    rest = rest.strip()
    if line.startswith("@"):
        _say(line)
    elif line in ("exit", "quit"):
        return False
    elif line == "help":
        click.echo(HELP)
    elif line == "list":
        contacts = ask(ListContacts())
        click.echo("\n".join(listing(contacts)))
    elif word == "status":
        _status(rest)
    elif word == "cd":
        _change_directory(rest)
    else:
        _run(line)
    return True


def _say(line: str) -> None:
    from bullpen.terminal.keyboard import not_found_notice, parse_address, sent_notice

    name, _, rest = line.partition(" ")
    wish, _, after = rest.lstrip().partition(" ")
    address = parse_address(f"{name} --response {after}" if wish == "--return" else line)
    if address is None:
        click.echo("bullpen: say whom, and what: @agent message", err=True)
        return
    to = f"{address.name}@{address.host}" if address.host else address.name
    sending = deliver(
        daemon_paths(),
        message_of(to, address.message, MessageType.TASK_REQUEST, priority=Priority.NORMAL),
        start=may_start(),
        until="answered" if address.wants_response else None,
        timeout_seconds=ANSWER_SECONDS if address.wants_response else None,
        on_accepted=lambda _: click.echo(sent_notice(to, is_local=address.host is None)),
    )
    try:
        _show(asyncio.run(sending))
    except RemoteError as error:
        if reason_of(error) != Reason.AGENT_NOT_FOUND.word:
            raise
        click.echo(not_found_notice(to), err=True)


def _show(sent: Sent) -> None:
    from bullpen.terminal.keyboard import reply_notice

    trace, waited = sent.trace, sent.waited
    if waited is None:
        for each in trace.deliveries:
            who = each.recipient
            holding = trace.holding.get(who, "")
            click.echo(delivery_words(each, position=trace.positions.get(who), holding=holding))
    elif waited.reply is not None:
        click.echo(reply_notice(waited.reply.from_agent))
        echo_text(waited.reply.content)
    else:
        click.echo(f"{one_line(trace.message.id)}: {one_line(sent.shortfall)}", err=True)


def _status(name: str) -> None:
    if not name:
        click.echo("bullpen: say whose: status AGENT", err=True)
        return
    found = [each for each in ask(ListContacts()) if each.name == name.removeprefix("@")]
    if not found:
        click.echo(f"bullpen: there is no agent {one_line(repr(name))}", err=True)
    for each in found:
        click.echo("\n".join(contact_lines(each)))


def _change_directory(path: str) -> None:
    try:
        os.chdir(Path(path or "~").expanduser())
    except (OSError, RuntimeError) as error:
        click.echo(f"bullpen: {path}: {getattr(error, 'strerror', None) or error}", err=True)


def _run(line: str) -> None:
    """Let the user's own shell run a line, with our daemon as its own."""
    shell = os.environ.get("SHELL") or "/bin/sh"
    environment = dict(os.environ)
    if named := socket_path():
        environment["BULLPEN_SOCKET"] = named
    # What is piped to us are our lines, and not that of what they run.
    stdin = None if sys.stdin.isatty() else subprocess.DEVNULL
    try:
        subprocess.run([shell, "-c", line], check=False, env=environment, stdin=stdin)
    except OSError as error:
        click.echo(f"bullpen: {shell}: {error.strerror}", err=True)
