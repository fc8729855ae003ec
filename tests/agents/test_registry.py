"""Agents of one machine find each other by files that several programs write at once."""

import fcntl
import hashlib
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bullpen.agents import processes, registry
from bullpen.agents.instances import Instance, Instances
from bullpen.agents.processes import is_running, start_of
from bullpen.agents.registry import AgentRegistry, PortTakenError, RegistryError, default_directory
from bullpen.api import files

SECONDS = 30
FIELDS = {"agent_id", "agent_type", "port", "status", "pid", "working_dir", "endpoint"}


@pytest.fixture
def agents(home: Path, monkeypatch: pytest.MonkeyPatch) -> AgentRegistry:
    """A registry on a machine where nobody serves anything, whatever runs on this one."""
    monkeypatch.setattr(registry, "_is_free", lambda _: True)
    return AgentRegistry(hostname="here")


@pytest.fixture
def other() -> Iterator[int]:
    """A process that is not ours to be."""
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process.pid
        process.kill()


def until(holds: Callable[[], bool]) -> None:
    """Wait for what the system does in its own time, and tells nobody."""
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def dead_pid() -> int:
    with subprocess.Popen(["true"]) as process:
        pass
    return process.pid


def path_of(agents: AgentRegistry, agent_id: str) -> Path:
    return agents.directory / f"{agent_id}.json"


def content(agents: AgentRegistry, agent_id: str) -> Any:
    return json.loads(path_of(agents, agent_id).read_bytes())


def put(agents: AgentRegistry, agent_id: str, **fields: Any) -> Path:
    """Write an entry as another program would."""
    agents.directory.mkdir(parents=True, exist_ok=True)
    path = path_of(agents, agent_id)
    path.write_text(json.dumps({"agent_id": agent_id, **fields}))
    return path


@pytest.mark.requirement("S-70", "S-71")
def test_an_id_is_made_of_the_host_the_directory_and_the_type(agents: AgentRegistry) -> None:
    expected = hashlib.sha256(b"here|/home/ada/place|claude").hexdigest()
    assert agents.get_agent_id("claude", "/home/ada/place") == expected
    assert agents.get_agent_id("claude", "/home/ada/other/../place/") == expected
    there = Path.cwd() / "there"
    assert agents.get_agent_id("codex", "there") == agents.get_agent_id("codex", there)
    assert AgentRegistry().hostname == socket.gethostname()


@pytest.mark.requirement("S-08", "S-72", "S-73", "S-76")
def test_an_entry_is_a_private_file_with_seven_fields(agents: AgentRegistry, home: Path) -> None:
    agent_id = agents.get_agent_id("claude", home)
    entry = agents.register(agent_id, "claude", 8100, "BUSY", working_dir=home)
    path = home / ".a2a/registry" / f"{agent_id}.json"
    assert json.loads(path.read_bytes()) == {
        "agent_id": agent_id,
        "agent_type": "claude",
        "port": 8100,
        "status": "BUSY",
        "pid": os.getpid(),
        "working_dir": str(home),
        "endpoint": "http://localhost:8100",
    }
    assert set(content(agents, agent_id)) == FIELDS
    assert entry.agent_id == agent_id
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for directory in (path.parent, path.parent.parent):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    agents.register(agents.get_agent_id("codex", home), "codex", 8101)
    assert len(list(path.parent.glob("*.json"))) == 2
    assert not list(path.parent.glob(".*.tmp"))


@pytest.mark.requirement("S-12", "S-74")
def test_its_owner_removes_an_entry_and_nobody_else(agents: AgentRegistry, other: int) -> None:
    agents.register("a" * 64, "claude", 8100)
    agents.register("b" * 64, "codex", 8101, pid=other)
    assert agents.unregister("a" * 64)
    assert not agents.unregister("a" * 64)
    assert not agents.unregister("b" * 64)
    assert set(agents.list_agents()) == {"b" * 64}
    assert agents.unregister("b" * 64, pid=other)


@pytest.mark.requirement("S-77")
def test_the_status_of_an_entry_follows_its_agent(agents: AgentRegistry, other: int) -> None:
    agents.register("a" * 64, "claude", 8100, "STARTING")
    for status in ("BUSY", "IDLE", "IDLE"):
        assert agents.update_status("a" * 64, status)
        assert content(agents, "a" * 64)["status"] == status
    assert not agents.update_status("b" * 64, "BUSY")
    agents.register("c" * 64, "codex", 8101, "IDLE", pid=other)
    assert not agents.update_status("c" * 64, "BUSY")
    assert content(agents, "c" * 64)["status"] == "IDLE"


