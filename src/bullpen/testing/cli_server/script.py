"""What a fake CLI server does, as text: one command per line, or several with `;` between them.

As a process, before it listens:

    noise N                    write N lines to stderr
    greet TEXT                 print TEXT before the line that names the port
    port-line TEXT             print TEXT instead of that line
    no-port-line               print no such line
    exit STATUS                end with STATUS, and never listen
    child                      start a child that outlives its parent, unless it is ended too
    stubborn                   do not end on SIGTERM

Answering requests:

    protocol N                 speak the older (2) or the newer (3) generation of the protocol
    own-ids                    choose the ids of sessions, whatever the client wishes
    swallow METHOD             never answer METHOD
    refuse METHOD CODE TEXT    answer METHOD with an error
    shuffle METHOD N SEED      let N requests of METHOD come together, then answer them shuffled

Answering prompts, one step after the other; without any, a prompt is said back:

    say TEXT                   say it, word by word
    stream N                   say N numbered words
    flood N M SEED             say N words in each of M sessions, interleaved; begins with the Mth
    tool NAME {JSON}           call a tool of the client's and say what it answered
    permission KIND            ask leave, and say what was decided
    fail TEXT                  end the turn with an error
    hang                       do nothing more until the turn is aborted
    stderr TEXT                write TEXT to stderr
    crash STATUS               end the process here and now; `crash kill` as by SIGKILL

A prompt that begins with `do:` brings steps of its own: `do: stream 3; crash 7`. Whatever is
shuffled or interleaved is so by its seed: the same seed, the same order. Nothing ever sleeps.
"""

import json
from collections.abc import Callable
from typing import Any

import msgspec

from bullpen.errors import BullpenError

__all__ = ["OWN_STEPS", "Script", "ScriptError", "Step", "parse_script"]

OWN_STEPS = "do:"  # how a prompt begins that brings its own


class ScriptError(BullpenError):
    """A script cannot be understood; nothing of it has been done."""

    def __init__(self, command: str, reason: object) -> None:
        super().__init__(f"{command!r}: {reason}")
        self.command = command


class Step(msgspec.Struct, frozen=True):
    """One thing to do in answer to a prompt."""

    name: str
    text: str = ""
    numbers: tuple[int, ...] = ()
    arguments: Any = None


class Refusal(msgspec.Struct, frozen=True):
    """The error a method is answered with."""

    code: int
    message: str


class Shuffle(msgspec.Struct, frozen=True):
    """How many requests of a method are answered together, and in which order."""

    count: int
    seed: int


class Script(msgspec.Struct, kw_only=True):
    """A script, read."""

    noise: int = 0
    greeting: str = ""
    port_line: str | None = None
    exit_status: int | None = None
    has_child: bool = False
    is_stubborn: bool = False
    protocol: int = 3
    own_ids: bool = False
    swallowed: set[str] = msgspec.field(default_factory=set)
    refused: dict[str, Refusal] = msgspec.field(default_factory=dict)
    shuffled: dict[str, Shuffle] = msgspec.field(default_factory=dict)
    steps: list[Step] = msgspec.field(default_factory=list)

    def steps_for(self, prompt: str) -> list[Step]:
        """Return what is to be done in answer to a prompt.

        Raises:
            ScriptError: the prompt brings steps that cannot be understood.
        """
        if not prompt.startswith(OWN_STEPS):
            return self.steps or [Step("say", prompt)]
        own = parse_script(prompt.removeprefix(OWN_STEPS))
        return own.steps


def parse_script(text: str) -> Script:
    """Read a script.

    Raises:
        ScriptError: a command is unknown, or does not have what it needs.
    """
    script = Script()
    for line in text.splitlines():
        for command in line.split(";"):
            name, _, rest = command.strip().partition(" ")
            if not name:
                continue
            if name not in _COMMANDS:
                raise ScriptError(command.strip(), "there is no such command")
            try:
                _COMMANDS[name](script, rest.strip())
            except (ValueError, IndexError) as error:
                raise ScriptError(command.strip(), error) from error
    return script


def _step(name: str, *, numbers: int = 0) -> "Callable[[Script, str], None]":
    def add(script: Script, rest: str) -> None:
        if not numbers:
            script.steps.append(Step(name, rest))
            return
        values = tuple(map(int, rest.split()))
        if len(values) != numbers:
            raise ValueError(f"expected {numbers} numbers")
        script.steps.append(Step(name, numbers=values))

    return add


def _set(**values: Any) -> "Callable[[Script, str], None]":
    def change(script: Script, _rest: str) -> None:
        for name, value in values.items():
            setattr(script, name, value)

    return change


def _take(name: str, read: Callable[[str], Any]) -> "Callable[[Script, str], None]":
    return lambda script, rest: setattr(script, name, read(rest))


def _read_tool(script: Script, rest: str) -> None:
    name, _, arguments = rest.partition(" ")
    script.steps.append(Step("tool", name, arguments=json.loads(arguments or "{}")))


def _read_crash(script: Script, rest: str) -> None:
    status = () if rest == "kill" else (int(rest),)
    script.steps.append(Step("crash", numbers=status))


def _read_refusal(script: Script, rest: str) -> None:
    method, code, message = rest.split(" ", 2)
    script.refused[method] = Refusal(int(code), message)


def _read_shuffle(script: Script, rest: str) -> None:
    method, count, seed = rest.split()
    script.shuffled[method] = Shuffle(int(count), int(seed))


_COMMANDS: dict[str, Callable[[Script, str], None]] = {
    "noise": _take("noise", int),
    "greet": _take("greeting", str),
    "port-line": _take("port_line", str),
    "no-port-line": _set(port_line=""),
    "exit": _take("exit_status", int),
    "child": _set(has_child=True),
    "stubborn": _set(is_stubborn=True),
    "protocol": _take("protocol", int),
    "own-ids": _set(own_ids=True),
    "swallow": lambda script, rest: script.swallowed.add(rest),
    "refuse": _read_refusal,
    "shuffle": _read_shuffle,
    "say": _step("say"),
    "stream": _step("stream", numbers=1),
    "flood": _step("flood", numbers=3),
    "tool": _read_tool,
    "permission": _step("permission"),
    "fail": _step("fail"),
    "hang": _step("hang"),
    "stderr": _step("stderr"),
    "crash": _read_crash,
}
