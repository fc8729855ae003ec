"""The benchmark of tmux runs, and says what it promises to say."""

import subprocess
import sys
from pathlib import Path

import pytest

from bench.figure import from_json

ROOT = Path(__file__).parents[3]


@pytest.mark.tmux
@pytest.mark.requirement("bench:tmux")
def test_a_hundred_panes_are_set_beside_a_process_for_each(tmp_path: Path) -> None:
    output = tmp_path / "figures.json"
    subprocess.run(
        [sys.executable, "-m", "bench", "--only", "tmux", "--quick", "--json", output],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=50,
    )
    captured, listed, unchanged = from_json(output.read_bytes())
    assert captured.at_most == 1 / 20
    assert "100" in captured.what
    assert captured.theirs == listed.theirs == unchanged.theirs > 0
