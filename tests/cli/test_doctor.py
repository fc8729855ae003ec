"""`bullpen doctor` finds what is wrong, says how bad that is, and how to mend it."""

import asyncio
import os
import stat
import sys
from datetime import UTC, datetime
from pathlib import Path

import click
import msgspec
import pytest

from bullpen.agents import hooks
from bullpen.cli.doctor import Check, listing
from bullpen.model.alerts import Alert, AlertLevel
from bullpen.model.states import HealthStatus, Provider, SourceKind
from bullpen.model.version import VERSION
from bullpen.terminal.tmux import program
from bullpen.testing.daemon import FakeDaemon
from tests.cli.commands import execute, invoke


async def checks() -> dict[str, Check]:
    said = (await invoke("doctor", "--json")).json
    assert said["schema"] == 1
    found = msgspec.convert(said["checks"], list[Check])
    assert said["is_ok"] is all(each.level != "bad" for each in found)
    # Whatever is wrong has its remedy.
    assert [each for each in found if each.level != "ok" and not each.fix] == []
    return {each.name: each for each in found}


def put_on_path(directory: Path, monkeypatch: pytest.MonkeyPatch, **programs: str) -> None:
    """Let nothing be on the PATH but these programs, each a script for a shell."""
    directory.mkdir()
    for name, script in programs.items():
        (directory / name).write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        (directory / name).chmod(0o700)
    monkeypatch.setenv("PATH", str(directory))


