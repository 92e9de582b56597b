"""What the ops of a program do to its canvas: which cells become decided, and by what draws (schedules.py).

A canvas is known by how many of its cells, from the left, are decided, and by the steps that decided them. Then may come a
*part* in which some cells are decided: by steps that each decide the surest masked cells there (cells.py). A step of any
other kind loses the canvas. So does a step that may or may not be made: its draws could decide about themselves. Only where all
draws have the `output` noise whose number is how many cells are decided, a step that is put off is made later with the same
draws, and how many steps were made may depend on anything.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from decgraph.check.proof.canvas_values import (
    NOTHING,
    Best,
    Between,
    Canvas,
    CanvasRows,
    CanvasValue,
    CellDraws,
    CellEdit,
    Cells,
    Column,
    Formula,
    Lost,
    MaskedOf,
    Noise,
    Open,
    PartlyDecided,
    Steps,
    Tree,
    TreeNodes,
    Vector,
    same_cells,
)
from decgraph.check.proof.cells import within
from decgraph.check.proof.invariants import DerivationStopped, Step
from decgraph.check.proof.judgments import digest
from decgraph.check.proof.placed import Placed
from decgraph.check.proof.vectors import size, unknown
from decgraph.ir.known_numbers import ONE, ZERO, KnownNumbers
from decgraph.ir.linear import Linear, at_least
from decgraph.ir.values import Function, Op, Value

AGREED = "6e53ec70bed140e8594f0047d5b1993391b5c2cd8451b25e7b2dfd57e3894e56"
"""The hash of a rule that goes on to a child if it is the edit that it is given, and emits nothing."""


def then(steps: Steps, kind: str, low: Linear, high: Linear) -> Steps:
    """One more step; cells that are decided one by one are one step together."""
    if steps and kind == "each" and steps[-1][0] == "each" and steps[-1][2] == low:
        return (*steps[:-1], ("each", steps[-1][1], high))
    return (*steps, (kind, low, high))


@dataclass
class Canvases(Placed):
    """The values of a function, and the rules of ops on canvases. arguments: the values of its parameters; models by name."""

    function: Function
    known: KnownNumbers
    arguments: dict[str, CanvasValue]
    steps: list[Step] = field(default_factory=list)
    length: Linear = field(default_factory=lambda: Linear.of(" n"))
    blocks: dict[Linear, Linear] = field(default_factory=dict)
    block: tuple[Linear, Cells] | None = None

    def __post_init__(self) -> None:
        self.now: dict[Value, CanvasValue] = {p.value: self.arguments.get(p.name) for p in self.function.params}
        self.place(self.function)
        self.asked: Linear | None = None
        self.models: set[str] = set()
        self.end: Canvas | None = None
        self.shared = True
        self.nodes: dict[Tree, Canvas] = {}

    def say(self, op: Op, text: str, rule: str) -> None:
        step = Step(op.loc.line, text, rule)
        if step not in self.steps:
            self.steps.append(step)

    # -- what is masked
    def new(self, op: Op, *operands: CanvasValue) -> Canvas:
        if self.asked is not None or len(operands) != 1 or self.loops[op.result] or not isinstance(operands[0], Linear):
            raise DerivationStopped(op, "more than one canvas, or one that grows")
        self.asked = operands[0]
        self.known.symbol(" n", 1)  # an empty canvas is committed as it is
        self.known.assumed.append(at_least(operands[0], self.length))
        return Canvas(ZERO)

    def get(self, op: Op, canvas: CanvasValue) -> CanvasValue:
        what, every = op.attrs["field"], Cells(ZERO, self.length)
        if what == "length":
            return self.length
        if what == "all":
            return every
        return Vector(self.length, self.state(canvas, what))

    def state(self, canvas: CanvasValue, what: str) -> CanvasValue:
        """Which cells are masked, or decided."""
        if what not in ("masked", "decided") or not isinstance(canvas, Canvas):
            return None
        if canvas.part is not None:
            return MaskedOf(canvas) if what == "masked" else None
        ends = (canvas.done, self.length) if what == "masked" else (ZERO, canvas.done)
        return within(self, Between(*ends), Cells(ZERO, self.length))

    def masked_at(self, canvas: Canvas, at: Cells) -> Open | Formula:
        """Which of some cells are masked, by their place among them."""
        part = canvas.part
        same = part is not None and at.ordered and (at.low, at.high) == (part.low, part.high)
        return Open(canvas, at.low, at.high) if same else unknown(self)

    def decided(self, canvas: Canvas) -> Linear:
        """How many cells are decided."""
        return canvas.done if canvas.part is None else self.known.symbol(("decided", canvas), 0)

    def counted(self, op: Op, x: CanvasValue) -> CanvasValue:
        """How many cells of a canvas, or of each canvas of a tree, are decided; None for any other fold."""
        made = self.producers.get(op.operands[0])
        if op.attrs["fn"] != "count" or made is None:
            return None
        on = self.now.get(made.operands[0])
        if made.opcode == "canvas.get" and made.attrs["field"] == "decided" and isinstance(on, Canvas):
            return self.decided(on)
        if made.opcode == "tree.get" and made.attrs["column"] == "decided" and isinstance(on, Tree) and on in self.nodes:
            return Column(on, self.decided(self.nodes[on]))
        return None

    # -- what becomes decided
    def put(self, op: Op, canvas: CanvasValue, where: CanvasValue, *rest: CanvasValue) -> CanvasValue:
        """Masked cells become decided, each by a fresh draw of its own row on this very canvas."""
        if not isinstance(canvas, Canvas):
            return canvas
        mask: CanvasValue = True
        if op.attrs.get("has_mask"):
            mask = rest[-1].item if isinstance(rest[-1], Vector) else rest[-1]
        if mask is False or isinstance(where, Cells) and self.known.at_least(where.low - where.high):
            return canvas
        if op.attrs["kind"] != "token":
            return Lost(op, "cells may be masked again" if op.attrs["kind"] == "mask" else "cells may hold an embedding")
        x = rest[0]
        best = mask if isinstance(mask, Best) else where
        if isinstance(best, Best):
            return self.surest(op, canvas, best, where, x, mask)
        if isinstance(where, Linear):
            where = Cells(where, where + ONE)
        new = self.chosen(where, mask, size(self, rest[-1])) if isinstance(where, Cells) else None
        if new is None:
            return Lost(op, "which cells are decided is not known before they are drawn")
        if canvas.part is not None or not self.are_next(canvas, new):
            return Lost(op, "the cells that are decided are not the next ones from the left, each once")
        if not isinstance(x, CellDraws) or x.canvas is not canvas:
            return Lost(op, "a cell gets a token that is not known to be a fresh draw of the model's row there on this canvas")
        one = size(self, x.at) == size(self, where) == ONE
        alone = one and isinstance(x.at, Cells) and isinstance(where, Cells) and x.at.low == where.low
        if not (alone or x.at is where or self.every(op, x)):
            return Lost(op, "tokens may be put at other cells than they were drawn for")
        self.shared = self.shared and x.draw.shared
        kind = "each" if new.high - new.low == ONE else "at once"
        self.say(
            op, "decides the next cell from the left" if kind == "each" else "decides all these cells at once", "cells-drawn"
        )
        return Canvas(new.high, then(canvas.steps, kind, new.low, new.high), went=True)

    def are_next(self, canvas: Canvas, cells: Cells) -> bool:
        """Whether cells are the next ones of a canvas, at least one."""
        inside = self.known.at_least(self.length - cells.high) and self.known.above(cells.high - cells.low)
        return inside and cells.low == canvas.done

    def every(self, op: Op, x: CellDraws) -> bool:
        """Whether there is a token for each cell of the canvas."""
        dims = op.operands[2].type.dims
        return x.at is None and bool(dims) and dims[0].kind == "cells"

    def chosen(self, where: Cells, mask: CanvasValue, entries: Linear | None) -> Cells | None:
        """Those cells at which a condition is true, one for each of them or for each of the canvas."""
        if mask is True:
            return where
        if not isinstance(mask, Between) or not where.ordered or entries not in (self.length, size(self, where)):
            return None
        start = ZERO if entries == self.length else where.low
        low, high = start + mask.low, start + mask.high
        return Cells(low, high) if self.known.at_least(low - where.low) and self.known.at_least(where.high - high) else None

    def surest(
        self, op: Op, canvas: Canvas, best: Best, where: CanvasValue, x: CanvasValue, mask: CanvasValue
    ) -> Canvas | Lost:
        """The surest masked cells of a part of the canvas become decided, by the draws whose probabilities say so."""
        score = best.score
        if best is mask:
            drawn = isinstance(x, CellDraws) and x.draw is score.draw and (same_cells(x.at, where) or self.every(op, x))
            right = drawn and same_cells(where, score.at)
        else:
            right = mask is True and isinstance(x, Best) and x.token and (x.score, x.count) == (score, best.count)
        if not right or best.token or score.canvas is not canvas:
            return Lost(op, "the surest cells do not get the draws that they were chosen by")
        at, part = score.at, canvas.part
        if isinstance(at, Open):
            same = at.canvas is canvas and part is not None and (at.low, at.high) == (part.low, part.high)
        else:
            same = isinstance(at, Cells) and at.ordered and part is None and self.are_next(canvas, at)
        if not isinstance(at, Open | Cells) or not same:
            return Lost(op, "the surest cells are not those of one part of the canvas")
        if part is not None and part.shared != score.draw.shared:
            return Lost(op, "steps with noise of their own beside steps by how many cells are decided")
        counts = part.counts if part is not None else ()
        if best.count != ONE or counts:
            if part is not None and not counts:
                return Lost(op, "steps that decide one cell beside steps that decide more")
            counts = (*counts, best.count)
        self.shared = self.shared and score.draw.shared
        said = "the surest of the masked cells" if best.count == ONE else "the surest of the masked cells, so many of them"
        self.say(op, f"decides {said}", "cells-surest")
        return Canvas(canvas.done, canvas.steps, PartlyDecided(at.low, at.high, counts, score.draw.shared), went=True)

    # -- models
    def eval(self, op: Op, model: CanvasValue, canvas: CanvasValue, *rest: CanvasValue) -> CanvasValue:
        given = dict(zip(op.attrs.get("with", ()), rest, strict=True))
        at = given.get("at")
        if not isinstance(model, str) or op.attrs.get("part") or given.keys() - {"at", "given"}:
            return None
        if isinstance(canvas, Tree):
            node = self.node(canvas, at) if "given" not in given else None
            if node is None or "at" in given and not isinstance(at, Cells):
                return None
            self.models.add(model)
            return Column(canvas, CanvasRows(node, at))
        if not isinstance(canvas, Canvas):
            return None
        if "given" in given:  # on a memory that holds nothing a call of all cells computes everything
            every = isinstance(at, Cells) and at.low == ZERO and at.high == self.length
            if given["given"] is not NOTHING or "at" in given and not every:
                return None
        self.models.add(model)
        if op.result.type.dims[0].kind == "cells":
            return CanvasRows(canvas, None)
        return CanvasRows(
            canvas, at if isinstance(at, Cells | Open) else Cells(self.known.fresh(), self.known.fresh(), ordered=False)
        )

    def memory(self, op: Op, model: CanvasValue, canvas: CanvasValue, *rest: CanvasValue) -> CanvasValue:
        at = rest[0] if tuple(op.attrs.get("with", ())) == ("at",) else None
        return NOTHING if isinstance(at, Cells) and self.known.at_least(at.low - at.high) else None

    def draw(self, op: Op, rows: CanvasValue, _: CanvasValue) -> CanvasValue:
        noise = self.producers.get(op.operands[1])
        tree = rows.tree if isinstance(rows, Column) else None
        rows = rows.value if isinstance(rows, Column) else rows
        if not isinstance(rows, CanvasRows) or rows.face != "shaped" or noise is None or noise.opcode != "noise":
            return Vector(size(self, rows))
        number = self.now.get(noise.operands[0]) if len(noise.operands) == 1 else None
        decided = self.decided(rows.canvas)
        shared = noise.attrs["kind"] == "output" and number == (decided if tree is None else Column(tree, decided))
        fresh = shared or tree is None and self.read_alone(op, noise.result)
        drawn = CellDraws(rows.canvas, rows.at, Noise(shared))
        return Vector(size(self, rows)) if not fresh else drawn if tree is None else Column(tree, drawn)

    def commit(self, op: Op, *values: CanvasValue) -> None:
        if len(values) != 1 or self.end is not None or op not in self.function.body.ops:
            raise DerivationStopped(op, "commits more than one canvas, once")
        if isinstance(values[0], Lost):
            raise DerivationStopped(values[0].op, values[0].why)
        if not isinstance(values[0], Canvas) or values[0].done != self.length or values[0].part is not None:
            raise DerivationStopped(op, "it is not known that all cells of what is committed are decided")
        self.say(
            op, "commits the canvas: in which order cells are decided does not depend on anything else", "commit-scheduled"
        )
        self.end = values[0]

    # -- trees of canvases
    def tree(self, op: Op, base: CanvasValue, *_: CanvasValue) -> CanvasValue:
        return Tree(base) if isinstance(base, Canvas) else None

    def grow(self, op: Op, tree: CanvasValue, *_: CanvasValue) -> list[CanvasValue]:
        return [tree if isinstance(tree, Tree) else None, *[None] * (len(op.results) - 1)]

    def node(self, tree: Tree, at: CanvasValue) -> Canvas | None:
        """The canvas of any one of a tree's nodes: for the root what it is, for another its parent's with the best edit."""
        base = tree.base
        if tree not in self.nodes:
            part = base.part
            if part is None and isinstance(at, Cells) and at.ordered and self.are_next(base, at):
                part = PartlyDecided(at.low, at.high)
            if part is None or part.counts or not part.shared:
                return None
            self.nodes[tree] = Canvas(base.done, base.steps, part)
        return self.nodes[tree]

    def column(self, op: Op, tree: CanvasValue, *_: CanvasValue) -> CanvasValue:
        if not isinstance(tree, Tree) or tree not in self.nodes:
            return None
        return Column(tree, Vector(self.length, self.state(self.nodes[tree], op.attrs["column"])))

    def all_nodes(self, op: Op, tree: CanvasValue, *_: CanvasValue) -> CanvasValue:
        return TreeNodes(tree) if isinstance(tree, Tree) and op.attrs["which"] == "all" else None

    def walk(self, op: Op, tree: CanvasValue, evidence: CanvasValue, *_: CanvasValue) -> CanvasValue:
        """What a rule accepts that follows the specification's own next edits: some more of its steps, or none."""
        lost = Lost(op, "what is accepted is not known to be the specification's next edits")
        edit = evidence.value if isinstance(evidence, Column) and evidence.tree is tree else None
        if not isinstance(tree, Tree) or tree not in self.nodes or not isinstance(edit, CellEdit) or digest(op) != AGREED:
            return lost
        at, token, node = edit.at, edit.token, self.nodes[tree]
        if not isinstance(at, Best) or not isinstance(token, Best) or at.token or not token.token or at.score != token.score:
            return lost
        if at.score.canvas is not node or not isinstance(at.score.at, Open) or not at.score.draw.shared:
            return lost
        self.say(op, "accepts edits that are the next ones of one-at-a-time decoding, with its own draws", "cells-agreed")
        return replace(node, went=tree.base.went)
