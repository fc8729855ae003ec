"""`bullpen ask`: a question to an agent, and its answer."""

import click

from bullpen.cli.options import SECONDS, complete_agents, json_option, no_start_option
from bullpen.cli.output import print_json
from bullpen.cli.receipts import echo_text
from bullpen.cli.send import message_of, record, show_answers, stay_with
from bullpen.cli.speaking import priority_option, read_text, refusals, text_option
from bullpen.cli.voice import Voice
from bullpen.model.appearance import one_line
from bullpen.model.messages import MessageType, Priority

__all__ = ["command"]


@click.command(name="ask")
@click.argument("to", shell_complete=complete_agents)
@click.argument("text", required=False)
@text_option
@priority_option
@click.option(
    "--timeout",
    type=SECONDS,
    metavar="SECONDS",
    help="How long to wait, if not as long as is set for tasks.",
)
@click.option("--stream", is_flag=True, help="Print what it says while it says it.")
@click.option("--thinking", is_flag=True, help="Print what it thought, to standard error.")
@click.option("-v", "--verbose", is_flag=True, help="Say each step, and what it thought.")
@json_option
@no_start_option
@click.pass_context
def command(
    context: click.Context,
    *,
    to: str,
    text: str | None,
    path: str | None,
    priority: Priority,
    timeout: float | None,
    stream: bool,
    thinking: bool,
    verbose: bool,
    as_json: bool,
) -> None:
    """Ask an agent something, wait for its answer, and print that and nothing else.

    TO is a name as in bullpen ls. TEXT is - for standard input. While it waits, the steps of the
    question are shown on standard error, if that is a terminal. When the time is over the question
    is still under way: bullpen task has the answer later.

    With --stream what the agent says is printed as soon as it is known, and so is what it says on
    the way to its answer. Codex and opencode tell each word, Claude Code what it says
    between its tools; others are read off their terminals.

    \b
    Examples:
      bullpen ask codex "which tests cover src/parser.py?"
      git diff | bullpen ask claude-1 - --timeout 600 > review.md
      bullpen ask codex --file question.md --thinking
      bullpen ask codex "explain src/parser.py" --stream

    \b
    Exit codes:
      0  answered
      1  there is no daemon, or it could be several agents, or the text cannot be read
      2  wrong usage
      3  the time is over and there is no answer yet; the message names the question
      4  there is no such agent
      5  refused: by a rule, its rate or its size
      6  it failed, expired or was given up; there will be no answer
    """  # noqa: D301 - click wants the character, not its name
    if stream and as_json:
        raise click.UsageError("give --stream or --json, not both")
    voice = Voice() if stream else None
    message = message_of(to, read_text(text, path), MessageType.TASK_REQUEST, priority=priority)
    with refusals(context, as_json=as_json):
        sent = stay_with(message, until="answered", timeout=timeout, verbose=verbose, listen=voice)
    reply = sent.waited.reply if sent.waited else None
    if as_json:
        print_json(**record(sent))
    elif sent.is_for_many:
        show_answers(sent)
    elif sent.shortfall:
        name = one_line(sent.trace.message.id)
        said = sent.shortfall if reply is None else reply.content
        click.echo(f"bullpen: {name}: {one_line(said)}", err=True)
    elif reply is not None:
        if (thinking or verbose) and reply.thinking:
            echo_text(reply.thinking, err=True)
        echo_text(reply.content if voice is None else voice.rest(reply.content))
    context.exit(sent.exit_code)
