"""`bullpen send`: a message to an agent, and what became of it."""

import asyncio
import sys
from typing import Any

import click

from bullpen.api.talk import MailTrace, SendMessage
from bullpen.cli.calls import daemon_paths
from bullpen.cli.options import SECONDS, complete_agents, json_option, may_start, no_start_option
from bullpen.cli.output import print_json
from bullpen.cli.receipts import (
    delivery_line,
    delivery_record,
    echo_text,
    message_record,
    reasons,
    step_line,
)
from bullpen.cli.sending import Listen, LookOn, Sent, deliver
from bullpen.cli.speaking import priority_option, read_text, refusals, secret, text_option
from bullpen.model.appearance import one_line
from bullpen.model.messages import MessageGroup, MessageType, Priority

__all__ = ["Steps", "command", "message_of", "record", "show_answers", "stay_with"]

EVERYBODY = "*"


@click.command(name="send")
@click.argument("to", required=False, shell_complete=complete_agents)
@click.argument("text", required=False)
@text_option
@click.option("--all", "to_all", is_flag=True, help="Send it to everybody, instead of TO.")
@click.option(
    "--target",
    metavar="AGENT",
    shell_complete=complete_agents,
    help="Whom to send it to, instead of TO.",
)
@priority_option
@click.option(
    "--type",
    "kind",
    type=click.Choice([each.value for each in MessageType]),
    default=MessageType.TASK_REQUEST.value,
    show_default=True,
    help="What it is: a task wants an answer, info does not.",
)
@click.option(
    "--ttl",
    type=SECONDS,
    metavar="SECONDS",
    help="How long it is worth delivering.",
)
@click.option(
    "--wait",
    "until",
    type=click.Choice(["seen", "answered"]),
    help="Wait until the agent has it, or has answered.",
)
@click.option("-r", "--return", "returns", is_flag=True, help="The same as --wait answered.")
@click.option(
    "--timeout",
    type=SECONDS,
    metavar="SECONDS",
    help="How long to wait, if not as long as is set for its type.",
)
@click.option("--reply-to", metavar="MESSAGE", help="The message that it answers.")
@click.option("--key", metavar="KEY", help="Sent again with the same key it is the same message.")
@click.option("--thinking", metavar="TEXT", help="What you thought, beside what you say.")
@click.option("-v", "--verbose", is_flag=True, help="Say each step while waiting.")
@json_option
@no_start_option
@click.pass_context
def command(
    context: click.Context,
    /,
    *,
    to: str | None,
    text: str | None,
    path: str | None,
    to_all: bool,
    target: str | None,
    kind: str,
    until: str | None,
    returns: bool,
    timeout: float | None,
    verbose: bool,
    as_json: bool,
    **said: Any,
) -> None:
    """Send TEXT to an agent and print what became of it: `accepted m-… for codex`.

    TO is a name as in bullpen ls, # and a topic, or * for everybody. TEXT is - for standard input.
    When this is printed the message is kept, and outlives the daemon; a busy agent gets it when it
    is done. Nothing less than seen is delivered: bullpen trace shows every step, with its evidence.

    \b
    Examples:
      bullpen send codex "review src/parser.py"
      git diff | bullpen send claude-1 - --wait answered --timeout 600
      bullpen send codex --file task.md --priority high --wait seen
      bullpen send '#builds' "main is broken" --type info --ttl 3600

    \b
    Exit codes:
      0  accepted; with --wait: it has come so far
      1  there is no daemon, or it could be several agents, or the text cannot be read
      2  wrong usage
      3  the time is over and it has not come so far; it is still under way
      4  there is no such agent, or nobody listens to the topic
      5  refused: by a rule, its rate, its size or its key
      6  it failed, expired or was given up
    """  # noqa: D301 - click wants the character, not its name
    recipient, text = _recipient(to, text, to_all=to_all, target=target)
    is_control = MessageType(kind).group is MessageGroup.CONTROL
    message = message_of(
        recipient, read_text(text, path, may_be_empty=is_control), MessageType(kind), **said
    )
    until = _until(until, timeout, returns=returns)
    with refusals(context, as_json=as_json):
        sent = stay_with(message, until=until, timeout=timeout, verbose=verbose)
    if as_json:
        print_json(**record(sent))
    else:
        show(sent)
    context.exit(sent.exit_code)


def _recipient(
    to: str | None, text: str | None, *, to_all: bool, target: str | None
) -> tuple[str, str | None]:
    """Return whom it is for and the text, wherever each of them was said."""
    named = EVERYBODY if to_all else target
    if to_all and target is not None:
        raise click.UsageError("give --all or --target, not both")
    if named is not None:
        if text is not None:
            raise click.UsageError("give TO, --target or --all, and one of them only")
        return named, to
    if to is None:
        raise click.UsageError("say whom it is for: TO, --target or --all")
    return to, text


