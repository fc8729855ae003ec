"""The environment of a wrapped program. Pure."""

from collections.abc import Mapping

from bullpen.agents.profile import Profile

__all__ = ["AGENT_VARIABLE", "SECRET_VARIABLE", "program_environment"]

SECRET_VARIABLE = "BULLPEN_SECRET"  # noqa: S105 - the name of it
AGENT_VARIABLE = "BULLPEN_AGENT"

_OF_OTHERS = (
    # By these a program knows that it runs inside another agent: it would refuse, be taken for a
    # part of it, or report to it. What tells of tmux stays: the terminal is in that pane.
    "AI_AGENT",
    "CLAUDECODE",
    "CLAUDE_CODE_CHILD_SESSION",
    "CLAUDE_CODE_ENTRYPOINT",
    "CLAUDE_CODE_MESSAGING_SOCKET",
    "CLAUDE_CODE_SESSION_ID",
    "CLAUDE_CODE_SSE_PORT",
    "CLAUDE_ENV_FILE",
    "CLAUDE_PROJECT_DIR",
    "CODEX_SANDBOX",
    "CODEX_SANDBOX_NETWORK_DISABLED",
    "CODEX_THREAD_ID",
    "COPILOT_AGENT_SESSION_ID",
    "COPILOT_CLI",
    "COPILOT_CONNECTION_TOKEN",
    "COPILOT_RUN_APP",
    "GEMINI_CLI",
    "OPENCODE",
    "OPENCODE_CLIENT",
    "OPENCODE_PID",
    "OPENCODE_SERVER",
    # Of a terminal that is not the one the program gets.
    "COLUMNS",
    "LINES",
)


def program_environment(
    given: Mapping[str, str], profile: Profile, *, name: str, secret: str
) -> dict[str, str]:
    """What a profile's program is started with, in the environment given."""
    environment = {key: value for key, value in given.items() if key not in _OF_OTHERS}
    environment |= profile.env
    environment[AGENT_VARIABLE] = name
    if secret:
        environment[SECRET_VARIABLE] = secret
    else:
        environment.pop(SECRET_VARIABLE, None)  # that of an agent around us
    return environment
