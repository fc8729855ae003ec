"""An agent is found by what runs in a pane; text that mentions one makes no agent."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.model.states import Provider, SignatureClass
from bullpen.model.views import SignatureInputs
from bullpen.observe.signature import (
    EventIdentity,
    PaneFacts,
    Process,
    Refusal,
    Signature,
    classify_event,
    classify_pane,
    is_shell,
)
from bullpen.terminal.rules import shipped_rules
from tests.terminal.recorded import labels, screen

CLAUDE_SCREEN = ("╭─── Claude Code v2.1.197 ───╮", "❯")
CLAUDE_TITLE = "✳ Claude Code"
EVENT = EventIdentity(
    provider=Provider.CLAUDE,
    source_kind="claude_hooks",
    pane_instance_id="%1/1",
    session_key="s",
    source_event_id="e",
    event_time=1.0,
)


def classify(
    command: str = "",
    *argv: str,
    title: str = "",
    lines: tuple[str, ...] = (),
    processes: tuple[Process, ...] | None = None,
) -> Signature:
    facts = PaneFacts(command, argv or None, processes, title, lines)
    return classify_pane(facts, [(each, r.program) for each, r in shipped_rules().items()])


@pytest.mark.requirement("SIG-1")
def test_an_event_with_all_that_identifies_it_is_deterministic() -> None:
    signature = classify_event(EVENT)
    assert signature.signature_class is SignatureClass.DETERMINISTIC
    assert (signature.provider, signature.confidence) == (Provider.CLAUDE, 1.0)


@pytest.mark.requirement("SIG-2")
@pytest.mark.parametrize("field", EventIdentity.__struct_fields__)
def test_an_event_that_lacks_any_of_it_is_inconclusive(field: str) -> None:
    facts = {name: getattr(EVENT, name) for name in EVENT.__struct_fields__ if name != field}
    signature = classify_event(EventIdentity(**facts))
    assert signature.signature_class is SignatureClass.NONE
    assert signature.refusal is Refusal.INCONCLUSIVE
    assert field in signature.reason


@pytest.mark.requirement("SIG-3")
@pytest.mark.parametrize(
    ("provider", "argv"),
    [
        ("claude", ["claude"]),
        ("claude", ["/opt/bin/claude", "--resume"]),
        ("claude", ["node", "/x/node_modules/@anthropic-ai/claude-code/cli.js"]),
        ("claude", ["/home/me/.local/share/claude/versions/2.1.325", "--resume"]),
        ("claude", ["claude", "100"]),  # exec -a claude sleep 100
        ("codex", ["node", "/x/node_modules/.bin/codex"]),
        ("codex", ["node", "--no-warnings", "-r", "x.js", "/x/@openai/codex/bin/codex.js"]),
        ("codex", ["/x/vendor/x86_64-unknown-linux-musl/bin/codex", "resume"]),
        ("gemini", ["node", "--max-old-space-size=4096", "/x/.bin/gemini"]),
        ("gemini", ["/usr/bin/node", "/x/@google/gemini-cli/dist/index.js"]),
        ("copilot", ["/x/@github/copilot-linux-x64/copilot"]),
        ("opencode", ["opencode"]),
        ("claude", ["env", "A=1", "claude"]),
        ("claude", ["npx", "-y", "claude"]),
    ],
)
def test_the_process_in_front_names_the_provider(provider: str, argv: list[str]) -> None:
    signature = classify("node", *argv)
    assert (signature.provider, signature.confidence) == (provider, 1.0)
    assert signature.inputs.provider_hint


@pytest.mark.requirement("SIG-3")
def test_an_agent_below_a_wrapper_in_front_is_found() -> None:
    script = Process(("bash", "./start-agent.sh"), 1)
    processes = (Process(("zsh",), 0), script, Process(("claude",), 2))
    assert classify("bash", *script.argv, processes=processes).provider == "claude"


@pytest.mark.parametrize(
    "front",
    [["bash", "-i"], ["-zsh"], ["nvim"], ["less", "claude"], ["python3", "orchestrate.py"]],
    ids=" ".join,
)
def test_an_agent_in_the_background_or_within_another_program_is_not_the_panes(
    front: list[str],
) -> None:
    processes = (Process(tuple(front), 0), Process(("claude",), 1))
    assert classify(front[0], *front, processes=processes).provider is None


@pytest.mark.parametrize(
    "argv",
    [
        ["vim", "codex.md"],
        ["vim", "/home/me/claude/notes"],
        ["tail", "-f", "claude"],
        ["bash", "./copilot.sh"],
        ["python3", "claude.py"],
        ["node", "/home/me/codex/server.js"],
        ["codex", "app-server"],
        ["claude", "mcp", "serve"],
        ["gemini", "--acp"],
        ["opencode", "serve", "--port", "1"],
        ["copilot", "--version"],
        ["./1.2.3"],
    ],
    ids=" ".join,
)
def test_a_path_or_a_service_of_that_name_is_no_agent(argv: list[str]) -> None:
    command = argv[0].removeprefix("./")
    assert classify(command, *argv, title="a title", lines=("text",)).provider is None


@pytest.mark.requirement("SIG-4")
@pytest.mark.parametrize(
    ("command", "provider"),
    [("claude", "claude"), ("codex", "codex"), ("opencode", "opencode"), ("2.1.11", "claude")],
)
def test_the_current_command_names_the_provider(command: str, provider: str) -> None:
    signature = classify(command)
    assert (signature.provider, signature.confidence) == (provider, 0.86)
    assert signature.inputs == SignatureInputs(cmd_match=True)


@pytest.mark.requirement("SIG-5", "DET-1", "DET-4")
@pytest.mark.parametrize("command", ["node", "bun", "deno"])
def test_the_screen_of_a_runtime_names_the_provider(command: str) -> None:
    signature = classify(command, command, "main.js", lines=CLAUDE_SCREEN)
    assert (signature.provider, signature.confidence) == ("claude", 0.78)
    assert signature.inputs == SignatureInputs(poller_match=True)


@pytest.mark.requirement("SIG-6")
def test_a_title_only_supports_what_else_was_found() -> None:
    signature = classify("node", "node", "x.js", title=CLAUDE_TITLE, lines=CLAUDE_SCREEN)
    assert signature.confidence == 0.78
    assert signature.inputs == SignatureInputs(poller_match=True, title_match=True)


@pytest.mark.requirement("SIG-7")
def test_the_score_is_the_largest_weight_and_no_sum() -> None:
    signature = classify("claude", "claude", title=CLAUDE_TITLE, lines=CLAUDE_SCREEN)
    assert signature.confidence == 1.0
    assert signature.inputs == SignatureInputs(True, True, True, True)


@pytest.mark.requirement("SIG-7")
def test_the_heavier_signal_decides_between_two_providers() -> None:
    assert classify("node", "node", "/x/.bin/codex", lines=CLAUDE_SCREEN).provider == "codex"


@pytest.mark.requirement("SIG-8")
@pytest.mark.parametrize("command", ["vim", "htop", "less", "", "zsh", "python3"])
def test_a_title_alone_makes_no_agent(command: str) -> None:
    signature = classify(command, title=CLAUDE_TITLE)
    assert signature.provider is None
    assert signature.inputs == SignatureInputs(title_match=True)
    assert "a title alone is no evidence" in signature.reason


@pytest.mark.requirement("SIG-9")
@pytest.mark.parametrize("command", ["node", "bun", "deno"])
def test_a_title_over_a_bare_runtime_is_rejected(command: str) -> None:
    assert classify(command, title=CLAUDE_TITLE).refusal is Refusal.GUARD_REJECTED


@pytest.mark.requirement("DET-2")
@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("Welcome to claude code", True),
        ("╭ Claude Code", True),
        ("╭────────╮", False),
        ("╭─ lazygit ─╮", False),
        ("claude", False),
    ],
)
def test_claude_is_known_by_its_name_and_not_by_its_box(line: str, found: bool) -> None:
    assert (classify("node", "node", "x.js", lines=(line,)).provider == "claude") is found


@pytest.mark.requirement("DET-3")
@pytest.mark.parametrize(("line", "found"), [("codex> ", True), ("fix codex tests", False)])
def test_codex_is_known_by_its_prompt_and_not_by_its_name(line: str, found: bool) -> None:
    assert (classify("node", "node", "x.js", lines=(line,)).provider == "codex") is found


@pytest.mark.parametrize("argv", [["node"], ["node", "-i"], ["bun"]])
def test_a_runtime_without_a_script_is_a_console(argv: list[str]) -> None:
    assert classify(argv[0], *argv, lines=CLAUDE_SCREEN).refusal is Refusal.GUARD_REJECTED


@pytest.mark.requirement("DET-5", "DET-6")
@pytest.mark.parametrize(
    "shell",
    ["zsh", "bash", "fish", "sh", "dash", "nu", "pwsh", "tcsh", "csh", "ksh", "ash"],
)
def test_a_shell_with_what_an_agent_left_behind_is_a_shell(shell: str) -> None:
    assert is_shell(shell)
    assert classify(shell, title=CLAUDE_TITLE).provider is None
    assert classify(shell, title=CLAUDE_TITLE, lines=CLAUDE_SCREEN).provider is None


@pytest.mark.requirement("DET-7")
@pytest.mark.parametrize("command", ["-zsh", "/usr/local/bin/fish", "Bash", "/bin/SH", "-/bin/ksh"])
def test_a_shell_is_known_however_it_is_called(command: str) -> None:
    assert is_shell(command)


@pytest.mark.parametrize("command", ["zshx", "bash.py", "fish-taco", ""])
def test_what_only_looks_like_a_shell_is_none(command: str) -> None:
    assert not is_shell(command)


def test_a_dead_pane_has_no_agent_whatever_is_left_of_it() -> None:
    left = classify("claude", title=CLAUDE_TITLE, lines=CLAUDE_SCREEN, processes=())
    assert left.provider is None
    assert left.signature_class is SignatureClass.NONE


@pytest.mark.parametrize(
    "command", ["vim", "nvim", "less", "man", "htop", "python3", "ipython", "tail", "git", "watch"]
)
def test_no_recorded_screen_makes_an_agent_of_another_program(command: str) -> None:
    for label in labels():
        shown = screen(label)
        signature = classify(command, command, "x", title=shown.title, lines=shown.lines)
        assert signature.provider is None, label.file


@given(
    command=st.text(max_size=20),
    argv=st.none() | st.lists(st.text(max_size=20), max_size=3),
    title=st.text(max_size=40),
    lines=st.lists(st.text(max_size=40), max_size=4),
)
def test_any_pane_gets_an_answer(
    command: str, argv: list[str] | None, title: str, lines: list[str]
) -> None:
    processes = None if argv is None else (Process(tuple(argv)),)
    signature = classify(
        command, *(argv or ()), title=title, lines=tuple(lines), processes=processes
    )
    assert (signature.provider is None) == (signature.confidence == 0.0)
    assert signature.reason
