"""One connection for ever: servers start late, end, hang and come back."""

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bullpen.terminal.tmux import (
    TmuxBusy,
    TmuxClient,
    TmuxError,
    TmuxNoServer,
    TmuxProtocolError,
    TmuxServer,
    TmuxServerGone,
    TmuxTarget,
    TmuxTimeout,
    TmuxTooOld,
    find_targets,
    resolve_target,
)
from bullpen.terminal.tmux import client as client_module
from bullpen.terminal.tmux.backoff import Backoff
from bullpen.testing.tmux import PrivateTmux, eventually

pytestmark = pytest.mark.tmux


def at_once() -> Backoff:
    return Backoff(first_seconds=0, longest_seconds=0)


async def test_commands_are_pipelined_over_one_process(tmux: PrivateTmux) -> None:
    server = TmuxServer(tmux.target)
    await asyncio.gather(*(server.run("display-message", "-p", "x") for _ in range(200)))
    clients = await tmux.run("list-clients", "-F", "#{client_control_mode}")
    assert clients == "1"
    await server.aclose()
    await eventually(lambda: _has_no_clients(tmux))


async def _has_no_clients(tmux: PrivateTmux) -> bool:
    return await tmux.run("list-clients") == ""


@pytest.mark.requirement("Q3")
async def test_a_server_tells_which_run_of_it_it_is(tmux: PrivateTmux) -> None:
    server = TmuxServer(tmux.target)
    assert server.identity is None
    await server.run("list-panes", "-a")
    assert server.identity is not None
    assert f"{server.identity.pid} {server.identity.start_time}" == await tmux.run(
        "display-message", "-p", "#{pid} #{start_time}"
    )
    await server.aclose()
    assert server.identity is None


@pytest.mark.requirement("TR-50")
@pytest.mark.parametrize("has_socket", [False, True], ids=["no-socket", "old-socket"])
async def test_not_even_for_a_moment_is_a_server_started(has_socket: bool) -> None:
    tmux = PrivateTmux()
    await tmux.prepare()
    if has_socket:
        await tmux.start()
        await tmux.kill()
    directory = os.path.dirname(tmux.target.socket_path)  # noqa: PTH120
    before = await asyncio.to_thread(_files, directory)
    with pytest.raises(TmuxNoServer):
        await TmuxClient.open(tmux.target)
    assert await asyncio.to_thread(_files, directory) == before
    await tmux.stop()


def _files(directory: str) -> list[tuple[str, int]]:
    return [(entry.name, entry.inode()) for entry in os.scandir(directory)]


@pytest.mark.requirement("TR-50", "PL-1")
async def test_a_server_that_starts_later_is_found() -> None:
    tmux = PrivateTmux()
    await tmux.prepare()
    server = TmuxServer(tmux.target, backoff=at_once())
    with pytest.raises(TmuxNoServer):
        await server.run("list-panes", "-a")
    await tmux.start()
    assert (await server.run("list-panes", "-a", "-F", "#{pane_id}")).text == "%0"
    await server.aclose()
    await tmux.stop()


@pytest.mark.requirement("PL-1", "Q3")
async def test_a_server_that_was_killed_and_started_anew_is_another_one(
    tmux: PrivateTmux,
) -> None:
    server = TmuxServer(tmux.target, backoff=at_once())
    await server.run("list-panes", "-a")
    before = server.identity
    await tmux.kill()
    with pytest.raises(TmuxError):
        await server.run("list-panes", "-a")
    await tmux.start()
    await eventually(lambda: _answers(server))
    assert server.identity is not None
    assert server.identity != before
    await server.aclose()


async def _answers(server: TmuxServer) -> bool:
    try:
        await server.run("list-panes", "-a")
    except TmuxError:
        return False
    return True


async def test_what_was_asked_when_the_server_died_fails_at_once(tmux: PrivateTmux) -> None:
    client = await TmuxClient.open(tmux.target, timeout_seconds=60)
    tmux.hang()
    waiting = [asyncio.create_task(client.run("list-panes", "-a")) for _ in range(3)]
    await asyncio.sleep(0)
    os.kill(tmux.pid, signal.SIGKILL)
    async with asyncio.timeout(5):
        results = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(result) for result in results] == [TmuxServerGone] * 3
    with pytest.raises(TmuxServerGone):
        await client.run("list-panes", "-a")
    await client.aclose()


async def test_a_connection_that_was_killed_is_replaced(tmux: PrivateTmux) -> None:
    server = TmuxServer(tmux.target, backoff=at_once())
    await server.run("list-panes", "-a")
    assert server._client is not None
    assert server._client.pid is not None
    os.kill(server._client.pid, signal.SIGKILL)
    await eventually(lambda: _answers(server))
    await server.aclose()


async def test_when_the_session_it_sits_in_ends_it_moves_to_another(tmux: PrivateTmux) -> None:
    server = TmuxServer(tmux.target, backoff=at_once())
    await tmux.new_session("second")
    await server.run("list-panes", "-a")
    for session in (await tmux.run("list-clients", "-F", "#{session_id}")).split():
        await tmux.run("kill-session", "-t", session)
    await eventually(lambda: _answers(server))
    assert len((await tmux.run("list-clients")).splitlines()) == 1
    await server.aclose()


