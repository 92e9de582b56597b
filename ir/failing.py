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
from decgraph.ir.failing_vectors import VECTORS
from decgraph.ir.values import Op, Region

NEVER = frozenset((
    "const", "unfailing", "if", "for", "break", "verdict", "noise", "topology", "vocab_size", "len", "face", "context",
    "done", "draw.get", "draw.point", "tree.nodes", "tree.new", "tree.size", "level.get", "path.get", "state.read",
    "state.write", "commit", "return", "model.layers", "contains", "tree.continue", "tree.reroot", "tree.walk", "topk",
    "topology.narrow", "tile", "scan", "rank", "ended", "hidden.similarity", "hidden.mean", "memory.only", "memory.join",
    "normalize", "softmax", "ctx.get", "index.ask", "index.learn", "index.new", "canvas.get",
))  # fmt: skip
"""Ops that do not fail, whatever they are given."""
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
        if rule is not None:
            return rule(self, op)
        return "" if op.opcode in NEVER or op.opcode in OUTSIDE else f"`{op.opcode}` may fail"

    def outside_drafts(self, sound: Collection[Op] = ()) -> Iterator[tuple[Op, str]]:
        """The ops that may fail and whose errors end the run, with what they may fail at. sound: those that are known
        not to fail, with what is in them."""
        for state in self.function.states:
            own = Failing(self.function, self.consts)
            own.made |= {v: op for op in state.init.walk() for v in op.results}
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
