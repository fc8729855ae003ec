"""What a rule file says, as values: the program's traits, its prompt box, its rules.

A pattern is a literal unless it stands between slashes. A literal is looked for in a region's text
with line breaks and runs of spaces made one space, so that a narrow pane that wraps a hint does not
hide it. A regular expression is searched for over the lines as they are, `^` and `$` at each.
"""

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from bullpen.model.states import Activity, Provider
from bullpen.terminal.rules.errors import RuleError, UnknownRegionError

__all__ = [
    "Answers",
    "Clause",
    "Program",
    "PromptShape",
    "PromptState",
    "ProviderRules",
    "Rule",
    "Versions",
]

REGIONS: Mapping[str, str] = {
    "screen": "every line",
    "bottom": "the last lines that show anything (bottom:N, 10 unless told)",
    "prompt": "the lines of the prompt box",
    "above": "the last lines above the prompt box that show anything (above:N, 10 unless told)",
    "turn": "the lines from the last message of the user to the prompt box",
    "reply": "the lines from the last item of that turn to the prompt box",
    "footer": "the lines below the prompt box",
    "dialog": "the lines of the dialog that stands where the prompt box would",
    "title": "the title of the terminal",
    "arguments": "the arguments of the program, one in a line",
}
DEFAULT_REGION_LINES = 10

PromptState = Literal["absent", "empty", "draft", "shell", "unfocused"]
Tone = Literal["red", "coloured", "faint", "plain"]
_TONES = {"red": "r", "coloured": "cr", "faint": "f", "plain": "p"}


class Clause(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, dict=True
):
    """What must be, and must not be, in one region.

    Every pattern of `all`, one of `any` and none of `none` must be found. If the screen has
    attributes, `tone` says how the first character of what was found must be painted, or that of
    its group named `tone`.
    """

    region: str
    all: tuple[str, ...] = ()
    any: tuple[str, ...] = ()
    none: tuple[str, ...] = ()
    tone: Tone | None = None
    tone_required: bool = False
    """Without attributes nothing is found, instead of everything."""

    def __post_init__(self) -> None:
        name, _, count = self.region.partition(":")
        if name not in REGIONS or (
            count and (name not in ("bottom", "above") or not count.isdigit())
        ):
            raise UnknownRegionError(self.region, list(REGIONS))
        if not (self.all or self.any or self.none):
            raise RuleError(f"the clause for {self.region!r} asks for nothing")
        _ = self.patterns  # a wrong one is reported with the rule it stands in

    @cached_property
    def patterns(self) -> Mapping[str, re.Pattern[str] | str]:
        """The patterns, compiled; literals as they are compared."""
        return {text: compile_pattern(text) for text in (*self.all, *self.any, *self.none)}

    @property
    def tones(self) -> str:
        """The tones that `tone` allows, as `Screen` writes them."""
        return _TONES[self.tone] if self.tone else ""


class Versions(msgspec.Struct, frozen=True, gc=False):
    """A range of versions such as `>=2.1,<3`."""

    bounds: tuple[tuple[str, tuple[int, ...]], ...] = ()

    @classmethod
    def parse(cls, text: str) -> "Versions":
        """Read a range. Bounds are joined by commas; every one must hold."""
        bounds = []
        for part in filter(None, map(str.strip, text.split(","))):
            found = re.fullmatch(r"(>=|<=|<|>|==)\s*(\d+(?:\.\d+)*)", part)
            if not found:
                raise RuleError(f"{part!r} is no bound of versions such as '>=2.1' or '<3'")
            bounds.append((found[1], _numbers(found[2])))
        return cls(tuple(bounds))

    def __contains__(self, version: str) -> bool:
        """Nothing is excluded as long as the version is not known."""
        numbers = _numbers(version)
        if not numbers:
            return True
        for operator, bound in self.bounds:
            ours, theirs = numbers[: len(bound)], bound
            holds = {
                ">=": ours >= theirs,
                "<=": ours <= theirs,
                ">": ours > theirs,
                "<": ours < theirs,
                "==": ours == theirs,
            }
            if not holds[operator]:
                return False
        return True


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, dict=True):
    """What on a screen proves that an agent does something.

    The rule of highest priority whose clauses all hold wins; among equals the one that stands
    first. `ready` claims that a message could be typed and submitted now; the engine grants it
    only where it sees an empty prompt box.
    """

    name: Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9-]*$")]
    activity: Activity
    reason: Annotated[str, Meta(min_length=1)]
    when: tuple[Clause, ...] = ()
    prompt: tuple[PromptState, ...] = ()
    priority: Annotated[int, Meta(ge=0, le=100)] = 50
    ready: bool = False
    versions: str = ""

    def __post_init__(self) -> None:
        if not (self.when or self.prompt):
            raise RuleError("a rule needs `when` or `prompt`, or it would hold on every screen")
        _ = self.version_range

    @cached_property
    def version_range(self) -> Versions:
        """The versions of the program that the rule is for."""
        return Versions.parse(self.versions)


