"""64 sessions streaming over one connection, live in the terminal.

A second process plays the agents: it speaks Copilot CLI's server protocol as `bullpen.testing`
has it, at the pace of a model. This process opens one connection to it, shares the connection
between all sessions with `MessageRouter`, and draws what each session is doing beside the router's
own figures. It needs no network, no account and no model.

    python examples/sixty_four_sessions.py --seconds 10
    python examples/sixty_four_sessions.py --sessions 200 --speed 3
    python examples/sixty_four_sessions.py --seconds 5 --json
    NO_COLOR=1 python examples/sixty_four_sessions.py
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import math
import os
import random
import signal
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator
from enum import Enum
from types import TracebackType
from typing import Any, NamedTuple, Self

from bullpen.connection import ContentLengthFramer, StdioTransport, SubprocessTransport
from bullpen.connection.channel import SessionChannel
from bullpen.connection.errors import RouterStopped, SessionFailed
from bullpen.connection.routed import PendingToolCall
from bullpen.connection.router import MessageRouter
from bullpen.testing.cli_server import Asked, FakeCliServer, FakeSession

TEAMS = ("parse", "query", "app", "docs", "infra", "tests", "audit", "ship")
MODELS = {"deep": 9.0, "large": 16.0, "small": 28.0, "swift": 45.0}  # tokens in a second
SAMPLE_SECONDS = 0.1  # how often the figures are taken and the screen is drawn
WINDOW = 20  # samples that a rate is taken over

SAID = """\
The lexer keeps one token too many. I move the check before the loop and run the tests again.
Two of the cases fail because the fixture is shared, so each test gets a directory of its own.
This index is built twice; the second time is for a sort nobody uses. I remove it and measure.
The retry never gives up. A bound of five with a pause that doubles is enough for this service.
Reading the file in one go costs 40 MB here. Line by line it is 3, and the time is the same.
The name says what it returns but not when. I call it last_seen and the comment can go.
Nothing waits for this task, so its failure is never heard. A task group fixes both.
The page loads its font before its text. I change the order and the first paint is earlier.
"""


# The second process: a server that answers at the pace of a model


class PacedServer(FakeCliServer):
    """Answers every prompt of every session by itself, each session at the pace of its model."""

    def __init__(self, speed: float) -> None:
        super().__init__()
        self._speed = speed

    def open_session(self, asked: Asked, session_id: str | None = None) -> FakeSession:
        session = super().open_session(asked, session_id)
        session.connection.spawn(self._play(session), name="play")
        return session

    async def _play(self, session: FakeSession) -> None:
        dice = random.Random(session.session_id)  # noqa: S311 - a show, not a secret
        said = itertools.cycle(SAID.split())
        for _ in range(dice.randrange(200)):
            next(said)
        while True:
            words = int((await session.prompted()).split()[0])
            session.begin_turn()
            await self._pause(dice.uniform(0.2, 1.6))
            if dice.random() < 0.03:
                session.error("model overloaded", status=529)
                session.idle()
                continue
            calls_tool_at = dice.randrange(words) if dice.random() < 0.3 else None
            for number in range(words):
                piece = {"messageId": f"m{len(session.prompts)}", "deltaContent": next(said) + " "}
                await session.emit_patiently("assistant.message_delta", piece)
                await self._pause(dice.uniform(0, 2 / MODELS[session.model]))
                if number == calls_tool_at:
                    await session.call_tool("run_tests", {"path": "tests/"})
            session.end_turn()
            session.idle()

    async def _pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds / self._speed)


async def serve(speed: float) -> None:
    await PacedServer(speed).serve(StdioTransport(framer=ContentLengthFramer()))


# The sessions


class State(Enum):
    """What a session is doing: symbol, word and colour."""

    STARTING = ("○", "starting", "dim")
    THINKING = ("◔", "thinking", "yellow")
    WRITING = ("●", "writing", "green")
    TOOL = ("◆", "tool", "magenta")
    IDLE = ("✓", "idle", "cyan")
    FAILED = ("✗", "failed", "red")


class Session:
    """One session, and what there is to show of it."""

    def __init__(self, number: int, of: int, router: MessageRouter, speed: float) -> None:
        team_size = math.ceil(of / len(TEAMS))
        self.team = TEAMS[number // team_size]
        self.name = f"{self.team}-{number % team_size + 1}"
        self.model = list(MODELS)[number % len(MODELS)]
        self.state = State.STARTING
        self.text = ""
        self.words = 0  # of this turn, so far
        self.words_asked = 1
        self.samples: deque[int] = deque([0] * WINDOW, maxlen=WINDOW)
        self._tokens_since_sample = 0
        self._router = router
        self._delay = number / of  # so that one can watch them come
        self._dice = random.Random(number)  # noqa: S311
        self._speed = speed
        self.channel: SessionChannel | None = None

    @property
    def rate(self) -> float:
        """Tokens in a second."""
        return sum(self.samples) / (len(self.samples) * SAMPLE_SECONDS)

    def take_sample(self) -> int:
        tokens, self._tokens_since_sample = self._tokens_since_sample, 0
        self.samples.append(tokens)
        return tokens

    async def run(self, done: Counter[str]) -> None:
        """Open the session and ask for one answer after the other."""
        await asyncio.sleep(self._delay)
        session_id, self.channel = await self._router.create_session({"model": self.model})
        async with self.channel as channel:
            while True:
                self.words, self.words_asked = 0, self._dice.randint(30, 160)
                self.text, self.state = "", State.THINKING
                prompt = f"{self.words_asked} words on the work of {self.team}"
                await self._router.request(
                    "session.send", {"sessionId": session_id, "prompt": prompt}
                )
                try:
                    await self._read_turn(channel, done)
                    done["turns"] += 1
                except SessionFailed as failure:  # the next turn may do better
                    self.state, self.text = State.FAILED, failure.message
                    done["errors"] += 1
                await asyncio.sleep(self._dice.uniform(0.5, 3) / self._speed)

    async def _read_turn(self, channel: SessionChannel, done: Counter[str]) -> None:
        outcome = await channel.read_streaming_for_tools(self._hear)
        while isinstance(outcome, PendingToolCall):
            self.state = State.TOOL
            await asyncio.sleep(self._dice.uniform(0.5, 2) / self._speed)
            await channel.answer_tool_call(outcome.call, "12 passed")
            done["tool_calls"] += 1
            outcome = await channel.read_streaming_for_tools(self._hear)
        self.state = State.IDLE

    def _hear(self, piece: str) -> None:
        self.state = State.WRITING
        self.words += 1
        self._tokens_since_sample += 1
        self.text = (self.text + piece)[-200:]


# The figures


class Wire:
    """Counts what comes in; the transport tells it of every byte."""

    def __init__(self) -> None:
        self.bytes = 0

    def __call__(self, direction: str, data: bytes) -> None:
        if direction == "in":
            self.bytes += len(data)


class Figures:
    """What is counted while the sessions run."""

    def __init__(self, router: MessageRouter, sessions: list[Session], wire: Wire) -> None:
        self.sessions = sessions
        self.done: Counter[str] = Counter()
        self._wire = wire
        self.most_queued = 0
        self.most_open = 0
        self._router = router
        self._started, self._processor_started = time.monotonic(), time.process_time()
        self._events: deque[tuple[float, int, int]] = deque(maxlen=WINDOW)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started

    @property
    def processor_percent(self) -> float:
        return 100 * (time.process_time() - self._processor_started) / self.seconds

    def take_sample(self) -> None:
        stats = self._router.stats()
        self._events.append((time.monotonic(), stats.events, self._wire.bytes))
        self.most_open = max(self.most_open, stats.routes)
        for session in self.sessions:
            self.done["tokens"] += session.take_sample()
            if session.channel is not None:
                most = session.channel.stats().most_queued_events
                self.most_queued = max(self.most_queued, most)

    def lately(self) -> tuple[float, float]:
        """Return events and bytes in a second."""
        (then, events, size), (now, more_events, more) = self._events[0], self._events[-1]
        seconds = max(now - then, SAMPLE_SECONDS)
        return (more_events - events) / seconds, (more - size) / seconds

    def as_dict(self) -> dict[str, Any]:
        stats = self._router.stats()
        seconds = self.seconds
        return {
            "connections": 1,
            "sessions_open": stats.routes,
            "most_sessions_open": self.most_open,
            "seconds": round(seconds, 2),
            "events": stats.events,
            "events_per_second": round(stats.events / seconds, 1),
            "bytes": self._wire.bytes,
            "tokens": self.done["tokens"],
            "turns": self.done["turns"],
            "tool_calls": self.done["tool_calls"],
            "errors": self.done["errors"],
            "queued_events": stats.queued_events,
            "queued_bytes": stats.queued_bytes,
            "most_queued_events": self.most_queued,
            "unknown_events": stats.unknown_events,
            "refused_requests": stats.refused_requests,
            "processor_percent": round(self.processor_percent, 1),
        }

    def as_chips(self) -> list[tuple[str, str]]:
        """Return names and values for the head of the screen."""
        stats = self._router.stats()
        events, size = self.lately()
        return [
            ("sessions", f"{stats.routes} open"),
            ("events", f"{stats.events:,}"),
            ("events/s", f"{events:,.0f}"),
            ("received", as_size(self._wire.bytes)),
            ("bytes/s", as_size(size)),
            ("queued", f"{stats.queued_events} (at most {self.most_queued} in one)"),
            ("held", str(stats.held_messages)),
            ("unknown", str(stats.unknown_events)),
            ("refused", str(stats.refused_requests)),
            ("turns", f"{self.done['turns']:,}"),
            ("tools", str(self.done["tool_calls"])),
            ("processor", f"{self.processor_percent:.0f} %"),
        ]


def as_size(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


# Drawing


class Style:
    """Colours, unless there are to be none."""

    CODES = {  # noqa: RUF012 - a table
        "bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "magenta": "35",
        "cyan": "36",
    }  # fmt: skip

    def __init__(self, is_coloured: bool) -> None:
        self._is_coloured = is_coloured

    def paint(self, text: str, *styles: str) -> str:
        codes = ";".join(self.CODES[style] for style in styles)
        return f"\x1b[{codes}m{text}\x1b[0m" if self._is_coloured and codes else text


class Layout(NamedTuple):
    """How many cells stand side by side, how high each is, and whether teams have a title."""

    columns: int
    height: int
    has_titles: bool


CELL_WIDTH = 20  # at least


def choose_layout(teams: list[int], width: int, height: int) -> Layout:
    """Return the roomiest layout in which all sessions fit, or the tightest there is."""
    columns = max(1, min(8, width // CELL_WIDTH))
    for cell_height, has_titles in itertools.product((4, 3, 2, 1), (True, False)):
        groups = teams if has_titles else [sum(teams)]
        rows = sum(math.ceil(count / columns) * cell_height + has_titles for count in groups)
        if rows <= height:
            break
    return Layout(columns, cell_height, has_titles)


class View:
    """Makes the lines of the screen."""

    def __init__(self, figures: Figures, style: Style, title: str, seconds: float) -> None:
        self._figures = figures
        self._paint = style.paint
        self._title = title
        self._seconds = seconds

    def lines(self, width: int, height: int) -> list[str]:
        head = [*self._head(width), ""]
        room = max(0, height - len(head) - 1)
        body = list(self._body(width, room))
        foot = " Ctrl-C ends."
        if len(body) > room:
            foot += " There are more sessions than fit: make the window larger."
        body = body[:room] + [""] * (room - len(body))
        return [*head, *body, self._paint(foot[:width], "dim")][:height]

    def _head(self, width: int) -> Iterator[str]:
        left = f" {self._title}"
        right = f"  {as_time(self._figures.seconds)} of {as_time(self._seconds)} "
        yield self._paint(fit(left, width - len(right)), "bold") + self._paint(right, "dim")
        yield from self._flow(
            [(f"{name} {value}", f"{self._paint(name, 'dim')} {self._paint(value, 'bold')}")
             for name, value in self._figures.as_chips()],
            width,
        )  # fmt: skip
        counts = Counter(session.state for session in self._figures.sessions)
        yield from self._flow(
            [(text := f"{state.value[0]} {state.value[1]} {counts[state]:2}",
              self._paint(text, state.value[2])) for state in State],
            width,
        )  # fmt: skip

    @staticmethod
    def _flow(chips: list[tuple[str, str]], width: int) -> Iterator[str]:
        """Put chips, each given plain and painted, on as many lines as they need."""
        line, length = "", 0
        for plain, painted in chips:
            if length and length + len(plain) + 3 >= width:
                yield line
                line, length = "", 0
            line += (" " if not length else "   ") + painted
            length += (1 if not length else 3) + len(plain)
        yield line

    def _body(self, width: int, height: int) -> Iterator[str]:
        sessions = self._figures.sessions
        teams = [list(members) for _, members in itertools.groupby(sessions, lambda s: s.team)]
        layout = choose_layout([len(members) for members in teams], width, height)
        cell_width = width // layout.columns
        for members in teams if layout.has_titles else [sessions]:
            if layout.has_titles:
                yield self._team_title(members, width)
            for start in range(0, len(members), layout.columns):
                row = members[start : start + layout.columns]
                gap = 1 if layout.height == 1 else 2
                cells = [self._cell(session, cell_width - gap, layout.height) for session in row]
                for parts in zip(*cells, strict=True):
                    yield " " + (" " * gap).join(parts)

    def _team_title(self, members: list[Session], width: int) -> str:
        writing = sum(session.state is State.WRITING for session in members)
        right = f" {writing} writing · {sum(s.rate for s in members):3.0f} tok/s "
        left = f" {members[0].team} "
        rule = "─" * (width - len(left) - len(right))
        return self._paint(left, "bold") + self._paint(rule + right, "dim")

    def _cell(self, session: Session, width: int, height: int) -> list[str]:
        symbol, word, colour = session.state.value
        paint = self._paint
        if height == 1:
            name = paint(fit(session.name, width - 11), "bold")
            return [f"{paint(symbol, colour)} {name} {paint(fit(word, 8), colour)}"]
        rate = f"{session.rate:.0f}/s" if session.rate >= 0.5 else ""
        first = (
            f"{paint(symbol, colour)} {paint(fit(session.name, width - 3 - len(rate)), 'bold')}"
            f" {paint(rate, 'dim')}"
        )
        if height == 2:
            return [first, f"{paint(fit(word, 8), colour)} {paint(tail(session.text, width - 9))}"]
        model = paint(session.model.rjust(width - 10), "dim")
        lines = [first, f"  {paint(fit(word, 8), colour)}{model}", tail(session.text, width)]
        if height == 4:
            share = min(1.0, session.words / session.words_asked)
            filled = round(share * (width - 5))
            bar = "━" * filled, "─" * (width - 5 - filled)
            lines.append(f"{paint(bar[0], colour)}{paint(bar[1], 'dim')}{share:5.0%}")
        return lines


def fit(text: str, width: int) -> str:
    return text[: max(width, 0)].ljust(width)


def tail(text: str, width: int) -> str:
    """Return the end of a text, in the width given, from a word on."""
    text = text.rstrip()
    if len(text) > width:
        end = text[len(text) - width + 1 :]
        text = "…" + end[max(end.find(" "), 0) :]
    return text.ljust(width)


def as_time(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


class Screen:
    """The terminal while we draw on it; as it was before, afterwards."""

    def __init__(self) -> None:
        self._drawn: list[str] = []

    def __enter__(self) -> Self:
        # A screen of our own, without a cursor; a line too long for it is cut and not wrapped.
        self._write("\x1b[?1049h\x1b[?25l\x1b[?7l")
        self._drawn = []
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._write("\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l")

    @staticmethod
    def size() -> os.terminal_size:
        """Ask the terminal itself: COLUMNS and LINES do not follow the window."""
        return os.get_terminal_size(sys.stdout.fileno())

    def draw(self, lines: list[str]) -> None:
        """Write the lines that changed, in one go."""
        clear = ""
        if len(lines) != len(self._drawn):
            clear, self._drawn = "\x1b[2J", [""] * len(lines)
        changed = [
            f"\x1b[{number};1H\x1b[K{line}"  # in this order, or a full line loses its last cell
            for number, (line, before) in enumerate(zip(lines, self._drawn, strict=True), start=1)
            if line != before
        ]
        self._drawn = lines
        self._write(f"\x1b[?2026h{clear}{''.join(changed)}\x1b[?2026l")  # shown together

    def clear(self) -> None:
        """Draw everything anew next time: the window has another size."""
        self._drawn = []

    def suspend(self) -> None:
        """Give the terminal back while we are stopped."""
        self.__exit__(None, None, None)
        os.kill(os.getpid(), signal.SIGSTOP)
        self.__enter__()

    @staticmethod
    def _write(text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()


# The program


async def run(options: argparse.Namespace) -> dict[str, Any]:
    """Run the sessions for as long as is asked, and return the final figures."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    command = [sys.executable, __file__, "--serve", "--speed", str(options.speed)]
    wire = Wire()
    transport = SubprocessTransport(command, framer=ContentLengthFramer(), tap=wire)
    async with await MessageRouter.open(transport) as router:
        count = options.sessions
        sessions = [Session(number, count, router, options.speed) for number in range(count)]
        figures = Figures(router, sessions, wire)
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(session.run(figures.done)) for session in sessions]
            what = f"{count} sessions" if count > 1 else "1 session"
            title = f"bullpen · {what} with fake models, 1 connection to process {transport.pid}"
            await show(figures, title, options, stop)
            final = figures.as_dict()
            for task in running:
                task.cancel()
    return final


