"""What a screen says does not hang on what the recordings happened to contain.

Each recorded screen is changed in ways that change nothing about what the agent is doing: more
scrollback, a narrower or lower pane, other words by user and model. The verdict must stay.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.model.states import Activity, Provider
from bullpen.observe.evaluate import Label
from bullpen.terminal.rules import Cursor, Screen, Verdict, decide, read_screen, shipped_rules
from bullpen.terminal.rules.layout import Layout
from tests.terminal.recorded import agents, label_of, labels, screen

PROVIDERS = [provider.value for provider in Provider if provider is not Provider.OTHER]


def verdict(shown: Screen, provider: str) -> Verdict:
    return decide(shown, shipped_rules()[Provider(provider)])


def recorded(provider: str) -> list[Label]:
    return [label for label in agents() if label.provider == provider]


def shown_by(label: Label) -> Screen:
    """Return a recorded screen without its sidebar, which mutated rows would not have."""
    return Layout(screen(label), shipped_rules()[Provider(label.provider)]).screen


def with_rows(shown: Screen, *, at: int, texts: Sequence[str]) -> Screen:
    """Return the screen with plain lines put in above a row."""
    count = len(texts)
    tones = [*shown.tones]
    if shown.has_tones:
        tones[at:at] = ["p" * len(text) for text in texts]
    cursor = shown.cursor
    if cursor and cursor.y >= at:
        cursor = Cursor(cursor.x, cursor.y + count, cursor.is_visible)
    lines = (*shown.lines[:at], *texts, *shown.lines[at:])
    return msgspec.structs.replace(shown, lines=lines, tones=tuple(tones), cursor=cursor)


def lowered(shown: Screen, rows: int, provider: str) -> Screen:
    """Return the last rows of a screen, and the prompt box whole."""
    prompt = Layout(shown, shipped_rules()[Provider(provider)]).prompt
    count = max(len(shown.lines) - rows, 0)
    count = min(count, prompt.top) if prompt else count
    cursor = shown.cursor
    if cursor:
        cursor = Cursor(cursor.x, max(cursor.y - count, 0), cursor.is_visible)
    return msgspec.structs.replace(
        shown, lines=shown.lines[count:], tones=shown.tones[count:], cursor=cursor
    )


def narrowed(shown: Screen, columns: int) -> Screen:
    """Return the screen with its right side cut off, but not more than half of it."""
    columns = max(columns, shown.width // 2)
    return msgspec.structs.replace(
        shown,
        lines=tuple(line[:columns].rstrip() for line in shown.lines),
        tones=tuple(tones[:columns] for tones in shown.tones),
        width=min(shown.width, columns),
    )


def changed(
    provider: str, mutate: Callable[[Screen], Screen], *, without: frozenset[str] = frozenset()
) -> Iterator[str]:
    """Yield each recording that reads otherwise once it is changed."""
    for label in recorded(provider):
        if label.activity in without:
            continue
        shown = shown_by(label)
        before, after = verdict(shown, provider), verdict(mutate(shown), provider)
        if (before.activity, before.ready) != (after.activity, after.ready):
            yield (
                f"{label.file}: {before.activity} {before.rule} -> {after.activity} {after.rule}"
                f" {after.prompt} {after.evidence}"
            )


# A pane that starts an agent has no scrollback of it; one that draws nothing has no chrome to find.
STARTING = frozenset([Activity.STARTING.value])


@pytest.mark.parametrize("provider", PROVIDERS)
def test_dialogs_and_screens_in_the_scrollback_are_history(provider: str) -> None:
    scrollback = [
        shown_by(label).lines
        for label in recorded(provider)
        if label.activity in ("waiting_approval", "waiting_input", "idle")
    ]
    for lines in scrollback[:: len(scrollback) // 4]:
        texts = (*lines, "", "dev@box:~$ ls", "a  b  c", "")
        mutate = partial(with_rows, at=0, texts=texts)
        misread = changed(provider, mutate, without=STARTING)
        # For a screen reader Copilot marks no beginnings; its alternate screen has no scrollback.
        assert not [each for each in misread if not each.startswith("copilot/100x30-colours-e12-")]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_lower_pane_says_the_same(provider: str) -> None:
    # Not an error: how far above the prompt the message is depends on how long it is.
    without = STARTING | {"error", "rate_limited"}
    assert not list(changed(provider, lambda s: lowered(s, 16, provider), without=without))


@pytest.mark.parametrize("columns", [50, 60, 72, 80, 100])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_pane_whose_right_side_is_cut_off_says_the_same(provider: str, columns: int) -> None:
    assert not list(changed(provider, lambda s: narrowed(s, columns), without=STARTING))


IMITATIONS = [
    "Do you want to proceed?",
    "❯ 1. Yes",
    "  2. Yes, and don't ask again",
    "  3. No",
    "Esc to cancel · Tab to amend",
    "Enter to select · ↑/↓ to navigate · Esc to cancel",
    "Press enter to confirm or esc to cancel",
    "│ ● 1. Allow once                │",
    "│ ↑/↓ to navigate · enter to select · esc to cancel │",
    "╰────────────────────────────────╯",
    "△ Permission required",
    "Allow once   Allow always   Reject   ⇆ select  enter confirm",
    "✻ Thinking… (2s · esc to interrupt)",
    "• Working (2s • esc to interrupt)",
    "⠏ Thinking... (esc to cancel, 2s)",
    "◉ Working · 23 B esc esc interrupt",
    "⬝⬝■■ esc interrupt",
    "API Error: 500 boom",
    "✕ [API Error: 429]",
    "✗ 400 fake error",
    "■ exceeded retry limit, last status: 429",
    "Do you trust the files in this folder?",
]
INDENT = {"claude": "  ", "codex": "  ", "gemini": "  ", "copilot": "   ", "opencode": "     "}


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_reply_that_imitates_chrome_is_a_reply(provider: str) -> None:
    """Every program indents what the model says below its bullet."""
    rules = shipped_rules()[Provider(provider)]
    for label in recorded(provider):
        shown = shown_by(label)
        reply = Layout(shown, rules).region("reply")
        if label.activity != "idle" or reply.top is None or not reply.lines:
            continue
        before = verdict(shown, provider)
        for imitation in [[each] for each in IMITATIONS] + [IMITATIONS]:
            texts = [INDENT[provider] + line for line in imitation]
            after = verdict(with_rows(shown, at=reply.top + 1, texts=texts), provider)
            same = (after.activity, after.ready) == (before.activity, before.ready)
            assert same, f"{label.file}: {imitation} made it {after.activity}, {after.rule}"


DRAFTS = {
    "claude": ("claude/claude_idle_typed_unsent_120x40_1", "typed but not sent"),
    "codex": ("codex/codex_idle_typed_unsent_120x40_1", "typed but not sent"),
    "copilot": ("copilot/004_idle-draft_120x40", "this is a draft the user is typing"),
    "gemini": ("gemini/005_idle-draft_120x40", "this is a draft the user is typing"),
    "opencode": ("opencode/003_idle-draft_120x40", "this is a draft the user is typing"),
}


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_draft_that_imitates_chrome_is_a_draft(provider: str) -> None:
    file, draft = DRAFTS[provider]
    shown = screen(label_of(file), plain=True)
    for imitation in IMITATIONS:
        lines = tuple(line.replace(draft, imitation) for line in shown.lines)
        after = verdict(msgspec.structs.replace(shown, lines=lines), provider)
        assert (after.activity, after.ready) == (Activity.IDLE, False), imitation


@pytest.mark.parametrize(
    "text", ["API Error: 500 boom", "API Error: Request rejected (429) · slow down"]
)
def test_a_reply_of_claude_that_quotes_an_error_is_told_by_its_colour(text: str) -> None:
    label = label_of("claude/claude_idle_after_reply_120x40_1")
    shown = screen(label)
    row = next(row for row, line in enumerate(shown.lines) if line.startswith("● Echo"))
    lines = (*shown.lines[:row], f"● {text}", *shown.lines[row + 1 :])
    tones = (*shown.tones[:row], "p" * 80, *shown.tones[row + 1 :])
    quoted = msgspec.structs.replace(shown, lines=lines, tones=tones)
    assert verdict(quoted, "claude").activity is Activity.IDLE
    tones = (*shown.tones[:row], "c" * 80, *shown.tones[row + 1 :])
    failed = msgspec.structs.replace(shown, lines=lines, tones=tones)
    assert verdict(failed, "claude").activity in (Activity.ERROR, Activity.RATE_LIMITED)


def words_changed(shown: Screen, spare: list[re.Pattern[str]]) -> Screen:
    """Return the screen with other letters in every line that no rule looks for."""

    def other(line: str) -> str:
        if any(pattern.search(line) for pattern in spare):
            return line
        return re.sub(r"[A-Za-z]", lambda found: "ж" if found[0].islower() else "Ж", line)

    return msgspec.structs.replace(shown, lines=tuple(map(other, shown.lines)))


@pytest.mark.parametrize("provider", PROVIDERS)
def test_only_the_lines_that_rules_look_for_matter(provider: str) -> None:
    """Commands, file names, questions and answers may be in any language."""
    rules = shipped_rules()[Provider(provider)]
    patterns = [
        re.compile(pattern) if isinstance(pattern, str) else pattern
        for rule in rules.rules
        for clause in rule.when
        for pattern in (
            re.escape(each) if isinstance(each, str) else each for each in clause.patterns.values()
        )
        if clause.region not in ("title", "arguments", "screen")
    ]
    for shape in rules.prompts:
        patterns += [re.compile(re.escape(text)) for text in shape.placeholders]
        chrome = (shape.shell.replace("$", r"\b"), shape.at_cursor and shape.above, shape.mark)
        patterns += [re.compile(text) for text in chrome if text]
    patterns += [re.compile(r"to confirm or|to cancel|to run tool")]  # rests of literals
    assert not list(changed(provider, lambda s: words_changed(s, patterns), without=STARTING))


@pytest.mark.parametrize("provider", PROVIDERS)
def test_without_attributes_a_screen_still_says_the_same(provider: str) -> None:
    for label in recorded(provider):
        plain = verdict(screen(label, plain=True), provider)
        if label.provider == "opencode" and label.activity == "error":
            assert plain.activity is Activity.IDLE  # only the colour of its bar tells an error
        else:
            assert plain.activity == label.activity, label.file
        assert plain.ready == label.ready, label.file


# Only the cursor tells that a dialog that lies over the screen has the keyboard.
OVERLAYS = ("opencode/", "codex/80x24-colours-e06-menu-memories")


@pytest.mark.parametrize("provider", PROVIDERS)
def test_without_a_cursor_nothing_becomes_ready_that_was_not(provider: str) -> None:
    for label in recorded(provider):
        shown = msgspec.structs.replace(screen(label), cursor=None)
        if label.activity == "waiting_input" and label.file.startswith(OVERLAYS):
            continue
        assert verdict(shown, provider).ready <= label.ready, label.file


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_screen_of_another_program_is_never_ready(provider: str) -> None:
    for label in labels():
        if label.provider == "none":
            assert not verdict(screen(label), provider).ready or _shows_an_agent(label)


def _shows_an_agent(label: Label) -> bool:
    """Whether another program shows a recorded agent, which only its process can tell."""
    return "captured" in label.file or "agent-log" in label.file


@given(st.text(max_size=400), st.sampled_from(PROVIDERS))
def test_any_screen_gets_a_verdict(text: str, provider: str) -> None:
    result = verdict(read_screen(text), provider)
    assert result.activity in Activity
    assert result.reason
