"""The environment of a run: the user's own, what its profile adds, and who the agent is."""

from collections.abc import Mapping

from bullpen.agents.launching import Given
from bullpen.api.locations import HOME_VARIABLE, SOCKET_VARIABLE, socket_path

__all__ = ["AGENT", "LOCATIONS", "SECRET", "environment_of", "identity_of"]

SECRET = "BULLPEN_SECRET"  # noqa: S105 - the name of a variable
AGENT = "BULLPEN_AGENT"

LOCATIONS = (
    SOCKET_VARIABLE,
    HOME_VARIABLE,
    "XDG_RUNTIME_DIR",
    "XDG_STATE_HOME",
    "XDG_CONFIG_HOME",
)
"""By these whoever speaks with the daemon finds it; some programs pass none of them on."""

# What agent programs tell their children of themselves. An agent that is started by another must
# not take it for its own: Claude Code refuses to run in itself, and hooks would name the other.
_OF_A_PARENT = frozenset(
    {
        "AI_AGENT",
        "CLAUDECODE",
        "CLAUDE_CODE_CHILD_SESSION",
        "CLAUDE_CODE_ENTRYPOINT",
        "CLAUDE_CODE_EXECPATH",
        "CLAUDE_CODE_MESSAGING_SOCKET",
        "CLAUDE_CODE_SESSION_ID",
        "CLAUDE_CODE_SSE_PORT",
        "CLAUDE_EFFORT",
        "CLAUDE_ENV_FILE",
        "CLAUDE_PROJECT_DIR",
        "CODEX_APPLY_PATCH_PRESERVE_LINE_ENDINGS",
        "CODEX_CI",
        "CODEX_SANDBOX",
        "CODEX_SANDBOX_NETWORK_DISABLED",
        "CODEX_SESSION_ID",
        "CODEX_THREAD_ID",
        "CODEX_TOOL_CALL_ID",
        "CODEX_VERSION",
        "COPILOT_AGENT_SESSION_ID",
        "COPILOT_CLI",
        "COPILOT_CLI_BINARY_VERSION",
        "COPILOT_CLI_RESOLVED_DIST_DIR",
        "COPILOT_LOADER_PID",
        "GEMINI_CLI",
        "GEMINI_CLI_NO_RELAUNCH",
        "OPENCODE",
        "OPENCODE_PID",
        SECRET,
    }
)


def environment_of(given: Given, *, user_id: int) -> dict[str, str]:
    """Return the environment for the program."""
    kept = {key: value for key, value in given.environment.items() if key not in _OF_A_PARENT}
    environment = kept | given.profile.env
    return environment | _where(environment, given, user_id) | _who(given)


def identity_of(given: Given, environment: Mapping[str, str]) -> dict[str, str]:
    """Return what a server of ours needs of an environment, wherever it is started without one."""
    where = {name: environment[name] for name in LOCATIONS if environment.get(name)}
    return where | _who(given)


def _who(given: Given) -> dict[str, str]:
    who = {AGENT: given.name}
    return who | {SECRET: given.secret} if given.secret else who


def _where(environment: Mapping[str, str], given: Given, user_id: int) -> dict[str, str]:
    """Name the socket, unless it is where everybody looks for it anyway."""
    socket = str(given.daemon_socket)
    return {} if socket_path(environment, user_id) == socket else {SOCKET_VARIABLE: socket}
