"""The operands that the samples of the ops (ir/ops) are written over: a type and a value under each name."""

from __future__ import annotations

from typing import Any

import numpy as np

from decgraph.ir.data.canvas import Canvas, Edit
from decgraph.ir.data.dist import Draw, Draws, Path, value_row
from decgraph.ir.data.topology import Topology
from decgraph.ir.data.tree import Tree
from decgraph.ir.ops.draws import NoiseKey
from lib.ops.machine import Automaton, Index, Memory, Model, dists, draws


def _draw(token: int) -> Draw:
    return Draw(token, value_row(np.array([0.5, 0.25, 0.25])), race=-1.0)


def _tree() -> Tree:
    """The root, two draws under it, and one under the first."""
    t = Tree.start((1, 0, 2))
    t = t.grow([_draw(0), _draw(1)], [0, 0], [-0.5, -1.5], [{"score": 2}, {"score": 3}])
    return t.grow([_draw(2)], [1], [-2.0], [{"score": 4}])


def _canvas() -> Canvas:
    return Canvas.start((1, 0, 2), 3, 4).put([1], [_draw(2)])


def _canvases() -> Tree:
    return Tree.start(_canvas()).grow([Edit(0, 1)], [0], [0.0], [{}])


_ROW = Draws(np.array(_draw(1), dtype=object))
LEVELS = Topology.of([[0], [1], [0, 0]])

OPERANDS: dict[str, tuple[str, Any]] = {
    "judge": ("model<head,V,m,prob>", Model()),
    "scorer": ("model<head,V,m,dist>", Model()),
    "i": ("int", 2),
    "three": ("int", 3),
    "h": ("hidden<target>[k<=2]", np.array([[2.0, 4.0]])),
    "n": ("int", 1),
    "r": ("real", 0.5),
    "pr": ("prob", 0.25),
    "b": ("bool", True),
    "nil": ("none", None),
    "word": ("text", "ab"),
    "xs": ("int[k<=4]", np.array([3, 1, 2])),
    "rs": ("real[k<=3]", np.array([0.5, 2.0, 2.0])),
    "bs": ("bool[k<=3]", np.array([True, True, False])),
    "q": ("dist<V,shaped>", dists(1, single=True)),
    "qs": ("dist<V,shaped>[k<=2]", dists(2)),
    "w": ("real[vocab.V]", np.array([1.0, 3.0, 0.0])),
    "m": ("real[k<=2,vocab.V]", np.array([[0.0, 5.0, 1.0], [4.0, -np.inf, 5.0]])),
    "x": ("draw<V>", _ROW),
    "ds": ("draw<V>[k<=2]", draws([_draw(2), _draw(0)])),
    "tok": ("token<V>", 1),
    "lone": ("token<V>[k<=2]", np.array([1])),
    "toks": ("token<V>[k<=3]", np.array([2, 0])),
    "g": ("noise", NoiseKey("f.0", ())),
    "ctx": ("node<ctx>", (1, 0, 2)),
    "t": ("tree<t,token,V>", _tree()),
    "root_alone": ("tree<t,token,V>", Tree.start((1, 0, 2))),
    "cost": ("real[k.states]", np.array([0.0, -np.inf])),
    "node": ("node<t>", 3),
    "first": ("node<t>", 1),
    "ns": ("node<t>[part.t<=2]", np.array([1, 3])),
    "deep": ("int[nodes.t]", np.array([0, 1, 1, 2])),
    "col": ("real[nodes.t]", np.array([9.0, 1.0, 2.0, 3.0])),
    "ok": ("bool[nodes.t]", np.array([0, 1, 0, 1], bool)),
    "at_t": ("dist<V,shaped>[nodes.t]", dists(4)),
    "c": ("canvas<c,V>", _canvas()),
    "ps": ("position<c>[part.c<=2]", np.array([0, 2])),
    "sure": ("bool[cells.c]", np.array([True, False, True])),
    "pos": ("position<c>", 2),
    "u": ("tree<u,edit,c>", _canvases()),
    "e": ("edit<c>", Edit(0, 1)),
    "target": ("model<causal,V,target,causal>", Model()),
    "foreign": ("model<causal,W,foreign,causal>", Model()),
    "head": ("model<features,V,head,causal>", Model()),
    "masked": ("model<masked,V,masked,full>", Model()),
    "trunk": ("model<trunk,V,target,causal>", Model()),
    "mem": ("memory<target>", Memory([0, 1, 2])),
    "mem2": ("memory<target>", Memory([2, 3])),
    "part": ("memory<target,layer>", Memory([2, 3])),
    "path": ("path<V>", Path([0, 2], node=3, depth=2)),
    "shape": ("topology", LEVELS),
    "level": ("level", LEVELS[0]),
    "lst": ("list<int[k],-1>", [np.array([1]), np.array([2, 3])]),
    "followed": ("index<suffixes,V,after>", Index(0, 2)),
    "keyed": ("index<lru,V>", Index(0, 2)),
    "ix": ("index<suffixes,V>", Index(0, 2)),
    "au": ("automaton<V>", Automaton()),
    "st": ("astate", 0),
}
