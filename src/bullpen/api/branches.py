"""Which branch is checked out in a directory, read without running git."""

from pathlib import Path

__all__ = ["branch_of"]

MOST_LEVELS = 64
MOST_BYTES = 4096
BRANCHES = "refs/heads/"
SHORT = 7  # digits of a commit, as git shows them


def branch_of(directory: str) -> str:
    """Return the branch, or the commit if there is none; empty outside of a work tree.

    It reads a few small files: not in an event loop, where the directory may be on a slow disk.
    """
    if not directory.startswith("/"):
        return ""
    place = Path(directory)
    for parent in (place, *place.parents)[:MOST_LEVELS]:
        if head := _head(parent / ".git"):
            return head
    return ""


def _head(marker: Path) -> str:
    content = _read(marker / "HEAD")
    if not content and (link := _read(marker)).startswith("gitdir: "):
        # A work tree or submodule: the directory is elsewhere.
        content = _read(marker.parent / link.removeprefix("gitdir: ") / "HEAD")
    if content.startswith("ref: "):
        return content.removeprefix("ref: ").removeprefix(BRANCHES)
    return content[:SHORT]


def _read(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(MOST_BYTES).strip()
    except (OSError, ValueError):  # not there, not a file, not ours to read, not a path
        return ""
