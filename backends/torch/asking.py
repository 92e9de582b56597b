"""How the text of a driver asks: calls of models and folds across a batch, which the engine answers, are its `yield`s."""

from __future__ import annotations

from decgraph.backends.torch.phrases import Phrases
from decgraph.ir.values import Op


class Asking(Phrases):
    """The part of the writer for ops that wait for an answer."""

    asks: bool
    """Whether the function that is being written asks anything."""

    def _asked(self, op: Op, what: str, more: str = "") -> None:
        model, place, *rest = (self.use(v) for v in op.operands)
        named = [*zip(op.attrs.get("with", ()), rest), *([("queries", "True")] if op.attrs.get("queries") else [])]
        extra = ", ".join(f'"{k}": {v}' for k, v in named)
        self.asks = True
        given = f", {{{extra}}}" if extra else ""
        self.line(f"{self.name(op.result)} = yield m.{what}({model}, {place}{given}{more})", op)

    def op_model_eval(self, op: Op) -> None:
        part = f", part={self.literal(op.attrs['part'])}" if op.attrs.get("part") else ""
        drafts = ", drafts=True" if op.attrs.get("drafts") else ""
        self._asked(op, "evaluate", part + drafts + ("" if op.attrs.get("joint") else ", alone=True"))

    def op_model_read(self, op: Op) -> None:
        each = ", each=True" if op.attrs.get("each") else ""
        given = f", {self.use(op.operands[2])}" if op.attrs.get("given") else ""
        self._asked(op, "read_tokens", given + each + ("" if op.attrs.get("joint") else ", alone=True"))

    def op_batch_fold(self, op: Op) -> None:
        self.asks = True
        site = f"{self.f.name}:{op.loc.line}:{op.loc.column}"
        self.line(f"{self.name(op.result)} = yield m.fold({self.use(op.operands[0])}, {op.attrs['fn']!r}, {site!r})", op)

    def op_batch_top(self, op: Op) -> None:
        self.asks = True
        x, k, *by = (self.use(v) for v in op.operands)
        site = f"{self.f.name}:{op.loc.line}:{op.loc.column}"
        keys = "".join(f"{b}, " for b in by)
        self.line(f"{self.name(op.result)} = yield m.batch_top({x}, {k}, ({keys}), {site!r})", op)

    def op_model_memory(self, op: Op) -> None:
        self._asked(op, "memory", "" if op.attrs.get("joint") else ", alone=True")

    def op_model_evals(self, op: Op) -> None:
        model, *rest = (self.use(v) for v in op.operands)
        self.asks = True
        parts, first = [], 0
        for names in op.attrs["parts"]:
            place, *extra = rest[first : first + 1 + len(names)]
            first += 1 + len(names)
            given = ", ".join(f'"{k}": {v}' for k, v in zip(names, extra))
            parts.append(f"({place}, {{{given}}})")
        alone = "" if op.attrs.get("joint") else ", alone=True"
        self.line(f"{self.targets(op)} = yield m.evaluate_together({model}, ({', '.join(parts)},){alone})", op)
