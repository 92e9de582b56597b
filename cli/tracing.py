"""A trace at the terminal: the text by origin, a step's draft tree, acceptance by depth, a canvas in block characters."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter

import numpy as np
from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from decgraph.errors import DecError
from decgraph.runtime.trace import Noted
from decgraph.views.document import Trace, texts
from decgraph.views.plot import confidences
from decgraph.views.steps import DraftTree, DrawnNode, RecordedStep, instructive
from decgraph.views.words import SIGNS, marked, word

STYLES = {
    "accepted": "green", "bonus": "bold blue", "residual": "dark_orange3", "own": "dark_orange3", "plain": "",
    "canvas": "green", "rejected": "red strike", "pruned": "dim strike", "drafted": "dim", "committed": "bold", "grown": "",
    "left": "dim",
}  # fmt: skip
"""Of nodes by kind, and of tokens by origin."""
SHADES = "░▒▓█"
AGAIN, OPEN = "×", "_"
MOST = 40  # nodes of a tree, and rows of a canvas, that are shown


def show(console: Console, run: Trace, number: int | None) -> None:
    """A run on a screen or two. number: the step whose tree is shown, from 1; None: the most informative one."""
    steps = run.steps
    console.print(Text.assemble((run.name, "bold"), f"  {sizes(run)}, {several(run.stats.target_calls, 'target call')}"))
    console.print(Text("").join(text_of(run, steps)))
    if run.stats.unmasked:
        canvas(console, run)
    chosen = step_of(steps, number)
    if chosen is not None:
        console.print(Text(f"\nstep {chosen + 1}: {several(steps[chosen].count, 'token')} committed", "bold"))
        for tree in steps[chosen].trees[:4]:
            console.print(drawn(run, tree, chosen))
            seen = (node.at(chosen) for node in tree.nodes if node.born <= chosen)
            kinds = {node.kind: SIGNS.get(node.state, "") for node in seen}
            console.print(Text("  ").join(Text(sign + word(one), STYLES[one]) for one, sign in kinds.items()))
    if run.stats.notes:
        console.print(Text("\nnotes by step", "bold"))
        said = [(n, noted(run, step)) for n, step in enumerate(steps, 1)]
        runs = [(words, [n for n, _ in alike]) for words, alike in groupby(said, key=itemgetter(1))]
        for words, numbers in runs[:MOST]:
            span = f"{numbers[0]}-{numbers[-1]}" if len(numbers) > 1 else str(numbers[0])
            console.print(Text(f"{span:>7} {words}"), soft_wrap=True)
    if run.stats.acceptance:
        console.print(Text("\naccepted by depth", "bold"))
        counts = zip(run.stats.acceptance, run.stats.accepted, run.stats.tested, run.stats.intervals, strict=True)
        for depth, (share, accepted, tested, (low, high)) in enumerate(counts, 1):
            words = f" {accepted} of {tested}, {share:.0%} (95 % interval {low:.0%} to {high:.0%})"
            console.print(Text.assemble(f"{depth:>4} ", (f"{'█' * round(20 * share):<20}", "green"), words))


def noted(run: Trace, step: RecordedStep) -> str:
    """What a step noted, in words."""
    notes = [(e.name, e.value, e.token) for s in step.events if isinstance(e := s.event, Noted)]
    return "  ".join(f"{name} {repr(run.piece(int(value))) if token else f'{value:.4g}'}" for name, value, token in notes)


def sizes(run: Trace) -> str:
    """Tokens and steps, in words."""
    return f"{several(len(run.tokens), 'token')} in {several(len(run.steps), 'step')}"


def several(n: int, noun: str) -> str:
    """A number of things: "1 step", "2 steps"."""
    return f"{n} {noun}{'' if n == 1 else 's'}"


def step_of(steps: list[RecordedStep], number: int | None) -> int | None:
    """The step to show, from 0; None where no step has a tree. Raises DecError for one that the run did not have."""
    if number is not None:
        if number > len(steps):
            raise DecError(f"--step {number}: there is no such step", hint=f"the run has {several(len(steps), 'step')}")
        return number - 1
    return instructive(steps) if any(step.trees for step in steps) else None


def text_of(run: Trace, steps: list[RecordedStep]) -> Iterable[Text]:
    """The prompt and the committed tokens, by origin."""
    origins = [origin for step in steps for origin in step.origins]
    yield Text("".join(map(marked, texts(run, run.prompt))), "dim")
    for piece, origin in zip(texts(run, run.tokens), origins, strict=False):
        yield Text(marked(piece), STYLES[origin])


def drawn(run: Trace, tree: DraftTree, step: int) -> Tree:
    """A draft tree as a step left it."""
    root = Tree(Text("·", "dim"))
    places: dict[int, Tree] = {-1: root}
    nodes = [node.at(step) for node in tree.nodes if node.born <= step]
    untested = [i for i, node in enumerate(nodes) if node.state in ("drafted", "pruned", "grown", "left")]
    left_out = set(untested[max(0, MOST - (len(nodes) - len(untested))) :])
    for i, node in enumerate(nodes):
        if node.parent in places and i not in left_out:
            places[i] = places[node.parent].add(labelled(run, node))
    if len(places) <= len(nodes):
        root.add(Text(f"and {several(len(nodes) - len(places) + 1, 'more node')}", "dim"))
    return root


def labelled(run: Trace, node: DrawnNode) -> Text:
    """A node in a line: its token, and the probabilities that are known."""
    sign = SIGNS.get(node.state, "  ")
    token = repr(run.piece(node.token))
    values: list[tuple[str, float | None]] = [
        *((name, told[-1][1]) for name, told in node.columns.items() if "logprob" in run.source or name != "logprob")
    ]
    values += [("p", node.p), ("raw p", node.raw if node.raw != node.p else None), ("q", node.q)]
    values += [("raw q" if node.q is not None else "chosen, score", node.score if node.score != node.q else None)]
    known = [f"{name} {x:.3g}" for name, x in values if x is not None]
    return Text.assemble(sign, (token, STYLES[node.kind]), ("  " + "  ".join(known), "dim"))


def canvas(console: Console, run: Trace) -> None:
    """Position by step, below a ruler of positions: the denser, the surer the cell was decided; × where it was masked again, in
    the step or in one that is not shown before it. Then the history of the cells to which that happened."""
    found, masked = confidences(run)
    (low, high), last = run.sure, len(found) - 1
    rows = range(len(found)) if last < MOST else sorted({round(i * last / (MOST - 1)) for i in range(MOST)})
    legend = f"\ncanvas: position by step; {SHADES[0]} confidence {low:.3g} to {SHADES[-1]} {high:.3g}"
    console.print(Text(f"{legend}; {OPEN} undecided" + (f"; {AGAIN} masked again" if masked.any() else ""), "bold"))
    width = max(8, console.width - 6)
    ruler = "".join(f"{place:<10}" for place in range(0, found.shape[1], 10))[: min(width, found.shape[1])]
    console.print(Text(f"     {ruler.rstrip()}", "dim"), soft_wrap=True)
    shade = lambda x: OPEN if x != x else SHADES[min(3, int(4 * (x - low) / (high - low)))] if high > low else SHADES[-1]
    for before, row in zip((-1, *rows), rows, strict=False):
        again = np.asarray(masked[before + 1 : row + 1].any(axis=0))
        cells = [AGAIN if a else shade(x) for x, a in zip(found[row], again, strict=True)]
        console.print(Text(f"{row + 1:>4} " + "".join(cells[:width])), soft_wrap=True)
    if found.shape[1] > width:
        console.print(Text(f"     {several(found.shape[1] - width, 'more position')} not shown", "dim"))
    places = np.flatnonzero(masked.any(axis=0)).tolist()
    for place in places[:MOST]:
        console.print(Text(f"position {place}: {history(run, place)}"))
    if places[MOST:]:
        console.print(Text(f"{several(len(places[MOST:]), 'more position')} masked again", "dim"))


def history(run: Trace, place: int) -> str:
    """What happened to a cell, by step: "1-2 'a' ×, 3 'b'" was decided and masked again in each of two, and then decided."""
    said = [(n, [e.token for e in step.edits if e.position == place]) for n, step in enumerate(run.steps, 1)]
    parts = []
    for tokens, alike in groupby([one for one in said if one[1]], key=itemgetter(1)):
        steps = [n for n, _ in alike]
        words = " ".join(repr(run.piece(token)) if token >= 0 else AGAIN for token in tokens)
        parts.append(f"{steps[0]}-{steps[-1]} {words}" if len(steps) > 1 else f"{steps[0]} {words}")
    return ", ".join(parts)
