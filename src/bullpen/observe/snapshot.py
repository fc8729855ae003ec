"""From one look at a tmux pane to who is in it and what that agent is doing."""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

import msgspec

from bullpen.model.states import Provider
from bullpen.observe.pane import PaneVerdict, judge_pane
from bullpen.observe.signature import PaneFacts, Process, classify_pane, is_shell
from bullpen.terminal.rules.engine import Verdict
from bullpen.terminal.rules.format import ProviderRules
from bullpen.terminal.rules.screen import Cursor, Screen, read_screen
from bullpen.terminal.tmux.panes import PaneSnapshot
from bullpen.terminal.tmux.processes import ProcessInfo

__all__ = [
    "Front",
    "Programs",
    "Rules",
    "find_front",
    "has_decisive_tones",
    "judge_front",
    "judge_snapshot",
    "read_front",
]

Rules = Mapping[Provider, ProviderRules]

MOST_COMMAND_LINES = 4096  # whose programs are remembered


class Programs:
    """Knows the agent programs by their command lines, and remembers those it was asked about."""

    def __init__(self, rules: Rules) -> None:
        known = tuple((provider, each.program) for provider, each in rules.items())

        @lru_cache(maxsize=MOST_COMMAND_LINES)
        def ask(argv: tuple[str, ...]) -> Provider | None:
            return classify_pane(
                PaneFacts(arguments=argv, processes=(Process(argv),)), known
            ).provider

        self.provider_of = ask
        """Whose program a command line runs, if it is an agent's and no service of it."""


class Front(msgspec.Struct, frozen=True):
    """Who has the terminal of a pane, as far as the process table tells."""

    process: ProcessInfo | None = None
    """The one in front, which may read from the terminal; an agent, if that started it."""
    agent: ProcessInfo | None = None
    """The agent that has the screen if any has it: the one in front, or the first below that."""
    agents: tuple[ProcessInfo, ...] = ()
    """Every agent in the pane, also in the background, but none that an agent started."""

    @property
    def is_shell(self) -> bool:
        """A shell waits for a command."""
        return self.process is not None and _is_at_prompt(self.process.argv)


def judge_snapshot(
    snapshot: PaneSnapshot, rules: Rules, programs: Programs | None = None
) -> PaneVerdict:
    """Say who is in a pane and what it does, by its processes, its title and its screen."""
    front = read_front(snapshot, programs or Programs(rules))
    return judge_front(snapshot, front, rules)


def judge_front(snapshot: PaneSnapshot, front: Front, rules: Rules) -> PaneVerdict:
    """Say who is in a pane if it is known who has its terminal."""
    info, below = snapshot.info, snapshot.processes
    processes = tuple(Process(each.argv, each.depth) for each in below) if below else None
    screen = _screen(snapshot, front)
    facts = PaneFacts(
        command=info.current_command,
        arguments=front.process.argv if front.process else None,
        processes=() if info.is_dead else processes,
        title=screen.title,
        lines=screen.lines,
    )
    return judge_pane(facts, screen, rules)


def has_decisive_tones(verdict: Verdict | None, rules: Rules) -> bool:
    """Whether a screen that was read without its attributes might be read otherwise with them."""
    if verdict is None:
        return False
    if verdict.prompt == "draft":
        return True  # which may be the program's own words, in grey
    known = rules[verdict.provider].by_priority
    priority = next((rule.priority for rule in known if rule.name == verdict.rule), -1)
    return any(clause.tone for rule in known if rule.priority >= priority for clause in rule.when)


def _screen(snapshot: PaneSnapshot, front: Front) -> Screen:
    info = snapshot.info
    process = front.agent or front.process
    return read_screen(
        "\n".join(snapshot.painted or snapshot.screen),
        cursor=Cursor(info.cursor_x, info.cursor_y, info.is_cursor_visible),
        title=info.title,
        arguments=process.argv if process else (),
    )


# ---------------------------------------------------------------------------------- who is in front


def read_front(snapshot: PaneSnapshot, programs: Programs) -> Front:
    """Find out who has the terminal of a pane."""
    if snapshot.info.is_dead or not snapshot.processes:
        return Front()
    return find_front(snapshot.processes, snapshot.info.tty, programs)


def find_front(below: Sequence[ProcessInfo], tty: str, programs: Programs) -> Front:
    """Find out who among the processes of a pane, parents first, has its terminal.

    An agent that lets an editor have the terminal for a while is still the one in front: whatever
    it started is its own affair. What is on another terminal within the pane is not in front.
    """
    agents = tuple(_topmost(below, programs))
    on_top = _on_top(below, tty)
    if not on_top:
        return Front(agents=agents)
    leader = next((each for each in on_top if programs.provider_of(each.argv)), on_top[0])
    above = set(_ancestors(leader, below))
    # A wrapper in front leaves the screen to what it runs; whether it is one, the signature knows.
    agent = next((each for each in agents if each.pid in above), None)
    if agent is not None:
        return Front(agent, agent, agents)
    agent = next((each for each in agents if leader.pid in _ancestors(each, below)), None)
    return Front(leader, agent, agents)


def _on_top(below: Sequence[ProcessInfo], tty: str) -> list[ProcessInfo]:
    """The processes in front that none of the others in front started."""
    in_front = [each for each in below if each.is_foreground and tty in ("", each.tty)]
    depth = min((each.depth for each in in_front), default=0)
    return [each for each in in_front if each.depth == depth]


def _topmost(below: Sequence[ProcessInfo], programs: Programs) -> Iterator[ProcessInfo]:
    found: set[int] = set()
    for each in below:
        if programs.provider_of(each.argv) and found.isdisjoint(_ancestors(each, below)):
            found.add(each.pid)
            yield each


def _ancestors(process: ProcessInfo, below: Sequence[ProcessInfo]) -> Iterator[int]:
    """The process itself and those above it, up to the pane's own."""
    by_pid = {each.pid: each for each in below}
    pid = process.pid
    while pid in by_pid:
        yield pid
        pid = by_pid.pop(pid).parent_pid


def _is_at_prompt(argv: Sequence[str]) -> bool:
    """Whether a command line is that of a shell which was given nothing to run."""
    if not argv or not is_shell(argv[0]):
        return False
    return all(word.startswith("-") for word in argv[1:]) and "-c" not in argv
