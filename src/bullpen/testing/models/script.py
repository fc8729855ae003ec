r"""What a model is told to do: turns made of steps, and the text they are written as.

A `Turn` is one response of the model. A script is a sequence of turns: the first answers the
prompt, each next one answers the results of the tools the one before it called. This module is
pure; who performs a turn, and in which wire format, is decided elsewhere.

As text a script is `<<TURN ;; TURN>>`, a turn is `STEP | STEP`, and a step is one of

    say TEXT               say it
    slowly DELAY TEXT      say it word by word, DELAY seconds apart
    stream N DELAY         say N numbered words, DELAY seconds apart
    think TEXT             reason about it
    results                say what the tools answered
    bash COMMAND           run a shell command with whatever shell tool was offered
    bashesc COMMAND        the same, asking to leave the sandbox (Codex)
    tool NAME {JSON}       call a tool; NAMESPACE::NAME for tools that live in a namespace
    custom NAME TEXT       call a tool that takes free text (Codex's apply_patch)
    sleep S, wait GATE     pause; hold until the gate is released
    presleep S, prewait G  the same before the response begins
    err STATUS TEXT        answer with an HTTP error
    sseerr TYPE            break off the response with an error event
    cut                    drop the connection
    hang                   say nothing more

Several tools in one turn are called in parallel. In TEXT, `\n`, `\t`, `\\`, `\xHH` and `\uHHHH`
mean what they mean in Python; everywhere a backslash before `|`, `;;`, `>>`, `«` or `»` takes
their meaning away. `«…»` is a script too, one that may stand inside another, as in the prompt of
a subagent: `<<tool Agent {"prompt": "«say hi»"}>>`.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from bullpen.testing.models.errors import ScriptError

__all__ = [
    "CallFreeform",
    "CallTool",
    "Control",
    "Cut",
    "Fail",
    "FailStream",
    "Hang",
    "Say",
    "SayResults",
    "Script",
    "Shell",
    "Sleep",
    "Step",
    "Stream",
    "Think",
    "Turn",
    "Wait",
    "find_script",
    "format_script",
    "parse_turns",
    "turn_at",
]

LONGEST_SLEEP_SECONDS = 3600.0
MOST_WORDS = 100_000
MOST_OPENINGS = 10  # a prompt full of scripts that never end must not cost a scan for each


@dataclass(frozen=True, slots=True)
class Say:
    """Say a text, at once or word by word."""

    text: str
    delay_seconds: float = 0.0

    def __post_init__(self) -> None:
        _check_seconds(self.delay_seconds)


@dataclass(frozen=True, slots=True)
class Stream:
    """Say `word0 word1 …`, one word at a time."""

    count: int
    delay_seconds: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.count <= MOST_WORDS:
            raise ScriptError(f"a stream has 0 to {MOST_WORDS} words", str(self.count))
        _check_seconds(self.delay_seconds)


@dataclass(frozen=True, slots=True)
class Think:
    """Show a thought before the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class SayResults:
    """Say what the tools called in the turn before answered."""


@dataclass(frozen=True, slots=True)
class Shell:
    """Run a command with the shell tool the program offered, whatever it calls it.

    `escalated` asks for it to run outside the sandbox, where the program knows such a request.
    """

    command: str
    escalated: bool = False


