"""The daemon, from outside: a socket, lines of JSON, a real tmux."""

import asyncio
import contextlib
import logging
import shlex
import sqlite3
import stat
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bullpen.model.states import SourceKind
from bullpen.testing.tmux import PrivateTmux
from tests.daemon.harness import Clock, Peer, RefusedError, event, running_daemon, settings, until

pytestmark = pytest.mark.tmux


@pytest.fixture
async def tmux(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[PrivateTmux]:
    async with PrivateTmux(width=120, height=40) as server:
        monkeypatch.setenv("BULLPEN_TMUX_SOCKET_PATH", server.target.socket_path)
        monkeypatch.setenv("TMUX_TMPDIR", str(Path(server.target.socket_path).parent))
        yield server


async def managed(peer: Peer, pane_id: str) -> dict[str, Any]:
    async def look() -> Any:
        pane = (await peer.panes()).get(pane_id)
        return pane if pane and pane["presence"] == "managed" else None

    found: dict[str, Any] = await until(look)
    return found


async def agent_pane(tmux: PrivateTmux, name: str = "claude") -> str:
    return await tmux.new_pane(f"exec -a {name} sleep 600")


# ---------------------------------------------------------------------------------- what there is


@pytest.mark.requirement(
    "IF-D1", "IF-D6", "IF-D7", "IF-D8", "IF-D9", "DM-14", "DM-16", "UDS-8", "PL-4", "PL-5", "PL-6",
    "PL-10", "PL-7..9", "Q6", "RT-2", "TMX-4", "TMX-8",
)  # fmt: skip
async def test_every_pane_is_listed_with_its_signature(tmux: PrivateTmux) -> None:
    pane_id = await agent_pane(tmux)
    async with running_daemon() as (peer, _):
        agent = await managed(peer, pane_id)
        panes = await peer.panes()
        assert len(panes) == len((await tmux.run("list-panes", "-a")).splitlines())
        [shell] = [each for each in panes.values() if each["presence"] == "unmanaged"]
    assert {"presence", "evidence_mode", "signature_class", "signature_reason"} < agent.keys()
    assert {"signature_confidence", "no_agent_streak", "updated_at"} < agent.keys()
    assert set(agent["signature_inputs"]) == {
        "provider_hint",
        "cmd_match",
        "poller_match",
        "title_match",
    }
    assert (agent["signature_class"], agent["signature_confidence"]) == ("heuristic", 1.0)
    assert agent["provider"] == "claude"
    assert (shell["signature_class"], shell["signature_confidence"]) == ("none", 0.0)
    assert (shell["provider"], shell["evidence_mode"]) == (None, "none")
    assert set(agent["pane_instance_id"]) == {"pane_id", "generation", "birth_ts", "server"}


@pytest.mark.requirement("IF-D2", "DM-15", "DM-1", "UDS-8")
async def test_every_session_is_listed_with_all_that_is_known_of_it(tmux: PrivateTmux) -> None:
    pane_id = await agent_pane(tmux)
    async with running_daemon() as (peer, _):
        pane = await managed(peer, pane_id)
        await peer.ingest(event("tool.started", pane=pane))
        session = (await peer.sessions())["claude:one"]
    wanted = {
        "session_key",
        "presence",
        "evidence_mode",
        "deterministic_last_seen",
        "winner_tier",
        "activity_state",
        "activity_source",
        "representative_pane_instance_id",
        "updated_at",
    }
    assert wanted <= session.keys()
    assert (session["winner_tier"], session["activity_state"]) == ("deterministic", "running")
    assert session["representative_pane_instance_id"] == pane["pane_instance_id"]


@pytest.mark.requirement("IF-D3", "SRC-1", "SRC-6", "RT-5", "UDS-8")
async def test_every_source_is_listed_with_its_health_from_the_start(
    tmux: PrivateTmux, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = settings(
        sources={
            "claude_sessions": True,
            "claude_transcript": True,
            "codex_appserver": "auto",
            "codex_command": "no-such-codex",
            "codex_rollout": True,
            "copilot": True,
            "gemini": True,
        }
    )
    async with running_daemon(given) as (peer, _):
        health = await peer.health()
    kinds = set(SourceKind) - {SourceKind.PTY, SourceKind.OPENCODE}
    assert {kind.value for kind in kinds} <= health.keys()
    assert health["codex_appserver"]["status"] in ("degraded", "down")
    assert health["poller"]["status"] == "healthy"
    assert "checked_at" in health["poller"]


@pytest.mark.requirement("IF-D4", "IF-D5", "IF-D6", "Q9")
async def test_changes_are_pushed_with_versions_and_signatures(tmux: PrivateTmux) -> None:
    async with running_daemon() as (peer, _):
        version = (await peer.ask("summary"))["version"]
        async with peer.follow(since_version=version) as told:
            pane_id = await agent_pane(tmux)
            await managed(peer, pane_id)

            async def summary() -> Any:
                said = [each["params"] for each in told if each.get("method") == "summary_changed"]
                return [each for each in said if each["summary"]["agents"] == 1]

            await until(summary)
    changes = [each["params"]["change"] for each in told if each.get("method") == "state_changed"]
    versions = [each["version"] for each in changes]
    assert versions == list(range(version + 1, version + 1 + len(versions)))
    [pane] = [each["pane"] for each in changes if each["kind"] == "pane"][-1:]
    assert pane["signature_class"] == "heuristic"
    assert pane["signature_inputs"]["provider_hint"] is True
    agents = [each for each in changes if each["kind"] == "agent"]
    assert [each["agent"]["name"] for each in agents][:1] == ["claude-1"]


@pytest.mark.requirement("Q9")
async def test_who_missed_too_much_is_told_to_list_everything_again(tmux: PrivateTmux) -> None:
    async with running_daemon() as (peer, _):
        async with peer.follow(since_version=10_000) as told:
            assert told[0]["resync_required"] is True
        reply = await peer.ask("changes", since_version=10_000)
        assert reply["resync_required"] is True


@pytest.mark.requirement("ERR-9", "UDS-6", "UDS-7")
@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"{", -32700),
        (b'{"id":7,"method":"no.such.method","params":{}}', -32601),
        (b'{"id":7,"method":"wait","params":{"agent":1}}', -32602),
        (b'{"id":7,"method":"source.ingest","params":{"source_kind":"nobody"}}', -32602),
    ],
    ids=["not-json", "no-such-method", "bad-params", "bad-enum"],
)
async def test_what_makes_no_sense_is_answered_with_its_code(line: bytes, code: int) -> None:
    async with running_daemon() as (peer, _):
        answer = await peer.exchange(line)
        assert answer["error"]["code"] == code
        assert await peer.ask("list_panes") is not None


