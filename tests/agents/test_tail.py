"""A file is followed line by line, whatever is done to it, and however it is written."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.agents.tail import FileTail, TailBatch, TailLine


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def texts(batch: TailBatch) -> list[bytes]:
    return [line.data for line in batch.lines]


async def test_what_is_added_is_read_once_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"one\ntwo\n")
    tail = FileTail(path)
    assert await tail.read() == TailBatch(lines=(TailLine(0, b"one"), TailLine(4, b"two")))
    assert await tail.read() == TailBatch()
    append(path, b"three\n")
    assert await tail.read() == TailBatch(lines=(TailLine(8, b"three"),))


async def test_a_line_waits_for_its_end(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b'one\n{"half":')
    tail = FileTail(path)
    assert texts(await tail.read()) == [b"one"]
    assert await tail.read() == TailBatch()
    append(path, b"1}\n\n \n")
    assert await tail.read() == TailBatch(lines=(TailLine(4, b'{"half":1}'),))


@given(
    lines=st.lists(st.binary(max_size=12).filter(lambda line: b"\n" not in line), max_size=20),
    size=st.integers(1, 40),
    limit=st.integers(1, 12),
)
def test_any_cut_of_the_file_yields_the_same_lines(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], size: int, limit: int
) -> None:
    path = tmp_path_factory.mktemp("tail") / "t"
    data = b"".join(line + b"\n" for line in lines)
    path.touch()
    tail = FileTail(path, bytes_per_look=size, line_limit=limit)
    seen: list[TailLine] = []
    skipped = 0
    for start in range(0, len(data) + 1, 7):
        append(path, data[start : start + 7])
        while True:
            batch = tail.read_blocking()
            assert not batch.restarted
            seen += batch.lines
            skipped += batch.skipped
            if not batch.has_more:
                break
        # Whoever goes on from here sees the rest.
        tail = FileTail(path, position=tail.position, bytes_per_look=size, line_limit=limit)
    whole = [line for line in lines if line and not line.isspace() and len(line) <= limit]
    assert [line.data for line in seen] == whole
    assert all(data[line.offset :].startswith(line.data + b"\n") for line in seen)
    assert skipped >= sum(len(line) > limit for line in lines)  # again by whoever went on


async def test_one_look_reads_no_more_than_its_bound(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"0123456\n" * 3)
    tail = FileTail(path, bytes_per_look=12)
    first = await tail.read()
    assert (texts(first), first.has_more) == ([b"0123456"], True)
    second = await tail.read()
    assert (texts(second), second.has_more) == ([b"0123456"] * 2, False)


async def test_a_line_of_five_megabytes_is_skipped_and_the_next_one_read(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"before\n" + b"x" * 5_000_000 + b"\nafter\n")
    tail = FileTail(path)
    batches = [await tail.read()]
    while batches[-1].has_more:
        batches.append(await tail.read())
    assert [text for batch in batches for text in texts(batch)] == [b"before", b"after"]
    assert sum(batch.skipped for batch in batches) == 1
    assert len(batches) == 5  # a mebibyte each
    assert tail.position is not None
    assert tail.position.offset == 7 + 5_000_001 + 6


async def test_a_line_that_is_too_long_is_counted_once(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"1234\n12345\n123456")
    tail = FileTail(path, line_limit=4)
    batch = await tail.read()
    assert (texts(batch), batch.skipped) == ([b"1234"], 2)
    append(path, b"7\n1\n")
    batch = await tail.read()
    assert (texts(batch), batch.skipped) == ([b"1"], 0)


async def test_a_file_cut_in_the_midst_of_a_line_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"one\ntwo\nthr")
    tail = FileTail(path)
    await tail.read()
    os.truncate(path, 6)
    assert await tail.read() == TailBatch(lines=(TailLine(0, b"one"),), restarted="truncated")
    append(path, b"o\n")
    assert await tail.read() == TailBatch(lines=(TailLine(4, b"two"),))


async def test_another_file_in_its_place_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"one\nhalf")
    tail = FileTail(path)
    await tail.read()
    path.rename(tmp_path / "t.1")
    path.write_bytes(b"new, and longer than the old one\n")
    batch = await tail.read()
    assert batch.restarted == "replaced"
    assert texts(batch) == [b"new, and longer than the old one"]


async def test_a_file_written_anew_in_place_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"one\n")
    tail = FileTail(path)
    await tail.read()
    path.write_bytes(b"another\nand more\n")  # the same inode, and longer than before
    batch = await tail.read()
    assert batch.restarted == "rewritten"
    assert texts(batch) == [b"another", b"and more"]


async def test_a_file_that_vanishes_may_come_back(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"one\n")
    tail = FileTail(path)
    await tail.read()
    path.unlink()
    assert await tail.read() == TailBatch(is_missing=True)
    path.write_bytes(b"two\n")
    batch = await tail.read()
    assert texts(batch) == [b"two"]
    assert batch.restarted in ("replaced", "rewritten")  # its inode may be the same


async def test_a_file_that_comes_late_is_read_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "sub" / "t.jsonl"
    tail = FileTail(path, last_lines=1)
    assert await tail.read() == TailBatch(is_missing=True)
    assert tail.position is None
    path.parent.mkdir()
    path.write_bytes(b"one\ntwo\n")
    assert texts(await tail.read()) == [b"one", b"two"]


@pytest.mark.parametrize(
    ("count", "expected"),
    [(0, []), (1, [b"two"]), (2, [b"one", b"two"]), (9, [b"one", b"two"])],
)
async def test_a_tail_may_begin_with_the_last_lines(
    tmp_path: Path, count: int, expected: list[bytes]
) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"one\ntwo\nthr")
    tail = FileTail(path, last_lines=count)
    batch = await tail.read()
    assert texts(batch) == expected
    assert (batch.skipped, batch.is_missing, batch.has_more) == (0, False, False)
    append(path, b"ee\n")
    assert await tail.read() == TailBatch(lines=(TailLine(8, b"three"),))


async def test_the_last_lines_are_searched_within_reach_only(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"far away\nnear\nnearer\n")
    tail = FileTail(path, last_lines=9, bytes_per_look=15)
    assert await tail.read() == TailBatch(lines=(TailLine(9, b"near"), TailLine(14, b"nearer")))


async def test_the_end_of_a_line_out_of_reach_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"one\n" + b"x" * 50)
    tail = FileTail(path, last_lines=2, bytes_per_look=10)
    assert await tail.read() == TailBatch(skipped=1)
    later = FileTail(path, position=tail.position, bytes_per_look=10)
    append(path, b"\ntwo\n")
    assert texts(await tail.read()) == [b"two"]
    assert texts(await later.read()) + texts(await later.read()) == [b"two"]


async def test_a_tail_goes_on_where_another_was_in_the_same_file_only(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"one\ntwo\nthr")
    tail = FileTail(path)
    await tail.read()
    append(path, b"ee\n")
    assert await FileTail(path, position=tail.position).read() == TailBatch(
        lines=(TailLine(8, b"three"),)
    )
    path.write_bytes(b"ONE\nTWO\nTHREE\n")
    batch = await FileTail(path, position=tail.position).read()
    assert (batch.restarted, len(batch.lines)) == ("rewritten", 3)


async def test_bytes_that_are_no_text_pass_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    line = b'{"raw":"\xed\xa0\x80","escaped":"\\ud83d"}'
    path.write_bytes(line + b"\r\n\xff\n")
    assert texts(await FileTail(path).read()) == [line + b"\r", b"\xff"]


async def test_a_pipe_or_a_directory_in_its_place_has_no_lines(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path):
        assert await FileTail(path).read() == TailBatch(is_missing=True)


def test_a_file_that_cannot_be_read_is_said_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"one\n")

    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")  # which the superuser never meets

    tail = FileTail(path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        with pytest.raises(PermissionError):
            tail.read_blocking()
    assert texts(tail.read_blocking()) == [b"one"]


def test_a_file_that_did_not_change_is_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"one\n")
    tail = FileTail(path)
    tail.read_blocking()
    opened: list[object] = []
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", lambda *arguments: opened.append(arguments))
        assert tail.read_blocking() == TailBatch()
    assert opened == []
