"""`bullpen task`: what was asked of agents, and what came of it."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

import click
import msgspec

from bullpen.api.talk import CancelTask, GetTask, ListTasks
from bullpen.cli.calls import ask
from bullpen.cli.options import complete_agents, json_option, no_start_option
from bullpen.cli.output import Cell, columns, print_json, terminal_width, text, word_cell
from bullpen.cli.receipts import content_line, message_record
from bullpen.cli.speaking import refusals, secret
from bullpen.model.appearance import age_words, one_line
from bullpen.model.mailing import TASKS, plain_text
from bullpen.model.tasks import Task, TaskState

__all__ = ["command", "listing", "task_lines"]

GIVE_WAY = (5, 4)  # what was asked, why


@click.command(name="task")
@click.argument("task_id", metavar="[ID]", required=False)
@click.option("--list", "listed", is_flag=True, help="List them; the same as without an ID.")
@click.option("--cancel", metavar="ID", help="End a task: what is worked on is interrupted.")
@click.option("--to", metavar="AGENT", shell_complete=complete_agents, help="Only tasks for it.")
@click.option("--from", "sender", metavar="AGENT", help="Only tasks from it.")
@click.option(
    "--state",
    type=click.Choice([each.value for each in TaskState]),
    help="Only tasks in this state.",
)
@click.option(
    "--limit",
    type=click.IntRange(1, 500),
    default=50,
    show_default=True,
    metavar="N",
    help="How many at most.",
)
@json_option
@no_start_option
@click.pass_context
def command(
    context: click.Context,
    *,
    task_id: str | None,
    listed: bool,
    cancel: str | None,
    to: str | None,
    sender: str | None,
    state: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """List tasks, newest first; show one with its answer; or end one.

    A task is a message that wants an answer, whoever sent it and through whichever door. Its ID is
    that of the message.

    \b
    Examples:
      bullpen task
      bullpen task m-7f3a
      bullpen task --to codex --state working
      bullpen task --cancel m-7f3a

    \b
    Exit codes:
      0  shown, or ended
      1  there is no daemon
      2  wrong usage
      4  there is no such task
      5  refused: it is not yours to end, or is over
    """  # noqa: D301 - click wants the character, not its name
    if sum([task_id is not None, listed, cancel is not None]) > 1:
        raise click.UsageError("give an ID, --list or --cancel, and one of them only")
    with refusals(context, as_json=as_json):
        if cancel is not None:
            _show(ask(CancelTask(cancel, secret())), as_json=as_json)
        elif task_id is not None:
            _show(ask(GetTask(task_id)), as_json=as_json)
        else:
            found = ask(
                ListTasks(
                    recipient=to,
                    sender=sender,
                    state=TaskState(state) if state else None,
                    limit=limit,
                )
            )
            _show_all(found, as_json=as_json)


def _show(task: Task, *, as_json: bool) -> None:
    if as_json:
        print_json(task=_record(task))
    else:
        click.echo("\n".join(task_lines(task, datetime.now(UTC))))


def _show_all(tasks: tuple[Task, ...], *, as_json: bool) -> None:
    if as_json:
        print_json(tasks=list(map(_record, tasks)))
    else:
        click.echo("\n".join(listing(tasks, datetime.now(UTC), width=terminal_width())))


def listing(tasks: Iterable[Task], now: datetime, *, width: int | None = None) -> list[str]:
    """Return the lines that show some tasks."""
    rows = [
        [
            text(task.id),
            word_cell(TASKS[task.state], task.state),
            text(f"{task.sender} to {task.recipient}"),
            Cell(age_words((now - task.created_at).total_seconds()).rjust(3)),
            text(_place(task)),
            Cell(content_line(task.message)),
        ]
        for task in tasks
    ]
    return columns(rows, width=width, shrink=GIVE_WAY) or ["no tasks"]


def task_lines(task: Task, now: datetime) -> list[str]:
    """Return the lines that show one task."""
    look = TASKS[task.state]
    state = click.style(f"{look.symbol} {task.state}", fg=look.colour)
    age = age_words((now - task.created_at).total_seconds())
    who = one_line(f"{task.sender} to {task.recipient}")
    lines = [f"{one_line(task.id)} is {state}: {who}, {age} ago, {task.receipt}"]
    if place := _place(task):
        lines.append(f"  because   {one_line(place)}")
    lines += _block("asked", task.message.content)
    for each in (*task.answers, *task.went_on):
        lines += _block(each.type, each.content)
    if task.dialog is not None:
        lines += _block("waits for an answer to", task.dialog.text)
        words = " | ".join(each for each in task.dialog.answers if ": " not in each)
        lines.append(f"  answer it  bullpen answer {one_line(task.recipient)} {one_line(words)}")
    return lines


def _place(task: Task) -> str:
    """Where it is in the queue, and why it is not further."""
    before = f"number {task.position} in the queue" if task.position else ""
    reason = task.reason.partition(":\n")[0] if task.dialog is not None else task.reason
    return ": ".join(filter(None, [before, reason]))


def _block(heading: str, content: str) -> Iterator[str]:
    yield f"  {heading}"
    yield from (f"    {line}".rstrip() for line in plain_text(content).split("\n"))


def _record(task: Task) -> dict[str, Any]:
    return {
        **msgspec.structs.asdict(task),
        "message": message_record(task.message),
        "answers": [message_record(each) for each in task.answers],
        "went_on": [message_record(each) for each in task.went_on],
        "text": task.text,
    }