@dataclass(frozen=True, slots=True)
class CallTool:
    """Call a tool with JSON arguments."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    namespace: str | None = None

    def __post_init__(self) -> None:
        _check_name(self.name)
        if self.namespace is not None:
            _check_name(self.namespace)
            if self.namespace.endswith(":"):
                raise ScriptError("a namespace ends in no colon", self.namespace)
        try:
            json.dumps(dict(self.arguments))
        except (TypeError, ValueError, RecursionError) as error:
            raise ScriptError(f"the arguments are not JSON, {error}", self.name) from error


@dataclass(frozen=True, slots=True)
class CallFreeform:
    """Call a tool that takes text instead of JSON."""

    name: str
    text: str = ""

    def __post_init__(self) -> None:
        _check_name(self.name)


@dataclass(frozen=True, slots=True)
class Sleep:
    """Pause, inside the response or before it begins."""

    seconds: float
    before_headers: bool = False

    def __post_init__(self) -> None:
        _check_seconds(self.seconds)


@dataclass(frozen=True, slots=True)
class Wait:
    """Hold until the test releases the gate, inside the response or before it begins."""

    gate: str
    before_headers: bool = False

    def __post_init__(self) -> None:
        _check_name(self.gate)


@dataclass(frozen=True, slots=True)
class Fail:
    """Answer with an HTTP error instead of a response."""

    status: int
    message: str = ""

    def __post_init__(self) -> None:
        if not 400 <= self.status <= 599:
            raise ScriptError("an HTTP error has a status from 400 to 599", str(self.status))


@dataclass(frozen=True, slots=True)
class FailStream:
    """End the response with an error event. `kind` is the API's own word, else a usual one."""

    kind: str = ""

    def __post_init__(self) -> None:
        if self.kind:
            _check_name(self.kind)


@dataclass(frozen=True, slots=True)
class Cut:
    """Drop the connection in the middle of the response."""


@dataclass(frozen=True, slots=True)
class Hang:
    """Keep the connection open and send nothing more."""


Control: TypeAlias = Sleep | Wait | Cut | Hang
"""Steps that put nothing on the wire; whoever moves the bytes performs them."""

Step: TypeAlias = (
    Say
    | Stream
    | Think
    | SayResults
    | Shell
    | CallTool
    | CallFreeform
    | Fail
    | FailStream
    | Control
)

_ENDINGS = (Fail, FailStream, Cut, Hang)


@dataclass(frozen=True, init=False)
class Turn:
    """One response of the model: `Turn(Think("hm"), Say("yes"))`."""

    steps: tuple[Step, ...]

    def __init__(self, *steps: Step) -> None:
        object.__setattr__(self, "steps", steps)
        for step in steps[:-1]:
            if isinstance(step, _ENDINGS):
                raise ScriptError("nothing can follow this step", _format_step(step))
        if steps and isinstance(steps[-1], Fail):
            for step in steps[:-1]:
                if not isinstance(step, Sleep | Wait):
                    raise ScriptError(
                        "nothing can be said before an HTTP error, use sseerr", _format_step(step)
                    )


Script: TypeAlias = tuple[Turn, ...]


def turn_at(script: Script, index: int) -> Turn:
    """Return the turn to take after `index` turns; when the script is over, a closing word."""
    return script[index] if index < len(script) else Turn(Say("Done."))


def find_script(prompt: str) -> Script | None:
    """Return the script a prompt carries, the last one if there are several.

    Never raises. A script that cannot be read becomes one that says what is wrong with it, so
    that whoever wrote the prompt learns of it where they look: in the answer.
    """
    bodies = list(_bodies(prompt, _BEGINNING)) or list(_bodies(prompt, _WORD))
    if not bodies:
        return None
    try:
        return _turns(bodies[-1])
    except ScriptError as error:
        return (Turn(Say(f"I cannot read the script. {error}")),)


def parse_turns(text: str) -> Script:
    """Return the turns written in a text, which may but need not stand in `<<…>>`.

    Raises:
        ScriptError: the text is no script.
    """
    text = text.strip()
    opening = next((opening for opening in _CLOSERS if text.startswith(opening)), "")
    scanned = _scan(text, len(opening), _CLOSERS.get(opening))
    if scanned is None or scanned[1] != len(text):
        raise ScriptError("the script is not closed, or not at its end", text)
    return _turns(scanned[0])


def format_script(script: Script) -> str:
    """Return a script as text that `find_script` reads back."""
    turns = (" | ".join(map(_format_step, turn.steps)) for turn in script)
    return f"<<{' ;; '.join(turns)} >>"


