"""The reference of the api has every method, param and refusal there is, and no other."""

import re
from pathlib import Path

import msgspec
import pytest

from bullpen.api import external, methods, push, talk, wrapping
from bullpen.connection import TypedNotification, TypedRequest
from bullpen.model.reasons import Reason

REFERENCE = (Path(__file__).parents[2] / "docs/reference/api.md").read_text(encoding="utf-8")
TYPES = [
    each
    for module in (methods, talk, external, push, wrapping)
    for each in vars(module).values()
    if isinstance(each, type)
    and issubclass(each, (TypedRequest, TypedNotification))
    and each.__module__ == module.__name__
]


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.METHOD)
def test_every_method_has_its_row_with_its_params(
    kind: "type[TypedRequest[object] | TypedNotification]",
) -> None:
    [row] = re.findall(rf"^\| `{re.escape(kind.METHOD)}` \| (.*?) \|", REFERENCE, re.MULTILINE)
    fields = msgspec.structs.fields(kind)
    shown = [f"`{each.name}`" + "?" * (not each.required) for each in fields]
    assert row == (", ".join(shown) or "-")


def test_the_table_of_refusals_is_the_codes() -> None:
    shown = re.findall(r"^\| (-\d+) \| `(\w+)` \|$", REFERENCE, re.MULTILINE)
    assert shown == [(str(each.value), each.word) for each in Reason]


def test_every_code_of_an_alert_is_in_the_table() -> None:
    source = Path(__file__).parents[2] / "src/bullpen/daemon"
    words = set()
    for name in ("alarms.py", "supervisor.py"):
        found = re.findall(r'^[A-Z_]+ = "([a-z_]+)"$', (source / name).read_text(), re.MULTILINE)
        words |= set(found)
    assert {"source_down", "source_held_down"} <= words
    for word in words:
        assert f"| `{word}` |" in REFERENCE
