"""Pass: removes neutral operations, computes equal expressions once, and folds constants.

Why: a module's code is written for all its configurations. A captured Llama layer adds nothing to eps, multiplies
cosines by an attention factor of 1.0, and unsqueezes the same cosines again in every layer.

Precondition: none; caches are written by nodes that are left alone. Folding reads weights as they are now, so weights
changed afterwards need a new capture; only small results are folded.

    before   x = cos * 1.0; a = x.unsqueeze(1); b = x.unsqueeze(1); w = 1.0 + weight
    after    a = cos.unsqueeze(1)                                   w = folded
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from decgraph.runtime.models.capture.ops import POINTWISE, run
from decgraph.runtime.models.capture.program import EFFECTS, CapturedGraph, dtype_of, is_op, shape_of

_FOLDED_BYTES = 1 << 20  # larger results are left to be computed


def clean(program: CapturedGraph) -> None:
    """Removes neutral operations, folds constants and shares equal computations."""
    neutral(program)
    fold(program)
    share(program)
    program.sweep()


def neutral(program: CapturedGraph) -> None:
    """Removes nodes that return their operand."""
    for node in list(program.graph.nodes):
        operand = _operand(node)
        if operand is not None:
            for user in node.users if is_op(node, "contiguous") else ():
                if is_op(user, "view"):  # of something that lies in another order now, perhaps
                    user.target = user.meta["op"] = "reshape"
            program.replace(node, operand)


def _operand(node: fx.Node) -> fx.Node | None:
    """The operand, if this node returns it unchanged."""
    op, args = node.meta.get("op"), node.args
    first = args[0] if args and isinstance(args[0], fx.Node) else None
    if op == "mul" and len(args) == 2:
        found = next((a for a, b in (args, args[::-1]) if _is(b, 1)), None)
    elif op == "add" and len(args) == 2:
        found = next((a for a, b in (args, args[::-1]) if _is(b, 0)), None)
    elif op == "div" and len(args) == 2:
        found = first if _is(args[1], 1) else None
    elif op in ("view", "reshape", "expand"):
        found = first
    elif op in ("to", "float", "type_as"):
        # A captured module is on one device, so this is no move between devices.
        found = first
    elif op == "contiguous":
        return first if all(is_op(u, "linear", "reshape", "view", "matmul", *POINTWISE) for u in node.users) else None
    else:
        return None
    same = found is not None and shape_of(found) == shape_of(node) is not None and dtype_of(found) == dtype_of(node)
    return found if same and None not in shape_of(node) else None  # type: ignore[operator]


def _is(value: Any, number: int) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == number


def fold(program: CapturedGraph) -> None:
    """Computes nodes of constants alone."""
    for node in list(program.graph.nodes):
        if (
            node.op not in ("call_function", "call_method")
            or node.meta.get("op") in EFFECTS
            or not isinstance(node.meta.get("shape"), tuple)
        ):
            continue
        inputs = node.all_input_nodes
        if any(n.op != "get_attr" for n in inputs) or any(not isinstance(s, int) for s in node.meta["shape"]):
            continue
        args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: program.tensors[n.target])
        with torch.no_grad():
            made = run(node, args, kwargs)
        if made.numel() * made.element_size() > _FOLDED_BYTES and inputs:
            continue
        program.replace(node, program.constant(f"folded_{len(program.tensors)}_{node.name}", made))


def share(program: CapturedGraph) -> None:
    """One node for equal calls of equal arguments."""
    seen: dict[Any, fx.Node] = {}
    for node in list(program.graph.nodes):
        if node.op not in ("call_function", "call_method") or node.meta.get("op") in EFFECTS:
            continue
        key = (node.op, node.target, _frozen(node.args), _frozen(node.kwargs))
        if key in seen:
            program.replace(node, seen[key])
        else:
            seen[key] = node


def _frozen(value: Any) -> Any:
    if isinstance(value, slice):
        return ("slice", _frozen(value.start), _frozen(value.stop), _frozen(value.step))
    if isinstance(value, tuple | list):
        return tuple(_frozen(v) for v in value)
    if isinstance(value, dict):
        return tuple((k, _frozen(v)) for k, v in value.items())
    return (type(value), value)  # 1, 1.0 and True are different arguments
