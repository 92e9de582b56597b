"""SuffixDecoding's drafter: trees of what followed in this text and in earlier outputs."""

from __future__ import annotations

from fidelity import models
from fidelity.columns import shown, tree_paths
from fidelity.entry import Case, Entry, Outcome
from fidelity.watched import Path, run

from decgraph.backends.reference.values import SuffixSearch as Searched
from decgraph.backends.torch.suffixes import Suffixes

TIE = (
    "two tokens followed equally often: the recorded tree has those that stand first in its heap, ours the smaller ids "
    "(csrc/suffix_decoding/suffix_tree.cc:869)"
)


def suffixes(case: Case, backend: str) -> Outcome:
    """The tree of every recorded query, from the text at which it was asked."""
    text, depth = list(case["prompt"]), case["max_tree_depth"]
    past = (Suffixes if backend == "torch" else Searched)(depth)
    for request in case["cached_before"]:
        past = past.learn(request["response"])
    recorded: list[set[Path]] = []
    ours: list[set[Path]] = []
    for step in case["steps"]:
        for query in step["queries"]:
            p, draft = query["parameters"], query["draft"]
            if not p["use_tree_spec"]:
                continue
            done = run(
                "suffix_decoding",
                text,
                {"target": models.causal("target")},
                backend,
                max_tokens=40,
                shared={"past": past},
                budget=p["max_spec_tokens"],
                factor=p["max_spec_factor"],
                offset=p["max_spec_offset"],
                least=p["min_token_prob"],
                reach=depth,
            )
            recorded.append(tree_paths([0, *draft["token_ids"]], [-1, *(parent + 1 for parent in draft["parents"])]))
            ours.append(done.calls[0].drafted)
        text += step["then_append"]
    return Outcome({"drafted": shown(recorded)}, {"drafted": shown(ours)})


ENTRIES = [
    Entry(
        "ar/suffix_decoding_drafter",
        "suffix_decoding",
        suffixes,
        differs={(case, "drafted"): TIE for case in ("12", "14")},
        note="each recorded query for a tree is a run from its text, whose first draft is compared; queries for a chain, an "
        "option of the library, are left out",
    )
]
