"""One control-mode connection to a tmux server.

Tmux runs commands for a control-mode client only while that is attached to some session. We attach
as nobody would notice: to the session that `tmux attach` would choose, with no say in its size
(`ignore-size`), without the output of its panes (`no-output`), without lending it our environment
(`-E`), and suspended, so that the session does not count as attached. A control-mode client that is
suspended still runs commands. `-N` sees to it that no server is started by looking for one.
"""

import asyncio
import logging
import os
import secrets
from collections import deque
from collections.abc import Mapping, Sequence

from bullpen.connection.errors import CommandNotFound
from bullpen.connection.transports.process import ChildProcess
from bullpen.terminal.tmux.errors import (
    TmuxBusy,
    TmuxError,
    TmuxNoServer,
    TmuxNotInstalled,
    TmuxProtocolError,
    TmuxRefused,
    TmuxServerGone,
    TmuxTimeout,
    TmuxTooOld,
    failure,
)
from bullpen.terminal.tmux.executor import is_no_server
from bullpen.terminal.tmux.program import client_environment, find_tmux, parse_version, run_tmux
from bullpen.terminal.tmux.protocol import Block, ControlParser, Event, Stray, command_line
from bullpen.terminal.tmux.runner import TIMEOUT_SECONDS, Answer, one_answer
from bullpen.terminal.tmux.target import ServerIdentity, TmuxTarget

__all__ = ["TmuxClient"]

logger = logging.getLogger("bullpen.terminal.tmux")

OLDEST_VERSION = (3, 2)  # the first with `attach-session -f` and `-N`
MOST_WAITING = 10_000  # commands without an answer; a tick of a thousand panes is far below
CLOSE_SECONDS = 0.5  # for tmux to say goodbye

_ATTACH = (
    *("attach-session", "-E", "-f", "ignore-size,no-output", ";"),
    *("suspend-client", ";"),
    # To where it is: so tmux counts once more who is attached, and who has the focus.
    *("switch-client", "-E", "-t", ":"),
)
_IDENTITY = "#{pid} #{start_time} #{version}"  # printed last: from then on, commands are run


class _Batch:
    """Commands sent together, and their answers as they come.

    They are believed when the seal has come, too: a number nobody could guess, which tmux is asked
    to print behind them. Then no screen posed as an answer, and no alias made two of one command.
    """

    def __init__(self, commands: Sequence[Sequence[str]], began: float) -> None:
        self.commands = commands
        self.began = began
        self.seal = secrets.token_hex(8)
        self.answers: list[Answer | TmuxError] = []
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def lines(self) -> bytes:
        """What is written for it."""
        return b"".join(map(command_line, [*self.commands, ("display-message", "-p", self.seal)]))

    @property
    def next_command(self) -> str | None:
        """What the next answer is to; None if that is the seal."""
        at = len(self.answers)
        return self.commands[at][0] if at < len(self.commands) else None

    def close(self, block: Block) -> None:
        """Take the last answer.

        Raises:
            TmuxProtocolError: it is not the seal.
        """
        if block.output != f"{self.seal}\n".encode():
            raise TmuxProtocolError("the answers are not those to what was asked")
        if not self.done.done():
            self.done.set_result(None)

    def fail(self, error: TmuxError) -> None:
        if not self.done.done():
            self.done.set_exception(error)
            self.done.exception()  # whoever waited may have gone


