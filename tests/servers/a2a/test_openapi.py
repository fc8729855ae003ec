"""What is answered over HTTP is described, and the description tells the truth."""

import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.routing import BaseRoute, Mount, Route

from bullpen.servers.a2a import external, seed
from bullpen.servers.a2a.description import describe
from bullpen.servers.a2a.operations import EXTERNAL, SEED
from bullpen.servers.a2a.room import Scope
from bullpen.servers.a2a.v1 import routes as v1
from tests.daemon.wrapping import wrapped
from tests.servers.a2a.house import linux_only, room_of_a_daemon, served


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
        routes = [*seed.routes(room), *external.routes(room), *v1.routes(room, "codex")]
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
    assert {each.scope for each in (*SEED, *EXTERNAL)} == {each.value for each in Scope}


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
