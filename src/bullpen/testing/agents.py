"""Agents that only pretend: programs that draw what real ones show, state by state.

    python -m bullpen.testing.agents install DIRECTORY    # claude, codex, gemini and so on
    python -I DIRECTORY/claude --task 'Mend the cart'     # then a state on each line of its input
    python -I DIRECTORY/codex --life 2                    # lives by itself, from its third phase on

An agent is known by the name of the program that runs, so each is this file under another name. It
stands alone: it needs nothing but Python, and calls nobody. Its states are the words of `Activity`;
`exit` ends it. While it lives by itself, the enter key takes it to its next phase at once.
"""

import argparse
import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

__all__ = ["LIFE", "NAMES", "STATES", "Drawing", "draw", "install", "main"]

NAMES = ("claude", "codex", "gemini", "copilot", "opencode")
STATES = (
    *("starting", "running", "idle", "waiting_input", "waiting_approval"),
    *("rate_limited", "error"),
)
LIFE = (
    ("running", 7.0),
    ("waiting_approval", 8.0),
    ("running", 5.0),
    ("idle", 8.0),
    ("running", 4.0),
    ("error", 5.0),
    ("running", 4.0),
    ("waiting_input", 7.0),
    ("rate_limited", 5.0),
    ("idle", 6.0),
    ("exit", 0.0),
)
"""What an agent lives through, and how long each phase takes."""

FRAME_SECONDS = 0.5
STARTING_SECONDS = 1.5

RED, GREY, RESET = "\x1b[31m", "\x1b[90m", "\x1b[0m"
CURSOR = "\0"  # where the cursor is, in a drawing that has one
SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


class Drawing(NamedTuple):
    """What is on the screen: its lines, where the cursor is, and the title."""

    lines: tuple[str, ...]
    cursor: tuple[int, int] | None
    """Column and row, from 0; None if it is hidden."""
    title: str


def draw(name: str, state: str, *, task: str = "", width: int = 80, frame: int = 0) -> Drawing:
    """Return what an agent shows while it is in a state. `frame` counts while something moves."""
    if state == "starting":
        return Drawing((), (0, 0), "")
    body, title = _SCREENS[name](state, task or "Mend the cart", width, frame)
    lines = body.split("\n")
    for row, line in enumerate(lines):
        if CURSOR in line:
            lines[row] = line.replace(CURSOR, "")
            return Drawing(tuple(lines), (line.index(CURSOR), row), title)
    return Drawing(tuple(lines), None, title)


