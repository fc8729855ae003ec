"""Children are ready before anything goes on, come back when they fail, and never outlive us."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from bullpen.api.errors import DirectoryError
from bullpen.api.methods import PullEvents
from bullpen.api.runtime import Paths
from bullpen.connection import Connection, SocketTransport
from bullpen.daemon.restarts import RestartPolicy
from bullpen.daemon.supervisor import (
    ChildSpec,
    ChildState,
    ChildStatus,
    NotReadyError,
    Supervisor,
    source_child,
)
from bullpen.model.alerts import AlertLevel, ResolvePolicy
from bullpen.model.states import SourceKind
from bullpen.testing import ManualClock

PROGRAMS = Path(__file__).parent / "programs"
SECONDS = 30.0
AT_ONCE = RestartPolicy(first_seconds=0.0, longest_seconds=0.0)


class Alarms:
    """Notes what an operator is told."""

    def __init__(self) -> None:
        self.sounded: list[tuple[str, AlertLevel, ResolvePolicy, str]] = []
        self.cleared: list[str] = []

    def sound(
        self,
        key: str,
        level: AlertLevel,
        reason: str,
        message: str,
        *,
        policy: ResolvePolicy = ResolvePolicy.AUTO,
    ) -> None:
        assert key.startswith(f"{reason}:")
        self.sounded.append((key, level, policy, message))

    def clear(self, key: str) -> None:
        self.cleared.append(key)


class House:
    """Children that a test has, and what each noted when it was started."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.alarms = Alarms()

    def child(self, name: str, manner: str = "well", *after: str) -> ChildSpec:
        socket = self.home / f"run/sources/{name}.sock"
        program = (sys.executable, str(PROGRAMS / "child.py"), str(self.witness(name)), manner)
        command = (*program, "--socket-path", str(socket))
        return ChildSpec(name=name, command=command, socket=socket, after=after)

    def witness(self, name: str) -> Path:
        return self.home / f"{name}.witness"

    def noted(self, name: str) -> list[list[str]]:
        witness = self.witness(name)
        return (
            [line.split() for line in witness.read_text().splitlines()] if witness.exists() else []
        )

    def pids(self, name: str) -> list[int]:
        return [int(pid) for pid, *_ in self.noted(name)]

    def end(self) -> None:
        for witness in self.home.glob("*.witness"):
            for pid in self.pids(witness.stem):
                if not is_gone(pid):
                    psutil.Process(pid).kill()
                    pytest.fail(f"{witness.stem} outlived its supervisor")


@pytest.fixture
def house(home: Path) -> Iterator[House]:
    house = House(home)
    yield house
    house.end()


def status(supervisor: Supervisor, name: str) -> ChildStatus:
    return next(each for each in supervisor.status if each.name == name)


