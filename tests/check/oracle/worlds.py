"""The oracle's own small worlds: tables of fractions made from a seed, requests, prompts and values of parameters."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import isqrt
from typing import Any

from oracle.values import Stuck

Weights = tuple[Fraction, ...]
Key = tuple[Any, ...]


@dataclass(frozen=True)
class Request:
    """What a caller asks for, as far as the oracle goes."""

    prompt: tuple[int, ...]
    max_tokens: int = 3
    temperature: Fraction = Fraction(1)
    top_k: int | None = None
    bans: tuple[int, ...] = ()
    eos: tuple[int, ...] = ()
    min_length: int = 0
    presence: int = 1  # a penalty as a factor on the weight: tokens that were generated are divided by it
    bias: tuple[tuple[int, int], ...] = ()  # tokens and the factors on their weights


@dataclass
class Model:
    """Rows by context. style: how they are made; up to `corridor` tokens they are point masses; window: how much they see."""

    name: str
    seed: int
    vocab: int
    style: str = "plain"
    corridor: int = 0
    window: int = 0
    rows: dict[Key, Weights] = field(default_factory=dict)

    def row(self, key: Key, length: int | None = None) -> Weights:
        """The unshaped row after a context (or of a cell). `length`: tokens seen, for the corridor."""
        seen = len(key) if length is None else length
        at = (*key[-self.window :], "after", seen < self.corridor) if self.window else key
        if at not in self.rows:
            self.rows[at] = self._made(at, seen)
        return self.rows[at]

    def _made(self, key: Key, seen: int) -> Weights:
        r = random.Random(f"{self.seed} {self.name} {key}")
        if seen < self.corridor:  # the same for every model of the world
            sure = random.Random(f"{self.seed} corridor {key}").randrange(self.vocab)
            return tuple(Fraction(int(v == sure)) for v in range(self.vocab))
        style = r.choice(["plain", "zeros", "peaked", "ties", "tails"]) if self.style == "mixed" else self.style
        w = [r.randint(1, 9) for _ in range(self.vocab)]
        if style == "zeros":
            w[r.randrange(self.vocab)] = 0
        elif style == "peaked":
            w = [1] * self.vocab
            w[r.randrange(self.vocab)] = 1000 - self.vocab + 1
        elif style == "ties":
            w = [r.choice([2, 2, 3]) for _ in range(self.vocab)]
        elif style == "tails":
            w = [x * 2000 for x in w]
            w[r.randrange(self.vocab)] = 1
        elif style == "squares":
            w = [x * x for x in w]
        elif style == "sure" or not any(w):
            w = [0] * self.vocab
            w[r.randrange(self.vocab)] = 1
        return tuple(Fraction(x, sum(w)) for x in w)


@dataclass
class World:
    """Models, parameters, and the requests of a session in order."""

    vocab: int
    models: dict[str, Model]
    params: dict[str, Any]
    requests: tuple[Request, ...]
    seed: int = 0

    def describe(self) -> str:
        """The world in short, with the rows that were read."""
        rows = [
            f"  {m.name}(. | {' '.join(map(str, k))}) = {' '.join(map(str, w))}"
            for m in self.models.values()
            for k, w in list(m.rows.items())[:12]
        ]
        return "\n".join([f"seed {self.seed}, {self.vocab} tokens, parameters {self.params}", *map(str, self.requests), *rows])


def raw_of(row: Weights, path: tuple[int, ...], request: Request) -> Weights:
    """A row under the request's constraints."""
    gone = set(request.bans) | (set(request.eos) if len(path) - len(request.prompt) < request.min_length else set())
    if not gone:
        return row
    left = [w if v not in gone else Fraction(0) for v, w in enumerate(row)]
    if not sum(left):
        raise Stuck("the constraints leave nothing")
    return tuple(w / sum(left) for w in left)


def shaped_of(raw: Weights, path: tuple[int, ...], request: Request) -> Weights:
    """A constrained row under the request's penalty, bias, temperature and top-k."""
    if request.presence != 1 or request.bias:
        new = set(path[len(request.prompt) :])
        bias = dict(request.bias)
        raw = tuple(w * bias.get(v, 1) / (request.presence if v in new else 1) for v, w in enumerate(raw))
        raw = tuple(w / sum(raw) for w in raw)
    if request.temperature == 0:
        best = raw.index(max(raw))
        return tuple(Fraction(int(v == best)) for v in range(len(raw)))
    out = list(raw)
    if request.temperature == 2:
        out = [_root(w / max(raw)) for w in raw]
    elif request.temperature == Fraction(1, 2):
        out = [w * w for w in raw]
    if request.top_k is not None:
        kept = sorted(range(len(out)), key=lambda v: (-out[v], v))[: request.top_k]
        out = [w if v in kept else Fraction(0) for v, w in enumerate(out)]
    total = sum(out)
    return tuple(w / total for w in out)


