"""Where our files are, and that their directories are ours alone.

The directories hold what agents were told and the socket that says so, so they are made with mode
0700 and trusted only as long as nobody else could have put something there. A directory that is
not ours is never made private by us: it may be `/tmp`.
"""

import os
import stat
from collections.abc import Mapping
from itertools import takewhile
from pathlib import Path

import msgspec

from bullpen.api import locations
from bullpen.api.errors import DirectoryError, SocketPathError
from bullpen.connection.transports.socket import MAX_UNIX_PATH_BYTES

__all__ = ["Paths", "make_private", "prepare"]

PRIVATE = 0o700
SHARED = 0o077  # what nobody but the owner may have
WRITABLE_BY_OTHERS = 0o022


class Paths(msgspec.Struct, frozen=True, kw_only=True):
    """Where everything of one daemon is. Whoever resolves them alike speaks to the same one."""

    socket: Path
    state_directory: Path
    config_directory: Path
    is_socket_given: bool = False
    """Somebody named the socket, which is then in a directory that need not be ours."""

    @classmethod
    def resolve(
        cls,
        environment: Mapping[str, str] | None = None,
        *,
        socket: str | os.PathLike[str] | None = None,
        user_id: int | None = None,
    ) -> "Paths":
        """Return the paths by the environment (this process's own), with the socket given here."""
        environment = os.environ if environment is None else environment
        user_id = os.getuid() if user_id is None else user_id
        given = os.fspath(socket) if socket else environment.get(locations.SOCKET_VARIABLE)
        chosen = given or locations.socket_path(environment, user_id)
        return cls(
            socket=Path(locations.absolute(chosen)),
            state_directory=Path(locations.state_directory(environment, user_id)),
            config_directory=Path(locations.config_directory(environment, user_id)),
            is_socket_given=bool(given),
        )

    @property
    def lock(self) -> Path:
        """Held by the one daemon that may serve the socket."""
        return self._beside("lock")

    @property
    def start_lock(self) -> Path:
        """Held by whoever is starting a daemon."""
        return self._beside("start")

    @property
    def sources(self) -> Path:
        """The directory of the sockets of sources that have a process of their own."""
        return self._beside("sources")

    @property
    def mcp_socket(self) -> Path:
        """Where MCP is served."""
        return Path(locations.mcp_socket_path(str(self.socket)))

    @property
    def mcp_port(self) -> Path:
        """The file that says at which port MCP is served over HTTP, if it is."""
        return self._beside("mcp-port")

    @property
    def mcp_token(self) -> Path:
        """The file with what opens that port to the user."""
        return self.state_directory / "mcp.token"

    @property
    def a2a_socket(self) -> Path:
        """Where wrappers hand over their agents' ports to have A2A served there."""
        return self._beside("a2a")

    @property
    def a2a_port(self) -> Path:
        """The file that says at which port A2A is served for all agents."""
        return self._beside("a2a-port")

    @property
    def a2a_grpc(self) -> Path:
        """Where the server of gRPC listens, for who holds the ports of agents."""
        return self._beside("grpc")

    @property
    def a2a_tokens(self) -> Path:
        """The directory of what opens A2A to those it was given to: a file each."""
        return self.state_directory / "a2a-tokens"

    @property
    def state_db(self) -> Path:
        """What we know."""
        return self.state_directory / "state.db"

    @property
    def state_lock(self) -> Path:
        """Held by the one daemon that may write the state."""
        return self.state_directory / "state.lock"

    @property
    def log(self) -> Path:
        """What went on."""
        return self.state_directory / "bullpen.log"

    @property
    def spool(self) -> Path:
        """The directory where hooks leave what nobody took."""
        return self.state_directory / "spool"

    @property
    def config(self) -> Path:
        """The user's settings, if there are any."""
        return self.config_directory / "config.toml"

    @property
    def rules(self) -> Path:
        """The directory of the user's screen rules, if there are any."""
        return self.config_directory / "rules"

    @property
    def policy(self) -> Path:
        """The file of who may write to whom, if there is one."""
        return self.config_directory / "policy.toml"

    @property
    def profiles(self) -> Path:
        """The directory of the user's profiles, if there are any."""
        return self.config_directory / "profiles"

    @property
    def agents(self) -> Path:
        """The directory where wrappers are found: a file and a socket each."""
        return self._beside("agents")

    @property
    def agent_logs(self) -> Path:
        """The directory of what wrapped agents wrote."""
        return self.state_directory / "logs"

    @property
    def arguments(self) -> tuple[str, ...]:
        """What tells a program in the same environment to use these."""
        return ("--socket-path", str(self.socket)) if self.is_socket_given else ()

    def source_socket(self, name: str) -> Path:
        """Where a source with a process of its own serves."""
        return self.sources / f"{name}.sock"

    def _beside(self, suffix: str) -> Path:
        # By the name, so that two sockets in one directory are two daemons.
        return self.socket.with_name(f"{self.socket.name.removesuffix('.sock')}.{suffix}")


