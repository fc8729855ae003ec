"""A program's settings as they were found, and what is made of them: all of it or nothing."""

from pathlib import Path

import msgspec

from bullpen.agents.hooks import files
from bullpen.agents.hooks.merge import NEW_DIRECTORY, NEW_FILE

__all__ = ["SettingsFile"]


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
        if self.path.parent.exists():
            return frozenset({NEW_FILE})
        return frozenset({NEW_FILE, NEW_DIRECTORY})

    def write(self, text: str | None, *, dry_run: bool, with_directory: bool = False) -> bool:
        """Write what the text has become, or nothing but look; return whether it is another.

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
            files.remove(self.path, before=self.whole, with_directory=with_directory)
        else:
            files.replace(self.path, new, before=self.whole)
        return True
