"""The wrapper itself: what is shown and typed, how it ends, and what is left of it."""

import asyncio
import hashlib
import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

from bullpen.agents.registry import AgentRegistry
from bullpen.api.wrapping import ReadTerminal, StopProgram
from bullpen.terminal.pty import PtyProcess
from bullpen.testing.tmux import eventually
from tests.wrapper.rooms import SECRET, Room, dummy, line_profile, python, room, tui


async def children(pid: int) -> list[psutil.Process]:
    return await asyncio.to_thread(lambda: psutil.Process(pid).children(recursive=True))


async def status_of(pid: int) -> str:
    """What a process is doing; a zombie is as gone as one that is not there."""

    def look() -> str:
        try:
            return psutil.Process(pid).status()
        except psutil.NoSuchProcess:
            return psutil.STATUS_ZOMBIE

    return await asyncio.to_thread(look)


def names(directory: Path) -> set[str]:
    return {each.name for each in directory.iterdir() if each.name[0] != "."}


async def gone(*pids: int) -> None:
    for pid in pids:

        async def is_gone(pid: int = pid) -> bool:
            return await status_of(pid) == psutil.STATUS_ZOMBIE

        await eventually(is_gone)


@pytest.mark.requirement("S-02")
async def test_what_is_shown_is_what_was_written_byte_by_byte(home: Path) -> None:
    data = os.urandom(2**20)
    path = home / "data"
    await asyncio.to_thread(path.write_bytes, data)
    code = (
        f"import os, tty; tty.setraw(1); data = b'<<' + open({str(path)!r}, 'rb').read() + b'>>'\n"
        "while data: data = data[os.write(1, data):]"
    )
    async with room(home) as place, place.wrapped(python(code)) as glass:
        assert await glass.wait() == 0
        await glass.until(b">>")
        shown = glass.shown[glass.shown.index(b"<<") + 2 : glass.shown.rindex(b">>")]
        assert hashlib.sha256(shown).digest() == hashlib.sha256(data).digest()


@pytest.mark.requirement("S-03", "S-26")
async def test_keys_reach_the_program_and_its_terminal_has_the_size_of_the_users(
    home: Path,
) -> None:
    code = (
        "import os, signal, sys\n"
        "say = lambda *_: print(os.get_terminal_size(), os.isatty(0), flush=True)\n"
        "signal.signal(signal.SIGWINCH, say); say()\n"
        "for line in sys.stdin: print('read', repr(line), flush=True)"
    )
    async with room(home) as place, place.wrapped(python(code), columns=90, rows=33) as glass:
        await glass.until(b"columns=90, lines=33) True")
        await glass.type("grüß gott\r")
        await glass.until("read 'grüß gott\\n'".encode())
        glass.process.resize(70, 20)
        await glass.until(b"columns=70, lines=20) True")
        await glass.type(b"\x04")
        assert await glass.wait() == 0


@pytest.mark.requirement("S-160")
@pytest.mark.parametrize(
    ("code", "status"),
    [("raise SystemExit(9)", 9), ("import os; os.kill(os.getpid(), 9)", 137)],
    ids=["status", "signal"],
)
async def test_the_exit_status_is_the_programs(home: Path, code: str, status: int) -> None:
    async with room(home) as place, place.wrapped(python(code)) as glass:
        assert await glass.wait() == status


async def test_what_cannot_be_started_is_told(home: Path) -> None:
    async with room(home) as place, place.wrapped(line_profile("no-such-program")) as glass:
        assert await glass.wait() == 127
        await glass.until(b"bullpen: ")
        assert b"no-such-program" in glass.shown


@pytest.mark.requirement("S-77", "S-140", "S-12")
async def test_the_agent_is_found_before_it_starts_and_not_after_its_end(home: Path) -> None:
    registry = AgentRegistry(home / ".a2a/registry")
    look = (
        f"import glob, sys; print('files', len(glob.glob({str(home)!r} + '/.a2a/registry/*.json')))"
        "\nprint('> ', end='', flush=True); sys.stdin.readline()"
    )
    async with room(home) as place, place.wrapped(python(look)) as glass:
        await glass.until(b"files 1")

        async def is_idle() -> bool:
            entries = await asyncio.to_thread(registry.entries)
            return [each.status for each in entries] == ["IDLE"]

        await eventually(is_idle)
        assert names(place.paths.agents) == {"dummy.json", "dummy.sock"}
        await glass.type("\r")
        await glass.wait()
        assert names(registry.directory) == set()
        assert names(place.paths.agents) == set()
        assert not (home / "private/dummy").exists()


async def test_the_program_knows_who_it_is_and_not_who_started_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDECODE", "1")
    monkeypatch.setenv("TMUX", "/tmp/tmux/default,1,0")
    monkeypatch.setenv("BULLPEN_SECRET", "that of another")
    names = ("CLAUDECODE", "TMUX", "BULLPEN_SECRET", "BULLPEN_AGENT", "SPECIAL")
    code = f"import os; print({{name: os.environ.get(name) for name in {names}}})"
    profile = python(code, env={"SPECIAL": "of the profile"})
    async with room(home) as place, place.wrapped(profile, name="ann") as glass:
        await glass.wait()
        expected = {
            "CLAUDECODE": None,
            "TMUX": "/tmp/tmux/default,1,0",
            "BULLPEN_SECRET": SECRET,
            "BULLPEN_AGENT": "ann",
            "SPECIAL": "of the profile",
        }
        await glass.until(str(expected).encode())
        (registration,) = place.daemon.registrations
        assert registration.tmux == "/tmp/tmux/default,1,0"


