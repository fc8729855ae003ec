"""What somebody is told who watches a task: each word once, in order, however slowly he reads."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.api.errors import DaemonUnavailable
from bullpen.api.outputs import Output
from bullpen.api.talk import TaskOutput
from bullpen.servers.a2a import watchers
from bullpen.servers.a2a.watchers import Watcher
from tests.servers.a2a.v1.tasks import task as a_task


async def all_of(watcher: Watcher) -> list[object]:
    watcher.end()
    found: list[object] = []
    while True:
        try:
            found.append(await watcher.take())
        except DaemonUnavailable:
            return found


def output(text: str, at: int = 0, number: int = 1) -> TaskOutput:
    return TaskOutput("m1", text, at, number)


@pytest.mark.requirement("a2a:deltas")
async def test_what_is_told_again_is_not_told_twice_and_nothing_behind_a_gap() -> None:
    watcher, task = Watcher(), a_task()
    for told in (
        output("behind", 3),
        output("one "),
        output("one two ", 0),
        output("two three", 4),
        output("gap", 20),
        output("late", 0, 0),
    ):
        watcher.hear(told)
    watcher.put(task)
    assert await all_of(watcher) == [task, Output("one two three", is_new=True)]


@pytest.mark.requirement("a2a:deltas")
async def test_who_reads_slowly_is_told_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchers, "MOST_UNREAD", 10)
    watcher, task = Watcher(), a_task()
    for number in range(100):
        watcher.hear(output("x", number))
        watcher.put(task)
    told = await all_of(watcher)
    assert len(told) < 30
    assert "".join(each.text for each in told if isinstance(each, Output)) == "x" * 100
    assert told[-1] is task


@given(st.lists(st.tuples(st.booleans(), st.text(max_size=4), st.integers(0, 9)), max_size=30))
def test_what_was_told_since_it_began_anew_is_what_was_said(
    steps: list[tuple[bool, str, int]],
) -> None:
    async def go() -> None:
        watcher, number, whole, seen = Watcher(), 0, "", ""
        for is_new, text, back in steps:
            if is_new or not number:
                number, whole = number + 1, ""
            at = max(len(whole) - back, 0)
            whole += text
            watcher.hear(output(whole[at:], at, number))
            watcher.put(a_task())
        told = await all_of(watcher)
        for each in told:
            if isinstance(each, Output):
                seen = each.text if each.is_new else seen + each.text
        assert seen == whole or not whole

    asyncio.run(go())
