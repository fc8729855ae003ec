"""Starting, ending, telling, setting, keeping: commands that do more than list."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from bullpen.api.methods import Report, RestoreReport
from bullpen.cli.snapshot import report_lines
from bullpen.model.records import SnapshotInfo
from bullpen.model.states import Activity, Provider
from bullpen.testing.daemon import STARTED, FakeDaemon
from tests.cli.commands import execute, invoke, show

# Up and down


async def test_up_says_which_daemon_there_is(daemon: FakeDaemon) -> None:
    done = await show("up")
    assert done.out == (
        f"the daemon is up: pid {os.getpid()}, version {daemon.info.version}, "
        f"{daemon.socket_path}\n"
    )
    assert (await show("up", "--json")).json["daemon"]["pid"] == os.getpid()


async def test_down_ends_the_daemon_and_again_is_the_same_as_once(daemon: FakeDaemon) -> None:
    done = await execute("down")
    assert (done.code, done.out) == (0, f"the daemon is down: it was pid {os.getpid()}\n")
    assert daemon.is_stopped.is_set()
    assert not await asyncio.to_thread(Path(daemon.socket_path).exists)
    assert await execute("down") == (0, "no daemon is running\n", "")
    assert (await show("down", "--json")).json == {"schema": 1, "pid": None}


SLOW_TO_GO = """
import asyncio, fcntl, os, sys, time
from bullpen.testing.daemon import FakeDaemon

async def serve():
    async with FakeDaemon(sys.argv[1] + ".sock") as daemon:
        print("ready", flush=True)
        await daemon.is_stopped.wait()