# ---------------------------------------------------------------------------- what agents tell us


@pytest.mark.requirement("BND-4", "TG-6", "SIG-1", "IF-D6", "RES-8")
async def test_a_word_of_the_agent_itself_is_told_at_once(tmux: PrivateTmux) -> None:
    pane_id = await agent_pane(tmux)
    async with running_daemon() as (peer, _):
        pane = await managed(peer, pane_id)
        assert pane["binding_state"] == "managed_heuristic"
        assert (await peer.ingest(event("approval.requested", pane=pane)))["accepted"] == 1
        pane = (await peer.panes())[pane_id]
    assert pane["binding_state"] == "managed_deterministic_fresh"
    assert (pane["signature_class"], pane["evidence_mode"]) == ("deterministic", "deterministic")
    assert (pane["activity_state"], pane["activity_source"]) == ("waiting_approval", "claude_hooks")


@pytest.mark.requirement("DET-9")
@pytest.mark.parametrize(
    ("event_type", "activity"),
    [
        ("prompt.submitted", "running"),
        ("turn.started", "running"),
        ("turn.completed", "idle"),
        ("turn.interrupted", "idle"),
        ("turn.failed", "error"),
        ("turn.rate_limited", "rate_limited"),
        ("approval.requested", "waiting_approval"),
        ("question.asked", "waiting_input"),
        ("thread.active", "running"),
        ("thread.idle", "idle"),
        ("thread.systemError", "error"),
    ],
)
async def test_each_type_of_event_says_what_the_agent_does(event_type: str, activity: str) -> None:
    async with running_daemon() as (peer, _):
        await peer.hello("codex_appserver")
        await peer.ingest(
            event(event_type, kind="codex_appserver", provider="codex", session="codex:a")
        )
        assert (await peer.sessions())["codex:a"]["activity_state"] == activity


