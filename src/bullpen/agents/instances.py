"""The wrappers on this machine, as they are known without a daemon: one file each, by name.

It says which process a wrapper is (its id and its start, which together are never another's) and
where its socket is. A file whose process is gone is not believed.
"""

import contextlib
import hashlib
import itertools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec

from bullpen.agents.processes import is_running
from bullpen.api.errors import SocketPathError
from bullpen.api.files import locked, write_private
from bullpen.api.runtime import make_private
from bullpen.connection.transports.socket import MAX_UNIX_PATH_BYTES

__all__ = ["Instance", "Instances"]

MAX_BYTES = 2**16
LOCK = ".lock"


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """A wrapper, and the agent in it."""

    name: str
    profile: str
    pid: int
    """Of the wrapper."""
    start: str
    """Of that process, as the system counts it."""
    socket: str = ""
    """Where it can be attached to."""
    agent_id: str = ""
    """In the registry."""
    port: int | None = None
    cwd: str = ""
    log: str = ""
    """Where the agent's output is kept."""
    is_detached: bool = False

    @property
    def is_running(self) -> bool:
        """Whether that very process is there."""
        return is_running(self.pid, self.start)


class Instances:
    """The wrappers of one daemon's directory. Every method reads or writes files."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def claim(
        self, wanted: Instance, *, logs: Path | None = None
    ) -> tuple[Instance, Instance | None]:
        """Make a wrapper known; return how, and the dead one whose name it took.

        If a living one has its name, a number is put behind it. By the name it gets a socket, if
        it has none yet, and a log in a directory, if one is given.

        Raises:
            DirectoryError: our directory cannot be used.
            OSError: the file cannot be written.
        """
        make_private(self.directory)
        with locked(self.directory / LOCK):
            name = next(each for each in _names(wanted.name) if self._may_have(each, wanted))
            found = self.read(name)
            made = msgspec.structs.replace(
                wanted,
                name=name,
                socket=wanted.socket or str(self._socket(name)),
                log=wanted.log or (str(logs / f"{name}.log") if logs is not None else ""),
            )
            self.write(made)
        return made, found if found is not None and found.pid != wanted.pid else None

    def _may_have(self, name: str, wanted: Instance) -> bool:
        # A name is one of files, too, in which some systems know no upper case.
        others = [each for each in self.all() if each.name.lower() == name.lower()]
        return all(each.pid == wanted.pid or not each.is_running for each in others)

    def _socket(self, name: str) -> Path:
        path = self.directory / f"{name}.sock"
        if len(os.fsencode(path)) <= MAX_UNIX_PATH_BYTES:
            return path
        return self.directory / f"{hashlib.sha256(name.encode()).hexdigest()[:12]}.sock"

    def check_room(self) -> None:
        """Refuse a directory so deep that nobody could be attached to there.

        Raises:
            SocketPathError: no socket can be made in it.
        """
        shortest = self._socket("x" * MAX_UNIX_PATH_BYTES)
        if (length := len(os.fsencode(shortest))) > MAX_UNIX_PATH_BYTES:
            raise SocketPathError(shortest, length, MAX_UNIX_PATH_BYTES)

    def write(self, instance: Instance) -> None:
        """Make a wrapper known, in the place of any other of its name.

        Raises:
            DirectoryError: our directory cannot be used.
            OSError: the file cannot be written.
        """
        make_private(self.directory)
        write_private(self._path(instance.name), msgspec.json.encode(instance))

    def remove(self, instance: Instance) -> None:
        """Forget a wrapper, unless another has taken its name."""
        found = self.read(instance.name)
        if found is not None and (found.pid, found.start) == (instance.pid, instance.start):
            self._path(instance.name).unlink(missing_ok=True)

    def read(self, name: str) -> Instance | None:
        """Return what the file of a name says, whether its process runs or not."""
        return _decode(self._path(name)) if name and "/" not in name and name[0] != "." else None

    def find(self, name: str) -> Instance | None:
        """Return the wrapper of that name that runs."""
        found = self.read(name)
        return found if found is not None and found.is_running else None

    def all(self) -> tuple[Instance, ...]:
        """Return what every file says, whether its process runs or not."""
        found = [_decode(path) for path in sorted(self.directory.glob("*.json"))]
        return tuple(each for each in found if each is not None)

    def running(self) -> tuple[Instance, ...]:
        """Return the wrappers that run."""
        return tuple(each for each in self.all() if each.is_running)

    def dead(self) -> tuple[Instance, ...]:
        """Return the wrappers that ended without a word."""
        return tuple(each for each in self.all() if not each.is_running)

    def clean(self) -> tuple[Instance, ...]:
        """Forget the wrappers that ended without a word, and their sockets; return them.

        Raises:
            OSError: something cannot be removed.
        """
        if not self.dead():
            return ()
        with locked(self.directory / LOCK):  # so that nobody takes a name of theirs meanwhile
            gone = self.dead()
            for each in gone:
                self.bury(each)
        return gone

    def bury(self, instance: Instance) -> None:
        """Take away what a wrapper that is dead has left here: its file, socket and directory."""
        self.remove(instance)
        if instance.socket and Path(instance.socket).parent == self.directory:
            with contextlib.suppress(OSError):
                Path(instance.socket).unlink()
        shutil.rmtree(self.run_directory(instance.name), ignore_errors=True)

    def run_directory(self, name: str) -> Path:
        """Where the program of a wrapper without a daemon has what it is given for its run."""
        return self.directory / f"{name}.run"

    def _path(self, name: str) -> Path:
        return self.directory / f"{name}.json"


def _names(wanted: str) -> Iterator[str]:
    yield wanted
    for number in itertools.count(2):
        yield f"{wanted}-{number}"


def _decode(path: Path) -> Instance | None:
    try:
        with path.open("rb") as file:
            found = msgspec.json.decode(file.read(MAX_BYTES), type=Instance)
    except (OSError, ValueError, RecursionError):
        return None
    return found if found.name == path.stem else None
