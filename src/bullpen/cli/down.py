"""`bullpen down`: end the daemon."""

import asyncio
import fcntl
import os

import click

from bullpen.api.methods import GetInfo, Shutdown
from bullpen.api.runtime import Paths
from bullpen.cli.calls import daemon_paths
from bullpen.cli.options import json_option
from bullpen.cli.output import print_json
from bullpen.connection import AddressError, Connection, ConnectionClosed, SocketTransport
from bullpen.errors import BullpenError

__all__ = ["StillThereError", "command"]

ANSWER_SECONDS = 5.0
END_SECONDS = 10.0  # for it to write down what it knows
LOOK_SECONDS = 0.02  # nothing tells when a process has ended that is not ours


class StillThereError(BullpenError):
    """The daemon was told to end, and has not. It may yet."""

    def __init__(self, pid: int, seconds: float) -> None:
        super().__init__(f"the daemon did not end within {seconds:g} s; kill {pid} ends it")
        self.pid = pid


@click.command(name="down")
@json_option
def command(*, as_json: bool) -> None:
    """End the daemon, and wait until it is gone. Without one there is nothing to do.

    The agents go on: they do not depend on it.

    \b
    Examples:
      bullpen down
      bullpen down && bullpen up

    \b
    Exit codes:
      0  there is no daemon any more
      1  it does not end
      2  wrong usage
    """  # noqa: D301 - click wants the character, not its name
    pid = asyncio.run(_end(daemon_paths()))
    if as_json:
        print_json(pid=pid)
    else:
        click.echo(f"the daemon is down: it was pid {pid}" if pid else "no daemon is running")


async def _end(paths: Paths) -> int | None:
    """Return the pid of the daemon that was; None if there was none.

    It is spoken to in the plainest words, as it may be of another version.
    """
    try:
        async with Connection.builder().connect(SocketTransport.unix(str(paths.socket))) as daemon:
            info = await daemon.request(GetInfo.METHOD, timeout=ANSWER_SECONDS)
            pid = info.get("pid", 0) if isinstance(info, dict) else 0
            await daemon.request(Shutdown.METHOD, timeout=ANSWER_SECONDS)
    except AddressError:
        return None
    except ConnectionClosed:
        pid = 0  # it was going already
    try:
        async with asyncio.timeout(END_SECONDS):
            while await asyncio.to_thread(_is_there, paths, pid):  # noqa: ASYNC110 - as said above
                await asyncio.sleep(LOOK_SECONDS)
    except TimeoutError:
        raise StillThereError(pid, END_SECONDS) from None
    return int(pid)


def _is_there(paths: Paths, pid: int) -> bool:
    """Whether it still holds the lock without which no other may serve, or still serves itself."""
    try:
        with paths.lock.open(encoding="ascii") as lock:
            if int(lock.read()) != pid:
                return False  # another has taken its place
            os.kill(pid, 0)
            # It may be dead all the same, and nobody has taken notice; its lock is free then.
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (OSError, ValueError):
        pass
    return paths.socket.exists()
