"""What a program compares with what: its constants, which of them its parameters meet, and the parameters of its canvases.

The worlds of a check are made for the program: contexts, vocabularies and parameters stand on both sides of every number that
it names (check/plans.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import prod

from decgraph.backends.exact.states import free_values, read_again
from decgraph.ir.types import Type
from decgraph.ir.values import Constant, Function, Module, Op, Value
from decgraph.ir.walk import ops_of

COMPARE = frozenset(
    {"eq", "ne", "lt", "le", "gt", "ge", "minimum", "maximum", "mod", "sub", "clamp", "div", "mul", "weigh", "contrast"}
)
LARGEST = 64  # the most tokens of a context, vocabulary or text generated for a constant
WHOLE: dict[str, Callable[..., int]] = {"add": sum, "mul": prod, "minimum": min, "maximum": max}
MANY = 256  # the highest token id for which a vocabulary is generated
LONGEST = 1024  # the most tokens of a context for a constant at which texts or memories are cut


MEMORIES = frozenset({"model.attention", "model.memory", "model.derive", "model.layers"})
"""Ops of which a table of one layer would show too little."""


FIXED = frozenset(
    {"const", "map", "model.derive", "list", "vocab_size", "as_int", "len", "topology", "topology.narrow"}
    | {"request", "level.get", "tile"}
)
"""Ops whose results depend on parameters and the request alone, where their operands do."""

CUTTING = frozenset({("ctx.get", "last"), ("slice", None), ("tile", "iota"), ("take_first", None)})
"""Ops, with their fields or kinds, that leave out what is longer than a number says."""


@dataclass(frozen=True)
class Facts:
    """What worlds must straddle.

    counts: whole numbers that something is compared with (lengths, depths, steps, counts). tokens: ids that tokens are
    compared with, or are made of; unheld: those that no vocabulary that is generated has. widths: how many tokens a
    truncation keeps, where it is a constant. cuts: where texts, vectors and ranges of positions end, a constant or the least
    value of a parameter; uncut: those that are longer than any context that is generated. met: for each parameter the
    constants that it meets. length, block: the parameters that a canvas and its blocks depend on. carries: whether the loop
    of the algorithm carries values or reads random ones from before it. states, session, batch: of which scopes there are
    states. text, memory: whether the program reads text, keeps memories. layers: whether it reads how many layers a model has.
    ends: whether it asks which drafts end the text. marks: strings that texts are looked at for.
    named: how many tokens it names by their texts.
    """

    counts: tuple[int, ...] = ()
    numbers: tuple[Fraction, ...] = ()
    tokens: tuple[int, ...] = ()
    unheld: tuple[int, ...] = ()
    widths: tuple[int, ...] = ()
    cuts: tuple[int, ...] = ()
    uncut: tuple[int, ...] = ()
    met: tuple[tuple[str, tuple[int | Fraction, ...]], ...] = ()
    length: str = ""
    block: str = ""
    carries: bool = False
    states: bool = False
    session: bool = False
    batch: bool = False
    text: bool = False
    memory: bool = False
    layers: bool = False
    masked: bool = False
    stepwise: bool = False
    ends: bool = False
    marks: tuple[str, ...] = ()
    named: int = 0

    def vocabularies(self) -> list[int]:
        """How many tokens vocabularies have that hold the named ids, or more than a truncation keeps."""
        return sorted({t + 2 for t in self.tokens} | {min(LARGEST, w + 2) for w in self.widths})


def _ops(f: Function, others: tuple[Function, ...]) -> list[Op]:
    """The ops of a function and of what it runs."""
    functions = {g.name: g for g in others}
    out: list[Op] = []
    todo, done = [f], {f.name}
    while todo:
        ops = list(ops_of(todo.pop()))
        callees = dict.fromkeys(op.attrs["callee"] for op in ops if op.opcode == "run")
        todo += [functions[name] for name in callees if name not in done]
        done |= callees.keys()
        out += ops
    return out


def loop_of(f: Function) -> Op | None:
    """The `while not done` of an algorithm, at which it can be left after a step, or None."""
    return next((op for op in f.body.ops if op.opcode == "while" and op.attrs.get("bound") == "done"), None)


def masked(f: Function) -> bool:
    """Whether the first model of an algorithm fills canvases."""
    return first_kind(f) == "masked"


def first_kind(f: Function) -> str:
    """The kind of an algorithm's first model, "" where it has none."""
    return next((str(p.value.type.of[0]) for p in f.params if p.value.type.elem == "model"), "")


