"""What the poller says of a pane: the payload of its observations.

`PaneReport` comes with `activity.*` and `pane.unmanaged`, `ServerReport` with `pane.listed`.
"""

from datetime import datetime

import msgspec

from bullpen.model.observations import PaneInstanceId
from bullpen.model.states import SignatureClass
from bullpen.model.views import PanePlace, SignatureInputs

__all__ = ["EvidenceLine", "PaneReport", "ScreenReport", "ServerReport", "SignatureReport"]


class SignatureReport(msgspec.Struct, frozen=True, kw_only=True):
    """Which program runs in the pane, on what evidence."""

    signature_class: SignatureClass = SignatureClass.NONE
    reason: str = ""
    confidence: float = 0.0
    inputs: SignatureInputs = SignatureInputs()
    refusal: str | None = None
    """`signature_inconclusive` or `signature_guard_rejected`, if something spoke for an agent."""


class EvidenceLine(msgspec.Struct, frozen=True):
    """Where on the screen a rule found what."""

    region: str
    text: str
    row: int | None = None


class ScreenReport(msgspec.Struct, frozen=True, kw_only=True):
    """How the screen was read."""

    rule: str = ""
    reason: str = ""
    evidence: tuple[EvidenceLine, ...] = ()
    prompt: str = ""
    is_ready: bool = False
    not_ready: str = ""
    """Why no message could be typed now."""
    losers: tuple[str, ...] = ()
    """The rules that lost or nearly held, each with why."""


class PaneReport(msgspec.Struct, frozen=True, kw_only=True):
    """One look at a pane."""

    place: PanePlace
    signature: SignatureReport
    screen: ScreenReport | None = None
    """None if there is no agent whose rules could read it."""
    pids: tuple[int, ...] | None = None
    """The processes below the pane; None if nobody could look."""
    last_output_at: datetime | None = None
    no_agent_streak: int = 0
    """How many looks in a row, up to this one, found no agent."""
    is_agent_gone: bool = False
    """The processes are known and none of them is an agent's."""
    agent_pid: int = 0
    """The process of the agent; 0 if it is not known."""


class ServerReport(msgspec.Struct, frozen=True):
    """All panes of a tmux server."""

    server: str
    panes: tuple[PaneInstanceId, ...]
