"""Why a step calls a model: what the call's result is for, followed through the program to what it changes or decides.

A result flows through arithmetic, selections, draws, branches and loops until it meets an operation that uses it up: a draft,
a verification, cells of a canvas, a commit, a state, a condition, another model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from decgraph.ir.table import lookup
from decgraph.ir.values import Function, Op, Value

MODELS = frozenset(
    {"model.eval", "model.evals", "model.read", "model.memory", "model.states", "model.attention", "head.read", "head.score"}
)
GROWN = frozenset({"tree.grow", "tree.best_first"})
SHAPED = frozenset({"tree.keep", "tree.set", "tree.front", "tree.reroot"})
SIZES = frozenset({"len", "tree.size"})
"""Ops that read how many there are, which the places of a call decide and not what it says."""

CANVAS = {"token": "decides cells of", "mask": "masks again cells of", "soft": "fills softly cells of"}


@dataclass(frozen=True)
class Purpose:
    """One use. kind: draft, shape, verify, decide, commit, state, control, model, host or result; what: in words; line: its."""

    kind: str
    what: str
    line: int

    def __str__(self) -> str:
        return f"{self.what} (line {self.line})"


class Purposes:
    """The purposes of the values of one function. graph: from each value to those that carry it on, and to its purposes."""

    def __init__(self, function: Function) -> None:
        from networkx import DiGraph  # it takes a third of a second

        ops = list(function.body.walk())
        self.graph = DiGraph()
        self.graph.add_edges_from((v, after) for op in ops for n, v in enumerate(op.operands) for after in taken(op, n))
        self.graph.add_edges_from(
            (v, after) for op in ops for r, region in enumerate(op.regions) for n, v in enumerate(region.yields)
            for after in destinations(op, r, n)
        )  # fmt: skip

    def purposes(self, op: Op, results: tuple[Value, ...] | None = None) -> tuple[Purpose, ...]:
        """What the results of an op are for, the nearest use first, each once; () where nothing needs them."""
        from networkx import bfs_layers

        start = [v for v in (op.results if results is None else results) if v in self.graph]
        return tuple(found for layer in bfs_layers(self.graph, start) for found in layer if isinstance(found, Purpose))


def taken(op: Op, n: int) -> Iterable[Purpose | Value]:
    """Where operand n of an op goes: its purpose, or the values that carry it on."""
    purpose = used(op, n)
    if purpose is not None:
        return (purpose,)
    if op.opcode in SIZES:
        return ()
    return entered(op, n) if op.regions else op.results


def used(op: Op, n: int) -> Purpose | None:
    """What an operand of an op is for, where the op uses it up; None where its results carry it on."""
    line, code = op.loc.line, op.opcode
    tree = str(op.operands[0].type.of[0]) if op.operands and op.operands[0].type.elem == "tree" else ""
    if code in GROWN:
        return Purpose("draft", f"drafts nodes of {tree or 'a tree'}", line)
    if code in SHAPED:
        return Purpose("shape", f"chooses among the nodes of {tree or 'a tree'}", line)
    if code == "tree.walk":
        rule = op.attrs.get("rule", "a rule")
        return Purpose("verify", f"verifies {tree} by {rule}" if n == 1 else f"is drafted, and verified by {rule}", line)
    if code in ("canvas.put", "canvas.extend"):
        words = CANVAS.get(str(op.attrs.get("kind")), "extends") if code == "canvas.put" else "extends"
        return Purpose("decide", f"{words} {op.operands[0].type.of[0]}", line)
    if code == "commit":
        return Purpose("commit", "is committed", line)
    if code == "state.write":
        return Purpose("state", f"is kept in state {op.attrs['state']}", line)
    if code == "return":
        return Purpose("result", "is returned", line)
    if code in ("if", "while") and n == 0 and (code == "if" or op.attrs.get("limited")):
        return Purpose("control", "decides a branch" if code == "if" else "bounds a loop", line)
    if code == "for" and n < 2:
        return Purpose("control", "decides how often a loop runs", line)
    if code in MODELS:
        return Purpose("model", f"is read by a call of {op.operands[0].name or 'a model'}", line)
    if code == "run":
        return Purpose("model", f"is given to a run of {op.attrs['callee']}", line)
    if lookup(code).batch == "host":
        return Purpose("host", f"is given to {op.attrs.get('extern', code)}", line)
    return None


def entered(op: Op, n: int) -> Iterator[Value]:
    """The arguments of an op's regions that carry its operand n, and its results where it has no iteration."""
    match op.opcode:
        case "for":
            yield from (op.regions[0].args[n - 1], op.results[n - 2]) if n >= 2 else ()
        case "while":
            first = 1 if op.attrs.get("limited") else 0
            for r in op.regions:
                yield r.args[1 + n - first]
            yield op.results[n - first]
        case "each":
            yield from (a for r in op.regions for a in r.args[1:])
        case "segment":
            return  # its region uses what it is given by its own name
        case _:
            yield from (a for r in op.regions for a in r.args)


def destinations(op: Op, region: int, n: int) -> Iterator[Purpose | Value]:
    """Where what a region of an op yields goes."""
    skip = 1 if op.attrs.get("stops") and op.opcode in ("for", "while") else 0
    if op.opcode == "while" and region == 0:
        yield Purpose("control", "decides whether a loop goes on", op.loc.line)
    elif skip and n == 0:
        yield Purpose("control", "decides whether a loop stops", op.loc.line)
    elif op.opcode in ("for", "while"):
        yield op.results[n - skip]
        yield from (r.args[1 + n - skip] for r in op.regions)
    elif op.opcode == "tree.walk":
        yield Purpose("verify", f"verifies {op.operands[0].type.of[0]} by {op.attrs.get('rule', 'a rule')}", op.loc.line)
    elif op.opcode in ("if", "segment"):
        yield op.results[n]
    else:
        yield from op.results
