"""Rules of verification on trees: the recorded tree grown by a program written for it, then one rule of stdlib."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction as F
from functools import partial
from typing import Any

from fidelity.columns import tree_paths
from fidelity.entry import Case, Entry, Outcome
from fidelity.forced import BACKENDS, START, Script, below, near, step
from fidelity.rules_chains import law

Tokens = tuple[int, ...]


def never(odds: Any) -> bool:
    """The coin of a rule that has none."""
    raise AssertionError("this rule tosses no coin")


def program(parents: Sequence[int], grown: str, rule: str, params: str = "") -> tuple[str, dict[int, int]]:
    """A program that grows a tree, a line for the children of a node, and which line that is for each node. grown: what draws
    the children, of a node's name {at} and their number {k}."""
    out = [
        f"algorithm recorded(target: causal, drafter: causal{params}):",
        "    keeps support of drafter",
        "    while not done:",
        "        draft t:",
    ]
    name, at = {0: "root"}, {}
    for node in range(len(parents)):
        children = [n for n, parent in enumerate(parents) if parent == node]
        if children:
            out.append(f"            g{node} = grow {grown.format(at=name[node], k=len(children))} at {name[node]}")
            at[node] = len(out)
            name.update({n: f"g{node}[{i}]" for i, n in enumerate(children)})
    out += [f"        verify t by {rule} against target(t)", "        commit t.accepted"]
    return "\n".join(out) + "\n", at


def visited(case: Case) -> list[int]:
    """The nodes of a recorded tree without those below a node that verification does not come to.

    Two siblings with the same token may have other rows in a recording, which no model gives. The rule only looks at the rows
    of the nodes that it accepts, so what hangs from the others changes nothing.
    """
    stays = {0, *case["accepted_nodes"]}
    return [n for n, parent in enumerate(case["parents"]) if parent < 0 or parent in stays]


def drawn_tree(case: Case, backend: str, replace: str) -> Outcome:
    """A tree whose siblings were drawn from the drafter's rows."""
    nodes = visited(case)
    new = {n: i for i, n in enumerate(nodes)}
    parents = [-1 if n == 0 else new[case["parents"][n]] for n in nodes]
    text, at = program(parents, "sample(drafter({at}), {k}, replace = " + replace + ")", "rejection")
    below_it = {node: [case["tokens"][nodes[n]] for n, parent in enumerate(parents) if parent == node] for node in at}
    path: dict[int, Tokens] = {0: START}
    for n, parent in enumerate(parents[1:], 1):
        path[n] = (*path[parent], case["tokens"][nodes[n]])
    p = {path[new[n]]: [F(x) for x in case["target"][n]] for n in nodes if n == 0 or n in case["accepted_nodes"]}
    q = {path[n]: [F(x) for x in case["draft"][nodes[n]]] for n in at}
    drafted = {line: below_it[node] for node, line in at.items()}
    script = Script(drafted, below([case["uniforms"][n] for n in case["uniforms_used"]]))
    made = step(text, p, q, case["V"], script, backend)
    recorded = {
        "accepted": [case["tokens"][n] for n in case["accepted_nodes"]],
        "uniforms": len(case["uniforms_used"]),
        "next token": law(case["next_token_distribution"]),
    }
    ours = {"accepted": list(made.tokens[:-1]), "uniforms": len(made.odds), "next token": made.last}
    return Outcome(recorded, {name: near(recorded[name], ours[name]) for name in recorded})


def chosen(parents: Sequence[int], paths: Sequence[Tokens], size: int) -> dict[Tokens, list[F]]:
    """A drafter whose likeliest tokens are the children of every node, in their order."""
    rows: dict[Tokens, list[F]] = {}
    for n, path in enumerate(paths):
        children = [paths[m][-1] for m, parent in enumerate(parents) if parent == n]
        rows[START + path] = [F(size - children.index(v)) if v in children else F(0 if children else 1) for v in range(size)]
    return rows


def one_hot(case: Case, backend: str) -> Outcome:
    """EAGLE-2's rule: drafts that were chosen and not drawn."""
    paths: list[Tokens] = [()]
    for row in case["paths"]:
        paths += [tuple(row[:i]) for i in range(1, len(row) + 1) if tuple(row[:i]) not in paths]
    parents = [-1, *(paths.index(path[:-1]) for path in paths[1:])]
    assert tree_paths([path[-1] if path else 0 for path in paths], parents) == set(paths[1:])
    named = {"root": ()} | {key: tuple(map(int, key.split())) for key in case["target"] if key != "root"}
    p = {START + named[key]: [F(x) for x in row] for key, row in case["target"].items()}
    script = Script({}, below(case["uniforms"]))
    text, _ = program(parents, "topk(drafter({at}).raw, {k})", "rejection")
    made = step(text, p, chosen(parents, paths, case["V"]), case["V"], script, backend)
    recorded = {
        "accepted": case["accepted_path"],
        "uniforms": len(case["uniforms"]),
        "next token": law(case["next_token_distribution"]),
    }
    ours = {"accepted": list(made.tokens[:-1]), "uniforms": len(made.odds), "next token": made.last}
    return Outcome(recorded, {name: near(recorded[name], ours[name]) for name in recorded})


def typical(case: Case, backend: str) -> Outcome:
    """Typical acceptance on a chain; the token after the accepted ones is the likeliest, as recorded."""
    paths = [tuple(case["drafted"][:i]) for i in range(len(case["drafted"]) + 1)]
    parents = list(range(-1, len(case["drafted"])))
    text, _ = program(
        parents, "topk(drafter({at}).raw, {k})", "typical_longest(epsilon, delta)", ", epsilon: prob, delta: prob"
    )
    p = {START + path: [F(x) for x in row] for path, row in zip(paths, case["target"], strict=True)}
    made = step(
        text,
        p,
        chosen(parents, paths, case["V"]),
        case["V"],
        Script({}, never),
        backend,
        epsilon=case["posterior_threshold"],
        delta=case["posterior_alpha"],
    )
    recorded = {"accepted": case["drafted"][: case["accepted"]], "tokens": case["output"]}
    return Outcome(recorded, {"accepted": list(made.tokens[:-1]), "tokens": list(made.tokens)})


rule = partial(Entry, kind="rule", backends=BACKENDS)
ENTRIES = [
    rule("ar2/sampling_sequoia_wor", "rejection", partial(drawn_tree, replace="no")),
    rule(
        "ar2/sampling_specinfer_multiround",
        "rejection",
        partial(drawn_tree, replace="yes"),
        note="what hangs from a drafted node that is not accepted is left out: twins of one token have other rows there, "
        "which no model gives",
    ),
    rule("ar/sampling_tree_one_hot", "rejection", one_hot),
    rule("ar2/sampling_typical_vllm", "typical_longest", typical),
]
