"""Values of the reference as values of the torch backend, and both as plain data: what conformance compares."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from decgraph.backends.indexes import Continuations
from decgraph.backends.reference.values import ReferenceMemory as ReferenceHeld
from decgraph.backends.reference.values import SuffixSearch as ReferenceSuffixes
from decgraph.backends.torch.canvas_calls import CanvasMemory
from decgraph.backends.torch.canvases import Canvas, Edit
from decgraph.backends.torch.draws import TorchDraws, joined
from decgraph.backends.torch.prefixes import Context
from decgraph.backends.torch.rows import TorchDist, TorchVectors
from decgraph.backends.torch.stores import Suffixes
from decgraph.backends.torch.trees import TorchPath, TorchTree
from decgraph.ir.data import canvas as ir_canvas
from decgraph.ir.data import dist as ir_dist
from decgraph.ir.data import tree as ir_tree
from decgraph.runtime.models.engine.forward_call import Remembered
from decgraph.runtime.models.interface import Model

# -- from the reference to torch


def torch_value(value: Any, request: Any, *, tensors: bool = False) -> Any:
    """A value of the reference as torch has it. `tensors`: vectors of numbers as tensors, as those over the vocabulary are."""
    if isinstance(value, ir_dist.Dist):
        rows = [torch.from_numpy(np.asarray(r.face(value.face), np.float64)) for r in value.rows.ravel()]
        index = np.arange(len(rows)).reshape(value.shape)
        return TorchDist(TorchVectors(torch.stack(rows), request), index, value.face, value.at)
    if isinstance(value, ir_dist.Draw):
        return _draw(value, request)
    if isinstance(value, ir_dist.Draws):
        return _draw(value.items[()], request) if value.shape == () else joined([_draw(d, request) for d in value.flat()])
    if isinstance(value, ir_dist.Path):
        tokens = tuple(int(t) for t in value.tokens)
        return TorchPath(tokens, value.node, value.depth, value.emitted, (-1,) * len(tokens), (None,) * len(tokens))
    if isinstance(value, ir_tree.Tree):
        return _tree(value, request)
    if isinstance(value, ir_canvas.Canvas):
        return _canvas(value, request)
    if isinstance(value, ir_canvas.Edit):
        return Edit(value.position, torch_value(value.value, request))
    if isinstance(value, tuple) and all(isinstance(t, int) for t in value):
        return Context(list(value), len(value))
    if tensors and isinstance(value, np.ndarray) and value.dtype == np.float64:
        return torch.from_numpy(value.copy())
    return value


def _draw(d: ir_dist.Draw, request: Any) -> TorchDraws:
    rows = TorchVectors(torch.from_numpy(np.asarray(d.law_vector(), np.float64))[None], request)
    race = None if d.race is None else np.asarray(d.race)
    return TorchDraws(np.asarray(d.token), rows, np.asarray(0), d.law_face, point=d.point, race=race)


def _tree(t: ir_tree.Tree, request: Any) -> TorchTree:
    base = torch_value(t.base, request)
    out = TorchTree.start(base)
    for i, node in enumerate(t.nodes[1:]):
        edge = torch_value(node.edge, request)
        draw = joined([edge]) if isinstance(edge, TorchDraws) else None
        out = out.grow(
            draw,
            np.zeros(1, dtype=np.int64),
            np.array([node.edge.token]),
            np.array([node.parent]),
            np.array([node.depth]),
            np.array([i]),
            np.array([float(node.logprob)]),
            {name: [v] for name, v in node.columns.items()},
            [] if draw is not None else [edge],
        )
    from dataclasses import replace

    return replace(out, new=np.array(t.new), frontier=np.array(t.frontier))


def _canvas(c: ir_canvas.Canvas, request: Any) -> Canvas:
    out = Canvas(Context(list(c.base), len(c.base)), np.full(len(c), -1), c.capacity or len(c))
    for i, cell in enumerate(c.cells):
        if isinstance(cell, ir_dist.Draw):
            out = out.put(np.array([i]), np.array([cell.token]), {i: _draw(cell, request)})
        elif cell is not None:
            out = out.put(np.array([i]), np.array([cell]))
    return out


# -- plain data


def plain(value: Any) -> Any:
    """A value of either backend as plain data, equal where the values mean the same."""
    if isinstance(value, ir_dist.Draw):
        return _plain_draw(value.token, value.law_vector(), value.point, value.race)
    if isinstance(value, ir_dist.Draws):
        flat = [None if d is None else plain(d) for d in value.items.ravel()]
        return _shaped(flat, value.shape)
    if isinstance(value, TorchDraws):
        flat = (
            [_plain_torch_draw(value.ravel().pick(i)) for i in range(value.tokens.size)]
            if value.shape
            else [_plain_torch_draw(value)]
        )
        return _shaped(flat, value.shape)
    if hasattr(value, "items") and hasattr(value, "pick"):  # Mixed
        return [plain(d) for d in value.items]
    if isinstance(value, ir_dist.Dist):
        return ("dist", _rounded(value.vector()), None if value.at is None else value.at.tolist())
    if isinstance(value, TorchDist):
        return ("dist", _rounded(value.vector().numpy()), None if value.at is None else np.asarray(value.at).tolist())
    if isinstance(value, (ir_dist.Path, TorchPath)):
        emitted = value.emitted if value.emitted is None else int(getattr(value.emitted, "token", value.emitted))
        return ("path", [ir_tree.edge_token(t) for t in value.tokens], value.node, value.depth, emitted)
    if isinstance(value, ir_tree.Tree):
        return _plain_tree(
            value.base,
            [_edge(n.edge) for n in value.nodes[1:]],
            [n.parent for n in value.nodes],
            [n.depth for n in value.nodes],
            [n.logprob for n in value.nodes],
            value.new,
            value.frontier,
            _columns([n.columns for n in value.nodes]),
        )
    if isinstance(value, TorchTree):
        edges = value.edges[1:] if len(value.edges) == len(value) else value.token[1:].tolist()
        return _plain_tree(
            value.base,
            [_edge(e) for e in edges],
            value.parent.tolist(),
            value.depth.tolist(),
            value.logprobs().tolist(),
            value.new.tolist(),
            value.frontier.tolist(),
            {k: [None if v is None else plain(v) for v in vs] for k, vs in value.columns.items()},
        )
    if isinstance(value, ir_canvas.Canvas):
        decided = [c.token if isinstance(c, ir_dist.Draw) else c for c in value.cells]
        return ("canvas", tuple(value.base), decided, value.capacity)
    if isinstance(value, Canvas):
        cells = [None if t < 0 else t for t in value.token.tolist()]
        return ("canvas", value.base.ids(), cells, value.capacity)
    if isinstance(value, (ir_canvas.Edit, Edit)):
        return ("edit", value.position, value.token)
    if isinstance(value, Context):
        return value.ids()
    if isinstance(value, (ReferenceSuffixes, Suffixes)):
        texts = value.texts if isinstance(value, ReferenceSuffixes) else value.texts()
        return ("index", value.depth, value.room, value.learned, list(texts))
    if isinstance(value, Continuations):
        return ("asked", plain(value.index), value.key)
    if isinstance(value, Remembered):
        return ("memory", value.value, 0)
    if isinstance(value, (CanvasMemory, ReferenceHeld)):
        return ("memory", value.memory, value.base)
    if isinstance(value, Model):
        return ("model", value.name, value.family)
    if isinstance(value, torch.Tensor):
        return plain(value.numpy())
    if isinstance(value, (np.ndarray, np.generic)):
        return _rounded(value) if value.dtype.kind == "f" else plain(value.tolist())
    if isinstance(value, list):
        return [plain(v) for v in value]
    return _rounded(value) if isinstance(value, float) else value


class _Any:
    greedy = False


_ANY = _Any()


def _plain_draw(token: int, law: Any, point: bool, race: Any) -> tuple[Any, ...]:
    return ("draw", token, _rounded(law), point, None if race is None else _rounded(race))


def _plain_torch_draw(d: TorchDraws) -> Any:
    if int(d.tokens) < 0:
        return None
    return _plain_draw(int(d.tokens), d.law(_ANY, 3).vector().numpy(), d.point, None if d.race is None else float(d.race))


def _edge(e: Any) -> Any:
    return plain(e) if isinstance(e, (ir_canvas.Edit, Edit)) else ir_tree.edge_token(e) if hasattr(e, "token") else e


def _columns(nodes: Iterable[dict[str, Any]]) -> dict[str, list[Any]]:
    nodes = list(nodes)
    return {k: [plain(n[k]) if k in n else None for n in nodes] for k in {k for n in nodes for k in n}}


def _plain_tree(base: Any, edges: Any, parents: Any, depths: Any, logs: Any, new: Any, front: Any, columns: Any) -> Any:
    return ("tree", plain(base), edges, list(parents), list(depths), _rounded(logs), list(new), list(front), columns)


def _shaped(flat: list[Any], shape: tuple[int, ...]) -> Any:
    if not shape:
        return flat[0]
    if len(shape) == 1:
        return flat
    step = int(np.prod(shape[1:]))
    return [_shaped(flat[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0])]


def _rounded(x: Any) -> Any:
    """Numbers to twelve digits: sums over a vocabulary may be taken in another order."""
    a = np.asarray(x, dtype=np.float64)
    out = np.array([float(f"{v:.12g}") for v in a.ravel()]).reshape(a.shape) + 0.0
    return out.tolist()