@pytest.mark.requirement("S-75")
def test_what_is_no_entry_is_passed_over(agents: AgentRegistry) -> None:
    agents.register("a" * 64, "claude", 8100)
    directory = agents.directory
    (directory / "garbage.json").write_text("{")
    (directory / "bytes.json").write_bytes(b"\xff\xfe")
    (directory / "list.json").write_text("[]")
    (directory / "deep.json").write_text("[" * 100_000)
    (directory / "huge.json").write_text('{"agent_id": "huge", "x": "' + "x" * 2**17 + '"}')
    (directory / "other.json").write_text(json.dumps({"agent_id": "a" * 64, "pid": os.getpid()}))
    (directory / "directory.json").mkdir()
    os.mkfifo(directory / "pipe.json")  # at which a reader would wait for ever
    (directory / "gone.json").symlink_to("nowhere")
    put(agents, "pidless")
    put(agents, "odd", pid="12")
    put(agents, "negative", pid=-1)
    put(agents, "large", pid=2**70)
    assert set(agents.list_agents()) == {"a" * 64}
    assert [each.agent_id for each in agents.entries()] == ["a" * 64]
    assert AgentRegistry(Path("/nowhere/at/all")).list_agents() == {}


@pytest.mark.requirement("S-75")
def test_the_entry_of_another_program_is_read_with_all_its_fields(agents: AgentRegistry) -> None:
    put(
        agents,
        "synapse-gemini-8110",
        agent_type="gemini",
        port=8110,
        status="READY",
        pid=os.getpid(),
        working_dir="/",
        endpoint="http://localhost:8110",
        uds_path="/tmp/synapse-a2a/synapse-gemini-8110.sock",
        name="Gem",
    )
    assert agents.list_agents()["synapse-gemini-8110"]["name"] == "Gem"
    [entry] = agents.entries()
    assert (entry.agent_type, entry.port, entry.status) == ("gemini", 8110, "READY")


@pytest.mark.requirement("A1.12-a")
def test_a_living_entry_is_never_overwritten(agents: AgentRegistry, other: int) -> None:
    agent_id = agents.get_agent_id("claude", "/")
    first = agents.register(agent_id, "claude", 8100, pid=other)
    second = agents.register(agent_id, "claude", 8100, may_move=True)
    assert first.agent_id == agent_id
    assert second.port != 8100
    assert second.agent_id == f"{agent_id}-claude-{second.port}"
    assert set(agents.list_agents()) == {first.agent_id, second.agent_id}
    assert content(agents, agent_id)["pid"] == other
    # Once more by the same process is the same entry, and its id is kept in its file.
    assert agents.register(second.agent_id, "claude", second.port) == second
    assert content(agents, second.agent_id)["agent_id"] == second.agent_id


def test_an_entry_that_somebody_removed_is_put_back(agents: AgentRegistry, other: int) -> None:
    entry = agents.register("a" * 64, "claude", 8100, "IDLE")
    path_of(agents, entry.agent_id).unlink()
    assert not agents.update_status(entry.agent_id, "BUSY")
    assert agents.restore(entry)
    assert [each.agent_id for each in agents.entries()] == [entry.agent_id]
    assert agents.unregister(entry.agent_id)
    agents.register(entry.agent_id, "claude", 8100, pid=other)
    assert not agents.restore(entry)  # another has taken its place
    assert content(agents, entry.agent_id)["pid"] == other


@pytest.mark.requirement("S-12")
def test_a_dead_entry_is_ignored_replaced_and_cleaned(agents: AgentRegistry) -> None:
    agent_id = agents.get_agent_id("claude", "/")
    agents.register(agent_id, "claude", 8100, pid=dead_pid())
    assert agents.list_agents() == {}
    assert path_of(agents, agent_id).exists()  # reading removes nothing
    assert agents.dead() == (agent_id,)
    assert agents.register(agent_id, "claude", 8100).agent_id == agent_id
    agents.register("b" * 64, "codex", 8101, pid=dead_pid())
    assert agents.clean() == ("b" * 64,)
    assert set(agents.list_agents()) == {agent_id}
    assert agents.clean() == ()


