"""Model calls of the reference: every call is computed from the whole state at its place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal, cast

import numpy as np

from decgraph.backends.reference import canvas_calls
from decgraph.backends.reference.cells import CausalCells, FeatureCells, canvas_key
from decgraph.backends.reference.places import as_context, beginnings, is_soft, path_of_place, second_context, text_of_place
from decgraph.backends.reference.protocols import Context, Machine, RowSource
from decgraph.backends.reference.rows import allowed_at, row_of_scores
from decgraph.backends.reference.values import ReferenceMemory, memory_of
from decgraph.errors import DecError
from decgraph.ir import machine
from decgraph.ir.data.canvas import Canvas
from decgraph.ir.data.dist import Dist, Draw, Draws, Row, box, box0, resolve_path
from decgraph.ir.data.hidden import joint, states_value
from decgraph.ir.data.numbers import Number
from decgraph.ir.data.tree import Tree
from decgraph.ir.drafting import drafting
from decgraph.ir.machine import Datum
from decgraph.ir.values import Op
from decgraph.runtime import trace
from decgraph.runtime.models.attention_logits import logits_of_queries
from decgraph.runtime.models.derive import derive as derived
from decgraph.runtime.models.derive import halves
from decgraph.runtime.models.features import states_at
from decgraph.runtime.models.interface import LayerMemory, Memory, Model, Scores
from decgraph.runtime.models.reading import Reading, valued


def model_of(model: machine.Model) -> Model:
    """A model of a program, as its caller handed it over or the program derived it."""
    return cast(Model, model)


def count_call(m: Machine, model: Model, rows: int, cells: int, computed: int | None = None, *, drafts: bool = False) -> None:
    """Count a call, unless it is of nothing or all of its positions were cached (`computed` 0). drafts: the
    model drafts for itself."""
    if m.joined is not None:
        m.joined.append((rows, cells, computed))
        return
    if computed == 0 or rows == cells == 0:
        return
    role: Literal["target", "draft"] = "target" if model is m.whole.main and not drafts else "draft"
    if role == "target":
        m.whole.note_call()
    m.emit_event(trace.ModelCall(drafting(model.name) if drafts else model.name, rows, cells, role, computed))


def evaluate(m: Machine, op: Op, model: machine.Model, place: Datum, extra: dict[str, Datum]) -> Dist:
    """The meaning of `model.eval`."""
    called = model_of(model)
    if op.attrs.get("part") == "heads":
        return eval_heads(m, op, called, place, extra)
    if isinstance(place, Canvas) or (isinstance(place, Tree) and isinstance(place.base, Canvas)):
        return m.eval_canvases(op, called, place, extra)
    found, shape, ids = m.place_states(place, extra)
    states = list(map(as_context, found))
    if isinstance(place, Tree):
        nodes = list(range(len(states)))
    else:
        nodes = [int(i) for i in np.asarray(place).ravel()] if "tree" in extra else [0] * len(states)
    scores, computed = reached(m, op, called, states, memory_of(extra.get("given")))
    m.count_call(called, len(states), sum(len(s) for s in states), computed, drafts=bool(op.attrs.get("drafts")))
    allow = extra.get("allow")
    rows = [m.model_row(RowSource(called, scores[i], s, nodes[i], allowed_at(allow, i))) for i, s in enumerate(states)]
    return Dist(box0(rows[0])) if shape == () else Dist(box(rows).reshape(shape), "shaped", ids)


def reached(
    m: Machine, op: Op, model: Model, states: Sequence[Context], memory: Memory | None
) -> tuple[list[Callable[[], Scores]], int | None]:
    """The scores after each path, and how many positions were computed for them (None: all)."""
    store = store_of(m, op, model)
    if store is None or any(map(is_soft, states)):
        return m.score_paths(model, states, memory), None
    paths = [resolve_path(s) for s in states]
    if isinstance(store, FeatureCells):
        assert memory is not None, "a head on features reads a memory of the target"
        scores, computed = store.scores(paths, memory)
    else:
        scores, computed = store.scores(paths)
    return [partial(Scores.to_float, s) for s in scores], computed


def store_of(m: Machine, op: Op, model: Model) -> CausalCells | FeatureCells | None:
    """The KV cache that a call continues; None where it computes from scratch. The exact checker always does: it must not
    read a draw before the program does."""
    store = None if m.num.exact else m.caches.store(op, model)
    return store if isinstance(store, CausalCells | FeatureCells) else None


def evaluate_parts(m: Machine, op: Op, model: machine.Model, parts: Sequence[tuple[Datum, dict[str, Datum]]]) -> list[Dist]:
    """The meaning of `model.evals`: every part as if alone, counted as one call."""
    counts: list[tuple[int, int, int | None]] = []
    m.joined = counts
    try:
        out = [m.evaluate(op, model, place, extra) for place, extra in parts]
    finally:
        m.joined = None
    cached = any(computed is not None for _, _, computed in counts)
    new = sum(cells if computed is None else computed for _, cells, computed in counts) if cached else None
    m.count_call(model_of(model), sum(c[0] for c in counts), sum(c[1] for c in counts), new)
    return out


def read_tokens(m: Machine, op: Op, model: machine.Model, tokens: Datum, memory: machine.Memory | None = None) -> Dist:
    """The meaning of `model.read`. Constraints and shaping are those after the committed context, whatever was read: they
    are the request's, and what is drawn may be committed."""
    called = model_of(model)
    text = text_of_place(tokens)
    each = bool(op.attrs.get("each"))
    texts = beginnings(text, each)
    m.count_call(called, len(texts), len(text))
    found = m.score_paths(called, texts, memory_of(memory))
    rows = [m.model_row(RowSource(called, scores, m.context(), i)) for i, scores in enumerate(found)]
    return Dist(box(rows) if each else box0(rows[0]))


