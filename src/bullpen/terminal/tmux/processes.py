"""The process table, read as a whole, once per tick: who runs below a pane, and who has a terminal.

On Linux it is read from /proc, elsewhere from one run of `ps`, which tells no more than a line for
the arguments of a process: there they are split at spaces. `ps` is looked for where it always is,
too: without it every agent would be lost in silence.
"""

import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from bullpen.errors import BullpenError

__all__ = [
    "ProcessInfo",
    "ProcessReader",
    "ProcessTable",
    "ProcessTableUnavailable",
    "parse_ps",
    "programs",
]

LAZY_READS = 5
CALM_READS = 10  # a process that was the same so often is not about to become another program
CALM_LAZY_READS = 3
PS_SECONDS = 5.0
PS_FIELDS = ("pid", "ppid", "pgid", "tpgid", "tty", "lstart", "command")

# They run what their first argument names.
INTERPRETERS = (
    "node",
    "bun",
    "deno",
    "python",
    "ruby",
    "perl",
    "sh",
    "bash",
    "zsh",
    "dash",
    "fish",
)


class ProcessTableUnavailable(BullpenError):
    """The process table could not be read. What runs where is not known, which is not *nothing*."""


class ProcessInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A process. Pid and start time together are never anybody else's."""

    pid: int
    parent_pid: int
    group: int
    argv: tuple[str, ...]  # empty if it is not ours to see, or a zombie
    tty: str = ""  # "/dev/pts/3"; empty without one
    start_time: float = 0.0  # seconds since the epoch
    start: str = ""  # the same as the system counts it, which no setting of a clock changes
    is_foreground: bool = False  # it may read from its terminal
    depth: int = 0  # below the pane it was looked for in

    @property
    def names(self) -> tuple[str, ...]:
        """What it runs: the base name of its program, and of the script if that interprets one."""
        return tuple(_names(self.argv))


class ProcessTable:
    """All processes at one moment."""

    def __init__(self, processes: Iterable[ProcessInfo]) -> None:
        self._by_pid = {process.pid: process for process in processes}
        self._children: defaultdict[int, list[int]] = defaultdict(list)
        for process in self._by_pid.values():
            self._children[process.parent_pid].append(process.pid)

    def __len__(self) -> int:
        return len(self._by_pid)

    def __iter__(self) -> Iterator[ProcessInfo]:
        return iter(self._by_pid.values())

    def get(self, pid: int) -> ProcessInfo | None:
        """Return a process, if it is there."""
        return self._by_pid.get(pid)

    def born(self, pid: int) -> float | None:
        """Return when a process started, if it is there."""
        process = self._by_pid.get(pid)
        return process.start_time if process is not None else None

    def below(self, pid: int) -> tuple[ProcessInfo, ...]:
        """Return a process and all its descendants, parents first, with their depth."""
        found: list[ProcessInfo] = []
        level, depth, seen = [pid], 0, {0}  # process 0 is its own parent on some systems
        while level:
            below: list[int] = []
            for each in level:
                if each not in seen and each in self._by_pid:
                    seen.add(each)
                    found.append(msgspec.structs.replace(self._by_pid[each], depth=depth))
                    below += sorted(self._children.get(each, ()))
            level, depth = below, depth + 1
        return tuple(found)


def programs(processes: Iterable[ProcessInfo], names: Collection[str]) -> tuple[ProcessInfo, ...]:
    """Return those of the processes that run one of the named programs."""
    wanted = frozenset(names)
    return tuple(each for each in processes if not wanted.isdisjoint(each.names))


def _names(argv: Sequence[str]) -> Iterator[str]:
    if not argv:
        return
    name = _basename(argv[0])
    yield name
    if name.rstrip("0123456789.") in INTERPRETERS:
        script = next((word for word in argv[1:] if not word.startswith("-")), "")
        if script:
            yield _basename(script)


def _basename(path: str) -> str:
    return path.rpartition("/")[2].removeprefix("-")  # a login shell calls itself "-zsh"


class _Known(NamedTuple):
    """A process as it was read, and how it is known to be still the same one."""

    inode: int  # of its directory: another process with the same id has another one
    key: tuple[bytes, ...]
    process: ProcessInfo
    reads: int = 0  # that found it the same


