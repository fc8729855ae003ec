"""Where Claude Code keeps its files."""

import re
from collections.abc import Mapping
from pathlib import PurePath, PurePosixPath
from typing import TypeVar

__all__ = ["config_directory", "is_session_id", "project_name", "transcript_path"]

LONGEST_PROJECT_NAME = 200
_SESSION_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"

AnyPath = TypeVar("AnyPath", bound=PurePath)


def config_directory(environ: Mapping[str, str], home: str) -> PurePosixPath:
    """Return the directory with its settings, `sessions/` and `projects/`."""
    return PurePosixPath(environ.get("CLAUDE_CONFIG_DIR") or f"{home}/.claude")


def transcript_path(config: AnyPath, cwd: str, session_id: str) -> AnyPath:
    """Return where the record of a session is that began in a directory."""
    return config / "projects" / project_name(cwd) / f"{session_id}.jsonl"


def project_name(cwd: str) -> str:
    """Return what the program calls a directory: a dash for all that is no letter or digit.

    It counts in UTF-16, so that an emoji becomes two dashes, and ends a long name with a checksum.
    """
    units = _utf16_units(cwd)
    name = "".join(chr(unit) if _is_plain(unit) else "-" for unit in units)
    if len(name) <= LONGEST_PROJECT_NAME:
        return name
    checksum = 0
    for unit in units:
        checksum = (checksum * 31 + unit) & 0xFFFFFFFF
    magnitude = min(checksum, 2**32 - checksum)  # as a signed number, without its sign
    return f"{name[:LONGEST_PROJECT_NAME]}-{_base36(magnitude)}"


def is_session_id(text: str) -> bool:
    """Whether it is one: the records of subagents beside those of sessions have other names."""
    return _SESSION_ID.fullmatch(text) is not None


def _utf16_units(text: str) -> list[int]:
    data = text.encode("utf-16-le", "surrogatepass")
    return [data[index] | data[index + 1] << 8 for index in range(0, len(data), 2)]


def _is_plain(unit: int) -> bool:
    return unit < 128 and chr(unit).isalnum()


def _base36(number: int) -> str:
    digits = ""
    while True:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
        if not number:
            return digits