@pytest.mark.requirement("SRC-6")
async def test_a_hook_reaches_the_pane_it_was_fired_in(tmux: PrivateTmux) -> None:
    pane_id = await agent_pane(tmux)
    async with running_daemon() as (peer, _):
        await managed(peer, pane_id)
        hook = {
            "hook_event_name": "PermissionRequest",
            "session_id": "s1",
            "cwd": "/",
            "tool_name": "Bash",
        }
        await peer.ask(
            "hook.report",
            provider="claude",
            payload=hook,
            tmux=f"{tmux.target.socket_path},1,0",
            tmux_pane=pane_id,
        )

        async def waiting() -> Any:
            return (await peer.panes())[pane_id]["activity_state"] == "waiting_approval"

        await until(waiting)
        assert (await peer.panes())[pane_id]["session_key"] == "claude:s1"


async def test_anybodys_own_agent_can_report(tmux: PrivateTmux) -> None:
    async with running_daemon() as (peer, _):
        await peer.ask("report", name="builder", activity="running", title="nightly build")
        agent = (await peer.agents())["builder"]
        assert (agent["provider"], agent["activity"], agent["title"]) == (
            "other",
            "running",
            "nightly build",
        )
        await peer.ask("report", name="builder", activity="exited")
        assert "builder" not in await peer.agents()


@pytest.mark.requirement("A2-1")
async def test_cursors_are_kept_though_nothing_happens() -> None:
    clock = Clock()
    async with running_daemon(clock=clock) as (peer, _):
        path = (await peer.ask("daemon.info"))["state_path"]

        def checkpoint() -> str:
            with contextlib.closing(sqlite3.connect(path)) as database:
                found = database.execute("SELECT max(checkpoint_ts) FROM cursor_state_v2")
                return str(found.fetchone()[0])

        for _ in range(2):
            before = await asyncio.to_thread(checkpoint)
            clock.advance(31)

            async def is_another(before: str = before) -> bool:
                return await asyncio.to_thread(checkpoint) not in (before, "None")

            await until(is_another)


# ------------------------------------------------------------------------------- what is refused


@pytest.mark.requirement("ERR-1")
@pytest.mark.parametrize("name", ["", "  ", "a\nb", "\x1b[31m"])
async def test_an_agent_that_reports_needs_a_name(name: str) -> None:
    async with running_daemon() as (peer, _):
        with pytest.raises(RefusedError) as caught:
            await peer.ask("report", name=name, activity="running")
        assert caught.value.reason == "invalid_source_event"
        assert await peer.agents() == {}


@pytest.mark.requirement("ERR-1")
@pytest.mark.parametrize("at", [1e30, -1e30, 1e12])
async def test_a_hook_at_no_time_there_is_is_refused(at: float) -> None:
    hook = {"hook_event_name": "Stop", "session_id": "s1", "cwd": "/"}
    async with running_daemon() as (peer, _):
        with pytest.raises(RefusedError) as caught:
            await peer.ask("hook.report", provider="claude", payload=hook, at=at)
        assert caught.value.reason == "invalid_source_event"


@pytest.mark.requirement("ERR-10", "SIG-9", "ERR-8")
async def test_what_is_refused_is_in_the_log_once(
    tmux: PrivateTmux, caplog: pytest.LogCaptureFixture
) -> None:
    script = r"printf '\033]2;Claude Code\007'; exec -a node sleep 1000"
    pane_id = await tmux.new_pane(shlex.join(["bash", "-c", script]))
    with caplog.at_level(logging.INFO, logger="bullpen.observe"):
        async with running_daemon() as (peer, _):

            async def is_rejected() -> bool:
                return "signature_guard_rejected" in caplog.text

            await until(is_rejected)
            assert (await peer.panes())[pane_id]["presence"] == "unmanaged"
            await peer.hello("claude_hooks")
            for _ in range(3):
                with pytest.raises(RefusedError):
                    await peer.ingest({"event_id": "e1"}, kind="claude_hooks")
    said = [each.getMessage() for each in caplog.records if each.name == "bullpen.observe"]
    [guarded] = [each for each in said if "signature_guard_rejected" in each]
    assert guarded.startswith("poller of pane:")
    assert guarded.endswith("the title is 'Claude Code', but a title alone is no evidence")
    assert said.count("claude_hooks: missing_event_time: observed_at is missing") == 1


