"""Where a step begins: after tokens that were committed, with carried values of any kind, in the second request of a session.

A proof by induction needs the step from every state that it can be in. `Arbitrary` gives states, values that the loop carries
and values made before it any value of their type: small numbers and the program's constants, any token, any table, index or
tree, and for draws any distribution. A draw that is carried is drawn from that distribution when it is first read, which is
exact only while nothing has read it: `SEEN` says whether a step leaves draws that were read, and then only runs from a real
start count.

A memory is no value that can be anything: a step relies on what it holds. It is what a model keeps of the text, and that every
step leaves such a memory is decided with the claim: `OTHER` says where one does not, and then only real starts count, too.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import groupby
from typing import Literal

import numpy as np

from decgraph.backends.exact.run import ExactMachine
from decgraph.backends.exact.states import carried_on, read_again
from decgraph.backends.indexes import Lru
from decgraph.backends.reference.values import ReferenceMemory, SuffixSearch
from decgraph.check.constants import LARGEST, Facts, prompt_lengths, random_from_before
from decgraph.ir.data.canvas import Canvas
from decgraph.ir.data.dist import Dist, Draw, Draws, Path, Row, box, box0
from decgraph.ir.data.tree import Node, Tree
from decgraph.ir.machine import Datum
from decgraph.ir.ops.draws import NoiseKey
from decgraph.ir.types import Type
from decgraph.ir.values import Op
from decgraph.runtime.models.free import small_weights
from decgraph.runtime.models.interface import Model
from decgraph.runtime.noise import Key

SEEN = "draws that were read are carried on"
OTHER = "a memory is carried on that is not a model's memory of the text"


class NoValue(Exception):
    """A type of which no arbitrary value is generated."""


@dataclass(frozen=True)
class Start:
    """Where a step begins. committed: new tokens that are there already. arbitrary: the seed of carried values, or None for the
    program's own. session: how many requests the session has finished before. before: the prompt of the request before, whose
    seed and id are the same (None: there is none). beside: whether there is another sequence, and where it may come between: at
    `steps` and folds, or between `lines`; order: in which order they move (None: in every one)."""

    committed: tuple[int, ...] = ()
    arbitrary: int | None = None
    session: int = 0
    before: tuple[int, ...] | None = None
    beside: Literal["", "steps", "lines"] = ""
    order: tuple[int, ...] | None = None

    def __str__(self) -> str:
        words = []
        if self.committed:
            words.append(f"after {list(self.committed)} were committed")
        if self.session:
            words.append(f"in request {self.session + 1} of a session")
        if self.before is not None:
            words.append(f"after a request of the session with the same seed and id, and the prompt {list(self.before)}")
        if self.order:
            move = "reads or writes of what they share" if self.beside == "lines" else "steps, and where they meet"
            turns = [f"{('this one', 'the other')[who]} {len([*moves])}" for who, moves in groupby(self.order)]
            turns[-1] = f"then {('this one', 'the other')[self.order[-1]]} goes on"
            words.append(f"beside another sequence of the same prompt, by turns ({move}): {', '.join(turns)}")
        return ", ".join(words)


class Arbitrary:
    """Carried values from a seed. `given` lists what was set, for a counterexample. flags: gets SEEN where a step leaves
    draws that were read."""

    def __init__(self, seed: int, facts: Facts, flags: set[str]) -> None:
        self.seed, self.facts, self.flags = seed, facts, flags
        self.values: dict[str, Datum] = {}

    def states(self, m: ExactMachine) -> None:
        """Set every state of a machine's function."""
        for s in m.function.states:
            m.write_state(s.name, self.value(m, s.name, s.type, m.read_state(s.name)))

    def carried(self, m: ExactMachine, op: Op, values: Sequence[Datum]) -> list[Datum]:
        """The values with which the loop is entered; what was computed before it is replaced in the machine."""
        lengths = prompt_lengths(m.function)
        for n, v in enumerate(random_from_before(m.function)):
            if v in m.env and v in lengths:  # the context of the start has committed tokens besides
                m.env[v] = len(m.request.prompt)
            elif v in m.env and v.type.elem == "memory":  # never changed: it describes the prompt alone
                memory = m.env[v]
                if not isinstance(memory, ReferenceMemory) or kept_of(m, memory, m.request.prompt) is None:
                    raise NoValue(f"{v.name or f'value {n} computed before the loop'} ({v.type})")
            elif v in m.env:
                m.env[v] = self.value(m, v.name or f"value {n} computed before the loop", v.type, m.env[v])
        args, used = op.regions[1].args[1:], read_again(m.function, op)
        return [
            self.value(m, a.name or f"carried {n}", a.type, old) if read else old
            for n, (a, old, read) in enumerate(zip(args, values, used, strict=True))
        ]

    def check_carried(self, m: ExactMachine, op: Op, values: Sequence[Datum]) -> None:
        """What a step carries on."""
        carried = [*carried_on(m.function, op, values), *m.sequence_states.values(), *m.shared.values()]
        if left_seen(carried):
            self.flags.add(SEEN)
        memories = [v for v in carried if isinstance(v, ReferenceMemory)]
        if any(kept_of(m, v, m.committed_context(), (1,)) is None for v in memories):
            self.flags.add(OTHER)

    def value(self, m: ExactMachine, name: str, t: Type, old: Datum) -> Datum:
        """An arbitrary value in the place of `old`. Raises NoValue."""
        r = random.Random(f"{self.seed} {name}")
        if t.elem == "int" and not t.dims and not _shape(old):  # every number that matters, and two of them independently
            options = wholes(self.facts)
            step = 1 + self.seed // len(options)
            out: Datum = options[(self.seed + step * len(self.values)) % len(options)]
        elif isinstance(old, ReferenceMemory):
            out = self.memory(m, f"{name} ({t})", old)
        else:
            out = _value(m, name, t, old, r, self.facts)
        self.values[name] = out
        return out

    def memory(self, m: ExactMachine, name: str, old: ReferenceMemory) -> ReferenceMemory:
        """What the model of a memory keeps of the text so far: at a text's start as the program has it, later all but the last
        token. Raises NoValue for a memory that is not of the text."""
        text = m.committed_context()
        found = kept_of(m, old, text) or kept_of(m, old, m.request.prompt)
        if found is None:
            raise NoValue(name)
        model, last = found
        n = len(text) - (last if len(text) == len(m.request.prompt) else 1)
        return ReferenceMemory(model.memory(text[:n], None, None), 0)


