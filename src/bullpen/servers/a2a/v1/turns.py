"""The turns of a task: the message that began it, and each that went on from there."""

from a2a.utils.errors import TaskNotFoundError

from bullpen.model.tasks import Task
from bullpen.servers.a2a.room import Room
from bullpen.servers.a2a.v1 import mapping

__all__ = ["kept_task", "turns_of"]

MOST_TURNS = 500
LONGEST_SHOWN = 100


async def turns_of(room: Room, agent: str, task_id: str) -> list[Task]:
    """Return the turns of a task, the oldest first.

    Raises:
        TaskNotFoundError: the agent has none of that id.
    """
    first = await room.find_task(task_id)
    if first is None or first.recipient != agent or kept_task(first):
        raise TaskNotFoundError(f"there is no task {task_id[:LONGEST_SHOWN]}")
    thread = await room.tasks(agent=agent, context_id=first.context_id, limit=MOST_TURNS)
    answers = {each.id for each in first.went_on}  # by whichever door they came
    later = [each for each in thread if kept_task(each) == first.id or each.id in answers]
    return [first, *sorted(later, key=lambda each: each.created_at)]


def kept_task(turn: Task) -> str:
    """Return the task that a turn goes on with; empty if it began one."""
    return mapping.kept_of(turn.message).task_id
