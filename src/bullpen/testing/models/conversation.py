"""What a request to a model says, whichever API it came by.

Each API has a module that reads its requests into a `Conversation`; whoever decides on the answer
looks at nothing else. Agent programs wrap what their user typed in context of their own: the
date, the directory, reminders, instructions. `user_text` takes that off again, so that a prompt
reads as it was typed. This module is pure.
"""

import html
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from bullpen.testing.models.script import find_script

__all__ = [
    "Conversation",
    "Entry",
    "Incoming",
    "Json",
    "Place",
    "Tool",
    "locate",
    "object_of",
    "objects",
    "strings",
    "texts_of",
    "user_text",
]

Json: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Incoming:
    """One request as it came by HTTP, its body decoded. Header names are in lower case."""

    path: str
    headers: Mapping[str, str]
    body: Json

    @property
    def user_agent(self) -> str:
        """What the program calls itself."""
        return self.headers.get("user-agent", "")


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool the program offered to the model."""

    name: str
    parameters: Json = field(default_factory=dict)  # a JSON schema
    namespace: str | None = None

    @property
    def properties(self) -> Json:
        """The parameters by name, each a JSON schema."""
        return object_of(self.parameters.get("properties"))


@dataclass(frozen=True, slots=True)
class Conversation:
    """What a program asked its model.

    `prompt` is the last thing the user said, and `turns_since_prompt` how often the model has
    spoken since; together they tell where in a script the conversation is, so that nothing needs
    to be remembered between requests.
    """

    model: str
    prompt: str = ""
    turns_since_prompt: int = 0
    tool_results: tuple[str, ...] = ()  # of the model's last turn
    tools: tuple[Tool, ...] = ()
    is_streaming: bool = False
    answer_schema: Json | None = None  # the answer has to be JSON of this form
    asks_for_title: bool = False

    @property
    def is_side_request(self) -> bool:
        """Whether the program asks on its own account.

        It then wants a title, or JSON without having offered a tool to work with. Codex offers
        `apply_patch` even then; only the shell tells.
        """
        return self.asks_for_title or (self.answer_schema is not None and self.shell is None)

    @property
    def shell(self) -> Tool | None:
        """The tool that runs shell commands, if one was offered."""
        by_name = {tool.name: tool for tool in self.tools if tool.namespace is None}
        return next((by_name[name] for name in _SHELLS if name in by_name), None)


# in Codex three, Claude Code, Copilot and opencode, Gemini
_SHELLS = ("exec_command", "shell_command", "shell", "Bash", "bash", "run_shell_command")


# -- reading untrusted JSON: whatever has another form than expected counts as absent


def objects(value: Any) -> list[Json]:
    """Return the JSON objects of a list; of anything else, none."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def object_of(value: Any) -> Json:
    """Return a JSON object; for anything else, an empty one."""
    return value if isinstance(value, dict) else {}


def texts_of(content: Any) -> tuple[str, ...]:
    """Return the texts of a message, given as a string or as a list of parts."""
    if isinstance(content, str):
        return (content,)
    texts = (part.get("text") for part in objects(content))
    return tuple(text for text in texts if isinstance(text, str))


def strings(value: Any) -> Iterator[str]:
    """Yield every string inside a JSON value, in order."""
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            pending.extend(reversed(item.values()))
        elif isinstance(item, list):
            pending.extend(reversed(item))


# -- where a conversation is


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a conversation's history: what the model said, or what it was told."""

    is_model: bool
    texts: tuple[str, ...] = ()
    results: tuple[str, ...] = ()  # of tools


class Place(NamedTuple):
    """Where in a conversation a request stands."""

    prompt: str
    turns_since_prompt: int
    tool_results: tuple[str, ...]


def locate(history: Sequence[Entry], user_agent: str = "") -> Place:
    """Return the last prompt of a history, and what has happened since."""
    turns = 0
    was_model = False
    results: list[str] = []
    for entry in reversed(history):
        if entry.is_model:
            turns += not was_model  # a turn may be told as several entries, one for each tool
            was_model = True
            continue
        was_model = False
        if not turns:
            results[:0] = entry.results
        prompt = _prompt(entry, user_agent)
        if prompt:
            return Place(prompt, turns, tuple(results))
    return Place("", turns, tuple(results))


def _prompt(entry: Entry, user_agent: str) -> str:
    text = user_text(entry.texts, user_agent)
    if not entry.results or any(map(_INTERRUPTION.search, entry.texts)):
        return text
    # programs also comment on a result ("Tool loaded."), which is no new prompt
    return text if find_script(text) else ""


# -- what the user typed

_CONTEXT = re.compile(
    r"<(?P<tag>"
    r"system-reminder|"  # Claude Code
    r"current_datetime|reminder|"  # Copilot
    r"environment_context|user_instructions|turn_aborted|"  # Codex
    r"user_shell_command|subagent_notification|skill|"  # Codex
    r"session_context"  # Gemini
    r")(?:\s[^>]*)?>.*?</(?P=tag)>",
    re.DOTALL,
)
_INSTRUCTIONS = "# AGENTS.md instructions"  # Codex gives a project's file as the user's message
_INTERRUPTION = re.compile(r"\[Request interrupted by user[^\]\n]*\]")  # Claude Code
_WOKEN = re.compile(  # Claude Code, woken by a hook: here the reminder is what was said to it
    r"\s*<task-notification>\s*<summary>[^<]*</summary>\s*</task-notification>\s*"
    r"<system-reminder>\n(.*)\n</system-reminder>\s*",
    re.DOTALL,
)
_HOOK_PROMPT = re.compile(r"<hook_prompt\b[^>]*>(.*?)</hook_prompt>", re.DOTALL)  # Codex
_BARE_QUOTE = re.compile(r'(?<!\\)"')


def user_text(texts: Iterable[str], user_agent: str = "") -> str:
    """Return what a user typed, given the texts of a message; empty if nothing of it is theirs."""
    kept: list[str] = []
    for text in texts:
        if text.lstrip().startswith(_INSTRUCTIONS):
            continue
        if woken := _WOKEN.fullmatch(text):
            kept.append(woken[1].strip())
            continue
        text = _HOOK_PROMPT.sub(lambda found: html.unescape(found[1]), _CONTEXT.sub("", text))
        before, *after = _INTERRUPTION.split(text)
        if after:  # what came earlier was answered, or given up
            kept.clear()
            before = after[-1]
        kept.append(before.strip())
    typed = "\n".join(filter(None, kept))
    return _unquoted(typed) if user_agent.startswith("opencode/") else typed


def _unquoted(text: str) -> str:
    """Undo what `opencode run` does to an argument with blanks in it."""
    inner = text[1:-1]
    if len(text) < 2 or text[0] != '"' or text[-1] != '"':
        return text
    if " " not in inner or _BARE_QUOTE.search(inner):
        return text
    return inner.replace(r"\"", '"')