async def test_a_server_that_hung_is_used_again_when_it_goes_on(tmux: PrivateTmux) -> None:
    server = TmuxServer(tmux.target, timeout_seconds=0.3, backoff=at_once())
    await server.run("list-panes", "-a")
    tmux.hang()
    with pytest.raises(TmuxTimeout):
        await server.run("list-panes", "-a")
    with pytest.raises(TmuxTimeout):
        await server.run("list-panes", "-a")
    tmux.go_on()
    await eventually(lambda: _answers(server))
    await server.aclose()


async def test_a_connection_that_hung_is_given_up(tmux: PrivateTmux) -> None:
    client = await TmuxClient.open(tmux.target, timeout_seconds=0.2)
    tmux.hang()
    with pytest.raises(TmuxTimeout):
        await client.run("list-panes", "-a")
    assert isinstance(client.end_cause, TmuxServerGone)
    assert "hangs" in str(client.end_cause)
    tmux.go_on()
    with pytest.raises(TmuxServerGone, match="hangs"):
        await client.run("list-panes", "-a")
    await client.aclose()


async def test_one_impatient_caller_does_not_cost_the_others_their_answers(
    tmux: PrivateTmux,
) -> None:
    client = await TmuxClient.open(tmux.target)
    tmux.hang()
    patient = asyncio.create_task(client.run("display-message", "-p", "patient"))
    with pytest.raises(TmuxTimeout):
        await client.run("display-message", "-p", "impatient", timeout_seconds=0.05)
    tmux.go_on()
    assert (await patient).text == "patient"
    assert (await client.run("display-message", "-p", "later")).text == "later"
    await client.aclose()


async def test_after_a_failure_nobody_tries_until_a_pause_is_over(tmux: PrivateTmux) -> None:
    await tmux.kill()
    backoff = Backoff(first_seconds=3600, longest_seconds=3600)
    server = TmuxServer(tmux.target, backoff=backoff)
    with pytest.raises(TmuxNoServer) as first:
        await server.run("list-panes", "-a")
    await tmux.start()
    with pytest.raises(TmuxNoServer) as second:  # as was known
        await server.run("list-panes", "-a")
    assert second.value is not first.value
    assert str(second.value) == str(first.value)
    backoff.succeeded()
    assert await _answers(server)
    await server.aclose()


async def test_what_waits_for_answers_is_bounded(
    tmux: PrivateTmux, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "MOST_WAITING", 3)
    client = await TmuxClient.open(tmux.target)
    with pytest.raises(TmuxBusy):
        await client.run_many([("display-message", "-p", "x")] * 4)
    assert len(await client.run_many([("display-message", "-p", "x")] * 3)) == 3
    await client.aclose()


async def test_more_than_a_pipe_holds_is_sent_and_answered(tmux: PrivateTmux) -> None:
    client = await TmuxClient.open(tmux.target)
    text = "x" * 10_000
    answers = await client.run_many([("display-message", "-p", text)] * 100)
    assert {getattr(answer, "text", answer) for answer in answers} == {text}
    await client.aclose()


async def test_a_caller_that_is_cancelled_leaves_the_answers_of_others_in_place(
    tmux: PrivateTmux,
) -> None:
    client = await TmuxClient.open(tmux.target)
    cancelled = asyncio.create_task(client.run("display-message", "-p", "cancelled"))
    await asyncio.sleep(0)
    cancelled.cancel()
    assert (await client.run("display-message", "-p", "mine")).text == "mine"
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    await client.aclose()


async def test_an_alias_that_makes_two_answers_of_one_command_is_found_out(
    tmux: PrivateTmux,
) -> None:
    await tmux.run("set-option", "-s", "command-alias[99]", "two=list-panes ; list-windows")
    client = await TmuxClient.open(tmux.target)
    with pytest.raises(TmuxServerGone, match="not those to what was asked"):
        await client.run("two")
    await client.aclose()


@pytest.mark.requirement("TMX-2")
async def test_a_tmux_too_old_for_a_connection_is_used_by_a_process_per_command(
    tmux: PrivateTmux, fake_program: Callable[[str], None], caplog: pytest.LogCaptureFixture
) -> None:
    fake_program(f'[ "$1" = -V ] && echo tmux 3.1c && exit\nexec {tmux.executable} "$@"')
    with pytest.raises(TmuxTooOld, match=r"3\.1c"):
        await TmuxClient.open(tmux.target)
    server = TmuxServer(tmux.target)
    with caplog.at_level(logging.WARNING, "bullpen.terminal.tmux"):
        assert (await server.run("list-panes", "-a", "-F", "#{pane_id}")).text == "%0"
    assert server.is_fallback
    assert "process per command" in caplog.text
    await server.aclose()


