"""The tokens that were given out: a file each, which only the user can read.

    {"sha256": "…", "scopes": ["read", "send"]}

The name of the file, without `.json`, is the name of who was given it. What is kept is what tells
the token, and not the token; a file that somebody wrote by hand may have the `token` itself. A file
that others could read is worth nothing. Looked at anew for each who shows one, so that a new one
opens at once, and one whose file is removed opens nothing any more.
"""

import contextlib
import hashlib
import hmac
import logging
import os
import re
import secrets
import stat
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from bullpen.api.runtime import make_private
from bullpen.errors import BullpenError
from bullpen.servers.a2a.room import PEER, Caller, Scope

__all__ = ["Given", "TokenError", "Tokens"]

logger = logging.getLogger("bullpen.a2a")

SHARED = 0o077  # what nobody but the owner may have
PRIVATE = 0o600
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
SHORTEST = 16
SECRET_BYTES = 32
PREFIX = "bullpen_"  # so that one that is found somewhere is known for what it is
MOST_BYTES = 4096


class TokenError(BullpenError):
    """A token cannot be given. Nothing was changed."""


class _File(msgspec.Struct, omit_defaults=True):
    token: str = ""
    sha256: str = ""
    scopes: frozenset[Scope] = frozenset({Scope.READ, Scope.SEND})
    given_at: str = ""

    @property
    def digest(self) -> str:
        return self.sha256 or _digest(self.token)


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """A token that was given out, without what it is."""

    name: str
    caller: str
    """What who shows it is called."""
    scopes: tuple[Scope, ...] = ()
    given_at: str = ""
    problem: str = ""
    """Why it opens nothing, if it does not."""


class Tokens:
    """The tokens in a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def find(self, shown: str) -> Caller | None:
        """Return whose token it is. Reads files."""
        wanted = _digest(shown)
        found = None
        for name, file in self._read():
            if isinstance(file, str):
                logger.warning("the token %s %s", name, file)
            elif hmac.compare_digest(file.digest, wanted):  # all are, so that time tells nothing
                found = Caller(name=f"{PEER}:{name}", scopes=file.scopes)
        return found

    @property
    def is_empty(self) -> bool:
        """Whether there is none that opens anything."""
        return all(isinstance(file, str) for _, file in self._read())

    def all(self) -> list[Given]:
        """Return what was given to whom, by name."""
        return [_given(name, file) for name, file in self._read()]

    def add(self, name: str, scopes: Iterable[Scope]) -> str:
        """Give somebody a token; return it, for it is nowhere else.

        Raises:
            TokenError: the name cannot be one, or somebody has it.
            DirectoryError: it cannot be kept where nobody else can read it.
        """
        if NAME.fullmatch(name) is None:
            raise TokenError(
                f"{name!r} cannot be the name of a token: letters, digits, '.', '_' and '-', "
                "up to 40 and beginning with a letter or digit"
            )
        secret = PREFIX + secrets.token_urlsafe(SECRET_BYTES)
        at = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        file = _File(sha256=_digest(secret), scopes=frozenset(scopes), given_at=at)
        make_private(self._directory)
        try:
            _write_new(self._path(name), msgspec.json.encode(file, order="deterministic") + b"\n")
        except FileExistsError:
            raise TokenError(f"there is a token {name} already; remove it first") from None
        return secret

    def remove(self, name: str) -> bool:
        """Have a token open nothing any more; return whether there was one."""
        if NAME.fullmatch(name) is None:
            return False
        try:
            self._path(name).unlink()
        except FileNotFoundError:
            return False
        return True

    def _path(self, name: str) -> Path:
        return self._directory / f"{name}.json"

    def _read(self) -> list[tuple[str, _File | str]]:
        """Return each token by its name, or what is wrong with it."""
        try:
            paths = sorted(self._directory.glob("*.json"))
        except OSError:
            return []
        return [(path.stem, _read_file(path)) for path in paths]


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()


def _given(name: str, file: _File | str) -> Given:
    caller = f"{PEER}:{name}"
    if isinstance(file, str):
        return Given(name=name, caller=caller, problem=file)
    scopes = tuple(each for each in Scope if each in file.scopes)
    return Given(name=name, caller=caller, scopes=scopes, given_at=file.given_at)


def _read_file(path: Path) -> _File | str:
    if NAME.fullmatch(path.stem) is None:
        return "has no name that can be used"
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.getuid():
            return "is not yours"
        if status.st_mode & SHARED:
            return "could be read by others: `chmod 600` it"
        data = file.read(MOST_BYTES)
    try:
        read = msgspec.json.decode(data, type=_File)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return "is not written as one"
    if read.sha256:
        is_digest = re.fullmatch("[0-9a-f]{64}", read.sha256) is not None
        return read if is_digest and not read.token else "is not written as one"
    return read if len(read.token) >= SHORTEST else "is too short to be one"


def _write_new(path: Path, data: bytes) -> None:
    """Write a file that is not there yet, whole or not at all."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(temporary, flags, PRIVATE), "wb") as file:
            file.write(data)
        path.hardlink_to(temporary)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
