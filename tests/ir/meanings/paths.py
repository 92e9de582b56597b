"""Edits, topologies, growth from an index."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from hypothesis import strategies as st
from meanings.canvases import positions
from meanings.registry import Draw, Sample, says
from meanings.values import TOKENS, exactly, tokens

from decgraph.ir.data.dist import Path
from decgraph.ir.data.tree import Tree


@says("edit", "edit.get")
def edits(draw: Draw) -> Sample:
    i, x = draw(st.integers(0, 5)), draw(TOKENS)
    field = draw(st.sampled_from(["position", "token"]))
    return Sample(
        f'%e = edit(%i, %x, canvas = "c")\n%z = edit.get(%e, field = "{field}")',
        {"i": ("position<c>", i), "x": ("token<V>", x)},
        (i if field == "position" else x,),
    )


@says("edit")
def several_edits(draw: Draw) -> Sample:
    at = draw(st.lists(st.integers(0, 5), max_size=4))
    xs = draw(exactly(TOKENS, len(at)))
    return Sample(
        '%z = edit(%i, %x, canvas = "c")',
        {"i": positions(at), "x": tokens(xs)},
        ([("edit", i, x) for i, x in zip(at, xs, strict=True)],),
    )


@says("path.get")
def of_a_path(draw: Draw) -> Sample:
    """`depth` counts accepted drafts, `length` all tokens."""
    xs = draw(st.lists(TOKENS, min_size=1, max_size=4))
    path = Path(xs, node=len(xs), depth=len(xs))
    field = draw(st.sampled_from(["token", "depth", "length", "node"]))
    want = {"token": xs, "depth": len(xs), "length": len(xs), "node": len(xs)}[field]
    return Sample(f'%z = path.get(%p, field = "{field}")', {"p": ("path<V>", path)}, (want,))


def branching(widths: list[int]) -> list[list[tuple[int, int]]]:
    """Levels of (parent in the level above, rank): every node has as many children as the level's number."""
    levels, above = [], 1
    for width in widths:
        levels.append([(parent, rank) for parent in range(above) for rank in range(width)])
        above *= width
    return levels


def from_ranks(paths: list[list[int]]) -> list[list[tuple[int, int]]]:
    levels: list[list[list[int]]] = []
    for path in sorted(paths):
        while len(levels) < len(path):
            levels.append([])
        levels[len(path) - 1].append(path)
    out = []
    for n, level in enumerate(levels):
        above = levels[n - 1] if n else [[]]
        out.append([(above.index(path[:-1]), path[-1]) for path in level])
    return out


@says("topology.narrow")
def of_few_children(draw: Draw) -> Sample:
    widths = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    k, level = draw(st.integers(1, 5)), draw(st.integers(0, len(widths) - 1))
    want = [r for _, r in branching([min(w, k) for w in widths])[level]]
    shape = "x".join(map(str, widths))
    text = f'%t = topology(shape = "{shape}")\n%s = topology.narrow(%t, %k)\n%l = gather(%s, %n)\n'
    return Sample(f'{text}%z = level.get(%l, field = "rank")', {"n": ("int", level), "k": ("int", k)}, (want,))


@says("topology", "level.get")
def shapes(draw: Draw) -> Sample:
    if draw(st.booleans()):
        widths = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
        shape, levels = '"' + "x".join(map(str, widths)) + '"', branching(widths)
    else:
        paths: list[list[int]] = [[r] for r in range(draw(st.integers(1, 3)))]
        for path in paths:
            if len(path) < 3:
                paths += [[*path, r] for r in range(draw(st.integers(0, 2)))]
        shape, levels = str(paths), from_ranks(paths)
    n = draw(st.integers(0, len(levels) - 1))
    field = draw(st.sampled_from(["parent", "rank", "index", "width"]))
    level = levels[n]
    width = max(rank for _, rank in level) + 1
    want: Any = {"parent": [p for p, _ in level], "rank": [r for _, r in level], "index": n, "width": width}[field]
    return Sample(
        f'%t = topology(shape = {shape})\n%l = gather(%t, %n)\n%z = level.get(%l, field = "{field}")',
        {"n": ("int", n)},
        (want,),
    )


@says("tree.best_first")
def likeliest_nodes(draw: Draw) -> Sample:
    """One after the other, the node whose path followed most often, of equals the one with the smaller tokens; none below a
    bound."""
    text = draw(st.lists(TOKENS, min_size=2, max_size=10))
    deep = draw(st.integers(1, 4))
    size, above = draw(st.integers(0, 5)), draw(st.sampled_from([Fraction(1, 16), Fraction(1, 4), Fraction(1, 2)]))

    def after(key: list[int]) -> list[int]:
        return [text[i + len(key)] for i in range(len(text) - len(key)) if text[i : i + len(key)] == key]

    key = [draw(TOKENS)]
    nodes: list[tuple[list[int], Fraction, int]] = [([], Fraction(1), -1)]  # path, mass, parent
    while len(nodes) <= size:
        options = []
        for parent, (path, mass, _) in enumerate(nodes):
            followed = after(key + path) if len(path) < deep else []
            whole = key + path
            places = sum(text[i : i + len(whole)] == whole for i in range(len(text)))
            for x in sorted(set(followed)):
                p = mass * Fraction(followed.count(x), places)
                if p >= above and all(other != [*path, x] for other, _, _ in nodes):
                    options.append((-p, [*path, x], parent))
        if not options:
            break
        p, path, parent = min(options)
        nodes.append((path, -p, parent))
    lines = [
        "%n = const(value = 64, type = !int)",
        '%i = index.new(%n, kind = "suffixes")',
        "%ix = index.learn(%i, %x)",
        '%a = index.ask(%ix, %k, %d, what = "after", named = ("at_most",))',
        "%t, %new = tree.best_first(%r, %a, %s, %p)",
    ]
    get = draw(st.sampled_from(["token", "parent"]))
    want = [2, *(path[-1] for path, _, _ in nodes[1:])] if get == "token" else [0, *(parent for _, _, parent in nodes[1:])]
    given = {
        "x": tokens(text),
        "k": tokens(key),
        "r": ("tree<t,token,V>", Tree.start((1, 0, 2))),
        "s": ("int", size),
        "d": ("int", deep),
        "p": ("real", float(above)),
    }
    return Sample("\n".join([*lines, f'%z = tree.get(%t, column = "{get}")']), given, (want,))
