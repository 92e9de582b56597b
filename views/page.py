"""Pages that need nothing beside themselves: one HTML file with its styles, its script and its data.

Text of models and prompts is in the data only, as JSON without `<`; the script puts it on the page as text. The page's own
policy forbids it every address.
"""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from decgraph.views.document import Trace, document, relation
from decgraph.views.words import SIGNS, WORDS

HERE = Path(__file__).parent
MOST_PRUNED = 2500
"""Pruned drafts that a page holds, shared among its trees: some algorithms prune hundreds in every step."""
SCRIPTS = ("d3/d3.min.js", "drawings.js", "trace.js")


def trace_page(runs: Sequence[Trace]) -> str:
    """A page about a run, or two runs beside each other: steps, trees, cells, text by origin and the time line of model calls.

    Two runs are aligned by their tokens: where one goes, the other goes to the step that commits the same place of the text."""
    title = " and ".join(run.name for run in runs)
    return page(
        f"{title}: trace",
        read("trace.html"),
        {"runs": [spelled_once(document(run)) for run in runs], "relation": relation(runs), "words": WORDS, "signs": SIGNS},
        *SCRIPTS,
    )


def spelled_once(run: dict[str, Any]) -> dict[str, Any]:
    """A run's data in which the nodes of trees, thousands of them, name the words of a list by their places, and without the
    pruned ones beyond MOST_PRUNED. omitted: how many each tree lacks."""
    words: dict[str, int] = {}
    place = lambda x: words.setdefault(x, len(words)) if isinstance(x, str) else x
    most = MOST_PRUNED // max(1, len(run["trees"]))
    trees = [[[place(x) for x in row] for row in fewer(tree, most)] for tree in run["trees"]]
    omitted = [len(whole) - len(tree) for whole, tree in zip(run["trees"], trees, strict=True)]
    return {**run, "trees": trees, "words": list(words), "omitted": omitted}


def fewer(tree: list[list[Any]], most: int) -> list[list[Any]]:
    """A tree with its first `most` pruned nodes alone. Rows begin as those of `node_data`: token, parent, state."""
    place, kept = {-1: -1}, list[list[Any]]()
    for i, (token, parent, state, *rest) in enumerate(tree):
        if state != "pruned" or (most > 0 and parent in place):
            most -= state == "pruned"
            place[i] = len(kept)
            kept.append([token, place[parent], state, *rest])
    return kept


def framed(run: Trace) -> str:
    """The page of a run as a part of a notebook."""
    return in_frame(f"Trace of {run.name}", trace_page([run]), 760)


def in_frame(title: str, text: str, height: int) -> str:
    """A page in a frame of its own, which may run its script and nothing else."""
    frame = f'sandbox="allow-scripts" style="width:100%;height:{height}px;border:1px solid #8886;border-radius:6px"'
    return f'<iframe title="{html.escape(title)}" {frame} srcdoc="{html.escape(text)}"></iframe>'


def page(title: str, body: str, data: Any, *scripts: str) -> str:
    """A page of a title, a body (trusted HTML, in which @title@ is the title), data for its scripts and their files' names."""
    parts = {
        "@title@": html.escape(title),
        "@style@": read("page.css"),
        "@body@": body.replace("@title@", html.escape(title)),
        "@data@": embedded(data),
        "@script@": "\n".join(read(name) for name in scripts),
    }
    out = read("page.html")
    for name in ("@title@", "@style@", "@body@", "@script@", "@data@"):  # the data last: nothing in it is a name any more
        before, _, after = out.partition(name)
        out = before + parts[name] + after
    return out


def read(name: str) -> str:
    """A file of this room."""
    return (HERE / name).read_text(encoding="utf-8")


def embedded(data: Any) -> str:
    """JSON that no HTML parser mistakes for a tag or a comment. Raises ValueError for numbers that are not finite."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
