"""The picture in the README shows the board as it is."""

import html
import re
from pathlib import Path

from tests.tui.picture import FILE, draw


def words_of(picture: str) -> list[str]:
    texts = re.findall(r"<text[^>]*>(.*?)</text>", picture)
    return [html.unescape(text).replace("\xa0", " ") for text in texts]


async def test_the_picture_is_what_the_board_shows(home: Path) -> None:
    drawn = words_of(await draw(home))
    assert "claude-1" in " ".join(drawn)
    assert words_of(FILE.read_text(encoding="utf-8")) == drawn, "python -m tests.tui.picture"


def test_the_picture_fetches_nothing() -> None:
    named = re.findall(r"https?://[\w.]+", FILE.read_text(encoding="utf-8"))
    assert set(named) <= {"http://www.w3.org", "https://www.textualize.io"}