def random_from_before(f: Function) -> list[Value]:
    """Values computed before the loop of an algorithm that its steps read, and that depend on chance or the context."""
    loop = loop_of(f)
    if loop is None:
        return []
    inside = [v for r in loop.regions for v in free_values(r.ops, r.yields, r.args)]
    made = {v: op for op in f.body.ops for v in op.results}
    fixed: dict[Value, bool] = {p.value: True for p in f.params}

    def is_fixed(v: Value) -> bool:
        if v not in fixed:
            op = made.get(v)
            known = op is not None and not op.regions and op.opcode in FIXED
            fixed[v] = known and all(is_fixed(o) for o in made[v].operands)
        return fixed[v]

    return [v for v in inside if not is_fixed(v)]


def prompt_lengths(f: Function) -> set[Value]:
    """Values computed before the loop of an algorithm that are the length of the prompt: of the context before anything is
    committed."""
    out: set[Value] = set()
    whole: set[Value] = set()  # whole contexts, not what precedes the last token
    for op in f.body.ops:
        if op.opcode in ("while", "commit") or any(o.opcode == "commit" for r in op.regions for o in r.walk()):
            break
        if op.opcode == "context" and not op.attrs.get("parent"):
            whole |= set(op.results)
        if op.opcode == "ctx.get" and op.attrs["field"] == "length" and op.operands[0] in whole:
            out |= set(op.results)
    return out


def carried_types(f: Function) -> list[Type]:
    """The types of states and of what the loop of an algorithm carries or reads from before it."""
    loop = loop_of(f)
    carried = [v.type for v in loop.regions[1].args[1:]] if loop is not None else []
    return [s.type for s in f.states] + carried + [v.type for v in random_from_before(f)]