def test_a_process_that_took_the_number_of_a_dead_one_is_not_believed(
    agents: AgentRegistry, home: Path
) -> None:
    instances = Instances(home / "run/agents")
    ours = AgentRegistry(hostname="here", instances=instances)
    ours.register("a" * 64, "claude", 8100)
    ourselves = Instance(
        name="claude",
        profile="claude",
        pid=os.getpid(),
        start=start_of(os.getpid()) or "",
        agent_id="a" * 64,
    )
    instances.write(ourselves)
    assert set(ours.list_agents()) == {"a" * 64}
    instances.write(msgspec.structs.replace(ourselves, start="some other time"))
    assert ours.list_agents() == {}
    assert instances.find("claude") is None
    assert instances.running() == ()
    assert [each.name for each in instances.clean()] == ["claude"]
    assert instances.all() == ()


def test_a_process_is_told_by_its_start_and_a_zombie_is_dead(other: int) -> None:
    assert is_running(other)
    start = start_of(other)
    assert start
    assert is_running(other, start)
    assert not is_running(other, f"{start}1")
    assert not is_running(dead_pid())
    assert not is_running(0)
    os.kill(other, signal.SIGKILL)
    until(lambda: start_of(other) == "")  # it has ended, and nobody buried it
    assert not is_running(other)
    os.kill(other, 0)


def test_a_process_of_somebody_else_runs(monkeypatch: pytest.MonkeyPatch, other: int) -> None:
    def forbidden(pid: int, number: int) -> None:
        raise PermissionError

    start = start_of(other) or ""
    with monkeypatch.context() as patch:
        patch.setattr(os, "kill", forbidden)
        assert is_running(other)
        assert is_running(other, start)
        patch.setattr(processes, "_PROC", Path("/nowhere"))  # where the system hides it
        if sys.platform.startswith("linux"):
            assert is_running(other, start)


def test_ps_tells_the_start_as_well(other: int) -> None:
    start = processes._by_ps(other)
    assert start
    assert start == processes._by_ps(other)
    assert processes._by_ps(dead_pid()) == ""


def test_a_port_whose_connections_have_just_ended_is_free(home: Path) -> None:
    with socket.socket() as serving:
        serving.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        serving.bind(("127.0.0.1", 0))
        serving.listen()
        port = serving.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as caller:
            serving.accept()[0].close()  # who hangs up first is the one that waits
            assert caller.recv(1) == b""
        with pytest.raises(PortTakenError):
            AgentRegistry().register("c" * 64, "served", port)
    assert AgentRegistry().register("c" * 64, "served", port).port == port


def test_agents_without_a_port_get_one_that_nobody_has(home: Path, other: int) -> None:
    agents = AgentRegistry()
    first = agents.register("a" * 64, "mine", None, pid=other)
    second = agents.register("b" * 64, "mine", None)
    assert first.port != second.port
    assert second.endpoint == f"http://localhost:{second.port}"
    with socket.socket() as serving:
        serving.bind(("127.0.0.1", 0))
        port = serving.getsockname()[1]
        assert agents.register("c" * 64, "served", port, may_move=True).port != port
        with pytest.raises(PortTakenError, match=f"^port {port} is taken; choose another"):
            agents.register("c" * 64, "served", port)  # who names one means it
        with pytest.raises(PortTakenError, match=rf"taken by mine \(pid {other}\)"):
            agents.check_port(first.port)
    agents.check_port(second.port)


