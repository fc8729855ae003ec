"""What the how-to shows must be true."""

import re
from pathlib import Path
from typing import get_args

from bullpen.testing.models import Step
from bullpen.testing.models.script import _OPERATIONS, parse_turns

HOWTO = Path(__file__).parents[3] / "docs" / "howto" / "fake-models.md"


def test_its_python_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", HOWTO.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(HOWTO), "exec"), names)
    assert len(blocks) == 3


def test_its_scripts_can_be_read_and_show_every_operation() -> None:
    rows = re.findall(r"^\| (`<<.*?) \|(?= )", HOWTO.read_text(encoding="utf-8"), re.MULTILINE)
    scripts = [
        script.replace(r"\|", "|")  # as a table shows it
        for row in rows
        for script in re.findall(r"`(<<.*?>>)`", row)
    ]
    assert len(scripts) > 15
    text = " ".join(scripts)
    for script in scripts:
        parse_turns(script)
    assert {name for name in _OPERATIONS if not re.search(rf"\b{name}\b", text)} == set()


def test_it_names_every_step() -> None:
    steps = {step.__name__ for step in get_args(Step)}
    text = HOWTO.read_text(encoding="utf-8")
    assert {name for name in steps if f"`{name}`" not in text} == set()
