"""Which hooks each agent program has, and how it wants them written.

The shape, the unit of a timeout and what a program takes amiss were seen on the real programs:
Claude Code 2.1, Codex 0.166, Gemini CLI 0.61, Copilot CLI 1.0.
"""

import re
import shlex
from dataclasses import dataclass
from typing import Any

from bullpen.model.states import Provider

__all__ = ["MARK", "PROGRAMS", "HookedProgram", "Runner", "flags_of"]

MARK = "bullpen-hook"
"""By this word, in a comment at the end of a command, what is ours is known."""

_MARKED = re.compile(rf"# {MARK}(?P<flags>(?: [a-z-]+)*)$")


@dataclass(frozen=True, slots=True)
class Runner:
    """What runs the shim: an interpreter and the file, by their paths."""

    python: str
    shim: str

    def command(
        self,
        provider: Provider,
        event: str,
        flags: frozenset[str] = frozenset(),
        *,
        asks: bool = False,
    ) -> str:
        """Return the line for a shell.

        It succeeds even where the interpreter or the file is gone: some programs take a failure
        for a veto. The shell tells its own parent, which is the agent, for it will be gone itself.
        If it asks, the agent is handed the next message at the end of a turn.
        """
        words = shlex.join([self.python, "-I", "-S", self.shim, provider.value, event])
        mark = " ".join([f"# {MARK}", *sorted(flags)])
        return f"{words} $PPID{' ask' * asks} || : {mark}"


def flags_of(command: str) -> frozenset[str] | None:
    """Return what a command of ours has noted about where it was put; None if it is not ours."""
    found = _MARKED.search(command)
    return frozenset(found["flags"].split()) if found else None


@dataclass(frozen=True, slots=True)
class HookedProgram:
    """How one program wants its hooks."""

    provider: Provider
    title: str
    events: tuple[str, ...]
    user_file: tuple[str, str, str]
    """The variable that names a directory, that directory below the home, and the file in it."""
    project_file: str
    command_key: str = "command"
    timeout: tuple[str, int] = ("timeout", 5)
    is_grouped: bool = True
    """Whether hooks stand in groups, each with a list of them."""
    takes_comments: bool = False
    background: frozenset[str] = frozenset()
    """Events whose hooks it need not wait for."""
    asking: frozenset[str] = frozenset()
    """Events at which it goes on with what the hook answers: the ends of turns."""
    named: bool = False
    """Whether it shows a hook by its name, where it has one."""
    is_plugin: bool = False
    """Whether it takes a file of code instead of entries in a list."""
    by_name_only: bool = False
    """Whether it is not among all programs, for it may cost more than it should."""
    note: str = ""

    def entry(self, event: str, command: str) -> dict[str, Any]:
        """Return what to add to the list of an event."""
        hook: dict[str, Any] = {"type": "command"}
        if self.named:
            hook["name"] = "bullpen"
        hook[self.command_key] = command
        hook[self.timeout[0]] = self.timeout[1]
        if event in self.background:
            hook["async"] = True
        return {"hooks": [hook]} if self.is_grouped else hook


PROGRAMS: dict[Provider, HookedProgram] = {
    Provider.CLAUDE: HookedProgram(
        provider=Provider.CLAUDE,
        title="Claude Code",
        user_file=("CLAUDE_CONFIG_DIR", ".claude", "settings.json"),
        project_file=".claude/settings.json",
        events=(
            "SessionStart",
            "SessionEnd",
            "UserPromptSubmit",
            "PreToolUse",
            "PostToolUse",
            "PostToolUseFailure",
            "PermissionRequest",
            "Notification",
            "Stop",
            "StopFailure",
            "SubagentStart",
            "SubagentStop",
            "PreCompact",
            "PostCompact",
            "PermissionDenied",
            "Elicitation",
            "ElicitationResult",
        ),
        # Only what decides nothing. Two hooks that are not waited for may overtake each other: the
        # end of a tool was heard after the end of its turn.
        background=frozenset({"Notification", "SubagentStart", "SubagentStop", "PreCompact"}),
        asking=frozenset({"Stop"}),
    ),
    Provider.CODEX: HookedProgram(
        provider=Provider.CODEX,
        title="Codex",
        user_file=("CODEX_HOME", ".codex", "hooks.json"),
        project_file=".codex/hooks.json",
        timeout=("timeout", 3),  # more is cut to that for some, with a warning
        asking=frozenset({"Stop"}),
        events=(
            "SessionStart",
            "SessionEnd",
            "UserPromptSubmit",
            "PreToolUse",
            "PermissionRequest",
            "PostToolUse",
            "PreCompact",
            "SubagentStart",
            "SubagentStop",
            "Stop",
            "Interrupt",
            "PostModelRequest",  # the only one that tells of an error
        ),
        note="Codex asks you to review new hooks when it starts; until then it runs none of them.",
    ),
    Provider.GEMINI: HookedProgram(
        provider=Provider.GEMINI,
        title="Gemini CLI",
        user_file=("", ".gemini", "settings.json"),
        project_file=".gemini/settings.json",
        timeout=("timeout", 5000),
        takes_comments=True,
        named=True,
        asking=frozenset({"AfterAgent"}),
        events=(
            "SessionStart",
            "SessionEnd",
            "BeforeAgent",
            "AfterAgent",
            "BeforeTool",
            "AfterTool",
            "Notification",
        ),
    ),
    Provider.COPILOT: HookedProgram(
        provider=Provider.COPILOT,
        title="Copilot CLI",
        user_file=("COPILOT_HOME", ".copilot", "settings.json"),
        project_file=".github/copilot/settings.json",
        command_key="bash",
        timeout=("timeoutSec", 5),
        is_grouped=False,
        takes_comments=True,
        asking=frozenset({"agentStop"}),
        events=(
            "sessionStart",
            "sessionEnd",
            "userPromptSubmitted",
            "preToolUse",
            "postToolUse",
            "postToolUseFailure",
            "notification",
            "agentStop",
            "errorOccurred",
        ),
    ),
    Provider.OPENCODE: HookedProgram(
        provider=Provider.OPENCODE,
        title="opencode",
        user_file=("XDG_CONFIG_HOME", ".config", "opencode/plugin/bullpen.js"),
        project_file=".opencode/plugin/bullpen.js",
        is_plugin=True,
        by_name_only=True,  # without its registry it then waits at its start for over a minute
        events=(
            "session.created",
            "session.updated",
            "session.status",
            "session.error",
            "permission.asked",
            "permission.replied",
            "question.asked",
            "question.replied",
            "question.rejected",
            "disposed",
        ),
        note="With a plugin opencode needs its registry at its start, and waits long without it.",
    ),
}
"""The programs that have hooks."""
