"""vocabulary: ops on the same rows of distributions are outlined into a segment of kind "vocabulary".

>>> from decgraph.passes.example import after
>>> body = '''
...   %c: node<ctx> = context()
...   %q: dist<V,shaped> = model.eval(%target, %c)
...   %raw: dist<V,raw> = face(%q, face = "raw")
...   %noise: noise = noise(kind = "output", site = "output")
...   %x: draw<V> = draw(%q, %noise)
...   %sure: prob = lookup(%raw, %x)
...   return(%x, %sure, has_tree = false)
... '''
>>> print(after("vocabulary", body))
%c: node<ctx> = context()
%q: dist<V,shaped> = model.eval(%target, %c)
%noise: noise = noise(kind = "output", site = "output")
%x: draw<V>, %sure: prob = segment(%q, %noise, kind = "vocabulary", name = "sure") {
  %raw: dist<V,raw> = face(%q, face = "raw")
  %x.1: draw<V> = draw(%q, %noise)
  %sure.1: prob = lookup(%raw, %x.1)
  yield %x.1, %sure.1
}
return(%x, %sure, has_tree = false)
"""

from __future__ import annotations

from decgraph.ir.table import lookup
from decgraph.ir.types import Type
from decgraph.ir.values import Module, Op, Value
from decgraph.passes.outline import Outliner
from decgraph.passes.plan import Pass, Plan


def over_vocabulary(t: Type) -> bool:
    """Whether a value holds rows over a vocabulary."""
    return t.elem in ("dist", "scores") or bool(t.dims) and t.dims[-1].kind == "vocab"


def on_rows(op: Op) -> bool:
    """Whether an op reads or makes rows over a vocabulary."""
    return lookup(op.opcode).vocabulary and any(over_vocabulary(v.type) for v in (*op.operands, *op.results))


ON_NUMBERS = frozenset({"map", "bernoulli"})
"""Ops on one number per row that go along with the rows that they came from."""


def on_numbers(op: Op) -> bool:
    """Whether an op works on numbers alone, none of them a row over the vocabulary."""
    return op.opcode in ON_NUMBERS and op.result.type.elem in ("real", "prob", "bool") and not on_rows(op)


def wanted(op: Op) -> bool:
    """Whether an op belongs into a segment: it works on rows of distributions or on numbers computed from them."""
    return on_rows(op) or on_numbers(op)


def joins(op: Op, used: set[Value], defined: set[Value]) -> bool:
    """Rows go with ops on the same rows, numbers with their operands."""
    if any(v in defined for v in op.operands):
        return True
    return on_rows(op) and any(v in used and over_vocabulary(v.type) for v in op.operands)


def counts(op: Op) -> bool:
    """What makes a segment worth it: two ops that go over a row."""
    return on_rows(op)


OUTLINER = Outliner("vocabulary", wanted, joins, lambda op: op.opcode == "const", counts)


def run(module: Module, plan: Plan) -> Module:
    """The module with chains of ops on rows in segments."""
    return OUTLINER.module(module)


def notes(before: Module, after: Module) -> list[str]:
    """The segments, and how many ops each holds."""
    return said(after, "vocabulary")


def said(module: Module, kind: str) -> list[str]:
    """Every segment of a kind: its name and its ops."""
    out = []
    for op in module.entry.body.walk() if module.main in module.functions else ():
        if op.opcode == "segment" and op.attrs["kind"] == kind:
            codes: dict[str, int] = {}
            for inner in op.regions[0].walk():
                if inner.opcode not in ("const", "segment"):
                    codes[inner.opcode] = codes.get(inner.opcode, 0) + 1
            out.append(f"{op.attrs['name']}: " + ", ".join(f"{n} {c}" if n > 1 else c for c, n in codes.items()))
    return out


PASS = Pass(
    name="vocabulary",
    reason=(
        "rows over a large vocabulary dominate the cost: one read of a row is enough for a softmax, an entropy, the "
        "top tokens and a draw; op by op it is read for each of them. A backend compiles a segment to one kernel, "
        "or at least to one function."
    ),
    precondition=(
        "the ops stand in one straight run (no model call, effect or branch between them), and what lies between "
        "them does not depend on them or they do not depend on it. A segment means the same as its region."
    ),
    run=run,
    notes=notes,
)
