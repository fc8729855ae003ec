"""The agents on this machine, as files that Synapse and others read and write, too.

There is one file per agent in `~/.a2a/registry/`, with exactly the seven fields that were agreed
on; what only we need to know is in `instances`. Files are replaced whole, and changed under the
lock that Synapse takes as well. An entry is believed as long as its process runs: whoever reads
passes over the others, and whoever wrote one removes it, or else `bullpen doctor --clean`.
"""

import hashlib
import os
import socket
import zlib
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import msgspec

from bullpen.agents.a2a_files import hold, read_fields, write_fields
from bullpen.agents.instances import Instance, Instances
from bullpen.agents.processes import is_running
from bullpen.errors import BullpenError

__all__ = [
    "STARTING",
    "AgentEntry",
    "AgentRegistry",
    "PortTakenError",
    "RegistryError",
    "default_directory",
]

STARTING = "STARTING"
"""The status of an agent that has only just put itself there."""

DIRECTORY_VARIABLE = "SYNAPSE_REGISTRY_DIR"  # for those who have told Synapse to look elsewhere
LOCK = ".registry.lock"  # Synapse's name for it
MAX_BYTES = 2**16

# Between the ports of our profiles: those of agents that have none, or share one with another.
SHARED_PORTS = range(8105, 8199)


class RegistryError(BullpenError):
    """The registry cannot be used. The agent runs all the same; others do not find it there."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"cannot use the registry {path}: {reason}")
        self.path = path
        self.reason = reason


class PortTakenError(RegistryError):
    """A port is somebody else's. Without one, a free one is chosen."""

    def __init__(self, path: Path, port: int, owner: str) -> None:
        super().__init__(path, f"port {port} is taken{owner}; choose another, or none")
        self.args = (self.reason,)  # with the registry itself there is nothing wrong
        self.port = port


class AgentEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An agent as everybody may know it."""

    agent_id: str
    agent_type: str
    port: int
    status: str
    pid: int
    working_dir: str
    endpoint: str


def default_directory(environment: Mapping[str, str] | None = None) -> Path:
    """Where the registry is: `~/.a2a/registry`, unless Synapse was told otherwise."""
    environment = os.environ if environment is None else environment
    given = environment.get(DIRECTORY_VARIABLE)
    return Path(given).expanduser() if given else Path.home() / ".a2a" / "registry"


class AgentRegistry:
    """The agents on this machine. Every method reads or writes files, and may wait for a lock."""

    def __init__(
        self,
        directory: Path | None = None,
        hostname: str | None = None,
        *,
        instances: Instances | None = None,
    ) -> None:
        self.directory = default_directory() if directory is None else directory
        self.hostname = socket.gethostname() if hostname is None else hostname
        self._instances = instances

    def get_agent_id(self, agent_type: str, working_dir: str | Path) -> str:
        """Return what an agent of a type in a directory is called here."""
        place = os.path.abspath(working_dir)  # noqa: PTH100 - links in it are left alone
        return hashlib.sha256(f"{self.hostname}|{place}|{agent_type}".encode()).hexdigest()

    # ----------------------------------------------------------------------------- for an owner

    def register(
        self,
        agent_id: str,
        agent_type: str,
        port: int | None,
        status: str = STARTING,
        *,
        pid: int | None = None,
        working_dir: str | Path | None = None,
        may_move: bool = False,
    ) -> AgentEntry:
        """Enter an agent, and return the entry as it was made.

        A living one is never overwritten: if there is one of that id, the new one gets a longer
        id. Without a port, or if it is taken and `may_move`, a free one is chosen.

        Raises:
            PortTakenError: it is taken, and may not move.
            RegistryError: nothing can be written there.
        """
        pid = os.getpid() if pid is None else pid
        with self._locked():
            port = self._port(agent_type, port, pid, may_move=may_move)
            entry = AgentEntry(
                agent_id=self._free_id(agent_id, f"{agent_type}-{port}", pid),
                agent_type=agent_type,
                port=port,
                status=status,
                pid=pid,
                working_dir=os.path.abspath(working_dir or "."),  # noqa: PTH100
                endpoint=f"http://localhost:{port}",
            )
            self._write(entry)
        return entry

    def update_status(self, agent_id: str, status: str, *, pid: int | None = None) -> bool:
        """Say what an agent is doing; return whether it is entered, and ours.

        Raises:
            RegistryError: nothing can be written there.
        """
        with self._locked():
            entry = self._read(agent_id)
            if entry is None or entry.pid != (os.getpid() if pid is None else pid):
                return False
            if entry.status != status:
                self._write(msgspec.structs.replace(entry, status=status))
        return True

    def restore(self, entry: AgentEntry) -> bool:
        """Put back an entry of ours that somebody else has removed; return whether it is there.

        Raises:
            RegistryError: nothing can be written there.
        """
        with self._locked():
            if self._free_id(entry.agent_id, "", entry.pid) != entry.agent_id:
                return False
            self._write(entry)
        return True

    def unregister(self, agent_id: str, *, pid: int | None = None) -> bool:
        """Remove an agent that is ours; return whether there was one.

        Raises:
            RegistryError: nothing can be removed there.
        """
        with self._locked():
            entry = self._read(agent_id)
            if entry is None or entry.pid != (os.getpid() if pid is None else pid):
                return False
            self._remove(agent_id)
        return True

    # --------------------------------------------------------------------------- for everybody

    def check_port(self, port: int) -> None:
        """See that a port can be an agent's.

        Raises:
            PortTakenError: it is somebody else's.
        """
        self._port("", port, os.getpid(), may_move=False)

    def list_agents(self) -> dict[str, dict[str, Any]]:
        """Return the agents that run, by their ids, with all that their files say."""
        known = self._known()
        return {each: fields for each, fields in self._all().items() if _is_living(fields, known)}

    def entries(self) -> tuple[AgentEntry, ...]:
        """Return the agents that run."""
        return tuple(self._living().values())

    def dead(self) -> tuple[str, ...]:
        """Return the ids of those whose process is gone."""
        known = self._known()
        return tuple(each for each, fields in self._all().items() if not _is_living(fields, known))

    def clean(self) -> tuple[str, ...]:
        """Remove the entries of those whose process is gone; return their ids.

        Raises:
            RegistryError: nothing can be removed there.
        """
        if not self.dead():
            return ()
        with self._locked():
            gone = self.dead()
            for each in gone:
                self._remove(each)
        return gone

    # ----------------------------------------------------------------------------------- files

    def _all(self) -> dict[str, dict[str, Any]]:
        found = {}
        for path in sorted(self.directory.glob("*.json")):
            fields = _fields(path)
            if fields is not None:
                found[path.stem] = fields
        return found

    def _read(self, agent_id: str) -> AgentEntry | None:
        fields = _fields(self.directory / f"{agent_id}.json")
        return _entry(fields) if fields is not None else None

    def _living(self) -> dict[str, AgentEntry]:
        entries = {agent_id: _entry(fields) for agent_id, fields in self.list_agents().items()}
        return {agent_id: each for agent_id, each in entries.items() if each is not None}

    def _known(self) -> dict[str, Instance]:
        """Return what we know of ours beyond their entries."""
        instances = self._instances.all() if self._instances is not None else ()
        return {each.agent_id: each for each in instances}

    def _port(self, agent_type: str, wanted: int | None, pid: int, *, may_move: bool) -> int:
        living = self._living().values()
        taken = {each.port: each for each in living if each.pid != pid}
        is_ours = any(each.port == wanted and each.pid == pid for each in living)
        if wanted is not None and (is_ours or (wanted not in taken and _is_free(wanted))):
            return wanted
        if wanted is not None and not may_move:
            owner = taken.get(wanted)
            by = f" by {owner.agent_type} (pid {owner.pid})" if owner is not None else ""
            raise PortTakenError(self.directory, wanted, by)
        return _choose_port(agent_type, taken)

    def _free_id(self, agent_id: str, instance: str, pid: int) -> str:
        tried, count, known = agent_id, 1, self._known()
        while True:
            fields = _fields(self.directory / f"{tried}.json")
            if fields is None or fields.get("pid") == pid or not _is_living(fields, known):
                return tried
            tried = f"{agent_id}-{instance}" + (f"-{count}" if count > 1 else "")
            count += 1

    def _write(self, entry: AgentEntry) -> None:
        path = self.directory / f"{entry.agent_id}.json"
        try:
            write_fields(path, entry)
        except OSError as error:
            raise self._trouble(error) from error

    def _remove(self, agent_id: str) -> None:
        try:
            (self.directory / f"{agent_id}.json").unlink(missing_ok=True)
        except OSError as error:
            raise self._trouble(error) from error

    def _locked(self) -> AbstractContextManager[None]:
        return hold(self.directory, LOCK, self._trouble)

    def _trouble(self, error: OSError) -> RegistryError:
        return RegistryError(self.directory, error.strerror or str(error))


def _fields(path: Path) -> dict[str, Any] | None:
    """Return what a file says; None if there is none, or it is not what it should be."""
    try:
        fields = msgspec.json.decode(read_fields(path, MAX_BYTES + 1), type=dict[str, Any])
    except (OSError, ValueError, RecursionError):
        return None
    return fields if fields.get("agent_id") == path.stem else None


def _is_living(fields: Mapping[str, Any], known: Mapping[str, Instance]) -> bool:
    """Whether the process of an entry runs.

    Of ours it is known when that started; of others there is only its id.
    """
    pid, ours = fields.get("pid"), known.get(fields["agent_id"])
    if not isinstance(pid, int):
        return False
    return is_running(pid, ours.start if ours is not None and ours.pid == pid else "")


def _entry(fields: Mapping[str, Any]) -> AgentEntry | None:
    try:
        return msgspec.convert(fields, AgentEntry)
    except msgspec.ValidationError:  # older or newer than what we know
        return None


def _choose_port(agent_type: str, taken: Collection[int]) -> int:
    """Return a port nobody has, the same one each time as far as possible."""
    begin = zlib.crc32(agent_type.encode())
    for step in range(len(SHARED_PORTS)):
        port: int = SHARED_PORTS[(begin + step) % len(SHARED_PORTS)]
        if port not in taken and _is_free(port):
            return port
    with socket.socket() as any_port:
        any_port.bind(("127.0.0.1", 0))
        return int(any_port.getsockname()[1])


def _is_free(port: int) -> bool:
    """Whether nobody serves it. It may be taken a moment later: who serves it has to look again."""
    with socket.socket() as probe:
        # As who serves it does: connections that have just ended keep nobody from it.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