with open(sys.argv[1] + ".lock", "w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    print(os.getpid(), file=lock, flush=True)
    asyncio.run(serve())
    time.sleep(0.3)  # it writes down what it knows
    print("gone", flush=True)
"""


def test_down_waits_until_the_process_is_gone(home: Path) -> None:
    command = [sys.executable, "-c", SLOW_TO_GO, str(home / "d")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        done = asyncio.run(invoke("down", "-s", str(home / "d.sock")))
        assert (done.code, done.err) == (0, "")
        os.set_blocking(process.stdout.fileno(), False)
        assert process.stdout.readline() == "gone\n"  # it was said before we got here
        assert process.wait(timeout=20) == 0


async def test_a_daemon_of_another_version_can_be_ended(daemon: FakeDaemon) -> None:
    daemon.script("daemon.info", {"pid": 4_000_000, "protocol_version": 99})
    assert (await show("down")).out == "the daemon is down: it was pid 4000000\n"


async def test_a_daemon_that_took_its_place_is_left_alone(daemon: FakeDaemon, home: Path) -> None:
    daemon.script("daemon.shutdown", True)
    (home / "run/bullpen/bullpend.lock").write_text("1\n", encoding="ascii")
    assert (await show("down")).out == f"the daemon is down: it was pid {os.getpid()}\n"
    assert not daemon.is_stopped.is_set()


async def test_a_daemon_that_does_not_end_is_named(
    daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bullpen.cli.down.END_SECONDS", 0.1)
    daemon.script("daemon.shutdown", True)  # it says so and stays
    done = await invoke("down")
    assert done.code == 1
    assert f"kill {os.getpid()} ends it" in done.err


# Telling


async def test_an_agent_of_ones_own_is_told_of(
    daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMUX", "/tmp/t,1,0")
    monkeypatch.setenv("TMUX_PANE", "%4")
    words = ["report", "nightly", "waiting_input", "--title", "index", "--provider", "codex"]
    assert (await show(*words, "--pid", "77", "--message", "why")).out == ""
    assert daemon.requests[-1] == Report(
        name="nightly",
        activity=Activity.WAITING_INPUT,
        title="index",
        provider=Provider.CODEX,
        pid=77,
        cwd=str(Path.cwd()),
        tmux="/tmp/t,1,0",
        tmux_pane="%4",
        message="why",
    )
    assert "nightly" in (await show("ls", "--waiting")).out


async def test_whose_process_it_is_is_found_out(daemon: FakeDaemon) -> None:
    await execute("report", "nightly", "running")
    report = daemon.requests[-1]
    assert isinstance(report, Report)
    assert report.pid == os.getpid()  # of whoever called it


async def test_a_refused_report_is_an_error(daemon: FakeDaemon) -> None:
    from bullpen.api.methods import IngestReply, Refusal

    daemon.script("report", IngestReply(0, refused=(Refusal("1", "late_event", "it is old"),)))
    done = await invoke("report", "nightly", "running", "--json")
    assert (done.code, done.err) == (1, "bullpen: the report was refused: it is old\n")
    assert done.json["reply"]["refused"][0]["reason"] == "late_event"


# Snapshots


@pytest.mark.requirement("A7-2")
async def test_a_snapshot_is_saved_listed_tried_and_restored(daemon: FakeDaemon) -> None:
    assert (await show("snapshot", "list")).out == "no snapshots\n"
    assert (await show("snapshot", "save")).out == "s1\n"
    assert (await show("snapshot", "list")).lines[0].startswith("s1  0s ago  manual  0 panes")
    tried = await show("snapshot", "restore", "s1", "--dry-run")
    assert tried.out == "would restore 0 panes and 0 sessions of s1\n"
    assert (
        await show("snapshot", "restore", "s1")
    ).out == "restored 0 panes and 0 sessions of s1\n"
    assert (await show("snapshot", "list", "--json")).json["snapshots"][0]["snapshot_id"] == "s1"


@pytest.mark.requirement("A7-2")
async def test_without_a_dry_run_nothing_is_restored(daemon: FakeDaemon) -> None:
    await show("snapshot", "save")
    done = await execute("snapshot", "restore", "s1")
    assert done == (
        1,
        "",
        "bullpen: try it first: bullpen snapshot restore s1 --dry-run; then say it again\n",
    )


async def test_a_snapshot_that_is_not_there_is_said_to_be_so(daemon: FakeDaemon) -> None:
    done = await invoke("snapshot", "restore", "s9")
    assert (done.code, done.err) == (1, "bullpen: there is no snapshot 's9'\n")


async def test_what_cannot_be_restored_fails(daemon: FakeDaemon) -> None:
    await show("snapshot", "save")
    info = SnapshotInfo(snapshot_id="s1", created_at=STARTED, reason="manual")
    daemon.script(
        "snapshot.restore",
        RestoreReport(snapshot=info, dry_run=True, is_valid=False, problems=("it is damaged",)),
    )
    done = await invoke("snapshot", "restore", "s1", "--dry-run")
    assert (done.code, done.out) == (1, "s1 cannot be restored\n  it is damaged\n")


def test_what_is_left_out_of_a_snapshot_is_counted() -> None:
    info = SnapshotInfo(snapshot_id="s1", created_at=STARTED, reason="manual")
    report = RestoreReport(
        snapshot=info, dry_run=False, is_valid=True, panes_restored=2, panes_dropped=3
    )
    assert report_lines(report) == [
        "restored 2 panes and 0 sessions of s1",
        "left out 3 panes",
    ]


# Settings


async def test_the_settings_are_a_config_file(home: Path) -> None:
    import tomllib

    printed = tomllib.loads((await show("config")).out)
    assert printed["observe"]["poll_interval_ms"] == 1000
    assert printed["sources"]["codex_appserver"] == "auto"


async def test_a_setting_is_shown_with_where_it_comes_from(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = home / ".config/bullpen/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('[daemon]\nlog_level = "debug"\n', encoding="utf-8")
    monkeypatch.setenv("BULLPEN_OBSERVE_POLL_INTERVAL_MS", "500")
    lines = [line.split() for line in (await show("config", "--show-sources")).lines]
    assert ["observe.poll_interval_ms", "500", "$BULLPEN_OBSERVE_POLL_INTERVAL_MS"] in lines
    assert ["daemon.log_level", '"debug"', "~/.config/bullpen/config.toml"] in lines
    assert ["observe.history_lines", "50", "default"] in lines
    said = (await show("config", "--json")).json
    assert said["settings"]["observe.poll_interval_ms"] == 500
    assert said["sources"]["daemon.log_level"] == str(config)


async def test_a_wrong_setting_is_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BULLPEN_OBSERVE_POLL_INTERVAL_MS", "often")
    done = await execute("config")
    assert (done.code, done.out) == (1, "")
    assert "$BULLPEN_OBSERVE_POLL_INTERVAL_MS" in done.err


# The daemon itself


@pytest.mark.requirement("CLI-3")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["daemon", "--poll-interval-ms", "0"], "0 is not in the range"),
        (["daemon", "--poll-interval-ms", "often"], "'often' is not a valid integer"),
        (["daemon", "--log-level", "loud"], "'loud' is not one of"),
        (["source", "hearsay", "-s", "x"], "'hearsay' is not one of"),
        (["source", "poller"], "--socket-path is missing"),
    ],
)
async def test_a_daemon_told_nonsense_does_not_begin(arguments: list[str], message: str) -> None:
    done = await invoke(*arguments)
    assert done.code == 2
    assert message in done.err


@pytest.mark.requirement("CLI-2", "CLI-3")
async def test_what_the_daemon_is_told_reaches_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from bullpen.api.options import DaemonOptions

    told: list[DaemonOptions] = []

    def run(options: DaemonOptions, companions: Sequence[object]) -> int:
        assert companions  # MCP is served beside it
        told.append(options)
        return 0

    monkeypatch.setattr("bullpen.daemon.main.run", run)
    await show("daemon")
    await show("daemon", "--poll-interval-ms", "500", "--tmux-socket", "w", "--isolate-sources")
    await show("daemon", "-s", "/tmp/x.sock", "--background", "--log-level", "debug")
    assert told == [
        DaemonOptions(),
        DaemonOptions(poll_interval_ms=500, tmux_socket="w", isolate_sources=True),
        DaemonOptions(socket_path="/tmp/x.sock", log_level="debug", foreground=False),
    ]


async def test_a_second_daemon_ends_with_3(monkeypatch: pytest.MonkeyPatch) -> None:
    from bullpen.daemon.lock import AlreadyRunning

    def run(*_: object) -> int:
        raise AlreadyRunning(Path("/run/bullpend.lock"), 77)

    monkeypatch.setattr("bullpen.daemon.main.run", run)
    done = await invoke("daemon")
    assert done.code == 3
    assert "already running (pid 77)" in done.err
