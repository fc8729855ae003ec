"""Programs that take a file of code instead of entries in their settings: it is ours alone."""

import json
from importlib import resources

from bullpen.agents.hooks.errors import MalformedDocumentError
from bullpen.agents.hooks.merge import EventState
from bullpen.agents.hooks.programs import MARK, HookedProgram, Runner

__all__ = ["inspect", "put_in", "take_out"]

_PLACE = "const COMMAND = []"
_MARKED = f"// {MARK}"


def inspect(text: str | None, program: HookedProgram, runner: Runner) -> dict[str, EventState]:
    """Return how it stands with each event: all of them are in the one file."""
    state = EventState.MISSING
    if text is not None:
        flags = _flags(text)
        is_current = text == _written(program, runner, flags)
        state = EventState.INSTALLED if is_current else EventState.OUTDATED
    return dict.fromkeys(program.events, state)


def put_in(
    text: str | None, program: HookedProgram, runner: Runner, *, new_flags: frozenset[str]
) -> str:
    """Return the file as it should be.

    Raises:
        MalformedDocumentError: there is a file of somebody else's.
    """
    return _written(program, runner, new_flags if text is None else _flags(text))


def take_out(text: str) -> tuple[None, frozenset[str]]:
    """Return what is left of the file, which is nothing, and what it had noted.

    Raises:
        MalformedDocumentError: it is somebody else's.
    """
    return None, _flags(text)


def _written(program: HookedProgram, runner: Runner, flags: frozenset[str]) -> str:
    source = resources.files(__package__).joinpath("plugin.js").read_text("utf-8")
    command = [runner.python, "-I", "-S", runner.shim, program.provider.value]
    first = " ".join([_MARKED, *sorted(flags)])
    return f"{first}\n{source.replace(_PLACE, f'const COMMAND = {json.dumps(command)}')}"


def _flags(text: str) -> frozenset[str]:
    mark, _, flags = text.partition("\n")[0].partition(_MARKED)
    if mark or not text.startswith(_MARKED):
        raise MalformedDocumentError(1, 1, "it is not a file of ours")
    return frozenset(flags.split())
