"""What hooks leave while nobody listens is taken in order, once, and never before it is safe."""

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bullpen.model.observations import Origin
from bullpen.observe.sources.port import SourceTrouble
from bullpen.observe.sources.spool import Spool, Spooled, SpoolReport

AT = 1794734159.25


def leave(directory: Path, name: str, age: int = 0, **fields: Any) -> Path:
    """Write a delivery as a shim does; the higher the age, the older it is."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / name
    path.write_text(json.dumps({"provider": "claude", "payload": name, "at": AT, **fields}))
    os.utime(path, ns=(0, 10**18 - age))
    return path


def names(directory: Path) -> list[str]:
    return sorted(each.name for each in directory.iterdir())


class Taker:
    def __init__(self) -> None:
        self.taken: list[Spooled] = []

    async def __call__(self, spooled: Spooled) -> None:
        if spooled.payload == "refused":
            raise SourceTrouble("no such event")
        if spooled.payload == "failing":
            raise RuntimeError("out of order")
        self.taken.append(spooled)

    @property
    def payloads(self) -> list[Any]:
        return [each.payload for each in self.taken]


async def test_without_a_directory_nothing_waits(tmp_path: Path) -> None:
    assert await Spool(tmp_path / "absent", "claude").drain(Taker()) == SpoolReport()


async def test_what_waits_is_taken_oldest_first_and_removed(tmp_path: Path) -> None:
    leave(tmp_path, "claude-b.json", age=1)
    leave(tmp_path, "claude-a.json", age=2)
    leave(tmp_path, "claude-c.json", age=0)
    take = Taker()
    assert await Spool(tmp_path, "claude").drain(take) == SpoolReport(taken=3)
    assert take.payloads == ["claude-a.json", "claude-b.json", "claude-c.json"]
    assert names(tmp_path) == []


async def test_only_whole_files_of_the_provider_are_taken(tmp_path: Path) -> None:
    others = ["codex-1.json", "claude-1.json.part", ".claude-2.json"]
    for name in others:
        leave(tmp_path, name)
    take = Taker()
    assert await Spool(tmp_path, "claude").drain(take) == SpoolReport()
    assert names(tmp_path) == sorted(others)


async def test_a_delivery_says_when_and_where_from(tmp_path: Path) -> None:
    leave(
        tmp_path,
        "claude-1.json",
        pid=12,
        tmux="/tmp/tmux,1/default,77,0",
        tmux_pane="%3",
        cwd="/home/dev",
    )
    take = Taker()
    await Spool(tmp_path, "claude").drain(take)
    assert take.taken == [
        Spooled(
            name="claude-1.json",
            payload="claude-1.json",
            at=datetime.fromtimestamp(AT, UTC),
            origin=Origin(
                pid=12, cwd="/home/dev", tmux_pane="%3", tmux_socket="/tmp/tmux,1/default"
            ),
        )
    ]


@pytest.mark.parametrize(
    "at", [AT, AT * 1000, "2026-11-15T09:15:59.250000+00:00", "2026-11-15T09:15:59.25"]
)
async def test_a_time_may_be_a_number_or_a_text(tmp_path: Path, at: object) -> None:
    leave(tmp_path, "claude-1.json", at=at)
    take = Taker()
    await Spool(tmp_path, "claude").drain(take)
    assert take.taken[0].at == datetime(2026, 11, 15, 9, 15, 59, 250_000, UTC)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"provider": "claude", "payl',
        b"[]",
        b'{"at": 1}',
        b'{"payload": {}}',
        b'{"payload": {}, "at": "yesterday"}',
        b'{"payload": {}, "at": true}',
        b'{"payload": {}, "at": 1e300}',
        b"[" * 100_000,
        b'{"payload": "' + b"x" * 2000 + b'", "at": 1}',
    ],
    ids=["empty", "torn", "list", "no-payload", "no-time", "word", "bool", "far", "deep", "long"],
)
async def test_what_nobody_can_read_is_put_aside(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "claude-1.json").write_bytes(content)
    leave(tmp_path, "claude-2.json")
    take = Taker()
    spool = Spool(tmp_path, "claude", file_limit=1000)
    assert await spool.drain(take) == SpoolReport(taken=1, bad=1)
    assert take.payloads == ["claude-2.json"]
    assert (tmp_path / "bad" / "claude-1.json").read_bytes() == content
    assert names(tmp_path) == ["bad"]


async def test_a_pipe_or_a_link_to_elsewhere_holds_nothing_up(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    elsewhere = leave(tmp_path, "secret.json")
    leave(spool, "claude-2.json")
    os.mkfifo(spool / "claude-0.json")
    (spool / "claude-1.json").symlink_to(elsewhere)
    take = Taker()
    assert await Spool(spool, "claude").drain(take) == SpoolReport(taken=1, bad=2)
    assert take.payloads == ["claude-2.json"]


async def test_a_lone_surrogate_costs_one_character(tmp_path: Path) -> None:
    leave(tmp_path, "claude-1.json", payload={"prompt": "cut \ud83d"})
    take = Taker()
    await Spool(tmp_path, "claude").drain(take)
    assert take.payloads == [{"prompt": "cut \ufffd"}]


async def test_what_the_source_refuses_is_put_aside(tmp_path: Path) -> None:
    leave(tmp_path, "claude-1.json", payload="refused", age=1)
    leave(tmp_path, "claude-2.json")
    take = Taker()
    assert await Spool(tmp_path, "claude").drain(take) == SpoolReport(taken=1, bad=1)
    assert (tmp_path / "bad" / "claude-1.json").exists()


async def test_what_was_not_taken_stays(tmp_path: Path) -> None:
    leave(tmp_path, "claude-1.json", age=2)
    leave(tmp_path, "claude-2.json", payload="failing", age=1)
    leave(tmp_path, "claude-3.json")
    with pytest.raises(RuntimeError, match="out of order"):
        await Spool(tmp_path, "claude").drain(Taker())
    assert names(tmp_path) == ["claude-2.json", "claude-3.json"]


async def test_one_look_takes_so_many_files_and_bytes_and_says_that_there_are_more(
    tmp_path: Path,
) -> None:
    for number in range(5):
        leave(tmp_path, f"claude-{number}.json", age=9 - number)
    take = Taker()
    spool = Spool(tmp_path, "claude", files_per_look=2)
    assert await spool.drain(take) == SpoolReport(taken=2, has_more=True)
    spool = Spool(tmp_path, "claude", bytes_per_look=1)
    assert await spool.drain(take) == SpoolReport(taken=1, has_more=True)
    spool = Spool(tmp_path, "claude")
    assert await spool.drain(take) == SpoolReport(taken=2)
    assert take.payloads == [f"claude-{number}.json" for number in range(5)]


async def test_only_the_newest_bad_files_stay(tmp_path: Path) -> None:
    for number in range(60):
        leave(tmp_path, f"claude-{number:02}.json", payload="refused", age=99 - number)
    await Spool(tmp_path, "claude").drain(Taker())
    assert names(tmp_path / "bad") == [f"claude-{number:02}.json" for number in range(10, 60)]


async def test_a_directory_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    (tmp_path / "spool").write_text("a file")
    with pytest.raises(OSError, match="spool"):
        await Spool(tmp_path / "spool", "claude").drain(Taker())