def install(directory: Path) -> None:
    """Put one program for each agent into a directory."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in NAMES:
        (directory / name).symlink_to(Path(__file__).resolve())


# ---------------------------------------------------------------------------------------- screens


def _claude(state: str, task: str, width: int, frame: int) -> tuple[str, str]:
    rule = "─" * width
    head = f"╭─── Claude Code v2.1.197 {'─' * (width - 28)}╮\n│{'Welcome back!':^{width - 2}}│\n"
    head += f"╰{'─' * (width - 2)}╯\n\n❯ {task}\n\n"
    prompt = f"{rule}\n❯ {CURSOR}\n{rule}\n  "
    ready = f"{prompt}? for shortcuts"
    title = f"✳ {task}"
    if state == "running":
        star = "·✢✳✶✻✽"[frame % 6]
        spinner = f"{star} Forming… ({frame // 2}s · esc to interrupt)\n\n"
        return f"{head}{spinner}{prompt}esc to interrupt", f"{'⠂⠐'[frame % 2]} {task}"
    if state == "waiting_approval":
        choices = " ❯ 1. Yes\n   2. Yes, and don't ask again\n   3. No\n\n"
        asks = f" Bash command\n\n   make test\n\n Do you want to proceed?\n{choices}"
        return f"{head}● Running 1 shell command…\n\n{rule}\n{asks} Esc to cancel", title
    if state == "waiting_input":
        choices = "❯ 1. Postgres\n  2. SQLite\n  3. Type something.\n"
        asks = f" ☐ Database\n\nWhich database?\n\n{choices}{rule}\n  4. Chat about this\n\n"
        return f"{head}{rule}\n{asks}Enter to select · ↑/↓ to navigate · Esc to cancel", title
    said = {
        "error": f"{RED}● API Error: Unable to connect to API (ECONNRESET){RESET}",
        "rate_limited": f"{RED}● API Error (429): rate limit reached{RESET}",
    }.get(state, "● Done. All tests pass.")
    return f"{head}{said}\n\n✻ Cooked for 7s\n\n{ready}", title


def _codex(state: str, task: str, width: int, frame: int) -> tuple[str, str]:
    del width
    head = f"  >_ OpenAI Codex (v0.166.0)\n\n› {task}\n\n"
    prompt = f"› {CURSOR}{GREY}Ask Codex to do anything{RESET}\n\n  GPT-5.5 default\n"
    if state == "running":
        working = f"• Working ({frame // 2}s • esc to interrupt)\n\n"
        return head + working + prompt, f"{SPINNER[frame % len(SPINNER)]} {task}"
    if state == "waiting_approval":
        choices = "› 1. Yes, proceed (y)\n  2. No, and tell Codex what to do differently (esc)\n\n"
        asks = "  Would you like to run the following command?\n\n  $ make test\n\n"
        keys = "  Press enter to confirm or esc to cancel"
        return f"{head}{asks}{choices}{keys}", f"[ {'!.'[frame % 2]} ] Action Required | {task}"
    if state == "waiting_input":
        asks = "  Question 1/1 (1 unanswered)\n  Which database?\n\n"
        choices = "  › 1. Postgres  the one we have\n    2. SQLite    a new one\n\n"
        keys = "  tab to add notes | enter to submit answer | esc to interrupt"
        return f"{head}{asks}{choices}{keys}", f"[ {'!.'[frame % 2]} ] Action Required | {task}"
    said = {
        "error": f"{RED}■ There is a high demand just now.{RESET}",
        "rate_limited": f"{RED}■ You have hit your usage limit.{RESET}",
    }.get(state, "• Done. All tests pass.\n\n  Worked for 7s")
    return f"{head}{said}\n\n{prompt}", task


def _gemini(state: str, task: str, width: int, frame: int) -> tuple[str, str]:
    inner = width - 4
    head = f"  ▗▟▀    Gemini CLI v0.61.0\n\n > {task}\n\n"
    prompt = f"{'─' * width}\n Shift+Tab to accept edits\n\n"
    prompt += (
        f" > {CURSOR}  {GREY}Type your message or @path/to/file{RESET}\n\n workspace  no sandbox"
    )
    if state == "running":
        spinner = f" {SPINNER[frame % len(SPINNER)]} Thinking... (esc to cancel, {frame // 2}s)\n"
        return head + spinner + prompt, f"✦  Working… ({task})"
    if state in ("waiting_approval", "waiting_input"):
        asks, *choices = {
            "waiting_approval": ("Allow execution of [Shell]?", "Allow once", "No (esc)"),
            "waiting_input": ("Which database?", "Postgres", "SQLite"),
        }[state]
        inside = [asks, "", f"● 1. {choices[0]}", f"  2. {choices[1]}"]
        if state == "waiting_input":
            inside += ["", "Enter to select · ↑/↓ to navigate · Esc to cancel"]
        lines = "".join(f"│ {line:{inner}} │\n" for line in inside)
        edge = "─" * (width - 2)
        return f"{head}╭{edge}╮\n{lines}╰{edge}╯", f"✋  Action Required ({task})"
    said = {
        "error": f"{RED}✕ [API Error: the request was refused]{RESET}",
        "rate_limited": f"{RED}✕ [API Error: 429 RESOURCE_EXHAUSTED: quota exceeded]{RESET}",
    }.get(state, "✦ Done. All tests pass.")
    return f"{head}{said}\n\n{prompt}", f"◇  Ready ({task})"


def _copilot(state: str, task: str, width: int, frame: int) -> tuple[str, str]:
    rule, inner, edge = "─" * width, width - 4, "─" * (width - 2)
    head = f"  █ ▘▝ █  Copilot v1.0.102 uses AI.\n\n ❯ {task}\n\n"
    prompt = f"{rule}\n❯ {CURSOR}\n{rule}\n"
    title = f"{task} - GitHub Copilot"
    if state == "running":
        return f"{head} ○ Reading\n\n{prompt} {'◉◎'[frame % 2]} Working esc interrupt", title
    if state == "waiting_approval":
        inside = ["make test", "", "Do you want to run this command?", "", "❯ 1. Yes", "  2. No"]
        inside += ["", "↑/↓ to navigate · enter to select · esc to cancel"]
        lines = "".join(f"│ {line:{inner}} │\n" for line in inside)
        return f"{head}╭{edge}╮\n{lines}╰{edge}╯", title
    if state == "waiting_input":
        asks = (
            f"{rule}\n Copilot needs information.\n Which database?\n\n ❯ Postgres\n   SQLite\n\n"
        )
        return (
            f"{head}{asks} ↑/↓ select · enter accept · ctrl+d decline · esc cancel\n{rule}",
            title,
        )
    said = {
        "error": f"{RED} ✗ 500 the server failed{RESET}",
        "rate_limited": f"{RED} ✗ 429 Too Many Requests{RESET}",
    }.get(state, " ● Done. All tests pass.")
    return f"{head}{said}\n\n{prompt} ← open sidebar · Interactive · / commands", title


def _opencode(state: str, task: str, width: int, frame: int) -> tuple[str, str]:
    bar = "  ┃"
    head = f"{bar}\n{bar}  {task}\n{bar}\n\n"
    box = f"{bar}\n{bar}  {CURSOR}\n{bar}\n{bar}  Build · fake-model\n  ╹{'▀' * (width - 4)}\n"
    title = f"OC | {task}"
    if state == "running":
        blocks = ("■" * (1 + frame % 8)).ljust(8, "⬝")
        return f"{head}     ▣  Build · fake-model\n\n{box}   {blocks}  esc interrupt", title
    if state == "waiting_approval":
        asks = (
            f"{bar}  △ Permission required\n{bar}    # Shell command\n{bar}\n{bar}  $ make test\n"
        )
        choices = f"{bar}\n{bar}   Allow once   Allow always   Reject   ⇆ select  enter confirm\n"
        return f"{head}{bar}\n{asks}{choices}{bar}", title
    if state == "waiting_input":
        asks = f"{bar}  Which database\n{bar}\n{bar}  1. Postgres\n{bar}  2. SQLite\n{bar}\n"
        return f"{head}{bar}\n{asks}{bar}  ↑↓ select  enter submit  esc dismiss\n{bar}", title
    block = {"error": "the server failed", "rate_limited": "429 Too Many Requests"}.get(state)
    if block is not None:
        red = f"{RED}{bar}{RESET}"
        said = f"{red}\n{red}  {block}\n{red}\n\n     ▣  Build · fake-model"
    else:
        said = "     Done. All tests pass.\n\n     ▣  Build · fake-model · 7.2s"
    return f"{head}{said}\n\n{box}   tab agents  ctrl+p commands", title


_SCREENS: dict[str, Callable[[str, str, int, int], tuple[str, str]]] = {
    "claude": _claude,
    "codex": _codex,
    "gemini": _gemini,
    "copilot": _copilot,
    "opencode": _opencode,
}


# -------------------------------------------------------------------------------------- the program


def main(arguments: list[str] | None = None) -> int:
    """Be an agent, or install them; return the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    name = Path(sys.argv[0]).name
    if name not in NAMES:
        return _install(arguments)
    parser = argparse.ArgumentParser(prog=name, description="pretend to be an agent")
    parser.add_argument("--task", default="", help="what it is said to work on")
    parser.add_argument("--life", type=int, help="live by itself, beginning with this phase")
    options = parser.parse_args(arguments)
    with _terminal(), suppress(KeyboardInterrupt, BrokenPipeError):
        if options.life is None:
            _obey(name, options.task)
        else:
            _live(name, options.task, options.life)
    return 0