async def test_a_process_is_none_that_stands_for_many() -> None:
    async with running_daemon() as (peer, _):
        await peer.ask("report", name="builder", activity="running", pid=-1)
        assert (await peer.agents())["builder"]["pid"] == 0


@pytest.mark.parametrize(
    ("method", "param"), [("explain", "subject"), ("ack_alert", "alert_id"), ("wait", "agent")]
)
async def test_what_is_answered_does_not_grow_with_what_was_said(method: str, param: str) -> None:
    more = {"until": ["idle"]} if method == "wait" else {}
    async with running_daemon() as (peer, _):
        with pytest.raises(RefusedError) as caught:
            await peer.ask(method, **{param: "x" * 1_000_000}, **more)
        assert len(str(caught.value)) < 200


async def refusal(peer: Peer, *events: dict[str, Any], kind: str = "") -> str:
    with pytest.raises(RefusedError) as caught:
        await peer.ingest(*events, kind=kind)
    assert -32099 < caught.value.code <= -32010
    return str(caught.value.reason)


@pytest.mark.requirement("ERR-1", "ERR-2", "SIG-2", "ERR-7", "DM-5", "DM-8", "DM-9")
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"provider": "nobody"}, "invalid_source_event"),
        ({"provider": None}, "invalid_source_event"),
        ({"tier": "heuristic"}, "invalid_source_event"),
        ({"source_kind": "codex_hooks"}, "invalid_source_event"),
        ({"observed_at": None}, "missing_event_time"),
        ({"source_event_id": None}, "signature_inconclusive"),
        ({"session_key": ""}, "invalid_source_event"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else value,
)
async def test_an_observation_that_is_not_whole_is_refused(
    changes: dict[str, Any], reason: str, tmux: PrivateTmux
) -> None:
    pane_id = await agent_pane(tmux)
    async with running_daemon() as (peer, _):
        pane = await managed(peer, pane_id)
        assert await refusal(peer, event(pane=pane) | changes, kind="claude_hooks") == reason
        assert (await peer.panes())[pane_id]["signature_class"] == "heuristic"


@pytest.mark.requirement("ERR-5", "ERR-6", "BND-8", "BND-9", "TG-8")
async def test_what_comes_late_about_a_former_life_of_a_pane_is_refused(tmux: PrivateTmux) -> None:
    clock = Clock()
    pane_id = await agent_pane(tmux)
    async with running_daemon(clock=clock) as (peer, daemon):
        old = await managed(peer, pane_id)
        await tmux.run("respawn-pane", "-k", "-t", pane_id, "exec -a claude sleep 601")

        async def reborn() -> Any:
            pane = (await peer.panes()).get(pane_id)
            return pane if pane and pane["pane_instance_id"]["generation"] == 2 else None

        await until(reborn)
        assert await refusal(peer, event(pane=old, at=clock())) == "binding_conflict"
        clock.advance(121)
        await daemon.pipeline.tick()
        assert await refusal(peer, event(pane=old, at=clock())) == "late_event"
        pane = (await peer.panes())[pane_id]
        assert pane["signature_class"] == "heuristic"
        await peer.ingest(event("tool.started", pane=pane, at=clock()))
        late = event("turn.completed", pane=pane, at=clock() - timedelta(seconds=5))
        assert await refusal(peer, late) == "late_event"


@pytest.mark.requirement("ERR-4", "RES-9", "RES-10")
async def test_of_two_words_at_the_same_moment_the_lower_source_is_suppressed(
    tmux: PrivateTmux,
) -> None:
    pane_id = await agent_pane(tmux, "codex")
    async with running_daemon() as (peer, _):
        pane = await managed(peer, pane_id)
        await peer.hello("codex_appserver")
        now = datetime.now(UTC)
        best = event(
            "thread.active",
            kind="codex_appserver",
            provider="codex",
            session="codex:a",
            at=now,
            pane=pane,
        )
        await peer.ingest(best)
        lower = event(
            "approval.requested",
            kind="codex_hooks",
            provider="codex",
            session="codex:a",
            at=now,
            pane=pane,
        )
        assert await refusal(peer, lower) == "source_rank_suppressed"
        assert (await peer.panes())[pane_id]["activity_state"] == "running"
        explained = await peer.ask("explain", subject=pane_id)
    [loser] = [each for each in explained["claims"] if each["source_kind"] == "codex_hooks"]
    assert loser["why"] == "codex_appserver ranks higher"


