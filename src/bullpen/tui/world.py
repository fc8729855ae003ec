"""What the board knows: everything the daemon has told, folded."""

from bullpen.api.client import Resync, Told
from bullpen.model.views import AgentState, PaneState, StateChange, Summary

__all__ = ["World"]


class World:
    """The agents and panes there are, and all of it in numbers."""

    def __init__(self) -> None:
        self.agents: dict[str, AgentState] = {}
        self.panes: dict[str, PaneState] = {}
        self.summary = Summary()

    def take(self, told: Told) -> None:
        """Let something be so. What is told twice is so once."""
        if isinstance(told, Summary):
            self.summary = told
        elif isinstance(told, Resync):
            self.agents = {each.name: each for each in told.agents}
            self.panes = {str(each.pane_instance_id): each for each in told.panes}
            self.summary = told.summary
        else:
            self._change(told)

    def _change(self, change: StateChange) -> None:
        if change.kind == "agent" and change.agent is not None:
            self.agents[change.key] = change.agent
        elif change.kind == "agent_removed":
            self.agents.pop(change.key, None)
        elif change.kind == "pane" and change.pane is not None:
            self.panes[change.key] = change.pane
        elif change.kind == "pane_removed":
            self.panes.pop(change.key, None)
