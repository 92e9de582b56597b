"""Drafts from the text itself and from earlier texts: CopySpec, SAM-Decoding, REST, CLLM's blocks."""

from __future__ import annotations

from collections.abc import Sequence
from os.path import commonprefix
from typing import Any

import numpy as np
from fidelity import models
from fidelity.causal_trees import ranks
from fidelity.columns import chain_paths, compared, cut
from fidelity.entry import Case, Entry, Outcome, recording
from fidelity.watched import run

from decgraph.backends.reference.values import SuffixSearch as Searched
from decgraph.backends.torch.suffixes import Suffixes

LOST = (
    "the recorded drafter's cache has lost a token: after [.., 19, 31, 23] it drafts 5 and 13, as it does after [.., 19, 23]; "
    "ours reads the whole text: rejected drafts are cut off with the last confirmed token (speculative_copying.py:334)"
)
TWICE = (
    "the official reader cuts its tree once more, by how many different tokens its paths have, to 64 over all paths; where "
    "that bites, ours has all 64 likeliest beginnings (DraftRetriever/src/lib.rs:371)"
)


def copyspec(case: Case, backend: str) -> Outcome:
    p, calls = case["parameters"], case["calls"][1:]
    both = {"target": models.causal("target"), "drafter": models.causal("drafter")}
    prompt = [*case["prompt"], calls[0]["fed"][0]]  # the recorded prefill gives the first token
    end = len(case["prompt"]) + p["max_new_tokens"]
    done = run(
        "copyspec",
        prompt,
        both,
        backend,
        max_tokens=p["max_new_tokens"] - 1,
        gamma=p["gamma"],
        copy=p["number_copy"],
        delta=p["delta"] if p["use_specdec"] else 0,
    )
    return compared(case, done, calls=calls, target=len(calls), end=end)


def successors(prompt: Sequence[int], k: int) -> np.ndarray:
    """Token Recycling's table as the recorded prefill leaves it: the target's likeliest successors of the prompt's tokens."""
    model = models.causal("target")
    table = np.zeros((model.vocab.size, k), dtype=np.int64)
    for n, t in enumerate(prompt):
        scores = np.asarray(model.eval([tuple(prompt[: n + 1])])[0].logits)
        table[t] = np.argsort(-scores, kind="stable")[:k]
    return table


def automaton(case: Case, backend: str) -> Outcome:
    p, calls = case["parameters"], case["calls"][1:]
    prompt = [*case["prompt"], calls[0]["fed"][0]]
    trees = [{**c, "paths": chain_paths(c["fed"][1:])} if c["kind"] == "chain" else c for c in calls]
    done = run(
        "sam_decoding",
        prompt,
        {"target": models.causal("target")},
        backend,
        max_tokens=len(case["output"]) - len(prompt) + 40,
        shared={"next": successors(case["prompt"], 8)},
        least=p["len_threshold"],
        bias=p["len_bias"],
        copy=p["n_predicts"] - 1,
        fill=True,
        shape=ranks(case["tree_parents"]),
    )
    cut(done, case, calls[-1])
    return compared(case, done, calls=trees, target=len(calls), length=len(case["output"]))


def datastore(case: Case, backend: str) -> Outcome:
    p, calls = case["parameters"], case["calls"]
    index = (Suffixes if backend == "torch" else Searched)(p["token_spans"][0] + p["continuation_length"])
    index = index.learn([t for entry in recording("ar2/rest")["datastore"] for t in entry])
    trees = [{**c, "paths": {tuple(t) for t in c["tree"]} if c["suffix_length"] else set()} for c in calls]
    prompt = [*case["prompt"], calls[0]["root"]]  # the recorded prefill gives the first token
    done = run(
        "rest",
        prompt,
        {"target": models.causal("target")},
        backend,
        max_tokens=len(case["output"]) - len(prompt) + 20,
        shared={"store": index},
        change=fixed,
        reach=p["token_spans"][0],
        least=p["token_spans"][-1],
        budget=p["max_num_draft"],
        depth=p["continuation_length"],
    )
    cut(done, case, calls[-1])
    return compared(case, done, calls=trees, target=len(calls), length=len(case["output"]))


def ouroboros(case: Case, backend: str) -> Outcome:
    """What the drafter drafts is compared at every place where calls of both stand; the phrases behind it differ, as the note
    says, and with them the places."""
    p, gamma = case["parameters"], case["parameters"]["gamma"]
    both = {"target": models.causal("target"), "drafter": models.causal("drafter")}
    phrase, limit = p["lookahead_level"] - 1, len(case["output"]) - len(case["prompt"])
    done = run("ouroboros", case["prompt"], both, backend, max_tokens=limit, gamma=gamma, k=p["topk"], phrase=phrase)
    recorded = spines(case, gamma, phrase)
    ours = {c.past: chain for c in done.calls for chain in c.drafted if len(chain) == gamma}
    places = sorted(recorded.keys() & ours.keys())
    assert 2 * len(places) > len(recorded)
    drafted = [[found[at] for at in places] for found in (recorded, ours)]
    return Outcome({"tokens": tuple(case["output"]), "drafted": drafted[0]}, {"tokens": done.tokens, "drafted": drafted[1]})


def spines(case: Case, gamma: int, phrase: int) -> dict[int, tuple[int, ...]]:
    """By the text's length at each recorded call, the drafter's chain. A call feeds it behind the last token (the first one:
    behind the prompt), then phrases; the text says how many were accepted."""
    text, at, found = case["output"], len(case["prompt"]), {}
    for call in case["calls"]:
        begin = 1 if found else at
        chain, rest = call["fed"][begin : begin + gamma], call["fed"][begin + gamma :]
        found[at] = tuple(chain)
        n = len(commonprefix([chain, text[at:]]))
        phrases = [rest[i : i + phrase] for i in range(0, len(rest), phrase)] if n == gamma else []
        at += n + 1 + max((len(commonprefix([f, text[at + n :]])) for f in phrases), default=0)
    return found


def fixed(kind: Any) -> Any:
    """A machine's class whose stores learn nothing: a datastore."""

    class Fixed(kind):  # type: ignore[misc]
        def learn_committed(self, tokens: Sequence[int]) -> None:
            """Nothing is learned."""

    return Fixed


ENTRIES = [
    Entry("ar/copyspec", "copyspec", copyspec, differs={("4", c): LOST for c in ("target calls", "accepted", "drafted")}),
    Entry(
        "ar/sam_decoding",
        "sam_decoding",
        automaton,
        note="the table begins as the recorded prefill leaves it; n_predicts counts the root",
    ),
    Entry(
        "ar/ouroboros",
        "ouroboros",
        ouroboros,
        note="phrases are also what the drafter's own lookahead decoding finds there, from a window that is random: texts are "
        "compared, and the drafter's chain wherever a call of both stands",
    ),
    Entry(
        "ar2/rest",
        "rest",
        datastore,
        differs={("2", "drafted"): TWICE},
        note="the datastore is what the session knows, and learns nothing; the draft 3 where nothing was found is left out",
    ),
]
