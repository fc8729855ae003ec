"""Whoever needs the daemon first starts it, once, and is told if that does not work."""

import asyncio
import contextlib
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from bullpen.api import start
from bullpen.api.client import Client
from bullpen.api.errors import DaemonStartError, DaemonUnavailable, DirectoryError
from bullpen.api.runtime import Paths, prepare
from bullpen.api.start import daemon_command, start_daemon
from bullpen.daemon.lock import InstanceLock
from bullpen.testing.tmux import eventually

DAEMON = Path(__file__).parent / "programs/daemon.py"


class Daemons:
    """Daemons that a test starts, each of which notes that it was started."""

    def __init__(self, home: Path) -> None:
        self.paths = Paths.resolve()
        self.witness = home / "witness"

    def command(self, *manner: str) -> list[str]:
        return [sys.executable, str(DAEMON), str(self.paths.socket), str(self.witness), *manner]

    async def start(self, *manner: str, seconds: float = 20.0) -> None:
        await start_daemon(self.paths, command=self.command(*manner), timeout_seconds=seconds)

    @property
    def started(self) -> list[list[str]]:
        """What each noted: its pid, its session, its directory."""
        if not self.witness.exists():
            return []
        return [line.split() for line in self.witness.read_text().splitlines()]

    def end(self) -> None:
        left = []
        for pid, *_ in self.started:
            with contextlib.suppress(psutil.NoSuchProcess):
                left.append(psutil.Process(int(pid)))
                left[-1].kill()
        assert psutil.wait_procs(left, timeout=10)[1] == []


@pytest.fixture
def daemons(home: Path) -> Iterator[Daemons]:
    daemons = Daemons(home)
    yield daemons
    daemons.end()


@pytest.fixture
def prepared(daemons: Daemons) -> Paths:
    """The directories, before any daemon was there."""
    prepare(daemons.paths)
    return daemons.paths


async def test_a_daemon_is_started_apart_from_us_and_answers(daemons: Daemons) -> None:
    await daemons.start()
    [[pid, session, directory]] = daemons.started
    assert pid == session != str(os.getsid(0))
    assert directory == "/"
    async with Client.connect(daemons.paths, start=False) as client:
        assert client.info.pid == int(pid)
    await daemons.start()  # there is one
    assert len(daemons.started) == 1
    log = daemons.paths.log
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


async def test_a_client_starts_the_daemon_it_needs(daemons: Daemons) -> None:
    command = daemons.command()
    async with Client.connect(daemons.paths, start_command=command) as client:
        assert await client.agents() == ()
        await client.shutdown()
    async with Client.connect(daemons.paths, start_command=command) as client:
        assert await client.agents() == ()  # though the first one was just closing
    assert len(daemons.started) >= 2


async def test_a_daemon_that_was_killed_is_started_again(daemons: Daemons) -> None:
    await daemons.start()
    [[pid, *_]] = daemons.started
    os.kill(int(pid), signal.SIGKILL)
    await eventually(lambda: not psutil.pid_exists(int(pid)))
    assert daemons.paths.socket.exists()  # which nobody serves
    await daemons.start()
    assert len(daemons.started) == 2


async def test_many_at_once_start_one(daemons: Daemons) -> None:
    await asyncio.gather(*(daemons.start() for _ in range(8)))
    assert len(daemons.started) == 1


async def test_two_commands_at_once_start_one(daemons: Daemons) -> None:
    script = (
        "import asyncio, sys\n"
        "from bullpen.api.client import Client\n"
        "async def main():\n"
        "    async with Client.connect(start_command=sys.argv[1:]) as client:\n"
        "        print(client.info.pid)\n"
        "asyncio.run(main())\n"
    )
    commands = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-X", "dev", "-W", "error", "-c", script, *daemons.command()),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for _ in range(2)
    ]
    said = await asyncio.wait_for(asyncio.gather(*(each.communicate() for each in commands)), 50)
    [[pid, *_]] = daemons.started
    assert said == [(f"{pid}\n".encode(), b"")] * 2


async def test_one_that_finds_another_starting_waits_for_that_one(
    daemons: Daemons, prepared: Paths
) -> None:
    other = await asyncio.create_subprocess_exec(  # by hand, without our lock
        *daemons.command("late"), stdout=subprocess.PIPE
    )
    assert other.stdout is not None
    assert await asyncio.wait_for(other.stdout.readline(), 20) == b"working on it\n"
    await daemons.start()
    assert len(daemons.started) == 2
    async with Client.connect(daemons.paths, start=False) as client:
        assert client.info.pid == other.pid
    other.kill()
    await other.wait()


async def test_a_daemon_that_dies_is_reported_with_the_last_of_its_log(
    daemons: Daemons, prepared: Paths
) -> None:
    prepared.log.write_text("of an earlier day\n")
    with pytest.raises(DaemonStartError) as caught:
        await daemons.start("die")
    assert str(caught.value) == (
        f"the daemon ended with status 1 when it was started; see {daemons.paths.log}:\n"
        "  error: the disk is full\n"
        "  I cannot go on"
    )
    assert isinstance(caught.value, DaemonUnavailable)