@lru_cache(maxsize=256)
def _facts(f: Function, others: tuple[Function, ...]) -> Facts:
    ops = _ops(f, others)
    made = {v: op for op in ops for v in op.results}
    params = {p.value: p.name for p in f.params}

    def slice_of(v: Value, depth: int = 12) -> set[Value]:
        out, todo = set(), [(v, depth)]
        while todo:
            x, d = todo.pop()
            if x in out or d == 0:
                continue
            out.add(x)
            op = made.get(x)
            if op is not None and op.opcode in ("map", "as_int", "len", "reduce", "lookup"):
                todo += [(o, d - 1) for o in op.operands]
        return out

    def of_token(v: Value, depth: int = 12) -> bool:
        """Whether it is a token, a number that was made of one, or the size of the vocabulary."""
        if v.type.elem in ("token", "draw"):
            return True
        op = made.get(v)
        if op is None or depth == 0:
            return False
        return op.opcode == "vocab_size" or (
            op.opcode in ("map", "as_int", "reduce") and any(of_token(o, depth - 1) for o in op.operands)
        )

    least = {p.value: p.low for p in f.params}

    def constant(v: Value) -> Constant:
        op = made.get(v)
        value: Constant = op.attrs["value"] if op is not None and op.opcode == "const" else None
        return value

    def lowest(v: Value, depth: int = 12) -> Constant:
        """A constant, the least value of a parameter, or what sums and products of such are at least; None for others."""
        if v in least:
            return least[v]
        op = made.get(v)
        if op is None or op.opcode != "map" or op.attrs["fn"] not in WHOLE or depth == 0:
            return constant(v)
        least_of = [lowest(o, depth - 1) for o in op.operands]
        parts = [x for x in least_of if isinstance(x, int | Fraction) and not isinstance(x, bool)]
        return None if len(parts) < len(least_of) or min(parts) < 0 else WHOLE[op.attrs["fn"]](parts)

    counts: set[int] = set()
    numbers: set[Fraction] = set()
    tokens: set[int] = set()
    widths: set[int] = set()
    cuts: set[int] = set()
    met: dict[str, set[int | Fraction]] = {}
    marks: dict[str, None] = {}
    texts = {p.value: p.default for p in f.params if p.value.type.elem == "text" and p.has_default}
    listed = [constant(v) for op in ops if op.opcode == "list" for v in op.operands if v.type.elem == "text" and v in made]
    for op in ops:
        if op.opcode == "completes" or (op.opcode == "map" and op.attrs["fn"] in COMPARE):
            for v in op.operands:
                if v.type.elem == "text":  # one that is no value of the program is an element of a list
                    read = [constant(v)] if v in made else [texts[v]] if v in texts else listed
                    marks.update((s, None) for s in read if isinstance(s, str) and s)
        if (op.opcode, op.attrs.get("field", op.attrs.get("kind"))) in CUTTING:
            ends = [x for v in op.operands for s in slice_of(v) for x in [lowest(s)]]
            cuts.update(int(x) for x in ends if isinstance(x, int | Fraction) and not isinstance(x, bool))
        values = [constant(v) for v in op.operands]
        whole = [int(x) for x in values if isinstance(x, int) and not isinstance(x, bool)]
        parts = [x for x in values if isinstance(x, Fraction)]
        if op.opcode == "map" and op.attrs["fn"] in COMPARE:
            numbers.update(parts)
            if any(of_token(v) for v in op.operands):
                tokens.update(whole)
            else:
                counts.update(whole)
            sliced = [slice_of(v) for v in op.operands]
            for i, here in enumerate(sliced):
                for name in (params[v] for v in here if v in params):
                    for j, there in enumerate(sliced):
                        if i != j:
                            found = {constant(v) for v in there} - {None}
                            met.setdefault(name, set()).update(
                                x for x in found if isinstance(x, int | Fraction) and not isinstance(x, bool)
                            )
        elif op.opcode in ("draw.point", "contains", "lookup", "tile", "list", "index.learn"):
            tokens.update(whole)
        elif op.opcode in ("renorm", "topk", "select.top", "draw.many", "take_first", "slice"):
            widths.update(whole)
            numbers.update(parts)
        elif op.opcode in ("for", "while"):
            counts.update(whole)
    canvas = next((op for op in ops if op.opcode == "canvas.new"), None)
    blocks = next((op for op in ops if op.opcode == "positions" and op.attrs.get("kind") == "blocks"), None)

    def name_in(v: Value) -> str:
        return next((params[x] for x in slice_of(v) if x in params), "")

    loop = loop_of(f)
    opcodes = {op.opcode for op in ops}
    return Facts(
        counts=tuple(sorted(n for n in counts if 0 <= n <= 4 * LARGEST)),
        numbers=tuple(sorted(numbers)),
        tokens=tuple(sorted(n for n in tokens if 0 <= n <= MANY)),
        unheld=tuple(sorted(n for n in tokens if n > MANY)),
        widths=tuple(sorted(n for n in widths if n > 0)),
        cuts=tuple(sorted(n for n in cuts if 0 < n <= LONGEST)),
        uncut=tuple(sorted(n for n in cuts if n > LONGEST)),
        met=tuple((k, tuple(sorted(v))) for k, v in sorted(met.items())),
        length=name_in(canvas.operands[0]) if canvas is not None and canvas.operands else "",
        block=name_in(blocks.operands[1]) if blocks is not None and len(blocks.operands) > 1 else "",
        carries=loop is not None and (any(read_again(f, loop)) or bool(random_from_before(f))),
        states=bool(f.states),
        session=any(s.scope != "sequence" for s in f.states),
        batch=bool(opcodes & {"batch.top", "batch.fold"}) or any(s.scope == "batch" for s in f.states),
        text=bool(opcodes & {"text_of", "completes"}),
        layers="model.layers" in opcodes,
        memory=any(o.startswith("memory") or o in MEMORIES for o in opcodes)
        or any("given" in op.attrs.get("with", ()) for op in ops)
        or bool(f.policies),
        masked=masked(f),
        stepwise=loop is not None,
        ends="ended" in opcodes,
        marks=tuple(marks),
        named=len({op.attrs["text"] for op in ops if op.opcode == "token"}),
    )


def facts(module: Module, f: Function) -> Facts:
    """What the worlds of a function must straddle."""
    return _facts(f, tuple(module.functions.values()))


def neighbours(values: Iterable[int], low: int, high: int) -> list[int]:
    """Whole numbers next to the given ones, inside a range."""
    return sorted({n for v in values for n in (v - 1, v, v + 1) if low <= n <= high})


__all__ = ["Facts", "LARGEST", "carried_types", "facts", "loop_of", "neighbours", "prompt_lengths", "random_from_before"]
