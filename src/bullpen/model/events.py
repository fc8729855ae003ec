"""The types of observations: what each says an agent is doing, if it says that at all.

A type not listed here is kept in the log and asserts nothing.
"""

from bullpen.model.states import Activity

__all__ = ["ACTIVITIES", "HEARTBEAT", "activity_event", "activity_of"]

HEARTBEAT = "heartbeat"
"""The source is there and has nothing new to say. It never carries an activity."""

PANE_UNMANAGED = "pane.unmanaged"
"""No agent was seen in the pane."""
PANE_CLOSED = "pane.closed"
"""The pane is gone."""
PANE_LISTED = "pane.listed"
"""All panes of a server, so that those which are not in it can be forgotten."""
SESSION_NAMED = "session.named"
"""The session has a title of its own: `payload.title`."""
SESSION_ENDED = "session.ended"
"""The agent's session, or its process, is over."""

ACTIVITIES: dict[str, Activity] = {
    "session.started": Activity.IDLE,
    SESSION_ENDED: Activity.EXITED,
    "prompt.submitted": Activity.RUNNING,
    "turn.started": Activity.RUNNING,
    "turn.completed": Activity.IDLE,
    "turn.interrupted": Activity.IDLE,
    "turn.failed": Activity.ERROR,
    "turn.rate_limited": Activity.RATE_LIMITED,
    "model.requested": Activity.RUNNING,
    "tool.started": Activity.RUNNING,
    "tool.completed": Activity.RUNNING,
    "tool.failed": Activity.RUNNING,
    "compaction.started": Activity.RUNNING,
    "approval.requested": Activity.WAITING_APPROVAL,
    "approval.granted": Activity.RUNNING,
    "question.asked": Activity.WAITING_INPUT,
    "thread.idle": Activity.IDLE,
    "thread.active": Activity.RUNNING,
    "thread.waitingOnApproval": Activity.WAITING_APPROVAL,
    "thread.waitingOnUserInput": Activity.WAITING_INPUT,
    "thread.systemError": Activity.ERROR,
    **{f"activity.{each.value}": each for each in Activity},
}


def activity_of(event_type: str) -> Activity | None:
    """Return what the agent is doing after such an event; None if it does not tell."""
    return ACTIVITIES.get(event_type)


def activity_event(activity: Activity) -> str:
    """Return the type that says nothing but what the agent is doing."""
    return f"activity.{activity.value}"