@pytest.mark.requirement("ERR-8", "SIG-8", "SIG-9")
async def test_a_title_alone_is_rejected_and_that_is_told(tmux: PrivateTmux) -> None:
    pane_id = await tmux.new_pane("exec -a node sleep 600")
    await tmux.run("select-pane", "-t", pane_id, "-T", "✳ Claude Code")
    async with running_daemon() as (peer, _):

        async def rejected() -> Any:
            return (await peer.health())["poller"]["dropped"].get("signature_guard_rejected")

        await until(rejected)
        pane = (await peer.panes())[pane_id]
    assert pane["presence"] == "unmanaged"
    assert "title alone is no evidence" in pane["signature_reason"]


@pytest.mark.requirement("ERR-3", "A3-2", "A3-4", "A8-2", "A8-3")
async def test_only_a_registered_source_may_deliver(tmux: PrivateTmux) -> None:
    clock = Clock()
    mine: dict[str, Any] = {"kind": "codex_rollout", "provider": "codex", "session": "codex:a"}
    async with running_daemon(clock=clock) as (peer, _):
        assert await refusal(peer, event(**mine)) == "source_registry_miss"
        for wrong, reason in (
            ({"nonce": "wrong"}, "runtime_nonce_mismatch"),
            ({"protocol_version": 99}, "protocol_version_mismatch"),
        ):
            nonce = (await peer.ask("daemon.info"))["nonce"]
            params = {"source_kind": "codex_rollout", "nonce": nonce} | wrong
            with pytest.raises(RefusedError) as caught:
                await peer.ask("source.hello", **params)
            assert caught.value.reason == reason
        await peer.hello("codex_rollout")
        assert (await peer.ingest(event(**mine)))["accepted"] == 1
        clock.advance(31)
        [registered] = await registration(peer, "codex_rollout")
        assert registered["state"] == "stale"
        assert await refusal(peer, event(**mine)) == "source_not_active"
        await peer.ask("source.heartbeat", source_kind="codex_rollout")
        assert (await peer.ingest(event(**mine)))["accepted"] == 1
        await peer.ask("source.revoke", source_kind="codex_rollout")
        assert await refusal(peer, event(**mine)) == "source_revoked"


async def registration(peer: Peer, kind: str) -> list[dict[str, Any]]:
    registry = await peer.ask("list_source_registry")
    return [each for each in registry if each["source_kind"] == kind]


@pytest.mark.requirement("RES-1", "RES-2", "TG-3", "A2-4")
async def test_the_same_observation_counts_once(tmux: PrivateTmux) -> None:
    clock = Clock()
    async with running_daemon(clock=clock) as (peer, daemon):
        once = event(at=clock())
        assert await peer.ingest(once) == {"accepted": 1, "duplicates": 0, "refused": []}
        clock.advance(11 * 60)
        await daemon.pipeline.tick()
        assert await peer.ingest(once) == {"accepted": 0, "duplicates": 1, "refused": []}
        other = event(session="claude:two") | {"event_id": once["event_id"]}
        assert (await peer.ingest(other))["accepted"] == 1


@pytest.mark.requirement("A5-2", "A8-4")
async def test_a_pane_that_changed_meanwhile_is_not_bound(tmux: PrivateTmux) -> None:
    pane_id = await agent_pane(tmux)
    async with running_daemon() as (peer, _):
        pane = await managed(peer, pane_id)
        await peer.ingest(event("tool.started", session="claude:loose"))
        request = {"pane": pane_id, "session_key": "claude:loose"}
        with pytest.raises(RefusedError) as caught:
            await peer.ask("bind_pane", **request, expected_version=pane["state_version"] - 1)
        assert caught.value.reason == "binding_cas_conflict"
        pane = (await peer.panes())[pane_id]
        bound = await peer.ask("bind_pane", **request, expected_version=pane["state_version"])
        assert bound["session_key"] == "claude:loose"


# ------------------------------------------------------------------------------------- the gateway


