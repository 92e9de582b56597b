"""Canvas programs on the device: canvases, models, noise and draws. Ops over vectors are in canvas_vectors.py."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.torch.lowering import lower
from decgraph.backends.torch.rows import locate
from decgraph.backends.triton.step.canvas_rows import CanvasRows, CanvasVectors, onehot, tokens_of, vector
from decgraph.backends.triton.step.canvas_step import form
from decgraph.backends.triton.step.canvas_symbols import plain, written
from decgraph.backends.triton.step.canvas_values import (
    CanvasDist,
    CanvasDraws,
    CanvasNoise,
    DeviceCanvas,
    DeviceCanvasMemory,
    Edit,
    Live,
    Num,
    both,
)
from decgraph.backends.triton.step.evaluate import NotCapturable
from decgraph.ir.values import Op


# -- canvases
@form("canvas.new")
def new(s: Any, op: Op, length: Any, *capacity: Any) -> DeviceCanvas:
    """Masked cells after each sequence's context."""
    n = min(int(length), s.fields["canvas_room"])
    if n != s.length:
        raise NotCapturable(f"a canvas of {n} cells beside one of {s.length}", op)
    return DeviceCanvas(
        torch.full((s.batch, n), -1, dtype=torch.int64, device=s.device),
        torch.zeros(s.batch, dtype=torch.int64, device=s.device),
    )


@form("canvas.get")
def get(s: Any, op: Op, c: DeviceCanvas) -> Any:
    """A field over all positions."""
    field = op.attrs["field"]
    if field in ("length", "all"):
        return len(c) if field == "length" else np.arange(len(c))
    if field in ("masked", "decided"):
        return Live(c.masked if field == "masked" else ~c.masked)
    if field == "token":
        if s.fields["mask"] < 0:  # as an index it would be out of bounds, which aborts the CUDA context
            raise NotCapturable("the model has no token for masked cells", op)
        return Live(torch.where(c.masked, s.fields["mask"], c.tokens))
    raise NotCapturable(f"a canvas's .{field} is the host's", op)


@form("canvas.put")
def put(s: Any, op: Op, c: DeviceCanvas, ps: Any, *rest: Any) -> DeviceCanvas:
    """Decide cells, or mask them again."""
    kind, masked = op.attrs["kind"], c.masked
    if kind == "soft":
        raise NotCapturable("soft cells run on the host", op)
    ids, live = _places(s, ps)
    chosen = torch.ones(s.batch, ids.shape[1], dtype=torch.bool, device=s.device) if live is None else live
    if op.attrs.get("has_mask"):
        mask, dims = rest[-1], op.operands[-1].type.dims
        if isinstance(mask, Live) and dims and dims[0].kind == "cells":
            chosen = chosen & mask.data.gather(1, ids)
        elif isinstance(mask, Live):
            chosen = chosen & (mask.data if mask.live is None else mask.data & mask.live)
        else:
            chosen = chosen & s.truth_of(mask)[:, None]
    if kind == "mask":
        chosen = chosen & ~masked.gather(1, ids)
        tokens: Tensor = torch.full_like(ids, -1)
    else:
        if op.attrs.get("open"):
            chosen = chosen & masked.gather(1, ids)
        tokens = _values(s, op, rest[0], ids)
    decided = c.decided if kind == "mask" else c.decided + chosen.sum(1)
    return DeviceCanvas(written(c.tokens, ids, chosen, tokens), decided)


def _places(s: Any, ps: Any) -> tuple[Tensor, Tensor | None]:
    """(int64[B, N], bool[B, N] of those present or None) of positions."""
    if isinstance(ps, Live):
        if not isinstance(ps.data, Tensor):
            return s.constant(ps.data)[None].expand(s.batch, -1), ps.live
        return ps.data.clamp(0, s.length - 1), ps.live  # absent ones may be any number
    if isinstance(ps, Num):
        return ps.data[:, None].clamp(0, s.length - 1), None
    return s.constant(np.ravel(np.asarray(ps, dtype=np.int64)))[None].expand(s.batch, -1), None


def _values(s: Any, op: Op, x: Any, ids: Tensor) -> Tensor:
    """int64[B, N]: a token for each position: lined up with them, read at them, or the same for all."""
    dims = op.operands[2].type.dims
    if isinstance(x, Num):
        return x.data.long()[:, None].expand(ids.shape)
    if isinstance(x, CanvasDraws | Live):
        tokens = tokens_of(x, s.stream)
        if not dims:
            return tokens[:, :1].expand(ids.shape)
        if dims[0].kind == "cells":
            return tokens.gather(1, ids)
        if tokens.shape[1] != ids.shape[1]:
            raise NotCapturable("positions and tokens of different lengths", op)
        return tokens
    return s.constant(np.asarray(x, dtype=np.int64)).expand(ids.shape)


