"""What generated drivers import besides the ops (backends/torch/ops): verification, which applies a rule from the root of a
tree down, along the accepted path only; and how a printed driver is run in decgraph.

    $ decgraph compile speculative --emit python > my_speculative.py

    import my_speculative
    from decgraph.backends.torch.generated import driven_by

    session = driven_by(my_speculative, decgraph.load("speculative").session())

A generated module is read and edited like any other; decgraph computes its model calls, alone or with those of other requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from decgraph.backends.torch.canvases import Canvas, Edit
from decgraph.backends.torch.data import whole
from decgraph.backends.torch.draws import Draws, Mixed, TorchDraws
from decgraph.backends.torch.events import unmasked
from decgraph.backends.torch.lowering import Computes, lower
from decgraph.backends.torch.protocols import Machine
from decgraph.backends.torch.rows import Ids, TorchDist
from decgraph.backends.torch.texts import function_name
from decgraph.backends.torch.timing import offer, probabilities
from decgraph.backends.torch.trees import Edge, TorchPath, TorchTree, canvas_at, path_of
from decgraph.errors import DecError
from decgraph.ir.data.numbers import objects
from decgraph.ir.table import lookup
from decgraph.ir.types import parse_dim, parse_type
from decgraph.ir.values import Function, Op, Value
from decgraph.runtime import trace

if TYPE_CHECKING:
    from decgraph.runtime.session import Session

__all__ = ["accept", "driven_by", "emit", "parse_dim", "parse_type", "reject", "typed_op", "until_done", "walk"]


class _Nothing:
    """What `accept` is given by a rule that goes on."""


_NOTHING = _Nothing()


Taken = TorchDraws | Edit | int | None
"""The child that a rule takes: a draw, an edit of a canvas, of a rule over a whole tree a node; None: none."""
Token = TorchDraws | int | None
Verdict = tuple[bool, Taken, bool, Token]
"""The verdict of a rule at a node: whether it accepts a child, the child, whether it emits a token, the token."""
Rule = Callable[[int, object, object], Verdict]


def walk(m: Machine, t: TorchTree, evidence: object, rule: Rule, *, scope: str = "node") -> TorchPath | Canvas:
    """The accepted path, or for a tree of canvases the canvas at the accepted node. rule(depth, evidence at the node, the
    draws below it) returns (accepts, child, emits, token); with scope "tree", rule(0, tree, evidence) returns a node."""
    edits = isinstance(t.base, Canvas)
    if scope == "tree":
        has, taken, emits, token = rule(0, t, evidence)
        end = whole(taken) if has else 0
        if m.recorder is not None and not edits:
            for parent in range(len(t)):
                below = t.children(parent)
                row = _evidence_at(evidence, parent) if len(below) else _MISSING
                offer(m, t, row, below, t.draws(below) if len(below) else ())
        report_tree(m, t, end)
        emitted = token if emits else None
        report_emitted(m, t, end, _evidence_at(evidence, end), emitted)
        return _walked(t, end, emitted)
    node, depth = 0, 0
    while True:
        row = _evidence_at(evidence, node)
        if row is _MISSING:
            return _walked(t, node, None)
        children = t.children(node)
        if edits:
            draws: Draws | np.ndarray = objects([t.edges[int(c)] for c in children])
        else:
            draws = t.draws(children)
            if isinstance(draws, TorchDraws):
                draws.ids = children
        has, taken, emits, token = rule(depth, row, draws)
        if m.recorder is not None and not edits:
            offer(m, t, row, children, draws)
        if len(children):
            m.tally.test(depth + 1, bool(has))
        if not has:
            emitted = token if emits else None
            if m.listener is not None:
                report_step(m, t, children, None, depth)
            report_emitted(m, t, node, row, emitted)
            return _walked(t, node, emitted)
        child = _child(children, draws, taken)
        if m.listener is not None:
            report_step(m, t, children, child, depth)
        if edits:
            if m.recorder is not None and isinstance(t.base, Canvas):
                m.recorder.canvas(t.context.length, len(t.base))
            decided(m, t.edges[child])
        node, depth = child, depth + 1
        if emits:
            return _walked(t, node, token)


def _child(children: Ids, draws: Draws | np.ndarray, taken: Taken) -> int:
    """The node of the draw that a rule accepted: that draw's own, else the first with its token."""
    if isinstance(draws, Mixed):
        for c, d in zip(children, draws.items):
            if d is taken:
                return int(c)
        assert isinstance(taken, TorchDraws)
        return int(children[[int(d.tokens) for d in draws.items].index(int(taken.tokens))])
    if isinstance(draws, TorchDraws):
        assert isinstance(taken, TorchDraws)
        return int(taken.ids) if taken.ids is not None else int(children[list(draws.tokens).index(int(taken.tokens))])
    for c, d in zip(children, draws):
        if d is taken:
            return int(c)
    return int(children[list(draws).index(taken)])


class _Missing:
    """Evidence that was not computed at a node."""


_MISSING = _Missing()


def _evidence_at(evidence: object, node: int) -> object:
    if isinstance(evidence, TorchDist):
        try:
            return evidence.take(node)
        except (LookupError, IndexError):
            return _MISSING
    if isinstance(evidence, list | np.ndarray):
        return _MISSING if node >= len(evidence) or evidence[node] is None else evidence[node]
    return evidence


