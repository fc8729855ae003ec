"""Which agent program a pane runs, if any.

Four signals speak for a provider, each with a weight; the score is the largest weight that
matched, not a sum. A title never makes an agent of a pane by itself, and what stands on a screen
does so only where an agent could be the one that drew it: below a shell, an editor or a pager, the
text of an agent is a text.

Programs are known by what was executed (`argv[0]`, or the script an interpreter runs), never by a
process's own name: one agent calls itself `MainThread`, others are `node`.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum

import msgspec

from bullpen.model.states import Provider, SignatureClass
from bullpen.model.views import SignatureInputs
from bullpen.terminal.rules.format import Program, compile_pattern

__all__ = [
    "WEIGHT_COMMAND",
    "WEIGHT_PROCESS",
    "WEIGHT_SCREEN",
    "WEIGHT_TITLE",
    "EventIdentity",
    "PaneFacts",
    "Process",
    "Refusal",
    "Signature",
    "classify_event",
    "classify_pane",
    "is_shell",
]

WEIGHT_PROCESS = 1.00
WEIGHT_COMMAND = 0.86
WEIGHT_SCREEN = 0.78
WEIGHT_TITLE = 0.66

_SHELLS = frozenset(
    ("zsh", "bash", "fish", "sh", "dash", "nu", "pwsh", "tcsh", "csh", "ksh", "ash")
)
_RUNTIMES = frozenset(["node", "bun", "deno"])
_INTERPRETERS = _RUNTIMES | {"python", "ruby", "perl"}
# Programs that run another one in their place or below themselves, and leave the screen to it.
_WRAPPERS = frozenset(
    [
        *("env", "sudo", "doas", "nice", "nohup", "time", "timeout", "stdbuf", "script", "setsid"),
        *("systemd-run", "firejail", "bwrap", "sandbox-exec", "caffeinate"),
        *("direnv", "mise", "asdf", "volta", "fnm", "op", "dotenvx"),
        *("npx", "npm", "pnpm", "pnpx", "yarn", "bunx", "uv", "uvx", "pipx"),
    ]
)
_TAKES_VALUE = frozenset(["-r", "--require", "--import", "--loader", "--experimental-loader", "-C"])
_SCRIPTS = (".js", ".mjs", ".cjs", ".ts")
_VERSION = re.compile(r"\d+\.\d+\.\d+\S*")


class Refusal(StrEnum):
    """Why a pane has no signature although something spoke for one."""

    INCONCLUSIVE = "signature_inconclusive"
    GUARD_REJECTED = "signature_guard_rejected"


class Process(msgspec.Struct, frozen=True):
    """One process of a pane. `depth` is 0 for the one the pane was made with."""

    argv: tuple[str, ...]
    depth: int = 0


class PaneFacts(msgspec.Struct, frozen=True):
    """What is known of a pane. None is not known, which is not the same as empty."""

    command: str = ""
    """tmux's `pane_current_command`."""
    arguments: tuple[str, ...] | None = None
    """The command line of the process in front."""
    processes: tuple[Process, ...] | None = None
    title: str = ""
    lines: tuple[str, ...] = ()


class Signature(msgspec.Struct, frozen=True):
    """Which program a pane runs, on what evidence. Without a provider there is no agent in it."""

    provider: Provider | None
    signature_class: SignatureClass
    confidence: float
    reason: str
    inputs: SignatureInputs = SignatureInputs()
    refusal: Refusal | None = None


class EventIdentity(msgspec.Struct, frozen=True):
    """What an event of an agent's own must carry to tell beyond doubt whose it is."""

    provider: Provider | None = None
    source_kind: str | None = None
    pane_instance_id: str | None = None
    session_key: str | None = None
    source_event_id: str | None = None
    event_time: float | None = None


def classify_event(event: EventIdentity) -> Signature:
    """Return a deterministic signature if nothing that identifies the event is missing."""
    missing = [name for name in event.__struct_fields__ if getattr(event, name) in (None, "")]
    if missing:
        reason = f"the event has no {', '.join(missing)}"
        return _nothing(reason, refusal=Refusal.INCONCLUSIVE)
    return Signature(
        event.provider, SignatureClass.DETERMINISTIC, 1.0, f"reported by {event.source_kind}"
    )


def classify_pane(facts: PaneFacts, programs: Iterable[tuple[Provider, Program]]) -> Signature:
    """Choose the provider whose signals weigh most, or none."""
    if facts.processes is not None and not facts.processes:
        return _nothing("no process is left in the pane")
    candidates = [_weigh(facts, provider, program) for provider, program in programs]
    best = max(
        candidates, key=lambda each: each.confidence, default=_nothing("no provider is known")
    )
    if best.provider is None:
        return best
    return _guard(facts, best)


def is_shell(command: str) -> bool:
    """Whether a command is a shell, however it is called: `-zsh`, `/usr/local/bin/fish`, `Bash`."""
    return _basename(command) in _SHELLS


def _nothing(
    reason: str,
    *,
    inputs: SignatureInputs | None = None,
    refusal: Refusal | None = None,
) -> Signature:
    return Signature(None, SignatureClass.NONE, 0.0, reason, inputs or SignatureInputs(), refusal)


# -------------------------------------------------------------------------------------- signals


