"""How fast a terminal is emulated: recorded streams of agent programs, by ghostty and by pyte."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench.figure import Figure
from bench.rounds import best_rates
from bullpen.terminal.emulator import Emulator
from bullpen.terminal.ghostty import GhosttyEmulator
from bullpen.terminal.pyte_screen import PyteEmulator

__all__ = ["run"]

STREAMS = Path(__file__).parents[1] / "tests/recordings/streams"
WIDTH, HEIGHT = 120, 40
CHUNK_BYTES = 2**16  # as much as is read from a terminal at once
LEAST_MB = 50.0
MOST_SCREEN_MS = 5.0


async def run(quick: bool) -> list[Figure]:
    recorded = [path.read_bytes() for path in sorted(STREAMS.glob("*.raw"))]
    streams = [stream[:5000] for stream in recorded] if quick else recorded
    best = await best_rates(
        1 if quick else 5,
        {
            "ghostty": partial(fed, GhosttyEmulator, streams, 1 if quick else 20),
            "pyte": partial(fed, PyteEmulator, streams, 1),
            "screens": partial(screens, recorded[0], 5 if quick else 200),
        },
    )
    return [
        Figure(
            row="emulation",
            what="recorded streams through ghostty",
            ours=best["ghostty"],
            theirs=LEAST_MB,
            unit="MB/s",
            against="the least it may be",
            at_least=1,
        ),
        Figure(
            row="emulation",
            what="recorded streams through ghostty, and through pyte",
            ours=best["ghostty"],
            theirs=best["pyte"],
            unit="MB/s",
            against="pyte",
        ),
        Figure(
            row="emulation",
            what="a screen of 120 by 40, read with its tones",
            ours=1000 / best["screens"],
            theirs=MOST_SCREEN_MS,
            unit="ms",
            against="the most it may be",
            at_most=1,
        ),
    ]


async def fed(make: Callable[[int, int], Emulator], streams: list[bytes], times: int) -> float:
    """Return how many megabytes a second are taken, in chunks as they are read."""
    emulators = [make(WIDTH, HEIGHT) for _ in streams]
    began = time.process_time()
    for _ in range(times):
        for emulator, stream in zip(emulators, streams, strict=True):
            for at in range(0, len(stream), CHUNK_BYTES):
                emulator.feed(stream[at : at + CHUNK_BYTES])
    return sum(map(len, streams)) * times / 1e6 / (time.process_time() - began)


async def screens(stream: bytes, times: int) -> float:
    """Return how many screens a second are read."""
    emulator = GhosttyEmulator(WIDTH, HEIGHT)
    emulator.feed(stream[: len(stream) * 4 // 6])
    began = time.process_time()
    for _ in range(times):
        emulator.screen()
    return times / (time.process_time() - began)
