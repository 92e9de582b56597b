"""Types print to a text that reads back, and join as values do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decgraph.ir.types import (
    ANY,
    DIM_KINDS,
    ELEMENTS,
    INT,
    NONE,
    PROB,
    REAL,
    Dim,
    Type,
    TypeError_,
    join,
    listing,
    parse_dim,
    parse_type,
)

NAMES = st.text(max_size=5) | st.sampled_from(["V", "t", "ctx", "", "block-causal(8)", "3x", "a b", 'q"', "%t", "été", "-1"])
DIMS = st.builds(Dim, st.sampled_from(DIM_KINDS), NAMES, st.none() | st.integers(-1, 999))
PLAIN = st.sampled_from([e for e in ELEMENTS if e != "list"]).flatmap(
    lambda e: st.builds(
        lambda of, dims: Type(e, of, dims),
        st.lists(NAMES | st.integers(-9, 99), min_size=len(ELEMENTS[e]), max_size=len(ELEMENTS[e])).map(tuple),
        st.lists(DIMS, max_size=3).map(tuple),
    )
)
TYPES = st.recursive(
    PLAIN,
    lambda inner: st.builds(
        lambda t, n, dims: Type("list", (t, n), dims), inner, st.integers(-1, 9), st.lists(DIMS, max_size=2).map(tuple)
    ),
    max_leaves=3,
)


@given(TYPES)
def test_types_round_trip(t: Type) -> None:
    assert parse_type(str(t)) == t


@given(DIMS)
def test_dimensions_round_trip(d: Dim) -> None:
    assert parse_dim(str(d)) == d


@given(TYPES, TYPES)
def test_join_is_idempotent_and_symmetric_where_defined(a: Type, b: Type) -> None:
    assert join(a, a) == a
    one, other = join(a, b), join(b, a)
    assert (one is None) == (other is None)


@given(
    st.sampled_from(["int", "int[k<=3]", "dist<V,raw>[nodes.t<=4]", "list<token<V>,-1>", "draw<V>[part.t]"]),
    st.sampled_from(["int", "real", "int[k<=5]", "dist<V,shaped>[nodes.t]", "token<V>[part.t<=2]", "none", "list<any,-1>"]),
)
def test_a_join_holds_both(x: str, y: str) -> None:
    a, b = parse_type(x), parse_type(y)
    both = join(a, b)
    if both is not None:
        assert join(a, both) == both and join(b, both) == both


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "expected a name"),
        ("inte", "unknown element"),
        ("int[", "expected"),
        ("int[k<=]", "a number"),
        ("int]", "after 'int'"),
        ("token<V", "expected"),
        ("int[size]", "unknown dimension"),
        ("token<V>>", "after"),
        ("int[k<=x]", "number"),
        ("{", "not a type"),
        ("list<bool[k<=2]", "expected"),
    ],
)
def test_bad_types_are_refused(text: str, word: str) -> None:
    with pytest.raises(TypeError_, match=word):
        parse_type(text)


def test_joins_of_values() -> None:
    assert join(INT, REAL) == REAL and join(PROB, INT) == PROB
    assert join(NONE, INT) == INT and join(ANY, INT) == INT
    assert join(parse_type("draw<V>"), parse_type("token<V>")) == parse_type("token<V>")
    assert join(parse_type("token<V>"), parse_type("token<W>")) is None
    assert join(parse_type("int[k<=3]"), parse_type("int[k<=5]")) == parse_type("int[k<=5]")
    assert join(parse_type("int[vocab.V]"), parse_type("int[k]")) is None
    assert join(listing(ANY), parse_type("int[k<=3]")) == parse_type("int[k<=3]")
    assert join(parse_type("tree<t,token,V>"), parse_type("tree<t,step,V>")) == parse_type("tree<t,any,V>")
