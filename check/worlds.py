"""Worlds to check in: small models with rational tables, small parameters, and requests of every sort."""
from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from decgraph.errors import DecError
from decgraph.ir.data.topology import Topology
from decgraph.ir.values import Function
from decgraph.runtime.models.free import FreeAdapter, FreeFeatures, FreeModel
from decgraph.runtime.models.table import TableAdapter, TableFeatures, TableModel
from decgraph.runtime.request import Factor, Request

if TYPE_CHECKING:
    from decgraph.check.claims import Case

HEADS = 3


def models_for(function: Function, size: int, seed: int, *, free: bool = False) -> dict[str, Any]:
    """A model for every model parameter, tables over `size` tokens (or free models, whose memory can be told apart)."""
    out: dict[str, Any] = {}
    families: dict[str, Any] = {}
    for i, p in enumerate(p for p in function.params if p.value.type.elem == "model"):
        kind, vocab, family, visibility = (str(x) for x in p.value.type.of)
        s = seed * 101 + i
        sort: Any = kind
        if kind in ("causal", "masked"):
            heads = HEADS if "heads" in visibility else 0
            made: Any
            if free:
                made = FreeModel(s, size, visibility=_visibility(kind, visibility), kind=sort, heads=heads, vocab=vocab,
                                 name=p.name)
            else:
                # Every fourth world forgets: texts repeat themselves there, as indexes and tables of successors need.
                window = 1 if seed % 4 == 3 and kind == "causal" else None
                made = TableModel(size, seed=s, kind=sort, heads=heads, name=p.name, vocab=vocab, window=window)
            out[p.name] = families[family] = made
        elif kind == "features":
            out[p.name] = (FreeFeatures if free else TableFeatures)(families[family], s)
        elif kind == "layers":
            out[p.name] = (FreeAdapter if free else TableAdapter)(families[family], s)
        else:
            raise DecError(f"there is no small model for `{p.name}` ({kind})")
    return out


def _visibility(kind: str, visibility: str) -> Any:
    if kind == "causal":
        return "causal"
    return ("block", 2) if visibility == "block" else "full"


SMALL = {"length": (3, 4), "block": (2, 4), "steps": (2, 4), "limit": (3, 4), "w": (2, 3), "n": (3, 3), "budget": (2, 5),
         "depth": (1, 2), "k": (2, 2), "gamma": (1, 3), "width": (2, 2), "reach": (2, 3)}


def sized(function: Function, vocab: int, seed: int) -> tuple[int, int]:
    """(tokens, cells of the canvas) of a world; no cells where there is no canvas. A drawn canvas of n cells has about
    vocab ** (n + ... + 1) runs, so that most are of two cells, some of three; every third is decoded greedily and has four."""
    masked = next((p.value.type.of[0] for p in function.params if p.value.type.elem == "model"), "") == "masked"
    if not masked:
        return vocab, 0
    if seed % 3 == 2:
        return vocab, 4
    return (vocab, 2) if seed % 3 == 0 else (2, 3 if seed % 6 == 1 else 2)


def params_for(function: Function, seed: int, given: Mapping[str, Any] | None = None, span: int = 0) -> dict[str, Any]:
    """Small values for every parameter that is not given, inside the declared ranges. `span`: cells of the canvas, if any."""
    r = random.Random(f"params {seed}")
    out: dict[str, Any] = {}
    for p in function.params:
        t = p.value.type
        if t.elem == "model":
            continue
        if given and p.name in given:
            out[p.name] = given[p.name]
        elif p.name == "length" and span:
            out[p.name] = span
        elif t.elem == "int":
            low, high = SMALL.get(p.name, (1, 2))
            low = max(low, int(p.low) if p.low is not None else low)
            high = max(low, min(high, int(p.high) if p.high is not None else high))
            out[p.name] = r.randint(low, high)
        elif t.elem == "prob":
            out[p.name] = r.choice([Fraction(1, 4), Fraction(1, 2), Fraction(3, 4)])
        elif t.elem == "topology":
            out[p.name] = Topology.of(r.choice(["2x1", "2", "[[0],[1],[0,0],[1,0]]", "[[0],[0,0],[0,1]]"]))
        elif t.elem == "bool":
            out[p.name] = r.choice([True, False])
        elif t.elem == "text" and p.has_default or p.has_default:
            out[p.name] = p.default
        elif t.elem == "set":
            out[p.name] = frozenset({1})
        elif t.elem == "real":
            out[p.name] = Fraction(1, 2)
        else:
            raise DecError(f"{function.name}: give a value for `{p.name}` to check it with", hint=f"--param {p.name}=...")
    return out


def request_for(size: int, seed: int, limit: int, *, greedy: bool = False, plain: bool = False) -> Request:
    """A request: plain ones first, then those with stop tokens, truncation, bans, penalties and biases."""
    r = random.Random(f"request {seed}")
    prompt = tuple(r.randrange(size) for _ in range(r.randint(2, 3)))
    common: dict[str, Any] = {"prompt": prompt, "limit": limit, "seed": 0}
    if greedy:
        common["temperature"] = 0
    if plain or seed % 2 == 0:
        return Request(**common)
    sort = (seed // 2) % 8
    if sort == 0:
        return Request(**common, eos=frozenset({r.randrange(size)}))
    if sort == 1:
        return Request(**common, top_k=2)
    if sort == 2:
        return Request(**common, eos=frozenset({0}), min_length=2)
    if sort == 3:
        return Request(**common, bans=frozenset({r.randrange(size)}))
    if sort == 4:
        return Request(**common, top_p=Fraction(2, 3))
    if sort == 5:
        penalty = "presence_penalty" if seed % 32 < 16 else "frequency_penalty"
        return Request(**{**common, penalty: Factor(Fraction(3))})
    if sort == 6:
        return Request(**common, bias={r.randrange(size): Factor(Fraction(4))}, min_p=Fraction(1, 5))
    return Request(**{**common, "limit": 1 + seed // 2 % 16 // 8})


def least(case: Case) -> Case:
    """The same world with the smallest parameters, fewer tokens and one step less to look at."""
    small = dict(case.params)
    for p in case.function.params:
        if p.value.type.elem == "int" and p.name not in case.given:
            small[p.name] = max(1 if p.name not in SMALL else SMALL[p.name][0], int(p.low) if p.low is not None else 1)
        elif p.value.type.elem == "topology" and p.name not in case.given:
            small[p.name] = Topology.of("2x1")
    return replace(case, params=small, length=min(2, case.length), request=shorter(case.request, 3))


def shorter(request: Request, limit: int) -> Request:
    """A request for fewer tokens; a greedy one has a single run however long it is."""
    return request if request.greedy else replace(request, limit=min(limit, request.limit))


def narrow(case: Case) -> Case:
    """The same world with parameters of two at most and two tokens to look at: what adversaries multiply must be small."""
    low = {p.name: int(p.low) for p in case.function.params if p.low is not None and p.value.type.elem == "int"}
    small = {k: max(low.get(k, 1), min(2, v)) if isinstance(v, int) and not isinstance(v, bool) and k not in case.given else v
             for k, v in case.params.items()}
    return replace(case, params=small, length=min(2, case.length), request=shorter(
        case.request, 2 if case.claim.mode != "distribution" else 4))
