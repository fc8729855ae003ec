"""A program on a terminal of ours lives and dies as in any terminal, and loses no byte."""

import asyncio
import contextlib
import hashlib
import os
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from bullpen.connection.errors import CommandNotFound
from bullpen.terminal import pty
from bullpen.terminal.pty import PtyClosed, PtyProcess
from bullpen.testing.tmux import eventually

WAIT_SECONDS = 20


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """No descriptor and no child is left behind."""
    before = psutil.Process().num_fds()
    children = {each.pid for each in psutil.Process().children(recursive=True)}
    yield
    assert psutil.Process().num_fds() <= before
    left = [each for each in psutil.Process().children(recursive=True) if each.pid not in children]
    assert not left


async def read_until(process: PtyProcess, text: bytes) -> bytes:
    read = b""
    async with asyncio.timeout(WAIT_SECONDS):
        while text not in read:
            data = await process.read()
            assert data, f"ended after {read!r}"
            read += data
    return read


async def read_all(process: PtyProcess) -> bytes:
    read = bytearray()
    async with asyncio.timeout(WAIT_SECONDS):
        while data := await process.read():
            read += data
    return bytes(read)


def python(code: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-u", "-c", code]


@pytest.mark.requirement("S-01", "S-21")
async def test_a_program_sees_a_terminal_that_controls_its_own_session() -> None:
    code = (
        "import os, sys; tty = os.open('/dev/tty', os.O_RDWR);"
        "print(all(map(os.isatty, (0, 1, 2))), os.getsid(0) == os.getpid(),"
        " os.tcgetpgrp(tty) == os.getpgrp(), os.get_terminal_size(), os.environ['TERM'])"
    )
    async with await PtyProcess.spawn(python(code), columns=100, rows=30) as process:
        output = await read_all(process)
        assert await process.wait() == 0
    assert output == (b"True True True os.terminal_size(columns=100, lines=30) xterm-256color\r\n")


@pytest.mark.requirement("S-01")
async def test_the_program_gets_the_environment_and_the_words_it_was_given() -> None:
    env = {"PATH": os.environ["PATH"], "GREETING": "grüß gott", "PYTHONPATH": "/nowhere"}
    command = ["sh", "-c", 'env; printf "<%s>" "$@"', "sh", "two words", "", "日本"]
    async with await PtyProcess.spawn(command, env=env, cwd="/", term="dumb") as process:
        output = (await read_all(process)).decode()
    *lines, words = output.split("\r\n")
    own = {"PWD", "OLDPWD", "SHLVL", "_"}
    assert {line for line in lines if line.partition("=")[0] not in own} == {
        *(f"{name}={value}" for name, value in env.items()),
        "TERM=dumb",
    }
    assert words == "<two words><><日本>"


async def test_signals_that_python_ignores_are_not_ignored_by_the_program() -> None:
    async with await PtyProcess.spawn(["sh", "-c", "kill -PIPE $$; echo ignored"]) as process:
        assert await process.wait() == -signal.SIGPIPE


async def test_the_status_is_the_programs_own() -> None:
    async with await PtyProcess.spawn(["sh", "-c", "exit 7"]) as process:
        assert process.status is None
        assert await process.wait() == 7 == process.status


@pytest.mark.parametrize(
    ("command", "cwd"),
    [
        ([], None),
        (["no-such-program-anywhere"], None),
        (["/etc/passwd"], None),
        (["sh"], "/no/such/place"),
        (["sh", "a\0b"], None),
    ],
    ids=["empty", "missing", "not-executable", "no-directory", "null-byte"],
)
async def test_a_program_that_cannot_be_started_is_named(
    command: list[str], cwd: str | None
) -> None:
    with pytest.raises(CommandNotFound):
        await PtyProcess.spawn(command, cwd=cwd)


@pytest.mark.requirement("S-02")
async def test_ten_megabytes_come_through_byte_by_byte_the_same(tmp_path: Path) -> None:
    data = os.urandom(10 * 2**20)
    path = tmp_path / "data"
    path.write_bytes(data)
    async with await PtyProcess.spawn(["cat", path], is_raw=True) as process:
        digest, size = hashlib.sha256(), 0
        async with asyncio.timeout(50):
            while chunk := await process.read():
                digest.update(chunk)
                size += len(chunk)
    assert size == len(data)
    assert digest.digest() == hashlib.sha256(data).digest()


@pytest.mark.requirement("S-02", "S-23", "S-161")
async def test_what_several_write_at_once_arrives_whole_and_comes_back_exact() -> None:
    count, size = 20, 50_000  # more at once than the kernel holds
    pieces = [bytes([65 + number]) * size for number in range(count)]
    async with (
        asyncio.timeout(WAIT_SECONDS),
        await PtyProcess.spawn(["cat"], is_raw=True) as process,
        asyncio.TaskGroup() as group,
    ):
        for piece in pieces:
            group.create_task(process.write(piece))
        read = b""
        while len(read) < count * size:
            read += await process.read()
    assert read == b"".join(pieces)


async def test_a_program_that_is_not_read_from_waits(tmp_path: Path) -> None:
    done = tmp_path / "done"
    code = f"import os; os.write(1, b'x' * 2**20); open({str(done)!r}, 'w').close()"
    async with await PtyProcess.spawn(python(code), is_raw=True) as process:
        await read_until(process, b"x")
        await asyncio.sleep(0.1)
        assert not done.exists()
        await read_all(process)
        assert done.exists()


async def test_who_writes_to_a_program_that_does_not_read_waits_and_can_give_up() -> None:
    async with await PtyProcess.spawn(["sleep", "100"], is_raw=True) as process:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await process.write(b"x" * 2**20)
        assert process.status is None


async def test_a_cancelled_read_takes_nothing() -> None:
    async with await PtyProcess.spawn(["cat"], is_raw=True) as process:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await process.read()
        await process.write(b"hello")
        assert await read_until(process, b"hello") == b"hello"


@pytest.mark.requirement("S-26")
async def test_a_new_size_is_told_by_a_signal() -> None:
    code = (
        "import os, signal; signal.signal(signal.SIGWINCH,"
        " lambda *_: print(*os.get_terminal_size())); print('up')\n"
        "while True: signal.pause()"
    )
    async with await PtyProcess.spawn(python(code)) as process:
        await read_until(process, b"up\r\n")
        process.resize(132, 50)
        await read_until(process, b"132 50\r\n")


@pytest.mark.requirement("S-24")
async def test_an_interrupt_reaches_the_program_and_its_children() -> None:
    code = (
        "import os, signal, sys\n"
        "child = os.fork()\n"
        "def hear(*_):\n"
        "    os.write(1, b'child ' if not child else b'parent '); os._exit(0) if not child else 0\n"
        "signal.signal(signal.SIGINT, hear); os.write(1, b'.')\n"
        "if child: os.waitpid(child, 0); os.write(1, b'over')\n"
        "else:\n    while True: signal.pause()\n"
    )
    async with await PtyProcess.spawn(python(code)) as process:
        read = b""
        while read.count(b".") < 2:
            read += await process.read()
        process.interrupt()
        heard = await read_until(process, b"over")
    assert b"child " in heard
    assert b"parent " in heard


async def test_job_control_works() -> None:
    command = ["bash", "--norc", "--noprofile", "-i"]
    env = {"PATH": os.environ["PATH"], "PS1": "$ ", "HOME": "/"}
    async with await PtyProcess.spawn(command, env=env) as process:
        await read_until(process, b"$ ")
        await process.write(b"cat\n")
        await eventually(lambda: process.foreground != process.pid)
        await process.write(b"now\n")
        await read_until(process, b"now\r\nnow\r\n")  # it is no longer the shell's fork
        await process.write(b"\x1a")
        await read_until(process, b"Stopped")
        await eventually(lambda: process.foreground == process.pid)
        await process.write(b"fg\n")
        await eventually(lambda: process.foreground != process.pid)
        await process.write(b"back again\n")
        await read_until(process, b"back again\r\nback again\r\n")


STUBBORN = (
    "import os, signal\n"
    "for each in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):\n"
    "    signal.signal(each, signal.SIG_IGN)\n"
    "os.fork(); os.write(1, b'.')\n"
    "while True: signal.pause()\n"
)


@pytest.mark.requirement("S-22")
@pytest.mark.parametrize(
    ("code", "status"),
    [
        (STUBBORN, -signal.SIGKILL),
        (
            "import os, signal; os.write(1, b'..'); os.kill(os.getpid(), signal.SIGSTOP)",
            -signal.SIGHUP,
        ),
    ],
    ids=["ignores", "stands-still"],
)
async def test_the_end_comes_within_a_second_whatever_is_ignored(code: str, status: int) -> None:
    process = await PtyProcess.spawn(python(code))
    read = b""
    while read.count(b".") < 2:
        read += await process.read()
    group = process.pid
    began = time.monotonic()
    await process.terminate()
    assert time.monotonic() - began < 1
    assert process.status == status
    await eventually(lambda: not _group_exists(group))


def _group_exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.requirement("S-22")
async def test_who_ends_at_a_hang_up_is_not_killed() -> None:
    code = (
        "import os, signal; signal.signal(signal.SIGHUP, lambda *_: os._exit(3))\n"
        "os.write(1, b'.')\n"
        "while True: signal.pause()"
    )
    process = await PtyProcess.spawn(python(code))
    await read_until(process, b".")
    await process.terminate(seconds=5)  # of which it needs next to nothing
    assert process.status == 3


async def test_closing_hangs_up_and_tells_who_reads_and_writes() -> None:
    process = await PtyProcess.spawn(["sleep", "100"], is_raw=True)
    async with asyncio.timeout(WAIT_SECONDS):
        reading = asyncio.create_task(process.read())
        writing = asyncio.create_task(process.write(b"x" * 2**20))
        await asyncio.sleep(0.05)
        process.close()
        assert await reading == b""
        with pytest.raises(PtyClosed):
            await writing
        assert await process.wait() == -signal.SIGHUP
        assert await process.read() == b""
        with pytest.raises(PtyClosed):
            await process.write(b"x")
    await process.terminate()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a hang-up is all there is")
async def test_nothing_is_left_if_we_are_killed(tmp_path: Path) -> None:
    noted = tmp_path / "pid"
    ours = (
        "import asyncio, sys\n"
        "from bullpen.terminal.pty import PtyProcess\n"
        "async def main():\n"
        f"    process = await PtyProcess.spawn([sys.executable, '-I', '-S', '-c', {STUBBORN!r}])\n"
        "    while (await process.read()).count(b'.') < 1: pass\n"
        f"    open({str(noted)!r}, 'w').write(str(process.pid))\n"
        "    print('up', flush=True)\n"
        "    await asyncio.sleep(100)\n"
        "asyncio.run(main())\n"
    )
    killed = await asyncio.to_thread(
        subprocess.Popen, [sys.executable, "-c", ours], stdout=subprocess.PIPE
    )
    assert killed.stdout is not None
    assert await asyncio.to_thread(killed.stdout.readline) == b"up\n"
    pid = int(noted.read_text())
    try:
        killed.kill()
        await asyncio.to_thread(killed.wait)
        await eventually(lambda: asyncio.to_thread(_is_gone, pid))
    finally:
        killed.stdout.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)  # the child of the stubborn one, which only hung up


