"""The real programs in panes of tmux: idle, busy, asking, with a draft, failing and interrupted."""

import asyncio
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bullpen.daemon.doors.pane import Look, Paces, PaneTerminal
from bullpen.daemon.doors.tmux import TmuxDoor
from bullpen.mail.doors import Handed, Handover
from bullpen.model.deliveries import ReceiptState
from bullpen.model.states import Activity, Provider
from bullpen.model.turns import TurnEnd
from bullpen.observe.snapshot import Programs
from bullpen.terminal.rules.load import shipped_rules
from bullpen.terminal.tmux.server import TmuxServer
from bullpen.testing.models import ModelServer, Say
from bullpen.testing.programs import Launch, NodeMissing, ensure, launch
from bullpen.testing.tmux import PrivateTmux
from tests.daemon.doors.panes import AGENT, InPane, opened
from tests.thorough import thoroughly

IN_PANE = 'env -i {variables} TMUX="$TMUX" TMUX_PANE="$TMUX_PANE" {command}; exec sh'
SECONDS = 60.0
PATIENT = Paces(ready=20.0, youth=120.0, seen=20.0, follow=0.1, hold=0.5, unseen=30.0)
PACES = Paces(ready=10.0, youth=0.0, seen=20.0, follow=0.1, hold=0.5, unseen=30.0)
HASTY = Paces(ready=0.3)

LINES = "\n".join(
    f"{number}: 一行の日本語, and then some English; #{{x}} $HOME; この行はまだ続きます。"
    for number in range(110)
)
LONG = f"!touch pwned\n\n{LINES}\n/exit"
REPLY = "I read all of it: 全部読みました。\n\nThe last line is a command, and I did not run it."


class Real:
    """A real program in a pane."""

    def __init__(self, agent: InPane, door: TmuxDoor, models: ModelServer, eye: PaneTerminal):
        self.agent = agent
        self.door = door
        self.models = models
        self.eye = eye

    @property
    def name(self) -> str:
        return self.agent.provider.value

    async def until(self, activity: Activity, *, ready: bool = False, prompt: str = "") -> Look:
        """Wait until the screen shows something."""
        async with asyncio.timeout(SECONDS):
            while True:
                look = await self.eye.look()
                verdict = look.verdict
                is_so = verdict.activity is activity and (verdict.ready or not ready)
                if is_so and prompt in ("", verdict.prompt):
                    return look
                await asyncio.sleep(0.1)

    async def send(self, text: str, door: TmuxDoor | None = None) -> Handover:
        self.agent.ear.steps.clear()
        self.agent.ear.turns.clear()
        return await self.agent.send(door or self.door, text)

    async def refusal(self) -> str:
        """Send what cannot be typed now, and be soon told why."""
        async with opened(self.agent, HASTY) as door:
            return await self.agent.refusal(door, "not now")

    async def ends(self) -> tuple[TurnEnd, str]:
        async with asyncio.timeout(SECONDS):
            await self.agent.ear.until(lambda: bool(self.agent.ear.turns))
        [end] = self.agent.ear.ends
        return end

    @property
    def prompts(self) -> list[str]:
        return [each.prompt for each in self.models.requests if each.is_prompt]


@asynccontextmanager
async def real(name: str, home: Path) -> AsyncIterator[Real]:
    async with ModelServer() as models:
        started = await _recipe(name, home, models)
        variables = shlex.join(f"{key}={value}" for key, value in started.env.items())
        command = IN_PANE.format(variables=variables, command=shlex.join(started.argv))
        async with PrivateTmux(width=110, height=40) as tmux:
            pane_id = await tmux.new_pane(command, cwd=started.cwd)
            agent = InPane(tmux, pane_id, Provider(name), home / "log")
            await agent.find()
            rules = await asyncio.to_thread(shipped_rules)
            runner = TmuxServer(tmux.target)
            assert agent.state is not None
            eye = PaneTerminal(runner, agent.state, rules[agent.provider], Programs(rules))
            try:
                async with opened(agent, PACES) as door:
                    program = Real(agent, door, models, eye)
                    await program.until(Activity.IDLE, ready=True)
                    yield program
            finally:
                await runner.aclose()


