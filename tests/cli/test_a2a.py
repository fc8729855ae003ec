"""`bullpen a2a`: tokens are given, shown once, listed and taken back; and where all is served."""

import asyncio
import json
from pathlib import Path

import pytest

from bullpen.api.runtime import Paths
from bullpen.servers.a2a.room import Caller, Scope
from bullpen.servers.a2a.tokens import TokenError, Tokens
from tests.cli.commands import invoke, show
from tests.daemon.harness import running_daemon
from tests.daemon.wrapping import wrapped
from tests.servers.a2a.house import linux_only, served


def directory() -> Path:
    return Paths.resolve().a2a_tokens


async def find(token: str) -> Caller | None:
    return await asyncio.to_thread(Tokens(directory()).find, token)


@pytest.mark.requirement("a2a:tokens")
async def test_a_token_is_shown_once_and_kept_where_nobody_else_can_read_what_tells_it(
    home: Path,
) -> None:
    assert (await show("a2a", "token", "list")).out.startswith("no tokens")
    given = await show("a2a", "token", "add", "ci")
    [token] = given.lines
    assert token in given.out
    assert token not in given.err
    file = directory() / "ci.json"
    assert (file.stat().st_mode & 0o777, directory().stat().st_mode & 0o777) == (0o600, 0o700)
    assert token not in file.read_text()
    assert [each.name for each in directory().iterdir()] == ["ci.json"]
    found = await find(token)
    assert found is not None
    assert (found.name, found.scopes) == ("a2a:ci", frozenset({Scope.READ, Scope.SEND}))
    listed = await show("a2a", "token", "list")
    assert token not in listed.out
    assert "read, send" in listed.lines[1]
    said = await show("a2a", "token", "add", "chief", "--scope", "control", "--json")
    assert (said.json["caller"], said.json["scopes"]) == ("a2a:chief", ["control"])
    names = (await show("a2a", "token", "list", "--json")).json["tokens"]
    assert [(each["name"], each["problem"]) for each in names] == [("chief", ""), ("ci", "")]
    assert (await show("a2a", "token", "remove", "ci")).out == "removed ci\n"
    assert await find(token) is None
    assert (await show("a2a", "token", "remove", "chief", "--json")).json["removed"] == "chief"


@pytest.mark.requirement("a2a:tokens")
async def test_what_cannot_be_given_or_taken_is_told(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await show("a2a", "token", "add", "ci")
    before = (directory() / "ci.json").read_bytes()
    for wrong in ("ci", "../ci", "", "a" * 41, ".hidden"):
        done = await invoke("a2a", "token", "add", wrong)
        assert (done.code, done.out) == (1, ""), wrong
        with pytest.raises(TokenError):
            await asyncio.to_thread(Tokens(directory()).add, wrong, [Scope.READ])
    assert (directory() / "ci.json").read_bytes() == before
    assert (await invoke("a2a", "token", "add", "x", "--scope", "everything")).code == 2
    for nobody in ("nobody", "../ci"):
        assert (await invoke("a2a", "token", "remove", nobody)).code == 4
    (directory() / "ci.json").chmod(0o644)
    assert "chmod 600" in (await show("a2a", "token", "list")).out
    monkeypatch.setenv("BULLPEN_SECRET", "of-an-agent")
    assert (await invoke("a2a", "token", "add", "mine", "--scope", "control")).code == 5
    assert (await invoke("a2a", "token", "remove", "ci")).code == 5


@linux_only
@pytest.mark.requirement("a2a:tokens")
async def test_a_token_opens_without_a_restart_and_closes_without_one(home: Path) -> None:
    async with served(a2a={"loopback": "token"}) as house:
        assert (await house.web.get("/agents")).status == 401
        token = (await show("a2a", "token", "add", "ci", "--scope", "read")).lines[0]
        shown = {"Authorization": f"Bearer {token}"}
        assert (await house.web.get("/agents", **shown)).status == 200
        await show("a2a", "token", "remove", "ci")
        assert (await house.web.get("/agents", **shown)).status == 401


async def test_it_is_told_where_agents_are_served(home: Path) -> None:
    async with served() as house, wrapped("codex", port=8101):
        await show("a2a", "token", "add", "ci")
        url = f"http://127.0.0.1:{house.web.port}"
        said = (await show("a2a", "status", "--json")).json
        assert (said["url"], said["description"]) == (url, f"{url}/openapi.json")
        assert (said["loopback"], said["tokens"]) == ("open", 1)
        assert said["grpc"] in ("on", "not installed")
        assert said["port_file"] == str(house.paths.a2a_port)
        mine = {"name": "codex", "url": f"{url}/agents/codex", "own_url": "http://localhost:8101"}
        assert mine in said["agents"]
        lines = (await show("a2a", "status")).lines
        assert lines[0] == f"Served: {url}, described at {url}/openapi.json"
        assert f"  codex: {url}/agents/codex, and http://localhost:8101" in lines


async def test_it_is_told_that_nothing_is_served(home: Path) -> None:
    async with running_daemon():
        done = await invoke("a2a", "status")
        assert (done.code, "is not served" in done.out) == (1, True)
        said = await invoke("a2a", "status", "--json")
        assert json.loads(said.out)["url"] == ""
