"""What the documents show runs, what they link to is there, and what they name exists."""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, Block, anchors, blocks, links, name
from tests.examples.programs import environment

RUNNABLE = "python run"
SECONDS = 30  # a hang, on however busy a machine
SLOW = re.compile(r"Executing <.+> took \d+\.\d+ seconds")  # says asyncio's debug mode of such

ALL_BLOCKS = [block for page in PAGES for block in blocks(page)]

# Paths that are some machine's and mean nothing elsewhere.
MACHINE_PATH = re.compile(r"(?<![\w.])(/(home|root|Users|work|mnt|private|var/folders)\b|[A-Z]:\\)")


def test_the_documents_are_found() -> None:
    assert len(PAGES) > 20
    assert sum(block.info == RUNNABLE for block in ALL_BLOCKS) >= 5


@pytest.mark.requirement("T-57")
@pytest.mark.parametrize("block", [b for b in ALL_BLOCKS if b.info == RUNNABLE], ids=str)
def test_a_block_marked_to_run_runs_and_prints_what_the_page_shows(
    block: Block, tmp_path: Path
) -> None:
    program = tmp_path / "block.py"
    program.write_text(block.text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-X", "dev", str(program)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment(),
        timeout=SECONDS,
        check=False,
    )
    trouble = [line for line in done.stderr.splitlines() if not SLOW.fullmatch(line)]
    assert (done.returncode, trouble) == (0, []), done.stderr
    assert done.stdout == (block.output or "")


@pytest.mark.parametrize("block", [b for b in ALL_BLOCKS if b.info == "text output"], ids=str)
def test_an_output_stands_behind_what_prints_it(block: Block) -> None:
    assert (block.page, block.text) in [
        (b.page, b.output) for b in ALL_BLOCKS if b.info == RUNNABLE
    ]


@pytest.mark.parametrize(
    "block", [b for b in ALL_BLOCKS if b.info.split(" ")[0] == "python"], ids=str
)
def test_a_block_of_python_is_python(block: Block) -> None:
    compile(block.text, str(block), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_the_session_of_the_readme_is_short_and_is_run() -> None:
    [session] = [block for block in ALL_BLOCKS if block.page == ROOT / "README.md" and block.output]
    assert session.info == RUNNABLE
    assert len([line for line in session.text.splitlines() if line.strip()]) <= 12


def test_every_relative_link_leads_somewhere() -> None:
    lost = []
    for page in PAGES:
        for link in links(page):
            path, _, anchor = link.target.partition("#")
            if "://" in link.target:
                continue
            target = (page.parent / path).resolve() if path else page
            if not target.exists() or ROOT not in (target, *target.parents):
                lost.append(f"{link}: there is no such file")
            elif anchor and anchor not in anchors(target):
                lost.append(f"{link}: there is no such heading")
    assert not lost, "\n".join(lost)


@cache
def names_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
    return {function.name for function in functions}


def test_every_test_that_proves_a_promise_exists() -> None:
    proofs = [
        (link, (link.page.parent / link.target).resolve())
        for page in PAGES
        for link in links(page)
        if link.text.startswith("`test_")
    ]
    assert len(proofs) > 60
    missing = [str(link) for link, path in proofs if link.text.strip("`") not in names_in(path)]
    assert not missing, "\n".join(missing)


@pytest.mark.parametrize("page", sorted((ROOT / "docs/concepts").glob("*.md")), ids=name)
def test_every_promise_of_a_concept_has_its_test(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    promises = re.findall(r"^- (.*?)(?=^- |^#|^$)", text, re.MULTILINE | re.DOTALL)
    assert len(promises) >= 5
    unproved = [promise for promise in promises if "[`test_" not in promise]
    assert not unproved, "\n".join(unproved)


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached, unread = set(), [ROOT / "README.md"]
    while unread:
        page = unread.pop()
        reached.add(page)
        targets = {(page.parent / link.target.partition("#")[0]).resolve() for link in links(page)}
        unread += [t for t in targets if t.suffix == ".md" and t.exists() and t not in reached]
    assert set(PAGES) <= reached, [name(page) for page in set(PAGES) - reached]


def test_no_page_names_the_path_of_a_machine() -> None:
    files = [*PAGES, *(ROOT / "examples").glob("*.py"), *(ROOT / "docs/pictures").iterdir()]
    named = [
        f"{name(path)}:{number}: {line.strip()}"
        for path in files
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if MACHINE_PATH.search(line)
    ]
    assert not named, "\n".join(named)


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("see /home/ada/x", True),
        ("in `/root`", True),
        ("C:\\Users", True),
        ("/tmp/demo.sock", False),
        ("unix:///run/agent.sock", False),
        ("docs/homework and tests/work", False),
        ("https://example.org/home/", False),
    ],
)
def test_the_path_of_a_machine_is_told_from_others(text: str, is_one: bool) -> None:
    assert bool(MACHINE_PATH.search(text)) is is_one


@pytest.mark.parametrize("page", sorted((ROOT / "docs/decisions").glob("*.md")), ids=name)
def test_a_decision_is_half_a_page_with_context_decision_and_consequences(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    number = int(page.name[:4])
    assert text.startswith(f"# {number}. ")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ["Context", "Decision", "Consequences"]
    assert len(text.splitlines()) <= 40


def test_decisions_are_numbered_without_a_gap() -> None:
    numbers = sorted(int(page.name[:4]) for page in (ROOT / "docs/decisions").glob("*.md"))
    assert numbers == list(range(1, len(numbers) + 1))
