"""Claims about single tokens, `ensures` and `keeps support`: whether they hold of one, and what to say where they do not."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from decgraph.backends.exact.run import ExactMachine
from decgraph.backends.reference.protocols import RowSource
from decgraph.ir.data.canvas import Canvas, Cell
from decgraph.ir.data.dist import Dist, Draw, Row, Soft, value_row
from decgraph.runtime.models import interface
from decgraph.runtime.models.interface import Model, Scores

if TYPE_CHECKING:
    from decgraph.check.case import Case


def row_after(case: Case, m: ExactMachine, name: str, path: tuple[int, ...]) -> Row:
    """A model's row after a text, whatever the machine gets wrong."""
    scores = partial(ExactMachine.score_path, m, case.models[name], path, None)
    return ExactMachine.model_row(m, RowSource(case.models[name], scores, path))


def given_to(case: Case, m: ExactMachine, path: tuple[int, ...], x: int) -> str:
    """What the claim's models give a token that a claim does not hold of."""
    names = (
        case.claim.models if case.claim.kind == "keeps_support" else [k for k, v in case.models.items() if v.kind == "causal"]
    )
    rows = []
    for name in names:
        row = row_after(case, m, name, path)
        rows.append(f"{name} gives it probability {row.face('raw' if case.claim.kind == 'keeps_support' else 'shaped')[x]}")
    return ", where " + " and ".join(rows[:2]) if rows else ""


class Unsupported(NamedTuple):
    """A token that was decided on a canvas, to which no model assigns a probability there, and how to say so."""

    token: int
    words: str


def unsupported(case: Case, m: ExactMachine, c: Canvas, positions: Sequence[int], values: Sequence[Cell]) -> list[Unsupported]:
    """Tokens just decided on a canvas to which no model of the claim assigns a probability there, computed without a cache."""
    cells, base = m.cells(c), len(c.base)
    out = []
    for i, v in zip(positions, values, strict=True):
        x = v.token if isinstance(v, Draw) else int(cast(int | Soft, v))
        path = tuple(m.mask_token if not isinstance(t, int) else t for t in cells[: base + i])
        rows = [
            ExactMachine.model_row(m, RowSource(model, partial(_cell_scores, model, cells, base + i), path, i))
            for model in map(case.models.__getitem__, case.claim.models)
        ]
        if not any(row.face("raw")[x] > 0 for row in rows):
            line = f", line {m.op.loc.line}," if m.op is not None and m.op.loc.line else ""
            seen = " ".join(str(t) if isinstance(t, int) and t != m.mask_token else "_" for t in path + cells[base + i :])
            given = " and ".join(
                f"{name} gives {', '.join(str(p) for p in row.face('raw'))} to the tokens"
                for name, row in zip(case.claim.models, rows, strict=True)
            )
            out.append(
                Unsupported(x, f"token {x} was decided at position {i} of the canvas{line} where {given}, from cells {seen}")
            )
    return out


def _cell_scores(model: Model, cells: tuple[interface.Cell, ...], at: int) -> Scores:
    return model.eval_canvas(cells, [at], None)[0]


def token_holds(case: Case, m: ExactMachine, path: tuple[int, ...], x: int) -> bool:
    """Whether the claim holds of one token at its context."""
    if case.claim.kind == "keeps_support":
        return any(row_after(case, m, name, path).face("raw")[x] > 0 for name in case.claim.models)
    model = next(v for v in case.models.values() if v.kind == "causal")
    row = m.model_row(RowSource(model, partial(m.score_path, model, path, None), path))
    assert case.claim.region is not None
    p = Dist(np.array(value_row(row.face("shaped")), dtype=object).reshape(()))
    return bool(m.num.truth(m.region(case.claim.region, (p, x))[0]))
