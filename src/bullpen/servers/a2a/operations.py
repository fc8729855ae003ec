"""What can be asked of an agent over HTTP, in one table.

The seed's dialect is mounted by this table and described by it; A2A's bindings, which are mounted
by their SDK, are described by `v1.operations`. What describes them is `openapi`.
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from bullpen.servers.a2a import shapes

__all__ = ["DESCRIPTION", "EXTERNAL", "LISTING", "SEED", "Operation", "Query"]

Method = Literal["GET", "POST", "DELETE"]
Scope = Literal["read", "send"]
"""The words of `room.Scope` that a request takes; a few take more by what stands in them."""


class Query(NamedTuple):
    """Something that is said beside the path."""

    name: str
    schema: dict[str, Any]
    tells: str = ""
    place: Literal["query", "header"] = "query"
    is_required: bool = False


class Operation(NamedTuple):
    """One thing that can be asked, of an agent whose address is before the path."""

    name: str
    method: Method
    path: str
    tells: str
    answer: Any
    """A type, a schema of JSON, or None if it is a stream of events."""
    scope: Scope = "read"
    body: Any = None
    """The same of what is sent."""
    needs_body: bool = True
    query: tuple[Query, ...] = ()
    refusals: tuple[int, ...] = ()
    """Beside those that everybody may get, and those that come of a path or a body."""
    leads_to: Mapping[str, str] = {}
    """What can be asked about what came of it: where in the answer that stands, by parameter."""
    tag: str = "seed"
    events: Any = None
    """What is told in each event, if it is or may be a stream of them."""
    media_types: tuple[str, ...] = ("application/json",)
    """Of an answer that is none."""


_TASK_OF_SENT = {"task_id": "/task/id"}
_PRIORITY = Query(
    "priority",
    {"type": "integer", "minimum": shapes.LOWEST, "maximum": shapes.HIGHEST, "default": 1},
    "5 interrupts what the agent is doing",
)

SEED = (
    Operation(
        "takeMessage",
        "POST",
        "/message",
        "Ask the agent for something, in plain text",
        shapes.Taken,
        "send",
        shapes.Plain,
        refusals=(400,),
        leads_to={"task_id": "/task_id"},
    ),
    Operation("getStatus", "GET", "/status", "See what the agent is doing", shapes.Status),
    Operation("getOldCard", "GET", "/.well-known/agent.json", "Read its card", shapes.Card),
    Operation(
        "sendTask",
        "POST",
        "/tasks/send",
        "Ask the agent for something",
        shapes.Sent,
        "send",
        shapes.Send,
        refusals=(400,),
        leads_to=_TASK_OF_SENT,
    ),
    Operation(
        "sendPriorityTask",
        "POST",
        "/tasks/send-priority",
        "Ask the agent for something, with a priority",
        shapes.Sent,
        "send",
        shapes.Send,
        query=(_PRIORITY,),
        refusals=(400,),
        leads_to=_TASK_OF_SENT,
    ),
    Operation(
        "listOwnTasks",
        "GET",
        "/tasks",
        "List its newest tasks, the oldest first",
        list[shapes.Task],
        query=(Query("context_id", {"type": "string"}, "only those of a conversation"),),
    ),
    Operation("getOwnTask", "GET", "/tasks/{task_id}", "Look at a task", shapes.Task),
    Operation(
        "cancelOwnTask",
        "POST",
        "/tasks/{task_id}/cancel",
        "Cancel a task",
        shapes.Stopped,
        "send",
        refusals=(400,),
    ),
    Operation(
        "subscribeOwnTask",
        "GET",
        "/tasks/{task_id}/subscribe",
        "Follow a task: events output, status, and done at its end",
        None,
        events=shapes.Event,
    ),
)

EXTERNAL = (
    Operation(
        "discover",
        "POST",
        "/external/discover",
        "Add an agent elsewhere by its card; one of another machine takes the scope control",
        shapes.Added,
        "send",
        shapes.Discover,
        refusals=(400,),
    ),
    Operation(
        "listAdded",
        "GET",
        "/external/agents",
        "List the agents elsewhere that were added",
        list[shapes.Added],
    ),
    Operation("getAdded", "GET", "/external/agents/{alias}", "Look at one of them", shapes.Added),
    Operation(
        "removeAdded",
        "DELETE",
        "/external/agents/{alias}",
        "Forget one of them; the same holds",
        shapes.Removed,
        "send",
    ),
    Operation(
        "sendElsewhere",
        "POST",
        "/external/agents/{alias}/send",
        "Ask one of them for something",
        shapes.SentElsewhere,
        "send",
        shapes.SendElsewhere,
        refusals=(400,),
    ),
)

DESCRIPTION = Operation(
    "describe",
    "GET",
    "/openapi.json",
    "Read this description",
    {"type": "object", "required": ["openapi", "info", "paths"]},
    tag="about",
)

LISTING = Operation(
    "listAgents",
    "GET",
    "/agents",
    "See who there is, and where",
    list[shapes.Address],
    tag="about",
)
"""Of the daemon's port, and of no agent."""
