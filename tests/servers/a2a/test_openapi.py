"""What is answered over HTTP is described, and the description tells the truth."""

import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.routing import BaseRoute, Mount, Route

from bullpen.servers.a2a.app import agent_routes
from bullpen.servers.a2a.description import describe
from bullpen.servers.a2a.operations import DESCRIPTION, EXTERNAL, LISTING, SEED
from bullpen.servers.a2a.room import Scope
from bullpen.servers.a2a.v1.handlers import Handlers
from bullpen.servers.a2a.v1.operations import table
from tests.daemon.wrapping import wrapped
from tests.servers.a2a.fuzzing import answering, fuzz, within_reach
from tests.servers.a2a.house import House, linux_only, room_of_a_daemon, served
from tests.servers.a2a.test_security import TOKEN, give
from tests.thorough import IS_WANTED


def mounted(routes: Iterable[BaseRoute], before: str = "") -> Iterator[tuple[str, str]]:
    """Yield method and path of all that is mounted; where one can look, one can ask for a look."""
    for each in routes:
        if isinstance(each, Mount):
            yield from mounted(each.routes, before + each.path)
        else:
            assert isinstance(each, Route)
            for method in (each.methods or set()) - {"HEAD"}:
                yield method, before + each.path


def described(document: dict[str, Any], under: str = "") -> set[tuple[str, str]]:
    return {
        (method.upper(), path.removeprefix(under))
        for path, each in document["paths"].items()
        for method in each
    }


@pytest.mark.requirement("a2a:described")
async def test_what_is_described_is_exactly_what_is_mounted() -> None:
    async with room_of_a_daemon() as (room, _):
        routes = agent_routes(room, "codex", Handlers(room))
        there = {*mounted(routes), ("GET", "/openapi.json")}
    assert described(describe("http://localhost:8100")) == there


def test_everything_that_is_referred_to_is_there_and_named_once() -> None:
    document = describe("http://localhost:8100", "/agents/{agent}")
    names = [each["operationId"] for path in document["paths"].values() for each in path.values()]
    assert len(names) == len(set(names))
    referred = set()

    def look(value: Any) -> None:
        if isinstance(value, dict):
            if "$ref" in value:
                referred.add(value["$ref"])
            for link in value.get("links", {}).values():
                assert link["operationId"] in names
            for each in value.values():
                look(each)
        elif isinstance(value, list):
            for each in value:
                look(each)

    look(document)
    for each in referred:
        found = document
        for step in each.removeprefix("#/").split("/"):
            found = found[step]


def test_the_scopes_that_are_told_are_those_there_are() -> None:
    told = {each.scope for each in (*SEED, *EXTERNAL)}
    assert told == {each.value for each in Scope} - {Scope.CONTROL}


def test_what_describes_is_loaded_when_somebody_asks() -> None:
    program = "import sys, bullpen.servers.a2a.app; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout
    found = set(loaded.decode().split())
    assert "bullpen.servers.a2a.seed" in found
    assert not {"bullpen.servers.a2a.openapi", "bullpen.servers.a2a.v1.operations"} & found


@linux_only
@pytest.mark.requirement("a2a:described")
async def test_the_description_is_served_for_an_agent_and_for_all(home: Path) -> None:
    async with served() as house, wrapped("codex"):
        url = f"http://127.0.0.1:{house.web.port}"
        own = await house.web.at("codex").get("/openapi.json")
        assert (own.status, own.body["openapi"]) == (200, "3.1.0")
        assert own.body["servers"] == [{"url": f"{url}/agents/codex"}]
        everybody = (await house.web.get("/openapi.json")).body
        assert everybody["servers"] == [{"url": url}]
        whose = everybody["paths"]["/agents/{agent}/status"]["get"]["parameters"]
        assert [each["name"] for each in whose] == ["agent"]
        own_paths, all_paths = described(own.body), described(everybody, "/agents/{agent}")
        assert all_paths == {*own_paths, ("GET", "/agents")}


@pytest.mark.requirement("pitfall:4")
@linux_only
async def test_what_is_asked_in_a_wrong_way_is_told_the_right_ones(home: Path) -> None:
    async with served() as house, wrapped("codex"):
        web = house.web.at("codex")
        for where, path, allowed in (
            (web, "/external/agents/reviewer", "DELETE, GET, HEAD"),
            (web, "/tasks/send", "POST"),
            (web, "/a2a/rest/tasks/x/pushNotificationConfigs", "GET, HEAD, POST"),
            (web, "/a2a/rest/v1/card", "GET, HEAD"),
            (house.web, "/agents", "GET, HEAD"),
            (house.web, "/openapi.json", "GET, HEAD"),
        ):
            refused = await where.ask("PUT", path, None)
            assert (refused.status, refused.headers["allow"]) == (405, allowed), path


AT_WILL = {"a2a": {"rate_per_second": 100_000.0, "rate_burst": 100_000.0}}
OFTEN_ENOUGH = (
    "--phases=fuzzing",
    "--max-examples=2",
    "--generation-deterministic",
    "--exclude-path-regex={tenant}|/jsonrpc/$",  # they are the same once more
)
OF_ALL = ("--include-path=/agents", "--include-path=/openapi.json", "--phases=coverage,fuzzing")
THOROUGHLY = ("--max-examples=50", "--max-time=240", "--continue-on-failure")


async def is_true(house: House, directory: Path, *options: str) -> None:
    """Have all that is described asked for, in right and wrong ways; see that it is as told."""
    web = house.web.at("codex")
    told = (await web.get("/openapi.json")).body
    reached = within_reach(told, f"http://127.0.0.1:{house.web.port}/agents/codex")
    code, said = await fuzz(reached, directory, *options, token=TOKEN)
    assert code == 0, said[-20_000:]
    assert (await web.get("/status")).status == 200


@linux_only
@pytest.mark.requirement("a2a:described")
async def test_what_is_described_is_true(home: Path, tmp_path: Path) -> None:
    give("chief", "read", "send", "control")
    async with served(**AT_WILL) as house, answering("codex"):
        await is_true(house, tmp_path, *OFTEN_ENOUGH)


@linux_only
@pytest.mark.timeout(900)
@pytest.mark.skipif(not IS_WANTED, reason="`make thorough` tries it")
@pytest.mark.requirement("a2a:described")
async def test_what_is_described_is_true_however_much_is_tried(home: Path, tmp_path: Path) -> None:
    give("chief", "read", "send", "control")
    async with served(**AT_WILL) as house, answering("codex"):
        general = (await house.web.get("/openapi.json")).body
        code, said = await fuzz(general, tmp_path, *OF_ALL)
        assert code == 0, said[-20_000:]
        await is_true(house, tmp_path, *THOROUGHLY)


def test_every_operation_is_in_the_reference() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "http.md").read_text("utf-8")
    shown = set(re.findall(r"^\| `(\w+) ([^`]+)` \| (\w+) \| (.+) \|$", page, re.MULTILINE))
    assert shown == {
        (each.method, each.path, each.scope, each.tells)
        for each in (DESCRIPTION, LISTING, *SEED, *EXTERNAL, *table().operations)
        if "{tenant}" not in each.path
    }