@pytest.mark.requirement("S-22")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT], ids=str)
async def test_a_signal_ends_the_program_and_gives_the_terminal_back(
    home: Path, number: signal.Signals
) -> None:
    async with room(home) as place, place.wrapped(dummy()) as glass:
        await place.daemon.until_ready()
        before = await children(glass.process.pid)
        assert not await is_cooked(glass.process)
        os.kill(glass.process.pid, number)
        assert await glass.wait() > 0
        await gone(*(each.pid for each in before))
        assert await is_cooked(glass.process)
        assert place.daemon.ended


async def is_cooked(process: PtyProcess) -> bool:
    return process.line_limit is not None


@pytest.mark.requirement("S-22", "S-160")
async def test_the_daemon_can_stop_it_whatever_it_ignores(home: Path) -> None:
    code = (
        "import signal, time\nfor each in (1, 2, 15): signal.signal(each, signal.SIG_IGN)\n"
        "print('> ', end='', flush=True)\nwhile True: time.sleep(9)"
    )
    async with room(home) as place, place.wrapped(python(code)) as glass:
        await place.daemon.until_ready()
        assert await place.daemon.ask(StopProgram())
        assert await glass.wait() == 128 + signal.SIGKILL
        assert place.daemon.ended == [-signal.SIGKILL]


async def test_nothing_is_left_if_the_wrapper_is_killed(home: Path) -> None:
    async with room(home) as place, place.wrapped(tui()) as glass:
        await place.daemon.until_ready()
        before = await children(glass.process.pid)
        os.kill(glass.process.pid, signal.SIGKILL)
        await glass.wait()
        await gone(*(each.pid for each in before))
        # Whoever reads the registry passes over what is left of it.
        registry = AgentRegistry(home / ".a2a/registry")
        assert await asyncio.to_thread(registry.list_agents) == {}


async def test_it_can_be_stopped_and_let_go_on(home: Path) -> None:
    async with room(home) as place, place.wrapped(dummy()) as glass:
        await place.daemon.until_ready()
        for number in (signal.SIGTSTP, signal.SIGSTOP):
            os.kill(glass.process.pid, number)

            async def is_stopped() -> bool:
                return await status_of(glass.process.pid) == psutil.STATUS_STOPPED

            await eventually(is_stopped)
            if number == signal.SIGTSTP:
                assert await is_cooked(glass.process)
            os.kill(glass.process.pid, signal.SIGCONT)

            async def is_raw() -> bool:
                return not await is_cooked(glass.process)

            await eventually(is_raw)
        assert (await place.daemon.answer_to("hello")).is_ok


@pytest.mark.skipif(sys.platform != "linux", reason="nobody tells what a program ignores")
async def test_ctrl_z_stops_the_program_and_the_wrapper_as_in_any_shell(home: Path) -> None:
    async with room(home) as place, place.wrapped(dummy()) as glass:
        await place.daemon.until_ready()
        await glass.type("\x1a")

        async def is_stopped() -> bool:
            return await status_of(glass.process.pid) == psutil.STATUS_STOPPED

        await eventually(is_stopped)
        assert await is_cooked(glass.process)
        os.kill(glass.process.pid, signal.SIGCONT)
        assert (await place.daemon.answer_to("hello")).is_ok
        await glass.type("back again\r")
        await glass.until(b"You said: back again")


@pytest.mark.parametrize(
    ("begin", "read"),
    [
        ("import signal; signal.signal(signal.SIGTSTP, signal.SIG_IGN)", b"65"),
        ("import tty; tty.setraw(0)", b"26"),
    ],
    ids=["ignores", "reads"],
)
async def test_ctrl_z_is_the_programs_if_it_reads_keys_or_ignores_it(
    home: Path, begin: str, read: bytes
) -> None:
    code = f"{begin}; import sys; print('on', flush=True); print(ord(sys.stdin.read(1)))"
    async with room(home) as place, place.wrapped(python(code)) as glass:
        await glass.until(b"on")
        await glass.type("\x1aA\r")
        await glass.until(read)
        assert await glass.wait() == 0


async def test_without_a_daemon_the_agent_runs_and_is_found_when_there_is_one(home: Path) -> None:
    place = Room(home)
    async with place.wrapped(dummy()) as glass:
        await glass.until(b"dummy runs")
        await glass.type("by hand\r")
        await glass.until(b"You said: by hand")
        async with place.daemon.serve():
            await place.daemon.until_ready()
            assert place.daemon.started
            assert (await place.daemon.answer_to("hello")).is_ok


@pytest.mark.requirement("S-141")
async def test_detached_it_needs_no_terminal_and_answers_as_one(home: Path) -> None:
    code = (
        "import os, sys, termios, tty\n"
        "tty.setraw(0); os.write(1, b'\\x1b[c'); answer = b''\n"
        "while not answer.endswith(b'c'): answer += os.read(0, 1)\n"
        "print(os.get_terminal_size(), answer, end='\\r\\n> ', flush=True)\n"
        "os.read(0, 99)"
    )
    async with room(home) as place, place.detached(python(code), columns=77, rows=11) as process:
        await place.daemon.until_ready()
        read = await place.daemon.ask(ReadTerminal())
        assert "columns=77, lines=11" in read.screen
        assert "x1b[?" in read.screen
        process.terminate()
        assert await process.wait() > 0
        assert place.daemon.ended
