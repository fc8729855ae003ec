"""The parts of a message in both dialects: what came in one is shown in the other.

    as_seed([{"url": "https://example.com/a.png", "filename": "a.png"}])
    as_a2a([{"type": "data", "data": {"key": 1}}])

They are kept as they came. The seed's say what they are in `type`, A2A's by which field they have.
What has no word in the other dialect becomes data. It decides, and does nothing.
"""

from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["as_a2a", "as_seed"]

Part = Mapping[str, Any]

_FILE = {"name": "filename", "mimeType": "mediaType"}
"""What is said of a file, by the seed and by A2A."""


def as_seed(parts: Iterable[Part]) -> list[dict[str, Any]]:
    """Return parts as the seed has them."""
    return [dict(each) if "type" in each else _seed(each) for each in parts]


def as_a2a(parts: Iterable[Part]) -> list[dict[str, Any]]:
    """Return parts as A2A has them."""
    return [_a2a(each) if "type" in each else dict(each) for each in parts]


def _seed(part: Part) -> dict[str, Any]:
    if isinstance(part.get("text"), str):
        return {"type": "text", "text": part["text"]}
    said = {name: part[theirs] for name, theirs in _FILE.items() if part.get(theirs)}
    if "url" in part:
        return {"type": "file", "file": {"uri": part["url"], **said}}
    if "raw" in part:
        return {"type": "file", "file": {"bytes": part["raw"], **said}}
    data = part.get("data")
    return {"type": "data", "data": data if isinstance(data, dict) else {"value": data}}


def _a2a(part: Part) -> dict[str, Any]:
    if part["type"] == "text":
        return {"text": part.get("text", "")}
    if part["type"] == "file" and isinstance(file := part.get("file"), dict):
        said = {theirs: file[name] for name, theirs in _FILE.items() if _is_text(file.get(name))}
        if _is_text(uri := file.get("uri")):
            return {"url": uri, **said}
        return {"data": file, **said}  # its bytes may be anything; nobody has looked at them
    return {"data": part.get("data")}


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)
