"""The manifest of requirements and the tests agree, both ways.

Read from the source, not from what was collected: the check is whole however few tests are run.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.requirements import REQUIREMENTS

TESTS = Path(__file__).parent


def quotations(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and id of each requirement that a marker in the source quotes."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.requirement":
            for argument in node.args:
                yield argument.lineno, str(ast.literal_eval(argument))


@pytest.fixture(scope="module")
def quoted() -> dict[str, list[str]]:
    """Where in the tests each id is quoted."""
    places = defaultdict(list)
    for path in sorted(TESTS.rglob("*.py")):
        for line, requirement in quotations(path.read_text(encoding="utf-8")):
            places[requirement].append(f"{path.relative_to(TESTS.parent)}:{line}")
    return places


def test_every_quotation_is_a_row(quoted: dict[str, list[str]]) -> None:
    unknown = [
        f"{place}: {requirement}"
        for requirement, places in quoted.items()
        if requirement not in REQUIREMENTS
        for place in places
    ]
    assert not unknown, "quoted, but no row of tests/requirements.py:\n" + "\n".join(unknown)


def test_every_row_is_quoted(quoted: dict[str, list[str]]) -> None:
    missing = [f"{row}: {text}" for row, text in REQUIREMENTS.items() if row not in quoted]
    assert not missing, f"{len(missing)} of {len(REQUIREMENTS)} rows have no test:\n" + "\n".join(
        missing
    )


def test_markers_are_found_wherever_pytest_takes_them_and_nowhere_else() -> None:
    source = """
pytestmark = pytest.mark.requirement("on-module")
@pytest.mark.requirement("on-class")
class TestIt:
    @pytest.mark.requirement("on-method",
                             "second")
    async def test_it(self): ...
@pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.requirement("on-param"))])
def test_it(x): "pytest.mark.requirement('in-text')"  # pytest.mark.requirement("in-comment")
"""
    assert sorted(quotations(source)) == [
        (2, "on-module"),
        (3, "on-class"),
        (5, "on-method"),
        (6, "second"),
        (8, "on-param"),
    ]