class PromptShape(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """What a program's prompt box looks like. All but `placeholders` are regular expressions.

    The box is the lowest one on the screen: lines between one that matches `above` and one that
    matches `below`, or else those that match `inside` right above `below`, or else the lines from
    one that matches `mark` to the next blank one that no `continues` follows. The text somebody
    typed is what follows `mark` on its first line and `inside` on the others.
    """

    mark: str
    above: str = ""
    below: str = ""
    inside: str = r"^\s*"
    continues: str = ""
    """Such a line below a blank one is still in a box that has no frame."""
    chrome_lines: int = 0
    """How many of the last lines in the box, not counting blank ones, nobody typed."""
    shell: str = ""
    """A box with such a line takes commands for a shell."""
    never_below: str = ""
    """Below a prompt box there is no such line; below an old one in the scrollback there may be."""
    lines_below: int = 60
    placeholders: tuple[str, ...] = ()
    """Texts that are shown in an empty box."""
    needs_cursor: bool = False
    """The cursor stands in the box whenever the box is what the keyboard talks to."""
    shows_cursor: bool = False
    """The cursor is visible then, too. Not every program leaves it so when its pane loses focus."""
    at_cursor: bool = False
    """There is no box: the prompt is the line of the cursor, below a line that matches `above`."""

    def __post_init__(self) -> None:
        for name in ("mark", "above", "below", "inside", "continues", "shell", "never_below"):
            compile_regex(getattr(self, name), name)

    def regex(self, name: str) -> re.Pattern[str]:
        """One of the expressions, compiled."""
        return compile_regex(getattr(self, name), name)


class Program(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """How a program is known among processes, titles and screens. See `observe.signature`."""

    names: tuple[str, ...] = ()
    """What its executable or script is called."""
    packages: tuple[str, ...] = ()
    """Directories its script lives in, if an interpreter runs it."""
    tokens: tuple[str, ...] = ()
    """Patterns that show on its screens and hardly elsewhere."""
    titles: tuple[str, ...] = ()
    """Patterns of its titles."""
    services: tuple[str, ...] = ()
    """First arguments that make it a server or a tool, with no conversation on the screen."""

    def __post_init__(self) -> None:
        for text in (*self.tokens, *self.titles):
            compile_pattern(text)


class Answers(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """How a program's dialogs are answered: by choosing one of their numbered choices.

    `choice` is a regular expression for the line of a choice, with the groups `number`, `label`
    and `mark`, which is there if Enter would take it. The others are patterns of labels: what they
    match means yes, or yes and always, or no. One that several choices match means none of them.
    With `no_by_escape` no is said by Esc, because the choice would ask for more words.
    """

    choice: str
    yes: tuple[str, ...] = ()
    always: tuple[str, ...] = ()
    no: tuple[str, ...] = ()
    no_by_escape: bool = False

    def __post_init__(self) -> None:
        groups = compile_regex(self.choice, "choice").groupindex
        for name in ("mark", "number", "label"):
            if name not in groups:
                raise RuleError(f"choice: it has no group named {name}")
        for text in (*self.yes, *self.always, *self.no):
            compile_pattern(text)


class ProviderRules(msgspec.Struct, frozen=True, dict=True):
    """All that is known of one provider's screens."""

    provider: Provider
    program: Program = Program()
    prompts: tuple[PromptShape, ...] = ()
    turn: str = ""
    """The first line of a message of the user."""
    item: str = ""
    """The first line of anything the program says."""
    dialog: str = ""
    """The line that opens a dialog."""
    sidebar: str = ""
    """The character that stands between a sidebar at the left and all else, in every row."""
    answers: Answers | None = None
    """How dialogs are answered; None if nobody but who sees them can."""
    rules: tuple[Rule, ...] = ()

    def __post_init__(self) -> None:
        for name in ("turn", "item", "dialog"):
            compile_regex(getattr(self, name), name)

    @cached_property
    def by_priority(self) -> tuple[Rule, ...]:
        """The rules in the order in which they win."""
        return tuple(sorted(self.rules, key=lambda rule: -rule.priority))


def compile_pattern(text: str) -> re.Pattern[str] | str:
    """Return what a pattern means: an expression between slashes, else a literal."""
    if len(text) > 2 and text.startswith("/") and text.endswith("/"):
        return compile_regex(text[1:-1], text)
    return " ".join(text.split())


_compiled: dict[str, re.Pattern[str]] = {}


def compile_regex(text: str, name: str) -> re.Pattern[str]:
    """Compile an expression once.

    Raises:
        RuleError: it is none.
    """
    if (known := _compiled.get(text)) is not None:
        return known
    try:
        compiled = _compiled[text] = re.compile(text, re.MULTILINE)
    except re.error as error:
        raise RuleError(f"{name}: {text!r} is no regular expression: {error}") from error
    return compiled


def _numbers(version: str) -> tuple[int, ...]:
    found = re.match(r"\D{0,2}(\d+(?:\.\d+)*)", version)
    return tuple(map(int, found[1].split("."))) if found else ()
