"""Which script answers which request, as a test has decided it."""

import re
import threading
from collections.abc import Callable, Iterable
from typing import TypeAlias

from bullpen.testing.models.errors import ScriptError
from bullpen.testing.models.record import Request
from bullpen.testing.models.script import Script, Step, Turn, parse_turns, turn_at

__all__ = ["Match", "Rule", "Rules", "matches", "script_of"]

Match: TypeAlias = str | re.Pattern[str] | Callable[[Request], bool]
"""Text the prompt contains, a pattern found in it, or a predicate on the request."""


def matches(match: Match, request: Request) -> bool:
    """Tell whether a request is the one that is meant."""
    if isinstance(match, str):
        return match in request.prompt
    if isinstance(match, re.Pattern):
        return match.search(request.prompt) is not None
    return match(request)


class Rule:
    """Answers the requests it matches, at most `times` of them."""

    def __init__(
        self, match: Match, script: Script, *, times: int | None, for_side_requests: bool
    ) -> None:
        self._match = match
        self._script = script
        self._for_side_requests = for_side_requests
        self.remaining = times

    def applies_to(self, request: Request) -> bool:
        """Tell whether this rule is the one to answer a request."""
        if self.remaining == 0 or request.is_prompt is self._for_side_requests:
            return False
        return matches(self._match, request)

    def take(self, request: Request) -> Turn:
        """Return the turn for a request, and count it."""
        if self.remaining is not None:
            self.remaining -= 1
        turns = request.conversation.turns_since_prompt if request.conversation else 0
        return turn_at(self._script, turns)


class Rules:
    """The rules of one server, the newest first."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a predicate may add a rule
        self._rules: list[Rule] = []

    def add(self, rule: Rule) -> None:
        """Put a rule before those there are."""
        with self._lock:
            self._rules.insert(0, rule)

    def turn_for(self, request: Request) -> Turn | None:
        """Return what the first rule that applies says, or None if none does."""
        with self._lock:  # so that a rule for one request never answers two at the same moment
            for rule in self._rules:
                if rule.applies_to(request):
                    return rule.take(request)
        return None


def script_of(turns: Iterable[Turn | Step | str]) -> Script:
    """Return a script given as turns, as single steps, or as text.

    Raises:
        ScriptError: a text is no script.
    """
    script: list[Turn] = []
    for turn in turns:
        match turn:
            case Turn():
                script.append(turn)
            case str():
                script.extend(parse_turns(turn))
            case _:
                script.append(Turn(turn))
    if not script:
        raise ScriptError("a script has at least one turn")
    return tuple(script)