# -- where scripts, turns and steps begin and end

_Body: TypeAlias = list[list[str]]  # of each turn, the steps as text

_MARK = re.compile(r"(?<!\S)(?P<s1>\\*)(?P<bar>\|)(?!\S)|(?P<s2>\\*)(?P<mark>;;|<<|>>|«|»)")
_CLOSERS = {"<<": ">>", "«": "»"}


def _bodies(text: str, beginning: re.Pattern[str]) -> Iterator[_Body]:
    """Yield the scripts in a text, those that begin in a certain way."""
    position = failures = 0
    for opening in _MARK.finditer(text):
        if opening.start() < position or opening["mark"] not in _CLOSERS or opening["s2"]:
            continue
        if not beginning.match(text, opening.end()):
            continue  # a shift, a here document
        scanned = _scan(text, opening.end(), _CLOSERS[opening["mark"]])
        if scanned is not None:
            body, position = scanned
            yield body
        elif (failures := failures + 1) == MOST_OPENINGS:
            return


def _scan(text: str, start: int, closer: str | None) -> tuple[_Body, int] | None:
    """Split what follows `start` into turns and steps, up to the closer or the end of the text.

    Returns the turns and the position behind the closer, or None if it never comes.
    """
    body: _Body = [[]]
    piece = ""
    depth = 0  # inside «…» everything is kept as it is: it is a script for somebody else
    position = start
    for found in _MARK.finditer(text, start):
        mark = found["bar"] or found["mark"]
        slashes = found["s1"] or found["s2"] or ""
        piece += text[position : found.start()]
        position = found.end()
        if slashes:
            piece += found[0] if depth else slashes[1:] + mark
        elif not depth and mark == closer:
            body[-1].append(piece)
            return body, position
        elif not depth and mark in ("|", ";;"):
            body[-1].append(piece)
            piece = ""
            if mark == ";;":
                body.append([])
        else:
            piece += mark
            depth = max(depth + {"«": 1, "»": -1}.get(mark, 0), 0)
    if closer is not None or depth:
        return None
    body[-1].append(piece + text[position:])
    return body, len(text)


def _hide_marks(text: str) -> str:
    return _MARK.sub(lambda mark: "\\" + mark[0], text)


# -- one step


def _turns(body: _Body) -> Script:
    return tuple(Turn(*(_parse_step(step) for step in turn if step.strip())) for turn in body)


def _parse_step(text: str) -> Step:
    name, rest = _split_word(text)
    try:
        parse = _OPERATIONS[name]
    except KeyError:
        known = ", ".join(_OPERATIONS)
        raise ScriptError(f"unknown step, known are {known}", text.strip()) from None
    try:
        return parse(rest)
    except ScriptError:
        raise
    except ValueError as error:  # a number that is none, JSON that is none
        raise ScriptError(str(error), text.strip()) from error


def _parse_slowly(rest: str) -> Say:
    delay, text = _split_word(rest)
    return Say(_unescape(text), float(delay))


def _parse_stream(rest: str) -> Stream:
    count, delay = _split_word(rest)
    return Stream(int(count), float(delay or 0))


def _parse_tool(rest: str) -> CallTool:
    name, arguments = _split_word(rest)
    try:
        decoded = json.loads(arguments or "{}")
    except RecursionError:
        raise ScriptError("arguments nested too deeply", name) from None
    if not isinstance(decoded, dict):
        raise ScriptError("the arguments of a tool are a JSON object", arguments)
    namespace, separator, inner = name.partition("::")
    return CallTool(inner, decoded, namespace) if separator else CallTool(name, decoded)


def _parse_custom(rest: str) -> CallFreeform:
    name, text = _split_word(rest)
    return CallFreeform(name, _unescape(text))


def _parse_error(rest: str) -> Fail:
    status, message = _split_word(rest)
    return Fail(int(status), _unescape(message))