def _install(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bullpen.testing.agents", description=__doc__)
    parser.add_argument("command", choices=["install"])
    parser.add_argument("directory", type=Path)
    install(parser.parse_args(arguments).directory)
    return 0


def _obey(name: str, task: str) -> None:
    """Be in whatever state the input says, line by line, to its end."""
    _show(draw(name, "starting", task=task))
    state, frame = "starting", 0
    while True:
        line = _line_within(FRAME_SECONDS)
        if line == "" or (line or "").strip() == "exit":
            return
        if line is not None and line.strip() in STATES:
            state, frame = line.strip(), 0
        frame += 1
        _show(draw(name, state, task=task, width=_width(), frame=frame))


def _live(name: str, task: str, first: int) -> None:
    """Live through the phases, beginning with one of them, to the end of a life."""
    _show(draw(name, "starting", task=task))
    time.sleep(STARTING_SECONDS)
    for state, seconds in LIFE[first % len(LIFE) :]:
        if state == "exit":
            return
        frame, until = 0, time.monotonic() + seconds
        while time.monotonic() < until:
            _show(draw(name, state, task=task, width=_width(), frame=frame))
            line = _line_within(FRAME_SECONDS)
            if line == "":  # nobody is there any more
                return
            if line is not None:
                break
            frame += 1


def _line_within(seconds: float) -> str | None:
    """Return the next line of input; None if there is none in time, empty at its end."""
    readable, _, _ = select.select([sys.stdin], [], [], seconds)
    return sys.stdin.readline() if readable else None


def _show(drawing: Drawing) -> None:
    lines = "".join(f"{line}{RESET}\x1b[K\r\n" for line in drawing.lines)
    cursor = "\x1b[?25l"
    if drawing.cursor is not None:
        column, row = drawing.cursor
        cursor = f"\x1b[{row + 1};{column + 1}H\x1b[?25h"
    sys.stdout.write(f"\x1b[?25l\x1b[H{lines.removesuffix(chr(10)).removesuffix(chr(13))}\x1b[J")
    sys.stdout.write(f"\x1b]2;{drawing.title}\x1b\\{cursor}")
    sys.stdout.flush()


def _width() -> int:
    with suppress(OSError):  # nobody may be looking
        return max(60, os.get_terminal_size(sys.stdout.fileno()).columns)
    return 80


@contextmanager
def _terminal() -> Iterator[None]:
    """Let nobody's typing be seen, as long as it lasts."""
    if not sys.stdin.isatty():
        yield
        return
    import termios

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    quiet = [*before[:3], before[3] & ~termios.ECHO, *before[4:]]
    termios.tcsetattr(descriptor, termios.TCSADRAIN, quiet)
    try:
        yield
    finally:
        sys.stdout.write("\x1b[H\x1b[J\x1b[?25h\x1b]2;\x1b\\")
        sys.stdout.flush()
        with suppress(OSError, termios.error):
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


if __name__ == "__main__":
    sys.exit(main())
