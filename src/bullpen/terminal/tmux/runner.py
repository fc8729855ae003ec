"""The port to tmux: commands in, answers out.

`TmuxServer` is the production implementation, over one control-mode connection, `TmuxExecutor` the
one that starts a process per command; `bullpen.testing.tmux` has one for tests without any tmux.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from bullpen.terminal.tmux.errors import TmuxError
from bullpen.terminal.tmux.target import TmuxTarget

__all__ = ["TIMEOUT_SECONDS", "Answer", "TmuxCommandRunner", "one_answer"]

TIMEOUT_SECONDS = 5.0  # tmux answers in milliseconds, or is in trouble


class Answer(msgspec.Struct, frozen=True):
    """What a command printed, and when it ran: whole seconds of the server's machine, not later."""

    output: bytes
    time: int

    @property
    def text(self) -> str:
        """The output as text, without the final newline; invalid bytes are replaced."""
        return self.output.decode(errors="replace").removesuffix("\n")


class TmuxCommandRunner(Protocol):
    """Whoever can run tmux commands. It never blocks the loop, and every wait is bounded."""

    @property
    def target(self) -> TmuxTarget:
        """The server it speaks to."""
        ...

    async def run(self, *words: str, timeout_seconds: float | None = None) -> Answer:
        """Run one command.

        Raises:
            TmuxError: it was not run, or failed.
        """
        ...

    async def run_many(
        self, commands: Sequence[Sequence[str]], *, timeout_seconds: float | None = None
    ) -> list[Answer | TmuxError]:
        """Run commands in order, and return for each its answer or why it failed.

        Raises:
            TmuxError: there is no server to answer, or it ceased to answer.
        """
        ...

    async def aclose(self) -> None:
        """Let go of everything. It may be called twice."""
        ...


async def one_answer(
    runner: TmuxCommandRunner, words: Sequence[str], timeout_seconds: float | None
) -> Answer:
    """Run one command as a batch of one, and raise its failure."""
    [answer] = await runner.run_many([words], timeout_seconds=timeout_seconds)
    if isinstance(answer, TmuxError):
        raise answer
    return answer