def _token(x: TorchDraws | int) -> int:
    return int(x.tokens) if isinstance(x, TorchDraws) else int(x)


def _walked(t: TorchTree, node: int, emitted: TorchDraws | int | None) -> TorchPath | Canvas:
    if isinstance(t.base, Canvas):
        return canvas_at(t, node)
    token = None if emitted is None else _token(emitted)
    return path_of(t, node, token, emitted if isinstance(emitted, TorchDraws) else None)


def decided(m: Machine, edge: Edge) -> None:
    """The statistics and the event of an edit that was accepted."""
    assert isinstance(edge, Edit)
    unmasked(m, [edge.position], [edge.token], edge.value if isinstance(edge.value, TorchDraws) else None)


def report_step(m: Machine, t: TorchTree, children: Ids, child: int | None, depth: int) -> None:
    """The events of one node's children: which were rejected, and which was accepted."""
    for c in children:
        if c == child:
            m.emit_event(trace.Accepted(int(c), int(t.token[c]), depth + 1))
            return
        m.emit_event(trace.Rejected(int(c), int(t.token[c]), depth + 1, "the rule did not take it"))


def report_emitted(m: Machine, t: TorchTree, node: int, row: object, emitted: Token) -> None:
    """The event of a token that a rule emitted after a node, if it did, whose evidence is `row`."""
    if emitted is not None and m.listener is not None and not isinstance(t.base, Canvas):
        told = probabilities(row, _token(emitted)) if m.recorder is not None else ()
        m.tell_emitted(_token(emitted), int(t.depth[node]), bool(len(t.children(node))), *told)


def report_tree(m: Machine, t: TorchTree, end: int) -> None:
    """The tally and the events of a rule over a whole tree that accepted the node `end`."""
    taken = t.path_nodes(end)[1:]
    for depth in range(len(taken)):
        m.tally.test(depth + 1, True)
    if len(t.children(end)):
        m.tally.test(len(taken) + 1, False)
    if m.listener is None:
        return
    for depth, n in enumerate(taken):
        for c in t.children(int(t.parent[n])):
            if c != n and c < n:
                m.emit_event(trace.Rejected(int(c), int(t.token[c]), depth + 1, "the rule took another path"))
        m.emit_event(trace.Accepted(n, int(t.token[n]), depth + 1))
    for c in t.children(end):
        m.emit_event(trace.Rejected(int(c), int(t.token[c]), len(taken) + 1, "the path that the rule took ends before it"))


def accept(child: Taken, emit: Token | _Nothing = _NOTHING) -> Verdict:
    """Go on at a child; with `emit`, end there with a token."""
    return (True, child, False, None) if isinstance(emit, _Nothing) else (True, child, True, emit)


def emit(token: Token) -> Verdict:
    """End at this node, with a token after it."""
    return False, None, True, token


def reject() -> Verdict:
    """End at this node, without a token."""
    return False, None, False, None


def until_done(m: Machine, where: str) -> Iterator[int]:
    """The number of each decoding step until the request has ended. Raises DecError where a step commits nothing."""
    step = 0
    while not m.done():
        m.check_progress(where, step)
        yield step
        step += 1


def typed_op(opcode: str, *operands: str, results: tuple[str, ...] = (), **attrs: object) -> Computes:
    """The torch lowering of an op that depends on the types of its operands, such as how two vectors line up:
    `typed_op("gather", "real[nodes.t]", "node<t>")` is a function of the machine and the two."""
    types = tuple(map(parse_type, operands))
    made = tuple(map(parse_type, results)) or tuple(lookup(opcode).type(types, attrs, ()))
    lowered = lower(Op(opcode, tuple(Value(t) for t in types), attrs, (), tuple(Value(t) for t in made)))
    fn = lowered.fn
    if lowered.machine and not lowered.kwargs:
        return fn

    def call(m: Machine, *values: object) -> object:
        return fn(m, *values, **lowered.kwargs) if lowered.machine else fn(*values)

    return call


def driven_by(printed: ModuleType, session: Session) -> Session:
    """The session, with its requests run by a printed module: by one function for each algorithm, named after it.

    `session` is of the algorithm that was printed. A request that runs an algorithm for which the module has no
    function ends with a DecError.
    """
    from decgraph.backends.torch.driver import Driver
    from decgraph.backends.torch.machine import TorchMachine

    def found(function: Function) -> Driver:
        title = function_name(function.name)
        own = {s.name: f"start_{title}_{s.name}" for s in function.states}  # where another function has a state of this name
        starts = {s: name if hasattr(printed, name) else f"start_{s}" for s, name in own.items()}
        for name in (title, *starts.values()):
            if not hasattr(printed, name):
                raise DecError(f"{printed.__name__} has no function {name}", hint="print it again with --emit python")
        states = {s: getattr(printed, name) for s, name in starts.items()}
        return Driver(function.name, "", str(printed.__file__), getattr(printed, title), states)

    own = {"compiled": staticmethod(found), "__doc__": TorchMachine.__doc__}
    session.machine = type("PrintedMachine", (TorchMachine,), own)
    return session
