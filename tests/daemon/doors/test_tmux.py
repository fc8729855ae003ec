"""A message is pasted into a pane that nobody wrapped: once, whole, and into the agent alone."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from bullpen.daemon.doors.pane import Paces, PaneTerminal
from bullpen.mail.doors import Handed, Handover, Rung
from bullpen.model.deliveries import ReceiptState
from bullpen.model.states import Activity, Provider
from bullpen.model.turns import TurnEnd
from bullpen.observe.snapshot import Programs
from bullpen.terminal.rules.load import shipped_rules
from bullpen.terminal.tmux.server import TmuxServer
from bullpen.testing.tmux import PrivateTmux, eventually
from tests.daemon.doors.panes import AGENT, BRISK, InPane, scripted
from tests.daemon.doors.talk import delivery
from tests.terminal.recorded import SCREENS, label_of

pytestmark = [pytest.mark.tmux, pytest.mark.timeout(90)]

STEPS = [ReceiptState.INJECTED, ReceiptState.SUBMITTED, ReceiptState.SEEN]
HASTY = msgspec.structs.replace(BRISK, echo=1.5)
LONG = "\n".join(
    f"{number}: 一行の日本語 and English; #{{pane_id}} $HOME ~ \"'`\\" for number in range(250)
)


@pytest.mark.requirement("door:tmux")
async def test_a_message_is_typed_sent_off_and_answered(tmp_path: Path) -> None:
    async with scripted(tmp_path, "--reply", "It is four.\n\nReally.") as (agent, door):
        assert door.rung is Rung.TMUX
        assert door.reaches(AGENT)
        assert door.is_open(AGENT) == ""
        assert await agent.send(door, "what is 2+2?") == Handover(Handed.TAKEN)
        assert agent.ear.states == STEPS
        evidence = [each for _, each in agent.ear.steps]
        assert [each.by for each in evidence] == ["screen"] * 3
        assert evidence[1].data["enters"] == 1
        assert evidence[2].data["rule"]
        await agent.ear.until(lambda: bool(agent.ear.turns))
        assert agent.ear.ends == [(TurnEnd.DONE, "It is four.\n\nReally.")]
        assert agent.ear.turns[0].by == "screen"
    assert await agent.submitted() == ["[from bob] what is 2+2?"]


@pytest.mark.requirement("door:tmux")
@pytest.mark.parametrize("options", [(), ("--placeholder",)], ids=["shown", "placeholder"])
async def test_ten_kilobytes_of_japanese_in_lines_arrive_as_they_are(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    text = f"!rm -rf /\n{LONG}"
    assert len(text.encode()) > 10_000
    async with scripted(tmp_path, *options) as (agent, door):
        assert await agent.send(door, text) == Handover(Handed.TAKEN)
        assert await agent.tmux.run("list-buffers") == ""
    assert await agent.submitted() == [f"[from bob]\n{text} "]  # it must not end with a backslash


@pytest.mark.requirement("door:tmux")
async def test_no_message_is_taken_for_a_command(tmp_path: Path) -> None:
    messages = ["/exit now", "!ls", "?", "#note", "@file", "\\ and a backslash\\"]
    async with scripted(tmp_path, "--work", "0.05") as (agent, door):
        for message in messages:
            assert await agent.send(door, message) == Handover(Handed.TAKEN)
    typed = [f"[from bob] {message}" for message in messages]
    assert await agent.submitted() == [*typed[:-1], f"{typed[-1]} "]


@pytest.mark.requirement("door:tmux")
async def test_enter_is_pressed_again_and_nothing_is_pasted_again(tmp_path: Path) -> None:
    async with scripted(tmp_path, "--swallow", "3", "--echo-delay", "0.5") as (agent, door):
        assert await agent.send(door, "hello") == Handover(Handed.TAKEN)
        assert agent.ear.steps[1][1].data["enters"] == 4
    assert await agent.submitted() == ["[from bob] hello"]


@pytest.mark.requirement("door:tmux")
async def test_a_draft_is_left_alone(tmp_path: Path) -> None:
    async with scripted(tmp_path) as (agent, door):
        await agent.keys("-l", "USER DRAFT")
        await agent.shows("USER DRAFT")
        handover = await agent.send(door, "hello")
        assert handover == Handover(Handed.NOT_READY, "a draft is in the prompt box")
        assert agent.ear.steps == []
        await agent.keys("Enter")
        await eventually(lambda: _has_some(agent))
    assert await agent.submitted() == ["USER DRAFT"]


@pytest.mark.requirement("door:tmux")
async def test_a_busy_agent_is_left_alone(tmp_path: Path) -> None:
    async with scripted(tmp_path) as (agent, door):
        await agent.do("work")
        await agent.shows("esc to interrupt")
        assert await agent.send(door, "hello") == Handover(Handed.NOT_READY, "the agent is busy")
        await agent.do("rest")
        await eventually(lambda: _is_not_working(agent))
        assert await agent.send(door, "hello") == Handover(Handed.TAKEN)
    assert await agent.submitted() == ["[from bob] hello"]


async def _has_some(agent: InPane) -> bool:
    return bool(await agent.submitted())


async def _is_not_working(agent: InPane) -> bool:
    return "esc to interrupt" not in await agent.tmux.screen(agent.pane_id)


@pytest.mark.requirement("door:tmux")
async def test_nothing_is_typed_into_a_dialog(tmp_path: Path) -> None:
    async with scripted(tmp_path) as (agent, door):
        await agent.do("dialog")
        await agent.shows("Do you want to proceed?")
        assert await agent.send(door, "hello") == Handover(Handed.NOT_READY, "a dialog is open")
        assert not await door.interrupt(AGENT)
    assert await agent.submitted() == []


@pytest.mark.requirement("door:tmux")
async def test_a_dialog_that_opens_meanwhile_is_not_answered_by_enter(tmp_path: Path) -> None:
    async with scripted(tmp_path, "--dialog-on-paste", paces=HASTY) as (agent, door):
        handover = await agent.send(door, "hello")
        assert handover.outcome is Handed.UNSURE
        assert "a dialog opened" in handover.reason
        assert agent.ear.states == [ReceiptState.INJECTED]
    assert await agent.submitted() == []


@pytest.mark.requirement("door:tmux")
async def test_an_agent_that_asks_at_once_has_the_message(tmp_path: Path) -> None:
    async with scripted(tmp_path, "--dialog-on-enter", "--work", "600") as (agent, door):
        assert await agent.send(door, "hello") == Handover(Handed.TAKEN)
        assert agent.ear.states == STEPS
    assert await agent.submitted() == ["[from bob] hello"]


async def test_an_agent_that_was_just_started_is_given_time(tmp_path: Path) -> None:
    """A box that shows need not take anything yet; a prompt that goes away meanwhile does not."""
    paces = msgspec.structs.replace(BRISK, settle=600.0)
    async with scripted(tmp_path, paces=paces) as (agent, door):
        assert (await agent.send(door, "hello")).outcome is Handed.NOT_READY
        assert agent.ear.steps == []
    assert await agent.submitted() == []


async def test_what_somebody_types_along_is_not_sent_off(tmp_path: Path) -> None:
    async with scripted(tmp_path, "--typed-along", "WAIT", paces=HASTY) as (agent, door):
        handover = await agent.send(door, "hello")
        assert handover == Handover(Handed.UNSURE, "somebody typed into the prompt box")
    assert await agent.submitted() == []


async def test_what_never_shows_is_not_sent_off(tmp_path: Path) -> None:
    async with scripted(tmp_path, "--hides", paces=HASTY) as (agent, door):
        handover = await agent.send(door, "one\ntwo")
        assert handover.outcome is Handed.UNSURE
        assert "did not appear" in handover.reason
    assert await agent.submitted() == []


# ------------------------------------------------------------------------------ who is in the pane


@pytest.mark.requirement("door:tmux")
async def test_nothing_is_typed_into_a_shell_that_an_agent_has_left(tmp_path: Path) -> None:
    async with scripted(tmp_path) as (agent, door):
        await agent.do("exit")
        await eventually(lambda: _runs(agent, "sh"))
        handover = await agent.send(door, "touch pwned")
        assert handover == Handover(
            Handed.GONE, "the agent is not the program in front of its pane"
        )
        assert "pwned" not in await agent.tmux.screen(agent.pane_id)


@pytest.mark.requirement("door:tmux")
async def test_enter_is_not_pressed_in_the_shell_of_an_agent_that_ends_meanwhile(
    tmp_path: Path,
) -> None:
    async with scripted(tmp_path, "--exit-on-paste", paces=HASTY) as (agent, door):
        handover = await agent.send(door, "hello")
        assert handover.outcome is Handed.UNSURE
        assert agent.ear.states == [ReceiptState.INJECTED]
    assert await agent.submitted() == []


@pytest.mark.requirement("door:tmux")
async def test_an_agent_that_ends_at_enter_may_have_had_the_message(tmp_path: Path) -> None:
    paces = msgspec.structs.replace(BRISK, submit=1.5)
    async with scripted(tmp_path, "--exit-on-enter", paces=paces) as (agent, door):
        assert (await agent.send(door, "hello")).outcome is Handed.UNSURE
    assert await agent.submitted() == ["[from bob] hello"]


@pytest.mark.requirement("door:tmux")
@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("kill-pane", "the pane was closed"),
        ("respawn-pane", "another program has its pane"),
        ("kill-server", "its tmux server has ended"),
    ],
)
async def test_a_pane_that_is_gone_is_told(tmp_path: Path, command: str, reason: str) -> None:
    async with scripted(tmp_path) as (agent, door):
        if command == "kill-server":
            await agent.tmux.kill()
        elif command == "kill-pane":
            await agent.tmux.run(command, "-t", agent.pane_id)
        else:
            await agent.tmux.run(command, "-k", "-t", agent.pane_id, "cat")
        handover = await agent.send(door, "hello")
        assert handover.outcome is Handed.GONE
        assert handover.reason == reason


@pytest.mark.requirement("door:tmux")
async def test_of_a_pane_that_closes_meanwhile_nobody_knows_what_it_had(tmp_path: Path) -> None:
    async with scripted(tmp_path, "--echo-delay", "600") as (agent, door):
        handing = asyncio.create_task(agent.send(door, "hello"))
        await eventually(lambda: bool(agent.ear.steps))
        await agent.tmux.run("kill-pane", "-t", agent.pane_id)
        assert await handing == Handover(Handed.UNSURE, "the pane was closed")
        assert agent.ear.states == [ReceiptState.INJECTED]


async def _runs(agent: InPane, command: str) -> bool:
    name = ("display-message", "-p", "-t", agent.pane_id, "#{pane_current_command}")
    return await agent.tmux.run(*name) == command


async def test_nothing_is_typed_while_somebody_looks_at_the_history(tmp_path: Path) -> None:
    async with scripted(tmp_path) as (agent, door):
        await agent.tmux.run("copy-mode", "-t", agent.pane_id)
        handover = await agent.send(door, "hello")
        reason = "somebody looks at the history of the pane"
        assert handover == Handover(Handed.NOT_READY, reason)
    assert await agent.submitted() == []


async def test_nothing_is_typed_into_all_panes_of_a_window_at_once(tmp_path: Path) -> None:
    async with scripted(tmp_path) as (agent, door):
        await agent.tmux.run("set-option", "-w", "-t", agent.pane_id, "synchronize-panes", "on")
        handover = await agent.send(door, "hello")
        reason = "its window types into all its panes at once"
        assert handover == Handover(Handed.NOT_READY, reason)
    assert await agent.submitted() == []


async def test_the_buffers_of_the_user_stay_as_they_are(tmp_path: Path) -> None:
    async with scripted(tmp_path) as (agent, door):
        await agent.tmux.run("set-buffer", "what I copied")
        assert await agent.send(door, "hello") == Handover(Handed.TAKEN)
        assert await agent.tmux.run("show-buffer") == "what I copied"
        assert len((await agent.tmux.run("list-buffers")).split("\n")) == 1


# -------------------------------------------------------------------------------- how a turn ends


@pytest.mark.requirement("reply:failure")
@pytest.mark.parametrize(
    ("error", "end"),
    [
        ("API Error: 500 boom", TurnEnd.FAILED),
        ("API Error: Request rejected (429) · slow down", TurnEnd.RATE_LIMITED),
    ],
    ids=["error", "limit"],
)
async def test_an_error_on_the_screen_is_no_reply(tmp_path: Path, error: str, end: TurnEnd) -> None:
    async with scripted(tmp_path, "--error", error) as (agent, door):
        assert await agent.send(door, "hello") == Handover(Handed.TAKEN)
        await agent.ear.until(lambda: bool(agent.ear.turns))
        assert agent.ear.ends == [(end, error)]


async def test_a_reply_that_only_reads_like_an_error_is_a_reply(tmp_path: Path) -> None:
    reply = "API Error: 500 is what you will see then."
    async with scripted(tmp_path, "--reply", reply) as (agent, door):
        assert await agent.send(door, "hello") == Handover(Handed.TAKEN)
        await agent.ear.until(lambda: bool(agent.ear.turns))
        assert agent.ear.ends == [(TurnEnd.DONE, reply)]


async def test_a_turn_goes_on_while_a_dialog_is_open(tmp_path: Path) -> None:
    async with scripted(tmp_path, "--work", "600") as (agent, door):
        assert await agent.send(door, "hello") == Handover(Handed.TAKEN)
        await agent.do("dialog")
        await agent.shows("Do you want to proceed?")
        await asyncio.sleep(4 * BRISK.hold)  # it would be told within that
        assert agent.ear.turns == []
        await agent.do("no-dialog")
        await agent.do("rest")
        await agent.ear.until(lambda: bool(agent.ear.turns))
        assert agent.ear.ends == [(TurnEnd.DONE, "Done.")]


@pytest.mark.requirement("door:interrupt")
async def test_an_interruption_ends_the_turn(tmp_path: Path) -> None:
    async with scripted(tmp_path, "--work", "600") as (agent, door):
        assert not await door.interrupt(AGENT)  # it does nothing
        assert await agent.send(door, "hello") == Handover(Handed.TAKEN)
        assert await door.interrupt(AGENT)
        await agent.ear.until(lambda: bool(agent.ear.turns))
        assert [end for end, _ in agent.ear.ends] == [TurnEnd.INTERRUPTED]


@pytest.mark.requirement("door:interrupt")
async def test_a_message_that_an_interruption_put_back_is_cleared_for_the_next(
    tmp_path: Path,
) -> None:
    async with scripted(tmp_path, "--work", "600", "--put-back") as (agent, door):
        assert await agent.send(door, "first") == Handover(Handed.TAKEN)
        assert await door.interrupt(AGENT)
        await agent.ear.until(lambda: bool(agent.ear.turns))
        assert [end for end, _ in agent.ear.ends] == [TurnEnd.INTERRUPTED]
        agent.seen_as(Activity.IDLE, is_ready=False)
        assert door.is_open(AGENT) == ""  # what is in the box is ours
        assert await agent.send(door, "second") == Handover(Handed.TAKEN)
    assert await agent.submitted() == ["[from bob] first", "[from bob] second"]


async def test_a_turn_whose_end_is_known_better_is_not_followed(tmp_path: Path) -> None:
    async with scripted(tmp_path, "--work", "600") as (agent, door):
        assert await agent.send(door, "hello") == Handover(Handed.TAKEN)
        door.forget(AGENT)
        await agent.do("rest")
        await agent.shows("● Done.")
        await asyncio.sleep(4 * BRISK.hold)  # it would be told within that
        assert agent.ear.turns == []
        door.forget(AGENT)  # nothing happens


async def test_a_turn_from_before_a_restart_is_taken_up(tmp_path: Path) -> None:
    async with scripted(tmp_path, "--work", "600") as (agent, door):
        assert await agent.send(door, "hello") == Handover(Handed.TAKEN)
        door.forget(AGENT)
        had = msgspec.structs.replace(delivery("hello", agent=AGENT), state=ReceiptState.SEEN)
        door.follow(had)
        door.follow(had)  # once is enough
        await agent.do("rest")
        await agent.ear.until(lambda: bool(agent.ear.turns))
        assert agent.ear.ends == [(TurnEnd.DONE, "Done.")]


async def test_a_pane_that_closes_ends_the_following_without_a_word(tmp_path: Path) -> None:
    """That the agent is gone is told by who watches agents; the turn has no end of its own."""
    async with scripted(tmp_path, "--work", "600") as (agent, door):
        assert await agent.send(door, "hello") == Handover(Handed.TAKEN)
        await agent.tmux.run("kill-pane", "-t", agent.pane_id)
        await eventually(lambda: not door.is_following(AGENT))
        assert agent.ear.turns == []


# --------------------------------------------------------------------------------- whether to try


async def test_it_says_in_words_why_it_is_not_open(tmp_path: Path) -> None:
    async with scripted(tmp_path) as (agent, door):
        words = {}
        for activity in Activity:
            agent.seen_as(activity, is_ready=False)
            words[activity] = door.is_open(AGENT)
        assert all(words.values())
        assert words[Activity.RUNNING] == "the agent is working"
        assert words[Activity.WAITING_APPROVAL] == "the agent waits for an approval"
        agent.state = None
        assert not door.reaches(AGENT)
        assert door.is_open(AGENT) == "it is in no pane of tmux"
        assert (await agent.send(door, "hello")).outcome is Handed.GONE
        assert not await door.interrupt(AGENT)


async def test_two_messages_are_not_typed_at_once(tmp_path: Path) -> None:
    async with scripted(tmp_path, "--echo-delay", "1", paces=Paces(follow=0.1)) as (agent, door):
        first = asyncio.create_task(agent.send(door, "one"))
        await eventually(lambda: door.is_open(AGENT) == "another message is being typed")
        second = await agent.send(door, "two", "m2")
        assert second == Handover(Handed.NOT_READY, "another message is being typed")
        assert not await door.interrupt(AGENT)
        assert await first == Handover(Handed.TAKEN)
    assert await agent.submitted() == ["[from bob] one"]


async def test_a_prompt_is_seen_as_empty_though_its_pane_has_no_focus() -> None:
    """Some programs then hide their cursor and leave it anywhere."""
    label = label_of("gemini/90x26-few-colours-e04-no-focus")
    painted = await asyncio.to_thread((SCREENS / label.ansi_file).read_text, encoding="utf-8")
    async with PrivateTmux(width=label.width, height=label.height) as tmux:
        pane_id = await tmux.new_pane()
        agent = InPane(tmux, pane_id, Provider.GEMINI, Path("log"))
        await agent.find()
        assert agent.state is not None
        rules = await asyncio.to_thread(shipped_rules)
        server = TmuxServer(tmux.target)
        terminal = PaneTerminal(server, agent.state, rules[Provider.GEMINI], Programs(rules))
        shown = painted.rstrip().replace("\n", "\r\n")
        await tmux.show(pane_id, f"{shown}\x1b[?25l\x1b[{label.height};1H")
        await agent.shows("no sandbox")
        await eventually(lambda: _is_ready(terminal))
        await server.aclose()


async def _is_ready(terminal: PaneTerminal) -> bool:
    return (await terminal.look()).verdict.ready