async def show(
    figures: Figures, title: str, options: argparse.Namespace, stop: asyncio.Event
) -> None:
    """Draw on a terminal, else print a line each second; until the time is over or stopped."""
    with contextlib.ExitStack() as stack:
        screen: Screen | None = None
        if not options.json and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb":
            screen = stack.enter_context(Screen())
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGWINCH, screen.clear)
            loop.add_signal_handler(signal.SIGTSTP, screen.suspend)
        view = View(figures, Style("NO_COLOR" not in os.environ), title, options.seconds)
        said = 0
        while not stop.is_set() and figures.seconds < options.seconds:
            figures.take_sample()
            if screen is not None:
                size = screen.size()
                screen.draw(view.lines(size.columns, size.lines))
            elif not options.json and figures.seconds >= said:
                said += 1
                chips = figures.as_chips()
                print(as_time(figures.seconds), *(f"{k} {v}" for k, v in chips), sep="  ")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), SAMPLE_SECONDS)


def summary(figures: dict[str, Any]) -> str:
    count = figures["most_sessions_open"]
    return (
        f"{count} session{'s' if count != 1 else ''} over {figures['connections']} connection"
        f" for {figures['seconds']:.1f} s\n"
        f"  {figures['events']:,} events ({figures['events_per_second']:,.0f}/s),"
        f" {as_size(figures['bytes'])}, {figures['tokens']:,} tokens in {figures['turns']} turns,"
        f" {figures['tool_calls']} tool calls\n"
        f"  at most {figures['most_queued_events']} events waited in one session;"
        f" {figures['unknown_events']} belonged to nobody;"
        f" {figures['processor_percent']:.0f} % of a processor"
    )


def main(arguments: list[str] | None = None) -> int:
    about, _, examples = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        description=about,
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--sessions", type=int, default=64, help="how many (64)")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to run (60)")
    parser.add_argument("--speed", type=float, default=1.0, help="how fast models are (1.0)")
    parser.add_argument("--json", action="store_true", help="print the final figures only")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.sessions < 1 or options.seconds <= 0 or options.speed <= 0:
        parser.error("there must be a session, some time and some speed")
    if options.serve:
        asyncio.run(serve(options.speed))
        return 0
    try:
        figures = asyncio.run(run(options))
    except BaseExceptionGroup as failed:
        stopped, others = failed.split(RouterStopped)
        if stopped is None or others is not None:
            raise
        print(f"the server is gone: {stopped.exceptions[0]}", file=sys.stderr)
        return 1
    print(json.dumps(figures) if options.json else summary(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