class ProcessReader:
    """Reads the table, and remembers what does not change about those it has seen.

    Most processes have no terminal, and so are no agents that anybody sees: what becomes of them is
    read every few times only. So is what becomes of those that have been the same for a while, as
    long as none comes or goes on their terminal: that one is suspended, or becomes another program,
    is known a moment later. Whether they are there is known each time.
    """

    def __init__(self, *, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._known: dict[str, _Known] = {}
        self._reads = 0
        self._boot_time: float | None = None
        self._read: Callable[[], list[ProcessInfo]] = (
            self._read_proc if sys.platform.startswith("linux") else _read_ps
        )

    async def read(self) -> ProcessTable:
        """Read the table, without holding up the loop.

        Raises:
            ProcessTableUnavailable: it cannot be read.
        """
        return ProcessTable(await asyncio.to_thread(self._read))

    def _read_proc(self) -> list[ProcessInfo]:
        try:
            with os.scandir(self._proc) as entries:
                inodes = {each.name: each.inode() for each in entries if each.name.isdecimal()}
            if self._boot_time is None:
                self._boot_time = _boot_time((self._proc / "stat").read_text())
        except (OSError, ValueError) as error:
            raise ProcessTableUnavailable(f"cannot read {self._proc}: {error}") from error
        known, self._known = self._known, {}
        self._reads += 1
        same = {pid for pid, inode in inodes.items() if pid in known and known[pid].inode == inode}
        for pid, inode in inodes.items():
            if pid not in same:
                self._take(pid, inode, known.get(pid))
        stirred = {each.process.tty for each in self._known.values()}
        stirred |= {each.process.tty for pid, each in known.items() if pid not in same}
        for pid in same:
            before = known[pid]
            if self._may_wait(before, stirred):
                self._known[pid] = before
            else:
                self._take(pid, before.inode, before)
        return [self._known[pid].process for pid in inodes if pid in self._known]

    def _may_wait(self, known: _Known, stirred: Collection[str]) -> bool:
        process = known.process
        turn = process.pid + self._reads
        if not process.tty:
            return turn % LAZY_READS != 0
        is_calm = known.reads >= CALM_READS and process.tty not in stirred
        return is_calm and turn % CALM_LAZY_READS != 0

    def _take(self, pid: str, inode: int, known: _Known | None) -> None:
        assert self._boot_time is not None
        with contextlib.suppress(OSError, ValueError, IndexError):  # it may have ended since
            self._known[pid] = self._read_one(pid, inode, known, self._boot_time)

    def _read_one(self, pid: str, inode: int, known: _Known | None, boot_time: float) -> _Known:
        stat = _read_bytes(f"{self._proc}/{pid}/stat")
        # The name in parentheses may contain both spaces and parentheses.
        end = stat.rindex(b")")
        values = stat[end + 2 :].split()
        # Name, parent, group, terminal; start; and where the arguments are, which is elsewhere
        # whenever a process becomes another program.
        key = (stat[:end], *values[1:6], values[19], *values[45:47])
        if known is not None and known.key == key:
            return known._replace(inode=inode, reads=known.reads + 1)
        _, parent, group, _, tty, foreground_group, start = key[:7]
        data = _read_bytes(f"{self._proc}/{pid}/cmdline")
        words = data.removesuffix(b"\0").split(b"\0") if data else []
        process = ProcessInfo(
            pid=int(pid),
            parent_pid=int(parent),
            group=int(group),
            argv=tuple(word.decode(errors="replace") for word in words),
            tty=_tty_name(int(tty)),
            start_time=boot_time + int(start) / os.sysconf("SC_CLK_TCK"),
            start=start.decode(),
            is_foreground=group == foreground_group,
        )
        return _Known(inode, key, process)


def _read_bytes(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = os.read(fd, 2**16)
        while len(data) % 2**16 == 0 and (more := os.read(fd, 2**16)):
            data += more
        return data
    finally:
        os.close(fd)


def _boot_time(stat: str) -> float:
    [line] = [line for line in stat.splitlines() if line.startswith("btime ")]
    return float(line.split()[1])


def _tty_name(number: int) -> str:
    if number == 0:
        return ""
    major, minor = os.major(number), os.minor(number)
    if 136 <= major <= 143:
        return f"/dev/pts/{minor + (major - 136) * 256}"
    return f"/dev/tty{minor}" if major == 4 else ""


def _read_ps() -> list[ProcessInfo]:
    ps = shutil.which("ps") or next(filter(os.path.exists, ("/bin/ps", "/usr/bin/ps")), None)
    if ps is None:
        raise ProcessTableUnavailable("there is no ps")
    try:
        done = subprocess.run(
            # One by one: by POSIX, all that follows a `=` is a heading.
            [ps, "-axww", *(f"-o{field}=" for field in PS_FIELDS)],
            capture_output=True,
            check=True,
            stdin=subprocess.DEVNULL,
            timeout=PS_SECONDS,
            env={"LC_ALL": "C", "TZ": "UTC", "PATH": "/usr/bin:/bin"},  # for the dates
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise ProcessTableUnavailable(f"{ps} failed: {error}") from error
    return list(parse_ps(done.stdout.decode(errors="replace")))


def parse_ps(text: str) -> Iterator[ProcessInfo]:
    """Yield the processes in the output of `ps`, in UTC. A line that is none is left out."""
    for line in text.splitlines():
        words = line.split(None, 10)
        if len(words) < 10:
            continue
        pid, parent, group, foreground_group, tty, *start = words[:10]
        try:
            started = datetime.strptime(" ".join(start), "%a %b %d %H:%M:%S %Y").replace(tzinfo=UTC)
            yield ProcessInfo(
                pid=int(pid),
                parent_pid=int(parent),
                group=int(group),
                argv=tuple(words[10].split()) if len(words) > 10 else (),
                tty="" if tty in ("?", "??", "-") else f"/dev/{tty}",
                start_time=started.timestamp(),
                start=" ".join(start),
                is_foreground=group == foreground_group,
            )
        except ValueError:
            continue
