"""Several calls of one model as one. Made by the pass tree_fusion only: authors write calls, not forwards."""

from __future__ import annotations

from typing import Any

from decgraph.ir.labels import Abs, Checker
from decgraph.ir.opdef import op
from decgraph.ir.ops.common import need
from decgraph.ir.ops.models import ModelEval
from decgraph.ir.values import Op


def split(parts: Any, operands: Any) -> list[tuple[Any, dict[str, Any]]]:
    """(place, further operands by name) of each part, from the operands that follow the model."""
    out, at = [], 0
    for names in parts:
        out.append((operands[at], dict(zip(names, operands[at + 1 : at + 1 + len(names)]))))
        at += 1 + len(names)
    return out


@op("model.evals")
class ModelEvals:
    """Several `model.eval`s of one model in one call: operands the model, then for each part its place and further operands.
    Attribute parts: for each part the names of its further operands, as in `with`. One result for each part, the same as if it
    were evaluated alone; contexts that parts share are computed once, and it counts as one call. Attributes reuse and joint
    as in model.eval."""

    def type(types: Any, attrs: Any, regions: Any) -> Any:
        wanted = sum(1 + len(names) for names in attrs["parts"])
        need(
            len(types) == 1 + wanted,
            f"{len(attrs['parts'])} parts take {wanted} operands after the model, got {len(types) - 1}",
        )
        out = []
        for place, extra in split(attrs["parts"], types[1:]):
            out += ModelEval.type((types[0], place, *extra.values()), {"with": tuple(extra)}, ())
        return tuple(out)

    def meaning(m: Any, op: Any, model: Any, *rest: Any) -> Any:
        return tuple(m.evaluate_parts(op, model, split(op.attrs["parts"], rest)))

    @staticmethod
    def label(c: Checker, op: Op) -> list[Abs]:
        out: list[Abs] = []
        at = 1
        for names in op.attrs["parts"]:
            attrs, end = {"with": names}, at + 1 + len(names)
            part = Op("model.eval", (op.operands[0], *op.operands[at:end]), attrs, (), (op.results[len(out)],), op.loc)
            out += ModelEval.label(c, part)
            at = end
        return out

    attrs = ("parts", "reuse?", "joint?")
    batch = "ragged"
    samples = (
        ('%z, %y = model.evals(%target, %ctx, %ns, %t, parts = ((), ("tree",)))', ...),
        ('%z, %y = model.evals(%target, %t, %ctx, parts = ((), ()), reuse = "target")', ...),
    )
    refusals = (("model<causal,V,m,causal>, node<ctx>", "2 parts", {"parts": ((), ())}),)
