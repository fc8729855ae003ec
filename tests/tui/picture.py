"""The picture of the board in the README, drawn by the board: `python -m tests.tui.picture`."""

import asyncio
import os
import re
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bullpen.model.states import Activity, EvidenceMode, EvidenceTier, HealthStatus, SourceKind
from bullpen.model.views import AgentState, Claim, Explanation
from bullpen.testing.daemon import FakeDaemon, agent_state
from tests.tui.boards import showing

__all__ = ["FILE", "draw"]

FILE = Path(__file__).parents[2] / "docs/pictures/board.svg"
NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
SIZE = (112, 28)
FONT = re.compile(r"@font-face \{.*?\}", re.DOTALL)  # which would be fetched from somewhere

SAID, SEEN = EvidenceMode.DETERMINISTIC, EvidenceMode.HEURISTIC
BRANCHES = {"shop": "fix-cart", "blog": "main"}
CAST = (
    ("claude-1", "shop", 1, Activity.WAITING_APPROVAL, SAID, "Mend the cart", 34),
    ("codex-1", "shop", 2, Activity.RUNNING, SAID, "Write tests for checkout", 12),
    ("gemini-1", "shop", 3, Activity.IDLE, SEEN, "Name the discounts", 190),
    ("claude-2", "blog", 4, Activity.RUNNING, SAID, "Sort the archive", 71),
    ("opencode-1", "blog", 5, Activity.ERROR, SEEN, "Check every link", 8),
    ("copilot-1", "blog", 0, Activity.WAITING_INPUT, SAID, "Upgrade the theme", 5),
)
"""Name, project, pane (0 for none), what it is doing, how that is known, title, seconds."""


def _agents(home: Path) -> list[AgentState]:
    return [
        agent_state(
            *(name, activity),
            pane=f"%{pane}" if pane else None,
            tmux_session=project,
            index=pane,
            cwd=f"{home}/src/{project}",
            title=title,
            evidence_mode=evidence,
            since=NOW - timedelta(seconds=seconds),
            source=SourceKind.CLAUDE_HOOKS if evidence is SAID else SourceKind.POLLER,
            reason="it asks whether a tool may run" if activity.is_waiting else "",
        )
        for name, project, pane, activity, evidence, title, seconds in CAST
    ]


def _claim(kind: SourceKind, event: str, activity: Activity, age: float, why: str) -> Claim:
    return Claim(
        source_kind=kind,
        tier=kind.tier,
        event_type=event,
        activity=activity,
        observed_at=NOW,
        age_seconds=age,
        link_age_seconds=1,
        is_winner=kind.tier is EvidenceTier.DETERMINISTIC,
        why=why,
    )


CLAIMS = (
    _claim(
        *(SourceKind.CLAUDE_HOOKS, "activity.waiting_approval", Activity.WAITING_APPROVAL, 34),
        "the program said so itself, and nobody has contradicted it since",
    ),
    _claim(
        *(SourceKind.POLLER, "activity.waiting_approval", Activity.WAITING_APPROVAL, 33),
        "rule approval of claude: a dialog with numbered choices; a screen gives way to a hook",
    ),
)


async def draw(home: Path) -> str:
    """Return the picture of agents that work below a home, which is the user's own."""
    for project, branch in BRANCHES.items():
        git = home / "src" / project / ".git"
        git.mkdir(parents=True)
        (git / "HEAD").write_text(f"ref: refs/heads/{branch}\n", encoding="ascii")
    agents = _agents(home)
    daemon = FakeDaemon(home / "d.sock", agents=agents)
    daemon.explanations["claude-1"] = Explanation(
        subject="claude-1", agent=agents[0], claims=CLAIMS
    )
    for kind in (SourceKind.CLAUDE_HOOKS, SourceKind.CODEX_APPSERVER, SourceKind.GEMINI):
        daemon.set_health(kind, HealthStatus.HEALTHY)
    width, height = SIZE
    async with (
        daemon,
        showing(daemon.socket_path, width=width, height=height, now=lambda: NOW) as board,
    ):
        await board.shows("claude-1", "copilot-1", "fix-cart")
        await board.press("w", "e")
        await board.shows("explain claude-1", "a screen gives way")
        return FONT.sub("", board.app.export_screenshot(title="bullpen", simplify=True))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        os.environ["HOME"] = directory
        FILE.write_text(asyncio.run(draw(Path(directory))), encoding="utf-8")
