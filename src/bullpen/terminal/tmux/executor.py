"""Tmux by a process per command: for a tmux that is too old for more, and to compare with."""

import asyncio
import os
import time
from collections.abc import Mapping, Sequence

from bullpen.terminal.tmux.errors import TmuxCommandFailed, TmuxError, TmuxNoServer, failure
from bullpen.terminal.tmux.program import Finished, find_tmux, run_tmux
from bullpen.terminal.tmux.protocol import argument_words
from bullpen.terminal.tmux.runner import TIMEOUT_SECONDS, Answer, one_answer
from bullpen.terminal.tmux.target import TmuxTarget

__all__ = ["TmuxExecutor", "is_no_server"]

MOST_PROCESSES = 8  # at once: more would only queue for the processors


class TmuxExecutor:
    """A `TmuxCommandRunner` that starts the tmux program for each command."""

    def __init__(
        self,
        target: TmuxTarget,
        *,
        environment: Mapping[str, str] | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        self._target = target
        self._environment = dict(os.environ if environment is None else environment)
        self._timeout = timeout_seconds
        self._slots = asyncio.Semaphore(MOST_PROCESSES)

    @property
    def target(self) -> TmuxTarget:
        return self._target

    async def run(self, *words: str, timeout_seconds: float | None = None) -> Answer:
        return await one_answer(self, words, timeout_seconds)

    async def run_many(
        self, commands: Sequence[Sequence[str]], *, timeout_seconds: float | None = None
    ) -> list[Answer | TmuxError]:
        executable = await asyncio.to_thread(find_tmux, self._environment)
        seconds = self._timeout if timeout_seconds is None else timeout_seconds
        arguments = [argument_words(words) for words in commands]
        answers: list[Answer | TmuxError] = []
        # One after the other: the commands of a batch happen in their order.
        for words in arguments:
            try:
                answers.append(await self._run_one(executable, words, seconds))
            except TmuxCommandFailed as error:
                answers.append(error)
        return answers

    async def aclose(self) -> None:
        """There is nothing to let go of: every process ends with its command."""

    async def _run_one(self, executable: str, words: list[str], seconds: float) -> Answer:
        async with self._slots:
            began = int(time.time())
            done = await run_tmux(
                executable,
                ["-u", *self._target.arguments, *words],
                environment=self._environment,
                timeout_seconds=seconds,
                target=str(self._target),
            )
        if done.status:
            raise self._failure(words[0], done)
        return Answer(done.output, began)

    def _failure(self, command: str, done: Finished) -> TmuxError:
        words = done.words or f"it ended with status {done.status}"
        if is_no_server(words):
            return TmuxNoServer(words, target=str(self._target))
        return failure(command, words, target=str(self._target))


def is_no_server(words: str) -> bool:
    """Whether these words of tmux mean that there is no server, or one without a session."""
    return words.startswith(
        ("no server running", "error connecting to", "no sessions", "server exited", "lost server")
    )
