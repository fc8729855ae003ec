"""A program that paints a screen as Claude Code does, and answers what stands in its box.

It stands alone. What it is asked decides what it does: `slow`, `long N`, `ask`, `limit`, `die`,
`quick`, `piecemeal`; anything else is said back. Its own manners are set by arguments.
"""

import argparse
import os
import select
import signal
import termios
import textwrap
import time
import tty
from pathlib import Path

PASTE_BEGIN, PASTE_END = "\x1b[200~", "\x1b[201~"
RED, RESET = "\x1b[31m", "\x1b[0m"


class Tui:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.box = ""
        self.pasted = ""  # what stands for itself in the box
        self.keys = ""
        self.height = 0  # of what is painted below the conversation
        self.frame = 0
        self.swallow = options.swallow

    def note(self, text: str) -> None:
        if self.options.log:
            with Path(self.options.log).open("a") as log:
                log.write(text + "\n")

    @property
    def width(self) -> int:
        return os.get_terminal_size(0).columns

    # --------------------------------------------------------------------------------- painting

    def write(self, text: str) -> None:
        data = text.encode()
        while data:
            try:
                data = data[os.write(1, data) :]
            except BlockingIOError:
                select.select([], [1], [], 1)

    def paint(self, *said: str, working: bool = False, dialog: tuple[str, ...] = ()) -> None:
        """Say something more, and paint what stands below it again."""
        rule = "─" * self.width
        if dialog:
            below = [rule, *dialog]
            cursor = 0
        else:
            spinner = [f"✻ Forming… ({self.frame}s · esc to interrupt)", ""] if working else []
            lines = textwrap.wrap(self.box, self.width - 4) or [""]
            box = [f"❯ {lines[0]}", *(f"  {line}" for line in lines[1:])]
            noise = f" {self.frame}" if self.options.noise else ""
            footer = "  esc to interrupt" if working else f"  ? for shortcuts{noise}"
            below = [*spinner, rule, *box, rule, footer]
            cursor = 2
        up = f"\x1b[{self.height}A" if self.height else ""
        lines = [*(line for text in said for line in text.split("\n")), *below]
        text = "\r\n".join(f"{line}\x1b[K" for line in lines)
        column = 2 + len(lines[-3 if not dialog else -1]) - 2
        self.write(f"\x1b[?25l\r{up}\x1b[J{text}\r")
        self.height = len(below) - 1
        if not dialog:
            self.write(f"\x1b[{cursor}A\x1b[{column}C\x1b[?25h")
            self.height -= cursor

    # ----------------------------------------------------------------------------------- typing

    def read(self, seconds: float) -> str:
        if select.select([0], [], [], seconds)[0]:
            data = os.read(0, 65_536).decode(errors="replace")
            self.note(f"keys {data!r}")
            return data
        return ""

    def run(self) -> None:
        self.paint("╭─── Claude Code v2.1.197 ───╮", "│ Welcome back! │", "╰─────╯", "")
        if self.options.late:
            time.sleep(2)
            termios.tcflush(0, termios.TCIFLUSH)  # it does not listen yet
        self.write("\x1b[?2004h")
        while True:
            self.frame += 1
            self.keys += self.read(0.05 if self.options.noise else 5)
            while self.keys:
                self.take()
            if self.options.noise:
                self.paint()

    def take(self) -> None:
        if self.keys.startswith(PASTE_BEGIN):
            while PASTE_END not in self.keys:
                self.keys += self.read(5)
            text, _, self.keys = self.keys[len(PASTE_BEGIN) :].partition(PASTE_END)
            time.sleep(self.options.slow_echo)
            self.pasted += text
            many = text.count("\n")
            self.box += f"[Pasted text #1 +{many} lines]" if many > 2 else text.replace("\n", " ")
        elif self.keys[0] == "\x1b":
            self.keys = ""
        elif self.keys[0] == "\x15":
            self.box, self.pasted, self.keys = "", "", self.keys[1:]
        elif self.keys[0] == "\x7f":
            self.box, self.keys = self.box[:-1], self.keys[1:]
            self.pasted = self.pasted[:-1]
        elif self.keys[0] == "\r":
            self.keys = self.keys[1:]
            if self.swallow:
                self.swallow -= 1
            elif self.box:
                self.submit()
        else:
            self.box += self.keys[0]
            self.pasted += self.keys[0]
            self.keys = self.keys[1:]
        self.paint()

    # ---------------------------------------------------------------------------------- working

    def submit(self) -> None:
        text, self.box, self.pasted = self.pasted, "", ""
        self.note(f"asked {text!r}")
        lines = [line for each in text.split("\n") for line in textwrap.wrap(each, self.width - 4)]
        self.paint(f"❯ {lines[0]}", *(f"  {line}" for line in lines[1:]), "", working=True)
        asked = text.partition("] ")[2]
        if asked == "die":
            os._exit(3)
        if asked != "quick" and not self.work(30 if asked == "slow" else 0.1):
            if self.options.put_back:
                self.box, self.pasted = text.replace("\n", " "), text
                self.paint()
            else:
                self.paint("  ⎿  Interrupted · What should Claude do instead?", "")
            return
        if asked == "ask" and not self.approve():
            self.paint("  ⎿  Interrupted · What should Claude do instead?", "")
            return
        if asked == "piecemeal":
            self.paint("● one", "  two", "  thr", working=True)
            while not Path(self.options.go).exists():
                self.work(0.1)
            self.paint("  four", "")
        elif asked == "limit":
            self.paint(f"{RED}● API Error (429): rate limit reached{RESET}", "")
        elif asked.startswith("long"):
            count = int(asked.split()[1])
            self.paint("● line 0", *(f"  line {number}" for number in range(1, count)), "")
        else:
            said = [f"You said: {line}" for line in asked.split("\n")]
            self.paint(f"● {said[0]}", *(f"  {line}" for line in said[1:]), "")

    def work(self, seconds: float) -> bool:
        """Be at work; return whether nobody interrupted it."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.frame += 1
            self.keys += self.read(0.03)
            if "\x1b" in self.keys and PASTE_BEGIN not in self.keys:
                self.keys = ""
                return False
            self.paint(working=True)
        return True

    def approve(self) -> bool:
        labels = ("Yes", "Yes, and don't ask again for make", "No")
        marked = 0
        while True:
            marks = ["❯" if place == marked else " " for place in range(len(labels))]
            choices = [
                f" {mark} {number}. {label}"
                for number, (mark, label) in enumerate(zip(marks, labels, strict=True), 1)
            ]
            asked = (" Bash command", "", "   make", "", " Do you want to proceed?")
            hint = " Esc to cancel" + (" · Tab to amend" if marked != 1 else "")
            self.paint(dialog=(*asked, *choices, "", hint))
            keys = self.read(5)
            if keys in ("\x1b[A", "\x1b[B"):
                marked = (marked + (1 if keys == "\x1b[B" else -1)) % len(labels)
            elif keys:
                self.note(f"decided {keys!r} at {labels[marked]}")
                return keys[0] == "1" or (keys[0] == "\r" and marked < 2)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--log")
    parser.add_argument("--swallow", type=int, default=0)
    parser.add_argument("--slow-echo", type=float, default=0.0)
    parser.add_argument("--go", default="", help="a file that ends what is said piecemeal")
    parser.add_argument("--noise", action="store_true")
    parser.add_argument("--late", action="store_true")
    parser.add_argument("--put-back", action="store_true")
    options, _ = parser.parse_known_args()  # the rest is what a real one is given
    tui = Tui(options)
    before = termios.tcgetattr(0)
    tty.setraw(0)
    signal.signal(signal.SIGWINCH, lambda *_: tui.paint())
    try:
        tui.run()
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)


if __name__ == "__main__":
    main()
