"""Draw one step of a real run of each algorithm, on the shipped models, for the gallery and README.

    python -m lab pictures [NAME ...]     # two minutes; writes docs/gallery/steps.json, and README's picture

A step has a digest of the program's text and is not shown once the text has changed. The site draws it while it is
built (docs/site/hooks.py); nothing is run then. Functions of the user's are stand-ins. Programs whose step is neither a tree
nor a canvas have no picture.
"""

from __future__ import annotations

import html
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from typer import Argument

import decgraph
from decgraph import stdlib
from decgraph.views.words import SIGNS, WORDS, visible, word
from decgraph.zoo import stand_ins
from lab import gallery, pages

STEPS = gallery.FOLDER / "steps.json"
README = "eagle2"
IMAGES = pages.DOCS / "images"
SMALL = {"depth": 3, "k": 3, "budget": 8, "width": 3, "gamma": 4, "beams": 3, "branch": 3}
"""Parameters of a run whose trees fit a page, where an algorithm has them and its default is larger."""
PROMPT, CANVAS_PROMPT = "def main():", "copy 848475 ="
MOST_LEAVES, MOST_DEPTH, MOST_ROWS = 12, 7, 7
USED = ("ink", "faint", "undecided", "plain-soft", "accepted", "accepted-soft", "rejected", "rejected-soft", "bonus",
        "bonus-soft", "residual", "residual-soft")  # fmt: skip
Picture = Mapping[str, Any]

# What a step of a run is


def record(name: str) -> dict[str, Any] | None:
    """The step of a run of this algorithm that shows most; None where none of its steps drafts or decides a canvas."""
    from decgraph.models import request_for
    from decgraph.runtime.recording import Recorder
    from decgraph.views.document import Trace

    algorithm = decgraph.load(name)
    canvas, sampled = "masked" in algorithm.models.values(), "in distribution" in stdlib.entry(name).claim
    prompt = CANVAS_PROMPT if canvas else PROMPT
    params: dict[str, Any] = {p: SMALL[p] for p, made in algorithm.params.items() if p in SMALL and smaller(made, SMALL[p])}
    externs = {one: getattr(stand_ins, one) for one in algorithm.module.externs}
    session = algorithm.session(backend="torch", externs=externs, **params)
    asked: dict[str, Any] = {"max_tokens": 10 if canvas else 24, "temperature": 1 if sampled else 0}
    request, recorder = request_for(session, prompt, **asked), Recorder()
    result = session.run(request, listener=recorder, keep_events=False)
    run = Trace.of(session, request.prompt, result, recorder.recording())
    options = [f"-n {asked['max_tokens']}", f"-t {asked['temperature']}"]
    options += [f"--{p.replace('_', '-')} {v}" for p, v in params.items()] + [f"--extern demo:{one}" for one in externs]
    command = f'decgraph trace {name} -p "{prompt}" {" ".join(options)}'
    common = {"digest": gallery.digest(name), "command": command}
    if any(step.edits for step in run.steps):
        return {**common, "prompt": prompt, **canvas_of(run)}
    trees = [(step, tree) for step in run.steps for tree in step.trees]
    if not trees:
        return None
    step, tree = max(trees, key=lambda pair: worth(pair[1].nodes))
    before = "".join(run.piece(t) for t in (*request.prompt, *run.tokens[: step.first]))
    return {**common, "root": before[-40:], "number": run.steps.index(step) + 1, **tree_of(tree.nodes, run)}


def smaller(made: Any, value: int) -> bool:
    """Whether a parameter is a number whose default is larger than `value`."""
    default = getattr(made, "default", made)
    return isinstance(default, int) and not isinstance(default, bool) and default > value


def worth(nodes: Sequence[Any]) -> tuple[int, int]:
    """How much a tree shows: what becomes of its drafts, several accepted and some not, and few nodes."""
    count = Counter(node.state for node in nodes)
    told = min(count["accepted"] + count["committed"], 3) * 2 + min(count["rejected"] + count["drafted"] + count["left"], 2)
    return told + min(count["emitted"], 1), -abs(len(nodes) - 10)