def eval_heads(m: Machine, op: Op, model: Model, place: Datum, extra: dict[str, Datum]) -> Dist:
    """The distributions of a model's further heads (Medusa) at a place."""
    places, shape, ids = m.place_states(place, extra)
    states = list(map(as_context, places))
    store = store_of(m, op, model)
    found: list[list[Row]] = []
    new: int | None = 0
    for i, state in enumerate(states):
        path = resolve_path(state)
        got, computed = store.heads(path) if isinstance(store, CausalCells) else (model.heads(path), None)
        new = None if new is None or computed is None else new + computed
        allow = allowed_at(extra.get("allow"), i)
        scores = [row_of_scores(s if m.num.exact else s.to_float()) for s in got]
        found.append([m.model_row(RowSource(model, s, state, None, allow, len(path) + h)) for h, s in enumerate(scores, 1)])
    if new != 0:
        m.emit_event(trace.ModelCall(model.name + ".heads", len(states), sum(len(s) for s in states), "draft", new))
    rows = np.empty((len(states), len(found[0]) if found else 0), dtype=object)
    for i, here in enumerate(found):
        rows[i] = here
    return Dist(rows.reshape(rows.shape[1:])) if shape == () else Dist(rows.reshape(*shape, -1), "shaped", ids)


# -- hidden states, and heads that read them
def states(m: Machine, op: Op, trunk: machine.Model, place: Datum, extra: dict[str, Datum]) -> np.ndarray:
    """The meaning of `model.states`: real[n, width], or real[width] of a single place."""
    called = model_of(trunk)
    if isinstance(place, Canvas):
        cells, at = m.cells(place), extra.get("at")
        which = [int(i) for i in np.ravel(np.asarray(at))] if at is not None else range(len(place))
        m.count_call(called, len(which), len(cells))
        base = len(cells) - len(place)
        return states_value(called.after(base).canvas_states(cells, [base + i for i in which]), (len(which),))
    text = second_context(place, extra)
    shape: tuple[int, ...]
    if text is None:
        found, shape, _ = m.place_states(place, extra)
        ends = [resolve_path(as_context(s)) for s in found]
    else:
        ends = beginnings(text, bool(op.attrs.get("each")))
        shape = (len(text),) if op.attrs.get("each") else ()
    m.count_call(called, len(ends), sum(map(len, ends)))
    return states_value(states_at(called, ends, memory_of(extra.get("given"))), shape)


def read_head(m: Machine, op: Op, head: machine.Model, place: Datum, tree: Datum) -> Datum:
    """The meaning of `head.read`."""
    called = model_of(head)
    states, shape, _ = m.place_states(place, {"tree": tree})
    paths = [resolve_path(as_context(s)) for s in states]
    values = m.head_values(called, paths)
    m.emit_event(trace.ModelCall(called.name, len(paths), sum(map(len, paths)), "draft", None))
    return valued(m, op.result.type.elem, values, shape)


def head_values(m: Machine, head: Model, paths: list[tuple[int, ...]]) -> Sequence[Number]:
    """What a head says after each path."""
    return head.read(paths)


def read_states(m: Machine, op: Op, head: machine.Model, states: Datum, layer: Datum = None, token: Datum = None) -> Datum:
    """The meaning of `head.read` of hidden states."""
    called = model_of(head)
    rows = rows_of(states)
    m.emit_event(trace.ModelCall(called.name, len(rows), 0, "draft", None))
    values = m.state_values(called, rows, number_of(layer), ids(token))
    return valued(m, op.result.type.elem, values, np.shape(np.asarray(states))[:-1])


def state_values(m: Machine, head: Model, rows: np.ndarray, layer: int | None, tokens: list[int] | None) -> Sequence[Number]:
    """What a head says of hidden states [n, width], each with the token beside it if there are tokens."""
    return cast(Reading, head).of_states(rows, layer, tokens)


