"""When to stop: at SIGINT, at SIGTERM, with our terminal, or when whoever started us is gone."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator

__all__ = ["Stop", "stop_on_signals"]

STDIN = 0


class Stop:
    """Something that is asked for once, by whoever asks first."""

    def __init__(self) -> None:
        self.reason = ""
        self._asked = asyncio.Event()

    @property
    def is_asked(self) -> bool:
        """Whether it is time to stop."""
        return self._asked.is_set()

    def ask(self, reason: str) -> None:
        """Ask to stop; the first reason is kept."""
        if not self.is_asked:
            self.reason = reason
            self._asked.set()

    async def wait(self) -> str:
        """Wait until it is asked for; return why."""
        await self._asked.wait()
        return self.reason


@contextlib.contextmanager
def stop_on_signals(*, with_parent: bool = False) -> Iterator[Stop]:
    """Have signals ask to stop, for a block; `with_parent`, the end of stdin as well.

    The second signal is not ours any more: it ends a process that does not get to its end.
    """
    loop = asyncio.get_running_loop()
    stop = Stop()
    signals = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # else it is to outlive its terminal
        signals.append(signal.SIGHUP)

    def asked(number: signal.Signals) -> None:
        stop.ask(number.name)
        for each in signals:
            loop.remove_signal_handler(each)

    def heard() -> None:
        try:
            data = os.read(STDIN, 4096)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            loop.remove_reader(STDIN)
            stop.ask("its parent is gone")

    before = {number: signal.getsignal(number) for number in signals}
    for number in signals:
        loop.add_signal_handler(number, asked, number)
    if with_parent:
        os.set_blocking(STDIN, False)
        loop.add_reader(STDIN, heard)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)
        if with_parent:
            loop.remove_reader(STDIN)
