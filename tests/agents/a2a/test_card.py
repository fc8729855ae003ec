"""The card decides how an agent is spoken to, whichever generation it is of."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.agents.a2a.card import Binding, Dialect, is_loopback, local_card, read_card
from bullpen.agents.a2a.errors import CardError

AT = "http://127.0.0.1:8100"
ELSEWHERE = "https://agents.example.com"
SEED = {"name": "Synapse Claude", "url": AT, "capabilities": {"streaming": True}, "skills": []}
MODES = {"defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"]}
OLD = {"name": "Old", "protocolVersion": "0.3.0", "url": f"{AT}/rpc", **MODES}
GRPC = {"url": "127.0.0.1:1", "protocolBinding": "GRPC", "protocolVersion": "1.0"}
RPC = {"url": f"{AT}/a2a/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
REST = {"url": f"{AT}/rest", "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0.1"}
RPC_03 = {"url": f"{AT}/old", "protocolBinding": "JSONRPC", "protocolVersion": "0.3"}


def new(*interfaces: Any, **more: Any) -> dict[str, Any]:
    return {"name": "New", "supportedInterfaces": list(interfaces), **MODES, **more}


@pytest.mark.requirement("a2a:dialects")
@pytest.mark.parametrize(
    ("card", "dialect", "binding", "url"),
    [
        (SEED, Dialect.SEED, Binding.PATHS, AT),
        ({**SEED, **MODES, "extensions": {"synapse": {}}}, Dialect.SEED, Binding.PATHS, AT),
        ({"name": "Two", "url": f"{AT}/rpc", **MODES}, Dialect.V03, Binding.JSONRPC, f"{AT}/rpc"),
        (OLD, Dialect.V03, Binding.JSONRPC, f"{AT}/rpc"),
        (
            {
                **OLD,
                "preferredTransport": "GRPC",
                "additionalInterfaces": [5, {"transport": "HTTP+JSON", "url": f"{AT}/rest"}],
            },
            Dialect.V03,
            Binding.REST,
            f"{AT}/rest",
        ),
        (new(GRPC, RPC, REST), Dialect.V10, Binding.JSONRPC, f"{AT}/a2a"),
        (new(REST, RPC), Dialect.V10, Binding.REST, f"{AT}/rest"),
        (new(RPC_03, REST), Dialect.V10, Binding.REST, f"{AT}/rest"),
        (new("?", {}, RPC_03), Dialect.V03, Binding.JSONRPC, f"{AT}/old"),
    ],
    ids=["seed", "synapse", "0.2", "0.3", "0.3-rest", "1.0", "1.0-rest", "newest", "1.0-for-0.3"],
)
def test_the_dialect_is_what_the_card_says(
    card: dict[str, Any], dialect: Dialect, binding: Binding, url: str
) -> None:
    found = read_card({**card, "iconUrl": 7, "unheardOf": [{}]}, AT)
    assert (found.dialect, found.binding, found.url) == (dialect, binding, url)


def test_what_a_card_says_of_the_agent_is_kept() -> None:
    skill = {"id": "s", "name": "S"}
    interface = {**RPC, "tenant": "t-1"}
    capabilities = {"streaming": True, "extensions": [{"uri": "urn:bullpen:priority:v1"}, 3]}
    card = read_card(
        new(interface, description="does it", version="2", skills=[skill, 4], name=" A \n B ")
        | {"capabilities": capabilities},
        AT,
    )
    assert (card.name, card.description, card.version) == ("A B", "does it", "2")
    assert card.skills == (skill,)
    assert card.tenant == "t-1"
    assert card.can_stream
    assert card.priority_uri == "urn:bullpen:priority:v1"
    assert card.capabilities == capabilities


def test_an_agent_of_the_seed_is_polled_whatever_it_says_of_streams() -> None:
    assert not read_card(SEED, AT).can_stream


@pytest.mark.parametrize(
    ("card", "found_at", "why"),
    [
        ([], AT, "no JSON object"),
        ({"url": AT}, AT, "has no name"),
        ({"name": 5}, AT, "has no name"),
        (new(GRPC), AT, "no interface that we speak"),
        ({"name": "x", "supportedInterfaces": "all"}, AT, "no list"),
        ({**OLD, "protocolVersion": "2.1"}, AT, "A2A '2.1'"),
        ({**OLD, "url": None}, AT, "no interface that we speak"),
        (new({**RPC, "url": "file:///etc/passwd"}), AT, "no http address"),
        (new({**RPC, "url": "http://h:99999/"}), AT, "no http address"),
        (new({**RPC, "url": "http://h/\r\nX: y"}), AT, "no http address"),
        (new({**RPC, "url": "http://me:secret@h/"}), AT, "no http address"),
        (new(RPC), ELSEWHERE, "points at this machine"),
        (new({**RPC, "url": "https://localhost:1/"}), ELSEWHERE, "points at this machine"),
        (new({**RPC, "url": "http://other.example.com"}), ELSEWHERE, "without"),
    ],
    ids=[
        *("list", "nameless", "number", "grpc", "no-list", "newer", "no-url", "file"),
        *("port", "newline", "password", "loopback", "localhost", "no-tls"),
    ],
)
def test_a_card_that_cannot_be_used_is_refused_with_the_reason(
    card: Any, found_at: str, why: str
) -> None:
    with pytest.raises(CardError, match=why):
        read_card(card, found_at)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["name", "url", "supportedInterfaces", "capabilities", "skills", "x"]
                ),
                inner,
                max_size=5,
            )
        ),
        max_leaves=12,
    )
)
def test_whatever_a_card_is_it_is_read_or_refused(value: Any) -> None:
    try:
        card = read_card(value, AT)
    except CardError:
        return
    assert card.name
    assert card.url.startswith("http")


def test_an_agent_of_this_machine_needs_no_card() -> None:
    card = local_card("claude", f"{AT}/")
    assert (card.dialect, card.url, card.has_priorities) == (Dialect.SEED, AT, True)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://localhost:1", True),
        ("http://127.8.0.1", True),
        ("http://[::1]:2", True),
        ("http://0.0.0.0:2", True),
        ("http://localhost.example.com", False),
        ("http://10.0.0.1", False),
    ],
    ids=["name", "four", "six", "any", "lookalike", "private"],
)
def test_which_addresses_are_of_this_machine(url: str, expected: bool) -> None:
    assert is_loopback(url) is expected
