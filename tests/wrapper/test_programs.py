"""The real programs, wrapped: a message arrives once and whole, and the answer is the model's."""

import asyncio
import os
from pathlib import Path

import pytest

from bullpen.agents.profile import InterruptBy, Profile
from bullpen.model.states import Provider
from bullpen.testing.models import ModelServer
from bullpen.testing.programs import Launch, NodeMissing, ensure, launch
from tests.thorough import thoroughly
from tests.wrapper.rooms import room

LONG = "\n".join(f"line {number} of it, with 日本語" for number in range(30))


async def recipe(name: str, home: Path, models: ModelServer) -> Launch:
    project = home / "project"
    project.mkdir()

    def prepared() -> Launch:
        ensure(name)
        return launch(name, "tui", home=home / "own", model_url=models.url, project=project)

    try:
        return await asyncio.to_thread(prepared)
    except NodeMissing as missing:
        pytest.skip(str(missing))


@pytest.mark.program
@pytest.mark.timeout(180)
@pytest.mark.xdist_group("real-programs")
@pytest.mark.requirement("S-01")
@pytest.mark.parametrize("name", thoroughly(["claude"], ["codex", "gemini"]))
async def test_real_programs_answer_what_they_are_sent(
    name: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ModelServer() as models:
        started = await recipe(name, home, models)
        for variable in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
            monkeypatch.delenv(variable)  # of the program's own home
        profile = Profile(
            name=name,
            command=tuple(map(os.fspath, started.argv)),
            idle_regex="> $",
            submit_sequence="\r",
            env=dict(started.env),
            provider=Provider(name),
            has_screen=True,
            interrupt=InterruptBy.ESCAPE,
        )
        async with room(home) as place, place.detached(profile, cwd=Path(started.cwd)):
            await place.daemon.until_ready()
            for number, text in enumerate(("!touch pwned", LONG, "ends with a backslash\\")):
                answer = await place.daemon.answer_to(text, f"m{number}:1", ready_seconds=20.0)
                separator = "\n" if "\n" in text else " "
                assert answer.is_ok, answer
                assert answer.text == f"Echo: [from bob]{separator}{text}"
                steps = place.daemon.steps_of(f"m{number}:1")
                assert steps == ["injected", "submitted", "seen"]
    assert not (home / "project" / "pwned").exists()
