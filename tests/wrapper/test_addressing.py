"""`@name message` typed in a wrapped program's terminal is sent, and the terminal never waits."""

import asyncio
from collections.abc import Callable, Sized
from functools import partial
from pathlib import Path

import pytest

from bullpen.agents.profile import Profile
from bullpen.terminal.emulators import open_emulator
from bullpen.wrapper.addressing import SHOWN_SECONDS
from tests.wrapper.rooms import Glass, dummy, read, room, tui


@pytest.mark.requirement(
    "S-03", "S-43", "S-54", "S-55", "S-56", "S-57", "S-58", "A1.12-b", "A1.12-c", "A1.12-h"
)
async def test_an_address_is_sent_and_the_program_does_not_execute_it(home: Path) -> None:
    async with room(home) as place, place.wrapped(dummy(), name="ann") as glass:
        daemon = place.daemon
        daemon.contacts = ["codex", "my-agent", "far"]
        daemon.endpoints = {"far": "https://agents.example.com"}
        await daemon.until_ready()
        await glass.type("@Codex review this")
        await glass.until(b"> @Codex review this")
        await glass.type("\r")
        await glass.until("\x1b[32m[→ codex (local)]\x1b[0m\r\n> ".encode())
        (sent,) = daemon.sent
        assert (sent.to, sent.content, sent.secret) == ("codex", "review this", "")
        assert sent.metadata == {"via": "ann"}
        await glass.type("@far look at this\r")
        await glass.until("[→ far (ext)]".encode())
        await glass.type('@my-agent --response "how much?"\r')
        await glass.until("\x1b[36m[← my-agent]\x1b[0m\r\n42\r\n> ".encode())
        await glass.type("@nobody hello\r")
        await glass.until("\x1b[31m[✗ nobody not found]\x1b[0m".encode())
        daemon.refused = "codex listens to nobody"
        await glass.type("@codex hello\r")
        await glass.until("[✗ codex: refused: codex listens to nobody]".encode())
        daemon.refused, daemon.reply = "", ""
        await glass.type("@codex --response hello\r")
        await glass.until(b"no answer within 60 s")
        await glass.type("and now you\r")
        await glass.until(b"You said: and now you")
        assert b"You said: @" not in glass.shown
        log = (await read(place.paths.agent_logs / "input_router.log")).splitlines()
        assert [line.split(" ")[1:4] for line in log] == [
            ["ann", "->", to] for to in ("codex", "far", "my-agent", "nobody", "codex", "codex")
        ]
        assert "m-1, answered" in log[2]


def has(things: Sized, count: int) -> bool:
    return len(things) == count


@pytest.mark.requirement("S-49", "S-51", "S-56")
async def test_after_a_line_in_japanese_and_arrows_the_next_address_is_one_as_well(
    home: Path,
) -> None:
    async with room(home) as place, place.wrapped(dummy()) as glass:
        daemon = place.daemon
        daemon.contacts = ["codex", "審査"]
        await daemon.until_ready()
        for number in (1, 2):
            await glass.type("@審査 --response 日本語🎉")
            await glass.until("日本語🎉".encode())
            await glass.type("\r")
            await daemon.until(partial(has, daemon.waits, number))
            await daemon.until_ready()
            await glass.type("@codex a\x1b[D\x1b[Ab\r")
            await daemon.until(partial(has, daemon.sent, 2 * number))
            await daemon.until_ready()
        assert [each.content for each in daemon.sent] == ["日本語🎉", "ab"] * 2
        assert [each.take for each in daemon.waits] == [True, True]
        assert b"You said: @" not in glass.shown


async def screen_of(glass: Glass, columns: int, rows: int) -> tuple[str, ...]:
    emulator = await asyncio.to_thread(open_emulator, columns, rows)
    emulator.feed(glass.shown)
    try:
        return emulator.screen().lines
    finally:
        emulator.close()


@pytest.mark.requirement("S-57")
async def test_over_a_painted_screen_a_notice_stands_on_the_last_row(home: Path) -> None:
    async with room(home) as place, place.wrapped(tui(), columns=60, rows=12) as glass:
        daemon = place.daemon
        daemon.contacts, daemon.reply = ["codex-8120"], "forty-two\nand more"
        daemon.also = {"codex-8120": ("codex",)}
        await daemon.until_ready()
        await glass.type("@file is a mention")
        await daemon.until(lambda: daemon.states[-1].prompt == "draft")
        await glass.type("\r")
        await glass.until("● ".encode())
        await daemon.until_ready()
        assert not daemon.sent
        before = await screen_of(glass, 60, 12)
        for key in "@codex --response how much?":
            await glass.type(key)
        await daemon.until(lambda: daemon.states[-1].prompt == "draft")
        await glass.type("\r")
        await glass.until("[← codex]".encode())
        after = await screen_of(glass, 60, 12)
        assert after[-1] == "[← codex] forty-two and more"
        assert after[: len(before) - 1] == before[:-1]  # and nothing else is different
        await daemon.until_ready()
        assert (await daemon.answer_to("hello")).text == "You said: hello"


@pytest.mark.requirement("S-54")
@pytest.mark.parametrize("program", [dummy, tui], ids=["lines", "screen"])
async def test_after_what_was_rubbed_out_an_address_is_one_as_soon_as_that_is_shown(
    home: Path, program: Callable[[], Profile]
) -> None:
    async with room(home) as place, place.wrapped(program()) as glass:
        daemon = place.daemon
        daemon.contacts = ["codex"]
        await daemon.until_ready()
        await glass.type("well")
        await daemon.until(lambda: daemon.states[-1].prompt != "empty")
        await glass.type("\x7f" * 4)
        await daemon.until_ready()
        await asyncio.sleep(2 * SHOWN_SECONDS)  # nothing tells that somebody has stopped typing
        await glass.type("@codex hello")
        await daemon.until(lambda: daemon.states[-1].prompt != "empty")
        await glass.type("\r")
        await daemon.until(lambda: bool(daemon.sent))
        assert (daemon.sent[0].to, daemon.sent[0].content) == ("codex", "hello")