@pytest.mark.requirement("TMX-2")
async def test_a_tmux_that_refuses_a_connection_is_used_by_a_process_per_command(
    tmux: PrivateTmux, fake_program: Callable[[str], None]
) -> None:
    fake_program(
        f'for word; do [ "$word" = -C ] && echo unknown option >&2 && exit 1; done\n'
        f'exec {tmux.executable} "$@"'
    )
    server = TmuxServer(tmux.target)
    assert (await server.run("list-panes", "-a", "-F", "#{pane_id}")).text == "%0"
    assert server.is_fallback
    await server.aclose()


async def test_after_a_while_a_connection_is_tried_again(
    tmux: PrivateTmux, fake_program: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_program(f'[ "$1" = -V ] && echo tmux 3.1c && exit\nexec {tmux.executable} "$@"')
    environment = dict(os.environ)
    server = TmuxServer(tmux.target, environment=environment)
    await server.run("list-panes", "-a")
    assert server.is_fallback
    server._environment["PATH"] = os.path.dirname(tmux.executable)  # noqa: PTH120
    server._executor_until = 0.0
    await server.run("list-panes", "-a")
    assert not server.is_fallback
    assert server.identity is not None
    await server.aclose()


FORGER = """
import sys
if "-V" in sys.argv: print("tmux 3.3a"); sys.exit()
print("%begin 1 1 0", sys.argv[-1].split()[0] + " 1 2 3.3a", "%end 1 1 0", sep="\\n", flush=True)
number = 10
for line in sys.stdin:
    number += 1
    print(f"%begin 1 {number} 1")
    if '"%1"' in line:  # this screen poses as the end of its own block and as the next block
        print("mine", f"%end 1 {number} 1", f"%begin 1 {number + 1} 1", "forged", sep="\\n")
        print(f"%end 1 {number + 1} 1", f"%begin 1 {number} 1", sep="\\n")
    elif "display-message" in line:
        print(line.split('"')[-2])
    else:
        print("honest")
    print(f"%end 1 {number} 1", flush=True)
"""


async def test_a_screen_that_poses_as_the_answer_for_another_is_found_out(
    tmux: PrivateTmux, fake_program: Callable[[str], None], tmp_path: Path
) -> None:
    (tmp_path / "forger.py").write_text(FORGER)
    fake_program(f'exec {sys.executable} {tmp_path / "forger.py"} "$@"')
    client = await TmuxClient.open(tmux.target)
    assert (await client.run("capture-pane", "-t", "%2")).text == "honest"
    with pytest.raises(TmuxServerGone) as caught:
        await client.run_many([("capture-pane", "-t", "%1"), ("capture-pane", "-t", "%2")])
    assert isinstance(caught.value.__cause__, TmuxProtocolError)
    await client.aclose()


@pytest.mark.requirement("TMX-3")
async def test_each_setting_leads_to_its_own_server(tmux: PrivateTmux, home: Path) -> None:
    async with PrivateTmux() as second:
        name = f"{home}/tmux-{os.getuid()}/by-name"
        environment = {"TMUX_TMPDIR": str(home), "PATH": os.environ["PATH"]}
        await tmux.run("set-option", "-g", "@which", "first")
        await second.run("set-option", "-g", "@which", "second")
        named = await asyncio.create_subprocess_exec(
            *(tmux.executable, "-L", "by-name", "-f", "/dev/null", "new-session", "-d"),
            *("sleep 1000", ";", "set-option", "-g", "@which", "named"),
            env=environment,
        )
        assert await named.wait() == 0
        settings = {
            "TMUX": f"{tmux.target.socket_path},1,0",
            "BULLPEN_TMUX_SOCKET_NAME": "by-name",
            "BULLPEN_TMUX_SOCKET_PATH": second.target.socket_path,
        }
        found = []
        for setting, value in settings.items():
            environment[setting] = value
            target = resolve_target(environment, user_id=os.getuid())
            server = TmuxServer(target, environment=environment)
            found.append((await server.run("show-options", "-gv", "@which")).text)
            await server.aclose()
        assert found == ["first", "named", "second"]
        assert [each.socket_path for each in await find_targets(environment)] == [name]
        server = TmuxServer(TmuxTarget(name))
        with contextlib.suppress(TmuxError):
            await server.run("kill-server")
        await server.aclose()


async def test_where_no_server_ever_was_none_is_found(tmp_path: Path) -> None:
    assert await find_targets({"TMUX_TMPDIR": str(tmp_path)}) == []


@pytest.mark.parametrize("cut", ["closed", "cancelled"])
async def test_opening_can_be_given_up_at_any_moment(tmux: PrivateTmux, cut: str) -> None:
    server = TmuxServer(tmux.target, timeout_seconds=1)
    tmux.hang()
    opening = asyncio.create_task(server.run("list-panes", "-a"))
    await asyncio.sleep(0.1)
    if cut == "cancelled":
        opening.cancel()
    await server.aclose()
    with pytest.raises((asyncio.CancelledError, TmuxError)):
        await opening
    tmux.go_on()