def kept_of(
    m: ExactMachine, memory: ReferenceMemory, text: tuple[int, ...], without: Sequence[int] | None = None
) -> tuple[Model, int] | None:
    """(the model of which it is the memory, how many of the text's last tokens it lacks, one of `without`, or any number); None
    where it is another memory."""
    if memory.attention_logits is not None or memory.which is not None or memory.base:
        return None
    for model in m.models.values():
        for last in range(len(text) + 1) if without is None else without:
            if model.family == memory.memory.family and model.memory(text[: len(text) - last], None, None) == memory.memory:
                return model, last
    return None


def wholes(facts: Facts) -> list[int]:
    """Small numbers, and those next to the constants of the program."""
    near = {n + d for n in facts.counts if n <= LARGEST for d in (-1, 0, 1) if n + d >= 0}
    return sorted({0, 1, 2, 3} | near)


def part(r: random.Random, facts: Facts) -> Fraction:
    """A probability, or a number next to a constant of the program."""
    near = [n + d for n in facts.numbers for d in (Fraction(-1, 100), Fraction(0), Fraction(1, 100))]
    return r.choice(
        [Fraction(0), Fraction(1, 4), Fraction(1, 2), Fraction(3, 4), Fraction(1), r.choice(near or [Fraction(1, 3)])]
    )


def _shape(value: object) -> tuple[int, ...]:
    """The shape of an array or a list; () for anything else."""
    shape = getattr(value, "shape", None)
    return np.asarray(value).shape if shape is None else tuple(shape)


def _tokens(m: ExactMachine, t: Type) -> int:
    """How many tokens the vocabulary of a type has."""
    return next((v.vocab.size for v in m.models.values() if t.is_token and v.vocab.name == t.vocab), m.vocab_size)


