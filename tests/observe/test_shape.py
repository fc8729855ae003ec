"""How the plane of observation is cut: what decides does not look, and nobody does everything."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from bullpen.api.settings import Settings
from bullpen.model.reasons import Reason
from bullpen.model.states import Provider, SignatureClass, SourceKind
from bullpen.observe.ranks import rank

OBSERVE = Path(__file__).parents[2] / "src/bullpen/observe"


@pytest.mark.requirement("SRC-7")
def test_a_screen_is_read_without_tmux_or_any_io() -> None:
    code = (
        "import sys, bullpen.observe.pane, bullpen.observe.signature;"
        "print([name for name in sys.modules if 'tmux' in name or name in"
        " ('asyncio', 'socket', 'subprocess', 'sqlite3')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.requirement("SRC-10")
def test_no_module_takes_in_arbitrates_and_shows() -> None:
    for path in OBSERVE.rglob("*.py"):
        imported = {
            node.module
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.ImportFrom)
        }
        decides = "bullpen.observe.resolver" in imported
        looks = any((name or "").startswith("bullpen.terminal.tmux") for name in imported)
        assert not (decides and looks), path


@pytest.mark.requirement("DM-4", "DM-6", "DM-7")
def test_words_are_lower_case_on_the_wire() -> None:
    assert [each.value for each in SignatureClass] == ["deterministic", "heuristic", "none"]
    for words in (Provider, SourceKind):
        assert all(each.value == each.value.lower() for each in words)


@pytest.mark.requirement("Q10")
def test_every_refusal_has_a_number_of_its_own() -> None:
    numbers = [reason.value for reason in Reason]
    assert len(set(numbers)) == len(numbers)
    assert all(-32099 <= number <= -32010 for number in numbers)
    assert max(numbers) == Reason.INVALID_SOURCE_EVENT
    assert Reason.SLO_BREACH.word == "slo_breach"


@pytest.mark.requirement("Q14")
def test_a_snapshot_is_saved_every_fifteen_minutes() -> None:
    assert Settings().daemon.snapshot_minutes == 15


@pytest.mark.requirement("TG-2", "RES-9", "RES-10", "Q5")
def test_sources_are_ranked_by_how_near_they_are_to_the_program() -> None:
    codex = [
        SourceKind.CODEX_APPSERVER,
        SourceKind.CODEX_HOOKS,
        SourceKind.CODEX_ROLLOUT,
        SourceKind.CODEX_CAPTURE,
        SourceKind.POLLER,
    ]
    ranks = [rank(Provider.CODEX, kind) for kind in codex]
    assert ranks == sorted(set(ranks))
    claude = [
        SourceKind.CLAUDE_HOOKS,
        SourceKind.CLAUDE_SESSIONS,
        SourceKind.CLAUDE_TRANSCRIPT,
        SourceKind.POLLER,
    ]
    ranks = [rank(Provider.CLAUDE, kind) for kind in claude]
    assert ranks == sorted(set(ranks))
    for provider in Provider:
        assert rank(provider, SourceKind.REPORT) < rank(provider, SourceKind.POLLER)