def is_gone(pid: int) -> bool:
    """Whether there is no such process, or only what whoever adopted it has not buried yet."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


async def until(condition: Callable[[], bool]) -> None:
    """Look until something is the case that nobody tells us of."""
    async with asyncio.timeout(SECONDS):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def pull(spec: ChildSpec) -> Any:
    async with Connection.builder().connect(SocketTransport.unix(str(spec.socket))) as connection:
        return await connection.request(PullEvents())


# The gate


@pytest.mark.requirement("A4-1", "RT-4")
async def test_when_it_has_begun_every_child_answers(house: House) -> None:
    specs = [house.child("poller"), house.child("codex_hooks")]
    async with Supervisor(specs, house.alarms) as supervisor:
        assert [each.state for each in supervisor.status] == [ChildState.READY] * 2
        for spec in specs:
            assert (await pull(spec)).next_cursor == "0"
        [[pid, group, directory]] = house.noted("poller")
        assert status(supervisor, "poller").pid == int(pid) == int(group)
        assert directory == "/"
    assert house.alarms.sounded == []
    assert all(is_gone(pid) for pid in house.pids("poller") + house.pids("codex_hooks"))
    assert [each.state for each in supervisor.status] == [ChildState.STOPPED] * 2


@pytest.mark.requirement("A4-1")
async def test_each_is_started_after_those_it_depends_on_are_ready(house: House) -> None:
    ready: list[str] = []
    specs = [
        house.child("gateway", "well", "poller", "hooks"),
        house.child("poller"),
        house.child("hooks", "well", "poller"),
    ]
    async with Supervisor(specs, house.alarms, on_ready=ready.append) as supervisor:
        assert ready == ["poller", "hooks", "gateway"]
        assert [each.name for each in supervisor.status] == ready


@pytest.mark.requirement("A4-1")
async def test_one_that_does_not_become_ready_lets_nothing_begin(house: House) -> None:
    specs = [
        house.child("poller"),
        house.child("hooks", "silent"),
        house.child("gateway", "well", "poller", "hooks"),
    ]
    with pytest.raises(NotReadyError) as caught:
        await Supervisor(specs, house.alarms, gate_seconds=3).start()
    assert caught.value.waiting == {"hooks": "starting", "gateway": "waiting"}
    assert str(caught.value) == "not ready: hooks: starting; gateway: waiting"
    assert house.noted("gateway") == []
    assert all(is_gone(pid) for pid in house.pids("poller") + house.pids("hooks"))


@pytest.mark.requirement("A4-1")
async def test_one_that_cannot_even_start_is_named_with_its_last_words(house: House) -> None:
    specs = [
        house.child("hooks", "crash"),
        ChildSpec(name="poller", command=("/no/such",), socket=house.child("poller").socket),
    ]
    with pytest.raises(NotReadyError) as caught:
        await Supervisor(specs, house.alarms, gate_seconds=2).start()
    assert caught.value.waiting["hooks"] == "it exited: 1 (there is no such thing)"
    assert "cannot run '/no/such'" in caught.value.waiting["poller"]


async def test_one_that_takes_too_long_is_ended_and_tried_again(house: House) -> None:
    supervisor = Supervisor(
        [house.child("hooks", "silent")],
        house.alarms,
        ready_seconds=0.5,
        gate_seconds=3,
        policy=AT_ONCE,
    )
    with pytest.raises(NotReadyError, match=r"it was not ready within 0\.5 s"):
        await supervisor.start()
    assert len(house.pids("hooks")) >= 2


async def test_a_start_that_is_cancelled_leaves_nothing(house: House) -> None:
    supervisor = Supervisor([house.child("hooks", "silent")], house.alarms)
    starting = asyncio.ensure_future(supervisor.start())
    await until(lambda: bool(house.noted("hooks")))
    starting.cancel()
    await asyncio.wait([starting])
    assert starting.cancelled()
    assert is_gone(house.pids("hooks")[0])


async def test_what_an_earlier_run_left_is_not_taken_for_the_child(house: House) -> None:
    spec, left = house.child("hooks", "silent"), house.child("left")
    spec.socket.parent.mkdir(mode=0o700)
    orphan = await asyncio.create_subprocess_exec(
        *left.command[:-1], str(spec.socket), stdin=subprocess.PIPE
    )
    await until(spec.socket.exists)
    with pytest.raises(NotReadyError):
        await Supervisor([spec], house.alarms, gate_seconds=2).start()
    orphan.kill()
    await asyncio.wait_for(orphan.communicate(), SECONDS)


async def test_a_directory_that_others_may_use_is_refused(house: House, home: Path) -> None:
    (home / "run/sources").mkdir()
    (home / "run/sources").chmod(0o755)
    with pytest.raises(DirectoryError, match="others may use it"):
        await Supervisor([house.child("poller")], house.alarms).start()
    assert house.noted("poller") == []


def test_children_that_wait_for_each_other_are_a_mistake(house: House) -> None:
    with pytest.raises(ValueError, match="cycle"):
        Supervisor([house.child("a", "well", "b"), house.child("b", "well", "a")], house.alarms)
    with pytest.raises(KeyError, match="nobody"):
        Supervisor([house.child("a", "well", "nobody")], house.alarms)


# Restarts


@pytest.mark.requirement("A4-2")
async def test_one_that_dies_is_started_again_and_an_operator_knows_meanwhile(
    house: House,
) -> None:
    clock = ManualClock()
    async with Supervisor(
        [house.child("poller")], house.alarms, clock=clock, chance=lambda: 0.5
    ) as supervisor:
        [first] = house.pids("poller")
        os.kill(first, signal.SIGKILL)
        await until(lambda: status(supervisor, "poller").state is ChildState.PAUSING)
        told = "it was ended by signal 9"
        assert status(supervisor, "poller").reason == told
        assert house.alarms.sounded == [
            (
                "source_failed:poller",
                AlertLevel.WARN,
                ResolvePolicy.AUTO,
                f"poller: {told}; it is started again in 1.0 s",
            )
        ]
        clock.advance(0.99)
        await asyncio.sleep(0)
        assert status(supervisor, "poller").state is ChildState.PAUSING
        clock.advance(0.01)
        await until(lambda: status(supervisor, "poller").state is ChildState.READY)
        assert status(supervisor, "poller").starts == 2
        assert house.alarms.cleared[-1] == "source_failed:poller"
        assert (await pull(house.child("poller"))).next_cursor == "0"


@pytest.mark.requirement("A4-2", "A4-3", "A4-4", "A8-5")
async def test_one_that_fails_too_often_is_held_down_while_the_others_go_on(
    house: House,
) -> None:
    clock = ManualClock()
    specs = [house.child("poller"), house.child("hooks")]
    async with Supervisor(specs, house.alarms, clock=clock, chance=lambda: 0.5) as supervisor:
        for failure, pause in enumerate([1, 2, 4, 8]):
            os.kill(house.pids("hooks")[-1], signal.SIGKILL)
            await until(lambda: status(supervisor, "hooks").state is ChildState.PAUSING)
            clock.advance(pause - 0.01)
            assert len(house.pids("hooks")) == failure + 1
            clock.advance(0.01)
            await until(lambda: status(supervisor, "hooks").state is ChildState.READY)
        os.kill(house.pids("hooks")[-1], signal.SIGKILL)
        await until(lambda: status(supervisor, "hooks").state is ChildState.HELD_DOWN)
        key, level, policy, message = house.alarms.sounded[-1]
        assert (key, level) == ("source_held_down:hooks", AlertLevel.ESCALATE)
        assert policy is ResolvePolicy.OPERATOR
        assert message.endswith("it is started again in 300.0 s, for it fails too often")
        clock.advance(299.9)
        assert (await pull(specs[0])).next_cursor == "0"
        assert status(supervisor, "poller") == ChildStatus(
            "poller", ChildState.READY, house.pids("poller")[0], 1
        )
        assert len(house.pids("hooks")) == 5
        clock.advance(0.1)
        await until(lambda: status(supervisor, "hooks").state is ChildState.READY)
        assert status(supervisor, "hooks").starts == 6


# The end


async def test_all_are_ended_within_a_second_also_those_that_do_not_listen(house: House) -> None:
    specs = [house.child(name, "stubborn") for name in ("a", "b")]
    specs += [house.child("c"), house.child("d", "family")]
    async with Supervisor(specs, house.alarms):
        begun = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - begun < 1.0
    [[*_, family]] = house.noted("d")
    assert [each for each in "abcd" if not is_gone(house.pids(each)[0])] == []
    await until(lambda: is_gone(int(family)))
    assert psutil.Process().children() == []  # nobody is left to be buried


async def test_one_that_is_held_down_or_pausing_does_not_hold_up_the_end(house: House) -> None:
    clock = ManualClock()
    async with Supervisor([house.child("poller")], house.alarms, clock=clock) as supervisor:
        os.kill(house.pids("poller")[0], signal.SIGKILL)
        await until(lambda: status(supervisor, "poller").state is ChildState.PAUSING)
    await supervisor.aclose()  # twice is the same as once
    assert len(house.pids("poller")) == 1


async def test_a_child_notices_that_its_parent_was_killed(house: House, home: Path) -> None:
    socket, witness = home / "run/sources/poller.sock", house.witness("poller")
    parent = await asyncio.create_subprocess_exec(
        *(sys.executable, str(PROGRAMS / "parent.py"), str(socket), str(witness)),
        stdout=subprocess.PIPE,
    )
    assert parent.stdout is not None
    assert await asyncio.wait_for(parent.stdout.readline(), SECONDS) == b"ready\n"
    [child] = house.pids("poller")
    parent.kill()
    await parent.wait()
    await until(lambda: is_gone(child))
    await until(lambda: not socket.exists())  # it has ended well


# What they say


async def test_what_a_child_says_is_in_our_log(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with Supervisor([house.child("hooks", "chatty")], house.alarms):
        await until(lambda: '{"level": 3}' in caplog.text)
    said = [each for each in caplog.records if getattr(each, "source", "") == "hooks"]
    lines = [(each.name, each.levelname, each.getMessage()) for each in said]
    assert ("bullpen.daemon", "WARNING", "hooks: a plain line") in lines
    assert ("bullpen.observe", "ERROR", "seen") in lines
    [seen] = [each for each in said if each.getMessage() == "seen"]
    assert seen.__dict__["pane"] == "%1"


def test_a_line_without_end_is_cut(caplog: pytest.LogCaptureFixture) -> None:
    from bullpen.daemon import supervisor

    lines = supervisor._Lines("hooks")
    for _ in range(10):
        lines.feed(b"x" * 20_000)
    lines.feed(b"\nshort\n\xff\n")
    logged = [each.getMessage() for each in caplog.records]
    assert all(len(line) <= supervisor.MAX_LINE_BYTES + len("hooks: ") for line in logged)
    assert logged[-2:] == ["hooks: short", "hooks: �"]


def test_a_source_of_ours_is_started_by_our_own_interpreter() -> None:
    paths = Paths.resolve({"BULLPEN_HOME": "/b"})
    child = source_child(SourceKind.POLLER, paths, environment={"A": "1"})
    assert child.command == (
        *(sys.executable, "-P", "-m", "bullpen", "source", "poller"),
        *("--socket-path", "/b/run/bullpend.sources/poller.sock"),
    )
    assert (child.name, child.socket) == ("poller", Path("/b/run/bullpend.sources/poller.sock"))
    assert child.environment == {"A": "1"}
