"""The documents as the tests see them: pages, the links between them, and their blocks of code."""

import re
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

__all__ = ["PAGES", "ROOT", "Block", "Link", "anchors", "blocks", "links", "name", "prose"]

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]

_FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!\\)\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<target>[^()\s]+)\)")


class Block(NamedTuple):
    """A fenced block of a page."""

    page: Path
    line: int
    info: str
    text: str
    output: str | None  # what running it prints, if the page shows that right behind it

    def __str__(self) -> str:
        return f"{name(self.page)}:{self.line}"


class Link(NamedTuple):
    """A link of a page."""

    page: Path
    text: str
    target: str

    def __str__(self) -> str:
        return f"{name(self.page)}: [{self.text}]({self.target})"


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> Iterator[Block]:
    """Yield the fenced blocks of a page."""
    text = page.read_text(encoding="utf-8")
    fences = list(_FENCE.finditer(text))
    for fence, following in zip_longest(fences, fences[1:]):
        output = None
        if following is not None and following["info"] == "text output":
            gap = text[fence.end() : following.start()]
            output = following["text"] if not gap.strip() else None
        line = text.count("\n", 0, fence.start()) + 1
        yield Block(page, line, fence["info"], fence["text"], output)


def prose(page: Path) -> str:
    """Return a page without its fenced blocks."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def links(page: Path) -> Iterator[Link]:
    """Yield the links of a page, also those in links' texts (a picture that is a link)."""
    for found in _LINK.finditer(prose(page)):
        yield Link(page, found["text"], found["target"])
        for inner in _LINK.finditer(found["text"]):
            yield Link(page, inner["text"], inner["target"])


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    words = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {word.replace(" ", "-") for word in words}
