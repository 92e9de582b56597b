"""The text of a random program while it is written: lines, names of every type that are in reach, and what its head declares.

Pieces (causal.py, masked.py) write into it; programs.py puts it together.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

V = 6
"""Tokens of the small models that programs run on."""


class Writer:
    """One program being written. `rng` decides everything; `kinds` are the constructs that it has."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.lines: list[str] = []
        self.depth = 1
        self.models: list[str] = []  # parameters, as they are written
        self.params: dict[str, str] = {}  # name to "type = default"
        self.values: dict[str, Any] = {}  # of parameters, where they are not the default
        self.states: list[str] = []
        self.items: list[str] = []  # rules, helpers, policies, externs before the algorithm
        self.made: list[str] = []  # derived models and claims
        self.externs: dict[str, Callable[..., Any]] = {}
        self.names: dict[str, list[str]] = defaultdict(list)  # by type
        self.kinds: set[str] = set()
        self.count = 0
        self.shared = False  # state that outlives a request, or a choice across a batch

    # -- choosing
    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    def one(self, *of: str) -> str:
        return self.rng.choice(of)

    def maker(self, *of: tuple[float, Callable[[], Any]]) -> Any:
        """What one of several makers makes, by weight."""
        makers = [m for w, m in of if w > 0]
        return self.rng.choices(makers, [w for w, _ in of if w > 0])[0]()

    # -- writing
    def put(self, *lines: str) -> None:
        self.lines += ["    " * self.depth + line for line in lines]

    def name(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def has(self, kind: str) -> None:
        self.kinds.add(kind)

    def let(self, type_: str, value: str, stem: str = "") -> str:
        """A new name for a value."""
        name = self.name(stem or {"int": "n", "prob": "r", "bool": "c", "token": "z", "law": "p", "tokens": "zs"}[type_])
        self.put(f"{name} = {value}")
        self.names[type_].append(name)
        return name

    @contextmanager
    def suite(self, head: str) -> Iterator[None]:
        """What is written inside is the body of `head`; names made there are gone after it."""
        self.put(head)
        before = {k: list(v) for k, v in self.names.items()}
        self.depth += 1
        mark = len(self.lines)
        yield
        if len(self.lines) == mark:
            self.put(f"{self.name('idle')} = 0")
        self.depth -= 1
        self.names = defaultdict(list, before)

    # -- declaring
    def param(self, stem: str, type_: str, default: str, kind: str = "", value: Any = None) -> str:
        """A parameter, once by its stem."""
        if stem not in self.params:
            self.params[stem] = f"{type_}{' = ' + default if default else ''}"
            self.has("param " + type_.split()[0])
            if kind:
                self.names[kind].append(stem)
            if value is not None:
                self.values[stem] = value
        return stem

    def model(self, text: str) -> str:
        """A model parameter, `drafter: causal`."""
        if text not in self.models:
            self.models.append(text)
        return text.split(":")[0]

    def state(self, stem: str, type_: str, start: str, *, session: float = 0.3) -> str:
        """A state with a scope; `start` may be empty."""
        name = self.name(stem)
        scope = "session" if self.chance(session) else "sequence"
        self.shared = self.shared or scope != "sequence"
        self.states.append(f"state {name}: {type_} per {scope}{' = ' + start if start else ''}")
        self.has(f"state {type_.split('[')[0].split('(')[0]} per {scope}")
        return name

    def extern(self, name: str, text: str, function: Callable[..., Any]) -> str:
        if name not in self.externs:
            self.externs[name] = function
            self.items.append(f"extern {text}")
            self.has("extern")
        return name

    def item(self, text: str) -> None:
        """A rule, policy or helper before the algorithm."""
        if text not in self.items:
            self.items.append(text)

    def text(self, name: str) -> str:
        """The whole program."""
        params = [*self.models, *(f"{n}: {t}" for n, t in self.params.items())]
        if any("=" in p for p in params):  # those with a default stand last
            params.sort(key=lambda p: "=" in p)
        body = [*("    " + line for line in [*self.made, *self.states]), "", *self.lines]
        head = "".join(item.rstrip() + "\n\n" for item in self.items)
        return f"{head}algorithm {name}({', '.join(params)}):\n" + "\n".join(body) + "\n"


class Values:
    """Expressions of numbers, conditions and tokens over what is in reach."""

    def __init__(self, w: Writer) -> None:
        self.w = w

    def pick(self, kind: str, *more: str) -> str:
        """A name of this kind that is in reach, or one of `more`."""
        return self.w.one(*self.w.names[kind], *more)

    def int_(self, depth: int = 2) -> str:
        """A whole number, small: sums, products of two small ones, remainders."""
        w = self.w
        if depth == 0 or w.chance(0.3):
            return self.pick("int", "1", "2", "3", "ctx.length", "room", "len(prompt)", "vocab.size")
        a, b = self.int_(depth - 1), self.int_(depth - 1)
        form = w.one(
            "({a} + {b})",
            "({a} - {b})",
            "min({a}, {b})",
            "max({a}, {b})",
            "({a} % (1 + abs({b})))",
            "abs({a} - {b})",
            "({a} if {c} else {b})",
            "int({r} * 4)",
            "({a} % 7) * ({b} % 5)",
            "floor_({a}, {b})",
            "count([{c}, {c}])",
        )
        if "floor_" in form:
            form = "int(floor({r} * 3))"
        return form.format(
            a=a, b=b, c=self.bool_(depth - 1) if "{c}" in form else "", r=self.prob(depth - 1) if "{r}" in form else ""
        )

    def small(self, high: int) -> str:
        """A whole number of 1 to `high`."""
        return self.w.one(
            str(self.w.rng.randint(1, high)),
            f"clamp({self.int_(1)}, 1, {high})",
            f"(1 + {self.int_(1)} % {high})" if self.w.chance(0.3) else str(high),
            f"min({high}, 1 + abs({self.int_(1)}))",
        )

    def prob(self, depth: int = 2) -> str:
        """A number, mostly between 0 and 1."""
        w = self.w
        if depth == 0 or w.chance(0.3):
            return self.pick("prob", "0.25", "0.55", "0.8")
        law = self.pick("law", "uniform(vocab)")
        a, b = self.prob(depth - 1), self.prob(depth - 1)
        form = w.one(
            "max({p}.raw)",
            "{p}.raw[{x}]",
            "exp(-entropy({p}))",
            "{a} * {b}",
            "min({a}, {b})",
            "max({a}, {b})",
            "clamp({a} + {b}, 0, 1)",
            "mean([{a}, {b}])",
            "margin({p}.raw)",
            "{p}[{x}]",
            "1 - {a}",
            "{a} ^ 2",
            "relu({a} - {b})",
            "sqrt(abs({a}))",
            "sum({p}.raw ^ 2)",
            "kl({p}, uniform(vocab))",
            "abs({a} - {b})",
        )
        if law.startswith("uniform"):
            form = form.replace(".raw", "")
        return form.format(p=law, x=self.token(0), a=a, b=b)

    def bool_(self, depth: int = 2) -> str:
        w = self.w
        if depth == 0 or w.chance(0.25):
            return self.pick("bool", f"{self.prob(0)} > {self.prob(0)}", f"{self.int_(0)} > 2", "greedy", "ctx.length % 2 == 0")
        a, b = self.bool_(depth - 1), self.bool_(depth - 1)
        return w.one(
            "({a} and {b})",
            "({a} or {b})",
            "(not {a})",
            "({r} >= {s})",
            "({r} < {s})",
            "({n} > {m})",
            "({n} % 2 == {m} % 2)",
            "({x} == {y})",
            "({x} in ctx.last(2))",
            "bernoulli({r})",
        ).format(
            a=a,
            b=b,
            r=self.prob(depth - 1),
            s=self.prob(depth - 1),
            n=self.int_(depth - 1),
            m=self.int_(depth - 1),
            x=self.token(1),
            y=self.token(1),
        )

    def token(self, depth: int = 1) -> str:
        w = self.w
        laws = w.names["law"]
        if depth == 0 or w.chance(0.4):
            return self.pick("token", "ctx.token", "pad", "prompt[0]", "ctx.last(2)[0]")
        return w.one(
            f"argmax({self.pick('law', 'uniform(vocab)')})",
            "last(ctx.last(3))",
            "last(prompt)",
            f"({self.token(0)} if {self.bool_(0)} else {self.token(0)})",
            f"prompt[{self.int_(0)} % len(prompt)]" if not laws else f"argmax({w.one(*laws)}.raw)",
        )

    def tokens(self) -> str:
        """A short vector of tokens."""
        w = self.w
        return w.one(
            *w.names["tokens"],
            f"ctx.last({w.rng.randint(1, 3)})",
            f"[{self.token()}, {self.token()}]",
            f"[{self.token()}]",
            f"cycle(prompt, {w.rng.randint(1, 3)})",
            f"first(prompt, {self.small(3)})",
            f"tile({self.token()}, {self.small(3)})",
            "prompt[:2]",
            *([f"topk({w.one(*w.names['law'])}.raw, 2).token"] if w.names["law"] else []),
        )


def forms(of: Sequence[str], **parts: str) -> list[str]:
    """Forms with their parts put in."""
    return [f.format(**parts) for f in of]


__all__ = ["V", "Values", "Writer", "forms"]
