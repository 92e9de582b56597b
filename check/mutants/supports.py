"""Bugs that leave the support of a model: tokens are decided or committed where and when it gives them no probability."""

from __future__ import annotations

from typing import Any

from decgraph.backends.exact.run import ExactMachine
from decgraph.check.mutant import Mutant
from decgraph.check.profile import Profile
from decgraph.ir.data.dist import Dist
from decgraph.ir.values import Op


class Uniform(ExactMachine):
    """Draws are uniform over the vocabulary: tokens without mass are drawn."""

    def race_token(self, place: Any, q: Any, name: str) -> int:
        return super().race_token(place, (1,) * len(q), name)


class OneTokenLate(ExactMachine):
    """Rows are read one position early, and do not know the last token of their path."""

    def score_path(self, model: Any, state: tuple[Any, ...], given: Any) -> Any:
        return super().score_path(model, state[:-1] if len(state) > 1 else state, given)


class Scored:
    """A masked model of which the scores of a canvas go through `scores` of the machine."""

    def __init__(self, model: Any, machine: Canvases) -> None:
        self.model, self.machine = model, machine

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def after(self, prompt: int) -> Scored:
        return Scored(self.model.after(prompt), self.machine)

    def eval_canvas(self, cells: tuple[Any, ...], at: Any, given: Any) -> Any:
        return self.machine.scores(self.model, cells, list(at), given)


class Canvases(ExactMachine):
    """The scores of canvases, which `scores` gets wrong."""

    def start_run(self) -> None:
        super().start_run()
        self.seen: dict[Any, Any] = {}

    def scores(self, model: Any, cells: tuple[Any, ...], at: list[int], given: Any) -> list[Any]:
        raise NotImplementedError

    def eval_canvases(self, op: Op, model: Any, place: Any, extra: dict[str, Any]) -> Dist:
        return super().eval_canvases(op, Scored(model, self), place, extra)  # type: ignore[arg-type]


class RowBeside(Canvases):
    """Every cell of a canvas reads the row of the one to its left."""

    def scores(self, model: Any, cells: tuple[Any, ...], at: list[int], given: Any) -> list[Any]:
        if given is None:
            return list(model.eval_canvas(cells, [max(0, i - 1) for i in at], None))
        out = list(model.eval_canvas(cells, at, given))  # what was not recomputed has no row
        return out[:1] + out[:-1]


class RowsBefore(Canvases):
    """Cells are decided by the scores of the canvas before the last ones were decided."""

    def scores(self, model: Any, cells: tuple[Any, ...], at: list[int], given: Any) -> list[Any]:
        before = self.seen.get(model.name, cells)
        self.seen[model.name] = cells
        return list(model.eval_canvas(before if len(before) == len(cells) else cells, at, given))


def supported(f: Profile) -> bool:
    """Whether a program claims `keeps support`."""
    return "keeps_support" in f.modes


MUTANTS = (
    # Where every token that can be drawn has mass in all worlds (a shuffle), uniform draws are the same; and another model's
    # support may allow whatever is drawn, or what of it is kept.
    Mutant.of(
        Uniform,
        "support-uniform-draw",
        lambda f: supported(f) and f.zeroed and not f.allied,
        "V = 3, a token without mass",
        worlds=(2,),
    ),
    Mutant.of(
        OneTokenLate,
        "support-one-token-late",
        lambda f: supported(f) and f.causal,
        "V = 3, a token without mass",
        "M09",
        worlds=(2,),
    ),
    Mutant.of(RowBeside, "support-row-beside", lambda f: supported(f) and not f.causal, "V = 3, two cells", worlds=(2,)),
    # A canvas that is scored once, before any of its cells is decided, has no scores from before.
    Mutant.of(RowsBefore, "support-rows-before", lambda f: supported(f) and f.rescored, "V = 3, two cells", worlds=(2,)),
)
