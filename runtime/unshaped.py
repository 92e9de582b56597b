"""Programs that read their models' unshaped distributions alone: what a request asks about probabilities changes nothing there.

`q` of a call is shaped by the request (temperature, top-k, top-p, min-p, penalties, bias); `q.raw` and `q.logits` are not. A
beam search that adds up `log(q.raw)` decodes the same text whatever the penalty. Constraints (bans, grammars) hold in either.
"""

from __future__ import annotations

from decgraph.ir.values import Function
from decgraph.runtime.request import Request

SHAPING = ("top_k", "top_p", "min_p", "bias", "presence_penalty", "frequency_penalty", "repetition_penalty", "processors")
"""Fields of a request that shape distributions; of temperature, whose default depends on the door, nothing is said."""


def reads_unshaped(function: Function) -> bool:
    """Whether no op of a function reads a distribution that a request shapes. What other functions do with one (`run`), and
    what is handed through loops, counts as reading."""
    ops = list(function.body.walk())
    if any(op.opcode in ("warp", "run") for op in ops):
        return False
    given = {v for op in ops if op.opcode == "model.eval" for v in op.results if v.type.elem == "dist"}
    reading = [op for op in ops if op.opcode != "segment"]  # a segment lists what the ops inside it read
    taken = {
        v for op in reading if not (op.opcode == "face" and op.attrs.get("face") in ("raw", "logits")) for v in op.operands
    }
    yielded = {v for op in ops for region in op.regions for v in region.yields}
    return bool(given) and not given & (taken | yielded)


def without_effect(function: Function, request: Request) -> str:
    """A note on what a request asks for and no distribution of the program shows; "" where there is nothing to say."""
    plain = Request(prompt=request.prompt, limit=request.limit)
    asked = [name for name in SHAPING if getattr(request, name) != getattr(plain, name)]
    if not asked or not reads_unshaped(function):
        return ""
    change = "changes" if len(asked) == 1 else "change"
    return f"{function.name} reads unshaped distributions (.raw, .logits): {', '.join(asked)} {change} nothing"