def _is_gone(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


@pytest.mark.requirement("S-02")
async def test_all_of_it_is_handed_over_and_who_needs_time_is_waited_for(tmp_path: Path) -> None:
    data = os.urandom(2**20)
    path = tmp_path / "data"
    path.write_bytes(data)
    taken = bytearray()
    waiting = 0

    async def think() -> None:
        nonlocal waiting
        waiting += 1
        before = len(taken)
        await asyncio.sleep(0.001)
        assert len(taken) == before  # nothing is handed over meanwhile
        waiting -= 1

    def take(piece: bytes) -> asyncio.Future[None] | None:
        assert not waiting
        taken.extend(piece)
        return asyncio.ensure_future(think()) if len(taken) % 5 == 0 else None

    async with await PtyProcess.spawn(["cat", path], is_raw=True) as process:
        async with asyncio.timeout(WAIT_SECONDS):
            await process.pump(take)
    assert taken == data


async def test_what_fails_while_it_is_handed_over_is_told_to_who_wanted_it() -> None:
    def take(piece: bytes) -> None:
        raise ValueError(piece)

    async with await PtyProcess.spawn(["echo", "hi"]) as process:
        async with asyncio.timeout(WAIT_SECONDS):
            with pytest.raises(ValueError, match="hi"):
                await process.pump(take)


async def test_handing_over_ends_when_the_terminal_is_closed() -> None:
    async with await PtyProcess.spawn(["sleep", "60"]) as process:
        handing = asyncio.create_task(process.pump(lambda _: None))
        await asyncio.sleep(0)
        process.close()
        async with asyncio.timeout(WAIT_SECONDS):
            await handing


async def test_elsewhere_than_on_linux_the_helper_takes_the_terminal_all_the_same(
    home: Path,
) -> None:
    said = "import os; print(os.tcgetpgrp(0) == os.getpid(), os.ttyname(0))"
    helper = home / "helper.py"
    run = f"runpy.run_path({str(pty.EXEC_HELPER)!r}, run_name='__main__')"
    helper.write_text(f"import runpy, sys\nsys.platform = 'darwin'\n{run}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pty, "EXEC_HELPER", helper)
        process = await PtyProcess.spawn([sys.executable, "-I", "-S", "-c", said])
    async with process:
        assert await read_until(process, b"\n") == f"True {process.tty}\r\n".encode()


async def test_a_size_for_a_terminal_nobody_is_left_on_is_no_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        raise termios.error(25, "Inappropriate ioctl for device")  # so a system may say it

    async with await PtyProcess.spawn(["true"]) as process:
        await process.wait()
        monkeypatch.setattr(termios, "tcsetwinsize", refuse)
        process.resize(100, 40)
