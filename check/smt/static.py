"""Which algorithms one step speaks for: those whose step depends on the context only through what models say of it."""

from __future__ import annotations

from decgraph.ir.values import Function

BEFORE = {"const", "while"}
CONTEXT = {"model.eval", "model.evals", "tree.new"}
COUNTER = {"noise"}


def why_not(f: Function, mode: str) -> str:
    """Why one step of an algorithm does not speak for all of them; nothing if it does. mode: of its claim."""
    if f.states:
        return f"{f.name} has a state: its steps differ"
    loops = [op for op in f.body.ops if op.opcode == "while" and op.attrs.get("bound") == "done"]
    if len(loops) != 1:
        return f"{f.name} is not one loop `while not done`"
    loop = loops[0]
    if loop.results:
        return f"{f.name} carries values round its loop"
    early = next((op.opcode for op in f.body.ops if op.opcode not in BEFORE), None)
    if early is not None:
        return f"{f.name} does something outside of its loop ({early})"
    other = next((p.value.type for p in f.params if p.value.type.elem == "model" and str(p.value.type.of[0]) != "causal"), None)
    if other is not None:
        return f"{f.name} takes a model that is not causal ({other})"
    step = loop.regions[1]
    contexts = {op.results[0] for op in step.walk() if op.opcode == "context"}
    for op in step.walk():
        if op.opcode == "noise" and op.attrs.get("kind") == "output":
            if mode == "distribution":  # a later step may read it again, and the two are not independent then
                return f"{f.name} reads the noise that the specification reads: claim `in tokens`, which is stronger"
        elif op.opcode == "noise" and step.args[0] not in op.operands:
            return f"{f.name} reads the same noise in every step (line {op.loc.line})"
        if op.opcode not in CONTEXT and any(v in contexts for v in op.operands):
            return f"{f.name} reads the context itself, not only through models ({op.opcode}, line {op.loc.line})"
        if op.opcode not in COUNTER and step.args and step.args[0] in op.operands:
            return f"{f.name} knows which step it is ({op.opcode}, line {op.loc.line})"
        if op.opcode in ("request", "text_of", "extern", "state.read", "ctx.get") and op.attrs.get("field") != "greedy":
            return f"{f.name} depends on more than distributions ({op.opcode}, line {op.loc.line})"
    return ""


__all__ = ["why_not"]