def _until(until: str | None, timeout: float | None, *, returns: bool) -> str | None:
    if returns and until == "seen":
        raise click.UsageError("--return waits for the answer; --wait seen does not")
    until = "answered" if returns else until
    if timeout is not None and until is None:
        raise click.UsageError("--timeout is for --wait")
    return until


def message_of(
    to: str,
    content: str,
    kind: MessageType,
    *,
    priority: Priority,
    ttl: float | None = None,
    reply_to: str | None = None,
    key: str | None = None,
    thinking: str | None = None,
) -> SendMessage:
    """Return what is asked of the daemon."""
    metadata: dict[str, Any] = {"priority": priority.value}
    if ttl is not None:
        metadata["ttl"] = ttl
    return SendMessage(
        to=to,
        content=content,
        type=kind,
        thinking=thinking,
        metadata=metadata,
        reply_to=reply_to,
        idempotency_key=key,
        secret=secret(),
    )


def stay_with(
    message: SendMessage,
    *,
    until: str | None,
    timeout: float | None,
    verbose: bool,
    listen: Listen | None = None,
) -> Sent:
    """Send a message and wait; who gives up waiting is told that the message goes on."""
    accepted: list[str] = []
    try:
        return asyncio.run(
            deliver(
                daemon_paths(),
                message,
                start=may_start(),
                until=until,
                timeout_seconds=timeout,
                look_on=_steps(verbose=verbose),
                listen=listen,
                on_accepted=accepted.append,
            )
        )
    except KeyboardInterrupt:
        for each in map(one_line, accepted):
            ending = f"bullpen task --cancel {each} ends it"
            click.echo(f"bullpen: {each} is still under way; {ending}", err=True)
        raise


def show(sent: Sent) -> None:
    """Print what became of a message, and its answer if there is one."""
    trace = sent.trace
    why = reasons(trace.receipts)
    for each in trace.deliveries:
        click.echo(
            delivery_line(
                each,
                position=trace.positions.get(each.recipient),
                holding=trace.holding.get(each.recipient, ""),
                reason=why.get(each.recipient, ""),
            )
        )
    if not sent.is_new:
        click.echo("it was sent before with the same key; this is what became of it", err=True)
    if sent.is_for_many:
        show_answers(sent)
    elif sent.waited is not None and sent.waited.reply is not None:
        echo_text(sent.waited.reply.content)
    elif sent.shortfall:
        click.echo(f"bullpen: {one_line(sent.shortfall)}", err=True)


def show_answers(sent: Sent) -> None:
    """Print what each of several answered, below his name, and what is missing."""
    for each in sent.waited.replies if sent.waited is not None else ():
        click.secho(f"from {one_line(each.from_agent)}:", bold=True)
        echo_text(each.content)
    if sent.shortfall:
        click.echo(f"bullpen: {one_line(sent.shortfall)}", err=True)


def record(sent: Sent) -> dict[str, Any]:
    """Return what became of a message, for programs."""
    trace, waited = sent.trace, sent.waited
    return {
        "message": message_record(trace.message),
        "deliveries": [
            delivery_record(
                each,
                position=trace.positions.get(each.recipient),
                holding=trace.holding.get(each.recipient, ""),
            )
            for each in trace.deliveries
        ],
        "is_new": sent.is_new,
        "outcome": waited.outcome if waited else None,
        "reply": message_record(waited.reply) if waited and waited.reply else None,
        "replies": [message_record(each) for each in waited.replies] if waited else [],
        "reason": sent.shortfall,
    }


def _steps(*, verbose: bool) -> LookOn | None:
    """Return who tells the steps of a message to somebody who looks on; None if nobody does."""
    return Steps() if verbose or sys.stderr.isatty() else None


class Steps:
    """Prints every step of a message once, and what it waits for, as that changes."""

    def __init__(self) -> None:
        self._told: set[tuple[object, ...]] = set()
        self._holding: dict[str, str] = {}

    def __call__(self, trace: MailTrace) -> None:
        for each in trace.receipts:
            step = (each.recipient, each.attempt, each.state, each.at)
            if step not in self._told:
                self._told.add(step)
                click.echo(step_line(each), err=True)
        for recipient, why in trace.holding.items():
            if why and self._holding.get(recipient) != why:
                click.echo(f"  {one_line(recipient)}: it waits: {one_line(why)}", err=True)
            self._holding[recipient] = why
