"""Random whole programs, each named by a number: its text, small models, values of parameters, functions, and requests.

`PYTHONPATH=.:tests python -m lib.random_programs.programs 17` prints program 17. causal.py and masked.py write the
bodies.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from decgraph.check.table_models import Style, StyledFree
from decgraph.ir.values import Function
from decgraph.runtime.models.free import FreeAdapter, FreeFeatures
from decgraph.runtime.models.table import TableAdapter, TableFeatures, TableModel
from decgraph.runtime.request import Request
from lib.random_programs.causal import Causal
from lib.random_programs.masked import POLICIES, Masked
from lib.random_programs.rules import automaton
from lib.random_programs.text import V, Writer


@dataclass(frozen=True)
class Whole:
    """A program with what it runs on. shared: requests see each other's state; policy: one that is set from outside, or "";
    kinds: the constructs that it has; free: models with layers, whose memories can be told apart, for tables."""

    seed: int
    text: str
    values: dict[str, Any]
    externs: dict[str, Callable[..., Any]]
    requests: tuple[Request, ...]
    kinds: frozenset[str]
    shared: bool
    policy: str
    free: bool
    context: int | None

    def models(self, function: Function) -> dict[str, Any]:
        """A small model for every model parameter."""
        out: dict[str, Any] = {}
        for i, p in enumerate(p for p in function.params if p.value.type.elem == "model"):
            out[p.name] = self._model(p.name, str(p.value.type.of[0]), self.seed * 31 + i, out.get("target"))
        return out

    def _model(self, name: str, kind: str, seed: int, target: Any) -> Any:
        if kind == "features":
            return FreeFeatures(target, seed) if self.free else TableFeatures(target, seed)
        if kind == "layers":
            return FreeAdapter(target, seed) if self.free else TableAdapter(target, seed)
        heads = 3 if name == "target" else 0
        if not self.free:
            return TableModel(
                V,
                seed,
                kind=kind,
                name=name,
                window=2 + seed % 2,
                heads=heads,
                context=self.context,  # type: ignore[arg-type]
                zeros=seed % 5 == 0,
            )
        return StyledFree(
            seed,
            V,
            3,
            Style(),
            visibility="causal" if kind == "causal" else "full",
            kind=kind,
            heads=heads,
            name=name,
            context=self.context,
        )


def program(seed: int) -> Whole:
    """Program number `seed`."""
    rng = random.Random(f"whole {seed}")
    w = Writer(rng)
    masked = rng.random() < 0.4
    policy = ""
    if masked:
        piece = Masked(w)
        piece.body()
        if not piece.policy and "at = b" in "\n".join(w.lines) and rng.random() < 0.3:
            policy = rng.choice(("dual", "prefix", "none") if rng.random() < 0.5 else ("dual", "prefix"))
            w.has("policy from outside")
    else:
        causal_body(w)
    free = (
        bool({k for k in w.kinds if k.startswith(("derived", "memory", "memories", "policy", "speculative", "features"))})
        and rng.random() < 0.75
    )
    requests = tuple(request(rng, n, masked) for n in range(rng.choice((2, 3, 3, 4))))
    longest = max(len(r.prompt) + (w.values.get("length", 6) if masked else r.max_tokens) for r in requests)
    context = longest + rng.randint(-4, 3) if rng.random() < 0.3 else None
    if context is not None:
        context = max(context, max(len(r.prompt) for r in requests) + 1)
        w.has("small context")
    return Whole(seed, w.text("fuzzed"), w.values, w.externs, requests, frozenset(w.kinds), w.shared, policy, free, context)


def causal_body(w: Writer) -> None:
    """A loop of an algorithm with a causal target."""
    rng = w.rng
    w.model("target: causal with heads" if rng.random() < 0.1 else "target: causal")
    for stem, type_, default, kind, value in (
        ("k", "int in 0..9", "2", "int", rng.randint(0, 9)),
        ("tau", "prob", "0.4", "prob", rng.choice([0.0, 0.3, 0.7, 1.0])),
        ("alpha", "float in 0..4", "1.0", "prob", rng.choice([0.5, 1.0, 2.5])),
        ("fast", "bool", "yes", "bool", rng.random() < 0.5),
        ("first_", "token", "", "token", rng.randrange(V)),
        ("window", "token[3]", "", "tokens", tuple(rng.randrange(V) for _ in range(3))),
        ("mark", "text", '"b"', "", "c"),
    ):
        if rng.random() < 0.15:
            w.param(stem, type_, default, kind, value)
    piece = Causal(w)
    if rng.random() < 0.3:
        w.names["int"].append(w.state("turns", "int", w.one("0", "1")))
    if rng.random() < 0.15:
        w.has("a token before the loop")
        w.put("commit argmax(target(ctx))")
    if rng.random() < 0.06:
        search(w)
        return
    with w.suite("while not done:"):
        if w.names["int"] and w.names["int"][-1].startswith("turns") and rng.random() < 0.8:
            w.put(f"{w.names['int'][-1]} += 1")
        piece.step()


def search(w: Writer) -> None:
    """A beam search."""
    w.has("beams")
    k = w.param("width", "int in 1..4", "2", "int", w.rng.randint(1, 3))
    w.put("draft t:")
    w.put(
        f"    repeat {w.rng.randint(2, 5)} while len(t.frontier) > 0:",
        "        s = t.logprob[t.frontier] + log(target(t.frontier).raw)",
        f"        rows, tokens, scores = best(s, {k})",
        "        break if len(rows) == 0",
        "        grow point(tokens) at t.frontier[rows] with logprob = scores",
        f"        t.frontier = t.new{w.one('', ' where not ended(t.new)')}",
    )
    w.put(
        f"out = top(t.leaves, {k}, by = t.logprob / t.depth)"
        if w.chance(0.5)
        else f"out = top(t.drafted, {k}, by = [t.depth, t.logprob])",
        "commit out[0]",
        "return out",
    )


def request(rng: random.Random, number: int, masked: bool) -> Request:
    """A request of some sort."""
    more: dict[str, Any] = {}
    if rng.random() < 0.35:
        more["temperature"] = rng.choice((0, 0, 0.5, 1.3))
    if rng.random() < 0.35:
        more["eos"] = frozenset(rng.sample(range(V), rng.choice((1, 1, 2))))
        if rng.random() < 0.3:
            more["min_length"] = rng.randint(1, 4)
    if rng.random() < 0.3:
        more.update(
            rng.choice(
                (
                    {"top_k": 2},
                    {"top_k": 1},
                    {"top_p": 0.8},
                    {"min_p": 0.1},
                    {"top_k": 3, "top_p": 0.9},
                    {"repetition_penalty": 1.4},
                    {"presence_penalty": 0.5},
                    {"frequency_penalty": 0.3, "presence_penalty": -0.2},
                    {"bias": {1: 1.5, 3: -2.0}},
                    {"bans": frozenset({rng.randrange(V)})},
                    {"stop": ("ab", "c")},
                    {"allow": automaton(rng.randrange(99))},
                    {"until": (lambda path: len(path) > 6 and path[-1] == 2,)},
                )
            )
        )
    prompt = tuple(rng.randrange(V) for _ in range(rng.choice((1, 2, 3, 4, 6))))
    return Request(prompt=prompt, max_tokens=rng.choice((1, 3, 5, 6, 8)), seed=rng.randrange(2**40), request_id=number, **more)


if __name__ == "__main__":
    import sys

    for n in sys.argv[1:]:
        made = program(int(n))
        print(
            f"# program {n}: {made.values}, context {made.context}, {'free' if made.free else 'tables'}, policy {made.policy!r}"
        )
        print(made.text)
        for r in made.requests:
            print("#", r)

__all__ = ["POLICIES", "Whole", "program"]
