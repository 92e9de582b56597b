"""What a derivation says of values, compared with the values that a run on the reference backend has.

A run keeps the kernel's facts beside its values: after every operation the fact of each result is compared with the value, and
a fact about a context with the context as it is then. A difference is a rule of the kernel that is wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from decgraph.backends.reference.machine import ReferenceMachine
from decgraph.check.case import Case
from decgraph.check.proof.claims import equalities
from decgraph.check.proof.derive import MOST_ROUNDS, judged
from decgraph.check.proof.invariants import DerivationStopped, Invariant, NotKept
from decgraph.check.proof.kernel import Kernel
from decgraph.errors import DecError
from decgraph.ir import facts
from decgraph.ir.data.dist import Dist, Draw, Draws, Row
from decgraph.ir.data.tree import State, Tree
from decgraph.ir.ops.draws import NoiseKey
from decgraph.ir.values import Claim, Module, Op, Region, Value
from decgraph.runtime.models.interface import Model

CLOSE = 1e-9
EVAL = Op("model.eval", (), {}, (), ())
OUTPUT = NoiseKey("output", (), "output", None)


class Traced(Kernel):
    """The kernel, with the version of the context after each operation and at the beginning of each region."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.after: dict[Op, int] = {}
        self.at: dict[Region, int] = {}

    def step(self, op: Op) -> None:
        super().step(op)
        self.after[op] = self.version

    def region(self, region: Region) -> list[facts.Fact | None]:
        self.at[region] = self.version
        return super().region(region)


def walked(module: Module, claim: Claim, model: str) -> Traced | None:
    """The kernel's facts where a derivation in some mode comes to the end."""
    condition = claim.setting
    for mode in ("own", "drawn", "inside"):
        invariants: dict[Op | None, Invariant] = {}
        for _ in range(MOST_ROUNDS):
            kernel = Traced(
                module, module.entry, model, mode, judged, invariants, claim.for_greedy, equalities(condition), condition
            )
            try:
                kernel.run()
                return kernel
            except NotKept as found:
                invariants[found.op] = found.weaker
            except DerivationStopped:
                break
    return None


@dataclass
class Compared:
    """How many facts of which kind were compared, and what was not so."""

    counts: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


class Witness(ReferenceMachine):
    """A run that compares values with facts."""

    kernel: Traced
    found: Compared

    def apply(self, op: Op) -> Any:
        out = super().apply(op)
        if self.parent is None and op in self.kernel.after:
            for v, value in zip(op.results, out, strict=False):
                self.compare(op, v, value, self.kernel.after[op])
        return out

    def region(self, region: Region, args: Any) -> list[Any]:
        if self.parent is None and region in self.kernel.at:
            for v, value in zip(region.args, args, strict=False):
                self.compare(None, v, value, self.kernel.at[region])
        return super().region(region, args)

    def compare(self, op: Op | None, v: Value, value: Any, version: int) -> None:
        """Compare a value with its fact, and with the constant that it is known to be."""
        fact = self.kernel.facts.get(v)
        why = None
        if v in self.kernel.consts and op is not None:
            self.found.counts["constant"] += 1
            why = None if self.is_constant(self.kernel.consts[v], value) else f"is {value}, not {self.kernel.consts[v]}"
        if why is None and fact is not None and getattr(fact, "version", version) == version:
            check = CHECKS.get(type(fact))
            if check is not None:
                self.found.counts[type(fact).__name__ + f" {getattr(fact, 'how', getattr(fact, 'face', ''))}".rstrip()] += 1
                why = check(self, fact, v, value)
        if why is not None:
            place = f"line {op.loc.line} {op.opcode}" if op is not None else "carried"
            self.found.wrong.append(f"{place}: %{v.name}, {fact}: {why}")

    @staticmethod
    def is_constant(known: Any, value: Any) -> bool:
        if isinstance(known, str | tuple | list) or known is None or value is None or isinstance(known, dict):
            return True
        try:
            return bool(np.all(np.abs(np.asarray(value, dtype=float) - float(known)) < CLOSE))
        except (TypeError, ValueError):
            return True

    # -- what the model says
    def model_of(self, name: str) -> Model:
        """The model that a parameter stands for."""
        model = self.env[self.kernel.function.param(name).value]
        assert isinstance(model, Model)
        return model

    def model_row_at(self, model: str, path: State) -> Row:
        """The model's row after a path."""
        return self.evaluate(EVAL, self.model_of(model), path, {}).row

    def has_mass(self, model: str, path: tuple[Any, ...], token: int) -> bool:
        return bool(self.model_row_at(model, path).face("raw")[token] > 0)

    def own_draw(self, model: str, path: tuple[Any, ...]) -> int:
        return int(self.draw(EVAL, self.model_row_at(model, path), "shaped", OUTPUT, 0, None).token)