async def test_one_that_is_killed_at_once_is_reported_with_its_signal(daemons: Daemons) -> None:
    with pytest.raises(DaemonStartError, match=f"was ended by signal {signal.SIGABRT.value} when"):
        await daemons.start("kill")


async def test_one_that_does_not_answer_in_time_is_reported_and_left_be(daemons: Daemons) -> None:
    with pytest.raises(DaemonStartError) as caught:
        await daemons.start("mute", seconds=1.5)
    [[pid, *_]] = daemons.started
    expected = rf"the daemon \(pid {pid}\) does not answer within 1.5 s; see .*working on it"
    assert caught.match("(?s)" + expected)
    assert psutil.pid_exists(int(pid))


async def test_a_lock_whose_holder_never_answers_is_not_waited_for_without_end(
    daemons: Daemons, prepared: Paths
) -> None:
    lock = InstanceLock(prepared.lock)
    await asyncio.to_thread(lock.acquire)
    with pytest.raises(DaemonStartError, match=r"the daemon does not answer within 2 s"):
        await daemons.start(seconds=2.0)
    lock.release()
    assert len(daemons.started) == 1


async def test_a_daemon_at_another_socket_that_has_the_state_is_named(
    daemons: Daemons, prepared: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start, "ELSEWHERE_SECONDS", 0.3)
    lock = InstanceLock(prepared.state_lock)
    await asyncio.to_thread(lock.acquire)
    with pytest.raises(DaemonStartError) as caught:
        await daemons.start()
    said = f"another daemon, pid {os.getpid()}, has the state in {prepared.state_directory} "
    assert str(caught.value).startswith(said)
    assert len(daemons.started) == 1  # that it is there need not be found out again and again
    lock.release()


async def test_a_daemon_at_another_socket_that_is_about_to_end_is_waited_for(
    daemons: Daemons, prepared: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start, "ELSEWHERE_SECONDS", 20.0)
    lock = InstanceLock(prepared.state_lock)
    await asyncio.to_thread(lock.acquire)
    starting = asyncio.create_task(daemons.start())

    def was_refused() -> bool:
        return len(daemons.started) == 1 and not psutil.pid_exists(int(daemons.started[0][0]))

    await eventually(lambda: asyncio.to_thread(was_refused))
    lock.release()
    await starting
    assert len(daemons.started) == 2


async def test_nobody_waits_for_a_daemon_that_is_dead_and_not_buried(
    daemons: Daemons, prepared: Paths
) -> None:
    ended = await asyncio.to_thread(subprocess.Popen, [sys.executable, "-c", ""])

    def is_zombie() -> bool:
        return psutil.Process(ended.pid).status() == psutil.STATUS_ZOMBIE

    await eventually(lambda: asyncio.to_thread(is_zombie))
    prepared.lock.write_text(f"{ended.pid}\n")
    with pytest.raises(DaemonStartError, match="ended with status 1"):
        await daemons.start("die", seconds=3.0)
    ended.wait()


async def test_a_command_that_cannot_be_run_is_said_to_be_so(daemons: Daemons) -> None:
    with pytest.raises(DaemonStartError, match="cannot be started: No such file or directory"):
        await start_daemon(daemons.paths, command=["/no/such/program"])


async def test_nothing_is_started_where_it_would_not_be_safe(home: Path, daemons: Daemons) -> None:
    (home / "run/bullpen").mkdir(mode=0o755)
    (home / "run/bullpen").chmod(0o755)
    with pytest.raises(DirectoryError, match="others may use it"):
        async with Client.connect(daemons.paths, start_command=daemons.command()):
            pass
    assert daemons.started == []


async def test_without_leave_to_start_one_it_is_said_that_there_is_none(daemons: Daemons) -> None:
    expected = f"no daemon is running: unix://{daemons.paths.socket}: No such file or directory"
    with pytest.raises(DaemonUnavailable, match=expected):
        async with Client.connect(daemons.paths, start=False):
            pass
    assert not daemons.paths.socket.parent.exists()


def test_the_daemon_is_our_own_interpreters_whatever_lies_around(home: Path) -> None:
    given = Paths.resolve(socket="/x/y.sock")
    assert daemon_command(given) == [
        *(sys.executable, "-P", "-m", "bullpen", "daemon", "--background"),
        *("--socket-path", "/x/y.sock"),
    ]
    (home / "bullpen.py").write_text("raise SystemExit('not what was meant')")
    done = subprocess.run(
        [*daemon_command(Paths.resolve())[:4], "--version"],
        capture_output=True,
        text=True,
        cwd=home,
        timeout=30,
        check=True,
    )
    assert done.stdout.startswith("bullpen ")


def test_loading_the_client_does_not_load_what_only_starting_needs() -> None:
    script = "import bullpen.api.client, sys; print('bullpen.api.start' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout == "False\n"
