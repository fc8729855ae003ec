"""The real programs on terminals of ours, without tmux: they are read and typed to as decided."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bullpen.model.states import Provider
from bullpen.terminal.emulator import Emulator
from bullpen.terminal.emulators import open_emulator
from bullpen.terminal.injection import (
    Injection,
    Outcome,
    Prepared,
    Sight,
    Typed,
    manners_of,
    prepare,
    sight_of,
)
from bullpen.terminal.keyboard import Address, Keyboard, Passed
from bullpen.terminal.pty import PtyClosed, PtyProcess
from bullpen.terminal.rules.engine import decide
from bullpen.terminal.rules.format import ProviderRules
from bullpen.terminal.rules.layout import Layout
from bullpen.terminal.rules.load import shipped_rules
from bullpen.testing.models import ModelServer, Request
from bullpen.testing.programs import Launch, NodeMissing, ensure, launch
from tests.thorough import thoroughly

WIDTH, HEIGHT = 120, 40
LOOK_SECONDS = 0.05

LONG = "\n".join(f"line {number} of a long message, with 日本語" for number in range(30))


class Terminal:
    """A program, and the screen it paints."""

    def __init__(self, rules: ProviderRules, process: PtyProcess, emulator: Emulator) -> None:
        self.process = process
        self.emulator = emulator
        self._rules = rules

    async def run(self) -> None:
        """Paint what the program writes, and answer what it asks, until it ends."""
        while data := await self.process.read():
            self.emulator.feed(data)
            if answers := self.emulator.take_answers():
                try:
                    await self.process.write(answers)
                except PtyClosed:
                    return

    def sight(self, text: str) -> Sight:
        screen = self.emulator.screen()
        prompt = Layout(screen, self._rules).prompt
        return sight_of(decide(screen, self._rules), prompt.text if prompt else "", text)

    @property
    def text(self) -> str:
        return "\n".join(self.emulator.screen().lines)

    async def sees(self, text: str, sight: Sight) -> None:
        """Wait until the prompt box is a sight to who wants to type a text."""
        for _ in range(600):
            if self.sight(text) is sight:
                return
            await asyncio.sleep(LOOK_SECONDS)
        raise AssertionError(f"{self.sight(text)}, not {sight}:\n{self.text}")

    async def inject(self, message: Prepared) -> Outcome:
        injection = Injection(message, manners_of(self._rules.provider), time.monotonic())
        while True:
            done = injection.step(self.sight(message.text), time.monotonic())
            if isinstance(done, Outcome):
                return done
            if isinstance(done, Typed):
                await self.process.write(done.data)
            await asyncio.sleep(LOOK_SECONDS)


async def recipe(name: str, home: Path, models: ModelServer) -> Launch:
    project = home / "project"
    project.mkdir()

    def prepared() -> Launch:
        ensure(name)
        return launch(name, "tui", home=home / "private", model_url=models.url, project=project)

    try:
        return await asyncio.to_thread(prepared)
    except NodeMissing as missing:
        pytest.skip(str(missing))


def has_text(text: str) -> Callable[[Request], bool]:
    """Whether the model was asked this, however it was wrapped."""
    squeezed = "".join(text.split())
    return lambda request: squeezed in "".join(request.prompt.split())


@asynccontextmanager
async def on_terminal(name: str, home: Path, models: ModelServer) -> AsyncIterator[Terminal]:
    """Run a program on a terminal of ours."""
    rules = (await asyncio.to_thread(shipped_rules))[Provider(name)]
    emulator = await asyncio.to_thread(open_emulator, WIDTH, HEIGHT)
    started = await recipe(name, home, models)
    process = await PtyProcess.spawn(
        started.argv, env=started.env, cwd=started.cwd, columns=WIDTH, rows=HEIGHT
    )
    terminal = Terminal(rules, process, emulator)
    running = asyncio.create_task(terminal.run())
    try:
        yield terminal
    finally:
        await process.terminate()
        await running


programs = pytest.mark.parametrize(
    "name", thoroughly(["codex"], ["claude", "copilot", "gemini", "opencode"])
)


@pytest.mark.program
@pytest.mark.timeout(180)
@programs
async def test_real_programs_take_each_message_once_and_whole(name: str, home: Path) -> None:
    messages = ["!touch pwned", LONG, "ends with a backslash\\"]
    async with ModelServer() as models:
        async with on_terminal(name, home, models) as terminal:
            for message in messages:
                prepared = prepare(message, "bob", is_bracketed=True)
                outcome = await terminal.inject(prepared)
                assert outcome == Outcome(True), terminal.text
                await asyncio.to_thread(models.wait_for_request, has_text(prepared.text), 30)
            assert terminal.emulator.modes.bracketed_paste
        assert len([each for each in models.requests if each.is_prompt]) == len(messages)
    assert not (home / "project" / "pwned").exists()


@pytest.mark.program
@pytest.mark.timeout(180)
@pytest.mark.requirement("S-03", "S-55", "S-56")
@programs
async def test_real_programs_see_an_address_being_typed_and_then_gone(
    name: str, home: Path
) -> None:
    keyboard = Keyboard()
    async with ModelServer() as models:
        async with on_terminal(name, home, models) as terminal, asyncio.timeout(60):
            await terminal.sees("", Sight.READY)
            for key in b"@bob hello there":
                (passed,) = keyboard.feed(bytes([key]))
                assert isinstance(passed, Passed)
                await terminal.process.write(passed.data)
                await asyncio.sleep(LOOK_SECONDS)  # as a person types
            await terminal.sees("@bob hello there", Sight.OURS)
            (address,) = keyboard.feed(b"\r")
            assert isinstance(address, Address)
            await terminal.process.write(address.clear)
            await terminal.sees("", Sight.READY)
        assert not [each for each in models.requests if each.is_prompt]
