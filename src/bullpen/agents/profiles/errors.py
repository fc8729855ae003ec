"""What can be wrong with profiles.

BullpenError
└── ProfileError              a profile cannot be used
    ├── ProfileFileError      a file is no profile; the others are not affected
    └── UnknownProfileError   there is no profile of that name
"""

import difflib
from collections.abc import Sequence

from bullpen.errors import BullpenError

__all__ = ["ProfileError", "ProfileFileError", "UnknownProfileError"]


class ProfileError(BullpenError):
    """A profile cannot be used."""


class ProfileFileError(ProfileError):
    """A file is no profile. Mend what `key` names, or take the file away."""

    def __init__(self, file: str, problem: str, *, key: str = "") -> None:
        super().__init__(f"{file}: {key}: {problem}" if key else f"{file}: {problem}")
        self.file = file
        self.key = key
        self.problem = problem


class UnknownProfileError(ProfileError):
    """There is no such profile. One can be made by putting a file of that name in `directory`."""

    def __init__(self, name: str, known: Sequence[str], directory: str) -> None:
        close = difflib.get_close_matches(name, known, n=1)
        meant = f"; did you mean {close[0]}?" if close else f"; there are {', '.join(known)}"
        super().__init__(f"there is no profile {name!r}{meant} (your own go into {directory})")
        self.name = name
        self.known = tuple(known)
        self.directory = directory
