"""The algorithms of stdlib/ on models that cost nothing: small parameters, table models, and a way to run them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from decgraph import stdlib
from decgraph.backends.registry import machine
from decgraph.dsl.lower import load_text
from decgraph.ir.values import Claim, Module
from decgraph.runtime.models.free import FreeAdapter, FreeFeatures, FreeModel
from decgraph.runtime.models.interface import Model
from decgraph.runtime.models.table import TableAdapter, TableFeatures, TableModel
from decgraph.runtime.request import Request
from decgraph.runtime.session import Result, Session
from lib.models.tiny import TinyFeatures, TinyModel

V = 4
CAUSAL: dict[str, Any] = {
    "block": 3,
    "budget": 4,
    "depth": 2,
    "eta": 0.3,
    "exit": 1,
    "g": 3,
    "gamma": 3,
    "k": 3,
    "length": 5,
    "n": 4,
    "rounds": 2,
    "shape": "[[0], [1], [2], [0, 0], [0, 1], [1, 0], [0, 0, 0]]",
    "w": 4,
    "width": 3,
}
MASKED: dict[str, Any] = {"block": 4, "length": 12, "steps": 6, "tau": 0.4}
"""Values that make a run short, by the name of the parameter and the kind of model; others have their defaults."""

SHELF = stdlib.names()
"""All of stdlib/. `tests/stdlib/test_shelf.py` runs each of them."""

NAMES = (
    "autoregressive",
    "beam_patience",
    "block_verification",
    "dream",
    "dream_confidence",
    "dream_margin",
    "dream_origin",
    "eagle2",
    "eesd",
    "fast_dllm",
    "fast_dllm_factor",
    "fast_dllm_prefix",
    "fast_dllm_uncached",
    "freedave",
    "gs_jacobi",
    "jacobi",
    "kangaroo",
    "llada",
    "lookahead",
    "medusa",
    "medusa_match",
    "pearl",
    "prompt_lookup",
    "prophet",
    "recursive_sd",
    "rsd_s",
    "sequoia",
    "speculative",
    "speculative_jacobi",
    "static_masked",
    "token_recycling",
)
"""The algorithms that suites of many cases run: between them they use nearly every op and every kind of model, tree and canvas.

A suite that ran all of stdlib/ in each of its cases would take hours and find nothing more.
"""


@cache
def module(name: str) -> Module:
    """An algorithm of stdlib/, lowered once."""
    return load_text(stdlib.text(name), f"stdlib/{name}.dec")


def parameters(name: str, **more: Any) -> dict[str, Any]:
    """Small parameters of an algorithm, with `more` over them where it has such a parameter."""
    known = {p.name: p.value.type for p in module(name).entry.params}
    small = MASKED if any(t.elem == "model" and t.of[0] == "masked" for t in known.values()) else CAUSAL
    return {k: v for k, v in {**small, **more}.items() if k in known and (known[k].elem != "automaton" or k in more)}


def tables(seed: int = 1, *, context: int | None = None, zeros: bool = False) -> dict[str, Model]:
    """A table model for every model parameter that stdlib/ has, over V tokens."""
    target = TableModel(V, seed, name="target", heads=3, context=context, zeros=zeros)
    return {
        "target": target,
        "drafter": TableModel(V, seed + 1000, name="drafter", zeros=zeros),
        "head": TableFeatures(target, seed),
        "adapter": TableAdapter(target, seed),
        "tail": TableAdapter(target, seed),
        "model": TableModel(V, seed, kind="masked", name="model", context=context, zeros=zeros),
    }


def layered(kind: str) -> dict[str, Model]:
    """The same of models with layers: "free" ones (hashes) or "tiny" transformers (which have no adapter)."""
    if kind == "free":
        free = FreeModel(1, V, 3, heads=3, name="target")
        adapter = FreeAdapter(free)
        return {
            "target": free,
            "drafter": FreeModel(2, V, 2),
            "head": FreeFeatures(free),
            "adapter": adapter,
            "tail": adapter,
            "model": FreeModel(6, V, 2, visibility="full"),
        }
    tiny = TinyModel(1, V, 2, heads=3, name="target")
    return {
        "target": tiny,
        "drafter": TinyModel(2, V, 1),
        "head": TinyFeatures(tiny),
        "model": TinyModel(6, V, 2, visibility="full"),
    }


def session(
    name: str, models: Mapping[str, Model] | None = None, params: Mapping[str, Any] | None = None
) -> Callable[..., Result]:
    """Models and parameters bound; calling it runs a request (by default prompt (0, 1), limit 12), raising what that raised."""
    entry = module(name).entry
    wanted = [p.name for p in entry.params if p.value.type.elem == "model"]
    have = models if models is not None else tables()
    bound = Session(
        module(name), {n: have[n] for n in wanted}, parameters(name) if params is None else params, machine=machine("reference")
    )

    def ask(**request: Any) -> Result:
        result = bound.run(Request(**{"prompt": (0, 1), "max_tokens": 12, **request}))
        if result.error is not None:
            raise result.error
        return result

    return ask


def run(
    name: str, models: Mapping[str, Model] | None = None, params: Mapping[str, Any] | None = None, **request: Any
) -> Result:
    """Run an algorithm on one request."""
    return session(name, models, params)(**request)


def claim_of(name: str, mode: str) -> Claim:
    """What an algorithm claims to refine in this mode, whatever the values of its parameters."""
    return next(c for c in module(name).entry.claims if c.kind == "refines" and c.mode == mode and not c.setting)


def refining(mode: str, spec: str = r"\w+") -> list[str]:
    """The algorithms that claim to refine another one (spec: those that its name matches) in this mode, whatever the values of
    their parameters. Read from their texts, since lowering them takes a second of every collection."""
    claim = re.compile(rf"^ *refines {spec}\(.*\) in {mode}$", re.MULTILINE)
    return [name for name in NAMES if claim.search(stdlib.text(name))]


FEW = ["dream_margin", "lookahead", "beam_patience", "token_recycling", "eesd"]
"""What tests of every algorithm run in `make test` where running all takes long: between them most ops are used."""
