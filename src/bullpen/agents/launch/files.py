"""Files for one run, in its own directory: for nobody but the user, whole or not at all."""

import json
from pathlib import Path
from typing import Any

from bullpen.agents.hooks import files
from bullpen.api.runtime import make_private

__all__ = ["write", "write_json"]


def write(path: Path, text: str) -> Path:
    """Write a file and return its path.

    Raises:
        DirectoryError: its directory cannot be made, or others could tamper with it.
        SettingsError: it cannot be written.
    """
    make_private(path.parent)
    files.replace(path, text, before=files.read(path))
    return path


def write_json(path: Path, value: Any) -> Path:
    """Write a value as JSON and return the file's path.

    The errors are those of `write`.
    """
    return write(path, json.dumps(value, indent=2) + "\n")
