"""The port: who can be written to, and whether each is there."""

from typing import Protocol

import msgspec

from bullpen.model.states import Activity

__all__ = ["Addressee", "Directory"]


class Addressee(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody a message can be sent to."""

    name: str
    activity: Activity = Activity.UNKNOWN
    is_present: bool = True
    """False for an agent that has ended: what is sent to it waits for its return."""
    tells_turns: bool = False
    """It tells by itself how its turns begin and end, so that a screen need not be believed."""


class Directory(Protocol):
    """Everybody we know of."""

    def find(self, address: str) -> Addressee | None:
        """Return who is meant: by name, or by another address that means only one.

        Raises:
            AddressAmbiguous: it could be several.
        """

    def everybody(self) -> tuple[Addressee, ...]:
        """Return all that are there."""
