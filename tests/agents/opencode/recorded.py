"""What our plugin told of a real opencode, while somebody used it."""

import json
from pathlib import Path
from typing import Any

__all__ = ["deliveries"]

RECORDING = Path(__file__).parents[2] / "recordings" / "opencode" / "hooks.jsonl"


def deliveries() -> list[dict[str, Any]]:
    """Every delivery, and between them the marks of what was done: `{"mark": …}`."""
    return [json.loads(line) for line in RECORDING.read_text(encoding="utf-8").splitlines()]
