"""Any value of our structs, as hypothesis draws them."""

import enum
import types
from datetime import UTC, datetime
from typing import Any, Union, get_args, get_origin

import msgspec
from hypothesis import strategies as st

from bullpen.model.alerts import Alert
from bullpen.model.observations import PaneInstanceId
from bullpen.model.records import BindingLink, Commit, Ingested
from bullpen.model.sources import CursorState, SourceHealth
from bullpen.model.states import SourceKind
from bullpen.model.views import PaneState, SessionState

# What others put into values: also what is no UTF-8, NUL, and numbers too long for SQLite.
texts = st.text(max_size=12) | st.sampled_from(["\ud83d", "/home/\udcff", "a\0b", "null", "🦬"])
integers = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([10**30, -(10**30), 2**63])
times = st.datetimes(timezones=st.just(UTC))
json_values = st.recursive(
    st.none() | st.booleans() | integers | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


def values(kind: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for a type as our structs use them."""
    simple: dict[Any, st.SearchStrategy[Any]] = {
        str: texts,
        int: integers,
        bool: st.booleans(),
        float: st.floats(allow_nan=False, allow_infinity=False),
        datetime: times,
        Any: json_values,
        type(None): st.none(),
    }
    if kind in simple:
        return simple[kind]
    arguments = get_args(kind)
    if get_origin(kind) in (Union, types.UnionType):
        return st.one_of([values(each) for each in arguments])
    if get_origin(kind) is tuple and arguments[-1] is ...:
        return st.lists(values(arguments[0]), max_size=3).map(tuple)
    if get_origin(kind) is dict:
        return st.dictionaries(values(arguments[0]), values(arguments[1]), max_size=3)
    if issubclass(kind, enum.Enum):
        return st.sampled_from(list(kind))
    assert issubclass(kind, msgspec.Struct), kind
    return structs(kind)


def structs(kind: type[Any], **given: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return a strategy for a struct with any value in every field."""
    fields = {field.name: values(field.type) for field in msgspec.structs.fields(kind)}
    return st.builds(kind, **(fields | given))


versions = st.integers(0, 2**62)


def _distinct(strategy: st.SearchStrategy[Any], key: Any) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(strategy, max_size=4, unique_by=key).map(tuple)


@st.composite
def _logs(draw: st.DrawFn) -> tuple[Ingested, ...]:
    observations = draw(
        _distinct(
            structs(Ingested).map(lambda each: each.observation),
            lambda each: (each.provider, each.session_key, each.event_id, each.source_kind),
        )
    )
    return tuple(Ingested(number, each) for number, each in enumerate(observations, 1))


def commits() -> st.SearchStrategy[Commit]:
    """Return a strategy for steps in which nothing stands twice and no alert is resolved."""
    return st.builds(
        Commit,
        observations=_logs(),
        panes=_distinct(
            structs(PaneState, state_version=versions), lambda each: each.pane_instance_id
        ),
        sessions=_distinct(
            structs(SessionState, state_version=versions), lambda each: each.session_key
        ),
        bindings=_distinct(structs(BindingLink), lambda each: each.pane_instance_id),
        cursors=_distinct(structs(CursorState), lambda each: each.source_kind),
        health=_distinct(
            st.tuples(st.sampled_from(SourceKind), structs(SourceHealth)), lambda each: each[0]
        ),
        alerts=_distinct(structs(Alert, resolved_at=st.none()), lambda each: each.alert_id),
    )


def panes() -> st.SearchStrategy[PaneInstanceId]:
    """Return a strategy for instances of panes."""
    return structs(PaneInstanceId)