async def _recipe(name: str, home: Path, models: ModelServer) -> Launch:
    project = home / "project"

    def prepared() -> Launch:
        project.mkdir()
        ensure(name)
        return launch(name, "tui", home=home / "private", model_url=models.url, project=project)

    try:
        return await asyncio.to_thread(prepared)
    except NodeMissing as missing:
        pytest.skip(str(missing))


@pytest.mark.tmux
@pytest.mark.program
@pytest.mark.timeout(240)
@pytest.mark.requirement("door:tmux", "reply:screen", "reply:failure")
@pytest.mark.parametrize("name", thoroughly(["claude", "codex"], ["copilot", "gemini", "opencode"]))
async def test_real_programs_are_typed_to_when_they_take_it_and_only_then(
    name: str, home: Path
) -> None:
    async with real(name, home) as program:
        await _takes_it_whole(program)
        await _is_left_alone_while_busy(program)
        await _is_left_alone_while_it_asks(program)
        await _keeps_a_draft(program)
        await _fails_and_is_interrupted(program)
        assert not [prompt for prompt in program.prompts if "DRAFT" in prompt]
    assert not (home / "project" / "pwned").exists()


async def _takes_it_whole(program: Real) -> None:
    program.models.script("109: ", Say(REPLY))
    async with opened(program.agent, PATIENT) as door:  # it has just been started
        assert await program.send(LONG, door) == Handover(Handed.TAKEN)
        assert program.agent.ear.states == [
            ReceiptState.INJECTED,
            ReceiptState.SUBMITTED,
            ReceiptState.SEEN,
        ]
        assert await program.ends() == (TurnEnd.DONE, REPLY)
    assert len(LONG.encode()) > 10_000
    [prompt] = program.prompts
    assert f"[from bob]\n{LONG}" in prompt


async def _is_left_alone_while_busy(program: Real) -> None:
    program.models.script("wait for me", "wait gate | say I waited.")
    assert await program.send("wait for me") == Handover(Handed.TAKEN)
    await program.until(Activity.RUNNING)
    assert await program.refusal() == "the agent is busy"
    program.models.release("gate")
    assert await program.ends() == (TurnEnd.DONE, "I waited.")


async def _is_left_alone_while_it_asks(program: Real) -> None:
    shell = "bashesc" if program.name == "codex" else "bash"
    program.models.script("run something", f"say I will. | {shell} touch made ;; say It ran.")
    assert await program.send("run something") == Handover(Handed.TAKEN)
    await program.until(Activity.WAITING_APPROVAL)
    assert await program.refusal() == "a dialog is open"
    assert not await program.door.interrupt(AGENT)
    await program.agent.keys("y" if program.name == "codex" else "Enter")
    assert await program.ends() == (TurnEnd.DONE, "It ran.")


async def _keeps_a_draft(program: Real) -> None:
    await program.agent.keys("-l", "USER DRAFT")
    await program.until(Activity.IDLE, prompt="draft")
    assert await program.refusal() == "a draft is in the prompt box"
    assert (await program.eye.look()).box == "USER DRAFT"
    await program.agent.keys("C-u")
    await program.until(Activity.IDLE, ready=True)


async def _fails_and_is_interrupted(program: Real) -> None:
    program.models.script("fail now", "err 400 scripted trouble")
    assert await program.send("fail now") == Handover(Handed.TAKEN)
    end, words = await program.ends()
    assert end is TurnEnd.FAILED
    assert "scripted trouble" in words
    program.models.script("on and on", "stream 2000 0.05")
    assert await program.send("on and on") == Handover(Handed.TAKEN)
    await program.agent.shows("word3")
    assert await program.door.interrupt(AGENT)
    end, _ = await program.ends()
    assert end is TurnEnd.INTERRUPTED
