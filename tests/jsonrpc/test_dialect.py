"""Each family of programs gives up a request in its own words."""

from typing import Any

import msgspec
import pytest

from bullpen.jsonrpc.dialect import ACP, LSP, MCP, PLAIN, Dialect
from bullpen.jsonrpc.wire import Id, Notification


@pytest.mark.requirement("contract:C1")
@pytest.mark.parametrize(
    ("dialect", "expected"),
    [
        (PLAIN, None),
        (ACP, Notification("$/cancel_request", {"requestId": 7})),
        (LSP, Notification("$/cancelRequest", {"id": 7})),
        (MCP, Notification("notifications/cancelled", {"requestId": 7})),
    ],
    ids=["plain", "acp", "lsp", "mcp"],
)
def test_the_cancel_of_a_dialect(dialect: Dialect, expected: Notification | None) -> None:
    assert dialect.cancel(7) == expected


@pytest.mark.requirement("contract:C3")
@pytest.mark.parametrize("dialect", [ACP, LSP, MCP], ids=["acp", "lsp", "mcp"])
@pytest.mark.parametrize("id_", [7, "7", 0, "", -1])
def test_what_one_side_cancels_the_other_understands(dialect: Dialect, id_: Id) -> None:
    cancel = dialect.cancel(id_)
    assert cancel is not None
    understood = dialect.cancelled_id(cancel)
    assert (understood, type(understood)) == (id_, type(id_))
    over_a_wire = Notification(cancel.method, msgspec.Raw(msgspec.json.encode(cancel.params)))
    understood = dialect.cancelled_id(over_a_wire)
    assert (understood, type(understood)) == (id_, type(id_))


@pytest.mark.requirement("contract:C3", "L-34", "L-37")
@pytest.mark.parametrize(
    "params",
    [
        msgspec.UNSET,
        None,
        [],
        17,
        {},
        {"requestId": None},
        {"requestId": True},
        {"requestId": 1.0},
        {"requestId": {"id": 1}},
        {"id": 1},
        msgspec.Raw(b'{"requestId":true}'),
        msgspec.Raw(b'{"requestId":1.0}'),
        msgspec.Raw(b"[" * 100_000),
        msgspec.Raw(b"nonsense"),
        msgspec.Raw(b"9" * 5000),
    ],
    # An address in an id would be another one in each process that runs the tests.
    ids=lambda params: repr(bytes(params) if isinstance(params, msgspec.Raw) else params)[:30],
)
def test_a_cancel_that_makes_no_sense_names_no_request(params: Any) -> None:
    assert ACP.cancelled_id(Notification("$/cancel_request", params)) is None


def test_only_mcp_leaves_a_cancelled_request_unanswered() -> None:
    assert [d.answers_cancelled for d in (PLAIN, ACP, LSP, MCP)] == [True, True, True, False]
