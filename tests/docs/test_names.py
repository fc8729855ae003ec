"""Everything that can be used is documented, and what is documented can be used."""

import enum
import inspect
import re
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

import bullpen.connection
from bullpen.connection import Builder, Connection, Limits, Stage
from bullpen.connection import errors as connection_errors
from bullpen.connection.channel import SessionChannel, SessionLimits
from bullpen.connection.router import MessageRouter
from bullpen.connection.routes import UNKNOWN_SESSION
from bullpen.errors import BullpenError
from bullpen.jsonrpc import dialect, wire
from bullpen.jsonrpc import errors as protocol_errors
from tests.docs.pages import PAGES, ROOT, name

REFERENCE = (ROOT / "docs/reference/connection.md").read_text(encoding="utf-8")
ARCHITECTURE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")

# The modules whose names a user of sessions and proxies imports, besides `bullpen.connection`.
USED = {
    "bullpen.connection.proxy": (),
    "bullpen.connection.router": (),
    "bullpen.connection.channel": ("SessionQueue",),  # inside the router
    "bullpen.connection.routed": (
        *("EventHead", "Turn", "decode_session_frame", "is_turn_end"),
        *("read_event", "read_head", "read_request", "read_session_id"),
    ),
}


def is_named(word: str, text: str = REFERENCE) -> bool:
    """Whether a word stands in the text as code."""
    return re.search(rf"`[^`\n]*\b{re.escape(word)}\b[^`\n]*`", text) is not None


def test_every_public_name_of_the_connection_library_is_in_its_reference() -> None:
    missing = [each for each in bullpen.connection.__all__ if not is_named(each)]
    assert not missing, missing


def test_every_name_that_sessions_and_proxies_need_is_in_the_reference() -> None:
    missing = [
        f"{module}.{each}"
        for module, internal in USED.items()
        for each in import_module(module).__all__
        if each not in internal and not is_named(each)
    ]
    assert not missing, missing


@pytest.mark.parametrize("owner", [Builder, Connection, MessageRouter, SessionChannel])
def test_every_method_in_the_reference_exists(owner: type) -> None:
    section = {Builder: "Building", Connection: "Connection"}.get(owner, "Sessions")
    rows = re.findall(rf"^## {section}\n(.*?)^## ", REFERENCE, re.MULTILINE | re.DOTALL)[0]
    prefixes: dict[type, str] = {MessageRouter: r"router\.", SessionChannel: r"channel\."}
    prefix = prefixes.get(owner, "")
    first_cells = re.findall(r"^\| (`.*?) \|", rows, re.MULTILINE)
    named = [
        method
        for cell in first_cells
        for method in re.findall(rf"`{prefix}([a-z_]+)(?=[(`])", cell)
    ]
    assert len(named) >= 4
    assert [method for method in named if not hasattr(owner, method)] == []


def errors_of(module: object) -> list[str]:
    return [
        each
        for each, value in vars(module).items()
        if inspect.isclass(value) and issubclass(value, BullpenError) and value is not BullpenError
    ]


@pytest.mark.parametrize("module", [connection_errors, protocol_errors])
def test_every_error_has_its_row(module: object) -> None:
    rows = re.findall(r"^\| `(\w+)` \|", REFERENCE.split("\n## Errors\n")[1], re.MULTILINE)
    assert [error for error in errors_of(module) if error not in rows] == []


def test_every_error_in_the_reference_exists() -> None:
    table = REFERENCE.split("\n## Errors\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    assert sorted(rows) == sorted({*errors_of(connection_errors), *errors_of(protocol_errors)})


def test_every_wire_error_code_has_its_row() -> None:
    codes = {k: v for k, v in vars(protocol_errors).items() if k.isupper() and isinstance(v, int)}
    table = dict(re.findall(r"^\| -(\d+) \| `(\w+)` \|", REFERENCE, re.MULTILINE))
    rows = {word: -int(code) for code, word in table.items()}
    assert rows == codes | {"UNKNOWN_SESSION": UNKNOWN_SESSION}


@pytest.mark.parametrize("limits", [Limits(), SessionLimits()], ids=lambda v: type(v).__name__)
def test_every_limit_has_its_row_with_its_default(limits: Limits | SessionLimits) -> None:
    for field in limits.__struct_fields__:
        assert f"| `{field}` | {getattr(limits, field)} |" in REFERENCE


@pytest.mark.parametrize(
    "words", [Stage, wire.__all__, dialect.__all__], ids=["stages", "wire", ""]
)
def test_the_words_of_the_protocol_are_in_the_reference(
    words: "type[enum.Enum] | list[str]",
) -> None:
    helpers = {"Id", "decode_value"}  # which only those need who look into messages
    for word in map(str, words):
        assert word in helpers or is_named(word), word


def test_every_make_target_is_documented() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = re.search(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)
    assert phony is not None
    described = dict(re.findall(r"^([a-z]+):.*?## (.+)$", makefile, re.MULTILINE))
    undescribed = set(phony[1].split()) - set(described) - {"help"}
    assert not undescribed, f"without a line in the menu: {undescribed}"


def test_every_make_target_that_a_document_names_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    for page in PAGES:
        named = re.findall(r"(?:`|\$ )make ([a-z]+)", page.read_text(encoding="utf-8"))
        assert set(named) <= targets, name(page)


def test_the_two_commands_of_the_readme_set_themselves_up() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    needs = dict(re.findall(r"^([a-z]+): ([a-z ]*)", makefile, re.MULTILINE))

    def sets_up(target: str) -> bool:
        return target == "setup" or any(map(sets_up, needs.get(target, "").split()))

    for target in ("run", "test"):
        assert f"$ make {target}" in readme
        assert sets_up(target)


@pytest.mark.requirement("T-56", "T-57")
def test_the_architecture_has_every_room_and_every_file_it_names_exists() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    [layers] = [c["layers"] for c in contracts if c["name"] == "Rooms depend downwards only"]
    rooms = [room.strip() for layer in layers for room in re.split(r"[|:]", layer)]
    assert [room for room in rooms if f"| `{room}` |" not in ARCHITECTURE] == []
    package = ROOT / "src/bullpen"
    homes = (package, package / "connection")
    named = set(re.findall(r"\b[\w/]+\.py\b", ARCHITECTURE))
    assert len(named) > 20
    tests = {path.name for path in (ROOT / "tests").rglob("*.py")}
    lost = [
        path
        for path in named
        if not any((home / path).exists() for home in (*homes, ROOT))
        and Path(path).name not in tests
    ]
    assert not lost, lost


@pytest.mark.requirement("T-56")
@pytest.mark.parametrize(
    ("stage", "chapter", "example"),
    [
        ("the documents", "docs/README.md", "examples/echo_agent.py"),
        ("the parts of the protocol", "docs/architecture.md", "examples/typed_requests.py"),
        ("the transport interface", "docs/howto/write-a-transport.md", "examples/any_address.py"),
        ("the transport in a process", "docs/howto/build-a-proxy.md", "examples/typed_requests.py"),
        ("chains of proxies", "docs/howto/build-a-conductor.md", "examples/conductor.py"),
        ("many sessions", "docs/concepts/sessions.md", "examples/many_sessions.py"),
    ],
)
def test_each_part_of_the_house_has_a_chapter_and_an_example(
    stage: str, chapter: str, example: str
) -> None:
    assert (ROOT / chapter).read_text(encoding="utf-8").strip(), stage
    assert (ROOT / example).read_text(encoding="utf-8").strip(), stage
