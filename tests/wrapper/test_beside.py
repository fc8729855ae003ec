"""What runs beside an agent's program is there before it, and never outlives the wrapper."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

from bullpen.agents.launching import Beside
from bullpen.connection.errors import CommandNotFound
from bullpen.testing.tmux import eventually
from bullpen.wrapper.beside import BesideError, BesideProgram

SERVER = """
import os, signal, socket, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
server = socket.socket(socket.AF_UNIX); server.bind(sys.argv[1]); server.listen()
print(os.getpid(), flush=True)
time.sleep(600)
"""

KILLED = """
import asyncio, os, sys
from pathlib import Path
from bullpen.agents.launching import Beside
from bullpen.wrapper.beside import BesideProgram
async def main():
    path = Path(sys.argv[1])
    command = (sys.executable, "-I", "-S", "-c", sys.argv[2], str(path))
    log = path.with_suffix(".log")
    beside = Beside(command=command, socket=path)
    await BesideProgram.start(beside, env=os.environ, cwd=path.parent, log_path=log)
    print("there", flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""


def beside(home: Path, code: str = SERVER) -> Beside:
    socket = home / "beside.sock"
    return Beside(command=(sys.executable, "-I", "-S", "-c", code, str(socket)), socket=socket)


async def is_gone(pid: int) -> bool:
    def look() -> bool:
        try:
            return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    return await asyncio.to_thread(look)


async def test_it_serves_when_it_is_started_and_is_gone_when_it_is_ended(home: Path) -> None:
    wanted, log = beside(home), home / "log"
    program = await BesideProgram.start(wanted, env=os.environ, cwd=home, log_path=log)
    assert await asyncio.to_thread(wanted.socket.is_socket)
    await program.end()
    assert await is_gone(int(await asyncio.to_thread(log.read_text)))
    assert (await asyncio.to_thread(log.stat)).st_mode & 0o777 == 0o600


async def test_one_that_does_not_come_up_is_told_with_its_log(home: Path) -> None:
    failing = beside(home, "raise SystemExit('no licence')")
    with pytest.raises(BesideError, match="ended with status 1") as raised:
        await BesideProgram.start(failing, env=os.environ, cwd=home, log_path=home / "log")
    assert await asyncio.to_thread(raised.value.log_path.read_text) == "no licence\n"
    missing = Beside(command=("no-such-program",), socket=home / "sock")
    with pytest.raises(CommandNotFound):
        await BesideProgram.start(missing, env=os.environ, cwd=home, log_path=home / "log")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux kills with a parent")
async def test_it_dies_with_a_wrapper_that_is_killed(home: Path) -> None:
    socket = home / "beside.sock"
    wrapper = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", KILLED, str(socket), SERVER), stdout=asyncio.subprocess.PIPE
    )
    assert wrapper.stdout is not None
    async with asyncio.timeout(30):
        assert await wrapper.stdout.readline() == b"there\n"
    pid = int(await asyncio.to_thread(socket.with_suffix(".log").read_text))
    assert not await is_gone(pid)
    wrapper.send_signal(signal.SIGKILL)
    await wrapper.wait()
    await eventually(lambda: is_gone(pid))
