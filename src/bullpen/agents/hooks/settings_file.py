"""A program's settings as they were found, and what is made of them: all of it or nothing."""

import itertools
import os
from collections.abc import Collection
from pathlib import Path

import msgspec

from bullpen.agents.hooks import files
from bullpen.agents.hooks.merge import NEW_DIRECTORY, NEW_FILE

__all__ = ["SettingsFile"]

_ABOVE = "-above"  # for each directory more that had to be made


class SettingsFile(msgspec.Struct, frozen=True):
    """A file of settings, which need not be there."""

    path: Path
    whole: str | None
    """All of it."""

    @classmethod
    def find(cls, path: Path) -> "SettingsFile":
        """Read what is there.

        Raises:
            SettingsError: it cannot be read.
        """
        return cls(path, files.read(path))

    @property
    def text(self) -> str | None:
        """What is in it, without its mark."""
        return None if self.whole is None else self.whole.removeprefix(files.MARK)

    def new_flags(self) -> frozenset[str]:
        """Return what the first entry of ours has to note about where it is put."""
        if self.whole is not None:
            return frozenset()
        above = Path(os.path.realpath(self.path)).parents
        missing = sum(1 for _ in itertools.takewhile(lambda each: not each.exists(), above))
        if not missing:
            return frozenset({NEW_FILE})
        return frozenset({NEW_FILE, NEW_DIRECTORY + _ABOVE * (missing - 1)})

    def write(
        self, text: str | None, *, dry_run: bool, flags: Collection[str] = frozenset()
    ) -> bool:
        """Write what the text has become, or nothing but look; return whether it is another.

        A file that becomes nothing is removed, and so are the directories that were made for it,
        as its flags tell.

        Raises:
            SettingsError: it cannot be written, or somebody else has changed it meanwhile.
        """
        mark = files.MARK if self.whole is not None and self.whole.startswith(files.MARK) else ""
        new = None if text is None else mark + text
        if new == self.whole:
            return False
        if dry_run:
            return True
        if new is None:
            assert self.whole is not None  # it became nothing, so it was something
            files.remove(self.path, before=self.whole, directories=_directories(flags))
        else:
            files.replace(self.path, new, before=self.whole)
        return True


def _directories(flags: Collection[str]) -> int:
    """Return how many directories were made for a file."""
    made = [1 + flag.count(_ABOVE) for flag in flags if flag.startswith(NEW_DIRECTORY)]
    return max(made, default=0)
