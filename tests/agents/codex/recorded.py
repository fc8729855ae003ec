"""What the real program (Codex 0.166.0) wrote and said, trimmed."""

import json
from pathlib import Path
from typing import Any

DIRECTORY = Path(__file__).parents[2] / "recordings" / "codex"
TERMINAL = "01a1df88-2bd0-7fe2-9f47-6b57f59c49ea"
SUBAGENT = "01a1df8b-e5a9-7110-9d21-0d26e93af23e"
PARENT = "01a1df8b-e4fa-79e0-ad86-23e11f1734a7"


def rollout(thread_id: str) -> Path:
    """Return the session file of a thread."""
    [path] = DIRECTORY.glob(f"rollout-*-{thread_id}.jsonl")
    return path


def lines(name: str) -> list[bytes]:
    """Return the lines of a recording."""
    return (DIRECTORY / name).read_bytes().splitlines()


def objects(name: str) -> list[dict[str, Any]]:
    """Return the JSON objects of a recording, one per line."""
    return [json.loads(line) for line in lines(name)]


def hooks(name: str) -> dict[str, list[dict[str, Any]]]:
    """Return the hooks that were called, by what was being done."""
    parts: dict[str, list[dict[str, Any]]] = {"": []}
    for entry in objects(name):
        if "mark" in entry:
            parts[entry["mark"]] = []
        else:
            parts[list(parts)[-1]].append(entry["hook"])
    return parts