@pytest.mark.requirement("IF-G1", "IF-G2", "A1-2", "A1-3", "A1-4", "A1-5", "A8-1")
async def test_the_log_is_delivered_until_it_is_acknowledged(tmux: PrivateTmux) -> None:
    clock = Clock()
    async with running_daemon(clock=clock) as (peer, _):
        await peer.ingest(event(at=clock()))
        first = await peer.ask("gateway.pull_events", consumer="mine")
        assert first["events"]
        assert first["next_cursor"]
        clock.advance(2.1)
        again = await peer.ask("gateway.pull_events", consumer="mine")
        assert again["delivery_token"] == first["delivery_token"]
        assert again["attempt"] == 2
        ack = {"delivery_token": first["delivery_token"], "consumer": "mine"}
        assert (await peer.ask("gateway.ack_delivery", **ack))["status"] == "committed"
        assert (await peer.ask("gateway.ack_delivery", **ack))["status"] == "already_committed"
        assert any(each["code"] == "ack_timeout" for each in await peer.ask("list_alerts"))
        with pytest.raises(RefusedError) as caught:
            await peer.ask("gateway.ack_delivery", delivery_token="never", consumer="mine")
        assert caught.value.reason == "unknown_delivery_token"
        with pytest.raises(RefusedError) as caught:
            await peer.ask("gateway.pull_events", consumer="mine", cursor="nonsense")
        assert caught.value.reason == "invalid_cursor"
        await peer.ingest(event(at=clock()))
        for _ in range(5):
            await peer.ask("gateway.pull_events", consumer="mine")
            clock.advance(2.1)
        with pytest.raises(RefusedError) as caught:
            await peer.ask("gateway.pull_events", consumer="mine")
        assert caught.value.reason == "ack_retry_exhausted"
        assert (await peer.health())["claude_hooks"]["status"] == "degraded"


@pytest.mark.requirement("A2-2", "A8-4")
@pytest.mark.parametrize("back", [{"events": 10_001}, {"seconds": 601}], ids=["events", "seconds"])
async def test_the_log_is_not_rewound_too_far(back: dict[str, Any]) -> None:
    async with running_daemon() as (peer, _):
        with pytest.raises(RefusedError) as caught:
            await peer.ask("gateway.rewind", consumer="mine", **back)
        assert caught.value.reason == "rewind_window_exceeded"
        await peer.ingest(event())
        batch = await peer.ask("gateway.pull_events", consumer="mine")
        token = batch["delivery_token"]
        await peer.ask("gateway.ack_delivery", delivery_token=token, consumer="mine")
        assert (await peer.ask("gateway.pull_events", consumer="mine"))["events"] == []
        assert (await peer.ask("gateway.rewind", consumer="mine", events=1))["events"] == 1
        assert len((await peer.ask("gateway.pull_events", consumer="mine"))["events"]) == 1


async def test_nobody_may_read_for_the_daemon_itself() -> None:
    async with running_daemon() as (peer, _):
        for consumer in ("projection", "fold"):
            with pytest.raises(RefusedError):
                await peer.ask("gateway.pull_events", consumer=consumer)


@pytest.mark.requirement("CUR-1", "CUR-2", "MEM-1", "MEM-2", "PL-11")
async def test_idle_ticks_deliver_nothing_twice_and_keep_nothing(tmux: PrivateTmux) -> None:
    async with running_daemon() as (peer, daemon):

        async def settled() -> Any:
            before = (await peer.health())["poller"]["accepted"]
            await asyncio.sleep(0.5)
            return (await peer.health())["poller"]["accepted"] == before and before

        accepted = await until(settled) and (await peer.health())["poller"]["accepted"]
        for _ in range(100):
            await daemon.pipeline.tick()
        health = (await peer.health())["poller"]
        info = await peer.ask("daemon.info")
    assert health["accepted"] - accepted <= 2
    assert health["dropped"].get("duplicate", 0) == 0
    assert info["buffers"]["gateway.log"] < 100


# ------------------------------------------------------------------------------------- its files


