"""`bullpen reply`: an answer to a message one was sent."""

import click

from bullpen.api.talk import ReplyMessage
from bullpen.cli.calls import ask
from bullpen.cli.options import json_option, no_start_option
from bullpen.cli.output import print_json
from bullpen.cli.receipts import delivery_line, delivery_record, message_record
from bullpen.cli.speaking import read_text, refusals, secret, text_option
from bullpen.model.appearance import one_line
from bullpen.model.messages import MessageType

__all__ = ["command"]


@click.command(name="reply")
@click.argument("text", required=False)
@text_option
@click.option(
    "--to",
    "to_message",
    default="",
    metavar="MESSAGE",
    help="Which message it answers; else the one you have, or the last one nobody has answered.",
)
@click.option("--fail", is_flag=True, help="Say that it cannot be done, and why.")
@click.option("--progress", is_flag=True, help="Say how it goes; the answer comes later.")
@click.option("--thinking", metavar="TEXT", help="What you thought, beside what you say.")
@json_option
@no_start_option
@click.pass_context
def command(
    context: click.Context,
    *,
    text: str | None,
    path: str | None,
    to_message: str,
    fail: bool,
    progress: bool,
    thinking: str | None,
    as_json: bool,
) -> None:
    """Answer a message: as the agent whose secret is in BULLPEN_SECRET, or else as the user.

    TEXT is - for standard input. Who asked is told, and his message is answered; with --fail his
    task has failed.

    \b
    Examples:
      bullpen reply "yes, go ahead"
      make test 2>&1 | bullpen reply - --to m-7f3a
      bullpen reply "there is no such file" --fail
      bullpen reply "half of it is done" --progress

    \b
    Exit codes:
      0  accepted
      1  there is no daemon, or the text cannot be read
      2  wrong usage
      4  there is no message to answer, or several wait and none is named
      5  refused: by a rule, its rate or its size, or it was answered already
    """  # noqa: D301 - click wants the character, not its name
    if fail and progress:
        raise click.UsageError("give --fail or --progress, not both")
    kind = MessageType.TASK_RESPONSE
    if fail:
        kind = MessageType.TASK_FAILED
    elif progress:
        kind = MessageType.PROGRESS
    content = read_text(text, path)
    with refusals(context, as_json=as_json):
        reply = ask(
            ReplyMessage(
                content=content,
                to_message=to_message,
                type=kind,
                thinking=thinking,
                secret=secret(),
            )
        )
    if as_json:
        print_json(
            message=message_record(reply.message),
            deliveries=[delivery_record(each) for each in reply.deliveries],
            is_new=reply.is_new,
        )
        return
    for each in reply.deliveries:
        click.echo(f"{delivery_line(each)}, in answer to {one_line(reply.message.reply_to or '')}")