def score_states(m: Machine, op: Op, head: machine.Model, states: Datum, layer: Datum = None, token: Datum = None) -> Dist:
    """The meaning of `head.score`."""
    called = cast(Reading, head)
    rows = rows_of(states)
    m.emit_event(trace.ModelCall(called.name, len(rows), 0, "draft", None))
    scores = called.scores_of(rows, number_of(layer), ids(token), joint(op.operands[1].type))
    found = [
        m.model_row(RowSource(called, row_of_scores(one if m.num.exact else one.to_float()), m.context(), i))
        for i, one in enumerate(scores)
    ]
    return Dist(box(found).reshape(np.shape(np.asarray(states))[:-1]))


def rows_of(states: Datum) -> np.ndarray:
    """Hidden states as rows [n, width]."""
    array = np.asarray(states)
    return array.reshape(-1, array.shape[-1])


def number_of(layer: Datum) -> int | None:
    """The number of a layer, or None."""
    return None if layer is None else int(np.asarray(layer))


def ids(tokens: Datum) -> list[int] | None:
    """The ids of a token or a vector of tokens; None for none."""
    if tokens is None:
        return None
    found = tokens.tokens() if isinstance(tokens, Draws) else tokens.token if isinstance(tokens, Draw) else tokens
    return [int(t) for t in np.ravel(np.asarray(found))]


# -- memories and derived models
def memory(m: Machine, op: Op, model: machine.Model, place: Datum, extra: dict[str, Datum]) -> ReferenceMemory:
    """The meaning of `model.memory`. That of an empty context (`ctx.parent` after a prompt of one token) holds nothing."""
    called, memory = model_of(model), memory_of(extra.get("given"))
    if isinstance(place, Canvas):
        return canvas_memory(m, called, place, extra)
    path = path_of_place(m, place, extra)
    if not path and memory is not None:
        return ReferenceMemory(memory, 0)
    store = store_of(m, op, called)
    if isinstance(store, CausalCells) and memory is None:
        got, computed = store.memory(path)
        if computed:
            m.count_call(called, 0, len(path), computed)
        return ReferenceMemory(got, 0)
    return ReferenceMemory(called.memory(path, None, memory), 0)


def canvas_memory(m: Machine, model: Model, place: Canvas, extra: dict[str, Datum]) -> ReferenceMemory:
    """The memory of a canvas, or of its cells `at`."""
    at, memory = extra.get("at"), memory_of(extra.get("given"))
    if at is not None and np.size(np.asarray(at)) == 0 and memory is None:
        empty = Memory(model.family, len(place.base) + len(place), (LayerMemory({}, {}),) * model.layers)
        return ReferenceMemory(empty, len(place.base))
    fresh, seen = canvas_calls.fresh(place, at, memory)
    cells = m.cells(place)
    # Usually the call before computed it. Otherwise this is a model call like any other.
    key = canvas_key(cells, fresh, seen)
    if not m.num.exact and m.last_canvases.new(model, {key}, seen):
        m.count_call(model, 0, len(cells), len(cells) if seen is None or fresh is None else len(fresh))
        m.last_canvases.add_scores(model, key, len(place))  # a call of the same canvas right after it is this forward
    here = model.after(len(place.base))
    attention_logits = logits_of_queries(here, cells) if extra.get("queries") else None
    return ReferenceMemory(here.memory(cells, fresh, seen), len(place.base), attention_logits)


def attention(m: Machine, model: machine.Model, place: Datum, extra: dict[str, Datum]) -> np.ndarray:
    """The meaning of `model.attention`: prob[n] over the positions of the path. It is no call of its own, since the
    forward that computes a position has its weights. Raises DecError for an empty context."""
    path = path_of_place(m, place, extra)
    if not path:
        raise DecError("nothing attends in an empty context", hint="ctx.parent exists for prompts of two tokens or more")
    last = int(np.asarray(extra.get("last", 1)))
    values = model_of(model).attention(path, memory_of(extra.get("given")), last)
    found: np.ndarray = valued(m, "prob", values, (len(values),))
    return found


def restrict(m: Machine, mem: machine.Memory, positions: Datum, kind: str) -> ReferenceMemory:
    """The meaning of `memory.only` and `memory.without`."""
    assert isinstance(mem, ReferenceMemory)
    return mem.restrict([int(i) for i in np.ravel(np.asarray(positions))], kind)


def derive(m: Machine, op: Op, base: machine.Model, args: tuple[Datum, ...]) -> Model:
    """The meaning of `model.derive`."""
    how = "on" if op.attrs["how"] == "adapter" else str(op.attrs["how"])
    args = halves(args, op.attrs.get("named", ()))
    key = (how, id(base), tuple(id(a) if isinstance(a, Model) else str(a) for a in args))
    if key not in m.memo:
        m.memo[key] = (derived(model_of(base), how, *[a if isinstance(a, Model) else whole(a) for a in args]), base, args)
    found: Model = m.memo[key][0]
    return found


def whole(a: Datum) -> Datum:
    """NumPy's whole numbers as Python's; all else as it is."""
    return int(a) if isinstance(a, int | np.integer) else a
