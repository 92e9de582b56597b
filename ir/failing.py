"""What an op may fail at when it runs, as far as a program's text shows: `Failing(function).why(op)` is "" where it cannot.

Safe is only what is shown to be: two vectors have one length where their lengths are one expression, an index is in range where
it counts or names what it indexes (a node of a tree in a column of the same tree, a token in a row over its vocabulary, the
counter of a loop over a vector in that vector), a vector has an element where a tree's root or a known number gives it one.
An op without a rule may fail.

Left out are errors that are not a program's: of models and of functions of the caller's, of requests that leave no token, of
values that a session refuses before it begins (a layer that a model does not have), and of what exceeds the limits of
every program (ir/ops/limits.py) or the memory of the machine. docs/checking.md says so.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from decgraph.ir.expressions import Expressions
from decgraph.ir.failing_trees import TREES
from decgraph.ir.failing_vectors import VECTORS, endless
from decgraph.ir.values import Op, Region

SAFE: dict[str, str] = {
    "const context done noise vocab_size token topology model.layers state.read": "it reads what is there",
    "if for break verdict return unfailing": "its regions are asked one by one, its ends like all counts",
    "state.write": "what fits is asked by `within`",
    "note": "whoever hears it takes any number",
    "len face level.get path.get canvas.get tree.size": "a field of what there is",
    "tree.nodes tree.new tree.continue tree.reroot": "a node that is not there has no children, and no way to it",
    "index.ask index.learn index.new": "an index that knows nothing says so",
    "contains rank scan softmax normalize tile topk topology.narrow ended": "defined for every length and number, NaN too",
    "memory.only memory.join hidden.mean slice take_first": "what is not there is left out",
}  # fmt: skip
"""Ops that do not fail where their counts are finite, and why. tests/ir/test_believed.py tries each by its own meaning."""
NEVER = frozenset(name for names in SAFE for name in names.split())
OUTSIDE = frozenset(
    {
        *("model.eval", "model.evals", "model.memory", "model.states", "model.attention", "head.read", "head.score"),
        *("extern", "run", "batch.fold", "batch.top", "retokenize", "completes", "text_of"),
    }
)
"""Ops whose errors are a model's, a tokenizer's, the caller's or another sequence's."""


class Failing(Expressions):
    """Where the ops of a function may fail."""

    def why(self, op: Op) -> str:
        """What an op may fail at, a clause; "" where it cannot."""
        rule = RULES.get(op.opcode)
        if (why := endless(self, op)) or rule is not None:
            return why or (rule(self, op) if rule is not None else "")
        return "" if op.opcode in NEVER or op.opcode in OUTSIDE else f"`{op.opcode}` may fail"

    def outside_drafts(self, sound: Collection[Op] = ()) -> Iterator[tuple[Op, str]]:
        """The ops that may fail and whose errors end the run, with what they may fail at. sound: those that are known
        not to fail, with what is in them."""
        for state in self.function.states:
            own = Failing(self.function, self.consts)
            own.producers |= {v: op for op in state.init.walk() for v in op.results}
            yield from own._in(state.init, sound)
        yield from self._in(self.function.body, sound)

    def _in(self, region: Region, sound: Collection[Op], drafts: bool = False) -> Iterator[tuple[Op, str]]:
        for op in region.ops:
            if op in sound:
                continue
            if (not drafts or op.opcode in OUTSIDE) and (why := self.why(op)):
                yield op, why
            if op.opcode == "for" and self.range(op.operands[1])[1] <= self.range(op.operands[0])[0]:
                continue
            inside = drafts or "draft" in op.attrs and op.opcode == "if"
            decided = self.consts.get(op.operands[0]) if op.opcode == "if" else None
            regions = op.regions if not isinstance(decided, bool) else (op.regions[0 if decided else 1],)
            for inner in regions:
                yield from self._in(inner, sound, inside)


RULES: dict[str, Callable[[Expressions, Op], str]] = {**VECTORS, **TREES}
"""By opcode: what an op may fail at."""
