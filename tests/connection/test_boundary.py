"""Protocol above, transports below: they share the messages and nothing else."""

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

import bullpen.connection
from bullpen.connection import Message, Receiver, Transport
from bullpen.jsonrpc import wire

SOURCE = Path(bullpen.connection.__file__).parent.parent
TESTS = Path(__file__).parent
MESSAGES = {wire.Request, wire.Notification, wire.Response, wire.Batch, wire.Malformed}

PROTOCOL = [
    SOURCE / "connection" / f"{name}.py"
    for name in ("connection", "dispatch", "waiters", "parking", "context", "handlers", "typed")
]
TRANSPORTS = [SOURCE / "connection/transport.py", *(SOURCE / "connection/transports").glob("*.py")]


def imports_of(path: Path) -> Iterator[str]:
    """Yield the modules a file imports when it is loaded, or for the type checker."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None
            yield node.module


def imported(paths: Iterable[Path], prefix: str) -> set[str]:
    names = {name for path in paths for name in imports_of(path)}
    return {name for name in names if name == prefix or name.startswith(f"{prefix}.")}


@pytest.mark.requirement("T-09", "T-10", "T-55")
def test_transports_stand_on_the_messages_their_codec_and_the_port_alone() -> None:
    allowed = {
        "bullpen.connection.errors",
        "bullpen.connection.transport",
        "bullpen.jsonrpc.codec",
        "bullpen.jsonrpc.errors",
        "bullpen.jsonrpc.framing",
        "bullpen.jsonrpc.wire",
    }
    others = imported(TRANSPORTS, "bullpen") - allowed
    assert {
        name for name in others if not name.startswith("bullpen.connection.transports.")
    } == set()


@pytest.mark.requirement("T-07", "T-10", "T-55")
def test_the_protocol_knows_the_port_and_neither_transports_nor_framing() -> None:
    below = imported(PROTOCOL, "bullpen.connection.transports")
    # A convenience, imported when it is called: it makes a transport of two streams.
    assert below <= {"bullpen.connection.transports.stream"}
    assert imported(PROTOCOL, "bullpen.jsonrpc.framing") == set()
    assert imported(PROTOCOL, "bullpen.jsonrpc.codec") == set()


@pytest.mark.requirement("T-09")
def test_the_messages_themselves_know_no_transport_and_no_io() -> None:
    names = set(imports_of(SOURCE / "jsonrpc/wire.py"))
    assert names <= {"json", "typing", "msgspec"}


@pytest.mark.requirement("T-55")
def test_changing_how_messages_are_written_touches_one_file() -> None:
    def writes(path: Path) -> bool:
        calls = {"msgspec.json.encode", "msgspec.json.Encoder", "json.dumps"}
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        return any(isinstance(n, ast.Call) and ast.unparse(n.func) in calls for n in nodes)

    files = [*PROTOCOL, *TRANSPORTS, *(SOURCE / "jsonrpc").glob("*.py")]
    assert [path.name for path in files if writes(path)] == ["codec.py"]


@pytest.mark.requirement("T-10", "T-55")
def test_the_import_contract_between_transports_and_protocol_is_kept() -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    output = subprocess.run(
        [linter, "--no-logo"], cwd=SOURCE.parent.parent, capture_output=True, text=True, check=False
    ).stdout
    assert "Transports do not know the protocol KEPT" in output, output


@pytest.mark.requirement("T-26", "T-09")
def test_a_transport_is_given_and_gives_messages_and_nothing_of_the_application() -> None:
    assert set(get_args(Message)) == MESSAGES
    assert get_type_hints(Transport.send) == {"message": Message, "return": type(None)}
    assert get_type_hints(Receiver.receive) == {
        "message": Message,
        "size": int,
        "return": type(None),
    }
    assert get_type_hints(Receiver.receive_burst) == {
        "messages": Iterable[Message],
        "sizes": Iterable[int],
        "return": type(None),
    }
    assert set(get_type_hints(Receiver.receive_end)) == {"cause", "return"}


@pytest.mark.requirement("T-54", "T-49")
@pytest.mark.parametrize(
    "name",
    [
        "batches",
        "bounds",
        "cancel",
        "channels",
        "close",
        "exact_timing",
        "handlers",
        "hostile_input",
        "identity",
        "observers",
        "order",
        "proxy",
        "requests",
        "spawn",
    ],
)
def test_the_protocol_is_tested_without_socket_pipe_or_subprocess(name: str) -> None:
    path = TESTS / f"test_{name}.py"
    forbidden = {"multiprocessing", "os", "pty", "select", "socket", "subprocess", "time"}
    assert not set(imports_of(path)) & forbidden
    assert not set(imports_of(TESTS / "peers.py")) & forbidden
    source = path.read_text(encoding="utf-8")
    for name in ("SocketTransport", "DescriptorTransport", "create_subprocess", "open_connection"):
        assert name not in source