def _root(w: Fraction) -> Fraction:
    a, b = isqrt(w.numerator), isqrt(w.denominator)
    if a * a != w.numerator or b * b != w.denominator:
        raise Stuck("a root that is not rational")
    return Fraction(a, b)


def ended(tokens: tuple[int, ...], request: Request) -> bool:
    """Whether a text of these new tokens is over."""
    return len(tokens) >= request.max_tokens or any(t in request.eos for t in tokens)


def params_of(program: Any, r: random.Random, deep: bool) -> dict[str, Any]:
    """Values of the parameters: ends, defaults and small ones; `deep`: the large ones as well."""
    out: dict[str, Any] = {}
    for p in program.params:
        if p.model:
            continue
        if p.type in ("int", "float"):
            number: Any = int if p.type == "int" else Fraction
            low, high = number(p.low or "1"), number(p.high or "4")
            near = [low, low + 1, min(high, low + 2)] if p.type == "int" else [low, high, (low + high) / 2]
            far = [high, max(low, high - 1)] if high <= 9 else [min(high, low + 6)]
            default = [number(p.default)] if p.default else []
            value = r.choice(near + default + far if deep else near + default + ([high] if p.type == "float" else []))
            out[p.name] = min(high, max(low, value))
        elif p.type == "prob":
            out[p.name] = r.choice([Fraction(0), Fraction(1), Fraction(1, 2), Fraction(9, 10), Fraction(p.default or "1/4")])
        elif p.type == "topology":
            out[p.name] = r.choice(["2x1", "2", "1x2", "1x1x1"]) if not deep else r.choice(["1x1x1x2", "2x1x1"])
        elif p.type == "bool":
            out[p.name] = r.choice([True, False])
        else:
            raise Stuck(f"no value for {p.name}: {p.type}")
    return out


def world(program: Any, seed: int, masked: bool) -> World:
    """The world of a seed. Kinds take turns: rich and shallow, deep corridors, greedy, and requests of all sorts."""
    r = random.Random(f"world {seed}")
    kind = seed % 8
    vocab = 2 if kind in (0, 4) or masked and kind != 3 and r.random() < 0.7 else r.choice([2, 3, 3, 4])
    deep = kind in (2, 3, 6)
    length = r.randint(1, 6) if kind else r.randint(1, 2)
    prompt = tuple(r.randrange(vocab) for _ in range(length))
    style = {1: "mixed", 4: "zeros", 5: "squares"}.get(kind, r.choice(["plain", "peaked", "ties", "tails", "mixed"]))
    ahead = r.randint(1, 9) if deep else 0
    window = r.choice([0, 0, 1]) if kind != 7 else 1
    models = {}
    for p in program.params:
        if p.model:
            own = "peaked" if kind == 6 and r.random() < 0.5 else style
            models[p.name] = Model(p.name, seed, vocab, own, length + ahead if deep else 0, window)
    request = Request(prompt, max_tokens=r.choice([1, 2, 2, 3]) if not deep else ahead + r.choice([1, 1, 2]))
    if masked:  # a canvas is cut at the limit
        request = replace(
            request, max_tokens=r.choice([1, 2, 2, 3] if vocab == 2 else [1, 2, 2]) if not deep else r.choice([3, 5, 8])
        )
        for m in models.values():
            m.window, m.corridor = 0, length + request.max_tokens - r.choice([1, 2, 2]) if deep else 0
        if kind == 3 or kind == 6 and r.random() < 0.5:
            request = replace(request, temperature=Fraction(0))
            for m in models.values():
                m.corridor = 0
    if kind == 3 and not masked and r.random() < 0.6:  # temperature 0 has one run however long it is
        request = replace(request, temperature=Fraction(0), max_tokens=r.randint(6, 12))
        for m in models.values():
            m.corridor = 0
    if kind == 5:
        request = replace(
            request, temperature=r.choice([Fraction(2), Fraction(1, 2), Fraction(0)]), max_tokens=min(2, request.max_tokens)
        )
    if kind == 1:
        odd = r.randrange(6)
        if odd == 0:
            request = replace(request, top_k=r.choice([1, 2]))
        elif odd == 1:
            request = replace(request, eos=(r.randrange(vocab),))
        elif odd == 2:
            request = replace(request, eos=(r.randrange(vocab),), min_length=r.randint(1, 2))
        elif odd == 3 and not masked:
            request = replace(request, presence=3)
        elif odd == 4:
            request = replace(request, bias=((r.randrange(vocab), 4),))
        elif vocab > 2:
            request = replace(request, bans=(r.randrange(vocab),))
        if r.random() < 0.3:
            request = replace(request, temperature=Fraction(0))
    requests: tuple[Request, ...] = (request,)
    if any(s.scope == "session" for s in program.states) and seed % 2:
        first = (
            replace(request, max_tokens=r.randint(1, 2))
            if r.random() < 0.5
            else replace(request, temperature=Fraction(0), max_tokens=5)
        )
        requests = (first, replace(request, max_tokens=min(2, request.max_tokens)) if not deep else request)
    return World(vocab, models, params_of(program, r, deep), requests, seed)