def tree_of(nodes: Sequence[Any], run: Any) -> dict[str, Any]:
    """The nodes that are drawn, each as [text, parent, state, kind, p, q, score], and how many are not."""
    shown: set[int] = set()
    order = sorted(range(len(nodes)), key=lambda i: nodes[i].state not in ("accepted", "rejected", "emitted", "committed"))
    leaves = 0
    for i in order:
        if nodes[i].state in ("pruned", "omitted") or depth_of(nodes, i) > MOST_DEPTH:
            continue
        if leaves >= MOST_LEAVES and nodes[i].state in ("drafted", "rejected", "grown", "left"):
            continue
        leaves += nodes[i].parent < 0 or any(nodes[j].parent == nodes[i].parent for j in shown)
        while i >= 0 and i not in shown:
            shown.add(i)
            i = nodes[i].parent
    kept = sorted(shown)
    place = {-1: -1, **{old: new for new, old in enumerate(kept)}}
    drawn = []
    for i in kept:
        n = nodes[i]
        text = "…" if n.state == "omitted" else run.piece(n.token)  # it stands for tokens between the context and a branch
        kind = n.kind if n.state == "emitted" else ""
        drawn.append([text, place[n.parent], n.state, kind, *map(short, (n.p, n.q, n.score))])
    pruned = sum(node.state == "pruned" for node in nodes)
    return {"nodes": drawn, "pruned": pruned, "more": len(nodes) - len(drawn) - pruned}


def depth_of(nodes: Sequence[Any], i: int) -> int:
    """A node's depth; 1 below the root."""
    depth = 0
    while i >= 0:
        depth, i = depth + 1, nodes[i].parent
    return depth