async def test_where_all_is_well_nothing_is_to_be_mended(
    daemon: FakeDaemon, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_on_path(home / "bin", monkeypatch, tmux="echo tmux 3.4", claude="echo 2.1.0")
    found = await checks()
    assert {each.level for each in found.values()} == {"ok"}
    assert found["python"].said.endswith(f"at {sys.executable}")
    assert found["tmux"].said == f"tmux 3.4 at {home}/bin/tmux"
    assert found["claude"].said == f"2.1.0 at {home}/bin/claude"
    assert found["codex"].said == "not on the PATH"
    assert found["daemon"].said == f"pid {os.getpid()}, version {VERSION}"
    assert found["runtime"].said == f"{home}/run/bullpen (mode 0700)"
    assert found["socket"].said == f"{daemon.socket_path} (mode 0600)"
    assert found["alerts"].said == "none"
    assert (await invoke("doctor")).code == 0


async def test_without_a_daemon_it_says_how_to_have_one(home: Path) -> None:
    found = await checks()
    assert (found["daemon"].level, found["daemon"].fix) == ("warn", "bullpen up")
    assert found["runtime"].said.endswith("(not there yet)")
    assert "store" not in found
    assert not (home / "run/bullpen").exists()  # it started none


async def test_a_daemon_of_another_version_is_to_be_restarted(home: Path) -> None:
    async with FakeDaemon(home / "run/bullpen/bullpend.sock", version="0.0.1"):
        found = await checks()
    assert found["daemon"].level == "warn"
    assert f"version 0.0.1, but this is {VERSION}" in found["daemon"].said
    assert found["daemon"].fix == "bullpen down && bullpen up"


async def test_a_daemon_of_another_protocol_is_bad(daemon: FakeDaemon) -> None:
    info = msgspec.structs.replace(daemon.info, protocol_version=99)
    daemon.script("daemon.info", info)
    found = await checks()
    assert (found["daemon"].level, found["daemon"].fix) == ("bad", "bullpen down && bullpen up")


async def test_a_store_that_forgets_is_bad(daemon: FakeDaemon) -> None:
    daemon.info = msgspec.structs.replace(daemon.info, is_persistent=False)
    found = await checks()
    assert (found["store"].level, found["store"].fix) == ("bad", "bullpen alerts")
    assert (await invoke("doctor")).code == 1


async def test_a_source_that_fares_badly_is_named_with_its_reason(daemon: FakeDaemon) -> None:
    daemon.set_health(SourceKind.CODEX_APPSERVER, HealthStatus.DEGRADED, "it does not answer")
    daemon.set_health(SourceKind.POLLER, HealthStatus.DOWN)
    found = await checks()
    codex, poller = found["source codex_appserver"], found["source poller"]
    assert (codex.level, codex.said) == ("warn", "degraded: it does not answer")
    assert poller.level == "bad"
    assert codex.fix == f"tail {daemon.info.log_path}"


async def test_alerts_are_counted(daemon: FakeDaemon) -> None:
    at = datetime.now(UTC)
    daemon.set_alert(
        Alert(
            alert_id="1",
            key="k",
            level=AlertLevel.WARN,
            code="slo_breach",
            message="late",
            raised_at=at,
            last_seen_at=at,
        )
    )
    found = await checks()
    assert (found["alerts"].level, found["alerts"].said) == ("warn", "1 open: late")


async def test_what_is_open_to_others_is_bad(daemon: FakeDaemon, home: Path) -> None:
    (home / "run/bullpen").chmod(0o755)
    (home / "run/bullpen/bullpend.sock").chmod(0o666)
    found = await checks()
    assert found["runtime"].fix == f"chmod 700 {home}/run/bullpen"
    assert found["socket"].fix == f"chmod 600 {daemon.socket_path}"
    assert found["runtime"].level == found["socket"].level == "bad"
    assert stat.S_IMODE((home / "run/bullpen").stat().st_mode) == 0o755  # it changed nothing


@pytest.mark.parametrize(
    ("script", "level"),
    [
        ("echo tmux 3.1c", "bad"),
        ("echo tmux 3.2", "ok"),
        ("echo tmux next-3.6", "ok"),
        ("echo tmux master", "ok"),
        ("exit 1", "bad"),
    ],
)
async def test_tmux_must_be_new_enough(
    script: str, level: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_on_path(home / "bin", monkeypatch, tmux=script)
    assert (await checks())["tmux"].level == level


async def test_without_tmux_agents_elsewhere_are_still_seen(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_on_path(home / "bin", monkeypatch)
    monkeypatch.setattr(program, "USUAL_DIRECTORIES", ())
    assert (await checks())["tmux"].level == "warn"


async def test_tmux_is_found_where_the_daemon_finds_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_on_path(home / "usual", monkeypatch, tmux="echo tmux 3.4")
    monkeypatch.setenv("PATH", str(home / "empty"))
    monkeypatch.setattr(program, "USUAL_DIRECTORIES", (str(home / "usual"),))
    assert (await checks())["tmux"].said == f"tmux 3.4 at {home}/usual/tmux"
    monkeypatch.setenv("TMUX_BIN", str(home / "usual/tmux"))
    assert (await checks())["tmux"].said == f"tmux 3.4 at {home}/usual/tmux"


async def test_a_program_that_does_not_tell_its_version_is_no_trouble(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bullpen.cli.doctor.VERSION_SECONDS", 0.2)
    put_on_path(home / "bin", monkeypatch, codex="exec /bin/sleep 60", gemini="exit 3")
    found = await checks()
    assert found["codex"].said.startswith("a version it does not tell at ")
    assert found["gemini"].said.startswith("a version it does not tell at ")


async def test_a_wrong_setting_is_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = home / ".config/bullpen/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text("[observe]\npoll_interval_ms = true\n", encoding="utf-8")
    found = await checks()
    assert found["settings"].level == "bad"
    assert "poll_interval_ms" in found["settings"].said
    assert found["settings"].fix == "edit ~/.config/bullpen/config.toml"


async def test_hooks_are_told_of_where_they_could_be(home: Path) -> None:
    (home / ".claude").mkdir()
    found = await checks()
    claude = found["hooks claude"]
    assert (claude.level, claude.fix) == ("ok", "bullpen hooks install claude")
    (home / ".claude/settings.json").write_text("{nonsense", encoding="utf-8")
    assert (await checks())["hooks claude"].level == "warn"


async def test_hooks_that_are_there_are_told_of(home: Path) -> None:
    (home / ".claude").mkdir()
    await asyncio.to_thread(hooks.install, Provider.CLAUDE)
    assert (await checks())["hooks claude"].said == "installed in ~/.claude/settings.json"
    settings = home / ".claude/settings.json"
    text = settings.read_text(encoding="utf-8").replace(sys.executable, "/old/python", 1)
    settings.write_text(text, encoding="utf-8")
    assert (await checks())["hooks claude"].level == "warn"


def test_each_check_is_a_line_with_its_remedy_below() -> None:
    shown = listing([Check("a", "ok", "fine"), Check("bc", "bad", "broken\x1b", "mend it")])
    assert [click.unstyle(line) for line in shown] == [
        "✓ ok   a   fine",
        "✗ bad  bc  broken�",
        "        fix: mend it",
    ]


async def test_people_get_lines(daemon: FakeDaemon) -> None:
    done = await execute("doctor")
    assert any(line.startswith("✓ ok") and " daemon " in line for line in done.lines)