@form("positions")
def positions(s: Any, op: Op, *xs: Any) -> Any:
    """Static sets of positions."""
    if any(isinstance(x, Num | Live) for x in xs):
        raise NotCapturable("the positions depend on data", op)
    known = lower(op)
    return known.fn(s, *xs, **known.kwargs)


@form("edit")
def edit(s: Any, op: Op, position: Any, token: Any) -> Edit:
    """A cell and its token."""
    return Edit(position, token)


@form("edit.get")
def edit_get(s: Any, op: Op, e: Edit) -> Any:
    """A field of an edit."""
    if op.attrs["field"] not in ("position", "token"):
        raise NotCapturable(f"an edit's .{op.attrs['field']} is read on the host", op)
    return e.position if op.attrs["field"] == "position" else e.token


@form("commit")
def commit(s: Any, op: Op, c: Any, *tree: Any) -> None:
    """Keep the canvas: its decided cells are committed at the end."""
    if not isinstance(c, DeviceCanvas) or s.committed is not None:
        raise NotCapturable("the program commits something else than one canvas at the end", op)
    s.committed = c


# -- models
@form("model.eval")
def evaluate(s: Any, op: Op, model: Any, c: Any, *extra: Any) -> CanvasDist:
    """The distributions of a canvas's cells."""
    if not isinstance(c, DeviceCanvas):
        raise NotCapturable("a masked model is called on something else than a canvas", op)
    at, given = _asked(op, extra)
    s.calls[s.name_of(model)] += 1 if s.active is None else plain(s.active).long()
    scores, _ = _called(s, op, model, c, at, given)
    which = np.arange(len(c)) if at is None else np.ravel(np.asarray(at, dtype=np.int64))
    rows = CanvasRows(scores, s.shaper, s.base, which, s.check)
    return CanvasDist(rows, np.arange(len(which)), "shaped", None, None if at is None else which)


@form("model.memory")
def memory(s: Any, op: Op, model: Any, c: Any, *extra: Any) -> DeviceCanvasMemory:
    """A model's memory of a canvas."""
    at, given = _asked(op, extra)
    if at is not None and not len(at) and given is None:
        empty: DeviceCanvasMemory = model.nothing()
        return empty
    _, kept = _called(s, op, model, c, at, given)
    assert kept is not None
    return kept


@form("memory.only")
def only(s: Any, op: Op, cached: DeviceCanvasMemory, ps: Any) -> DeviceCanvasMemory:
    """A memory restricted to positions, or without them."""
    if isinstance(ps, Live | Num):
        raise NotCapturable("the cells of a memory depend on data", op)
    return cached.restrict(ps, op.attrs["kind"])


def _asked(op: Op, extra: tuple[Any, ...]) -> tuple[Any, DeviceCanvasMemory | None]:
    """(positions or None, memory or None) of a call."""
    named = dict(zip(op.attrs["with"], extra, strict=True))
    if set(named) - {"at", "given"}:
        raise NotCapturable(f"a model call with {', '.join(sorted(set(named) - {'at', 'given'}))}", op)
    at = named.get("at")
    if isinstance(at, Live | Num):
        raise NotCapturable("the cells of a call depend on data", op)
    return at, named.get("given")


def _called(s: Any, op: Op, model: Any, c: DeviceCanvas, at: Any, given: DeviceCanvasMemory | None) -> Any:
    """(scores, memory): one forward for a call's scores and its memory."""
    key = (
        id(model),
        id(c),
        None if at is None else np.asarray(at).tobytes(),
        None if given is None else (given.cached.tobytes(), given.prompt, given.serial),
    )
    if key not in s.made:
        s.made[key] = (model.call(c, at, given, s.keeps(op), s.active), c)  # c is kept alive, so that its id is unique
    return s.made[key][0]


# -- noise and draws
@form("noise")
def noise(s: Any, op: Op, *counters: Any) -> CanvasNoise:
    """A noise key; nothing is drawn yet."""
    kind, site = op.attrs["kind"], op.attrs["site"]
    if kind == "output":
        if counters and isinstance(counters[0], Live):
            raise NotCapturable("an output index for each cell", op)
        return CanvasNoise(kind, site, (), counters[0] if counters else None)
    return CanvasNoise(kind, site, counters)


@form("face")
def face(s: Any, op: Op, d: CanvasDist) -> CanvasDist:
    """Another view of the same rows."""
    return replace(d, face=op.attrs["face"])


