"""How calls of models, and folds across a batch, are written: they are the `yield`s of a driver, which the engine answers."""

from __future__ import annotations

from decgraph.backends.torch.values import literal
from decgraph.backends.torch.writer import Form, Writer
from decgraph.ir.values import Op


def _call(w: Writer, op: Op, what: str, more: str = "", *, asks: bool = True) -> None:
    model, place, *rest = (w.use(v) for v in op.operands)
    named = [*zip(op.attrs.get("with", ()), rest), *([("queries", "True")] if op.attrs.get("queries") else [])]
    extra = ", ".join(f'"{k}": {v}' for k, v in named)
    w.asks |= asks
    given = f", {{{extra}}}" if extra else ""
    w.line(f"{w.name(op.result)} = {'yield ' if asks else ''}m.{what}({model}, {place}{given}{more})", op)


def evaluation(w: Writer, op: Op) -> None:
    """A call of a model at a place."""
    part = f", part={literal(op.attrs['part'])}" if op.attrs.get("part") else ""
    drafts = ", drafts=True" if op.attrs.get("drafts") else ""
    _call(w, op, "evaluate", part + drafts + ("" if op.attrs.get("joint") else ", alone=True"))


def reading(w: Writer, op: Op) -> None:
    """A call of a model after a text of its own."""
    each = ", each=True" if op.attrs.get("each") else ""
    given = f", {w.use(op.operands[2])}" if op.attrs.get("given") else ""
    _call(w, op, "read_tokens", given + each + ("" if op.attrs.get("joint") else ", alone=True"))


def fold(w: Writer, op: Op) -> None:
    """A number of every sequence of the batch, folded."""
    w.asks = True
    site = f"{w.f.name}:{op.loc.line}:{op.loc.column}"
    w.line(f"{w.name(op.result)} = yield m.fold({w.use(op.operands[0])}, {op.attrs['fn']!r}, {site!r})", op)


def top(w: Writer, op: Op) -> None:
    """The best candidates of the whole batch."""
    w.asks = True
    x, k, *by = (w.use(v) for v in op.operands)
    site = f"{w.f.name}:{op.loc.line}:{op.loc.column}"
    keys = "".join(f"{b}, " for b in by)
    w.line(f"{w.name(op.result)} = yield m.batch_top({x}, {k}, ({keys}), {site!r})", op)


def memory(w: Writer, op: Op) -> None:
    """A call of a model for its memory of a canvas; that of a text is its description, for which no engine is asked."""
    asks = op.operands[1].type.elem == "canvas"
    _call(w, op, "memory", ", alone=True" if asks and not op.attrs.get("joint") else "", asks=asks)


def evaluations(w: Writer, op: Op) -> None:
    """One call for several places of a model."""
    model, *rest = (w.use(v) for v in op.operands)
    w.asks = True
    parts, first = [], 0
    for names in op.attrs["parts"]:
        place, *extra = rest[first : first + 1 + len(names)]
        first += 1 + len(names)
        given = ", ".join(f'"{k}": {v}' for k, v in zip(names, extra))
        parts.append(f"({place}, {{{given}}})")
    alone = "" if op.attrs.get("joint") else ", alone=True"
    w.line(f"{w.values.targets(op)} = yield m.evaluate_together({model}, ({', '.join(parts)},){alone})", op)


FORMS: dict[str, Form] = {
    "batch.fold": fold,
    "batch.top": top,
    "model.eval": evaluation,
    "model.evals": evaluations,
    "model.memory": memory,
    "model.read": reading,
}
