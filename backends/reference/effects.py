"""Side effects: commits, results, the stop machine and sub-runs."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from decgraph.backends.reference.protocols import Machine, RowSource
from decgraph.backends.run import Stop, no_token
from decgraph.errors import DecError, InternalError
from decgraph.ir.data.canvas import Canvas
from decgraph.ir.data.dist import Draw, Draws, Path, Symbol, resolve_path
from decgraph.ir.data.tree import Tree, edge_token
from decgraph.ir.machine import Datum
from decgraph.ir.ops.common import is_context
from decgraph.ir.values import Op
from decgraph.runtime import trace
from decgraph.runtime.models.interface import Model, Scores
from decgraph.runtime.stop import StopMachine

NUMBERS = (bool, int, float, Fraction, np.ndarray, np.generic)


def commit(m: Machine, op: Op, x: Datum, tree: Tree | None) -> None:
    """Feed tokens to the stop machine; cut exactly where it fires."""
    fed: list[int] = []
    tokens = m.commit_tokens(x, tree)
    for token in tokens:
        if m.done():
            break
        t = token.token if isinstance(token, Draw) else int(token)
        m.tokens.append(t)
        fed.append(t)
        m.stop_state = StopMachine.feed(m.stop_state, t)
        if m.until is not None and m.until(m):
            break
    m.learn_committed(fed)
    cut = len(tokens) - len(fed)
    if fed or cut:
        m.emit_event(trace.Committed(tuple(fed), cut))
    if m.until is not None and m.until(m):
        raise Stop


def commit_tokens(m: Machine, x: Datum, tree: Tree | None) -> list[Symbol]:
    """The tokens that a value stands for where it is committed or returned. Raises DecError for a whole tree."""
    if isinstance(x, Path):
        return list(x.tokens)
    if isinstance(x, Canvas):
        return x.decided_prefix()[max(0, len(m.tokens) - len(x.base)) :]
    if is_context(x):
        return list(x[len(m.tokens) :])
    if isinstance(x, Tree):
        raise DecError("commit takes a node or an accepted path, not a whole tree", hint="commit t.accepted")
    if isinstance(x, Draws):
        drawn = list(x.items.ravel())
        if any(d is None for d in drawn):
            raise no_token()
        return drawn
    if tree is not None:
        return tree.tokens(int(np.asarray(x)))
    if isinstance(x, list):
        return [t for part in x for t in m.commit_tokens(part, None)]
    return [int(t) for t in np.ravel(np.asarray(x))]


def returned(m: Machine, op: Op, values: Sequence[Datum]) -> None:
    """n-best results: paths of tokens."""
    values = list(values)
    tree = values.pop() if op.attrs.get("has_tree") else None
    for v in values:
        if isinstance(tree, Tree) and not isinstance(v, Path | list):
            m.results += [resolve_path(tree.tokens(int(n))) for n in np.ravel(np.asarray(v))]
        elif isinstance(v, list):
            m.results += [resolve_path(m.commit_tokens(p, None)) for p in v]
        else:
            m.results.append(resolve_path(m.commit_tokens(v, None)))


def ended(m: Machine, x: Datum, tree: Tree | None) -> Datum:
    """The stop machine along a path from the committed context."""

    def fires(tokens: Sequence[Symbol]) -> bool:
        state = m.stop_state
        for t in tokens:
            if state.done:
                return True
            state = StopMachine.feed(state, edge_token(t) if not isinstance(t, int) else t)
        return bool(state.done) or (m.window is not None and len(m.tokens) + len(tokens) > m.window)

    if isinstance(x, Path):
        return fires(x.tokens)
    if is_context(x):
        return fires(x[len(m.tokens) :])
    if tree is not None:
        ids = np.asarray(x)
        if ids.ndim == 0:
            return fires(tree.tokens(int(ids)))
        return np.array([fires(tree.tokens(int(i))) for i in ids], dtype=bool)
    return fires(m.commit_tokens(x, None))


# -- early ends
def check_end(m: Machine, op: Op, values: Sequence[Datum], yielded: Sequence[Datum]) -> None:
    """What a `break` or `verdict` says against what its loop or rule yields on that way. Raises InternalError where they
    differ: other machines leave by the op."""
    stops = [] if op.opcode == "verdict" else yielded[:1]
    agree = all(map(m.num.truth, stops)) and all(map(same, values, yielded[len(stops) :]))
    if not agree:
        raise InternalError(f"{op.loc}: `{op.opcode}` has other values than what it ends yields")


def same(a: Datum, b: Datum) -> bool:
    """Whether two values are the same: one object, or equal numbers."""
    return a is b or isinstance(a, NUMBERS) and isinstance(b, NUMBERS) and np.array_equal(np.asarray(a), np.asarray(b))


# -- sub-runs
def sub_run(
    m: Machine, op: Op, start: Datum, bound: int, args: dict[str, Datum], tree: Datum, counters: Sequence[Datum]
) -> Path:
    """Run another function on a scratch context until its condition holds."""
    if is_context(start):
        base = resolve_path(start)
    else:
        assert isinstance(tree, Tree)
        base = resolve_path(m.context() + tuple(tree.tokens(int(np.asarray(start)))))
    sub = m.inner_run(op.attrs["callee"], op.attrs["site"], base, bound, args, counters)
    sub.adopt(m)

    def until(inner: Machine) -> bool:
        return m.num.truth(m.region(op.regions[0], (Path(inner.tokens[inner.base :], base=inner.base),))[0])

    sub.until = until
    try:
        sub.run()
    except Stop:
        pass
    model = next(iter(sub.models.values()), None)
    tokens = [path_draw(m, model, tuple(sub.tokens[: sub.base + i]), t) for i, t in enumerate(sub.tokens[sub.base :])]
    return Path(tokens, base=len(base))


def path_draw(m: Machine, model: Model | None, path: tuple[int, ...], token: int) -> Draw:
    """A token of a sub-run, with its raw probability under the model that drew it, computed only when read."""

    def scores() -> Scores:
        assert model is not None
        return model.eval([path], None)[0]

    row = m.model_row(RowSource(model, scores, path))
    return Draw(token, row, "raw", source=row)


def adopt(m: Machine, parent: Machine) -> None:
    """Take what a sub-run shares with the run it belongs to."""
