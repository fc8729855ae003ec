"""Writing the programs' configuration files: atomically, for the owner only.

A program rewrites its own files, and a test may add to them. So a setting is merged into what is
there: what the recipe needs is set, the rest is kept.
"""

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bullpen.api import files

__all__ = ["merge_json", "merge_toml", "write_private"]


def write_private(path: Path, text: str) -> None:
    """Replace a file by `text` in one step, mode 0600, in a directory of mode 0700."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    files.write_private(path, text)


def merge_json(path: Path, settings: Mapping[str, Any]) -> None:
    """Set `settings` in a JSON file; lists are united, lines that begin with // are dropped."""
    present: dict[str, Any] = {}
    if path.exists():
        lines = path.read_text("utf-8").splitlines()
        present = json.loads("\n".join(line for line in lines if not line.startswith("//")))
    merged = _merge(present, settings)
    if merged != present:
        write_private(path, json.dumps(merged, indent=2, ensure_ascii=False) + "\n")


def merge_toml(path: Path, settings: Mapping[str, Any]) -> None:
    """Set `settings` in a TOML file; comments are lost."""
    present = tomllib.loads(path.read_text("utf-8")) if path.exists() else {}
    merged = _merge(present, settings)
    if merged != present:
        write_private(path, "\n".join(_toml_lines(merged)) + "\n")


def _merge(present: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(present)
    for key, value in settings.items():
        there = merged.get(key)
        if isinstance(value, Mapping):
            merged[key] = _merge(there if isinstance(there, Mapping) else {}, value)
        elif isinstance(value, list) and isinstance(there, list):
            merged[key] = there + [item for item in value if item not in there]
        else:
            merged[key] = value
    return merged


def _toml_lines(table: Mapping[str, Any], path: tuple[str, ...] = ()) -> list[str]:
    plain = {key: value for key, value in table.items() if not isinstance(value, Mapping)}
    lines = [f"{_toml_key(key)} = {_toml_value(value)}" for key, value in plain.items()]
    if path and (lines or not table):
        lines.insert(0, f"\n[{'.'.join(map(_toml_key, path))}]")
    for key, value in table.items():
        if isinstance(value, Mapping):
            lines += _toml_lines(value, (*path, key))
    return lines


def _toml_key(key: str) -> str:
    return key if re.fullmatch("[A-Za-z0-9_-]+", key) else _toml_value(key)


def _toml_value(value: Any) -> str:
    """JSON's scalars are TOML's; its objects are not."""
    if isinstance(value, Mapping):
        pairs = (f"{_toml_key(key)} = {_toml_value(item)}" for key, item in value.items())
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml_value, value)) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    return str(value)  # dates, which print as TOML writes them
