"""Refusals before a run: of operations that no model supports, and of request fields that the program never reads, since the
answer would look as if they had been applied.

`q` of a call is shaped by the request (processors, penalties, bias, temperature, top-k, top-p, min-p); `q.raw` and `q.logits`
are not, and `adjust(scores, at = n)` goes as far as the bias. A search that adds up `log(q.raw)` decodes the same text whatever
the penalty, one that adds up `adjust(log(q.raw), at = n)` the same text whatever the truncation. Constraints (bans, grammars,
the minimum length) hold in every view.
"""

from __future__ import annotations

from decgraph.errors import DecError
from decgraph.ir.table import lookup
from decgraph.ir.values import Function, Module
from decgraph.ir.walk import functions_of
from decgraph.runtime.request import Request

ADJUSTING = ("processors", "bias", "presence_penalty", "frequency_penalty", "repetition_penalty")
TRUNCATING = ("temperature", "top_k", "top_p", "min_p")
"""Fields of a request that shape distributions."""


def adjusts(function: Function) -> bool:
    """Whether a function reads unnormalised scores after the request's processors, penalties and bias."""
    return any(op.opcode == "adjust" for op in function.body.walk())


def unread(function: Function) -> tuple[str, ...]:
    """The fields of a request that have no effect in a function. A distribution that a loop carries, or that a sub-run may use,
    counts as read."""
    ops = list(function.body.walk())
    if any(op.opcode in ("warp", "run") for op in ops):
        return ()
    given = {
        v for op in ops if op.opcode in ("model.eval", "model.evals", "model.read") for v in op.results if v.type.elem == "dist"
    }
    if not given:
        return ()
    for op in ops:  # a selection of distributions is read where the distributions are
        if op.opcode == "gather" and op.operands[0] in given:
            given.add(op.result)
    reading = [op for op in ops if op.opcode != "segment"]  # a segment lists what the ops inside it read
    taken = {
        v
        for op in reading
        if not (op.opcode == "face" and op.attrs["face"] in ("raw", "logits") or op.opcode == "gather")
        for v in op.operands
    }
    yielded = {v for op in ops for region in op.regions for v in region.yields}
    if given & (taken | yielded):
        return ()
    return TRUNCATING if adjusts(function) else (*ADJUSTING, *TRUNCATING)


def refuse_unread(function: Function, request: Request, fields: tuple[str, ...]) -> None:
    """Raises DecError where a request sets one of the `fields` that a function does not read. Of temperatures 0 and 1 are none:
    what draws from unshaped distributions draws at 1, and a search has no chance in it."""
    plain = Request(prompt=request.prompt, max_tokens=request.max_tokens)
    asked = [name for name in fields if getattr(request, name) != getattr(plain, name)]
    if request.temperature in (0, 1):
        asked = [name for name in asked if name != "temperature"]
    if asked:
        read = "scores before truncation" if adjusts(function) else "unshaped distributions (.raw, .logits)"
        raise DecError(
            f"{function.name} reads {read}: {', '.join(asked)} would change nothing",
            hint="leave it out, or take an algorithm that draws from shaped distributions, such as autoregressive",
        )


def refuse_unavailable(module: Module) -> None:
    """Raises DecError for an operation in a module's functions that would fail in the middle of a run."""
    for f in functions_of(module):
        for op in f.body.walk():
            reason = lookup(op.opcode).unavailable
            if reason:
                where = f"{op.loc}: " if op.loc.line else ""
                raise DecError(f"{where}{op.opcode}: {reason}", hint="models give distributions and memories")
