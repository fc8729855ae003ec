"""One suite for whoever runs tmux commands: over a connection, or by a process for each."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from bullpen.terminal.tmux import (
    Answer,
    TmuxClient,
    TmuxCommandFailed,
    TmuxCommandRunner,
    TmuxError,
    TmuxExecutor,
    TmuxNoServer,
    TmuxNotFound,
    TmuxNotInstalled,
    TmuxServer,
    TmuxTarget,
    TmuxTimeout,
)
from bullpen.terminal.tmux.protocol import escape_format
from bullpen.testing.tmux import FakeTmux, PrivateTmux

pytestmark = pytest.mark.tmux

Make = Callable[..., TmuxCommandRunner]

ODD_WORDS = [
    "two words",
    "tab\tand\nnewline",
    ";",
    "ends;",
    "ends\\;",
    "a ; b",
    "#{pid}",
    "#(date)",
    "$HOME",
    "~",
    "~root",
    "'single' and \"double\"",
    "back\\slash \\n \\101",
    "{braces}",
    "%if",
    "-",
    "\N{OX} \N{LATIN SMALL LETTER E WITH ACUTE} \u3042",
    "\x01\x1b\x7f",
    " leading and trailing ",
    "# comment",
]


@pytest.fixture(params=[TmuxServer, TmuxExecutor], ids=["connection", "processes"])
def make(request: pytest.FixtureRequest) -> Make:
    """Each implementation."""
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
async def runner(make: Make, tmux: PrivateTmux) -> AsyncIterator[TmuxCommandRunner]:
    """Each implementation, for a server that runs."""
    made = make(tmux.target)
    yield made
    await made.aclose()


@pytest.mark.requirement("TMX-1", "TMX-2")
async def test_a_command_is_run_and_what_it_prints_is_the_answer(
    runner: TmuxCommandRunner,
) -> None:
    before = int(time.time())
    answer = await runner.run("display-message", "-p", "hello")
    assert (answer.output, answer.text) == (b"hello\n", "hello")
    assert before - 1 <= answer.time <= time.time()


async def test_what_a_command_does_is_done(runner: TmuxCommandRunner, tmux: PrivateTmux) -> None:
    assert (await runner.run("rename-window", "-t", "%0", "renamed")).output == b""
    assert await tmux.run("list-windows", "-a", "-F", "#{window_name}") == "renamed"


async def test_every_word_arrives_as_it_is(runner: TmuxCommandRunner) -> None:
    for word in ODD_WORDS:
        await runner.run("set-option", "-g", "@word", word)
        answer = await runner.run("show-options", "-gv", "@word")
        assert answer.text == word


async def test_a_text_without_formats_is_printed_as_it_is(runner: TmuxCommandRunner) -> None:
    answer = await runner.run("display-message", "-p", escape_format("#{pid} #S #(id) ## #"))
    assert answer.text == "#{pid} #S #(id) ## #"


@pytest.mark.requirement("TMX-10")
async def test_a_failure_is_typed_and_in_the_words_of_tmux(runner: TmuxCommandRunner) -> None:
    with pytest.raises(TmuxNotFound) as missing:
        await runner.run("capture-pane", "-p", "-t", "%99")
    assert missing.value.command == "capture-pane"
    assert missing.value.words == "can't find pane: %99"
    with pytest.raises(TmuxCommandFailed, match="unknown command") as failed:
        await runner.run("no-such-command")
    assert not isinstance(failed.value, TmuxNotFound)
    assert missing.value.target == failed.value.target == str(runner.target)


@pytest.mark.requirement("TMX-10")
async def test_of_many_commands_each_has_its_own_answer_or_failure_in_order(
    runner: TmuxCommandRunner,
) -> None:
    first, failure, last = await runner.run_many(
        [
            ("display-message", "-p", "first"),
            ("capture-pane", "-p", "-t", "%99"),
            ("display-message", "-p", "last"),
        ]
    )
    assert isinstance(first, Answer)
    assert isinstance(failure, TmuxNotFound)
    assert isinstance(last, Answer)
    assert (first.text, last.text) == ("first", "last")
    assert await runner.run_many([]) == []


async def test_many_may_ask_at_once_and_each_gets_its_own_answer(
    runner: TmuxCommandRunner,
) -> None:
    answers = await asyncio.gather(
        *(runner.run("display-message", "-p", str(number)) for number in range(30))
    )
    assert [answer.text for answer in answers] == [str(number) for number in range(30)]


async def test_bytes_that_are_no_text_come_through(
    runner: TmuxCommandRunner, tmux: PrivateTmux, tmp_path: Path
) -> None:
    directory = tmp_path / os.fsdecode(b"\xff\n")
    directory.mkdir()
    pane = await tmux.new_pane(cwd=directory)
    answer = await runner.run("display-message", "-p", "-t", pane, "#{pane_current_path}")
    assert answer.output == os.fsencode(directory) + b"\n"


@pytest.mark.parametrize("words", [(), ("",), ("display-message", "nu\0ll")])
async def test_what_cannot_be_said_is_refused_and_nothing_is_disturbed(
    runner: TmuxCommandRunner, words: tuple[str, ...]
) -> None:
    with pytest.raises(ValueError, match="tmux command"):
        await runner.run(*words)
    assert (await runner.run("display-message", "-p", "x")).text == "x"


@pytest.mark.requirement("TR-50")
async def test_no_server_is_started_by_looking(make: Make, tmp_path: Path) -> None:
    target = TmuxTarget(str(tmp_path / "none.sock"))
    runner = make(target)
    for command in (("list-panes", "-a"), ("display-message", "-p", "x")):
        with pytest.raises(TmuxNoServer):
            await runner.run(*command)
    await runner.aclose()
    assert await asyncio.to_thread(os.listdir, tmp_path) == []


async def test_the_socket_of_a_dead_server_is_no_server(make: Make, tmux: PrivateTmux) -> None:
    await tmux.kill()
    runner = make(tmux.target)
    with pytest.raises(TmuxNoServer):
        await runner.run("list-panes", "-a")
    await runner.aclose()


async def test_a_machine_without_tmux_says_so(
    make: Make, tmux: PrivateTmux, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = make(tmux.target, environment={"TMUX_BIN": "/nowhere/tmux"})
    with pytest.raises(TmuxNotInstalled, match="/nowhere/tmux"):
        await runner.run("list-panes", "-a")
    await runner.aclose()


@pytest.mark.requirement("TMX-9")
async def test_a_server_that_hangs_is_given_up_in_time_and_holds_up_nobody_else(
    make: Make, tmux: PrivateTmux
) -> None:
    hanging = make(tmux.target, timeout_seconds=0.6)
    await hanging.run("list-panes", "-a")
    async with PrivateTmux() as other:
        well = make(other.target)
        await well.run("list-panes", "-a")
        tmux.hang()
        waiting = asyncio.create_task(hanging.run("list-panes", "-a"))
        answered = 0
        while not waiting.done():
            await well.run("display-message", "-p", "x")
            answered += 1
        with pytest.raises(TmuxTimeout):
            await waiting
        assert answered > 5
        tmux.go_on()
        await well.aclose()
    await hanging.aclose()


@pytest.mark.requirement("TMX-9")
async def test_a_program_that_hangs_is_ended_and_does_not_hold_up_the_loop(
    make: Make, tmux: PrivateTmux, fake_program: Callable[[str], None], tmp_path: Path
) -> None:
    note = tmp_path / "pid"
    fake_program(f"echo $$ > {note}\nexec sleep 60")
    runner = make(tmux.target, timeout_seconds=0.5)
    loop = asyncio.get_running_loop()
    began, ticks = loop.time(), 0
    waiting = asyncio.create_task(runner.run("list-panes", "-a"))
    while not waiting.done():
        await asyncio.sleep(0.01)
        ticks += 1
    with pytest.raises(TmuxTimeout):
        await waiting
    assert loop.time() - began < 5
    assert ticks > 5
    with pytest.raises(ProcessLookupError):
        os.kill(int(note.read_text()), 0)
    await runner.aclose()


@pytest.mark.parametrize(
    "script",
    [
        "head -c 3000000 /dev/zero",
        "echo '%begin 1 1 1'; echo x; echo '%end 1 1 1'; echo '%end 1 1 1'; exec cat >/dev/null",
        "while read -r line; do echo '%begin 1 1 1'; echo no; echo '%end 1 1 1'; done",
        "printf '\\377\\376 garbage\\n'; exit 3",
        "exit 0",
    ],
    ids=["endless-line", "ends-twice", "wrong-answers", "garbage-and-exit", "nothing"],
)
async def test_a_program_that_talks_nonsense_is_an_error_of_ours_and_no_crash(
    make: Make, tmux: PrivateTmux, fake_program: Callable[[str], None], script: str
) -> None:
    fake_program(f'[ "$1" = -V ] && echo tmux 3.3a && exit\n{script}')
    runner = make(tmux.target, timeout_seconds=1.0)
    try:
        answer = await runner.run("display-message", "-p", "x")
    except TmuxError:
        pass
    else:  # a process per command can only tell by the exit status
        assert make is TmuxExecutor or runner.is_fallback  # type: ignore[attr-defined]
        assert answer.text != "x"
    await runner.aclose()


async def test_closing_twice_is_closing(runner: TmuxCommandRunner) -> None:
    await runner.run("display-message", "-p", "x")
    await runner.aclose()
    await runner.aclose()


@pytest.mark.requirement("TMX-1")
async def test_a_fake_without_tmux_serves_in_its_place() -> None:
    def answer(words: object) -> bytes:
        if words == ("capture-pane",):
            raise TmuxNotFound("capture-pane", "can't find pane")
        return b"an answer\n"

    fake: TmuxCommandRunner = FakeTmux(answer)
    assert (await fake.run("list-panes")).text == "an answer"
    with pytest.raises(TmuxNotFound):
        await fake.run("capture-pane")
    with pytest.raises(ValueError, match="tmux command"):
        await fake.run()
    await fake.aclose()


async def test_a_client_is_a_runner(tmux: PrivateTmux) -> None:
    client: TmuxCommandRunner = await TmuxClient.open(tmux.target)
    assert (await client.run("display-message", "-p", "x")).text == "x"
    await client.aclose()