def canvas_of(run: Any) -> dict[str, Any]:
    """The canvas after each of some steps, the first ones or those around the first that masks a cell again: rows of [text,
    state, confidence]. States are keys of WORDS."""
    steps = [step for step in run.steps if step.edits]
    cells = max(edit.position for step in steps for edit in step.edits) + 1
    texts: list[str | None] = [None] * cells
    rows = []
    for step in steps:
        row: list[list[Any]] = []
        changed = {edit.position: edit for edit in step.edits}
        often = Counter(edit.position for edit in step.edits)
        for position in range(cells):
            edit = changed.get(position)
            if edit is not None:
                texts[position] = run.piece(edit.token) if edit.token >= 0 else None
            text = texts[position]
            state = "twice" if often[position] > 1 else "again" if text is None else "decided"
            if edit is None:
                state = "masked" if text is None else "kept"
            row.append([text or "", state, short(edit.confidence) if edit is not None and text is not None else None])
        rows.append(row)
    marked = next((r for r, row in enumerate(rows) if any(cell[1] in ("again", "twice") for cell in row)), 0)
    first = max(0, min(marked - MOST_ROWS // 2, len(rows) - MOST_ROWS))
    return {"rows": rows[first : first + MOST_ROWS], "first": first + 1, "of": len(rows)}


def short(x: float | None) -> float | None:
    """Two digits are more than a picture shows."""
    return None if x is None or x - x != 0 else float(f"{x:.2g}")


# How it is drawn

SCHEMES = [
    dict(re.findall(r"--([\w-]+): (#\w+)", block))
    for block in re.findall(r":root[^{]*\{([^}]*)\}", (pages.ROOT / "views" / "page.css").read_text(encoding="utf-8"))[:2]
]
COLOURS = {name: {key: scheme[key] for key in USED} for name, scheme in zip(("light", "dark"), SCHEMES, strict=True)}
"""The colours of trace pages."""
STYLE = """
text { font: 13px ui-monospace, "DejaVu Sans Mono", Menlo, monospace; fill: var(--ink); }
.small { font-size: 10.5px; fill: var(--faint); }
rect { fill: var(--plain-soft); stroke: var(--undecided); }
path { fill: none; stroke: var(--undecided); stroke-width: 1.5; }
.root rect { fill: none; stroke: var(--undecided); }
.accepted rect { fill: var(--accepted-soft); stroke: var(--accepted); stroke-width: 2; }
path.accepted { stroke: var(--accepted); stroke-width: 2.5; }
.committed rect { fill: var(--accepted-soft); stroke: var(--ink); stroke-width: 2.5; }
path.committed { stroke: var(--ink); stroke-width: 2.5; }
.twice rect { stroke-dasharray: 4 2; }
.left rect { fill: none; stroke-dasharray: 2 3; }
.rejected rect { fill: var(--rejected-soft); stroke: var(--rejected); stroke-dasharray: 4 2; }
.emitted rect, .again rect, .twice rect { fill: var(--residual-soft); stroke: var(--residual); stroke-width: 2; }
.emitted.bonus rect, .decided rect { fill: var(--bonus-soft); stroke: var(--bonus); stroke-width: 2; }
.masked rect { fill: none; stroke-dasharray: 2 3; }
.kept text { fill: var(--faint); }
"""
WIDE, HIGH, BOX = 132, 42, 112
EMITTED = ("bonus", "residual", "own", "plain")


def variables(scope: str, colours: Mapping[str, str]) -> str:
    """The colours of pictures below a selector."""
    return f"{scope} {{ " + " ".join(f"--{name}: {value};" for name, value in colours.items()) + " }"


def styled(scope: str, colours: Mapping[str, str]) -> str:
    """The whole style of pictures below a selector."""
    rules = "\n".join(f"{scope} {line}".replace(", .", f", {scope} .") for line in STYLE.strip().splitlines())
    return f"{variables(scope, colours)}\n{rules}"


def boxed(text: str, most: int) -> str:
    """A token's text as a box holds it."""
    return visible(text.replace("<|", "<").replace("|>", ">"), most)


def drawing(picture: Picture, style: str = "") -> str:
    """A step as an SVG element; with a style it is a file of its own."""
    parts, width, height, said, states = (tree if "nodes" in picture else canvas)(picture)
    x = 4
    for state in states:
        kind, label = f"emitted {state}" if state in EMITTED else state, word(state)
        if x > 4 and x + 24 + 6.6 * len(label) > max(width, 560):
            x, height = 4, height + 22
        parts.append(f'<g class="{kind}"><rect x="{x}" y="{height + 4}" width="14" height="12" rx="3"/></g>')
        parts.append(f'<text class="small" x="{x + 20}" y="{height + 14}">{label}</text>')
        x += 44 + int(6.6 * len(label))
    width, height = max(width, min(x, 560)), height + 24
    parts = [f"<style>{style}</style>" if style else "", f"<title>{html.escape(said)}</title>", *parts]
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    head = f'xmlns="http://www.w3.org/2000/svg" class="step-picture" {size} role="img" aria-label="{html.escape(said)}"'
    return f"<svg {head}>" + "".join(parts) + "</svg>"


def tree(picture: Picture) -> tuple[list[str], int, int, str, list[str]]:
    """The parts of a tree, its width and height, what it shows in words, and the states that the legend explains."""
    nodes = picture["nodes"]
    below: dict[int, list[int]] = {i: [] for i in range(-1, len(nodes))}
    for i, node in enumerate(nodes):
        below[node[1]].append(i)
    place: dict[int, tuple[int, float]] = {}
    row = 0

    def put(i: int, depth: int) -> None:
        nonlocal row
        for child in below[i]:
            put(child, depth + 1)
        if below[i]:
            place[i] = depth, (place[below[i][0]][1] + place[below[i][-1]][1]) / 2
        else:
            place[i] = depth, row
            row += 1

    put(-1, 0)
    parts = []
    for parent, children in below.items():
        for i in children:
            (a, b), (c, d) = place[parent], place[i]
            x1, y1, x2, y2 = a * WIDE + 4 + BOX, b * HIGH + 16, c * WIDE + 4, d * HIGH + 16
            kind = f' class="{nodes[i][2]}"' if nodes[i][2] in ("accepted", "committed") else ""
            parts.append(f'<path{kind} d="M{x1} {y1:g}C{x1 + 10} {y1:g} {x2 - 10} {y2:g} {x2} {y2:g}"/>')
    for i, (depth, at) in place.items():
        text, _, state, kind, p, q, score = nodes[i] if i >= 0 else (picture["root"], 0, "root", "", None, None, None)
        label = SIGNS.get(state, "") + (boxed(text, 11) if i >= 0 else "…" + visible(text[-11:], 12))
        parts.append(
            f'<g class="{state} {kind}" transform="translate({depth * WIDE + 4} {at * HIGH + 4:g})">'
            f'<rect width="{BOX}" height="24" rx="5"/>'
        )
        parts.append(f'<text x="7" y="16">{html.escape(label)}</text>')
        beside = [f"q {q:g}"] if q is not None else [f"score {score:g}"] if score is not None else []
        beside += [f"p {p:g}"] if p is not None else []
        if beside and not {p, q, score} <= {None, 0.0, 1.0}:
            parts.append(f'<text class="small" x="7" y="35">{" · ".join(beside)}</text>')
        parts.append("</g>")
    found = Counter(node[3] if node[2] == "emitted" else node[2] for node in nodes)
    states = [state for state in WORDS if found[state]]
    said = "A tree of drafts: " + ", ".join(f"{found[state]} {word(state)}" for state in states)
    return parts, (max(d for d, _ in place.values()) + 1) * WIDE - WIDE + BOX + 8, row * HIGH + 4, said, states


def canvas(picture: Picture) -> tuple[list[str], int, int, str, list[str]]:
    """The same of a canvas, a row after each step."""
    rows, parts = picture["rows"], [f'<text class="small" x="4" y="12">{html.escape(picture["prompt"])}</text>']
    wide = 62
    for r, row in enumerate(rows):
        parts.append(f'<text class="small" x="4" y="{r * 38 + 36}">step {picture["first"] + r}</text>')
        for c, (text, state, sure) in enumerate(row):
            parts.append(
                f'<g class="{state}" transform="translate({c * wide + 50} {r * 38 + 20})">'
                f'<rect width="{wide - 4}" height="22" rx="4"/>'
            )
            parts.append(f'<text x="5" y="15">{html.escape(boxed(text, 6)) if text else ""}</text>')
            if sure is not None:
                parts.append(f'<text class="small" x="5" y="32">{sure:g}</text>')
            parts.append("</g>")
    found = {cell[1] for row in rows for cell in row}
    states = [state for state in WORDS if state in found]
    said = f"A canvas of {len(rows[0])} positions after each of {len(rows)} of {picture['of']} steps"
    return parts, len(rows[0]) * wide + 54, len(rows) * 38 + 22, said, states


def figure(name: str, pictures: Mapping[str, Picture]) -> str:
    """The HTML of an algorithm's picture with its caption; "" where there is none, or where it is of another text."""
    picture = pictures.get(name)
    if picture is None or picture["digest"] != gallery.digest(name):
        return ""
    if "rows" in picture:
        first, shown = picture["first"], len(picture["rows"])
        some = f", from {first} to {first + shown - 1} of {picture['of']}" if shown < picture["of"] else ""
        what = f"The canvas after each step{some}; below a token, its confidence."
    else:
        told = [
            f"{picture['pruned']} pruned drafts" if picture["pruned"] else "",
            f"{picture['more']} more" if picture["more"] else "",
        ]
        left = " and ".join(filter(None, told))
        what = f"Step {picture['number']} of a run" + (f"; {left} are not drawn." if left else ".")
    command = html.escape(picture["command"])
    caption = f"{what} The whole run, as a page: <code>{command} -o page.html</code>"
    return f'<figure class="step">{drawing(picture)}<figcaption>{caption}</figcaption></figure>'


def command(names: Annotated[list[str] | None, Argument()] = None) -> None:
    """Record steps anew, of all algorithms or of these, and draw README's."""
    steps = dict(pages.read(STEPS))
    for name in names or stdlib.names():
        steps.pop(name, None)
        try:
            found = record(name)
        except decgraph.DecError as error:
            print(f"{name}: {str(error).splitlines()[0]}")
            continue
        if found is not None:
            steps[name] = found
    lines = [f"{json.dumps(n)}: {json.dumps(steps[n], ensure_ascii=False)}" for n in sorted(steps) if n in stdlib.names()]
    STEPS.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    for scheme, colours in COLOURS.items():
        (IMAGES / f"step-{scheme}.svg").write_text(drawing(steps[README], styled("svg", colours)) + "\n", encoding="utf-8")
