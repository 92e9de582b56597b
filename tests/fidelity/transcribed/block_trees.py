"""Drafts from the places of a block: the trees of DDTree, CaDDTree and JetSpec."""

from __future__ import annotations

from functools import partial

from fidelity.entry import recorded
from fidelity.transcribed.compared import unhurried

from lab.recordings import marginal_trees

trees = partial(unhurried, models=marginal_trees.models)


ENTRIES = [
    recorded("ddtree", trees("ddtree", "block", "budget", last=1)),
    recorded("jetspec", trees("jetspec", "block", "width", "budget", last=0), note="of its trees the one it builds by default"),
    recorded(
        "caddtree",
        trees("caddtree", "block", "most", "drafting", "each", "free", last=1),
        note="a line in the place of the table of measured times",
    ),
]