def _value(m: ExactMachine, name: str, t: Type, old: Datum, r: random.Random, facts: Facts) -> Datum:
    size = _tokens(m, t)
    if isinstance(old, SuffixSearch):
        texts = [tuple(r.randrange(size) for _ in range(r.randint(1, 5))) for _ in range(r.randint(0, 2))]
        new = SuffixSearch(old.depth, old.room)
        for text in (tuple(m.committed_context()), *texts):  # the text of a request comes first, and goes on growing
            new = new.learn(text)
        return new if texts else old
    if isinstance(old, Lru):
        width = max((len(e) for rows in old.rows.values() for e in rows), default=2)
        rows = {
            v: tuple(
                {
                    tuple(r.randrange(size) for _ in range(width))
                    for _ in range(r.choice((r.randint(0, old.capacity), 2 * old.capacity)))
                }
            )[: old.capacity]
            for v in range(size)
            if r.random() < 0.7
        }
        return Lru(old.capacity, rows)
    if isinstance(old, Tree) or (t.elem == "tree" and old is None and str(t.of[1]) in ("token", "any")):  # None: empty
        return _tree(m, name, old or Tree.start(m.context(), None, m.num.zero), r)
    if t.elem == "draw":
        return _draws(m, name, t, old, r)
    if t.elem == "dist":
        shape = old.shape if isinstance(old, Dist) else ()
        found = np.empty(shape, dtype=object)
        for n, i in enumerate(np.ndindex(shape)):
            found[i] = _any_row(m, f"{r.random()} {n}")
        return Dist(found) if shape else Dist(box0(found[()]))
    if t.elem in ("int", "bool", "real", "prob", "token"):
        make: Callable[[], bool | int | Fraction] = {
            "int": lambda: r.choice(wholes(facts)),
            "bool": lambda: r.random() < 0.5,
            "token": lambda: r.randrange(size),
        }.get(t.elem, lambda: part(r, facts))
        shape = _shape(old)
        if not shape:
            if t.dims and all(d.kind == "k" for d in t.dims):
                return old  # a list that is empty at first and filled as the text grows
            return make()
        out = np.empty(shape, dtype=object if t.elem in ("real", "prob") else bool if t.elem == "bool" else np.int64)
        for i in np.ndindex(shape):
            out[i] = make()
        return out
    if t.elem == "list" and isinstance(old, np.ndarray) and old.dtype.kind == "i":  # a list of rows that stack
        return np.array([r.randrange(size) for _ in range(old.size)], dtype=np.int64).reshape(old.shape)
    if isinstance(old, list) and old:  # other rows of the same shape
        element = t.of[0] if t.elem == "list" and t.of and isinstance(t.of[0], Type) else Type("any")
        return [_value(m, f"{name} {n}", element, x, r, facts) for n, x in enumerate(old)]
    if t.elem == "text":
        return r.choice(["", "a", "ab", "b a"])
    if t.elem == "set":
        return frozenset(v for v in range(size) if r.random() < 0.5)
    if t.elem == "astate" and not _shape(old):
        states = [g.states for g in m.params.values() if hasattr(g, "states")]
        return r.randrange(states[0]) if states else old
    if t.elem in ("model", "topology", "index", "automaton", "none"):
        return old
    if t.elem == "node" and isinstance(old, tuple):
        return m.context()
    if isinstance(old, NoiseKey):
        if old.kind == "race":  # as a later step finds it: a draw from some distribution has read it
            weights = small_weights(f"noise {r.random()}", m.vocab_size)
            token = r.choice([v for v, w in enumerate(weights) if w > 0])
            m.read_before.append((old.site, tuple(weights), token))
        return old
    raise NoValue(f"{name} ({t})")


def _any_row(m: ExactMachine, key: str) -> Row:
    vector = m.vector(small_weights(key, m.vocab_size))
    return Row(lambda face: vector, label="any distribution")


def _fresh(m: ExactMachine, name: str, key: str, n: int) -> Draw:
    """A draw from any distribution that nothing has read yet."""
    row = _any_row(m, key)
    place = Key(m.request.seed, m.request.request_id, f"carried:{name}", (), (n,))
    return Draw(None, row, "shaped", resolve=partial(m.late_token, None, place, row, "shaped", f"{name}, carried, number {n}"))


def _draws(m: ExactMachine, name: str, t: Type, old: Datum, r: random.Random) -> Draws:
    key = f"{name} {r.random()}"
    shape = np.shape(old.items) if isinstance(old, Draws) else ()
    if isinstance(old, Draws) and shape == ():
        return Draws(box0(_fresh(m, name, key, 0)))
    most = min(3, t.dims[0].bound or 3) if t.dims else 1
    count = shape[0] if shape and shape[0] else r.randint(0, most)
    return Draws(box([_fresh(m, name, f"{key} {i}", i) for i in range(count)]))


def _tree(m: ExactMachine, name: str, old: Tree, r: random.Random) -> Tree:
    if isinstance(old.base, Canvas):
        raise NoValue(f"{name} (a tree of canvases)")
    start = Tree.start(m.context(), old.capacity, m.num.zero)
    nodes = list(start.nodes)
    key = f"{name} {r.random()}"
    for i in range(r.randint(0, min(3, (old.capacity or 4) - 1))):
        parent = i if r.random() < 0.7 else r.randrange(len(nodes))
        nodes.append(Node(_fresh(m, name, f"{key} {i}", i), parent, nodes[parent].depth + 1, m.num.zero))
    return Tree(
        start.base,
        tuple(nodes),
        new=tuple(range(1, len(nodes))) or (0,),
        frontier=tuple(Tree.leaves_of(nodes)),
        capacity=old.capacity,
        zero=m.num.zero,
    )


def left_seen(value: object) -> bool:
    """Whether a draw of a carried value, or of several, has been read: its distribution no longer describes it."""
    if isinstance(value, Draw):
        return value.known and not value.point
    if isinstance(value, Draws):
        return any(left_seen(x) for x in value.items.ravel() if x is not None)
    if isinstance(value, Tree):
        return any(left_seen(n.edge) for n in value.nodes)
    return isinstance(value, list | tuple) and not isinstance(value, Path) and any(left_seen(x) for x in value)


__all__ = ["OTHER", "SEEN", "Arbitrary", "NoValue", "Start", "left_seen"]