def test_ports_are_chosen_between_those_of_profiles_as_long_as_there_are_any(
    agents: AgentRegistry, other: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = agents.register("a" * 64, "mine", None, pid=other)
    second = agents.register("b" * 64, "mine", None)
    assert {first.port, second.port} <= set(registry.SHARED_PORTS)
    monkeypatch.setattr(registry, "_is_free", lambda _: False)
    assert agents.register("c" * 64, "other", None).port not in registry.SHARED_PORTS


def test_a_registry_that_cannot_be_used_is_told(home: Path) -> None:
    (home / "file").touch()
    with pytest.raises(RegistryError, match=r"cannot use the registry .*: File exists"):
        AgentRegistry(home / "file" / "registry").register("a" * 64, "claude", 1)
    assert AgentRegistry(home / "file").list_agents() == {}


def test_a_lock_that_nobody_lets_go_of_is_waited_for_and_then_told(
    agents: AgentRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    agents.register("a" * 64, "claude", 8100)
    with (agents.directory / registry.LOCK).open("a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        freeing = threading.Timer(0.05, lambda: fcntl.flock(lock, fcntl.LOCK_UN))
        freeing.start()
        assert agents.update_status("a" * 64, "IDLE")
        freeing.join()
        fcntl.flock(lock, fcntl.LOCK_EX)
        monkeypatch.setattr(files, "LOCK_SECONDS", 0.0)
        with pytest.raises(RegistryError, match=r"somebody has held \.registry\.lock"):
            agents.update_status("a" * 64, "BUSY")
        assert content(agents, "a" * 64)["status"] == "IDLE"


def test_it_is_where_synapse_was_told_to_have_it(home: Path) -> None:
    assert default_directory({}) == home / ".a2a/registry"
    elsewhere = {"SYNAPSE_REGISTRY_DIR": "~/there"}
    assert default_directory(elsewhere) == home / "there"


WRITER = """
import os, sys
from bullpen.agents.registry import AgentRegistry
agents = AgentRegistry(hostname="here")
same = agents.get_agent_id("dummy", "/")
sys.stdin.read(1)
entry = agents.register(same, "dummy", 8199, "STARTING", working_dir="/", may_move=True)
for round in range(20):
    assert agents.update_status(entry.agent_id, f"S{round}")
    mine = agents.list_agents()[entry.agent_id]
    assert (mine["pid"], mine["status"]) == (os.getpid(), f"S{round}"), mine
print(entry.agent_id, entry.port, flush=True)
sys.stdin.read(1)
assert agents.unregister(entry.agent_id)
"""


@pytest.mark.requirement("S-10", "S-76", "A1.12-a")
def test_several_processes_of_one_type_in_one_directory_are_as_many_entries(
    agents: AgentRegistry,
) -> None:
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(6)
    ]
    try:
        for each in writers:
            assert each.stdin is not None
            each.stdin.write("g")
            each.stdin.flush()
        said = [each.stdout.readline().split() for each in writers if each.stdout is not None]
        assert len({agent_id for agent_id, _ in said}) == len(writers)
        assert len({port for _, port in said}) == len(writers)
        entries = agents.list_agents()
        assert set(entries) == {agent_id for agent_id, _ in said}
        assert {each["pid"] for each in entries.values()} == {each.pid for each in writers}
        writers[0].kill()
        for each in writers:
            each.communicate("g", timeout=SECONDS)
        assert [each.returncode for each in writers[1:]] == [0] * 5
        assert agents.list_agents() == {}
        assert [each.name for each in agents.directory.glob("*.json")] == [f"{said[0][0]}.json"]
        assert agents.clean() == (said[0][0],)
    finally:
        for each in writers:
            if each.poll() is None:
                each.kill()
                each.wait()


def test_where_there_is_no_proc_a_process_is_known_by_ps(
    other: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    start = start_of(other)
    assert start == processes._by_ps(other)
    assert is_running(other, start or "nobody")
    assert not is_running(other, "Sun Nov 15 14:00:37 2020")
    assert start_of(dead_pid()) == ""
    assert processes.parents()[other] == os.getpid()
    os.kill(other, signal.SIGSTOP)
    until(lambda: processes.is_stopped(other))
    assert not processes.is_stopped(os.getpid())


def test_a_ps_that_is_not_there_or_says_nonsense_tells_nothing(
    monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    monkeypatch.setattr(processes, "_ps", lambda *_: "1 0\nx y\n1\n2 1 3\n7 1\n")
    assert processes.parents() == {1: 0, 7: 1}
    monkeypatch.setattr(processes, "_ps", lambda *_: None)
    assert (processes.parents(), processes.is_stopped(1)) == ({}, False)
    assert processes._by_ps(1) is None


def test_names_that_differ_by_case_alone_are_one_where_files_are_named_by_them(home: Path) -> None:
    instances = Instances(home / "run/agents")
    alive = {"pid": os.getpid(), "start": start_of(os.getpid()) or ""}
    first = Instance(name="Helper", profile="dummy", **alive)  # type: ignore[arg-type]
    assert instances.claim(first)[0].name == "Helper"
    other = msgspec.structs.replace(first, name="helper", pid=os.getppid(), start="")
    claimed, replaced = instances.claim(other)
    assert (claimed.name, replaced) == ("helper-2", None)
    assert instances.claim(first)[0].name == "Helper"
