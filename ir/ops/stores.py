"""Stores: indexes that are looked up as drafters are called, keyed tables, and automata."""

from __future__ import annotations

import numpy as np

from decgraph.ir import facts, labels
from decgraph.ir.data.numbers import Number
from decgraph.ir.machine import Automaton, Datum, Index, Machine
from decgraph.ir.opdef import Attrs, Regions, Sample, Types, op
from decgraph.ir.ops.common import array, need, need_one, need_tokens, numeric
from decgraph.ir.types import BOOL, INT, Dim, Type
from decgraph.ir.values import Op


@op("index.new")
class IndexNew:
    """An empty index: attribute kind ("suffixes", "ngrams", "lru"); operands its sizes: of text the
    depth [and how many tokens it keeps], of a keyed table the capacity per key."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        for t in types:
            need_one(t, attrs["kind"])
        return (Type("index", (attrs["kind"], attrs.get("vocab", "V"))),)

    @staticmethod
    def meaning(m: Machine, op: Op, *sizes: Datum) -> tuple[Datum, ...]:
        return (m.new_index(op, sizes),)

    attrs = ("kind", "vocab?")
    label, batch = labels.joined, "host"
    samples = (('%z = index.new(%i, kind = "suffixes")', ...),)
    refusals = (("text", "one number", {"kind": "lru"}),)


def _need_key(t: Type) -> None:
    need(
        (t.is_token or t.elem == "int") and not t.dims, f"entries stand under one token, got {t}", "table[x], table[ctx.token]"
    )


@op("index.ask")
class IndexAsk:
    """Ask an index (attribute what): "has" (has something followed these tokens), "matched" (how long the longest end of the
    context is that something followed), "after" (what followed), "path" (what followed that end, as draws without
    randomness), "get" (the entries under a key of an lru table), "score" (for each token how often it followed, as
    probabilities)."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        need(types[0].elem == "index", f"{attrs['what']} needs an index, got {types[0]}")
        v = types[0].vocab
        what = attrs["what"]
        place = types[1] if len(types) > 1 else None
        need(len(types[0].of) < 3, "what follows a context is grown", "grow best_first(index.after(m), size = n)")
        keyed = types[0].of[0] == "lru"
        need(
            not keyed or what == "get",
            f"a table of entries has no .{what}" if what != "score" else "a table of entries is not called",
            "read what is stored under a token: table[x]",
        )
        need(
            keyed or what != "get",
            "an index of texts has no entries under a token",
            "look it up: seen.path(ctx, ...), seen.has(xs), seen(tokens)",
        )
        for name, t in zip(attrs.get("named", ()), types[2:]):
            if name != "pick":
                need_one(t, f"{name} =")
        if what == "get":
            _need_key(place or types[0])
        if place is not None and what in ("has", "matched", "after", "path", "score"):
            if place.elem in ("node", "position"):
                need(
                    not place.dims,
                    f"an index is asked at one place, got {place}",
                    "for each node: for n in t.leaves: grow chain(seen.path(n, ...)) at n; a row of tokens: seen(t.token[ns])",
                )
            else:
                need_tokens(
                    place, f".{what}" if what != "score" else "an index", "seen.path(ctx, ...), seen.has(xs), seen(ctx)"
                )
        if what == "has":
            return (BOOL,)
        if what == "matched":
            return (INT,)
        if what == "path":
            return (Type("draw", (v,), (Dim("k", "", attrs.get("bound")),)),)
        if what == "get":
            return (Type("list", (Type("token", (v,), (Dim("k"),)), -1)),)
        if what == "score":
            return (Type("prob", (), (Dim("vocab", v),)),)
        return (Type("index", (*types[0].of[:2], "after")),)

    @staticmethod
    def meaning(m: Machine, op: Op, index: Index, *args: Datum) -> tuple[Datum, ...]:
        return (m.ask(op, index, args),)

    @staticmethod
    def fact(k: facts.Known, op: Op) -> facts.Fact | None:
        return facts.Drafts(facts.NONE) if op.result.type.elem == "draw" else None

    attrs = ("what", "named?", "bound?")
    label, batch = labels.joined, "host"
    samples: tuple[Sample, ...] = (
        ('%z = index.ask(%ix, what = "has")', True),
        ('%z = index.ask(%ix, %ctx, what = "matched")', ...),
        ('%z = index.ask(%ix, %i, what = "path", bound = 4)', [0, 2]),
        ('%z = index.ask(%keyed, %tok, what = "get")', []),
        ('%z = index.ask(%ix, %ctx, what = "after")', ...),
    )
    refusals = (("int", "index", {"what": "has"}),)


