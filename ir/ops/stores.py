"""Stores: indexes that are asked like drafters, keyed tables, and automata."""
from __future__ import annotations

from typing import Any

from decgraph.ir.ops.common import need
from decgraph.ir.table import op
from decgraph.ir.types import BOOL, INT, Dim, Type


@op("index.new")
class IndexNew:
    """An empty index: attribute kind ("suffixes", "ngrams", "lru"); operands its sizes (depth; n; capacity per key)."""

    def type(types: Any, attrs: Any, regions: Any) -> Any:
        return (Type("index", (attrs["kind"], attrs.get("vocab", "V"))),)

    def meaning(m: Any, op: Any, *sizes: Any) -> Any:
        return (m.new_index(op, sizes),)

    attrs = ("kind", "vocab?")
    label, batch = "none", "host"


@op("index.ask")
class IndexAsk:
    """Ask an index (attribute what): "has" (does the context occur), "after" (what followed), "path" (the longest continuation,
    as draws without randomness), "get" (the entries under a key of an lru table)."""

    def type(types: Any, attrs: Any, regions: Any) -> Any:
        need(types[0].elem == "index", f"{attrs['what']} needs an index, got {types[0]}")
        v = types[0].vocab
        what = attrs["what"]
        if what == "has":
            return (BOOL,)
        if what == "path":
            return (Type("draw", (v,), (Dim("k", "", attrs.get("bound")),)),)
        if what == "get":
            return (Type("list", (Type("token", (v,), (Dim("k"),)), -1)),)
        return (types[0],)

    def meaning(m: Any, op: Any, index: Any, *args: Any) -> Any:
        return (m.ask(op, index, args),)

    attrs = ("what", "bound?")
    label, batch = "none", "host"


@op("index.learn")
class IndexLearn:
    """An index that has also seen these tokens (or, for a keyed table, this entry under a key)."""

    def type(types: Any, attrs: Any, regions: Any) -> Any:
        need(types[0].elem == "index", f"learning needs an index, got {types[0]}")
        return (types[0],)

    def meaning(m: Any, op: Any, index: Any, *args: Any) -> Any:
        return (m.learn(op, index, args),)

    label, batch = "none", "barrier"


@op("automaton")
class AutomatonOp:
    """An automaton over tokens: attribute what: "start", "step" (state, token), "allowed" (tokens a state allows), "live"."""

    def type(types: Any, attrs: Any, regions: Any) -> Any:
        need(types[0].elem == "automaton", f".{attrs['what']} needs an automaton, got {types[0]}")
        what = attrs["what"]
        dims = types[1].dims if len(types) > 1 else ()
        if what == "allowed":
            return (Type("bool", (), dims + (Dim("vocab", types[0].vocab),)),)
        if what == "live":
            return (Type("bool", (), dims),)
        if what == "states":
            return (INT,)
        return (Type("astate", (), dims),)

    def meaning(m: Any, op: Any, g: Any, *args: Any) -> Any:
        return (m.automaton(op, g, args),)

    attrs = ("what",)
    label, batch = "own", "host"
