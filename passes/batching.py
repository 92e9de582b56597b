"""batching: every model call names the group of calls of other sequences with which it shares a forward.

>>> from decgraph.passes.example import after
>>> body = '''
...   %c: node<ctx> = context()
...   %n: int = ctx.get(%c, field = "length")
...   %small: model<causal,V,target,causal> = model.derive(%target, %n, how = "exit")
...   %p: dist<V,shaped> = model.eval(%target, %c)
...   %q: dist<V,shaped> = model.eval(%small, %c)
...   return(%p, %q, has_tree = false)
... '''
>>> print(after("batching", body))
%c: node<ctx> = context()
%n: int = ctx.get(%c, field = "length")
%small: model<causal,V,target,causal> = model.derive(%target, %n, how = "exit")
%p: dist<V,shaped> = model.eval(%target, %c, joint = "target")
%q: dist<V,shaped> = model.eval(%small, %c)
return(%p, %q, has_tree = false)
"""

from __future__ import annotations

from dataclasses import replace

from decgraph.ir.labels import weighed
from decgraph.ir.ops.host import ACROSS
from decgraph.ir.table import lookup
from decgraph.ir.values import Function, Module, Op, Value
from decgraph.ir.walk import map_functions, rebuild
from decgraph.passes.motion import CALLS, HOST
from decgraph.passes.plan import Pass, Plan
from decgraph.passes.reuse import Stores

STEP = "@step"


def run(module: Module, plan: Plan) -> Module:
    """The module with `joint` on every call that sequences may share."""
    return map_functions(module, marked)


def marked(function: Function) -> Function:
    """A function with `joint` on its calls."""
    names = Stores(function)
    suffix = STEP if meets(function) else ""

    def mark(op: Op) -> tuple[tuple[Op, ...], tuple[Value, ...]] | None:
        if op.opcode not in CALLS:
            return None
        name = names.name(op.operands[0])
        group = name + suffix if name else None
        if group == op.attrs.get("joint"):
            return None
        attrs = {k: v for k, v in op.attrs.items() if k != "joint"} | ({"joint": group} if group else {})
        return (replace(op, attrs=attrs),), op.results

    body = rebuild(function.body, mark)
    return function if body is function.body else replace(function, body=body)


def meets(function: Function) -> bool:
    """Whether sequences have to meet before every step: they share state, or choose among all of them."""
    return any(s.scope != "sequence" for s in function.states) or any(op.opcode in ACROSS for op in function.body.walk())


def distribution_only(function: Function) -> str:
    """Why a batch may commit other tokens than the sequences alone; "" where it commits the very same ones."""
    if not meets(function) or any(c.kind == "refines" and c.mode == "tokens" and not c.conditional for c in function.claims):
        return ""  # a claim in tokens holds whatever is drafted
    shared = [f"state {s.name}" for s in function.states if s.scope != "sequence"] or ["what is chosen across the batch"]
    drawn = ", ".join(sorted(weighed(function)))
    if drawn:
        return (
            f"in distribution only: {', '.join(shared)} is shared, and tree {drawn} is verified by a rule that draws against q"
        )
    return f"what is committed depends on the batch: {', '.join(shared)} is shared, and these tokens are not verified"


def notes(before: Module, after: Module) -> list[str]:
    """How every call runs in a batch, what is per batch and what every sequence does alone."""
    function = after.entry
    out: dict[str, None] = {}
    for op in function.body.walk():
        if op.opcode in CALLS:
            group = op.attrs.get("joint")
            model = op.operands[0].name or "a model"
            words = (
                "alone: the model differs between sequences"
                if group is None
                else (f"one forward for all sequences that wait for {str(group).removesuffix(STEP)}")
            )
            out[f"{model} (line {op.loc.line}): {words}"] = None
        elif op.opcode in HOST or lookup(op.opcode).batch == "host":
            out[f"{op.attrs.get('extern', op.opcode)} (line {op.loc.line}): on the host, for each sequence alone"] = None
        elif op.opcode in ACROSS:
            out[f"{op.opcode} (line {op.loc.line}): a barrier, once for the whole batch"] = None
    for s in function.states:
        if s.scope != "sequence":
            out[f"state {s.name} per {s.scope}: written before the next step, in the order of the requests"] = None
    if why := distribution_only(function):
        out[why] = None
    else:
        out["a batch commits the tokens that each sequence commits alone"] = None
    return list(out)


PASS = Pass(
    name="batching",
    reason=(
        "B sequences that wait for one model cost little more than one. A program is written for one sequence and "
        "each sequence runs a driver of its own, so nothing in it has to be widened: sequences meet where they call "
        "a model, whatever iteration each is in, with their own loop counters and lengths, and join and leave freely. "
        "Attribute `joint` names the group: calls of one group that wait are one forward."
    ),
    precondition=(
        "a call has a group only if its model is the same for all sequences: a parameter, or derived by constants "
        "and parameters. A model that is derived by what a sequence has seen is called alone. Where there is state "
        'per session, the sequences also meet before every step (group "target@step"): what they wrote is applied '
        "there in the order of the requests. The tokens are then those that each sequence would have got alone, "
        "but in distribution only where such state meets a rule that draws against q, and where something is chosen across "
        "the batch; the report says so."
    ),
    run=run,
    notes=notes,
)
