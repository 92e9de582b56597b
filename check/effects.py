"""What a run does on its way, with operands and results: draws and what they are drawn from, nodes that are grown,
verifications, decided cells, states, commits. Two runs on the same noise that differ in none of it are the same run for whoever
reads the tokens: so an outcome that was forced, and changed nothing, is told from one that the claim survived."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

from decgraph.backends.exact.choices import TooMany
from decgraph.backends.exact.coverage import CoveredRun
from decgraph.backends.exact.reals import NotSeparated
from decgraph.backends.exact.run import ExactMachine
from decgraph.backends.exact.states import Signer, Unknown
from decgraph.backends.exact.world import Unlikely, World
from decgraph.check.case import Case, begun
from decgraph.check.chances import ByChance
from decgraph.check.distributions import execute
from decgraph.check.initial_states import NoValue
from decgraph.errors import DecError
from decgraph.ir.data.dist import Draw, Row
from decgraph.ir.machine import Datum
from decgraph.ir.values import Op
from decgraph.runtime.models.interface import Model

WATCHED = frozenset(
    {"draw", "draw.many", "draw.race", "draw.stated", "bernoulli", "beta", "tree.grow", "tree.keep", "tree.reroot", "tree.walk"}
    | {"tree.best_first", "tree.set", "canvas.put", "canvas.extend", "commit", "state.write", "return", "extern", "batch.fold"}
    | {"batch.top"}
)
EFFECTS = 400  # effects recorded of one run, at most


class Plain(Signer):
    """Values as they are, in whichever run: models by name, rows by their numbers, draws by their tokens, which are read."""

    def of(self, value: object) -> Hashable:
        if isinstance(value, Model):
            return ("model", value.name)
        try:
            return super().of(value)
        except Unknown:
            return ("unknown", type(value).__name__)

    def row(self, row: Row) -> Hashable:
        return ("row", *(self.of(list(row.face(face))) for face in ("raw", "shaped")))

    def draw(self, d: Draw) -> Hashable:
        return ("draw", d.token, d.law_face, self.row(d.source))


class EnoughRecorded(Exception):
    """Raised when enough effects of a run were recorded."""


def effects(case: Case, seed: int, ran: CoveredRun | None = None, *, noise: bool = True) -> list[Hashable]:
    """The effects of one run, with operands and results, and how it ended. ran: with the outcomes that it imposes. noise:
    whether it is an effect to read other noise."""
    notes: list[Hashable] = []

    def apply(self: ExactMachine, op: Op) -> Sequence[Datum]:
        out = engine.apply(self, op)
        if op.opcode in WATCHED:
            signer = Plain(self.world.races)
            read = [self.env.get(v) for v in op.operands if noise or v.type.elem != "noise"]
            notes.append((op.opcode, signer.of(read), signer.of(out), self.committed()))
            if len(notes) >= EFFECTS:
                raise EnoughRecorded
        return out

    engine = case.engine
    case = begun(case)
    case = replace(case, engine=type("Noted", (engine,), {"apply": apply}))
    try:
        m = execute(case.starts(World(coupled=True, ran=ran))(ByChance(seed)))
        notes.append(("ended", tuple(m.committed_tokens()), m.done()))
    except EnoughRecorded:
        pass
    except (DecError, Unlikely, TooMany, NotSeparated, NoValue) as error:
        notes.append(("error", type(error).__name__))
    return notes