def _entries(value: Any, face: str = "shaped") -> np.ndarray:
    """The entries of a row, or of several."""
    if isinstance(value, Dist):
        each = [np.asarray(r.face(value.face), dtype=float) for r in value.rows.ravel()]
        return np.array(each).reshape(value.rows.shape + np.shape(each[0]) if each else (0,))
    return np.asarray(value, dtype=float)


def _tokens(value: Any) -> list[int]:
    """The tokens of a draw, of draws, or plain ones."""
    if isinstance(value, Draw):
        return [value.token]
    if isinstance(value, Draws):
        return [d.token for d in value.items.ravel() if d is not None]
    tokens = getattr(value, "tokens", value)
    return [int(getattr(t, "token", t)) for t in np.ravel(np.asarray(tokens, dtype=object))]


def _row(m: Witness, fact: facts.Row, v: Value, value: Any) -> str | None:
    entries, row = _entries(value), m.model_row_at(fact.model, m.context())
    rows = entries.reshape(-1, entries.shape[-1])
    if fact.face in ("shaped", "raw", "logits"):
        wanted = np.asarray(row.face(fact.face), dtype=float)
        same = all(np.allclose(r[np.isfinite(wanted)], wanted[np.isfinite(wanted)], atol=CLOSE) for r in rows)
        lost = all((np.isfinite(r) == np.isfinite(wanted)).all() for r in rows)
        if fact.face == "logits":  # up to a constant
            same = all(np.ptp((r - wanted)[np.isfinite(wanted)]) < 1e-6 for r in rows) and lost
        return None if same and lost else f"{entries} and not {wanted}"
    gone = np.asarray(row.face("raw"), dtype=float) == 0
    wrong = any((r[gone] != (0 if fact.face == "mass" else -np.inf)).any() for r in rows)
    return f"{entries} has something where the model has no mass" if wrong else None


def _rows(m: Witness, fact: facts.Rows, v: Value, value: Any) -> str | None:
    tree = m.env.get(fact.tree)
    if not isinstance(tree, Tree) or not isinstance(value, Dist):
        return None
    nodes = list(range(len(tree))) if value.at is None else [int(i) for i in value.at]
    if fact.all and sorted(nodes) != list(range(len(tree))) or 0 not in nodes or len(nodes) != len(value.rows):
        return f"rows at the nodes {nodes} of {len(tree)}"
    for row, node in zip(value.rows, nodes, strict=True):
        wanted = m.model_row_at(fact.model, tree.state(node)).face("shaped")
        if not np.allclose(np.asarray(row.face(value.face), dtype=float), np.asarray(wanted, dtype=float), atol=CLOSE):
            return f"another row at node {node}"
    return None


def _token(m: Witness, fact: facts.Token, v: Value, value: Any) -> str | None:
    tokens = _tokens(value)
    if fact.how == "own":
        own = m.own_draw(fact.model, m.context())
        return None if all(x == own for x in tokens) else f"{tokens}, and the own draw is {own}"
    return None if all(m.has_mass(fact.model, m.context(), x) for x in tokens) else f"{tokens} without mass"


def _path(m: Witness, fact: facts.Path, v: Value, value: Any) -> str | None:
    text, tokens = m.context(), _tokens(value)
    if not tokens and v.type.elem == "path":
        return "nothing"
    for token in tokens:
        if m.request.max_tokens is not None and len(text) >= len(m.request.prompt) + m.request.max_tokens:
            return None  # what is behind the end of the request is not committed
        if not (token == m.own_draw(fact.model, text) if fact.how == "own" else m.has_mass(fact.model, text, token)):
            return f"{tokens}: {token} after {text}"
        text = (*text, token)
    return None


