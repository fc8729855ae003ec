"""Who has the terminal of a pane, by the process table."""

import msgspec
import pytest

from bullpen.model.states import Activity, Provider
from bullpen.observe.evaluate import facts_of
from bullpen.observe.pane import judge_pane
from bullpen.observe.snapshot import (
    Front,
    Programs,
    find_front,
    has_decisive_tones,
    judge_snapshot,
)
from bullpen.terminal.rules import shipped_rules
from bullpen.terminal.rules.engine import Verdict
from bullpen.terminal.rules.format import Rule
from bullpen.terminal.tmux import Capture, PaneInstance, PaneSnapshot, ProcessInfo
from tests.terminal.recorded import labels, screen
from tests.terminal.tmux.listed import SERVER, pane

RULES = shipped_rules()
PROGRAMS = Programs(RULES)
TTY = "/dev/pts/3"


def process(
    pid: int, parent: int, command: str, *, depth: int, front: bool = False, tty: str = TTY
) -> ProcessInfo:
    return ProcessInfo(
        pid=pid,
        parent_pid=parent,
        group=pid,
        argv=tuple(command.split()),
        tty=tty,
        start=f"start{pid}",
        is_foreground=front,
        depth=depth,
    )


def front_of(*below: ProcessInfo) -> Front:
    return find_front(below, TTY, PROGRAMS)


def pid(process: ProcessInfo | None) -> int | None:
    return process.pid if process else None


def judged(*below: ProcessInfo, command: str = "", lines: tuple[str, ...] = ()) -> Provider | None:
    info = pane(current_command=command, tty=TTY)
    capture = Capture(lines, 0)
    instance = PaneInstance(SERVER, "%3", 1, 0.0, below[0].pid if below else 0)
    return judge_snapshot(PaneSnapshot(info, instance, capture, below), RULES).provider


def test_the_agent_in_front_of_a_shell_is_in_front() -> None:
    front = front_of(process(1, 0, "-zsh", depth=0), process(2, 1, "claude", depth=1, front=True))
    assert (pid(front.process), pid(front.agent)) == (2, 2)
    assert not front.is_shell


@pytest.mark.requirement("TR-06", "DET-5")
def test_a_shell_at_its_prompt_is_in_front_though_an_agent_is_stopped_behind_it() -> None:
    below = (process(1, 0, "-zsh", depth=0, front=True), process(2, 1, "claude", depth=1))
    front = front_of(*below)
    assert pid(front.process) == 1
    assert front.is_shell
    assert [each.pid for each in front.agents] == [2]
    assert judged(*below, command="zsh") is None


def test_a_job_in_the_background_does_not_hide_the_agent_in_front() -> None:
    below = (
        process(1, 0, "bash", depth=0),
        process(2, 1, "sleep 100", depth=1),
        process(
            3, 1, "node /usr/lib/node_modules/@google/gemini-cli/dist/index.js", depth=1, front=True
        ),
    )
    assert pid(front_of(*below).agent) == 3
    assert judged(*below, command="node") is Provider.GEMINI


def test_what_an_agent_lets_have_the_terminal_is_its_own_affair() -> None:
    below = (
        process(1, 0, "bash", depth=0),
        process(2, 1, "claude", depth=1),
        process(3, 2, "vim /tmp/prompt.md", depth=2, front=True),
    )
    front = front_of(*below)
    assert (pid(front.process), pid(front.agent)) == (2, 2)
    assert judged(*below, command="vim") is Provider.CLAUDE


@pytest.mark.requirement("TG-7")
def test_an_agent_within_the_terminal_of_an_editor_has_not_the_pane() -> None:
    below = (
        process(1, 0, "nvim", depth=0, front=True),
        process(2, 1, "zsh", depth=1, tty="/dev/pts/9"),
        process(3, 2, "claude", depth=2, front=True, tty="/dev/pts/9"),
    )
    assert pid(front_of(*below).process) == 1
    assert judged(*below, command="nvim") is None


def test_the_agent_at_the_end_of_a_pipe_is_in_front() -> None:
    below = (
        process(1, 0, "bash", depth=0),
        process(2, 1, "yes", depth=1, front=True),
        process(3, 1, "codex exec -", depth=1, front=True),
    )
    assert pid(front_of(*below).agent) == 3
    assert judged(*below, command="yes") is Provider.CODEX


@pytest.mark.requirement("TR-09")
def test_the_agent_below_a_script_in_front_is_found_with_its_own_arguments() -> None:
    below = (
        process(1, 0, "bash", depth=0),
        process(2, 1, "bash /usr/local/bin/my-agent", depth=1, front=True),
        process(3, 2, "codex exec --json", depth=2, front=True),
        process(4, 3, "npm exec some-server", depth=3, front=True),
    )
    front = front_of(*below)
    assert (pid(front.process), pid(front.agent)) == (2, 3)
    assert not front.is_shell
    assert judged(*below, command="bash") is Provider.CODEX


def test_an_agent_that_an_agent_started_is_not_counted() -> None:
    front = front_of(
        process(1, 0, "claude", depth=0, front=True),
        process(2, 1, "codex exec review", depth=1, front=True),
    )
    assert [each.pid for each in front.agents] == [1]


@pytest.mark.parametrize("command", ["codex app-server", "claude mcp serve", "vim codex.md"])
@pytest.mark.requirement("TR-10")
def test_a_service_or_a_file_of_that_name_is_no_agent(command: str) -> None:
    assert PROGRAMS.provider_of(tuple(command.split())) is None


@pytest.mark.parametrize(
    ("command", "is_shell"),
    [("-zsh", True), ("bash -l", True), ("bash -c x", False), ("sh run.sh", False), ("vim", False)],
)
def test_a_shell_waits_for_a_command_if_it_was_given_none(command: str, is_shell: bool) -> None:
    assert front_of(process(1, 0, command, depth=0, front=True)).is_shell is is_shell


def test_without_processes_nobody_is_known_to_be_in_front() -> None:
    assert front_of() == Front()


# ------------------------------------------------------------------------------------- attributes


def test_attributes_are_asked_for_wherever_they_make_a_difference() -> None:
    asked = 0
    for label in labels():
        plain, painted = screen(label, plain=True), screen(label)
        first = judge_pane(facts_of(label, plain), plain, RULES)
        second = judge_pane(facts_of(label, painted), painted, RULES)
        is_asked = has_decisive_tones(first.verdict, RULES)
        asked += is_asked
        if not is_asked:
            assert (first.activity, first.is_ready) == (second.activity, second.is_ready), (
                label.file
            )
    assert 0 < asked < 0.75 * len(labels())


@pytest.mark.parametrize("rule", [rule for each in RULES.values() for rule in each.rules])
def test_attributes_decide_where_a_rule_that_asks_for_them_could_win(rule: Rule) -> None:
    provider = next(key for key, each in RULES.items() if rule in each.rules)
    could_win = [each for each in RULES[provider].rules if each.priority >= rule.priority]
    expected = any(clause.tone for each in could_win for clause in each.when)
    verdict = Verdict(provider, rule.activity, False, rule.reason, "empty", rule.name)
    assert has_decisive_tones(verdict, RULES) is expected


def test_attributes_decide_whether_the_words_in_the_box_are_anybody_s() -> None:
    verdict = Verdict(Provider.GEMINI, Activity.IDLE, False, "", "draft", "idle")
    assert has_decisive_tones(verdict, RULES)
    assert not has_decisive_tones(msgspec.structs.replace(verdict, prompt="empty"), RULES)
    assert not has_decisive_tones(None, RULES)