class TmuxClient:
    """A `TmuxCommandRunner` over one connection. Once that has ended, every command fails.

    Commands are written as they come, many in flight, and answered in their order. A command that
    is not answered in time fails alone, unless nothing else was answered either: then tmux hangs,
    and the connection is given up.
    """

    def __init__(self, target: TmuxTarget, *, timeout_seconds: float) -> None:
        self._target = target
        self._timeout = timeout_seconds
        self._loop = asyncio.get_running_loop()
        self._parser = ControlParser()
        self._process: ChildProcess | None = None
        self._batches: deque[_Batch] = deque()
        self._waiting = 0
        self._unsent = bytearray()
        self._greeting = secrets.token_hex(8)
        self._greeted: asyncio.Future[str] = self._loop.create_future()
        self._last_words = ""  # what tmux said to the attempt to attach
        self._end_cause: TmuxError | None = None
        self.identity = ServerIdentity(0, 0)
        self.version = ""

    @classmethod
    async def open(
        cls,
        target: TmuxTarget,
        *,
        environment: Mapping[str, str] | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> "TmuxClient":
        """Connect to a server that runs.

        Raises:
            TmuxNoServer: none runs there.
            TmuxNotInstalled: there is no tmux here.
            TmuxTooOld: it cannot do this.
            TmuxRefused: it would not.
            TmuxError: it ended, hung or talked nonsense meanwhile.
        """
        environment = os.environ if environment is None else environment
        executable = await asyncio.to_thread(find_tmux, environment)
        await _check_version(executable, target, environment, timeout_seconds)
        client = cls(target, timeout_seconds=timeout_seconds)
        try:
            await client._start(executable, environment)
        except BaseException:
            await client.aclose()
            raise
        return client

    @property
    def target(self) -> TmuxTarget:
        return self._target

    @property
    def pid(self) -> int | None:
        """The process that is our end of the connection."""
        return self._process.pid if self._process is not None else None

    @property
    def end_cause(self) -> TmuxError | None:
        """Why the connection ended; None while it is open."""
        return self._end_cause

    async def run(self, *words: str, timeout_seconds: float | None = None) -> Answer:
        return await one_answer(self, words, timeout_seconds)

    async def run_many(
        self, commands: Sequence[Sequence[str]], *, timeout_seconds: float | None = None
    ) -> list[Answer | TmuxError]:
        batch = _Batch(commands, self._loop.time())
        lines = batch.lines
        if self._end_cause is not None:
            raise self._again(self._end_cause)
        if not commands:
            return []
        if self._waiting + len(commands) > MOST_WAITING:
            raise TmuxBusy(self._waiting, target=str(self._target))
        self._batches.append(batch)
        self._waiting += len(commands)
        self._write(lines)
        seconds = self._timeout if timeout_seconds is None else timeout_seconds
        try:
            async with asyncio.timeout(seconds):
                await batch.done
        except TimeoutError as error:
            timeout = TmuxTimeout(
                batch.next_command or commands[-1][0], seconds, target=str(self._target)
            )
            self._give_up_if_stalled(timeout)
            raise timeout from error
        return batch.answers

    async def aclose(self) -> None:
        self._end(TmuxServerGone("it was closed here", target=str(self._target)))
        if self._process is not None and self._process.pid:
            await self._process.wait(CLOSE_SECONDS)

    async def _start(self, executable: str, environment: Mapping[str, str]) -> None:
        arguments = ["-u", "-N", *self._target.arguments, "-C", *_ATTACH, ";"]
        greeting = ("display-message", "-p", f"{self._greeting} {_IDENTITY}")
        try:
            self._process = await ChildProcess.spawn(
                [executable, *arguments, *greeting],
                env=client_environment(environment),
                cwd=None,
                on_exit=self._on_exit,
            )
        except CommandNotFound as error:
            raise TmuxNotInstalled(executable, error) from error
        os.set_blocking(self._process.stdin, False)
        self._process.drain_stdout(self._on_data, self._on_exit)
        try:
            # Tmux reads commands before it has attached, and would run them for nobody.
            async with asyncio.timeout(self._timeout):
                identity = await self._greeted
        except TimeoutError as error:
            raise TmuxTimeout("attach-session", self._timeout, target=str(self._target)) from error
        except TmuxServerGone as error:
            raise self._explained(error) from error
        try:
            pid, start_time, self.version = identity.split(" ", 2)
            self.identity = ServerIdentity(int(pid), int(start_time))
        except ValueError as error:
            words = f"tmux does not say who it is: {identity[:200]!r}"
            raise TmuxProtocolError(words, target=str(self._target)) from error

    def _explained(self, error: TmuxServerGone) -> TmuxError:
        """Say why a connection that never came about ended."""
        words = self._last_words
        if self._process is not None and self._process.stderr_tail.strip():
            words = self._process.stderr_tail.strip()
        if not words:
            return error
        if is_no_server(words):
            return TmuxNoServer(words, target=str(self._target))
        return TmuxRefused(words, target=str(self._target))

    # Reading

    def _on_data(self, data: bytes) -> None:
        if self._end_cause is not None:
            return
        self._parser.feed(data)
        try:
            for event in self._parser.events():
                self._handle(event)
        except TmuxProtocolError as error:
            self._end(TmuxProtocolError(str(error), target=str(self._target)))

    def _handle(self, event: Event) -> None:
        if isinstance(event, Block):
            if event.is_ours:
                self._answer(event)
            else:
                self._take_greeting(event)
        elif isinstance(event, Stray):
            self._last_words = event.line.decode(errors="replace").strip() or self._last_words
        elif event.name == "exit":
            reason = event.arguments.decode(errors="replace") or "tmux said goodbye"
            self._end(TmuxServerGone(reason, target=str(self._target)))

    def _take_greeting(self, block: Block) -> None:
        words = block.output.decode(errors="replace").strip()
        if block.is_error:
            self._last_words = words
        elif words.startswith(self._greeting) and not self._greeted.done():
            self._greeted.set_result(words.removeprefix(self._greeting).strip())

    def _answer(self, block: Block) -> None:
        if not self._batches:
            raise TmuxProtocolError("an answer to nothing that was asked")
        batch = self._batches[0]
        command = batch.next_command
        if command is None:
            batch.close(block)
            self._batches.popleft()
            return
        self._waiting -= 1
        if block.is_error:
            words = block.output.decode(errors="replace").strip()
            batch.answers.append(failure(command, words, target=str(self._target)))
        else:
            batch.answers.append(Answer(block.output, block.time))

    def _on_exit(self) -> None:
        """The process ended, or will say nothing more."""
        if self._end_cause is None and self._process is not None:
            words = self._process.stderr_tail.strip() or "tmux hung up"
            self._end(TmuxServerGone(words, target=str(self._target)))

    # Writing

    def _write(self, data: bytes) -> None:
        assert self._process is not None
        if self._unsent:
            self._unsent += data
            return
        sent = self._write_some(data)
        if sent < len(data) and self._end_cause is None:
            self._unsent += memoryview(data)[sent:]
            self._loop.add_writer(self._process.stdin, self._write_more)

    def _write_more(self) -> None:
        assert self._process is not None
        sent = self._write_some(bytes(self._unsent))
        if self._end_cause is None:
            del self._unsent[:sent]
            if not self._unsent:
                self._loop.remove_writer(self._process.stdin)

    def _write_some(self, data: bytes) -> int:
        assert self._process is not None
        try:
            return os.write(self._process.stdin, data)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:
            # Why it hung up is in what it said before, and still to be read.
            self._loop.call_soon(self._on_exit)
            return len(data)

    # Ending

    def _give_up_if_stalled(self, cause: TmuxTimeout) -> None:
        oldest = self._batches[0].began if self._batches else self._loop.time()
        if self._loop.time() - oldest >= self._timeout:
            self._end(TmuxServerGone(f"it hangs: {cause}", target=str(self._target)))

    def _end(self, cause: TmuxError) -> None:
        if self._end_cause is not None:
            return
        self._end_cause = cause
        if self._process is not None:
            if self._unsent:
                self._loop.remove_writer(self._process.stdin)
                self._unsent.clear()
            self._process.release()  # our end only: a client that is gone leaves nothing in tmux
        if not self._greeted.done():
            self._greeted.set_exception(self._again(cause))
            self._greeted.exception()  # nobody may be waiting for it
        for batch in self._batches:
            batch.fail(self._again(cause))
        self._batches.clear()
        self._waiting = 0

    def _again(self, cause: TmuxError) -> TmuxError:
        """Return an error for one more who waits: no two share a traceback."""
        error = TmuxServerGone(str(cause))
        if isinstance(cause, TmuxServerGone):
            error = TmuxServerGone(cause.reason, target=cause.target)
        error.__cause__ = cause
        return error


async def _check_version(
    executable: str, target: TmuxTarget, environment: Mapping[str, str], seconds: float
) -> None:
    done = await run_tmux(
        executable, ["-V"], environment=environment, timeout_seconds=seconds, target=str(target)
    )
    version = done.output.decode(errors="replace").strip().removeprefix("tmux ")
    numbers = parse_version(version)
    if numbers is not None and numbers < OLDEST_VERSION:
        raise TmuxTooOld(version, "3.2", target=str(target))
