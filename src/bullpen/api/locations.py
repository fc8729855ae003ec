"""Where our directories are, by the environment alone.

`BULLPEN_HOME` decides over all of them. Else the runtime directory is `$XDG_RUNTIME_DIR/bullpen`,
or `/tmp/bullpen-$UID` if there is none, and the others are where the XDG specification wants them;
it says to ignore a directory that is not absolute. `BULLPEN_SOCKET` names the socket itself.

Every call of `bullpen` pays for what is imported here, so that is next to nothing; `runtime` makes
proper paths of these and sees that they can be trusted.
"""

import os
from collections.abc import Mapping

__all__ = [
    "HOME_VARIABLE",
    "SOCKET_NAME",
    "SOCKET_VARIABLE",
    "absolute",
    "config_directory",
    "home_relative",
    "mcp_socket_path",
    "runtime_directory",
    "socket_path",
    "state_directory",
]

HOME_VARIABLE = "BULLPEN_HOME"
SOCKET_VARIABLE = "BULLPEN_SOCKET"
SOCKET_NAME = "bullpend.sock"


def socket_path(environment: Mapping[str, str], user_id: int) -> str:
    """Where the daemon listens."""
    given = environment.get(SOCKET_VARIABLE)
    if given:
        return absolute(given)
    return f"{runtime_directory(environment, user_id)}/{SOCKET_NAME}"


def mcp_socket_path(socket_path: str) -> str:
    """Where the daemon of a socket serves MCP. It is no longer than the socket's own path."""
    return socket_path.removesuffix(".sock") + ".mcp"


def runtime_directory(environment: Mapping[str, str], user_id: int) -> str:
    """Where sockets and locks are: what a reboot may take away."""
    if home := _bullpen_home(environment):
        return f"{home}/run"
    runtime = _absolute(environment, "XDG_RUNTIME_DIR")
    return f"{runtime}/bullpen" if runtime else f"/tmp/bullpen-{user_id}"  # noqa: S108 - `runtime` checks it


def state_directory(environment: Mapping[str, str], user_id: int) -> str:
    """Where what we know and what we log is."""
    if home := _bullpen_home(environment):
        return f"{home}/state"
    state = _absolute(environment, "XDG_STATE_HOME")
    return f"{state or _home(environment, user_id) + '/.local/state'}/bullpen"


def config_directory(environment: Mapping[str, str], user_id: int) -> str:
    """Where the user's settings are."""
    if home := _bullpen_home(environment):
        return f"{home}/config"
    config = _absolute(environment, "XDG_CONFIG_HOME")
    return f"{config or _home(environment, user_id) + '/.config'}/bullpen"


def absolute(path: str) -> str:
    """Return a path that means the same in another directory; links in it are left alone."""
    if path.startswith("/"):  # without asking where we are, which may block
        return path
    return os.path.abspath(path)  # noqa: PTH100 - pathlib is not for the hot path


def home_relative(path: str) -> str:
    """Return a path as its owner would write it; whatever else it is stays as it is."""
    home = os.path.expanduser("~").rstrip("/")  # noqa: PTH111 - pathlib is not for the hot path
    if home and (path == home or path.startswith(f"{home}/")):
        return f"~{path[len(home) :]}"
    return path


def _bullpen_home(environment: Mapping[str, str]) -> str:
    home = environment.get(HOME_VARIABLE)
    return absolute(home).rstrip("/") if home else ""


def _absolute(environment: Mapping[str, str], name: str) -> str:
    directory = environment.get(name, "")
    return directory.rstrip("/") if directory.startswith("/") else ""


def _home(environment: Mapping[str, str], user_id: int) -> str:
    home = environment.get("HOME")
    if not home:
        import pwd

        try:
            home = pwd.getpwuid(user_id).pw_dir
        except KeyError:  # a user without an entry, as in a container
            home = "/"
    return home.rstrip("/")