@op("index.learn")
class IndexLearn:
    """An index that has also seen these tokens (or, for a keyed table, this entry under a key)."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        need(types[0].elem == "index", f"learning needs an index, got {types[0]}")
        keyed = types[0].of[0] == "lru"
        need(
            len(types) == (3 if keyed else 2),
            "a table of entries is given an entry under a token" if keyed else "an index learns one vector of tokens",
            "table[x] += entry" if keyed else "seen.learn(tokens)",
        )
        if keyed:
            _need_key(types[1])
        if types[-1].elem != "node" or types[-1].of[0] != "ctx":
            need_tokens(types[-1], "an entry" if keyed else "an index that learns")
        return (types[0],)

    @staticmethod
    def meaning(m: Machine, op: Op, index: Index, *args: Datum) -> tuple[Datum, ...]:
        return (m.learn(op, index, args),)

    label, batch = labels.joined, "barrier"
    surface = "learn(index, tokens, more?)"
    samples = (("%z = index.learn(%ix, %toks)", ...),)
    refusals = (
        ("int", "index"),
        ("index<ngrams,V>, model<causal,V,m,causal>", "tokens"),
    )


@op("automaton")
class AutomatonOp:
    """An automaton over tokens: attribute what: "start", "state" (after the context's committed tokens), "step" (state,
    token), "run" (state, tokens), "allowed" (tokens a state allows), "live" (for every state, whether it can still end),
    "weights" (for every state 0 where it is this one, else minus infinity)."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        need(types[0].elem == "automaton", f".{attrs['what']} needs an automaton, got {types[0]}")
        what = attrs["what"]
        if what in ("step", "run", "allowed"):
            need(types[1].elem == "astate", f".{what} needs a state of the automaton, got {types[1]}", "begin with g.start")
        for t in types[2:] if what in ("step", "run") else ():
            need_tokens(t, f".{what}", "g.step(s, x), g.run(s, xs)")
            need(what == "run" or t.elem not in ("path", "list"), f".step takes one token, got {t}", "several: g.run(s, xs)")
        if what == "state":
            need(
                types[1].elem == "node" and types[1].of[0] == "ctx",
                f".state is that after the committed text, got {types[1]}",
                "g.state(ctx); after drafted tokens g.run(g.state(ctx), xs), or a column: grow x with s = g.step(s, x)",
            )
        dims = types[1].dims if len(types) > 1 else ()
        if what == "allowed":
            return (Type("bool", (), dims + (Dim("vocab", types[0].vocab),)),)
        if what == "live":
            return (Type("bool", (), (Dim("k", "states"),)),)
        if what == "weights":
            need(types[1].elem == "astate", f".weights needs a state, got {types[1]}")
            return (Type("real", (), (Dim("k", "states"),)),)
        if what == "states":
            return (INT,)
        if what == "run":
            dims = ()
        return (Type("astate", (), dims),)

    @staticmethod
    def meaning(m: Machine, op: Op, g: Automaton, *args: Datum) -> tuple[Datum, ...]:
        what = op.attrs["what"]
        if what == "states":
            return (g.states,)
        if what == "live":
            return (np.array([s in g.live for s in range(g.states)], dtype=bool),)
        if what == "weights":
            return (m.reals([m.num.zero if s == args[0] else -m.num.inf for s in range(g.states)]),)
        return (m.automaton(op, g, args),)

    attrs = ("what",)
    label, batch = labels.joined, "host"
    samples = (
        ('%z = automaton(%au, what = "start")', 0),
        ('%z = automaton(%au, %st, %tok, what = "step")', 1),
        ('%z = automaton(%au, %st, what = "allowed")', [True, True, False]),
        ('%z = automaton(%au, what = "live")', [True, False]),
        ('%z = automaton(%au, what = "states")', 2),
        ('%z = automaton(%au, %st, %toks, what = "run")', ...),
        ('%z = automaton(%au, %st, what = "weights")', [0.0, -np.inf]),
    )
    refusals = (
        ("automaton<V>, int", "g.start", {"what": "allowed"}),
        ("int", "automaton", {"what": "start"}),
    )


@op("relax")
class Relax:
    """One step of the best path through an automaton: operands automaton, a score for each state, a score for each token.
    Results over the states after the step: the best score, the state it came from, the token it took (0 where none)."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        need(types[0].elem == "automaton", f"relax needs an automaton, got {types[0]}")
        s = numeric(types[2])
        need(numeric(types[1]).is_number and len(types[1].dims) == 1, f"relax needs a score for each state, got {types[1]}")
        need(
            s.is_number and len(s.dims) == 1 and s.dims[0].kind == "vocab",
            f"relax needs a score for each token, got {types[2]}",
        )
        d = Dim("k", "states")
        return (Type("real", (), (d,)), INT.over(d), Type("token", (types[0].vocab,), (d,)))

    @staticmethod
    def meaning(m: Machine, op: Op, g: Automaton, w: Datum, s: Datum) -> tuple[Datum, ...]:
        w, s = array(m, w), array(m, s)
        best: list[Number] = [-m.num.inf] * g.states
        back, tokens = np.zeros(g.states, dtype=np.int64), np.zeros(g.states, dtype=np.int64)
        for state in range(g.states):
            if not w[state] > -m.num.inf:
                continue
            for token, after in enumerate(g.next[state]):
                if after >= 0 and w[state] + s[token] > best[after]:
                    best[after], back[after], tokens[after] = w[state] + s[token], state, token
        return (m.reals(best), back, tokens)

    label, batch = labels.joined, "host"
    samples = (("%z, %back, %tok1 = relax(%au, %cost, %w)", [1.0, 3.0]),)
    refusals = (("int, int, int", "automaton"),)
