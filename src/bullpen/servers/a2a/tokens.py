"""The tokens that were given out: a file each, which only the user can read.

    {"token": "…", "scopes": ["read", "send"]}

The name of the file, without `.json`, is the name of who was given it. A file that others could
read is worth nothing. Looked at anew for each who shows one, so that a file that is removed opens
nothing any more.
"""

import hashlib
import hmac
import logging
import os
import re
import stat
from pathlib import Path

import msgspec

from bullpen.servers.a2a.room import PEER, Caller, Scope

__all__ = ["Tokens"]

logger = logging.getLogger("bullpen.a2a")

SHARED = 0o077  # what nobody but the owner may have
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
SHORTEST = 16
MOST_BYTES = 4096


class _File(msgspec.Struct):
    token: str
    scopes: frozenset[Scope] = frozenset({Scope.READ, Scope.SEND})


class Tokens:
    """The tokens in a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def find(self, shown: str) -> Caller | None:
        """Return whose token it is. Reads files."""
        wanted = hashlib.sha256(shown.encode(errors="replace")).digest()
        found = None
        for name, file in self._read():
            own = hashlib.sha256(file.token.encode(errors="replace")).digest()
            if hmac.compare_digest(own, wanted):  # all are compared, so that time tells nothing
                found = Caller(name=f"{PEER}:{name}", scopes=file.scopes)
        return found

    @property
    def is_empty(self) -> bool:
        """Whether there is none that opens anything."""
        return not self._read()

    def _read(self) -> list[tuple[str, _File]]:
        try:
            paths = sorted(self._directory.glob("*.json"))
        except OSError:
            return []
        found = ((path.stem, _read_file(path)) for path in paths)
        return [(name, file) for name, file in found if file is not None]


def _read_file(path: Path) -> _File | None:
    if NAME.fullmatch(path.stem) is None:
        logger.warning("the token %s has no name that can be used", path.name)
        return None
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        logger.warning("the token %s cannot be read: %s", path.stem, error.strerror)
        return None
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.getuid():
            logger.warning("the token %s is not yours", path.stem)
            return None
        if status.st_mode & SHARED:
            logger.warning("the token %s could be read by others: `chmod 600` it", path.stem)
            return None
        data = file.read(MOST_BYTES)
    try:
        read = msgspec.json.decode(data, type=_File)
    except (msgspec.DecodeError, ValueError, RecursionError):
        logger.warning("the token %s is not written as one", path.stem)
        return None
    if len(read.token) < SHORTEST:
        logger.warning("the token %s is too short to be one", path.stem)
        return None
    return read
