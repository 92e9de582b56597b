"""reuse: every exact model call continues a store of what its model has computed in this sequence.

>>> from decgraph.passes.example import after
>>> body = '''
...   %c: node<ctx> = context()
...   %two: int = const(value = 2, type = !int)
...   %small: model<causal,V,target,causal> = model.derive(%target, %two, how = "exit")
...   %m: memory<target> = model.memory(%target, %c)
...   %p: dist<V,shaped> = model.eval(%target, %c)
...   %q: dist<V,shaped> = model.eval(%small, %c)
...   %r: dist<V,shaped> = model.eval(%small, %c, %m, with = ("given",))
...   return(%p, %q, %r, has_tree = false)
... '''
>>> print(after("reuse", body))
%c: node<ctx> = context()
%two: int = const(value = 2, type = !int)
%small: model<causal,V,target,causal> = model.derive(%target, %two, how = "exit")
%m: memory<target> = model.memory(%target, %c, reuse = "target")
%p: dist<V,shaped> = model.eval(%target, %c, reuse = "target")
%q: dist<V,shaped> = model.eval(%small, %c, reuse = "target.exit(2)")
%r: dist<V,shaped> = model.eval(%small, %c, %m, with = ("given",))
return(%p, %q, %r, has_tree = false)
"""

from __future__ import annotations

from dataclasses import replace

from decgraph.ir.ops.common import is_text
from decgraph.ir.values import Function, Module, Op, Value
from decgraph.ir.walk import definitions, map_functions, rebuild
from decgraph.passes.declared import Pass
from decgraph.passes.kept import kept
from decgraph.passes.motion import CALLS
from decgraph.passes.plan import Plan
from decgraph.passes.tree_fusion import parts_of


def run(module: Module, plan: Plan) -> Module:
    """The module with `reuse` on every call that may have it."""
    return map_functions(module, marked)


def marked(function: Function) -> Function:
    """A function with `reuse` on its exact calls."""
    stores = Stores(function)

    def mark(op: Op) -> tuple[tuple[Op, ...], tuple[Value, ...]] | None:
        name = stores.of(op)
        if op.opcode not in CALLS or name == op.attrs.get("reuse"):
            return None
        attrs = {k: v for k, v in op.attrs.items() if k != "reuse"} | ({"reuse": name} if name else {})
        return (replace(op, attrs=attrs),), op.results

    body = rebuild(function.body, mark)
    return function if body is function.body else replace(function, body=body)


def second(op: Op) -> bool:
    """Whether a call reads other tokens than the request's."""
    return op.opcode == "model.read" or op.opcode == "model.memory" and is_text(op.operands[1].type)


class Stores:
    """Which store each call of a function continues."""

    def __init__(self, function: Function) -> None:
        self.made = definitions(function.body)
        self.params = {p.value: p for p in function.params}

    def of(self, op: Op) -> str:
        """The store's name; "" for a call that computes from scratch."""
        if op.opcode not in CALLS or not self.exact(op) or second(op):  # a second context has its own cache
            return ""
        return self.name(op.operands[0]) or ""

    def name(self, model: Value) -> str | None:
        """What a model is called, the same in every iteration; None for one that is derived by something that changes."""
        if model in self.params:
            return self.params[model].name
        op = self.made.get(model)
        if op is None or op.opcode != "model.derive":
            return None
        base = self.name(op.operands[0])
        words = [self.word(v) for v in op.operands[1:]]
        if base is None or None in words:
            return None
        names = [f"{n} = " for n in op.attrs.get("named", ())] or [""] * len(words)
        return f"{base}.{op.attrs['how']}({', '.join(f'{n}{w}' for n, w in zip(names, words, strict=True))})"

    def word(self, v: Value) -> str | None:
        """An argument of a derived model that is the same in every iteration: a model, a constant or a parameter."""
        if v.type.elem == "model":
            return self.name(v)
        if v in self.params:
            return self.params[v].name
        op = self.made.get(v)
        if op is not None and op.opcode == "list":
            items = [self.word(item) for item in op.operands]
            return None if None in items else f"[{', '.join(w for w in items if w is not None)}]"
        return str(op.attrs["value"]) if op is not None and op.opcode == "const" else None

    def exact(self, op: Op) -> bool:
        """Whether a call's value is a function of its place alone."""
        kind = str(op.operands[0].type.of[0])
        if op.opcode == "model.memory" and kind != "causal":
            return False
        at = 1
        names = (tuple(op.attrs.get("with", ())),) if op.opcode == "model.memory" else parts_of(op)
        for extra in names:
            given = op.operands[at + 1 : at + 1 + len(extra)]
            for name, value in zip(extra, given, strict=True):
                if name == "given" and not (kind == "features" and self.own(value)):
                    return False
            at += 1 + len(extra)
        return True

    def own(self, memory: Value) -> bool:
        """Whether a memory is all that a model computed of a context, from scratch."""
        op = self.made.get(memory)
        return (
            op is not None
            and op.opcode == "model.memory"
            and op.operands[0] in self.params
            and "given" not in op.attrs.get("with", ())
            and op.operands[1].type.elem == "node"
            and op.operands[1].type.of[0] == "ctx"
        )


def notes(before: Module, after: Module) -> list[str]:
    """What every call computes of what it is a function of, and why the rest is cached."""
    out = []
    for k in kept(after.entry):
        out.append(str(k))
        out += [f"  {reason}" for reason in k.reasons]
    return out


PASS = Pass(
    name="reuse",
    reason=(
        "a call says what it is a function of, the whole context and tree. Most of that was computed by earlier "
        "calls: the committed prefix, the accepted path of the last verification, the drafter's own tokens. With "
        "attribute `reuse` naming a store, what is cached there is read and only the rest is computed, "
        "which changes nothing but the time."
    ),
    precondition=(
        "the call is exact: no memory is given that its author chose (a head that is given its target's own memory "
        "is exact; masked calls on memories are left alone), and the model is the same in every iteration (a parameter, "
        "or derived by constants). One store for each model, derived model and sequence. A slot is cached for its "
        "token, its position and all slots before it, so a rejected path is never taken for the accepted one."
    ),
    run=run,
    notes=notes,
)
