"""Where messages are kept is a setting: with the state, or as long as the daemon runs."""

from pathlib import Path

import pytest

from tests.daemon.harness import RefusedError, running_daemon, settings
from tests.daemon.wrapping import wrapped


@pytest.mark.parametrize("store", ["sqlite", "memory"])
async def test_a_message_is_answered_and_outlives_the_daemon_only_in_the_state(
    home: Path, store: str
) -> None:
    given = settings(mail={"store": store})
    async with running_daemon(given) as (peer, _), wrapped("codex") as agent:
        sent = await peer.ask("mail.send", to="codex", content="review this")
        message_id = sent["message"]["id"]
        await agent.answer(await agent.next(), "it is fine")
        waited = await peer.ask("mail.wait", message_id=message_id, timeout_seconds=20)
        assert waited["reply"]["content"] == "it is fine"
        [task] = await peer.ask("task.list")
        assert task["id"] == message_id
    async with running_daemon(given) as (peer, _):
        if store == "sqlite":
            assert (await peer.ask("task.get", task_id=message_id))["state"] == "completed"
        else:
            assert await peer.ask("task.list") == []
            with pytest.raises(RefusedError):
                await peer.ask("task.get", task_id=message_id)