def _split_word(text: str) -> tuple[str, str]:
    word, *rest = text.split(None, 1) or [""]
    return word, "".join(rest).strip()


def _bare(step: Callable[[], Step]) -> Callable[[str], Step]:
    def parse(rest: str) -> Step:
        if rest:
            raise ScriptError("this step takes nothing more", rest)
        return step()

    return parse


_OPERATIONS: dict[str, Callable[[str], Step]] = {
    "say": lambda rest: Say(_unescape(rest)),
    "slowly": _parse_slowly,
    "stream": _parse_stream,
    "think": lambda rest: Think(_unescape(rest)),
    "results": _bare(SayResults),
    "bash": Shell,
    "bashesc": lambda rest: Shell(rest, escalated=True),
    "tool": _parse_tool,
    "custom": _parse_custom,
    "sleep": lambda rest: Sleep(float(rest)),
    "presleep": lambda rest: Sleep(float(rest), before_headers=True),
    "wait": Wait,
    "prewait": lambda rest: Wait(rest, before_headers=True),
    "err": _parse_error,
    "sseerr": FailStream,
    "cut": _bare(Cut),
    "hang": _bare(Hang),
}


# A script begins with an operation, or with no step at all. What begins with another word is
# taken for one only if nothing better is there: it may be a mistake worth telling.
_BEGINNING = re.compile(rf"\s*(?:(?:{'|'.join(_OPERATIONS)})(?![^\s|;>»])|;;|>>|»)")
_WORD = re.compile(r"\w")


def _format_step(step: Step) -> str:
    return _hide_marks(" ".join(_words(step)).rstrip())


def _words(step: Step) -> tuple[str, ...]:
    match step:
        case Say(text, 0):
            return "say", _escape(text)
        case Say(text, delay):
            return "slowly", repr(delay), _escape(text)
        case Stream(count, delay):
            return "stream", str(count), repr(delay)
        case Think(text):
            return "think", _escape(text)
        case SayResults():
            return ("results",)
        case Shell(command, escalated):
            return "bashesc" if escalated else "bash", command
        case CallTool(name, arguments, namespace):
            full_name = name if namespace is None else f"{namespace}::{name}"
            return "tool", full_name, json.dumps(dict(arguments))
        case CallFreeform(name, text):
            return "custom", name, _escape(text)
        case Sleep(seconds, before_headers):
            return "presleep" if before_headers else "sleep", repr(seconds)
        case Wait(gate, before_headers):
            return "prewait" if before_headers else "wait", gate
        case Fail(status, message):
            return "err", str(status), _escape(message)
        case FailStream(kind):
            return "sseerr", kind
        case Cut():
            return ("cut",)
        case Hang():
            return ("hang",)


# -- free text

_ESCAPE = re.compile(r"\\(n|t|\\|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4})")
_SPECIAL = {"n": "\n", "t": "\t", "\\": "\\"}


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda found: _SPECIAL.get(found[1]) or chr(int(found[1][1:], 16)), text)


def _escape(text: str) -> str:
    escaped = text.replace("\\", r"\\").replace("\n", r"\n").replace("\t", r"\t")
    core = escaped.strip()  # a step loses its outer blanks, so those of the text are spelled out
    if not core:
        return "".join(map(_spell, escaped))
    before, _, after = escaped.partition(core)
    return "".join(map(_spell, before)) + core + "".join(map(_spell, after))


def _spell(character: str) -> str:
    return f"\\u{ord(character):04x}"  # no blank lies outside the basic plane


# -- what a step may hold


def _check_seconds(seconds: float) -> None:
    if not (math.isfinite(seconds) and 0 <= seconds <= LONGEST_SLEEP_SECONDS):
        raise ScriptError(f"a pause is 0 to {LONGEST_SLEEP_SECONDS:g} seconds", str(seconds))


def _check_name(name: str) -> None:
    if not name or "::" in name or any(character.isspace() for character in name):
        raise ScriptError("a name is one word without ::", name)