@form("draw")
def draw(s: Any, op: Op, q: Any, key: CanvasNoise) -> CanvasDraws:
    """One draw from each distribution. The number of an element's draw at its site is its index among the present ones."""
    if not isinstance(q, CanvasDist):
        raise NotCapturable("a draw from numbers that are no distribution", op)
    lane: Any = np.arange(q.size)
    if q.live is not None:
        lane = q.live.long().cumsum(1) - 1
    return CanvasDraws(q, key, lane, live=q.live, at=q.at)


@form("draw.point")
def point(s: Any, op: Op, x: Any) -> CanvasDraws:
    """Certain drafts."""
    return CanvasDraws(tokens=tokens_of(x, s.stream), live=getattr(x, "live", None), point=True)


@form("draw.get")
def draw_get(s: Any, op: Op, x: CanvasDraws) -> Any:
    """The tokens of draws, or their laws."""
    field = op.attrs["field"]
    if field == "token":
        return Live(tokens_of(x, s.stream), x.live)
    if field == "law" and x.point:
        assert x.tokens is not None
        size = op.result.type
        values = CanvasVectors(None, ones=x.tokens, size=s.fields["vocab_size"])
        return (
            CanvasDist(values, np.arange(x.tokens.shape[1]), "shaped", x.live)
            if size.dims
            else CanvasDist(values, np.zeros((), int))
        )
    if field == "law" and x.dist is not None:
        return x.dist
    raise NotCapturable(f"a draw's .{field} is the host's", op)


@form("draw.many")
def draw_many(s: Any, op: Op, q: Any, k: Any, key: CanvasNoise) -> Live:
    """All elements of a uniform distribution in the order of their race: a shuffle."""
    if op.attrs["replace"] or not isinstance(q, CanvasDist) or q.ids.ndim or not isinstance(q.rows, CanvasVectors):
        raise NotCapturable("several draws of one distribution of a canvas", op)
    probs = vector(q)[:, 0]
    words = s.stream.words(key, np.zeros(1, dtype=np.int64))
    times = s.stream.exponentials(words, int(probs.shape[-1]))[:, 0]
    runs = probs > 0
    race = torch.where(runs, torch.log(probs) - torch.log(times), -torch.inf)
    order = torch.sort(race, dim=-1, descending=True, stable=True).indices
    count = runs.sum(-1).clamp_max(k.data if isinstance(k, Num) else int(k))
    places = torch.arange(order.shape[1], device=order.device)
    return Live(order, places < count[:, None], packed=True)


@form("bernoulli")
def bernoulli(s: Any, op: Op, p: Any, key: CanvasNoise) -> Live:
    """True with the given probabilities."""
    if not isinstance(p, Live) or p.live is not None:
        raise NotCapturable("a data-dependent number of Bernoulli draws", op)
    words = s.stream.words(key, np.arange(p.size))
    coins = s.stream.uniforms(words, 1)[..., 0] < p.data
    s.fault(torch.isnan(p.data))
    return Live((p.data >= 1) | ((p.data > 0) & coins))


@form("lookup")
def lookup(s: Any, op: Op, p: Any, x: Any) -> Live:
    """float64: the probability of a token in each distribution."""
    if not isinstance(p, CanvasDist) or not p.ids.ndim:
        raise NotCapturable("a look-up in something else than a vector of distributions", op)
    tokens = tokens_of(x, s.stream)
    if tokens.shape[1] != p.size:
        raise NotCapturable("distributions and tokens of different lengths", op)
    return Live(s.lazy(p.rows.at(p.face, p.ids, tokens)).double(), both(p.live, getattr(x, "live", None)))


@form("info")
def info(s: Any, op: Op, p: Any, *more: Any) -> Live:
    """The entropy of each distribution, in nats."""
    if more or not isinstance(p, CanvasDist) or not p.ids.ndim:
        raise NotCapturable("this information about distributions is computed on the host", op)
    return Live(s.lazy(torch.special.entr(vector(p)).sum(-1)), p.live)


@form("normalize")
def normalize(s: Any, op: Op, w: Any) -> CanvasDist:
    """Weights over their sum, as a distribution."""
    if not isinstance(w, Live) or w.data.ndim != 2:
        raise NotCapturable("weights of several rows", op)
    data = w.data.double() if w.live is None else torch.where(w.live, w.data, 0).double()
    mass = data.sum(-1, keepdim=True)
    probs = data / torch.where(mass > 0, mass, 1.0)
    return CanvasDist(CanvasVectors(probs[:, None]), np.zeros((), dtype=np.int64))


def located(at: Any, ids: Any) -> np.ndarray:
    """Indices int64[n] of positions in a part with positions `at` (None: the whole)."""
    return np.asarray(locate(at, ids), dtype=np.int64)


__all__ = ["located", "onehot"]
