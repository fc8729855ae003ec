"""Which agent or pane somebody means, and whether what they wait for is so."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

from bullpen.api.errors import ApiError
from bullpen.connection import RpcError
from bullpen.jsonrpc.errors import INVALID_PARAMS
from bullpen.model.observations import PaneInstanceId
from bullpen.model.places import place_words
from bullpen.model.reasons import Reason
from bullpen.model.states import Activity
from bullpen.model.views import AgentState, PaneState

__all__ = ["UNTIL", "brief", "check_until", "find_agent", "find_pane", "holds", "not_found"]

T = TypeVar("T")

LONGEST_SAID = 100

UNTIL = frozenset([*(each.value for each in Activity), "waiting", "done", "ready", "gone"])
"""What can be waited for: an activity, or one of four words that stand for several."""


def find_agent(agents: Iterable[AgentState], subject: str) -> AgentState | None:
    """Return the agent of a name, a pane (`%3`, `work:1.0`), a session or a terminal.

    Raises:
        ApiError: it could be several.
    """
    agents = tuple(agents)
    for agent in agents:
        if agent.name == subject:
            return agent
    found = [agent for agent in agents if _is_meant(agent, subject)]
    return _only(found, subject, [agent.name for agent in found])


def find_pane(panes: Iterable[PaneState], subject: str) -> PaneState | None:
    """Return the pane of an id, with or without its server, or of a place (`work:1.0`).

    Raises:
        ApiError: it could be several.
    """
    found = [
        each
        for each in panes
        if _is_pane(each.pane_instance_id, subject)
        or subject
        == place_words(each.place.session_name, each.place.window_index, each.place.pane_index)
    ]
    return _only(found, subject, [str(each.pane_instance_id) for each in found])


def holds(agent: AgentState | None, until: Iterable[str]) -> bool:
    """Whether one of the words is true of an agent now, which is None if it has gone."""
    wanted = frozenset(until)
    if agent is None or agent.activity is Activity.EXITED:
        return bool(wanted & {"gone", "done", Activity.EXITED.value})
    true = {agent.activity.value}
    if agent.activity.is_waiting:
        true.add("waiting")
    if agent.activity in (Activity.IDLE, Activity.ERROR, Activity.RATE_LIMITED):
        true.add("done")
    if agent.is_ready:
        true.add("ready")
    return bool(wanted & true)


def check_until(until: Sequence[str]) -> None:
    """Refuse words that can never be true.

    Raises:
        RpcError: there is one, or none at all.
    """
    if not until or not UNTIL.issuperset(until):
        words = ", ".join(sorted(UNTIL))
        raise RpcError(INVALID_PARAMS, f"Invalid params: until is to be some of {words}")


def brief(said: str) -> str:
    """Return what somebody has said for a message to them, which is not to grow with it."""
    return repr(said if len(said) <= LONGEST_SAID else f"{said[:LONGEST_SAID]}…")


def not_found(subject: str) -> ApiError:
    """Return the error for somebody who is not there."""
    known = "`bullpen ls` and `bullpen panes` list what there is"
    return ApiError(Reason.AGENT_NOT_FOUND, f"there is no agent or pane {brief(subject)}; {known}")


def _is_meant(agent: AgentState, subject: str) -> bool:
    if not subject:
        return False
    place = agent.place
    return (
        subject in (agent.session_key, agent.tty)
        or agent.session_key == f"report:{subject}"
        or (agent.pane is not None and _is_pane(agent.pane, subject))
        or (
            place is not None
            and subject == place_words(place.session_name, place.window_index, place.pane_index)
        )
    )


def _is_pane(pane: PaneInstanceId, subject: str) -> bool:
    return subject in (pane.pane_id, str(pane))


def _only(found: Sequence[T], subject: str, names: Sequence[str]) -> T | None:
    if len(found) > 1:
        raise ApiError(
            Reason.AGENT_AMBIGUOUS,
            f"{brief(subject)} could be any of {', '.join(names)}",
            names=names,
        )
    return found[0] if found else None