def _context(m: Witness, fact: facts.Context, v: Value, value: Any) -> str | None:
    wanted = m.context()[:-1] if fact.parent else m.context()
    return None if tuple(value) == tuple(wanted) else f"{value}, not {wanted}"


def _tree(m: Witness, fact: facts.Tree, v: Value, value: Any) -> str | None:
    if tuple(value.base) != tuple(m.context()):
        return f"stands on {value.base}, not on {m.context()}"
    for node in range(1, len(value)) if fact.inside else ():
        above = value.state(value.nodes[node].parent)
        if not any(m.has_mass(model, above, value.nodes[node].edge.token) for model in str(fact.inside).split(" or ")):
            return f"an edge without mass at node {node}"
    return "has edges" if fact.inside == "" and len(value) > 1 else None


def _drafts(m: Witness, fact: facts.Drafts, v: Value, value: Any) -> str | None:
    draws = [value] if isinstance(value, Draw) else [d for d in value.items.ravel() if d is not None]
    for d in draws if not fact.race else ():
        law = np.asarray(d.law_vector(), dtype=float)
        if not fact.noises and law[d.token] != 1:
            return f"{d.token} is no point"
        if abs(law.sum() - 1) > CLOSE or (law < 0).any() or law[d.token] <= 0:
            return f"{d.token} of {law}"
        if fact.after is not None and fact.after[1] == m.kernel.version and not m.has_mass(fact.after[0], m.context(), d.token):
            return f"{d.token} without mass"
    return None


def _nodes(m: Witness, fact: facts.Nodes, v: Value, value: Any) -> str | None:
    nodes, tree = [int(i) for i in np.ravel(np.asarray(value))], m.env.get(fact.tree)
    if fact.which == "root":
        return None if nodes == [0] else f"{nodes}"
    whole = not isinstance(tree, Tree) or fact.which != "all" or nodes == list(range(len(tree)))
    return None if 0 in nodes and whole else f"{nodes}"


def _column(m: Witness, fact: facts.Column, v: Value, value: Any) -> str | None:
    if fact.holds == "depth":
        return None if np.asarray(value)[0] == 0 else f"{value}"
    return None if (np.all(value) if fact.holds == "everywhere" else np.asarray(value)[0]) else f"{value}"


def _cells(m: Witness, fact: Any, v: Value, value: Any) -> str | None:
    """Tokens of cells, or of nodes."""
    place, at = m.env.get(fact.canvas), fact.at
    where = m.env.get(at) if isinstance(at, Value) else None
    if place is None or isinstance(at, tuple) or at is not None and where is None or not isinstance(value, Draws | np.ndarray):
        return None
    extra = {} if at is None or at.type.elem == "node" else {"at": where}
    model = m.model_of(fact.model)
    if at is not None and at.type.elem == "node":
        assert isinstance(place, Tree)
        rows = [m.model_row_at(fact.model, place.state(int(i))) for i in np.ravel(np.asarray(where))]
    elif v.type.elem in ("position", "node"):
        return None
    else:
        rows = list(m.evaluate(EVAL, model, place, extra).rows.ravel())
    tokens = _tokens(value)
    if len(tokens) != len(rows):
        return None
    lost = [x for x, row in zip(tokens, rows, strict=True) if not np.asarray(row.face("raw"), dtype=float)[x] > 0]
    return f"{lost} without mass at their cells" if lost else None


CHECKS: Mapping[type, Any] = {
    facts.Row: _row,
    facts.Rows: _rows,
    facts.Token: _token,
    facts.Path: _path,
    facts.Context: _context,
    facts.Tree: _tree,
    facts.Drafts: _drafts,
    facts.Nodes: _nodes,
    facts.Column: _column,
    facts.CellTokens: _cells,
}


def compare(case: Case, kernel: Traced, found: Compared) -> None:
    """One run in a world; an error ends it, and what was compared until then counts."""
    machine = Witness(
        case.module,
        case.function.name,
        case.models,
        case.params,
        case.request,
        externs=dict(case.externs),
        detokenizer=case.detokenizer,
    )
    machine.kernel, machine.found = kernel, found
    try:
        machine.run()
    except DecError as error:
        found.counts["runs that end in an error"] += 1
        found.errors[str(error).partition(": ")[2][:80]] += 1
    found.counts["runs"] += 1