@pytest.mark.requirement("UDS-1", "UDS-2", "UDS-3", "UDS-5", "Q13", "RT-3")
async def test_the_socket_is_ours_alone_and_gone_afterwards(home: Path) -> None:
    async with running_daemon() as (peer, _):
        assert peer.path == home / "run/bullpen/bullpend.sock"
        directory, socket = await asyncio.to_thread(
            lambda: (peer.path.parent.stat(), peer.path.stat())
        )
        assert stat.S_IMODE(directory.st_mode) == 0o700
        assert stat.S_IMODE(socket.st_mode) == 0o600
        assert stat.S_ISSOCK(socket.st_mode)
    assert not peer.path.exists()


@pytest.mark.requirement("PER-1", "PER-2", "Q3", "A7-1")
async def test_after_a_restart_agents_are_there_with_their_names_and_words(
    tmux: PrivateTmux,
) -> None:
    await agent_pane(tmux)
    second = await agent_pane(tmux)
    async with running_daemon() as (peer, _):
        pane = await managed(peer, second)
        name = pane["agent"]
        await peer.ingest(event("approval.requested", pane=pane))
        await peer.ask("list_panes")
    async with running_daemon() as (peer, _):
        pane = await managed(peer, second)
        assert (pane["agent"], pane["session_key"]) == (name, "claude:one")
        assert pane["activity_state"] == "waiting_approval"
        snapshots = await peer.ask("snapshot.list")
    assert [each["reason"] for each in snapshots] == ["shutdown"]


@pytest.mark.requirement("Q3")
async def test_panes_of_a_dead_tmux_server_are_never_believed(tmux: PrivateTmux) -> None:
    pane_id = await agent_pane(tmux)
    async with running_daemon() as (peer, _):
        await managed(peer, pane_id)
    await tmux.kill()
    async with running_daemon() as (peer, _):
        assert await peer.panes() == {}
        assert await peer.agents() == {}


@pytest.mark.requirement("A7-2", "A7-3", "A8-5")
async def test_a_snapshot_is_restored_only_after_a_dry_run(tmux: PrivateTmux) -> None:
    pane_id = await agent_pane(tmux)
    async with running_daemon() as (peer, _):
        await managed(peer, pane_id)
        saved = await peer.ask("snapshot.save")
        request = {"snapshot_id": saved["snapshot_id"]}
        with pytest.raises(RefusedError) as caught:
            await peer.ask("snapshot.restore", **request, dry_run=False)
        assert caught.value.reason == "dry_run_required"
        tried = await peer.ask("snapshot.restore", **request, dry_run=True)
        assert (tried["dry_run"], tried["is_valid"], tried["panes_dropped"]) == (True, True, 0)
        done = await peer.ask("snapshot.restore", **request, dry_run=False)
        assert done["panes_restored"] == tried["panes_restored"] == 2
        with pytest.raises(RefusedError):
            await peer.ask("snapshot.restore", **request, dry_run=False)
        with pytest.raises(RefusedError) as caught:
            await peer.ask("snapshot.restore", snapshot_id="never", dry_run=True)
        assert caught.value.reason == "snapshot_not_found"
        reasons = [each["reason"] for each in await peer.ask("snapshot.list")]
    assert reasons == ["before_restore", "manual"]


# ------------------------------------------------------------------------------------------ alerts


@pytest.mark.requirement("A6-2", "A6-3", "A6-4", "A8-4")
async def test_slow_changes_raise_an_alert_that_ends_with_them(tmux: PrivateTmux) -> None:
    clock = Clock()
    given = settings(daemon={"slo_deterministic_ms": 1})
    async with running_daemon(given, clock=clock) as (peer, daemon):
        kinds = ["turn.started", "turn.completed"]
        for number in range(210):
            at = clock() - timedelta(seconds=1)
            await peer.ingest(event(kinds[number % 2], at=at))
        for _ in range(3):
            daemon.alarms.judge_latencies()
        [alert] = [each for each in await peer.ask("list_alerts") if each["code"] == "slo_breach"]
        assert alert["level"] == "degraded"
        assert (await peer.ask("latency_status"))["deterministic"]["is_breached"] is True
        acknowledged = await peer.ask("ack_alert", alert_id=alert["alert_id"])
        assert acknowledged["acknowledged_at"]
        clock.advance(11 * 60)
        daemon.alarms.judge_latencies()
        assert all(each["code"] != "slo_breach" for each in await peer.ask("list_alerts"))
        everything = await peer.ask("list_alerts", include_resolved=True)
    assert any(each["code"] == "slo_breach" and each["resolved_at"] for each in everything)
