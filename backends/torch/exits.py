"""How a region of the IR ends in Python: it falls through, continues or breaks a loop, or returns.

The IR has one way out of every region: a loop that stops early carries a flag, and a rule that accepts inside a loop
carries the child and whether there is one through everything after it. Where a branch sets such flags to constants, and
all that follows it is decided by them, the driver leaves at once: `break`, or `return accept(x)`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from decgraph.backends.torch.texts import negated
from decgraph.ir.values import Op, Region, Value

CONSTANTS = ("True", "False", "None")
COUNTED = frozenset(
    {"tree.grow", "tree.keep", "tree.set", "canvas.put", "within", "run", "model.eval", "model.evals", "model.read"}
)
"""Ops that are not skipped though nothing uses their results: they are counted, or may raise."""
Known = Mapping[Value, Value | str]
"""Values that are fixed on the way to an exit: the text of a constant, or another value."""


class Mistaken(Exception):
    """A loop was written under a wrong assumption about its constants; it is written again."""


def constant(text: str) -> str | None:
    """The text itself if it is a constant of CONSTANTS, else None."""
    return text if text in CONSTANTS else None


class Exit:
    """The exit of a region. `close` writes its end; `at_once` says whether a path through it that has reached op number n with
    some known values can leave there without another line, and `leave` then writes that."""

    def close(self, w: Any, texts: Sequence[str]) -> None:
        """Write nothing: the code after the region comes next."""

    def at_once(self, w: Any, region: Region, n: int, known: Known) -> bool:
        return False

    def leave(self, w: Any, region: Region, n: int, known: Known) -> None:
        raise NotImplementedError


FALLS = Exit()


class RuleExit(Exit):
    """The end of a verification rule: it returns a verdict."""

    def close(self, w: Any, texts: Sequence[str]) -> None:
        w.line(f"return {verdict(w, texts)}")

    def at_once(self, w: Any, region: Region, n: int, known: Known) -> bool:
        return found(w, region, n, known) is not None

    def leave(self, w: Any, region: Region, n: int, known: Known) -> None:
        self.close(w, found(w, region, n, known) or ())


class LoopExit(Exit):
    """The end of a loop's body. results: the names of what the loop carries; constants: those that do not change while it runs;
    around, at: the region and index of the loop; after: the exit that follows the loop directly, where there is one."""

    def __init__(
        self,
        op: Op,
        results: Sequence[str],
        constants: Sequence[str | None] = (),
        around: Region | None = None,
        at: int = 0,
        after: RuleExit | None = None,
    ) -> None:
        self.op, self.results, self.around, self.at, self.after = op, results, around, at, after
        self.constants = list(constants) or [None] * len(results)
        self.stops = bool(op.attrs.get("stops"))

    def close(self, w: Any, texts: Sequence[str]) -> None:
        stop, last = (texts[0], texts[1:]) if self.stops else ("False", texts)
        if self.after is not None and stop != "False":
            w.line(f"if {stop}:")
            w.depth += 1
            self.stop(w, dict(zip(self.op.results, last, strict=True)), last)
            w.depth -= 1
        for known, text in zip(self.constants, last, strict=True):
            if known is not None and text != known:
                raise Mistaken
        changed = {name for name, text in zip(self.results, last, strict=True) if name != text}
        if self.after is None and stop not in CONSTANTS and changed & w.words(stop):
            w.line(f"stop = {stop}")
            stop = "stop"
        w.assign(list(self.results), list(last))
        if self.after is None and stop == "True":
            w.line("break")
        elif self.after is None and stop != "False":
            w.line(f"if {stop}:")
            w.depth += 1
            w.line("break")
            w.depth -= 1

    def at_once(self, w: Any, region: Region, n: int, known: Known) -> bool:
        texts = found(w, region, n, known) if self.stops else None
        if texts is None or texts[0] != "True":
            return False
        if self.after is None:
            return True
        return self.around is not None and self.after.at_once(w, self.around, self.at + 1, self.bound(region, known, texts))

    def leave(self, w: Any, region: Region, n: int, known: Known) -> None:
        texts = found(w, region, n, known) or ()
        self.stop(w, self.bound(region, known, texts), texts[1:])

    def bound(self, region: Region, known: Known, texts: Sequence[str]) -> Known:
        return {**known, **dict(zip(self.op.results, texts[1:], strict=True))}

    def stop(self, w: Any, known: Known, last: Sequence[str]) -> None:
        """Leave the loop."""
        if self.after is None:
            w.assign(list(self.results), list(last))
            w.line("break")
        elif self.around is not None and self.after.at_once(w, self.around, self.at + 1, known):
            self.after.leave(w, self.around, self.at + 1, known)
        else:
            raise Mistaken


def found(w: Any, region: Region, n: int, known: Known) -> list[str] | None:
    """The texts of a region's yields on a path that has reached op number n: None where more lines would be needed."""
    if any(op.opcode in COUNTED or w.effects(op) for op in region.ops[n:] if op.opcode != "if"):
        return None
    texts = [text_of(w, y, region.ops[n:], known) for y in region.yields]
    return None if any(t is None for t in texts) else [t for t in texts if t is not None]


def text_of(w: Any, v: Value, later: Sequence[Op], known: Known) -> str | None:
    """The text of a value that is known, was written before, or follows from such values; later: the ops not written yet."""
    v = w.same.get(v, v)
    if v in known:
        other = known[v]
        return other if isinstance(other, str) else text_of(w, other, later, {k: x for k, x in known.items() if k is not v})
    op = next((o for o in later if v in o.results), None)
    if op is None:
        made = w.producers.get(v)
        if made is not None and made.opcode == "const" and v not in w.env:
            w.op_const(made)
        text: str | None = w.env.get(v)
        return text
    if op.opcode == "const":
        w.op_const(op)
        return constant(w.env[v])
    if op.opcode == "map" and op.attrs["fn"] in ("not", "and", "or"):
        texts = [text_of(w, x, later, known) for x in op.operands]
        return folded(str(op.attrs["fn"]), [t or "" for t in texts])
    if op.opcode == "if":
        condition = text_of(w, op.operands[0], later, known)
        if condition not in ("True", "False"):
            return None
        chosen = op.regions[condition == "False"]
        if any(o.opcode in COUNTED or w.effects(o) for o in chosen.ops):
            return None
        return text_of(w, chosen.yields[op.results.index(v)], (*later, *chosen.ops), known)
    return None


def folded(fn: str, texts: Sequence[str]) -> str | None:
    """A condition folded to "True" or "False" by its operands, or None."""
    if fn == "not":
        return negated(texts[0]) if constant(texts[0]) else None
    decides, other = ("False", "True") if fn == "and" else ("True", "False")
    if decides in texts:
        return decides
    return other if all(t == other for t in texts) else None


def verdict(w: Any, texts: Sequence[str]) -> str:
    """The return value of a rule, (accepts, child, emits, token), as `accept`, `emit` or `reject` where that is known."""
    accepts, child, emits, token = texts
    if (accepts, emits) == ("True", "False"):
        return f"{w.support('accept')}({child})"
    if (accepts, emits) == ("True", "True"):
        return f"{w.support('accept')}({child}, emit={token})"
    if (accepts, emits) == ("False", "True"):
        return f"{w.support('emit')}({token})"
    return f"{w.support('reject')}()" if (accepts, emits) == ("False", "False") else ", ".join(texts)