def prepare(paths: Paths) -> None:
    """Make our directories where they are missing, and refuse those that are not ours alone.

    Raises:
        SocketPathError: no socket can be made at such a path.
        DirectoryError: a directory cannot be made, or others could tamper with it.
    """
    length = len(os.fsencode(paths.socket))
    if length > MAX_UNIX_PATH_BYTES:
        raise SocketPathError(paths.socket, length, MAX_UNIX_PATH_BYTES)
    if paths.is_socket_given:
        _use_given(paths.socket.parent)
    else:
        _use_parent(paths.socket.parent.parent)
        make_private(paths.socket.parent)
    for directory in (paths.state_directory, paths.spool):
        make_private(directory)


def make_private(directory: Path) -> None:
    """Make a directory of ours, or see that the one there is nobody else's.

    Raises:
        DirectoryError: it cannot be made, or others could tamper with it.
    """
    _make_missing(directory)
    found = directory.lstat()
    if stat.S_ISLNK(found.st_mode):
        raise DirectoryError(directory, "it is a symbolic link")
    if not stat.S_ISDIR(found.st_mode):
        raise DirectoryError(directory, "it is not a directory")
    if found.st_uid != os.getuid():
        raise DirectoryError(
            directory, f"it belongs to user {found.st_uid}, and we are {os.getuid()}"
        )
    if found.st_mode & SHARED:
        raise DirectoryError(
            directory,
            f"others may use it (mode {_octal(found.st_mode)}); make it yours with "
            f"`chmod 700 {directory}`",
        )


def _use_parent(directory: Path) -> None:
    """Refuse to make our directory in somebody else's, as of whom `sudo` was called by."""
    owner = _look(_make_missing(directory)).st_uid
    mode = _look(directory).st_mode
    if owner != os.getuid() and not (owner == 0 and mode & stat.S_ISVTX):
        raise DirectoryError(
            directory,
            f"it belongs to user {owner}, and we are {os.getuid()}; if that is what "
            "XDG_RUNTIME_DIR names, unset it",
        )


def _use_given(directory: Path) -> None:
    """Take the directory of a socket that somebody named, unless others could replace it there."""
    found = _look(_make_missing(directory))
    if found.st_uid not in (0, os.getuid()):
        raise DirectoryError(directory, f"it belongs to user {found.st_uid}")
    if found.st_mode & WRITABLE_BY_OTHERS and not found.st_mode & stat.S_ISVTX:
        raise DirectoryError(directory, f"others may write there (mode {_octal(found.st_mode)})")


def _make_missing(directory: Path) -> Path:
    """Make a directory and those above it, each for us alone; what is there stays as it is."""
    missing = takewhile(lambda each: not os.path.lexists(each), (directory, *directory.parents))
    for each in reversed(list(missing)):
        try:
            each.mkdir(PRIVATE)
            each.chmod(PRIVATE)  # an odd umask may have taken something from us
        except FileExistsError:
            continue  # somebody else was faster
        except OSError as error:
            raise DirectoryError(each, f"it cannot be made: {error.strerror}") from error
    return directory


def _look(directory: Path) -> os.stat_result:
    try:
        found = directory.stat()
    except OSError as error:
        raise DirectoryError(directory, error.strerror or str(error)) from error
    if not stat.S_ISDIR(found.st_mode):
        raise DirectoryError(directory, "it is not a directory")
    return found


def _octal(mode: int) -> str:
    return f"{stat.S_IMODE(mode):04o}"