def _weigh(facts: PaneFacts, provider: Provider, program: Program) -> Signature:
    process = next(filter(None, (_runs(argv, program) for argv in _in_front(facts))), "")
    command = _named_by_command(facts, provider, program)
    screen = _first_match(program.tokens, "\n".join(facts.lines))
    title = _first_match(program.titles, facts.title)
    signals = [
        (WEIGHT_PROCESS, process, "the process in front is"),
        (WEIGHT_COMMAND, command, "the current command is"),
        (WEIGHT_SCREEN, screen, "the screen shows"),
        (WEIGHT_TITLE, title, "the title is"),
    ]
    inputs = SignatureInputs(bool(process), bool(command), bool(screen), bool(title))
    for weight, found, words in signals:
        if found:
            reason = f"{words} {found!r}"
            return Signature(provider, SignatureClass.HEURISTIC, weight, reason, inputs)
    return _nothing("nothing speaks for an agent")


def _guard(facts: PaneFacts, best: Signature) -> Signature:
    """Refuse what a text that merely mentions an agent would look like, too."""
    if best.inputs.provider_hint or best.inputs.cmd_match:
        return best
    command = facts.command or (facts.arguments[0] if facts.arguments else "")
    name = _basename(command)
    refusal = None
    if not best.inputs.poller_match:
        why = "a title alone is no evidence"
        refusal = Refusal.GUARD_REJECTED if name in _RUNTIMES else Refusal.INCONCLUSIVE
    elif name in _SHELLS:
        why = f"a shell, {name}, is in front"
        refusal = Refusal.GUARD_REJECTED
    elif name and name not in _RUNTIMES:
        why = f"{name} is in front, which is no runtime of agents"
        refusal = Refusal.GUARD_REJECTED
    elif name and facts.arguments is not None and not _script(facts.arguments):
        why = f"{name} is in front without a script, which is no agent"
        refusal = Refusal.GUARD_REJECTED
    else:
        return best
    return _nothing(f"{best.reason}, but {why}", inputs=best.inputs, refusal=refusal)


def _in_front(facts: PaneFacts) -> Iterator[tuple[str, ...]]:
    """The command lines of the programs that may own the screen.

    It is the one in front; if that only runs another one, it may be any below it. What a shell at
    its prompt has below itself runs in the background, and what an editor has runs within.
    """
    front = facts.arguments
    processes = facts.processes or ()
    if front is None:
        yield from (process.argv for process in _leading(processes))
        return
    if not front:
        return
    yield front
    if _leaves_the_screen(front):
        depth = next((each.depth for each in processes if each.argv == front), -1)
        yield from (each.argv for each in processes if each.depth > depth)


def _leading(processes: Sequence[Process]) -> Iterator[Process]:
    """Processes from the pane's own downwards, until one keeps the screen to itself."""
    for process in sorted(processes, key=lambda each: each.depth):
        yield process
        if not is_shell(process.argv[0] if process.argv else "") and not _leaves_the_screen(
            process.argv
        ):
            return


def _leaves_the_screen(argv: Sequence[str]) -> bool:
    if not argv:
        return False
    name = _basename(argv[0])
    if name in _SHELLS:
        return _script(argv) != "" or "-c" in argv
    return name in _WRAPPERS


def _runs(argv: Sequence[str], program: Program) -> str:
    """What in a command line is the program; nothing if it is another one, or a service of it."""
    if not argv:
        return ""
    executed = argv[0]
    rest = list(argv[1:])
    if not _is_program(executed, program):
        if _basename(executed) not in _WRAPPERS | _INTERPRETERS:
            return ""
        executed = _script(argv)
        if not executed or not _is_program(executed, program):
            return ""
        rest = list(argv[argv.index(executed) + 1 :])
    if rest and rest[0] in program.services:
        return ""
    return executed


def _is_program(path: str, program: Program) -> bool:
    name = _basename(path)
    if name in program.names:
        return True
    inside = f"/{path}/"
    is_in_package = any(f"/{package}/" in inside for package in program.packages)
    return is_in_package and (name.endswith(_SCRIPTS) or bool(_VERSION.fullmatch(name)))


def _named_by_command(facts: PaneFacts, provider: Provider, program: Program) -> str:
    if facts.arguments and facts.arguments[1:2] and facts.arguments[1] in program.services:
        return ""
    is_named = _basename(facts.command) in program.names
    # Claude's executable may be a file named after its version. If more is known, that decides.
    is_version = (
        provider is Provider.CLAUDE
        and facts.arguments is None
        and _VERSION.fullmatch(facts.command)
    )
    return facts.command if is_named or is_version else ""


def _first_match(patterns: Sequence[str], text: str) -> str:
    for pattern in map(compile_pattern, patterns):
        if isinstance(pattern, str):
            if pattern in text:
                return pattern
        elif found := pattern.search(text):
            return found[0].strip()
    return ""


def _script(argv: Sequence[str]) -> str:
    """The first argument that is no option: what an interpreter or wrapper is to run."""
    arguments = iter(argv[1:])
    for argument in arguments:
        if argument in _TAKES_VALUE:
            next(arguments, None)
        elif argument in ("-e", "--eval", "-c", "-i"):
            return argument if argument != "-i" else ""
        elif not argument.startswith("-") and "=" not in argument.partition("/")[0]:
            return argument
    return ""


def _basename(command: str) -> str:
    name = command.rpartition("/")[2].lower()
    name = name.removeprefix("-")
    return re.sub(r"^(python|ruby|perl)[\d.]+$", r"\1", name)
