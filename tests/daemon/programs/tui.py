"""A program that looks like Claude Code and can be as difficult as agent programs are.

It stands alone and is run under the name of an agent: `python -I DIRECTORY/claude --log FILE`. What
is submitted to it goes to the log, a JSON string per line; what is typed into its dialog as well,
with `dialog:` before it. It obeys words that are written into its log's neighbour, `FILE.do`.
"""

import argparse
import codecs
import json
import os
import re
import select
import signal
import sys
import termios
import time
import tty
from pathlib import Path

RED, GREEN, RESET = "\x1b[31m", "\x1b[32m", "\x1b[0m"
PASTE = re.compile(r"\x1b\[200~(.*?)\x1b\[201~", re.DOTALL)
BURST_SECONDS = 0.02
BOX_ROWS = 12  # of what is typed, the last are shown


class Program:
    """Its screen is drawn anew after everything that happens."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.history = [f"{GREEN}╭─── Claude Code v2.1.197 ───╮{RESET}"]
        self.box = ""
        self.shown = ""  # of the box: echo may be slow
        self.shows_at = 0.0
        self.last_input = 0.0
        self.swallowed = 0
        self.dialog = False
        self.works_until = 0.0
        self.answer = ""
        self.prompt = ""
        self.done = 0  # commands that were obeyed

    def run(self) -> None:
        if not self.options.no_brackets:
            os.write(1, b"\x1b[?2004h")
        signal.signal(signal.SIGWINCH, lambda *_: None)
        pending, decoder = "", codecs.getincrementaldecoder("utf-8")()
        self.draw()
        while True:
            ready, _, _ = select.select([0], [], [], 0.02)
            if ready:
                data = os.read(0, 1 << 16)
                if not data:
                    return
                pending = self.take(pending + decoder.decode(data))
            self.obey()
            self.tick()

    # ------------------------------------------------------------------------------------- keys

    def take(self, keys: str) -> str:
        while keys:
            if keys.startswith("\x1b[200~"):
                if not (paste := PASTE.match(keys)):
                    return keys
                self.paste(paste[1].replace("\r", "\n"))
                keys = keys[paste.end() :]
            else:
                self.key(keys[0])
                keys = keys[1:]
        return ""

    def paste(self, text: str) -> None:
        if self.options.exit_on_paste:
            sys.exit(0)
        self.box += text
        self.last_input = time.monotonic()
        self.shows_at = self.last_input + self.options.echo_delay
        if self.options.dialog_on_paste:
            self.dialog = True
        if self.options.typed_along:
            self.box += self.options.typed_along
        self.draw()

    def key(self, key: str) -> None:
        if self.dialog:
            self.log(f"dialog:{key!r}")
        elif key == "\r":
            self.enter()
        elif key == "\x1b":
            self.escape()
        elif key == "\x15":
            self.box = ""
        elif key.isprintable() or key == "\n":
            self.box += key
        self.draw()

    def enter(self) -> None:
        if time.monotonic() - self.last_input < BURST_SECONDS:
            self.box += "\n"  # as Codex does
        elif self.swallowed < self.options.swallow:
            self.swallowed += 1
        elif self.box:
            self.submit()

    def submit(self) -> None:
        self.prompt, self.box = self.box, ""
        self.log(self.prompt)
        if self.options.exit_on_enter:
            sys.exit(0)
        first, *rest = self.prompt.split("\n")
        self.history += ["", f"❯ {first}", *(f"  {line}" for line in rest), ""]
        self.works_until = time.monotonic() + self.options.work
        self.answer = self.options.reply
        self.dialog = self.options.dialog_on_enter

    def escape(self) -> None:
        if not self.works_until:
            return
        self.works_until = 0.0
        if self.options.put_back:
            self.box = self.prompt
            del self.history[-3 - self.prompt.count("\n") :]
        else:
            self.history += ["  ⎿  Interrupted · What should Claude do instead?", ""]

    # -------------------------------------------------------------------------------- what it does

    def obey(self) -> None:
        path = Path(f"{self.options.log}.do")
        words = path.read_text().split("\n")[:-1] if path.exists() else []
        for word in words[self.done :]:
            self.done += 1
            if word == "dialog":
                self.dialog = True
            elif word == "no-dialog":
                self.dialog = False
            elif word == "work":
                self.works_until = time.monotonic() + 600
            elif word == "rest":
                self.works_until = time.monotonic()
            elif word == "exit":
                sys.exit(0)
            self.draw()

    def tick(self) -> None:
        if self.works_until and time.monotonic() >= self.works_until:
            self.works_until = 0.0
            if self.options.error:
                self.history += [f"{RED}● {self.options.error}{RESET}", ""]
            elif self.answer:
                first, *rest = self.answer.split("\n")
                self.history += [f"● {first}", *(f"  {line}" for line in rest), ""]
            self.draw()
        elif self.shown != self.box:
            self.draw()

    def log(self, text: str) -> None:
        with Path(self.options.log).open("a", encoding="utf-8") as file:
            file.write(json.dumps(text) + "\n")

    # ----------------------------------------------------------------------------------- drawing

    def draw(self) -> None:
        width, height = os.get_terminal_size()
        if time.monotonic() >= self.shows_at:
            self.shown = "" if self.options.hides and "\n" in self.box else self.box
        rule = "─" * width
        title, status = "✳ work", "  ? for shortcuts"
        lines = list(self.history)
        if self.works_until:
            lines += ["✻ Forming… (3s · esc to interrupt)", ""]
            title, status = "⠂ work", "  esc to interrupt"
        if self.dialog:
            asks = (
                " Bash command\n\n   make test\n\n Do you want to proceed?\n ❯ 1. Yes\n   2. No\n"
            )
            lines += [rule, *asks.split("\n"), " Esc to cancel"]
            cursor = (1, len(lines))
        else:
            box = self.shown
            if self.options.placeholder and box.count("\n") > 2:
                box = f"[Pasted text #1 +{box.count(chr(10))} lines]"
            step = width // 2 - 4  # a character may fill two cells
            rows = [
                line[at : at + step]
                for line in box.split("\n")
                for at in range(0, max(len(line), 1), step)
            ][-BOX_ROWS:]
            lines += [rule, f"❯ {rows[0]}", *(f"  {row}" for row in rows[1:])]
            cursor = (min(2 * len(rows[-1]), width - 4) + 3, len(lines))
            lines += [rule, status]
        above = max(0, len(lines) - height)
        text = "\r\n".join(lines[above:])
        place = f"\x1b[{cursor[1] - above};{cursor[0]}H"
        os.write(1, f"\x1b]2;{title}\x07\x1b[H\x1b[2J{text}{place}".encode())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--log", required=True)
    parser.add_argument("--reply", default="Done.")
    parser.add_argument("--error", default="")
    parser.add_argument("--work", type=float, default=0.3)
    parser.add_argument("--echo-delay", type=float, default=0.0)
    parser.add_argument("--swallow", type=int, default=0)
    parser.add_argument("--typed-along", default="")
    for flag in (
        *("--no-brackets", "--placeholder", "--dialog-on-paste", "--exit-on-paste"),
        *("--exit-on-enter", "--put-back", "--hides", "--dialog-on-enter"),
    ):
        parser.add_argument(flag, action="store_true")
    settings = termios.tcgetattr(0)
    tty.setraw(0)
    try:
        Program(parser.parse_args()).run()
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, settings)
        os.write(1, b"\x1b[?2004l\r\n")


if __name__ == "__main__":
    main()
