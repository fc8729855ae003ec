"""Where Codex keeps its things."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

__all__ = [
    "codex_home",
    "control_socket",
    "is_rollout",
    "prompt_history",
    "sessions_directory",
    "thread_names",
    "thread_of_rollout",
]

_ROLLOUT: Final = re.compile(r"rollout-(?P<time>[0-9T:.-]+?)-(?P<thread>[0-9a-f]{8}-[0-9a-f-]{27})")
_SUFFIX: Final = ".jsonl"


def codex_home(environment: Mapping[str, str], home: Path) -> Path:
    """Return Codex's own directory, given the user's environment and home."""
    named = environment.get("CODEX_HOME", "")
    return Path(named) if named else home / ".codex"


def control_socket(codex: Path) -> Path:
    """Return the socket at which an app server listens that all of Codex's programs share."""
    return codex / "app-server-control" / "app-server-control.sock"


def sessions_directory(codex: Path) -> Path:
    """Return the directory that holds a file for each thread, below its year, month and day."""
    return codex / "sessions"


def thread_names(codex: Path) -> Path:
    """Return the file to which the names of threads are appended."""
    return codex / "session_index.jsonl"


def prompt_history(codex: Path) -> Path:
    """Return the file to which every prompt is appended, whatever the thread."""
    return codex / "history.jsonl"


def is_rollout(name: str) -> bool:
    """Whether a file of this name holds what happened in a thread."""
    return name.startswith("rollout-") and name.endswith(_SUFFIX)


def thread_of_rollout(name: str) -> str:
    """Return the id of the thread by the name of its file; empty if that does not tell."""
    found = _ROLLOUT.fullmatch(name.removesuffix(_SUFFIX))
    return found["thread"] if found is not None else ""
