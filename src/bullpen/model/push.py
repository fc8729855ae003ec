"""Who is to be told by post what becomes of a task."""

from typing import Any

import msgspec

__all__ = ["OWED", "PushAddress"]

OWED = "urn:bullpen:owed"
"""The id of an answer that is owed to an agent of Synapse, and the key of what that has said."""


class PushAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Where to post what becomes of a task, and with what; secrets are in it."""

    task_id: str
    id: str
    agent: str
    """Whose task it is."""
    owner: str
    """Who gave the address: nobody else is shown its secrets."""
    is_local: bool
    """It was given by somebody on this machine, who may have it posted to this machine."""
    config: dict[str, Any]
    """As it was given: the URL and what to show there."""

    @property
    def is_owed(self) -> bool:
        """Whether only the answer is posted, as an agent of Synapse takes it."""
        return OWED in self.config

    def __repr__(self) -> str:
        return f"PushAddress({self.task_id!r}, {self.id!r})"
