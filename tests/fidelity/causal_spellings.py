"""Universal assisted generation: a drafter with a tokenizer of its own."""

from __future__ import annotations

from functools import cache
from typing import Any

from fidelity import models
from fidelity.columns import chain_paths, shown
from fidelity.entry import Case, Entry, Outcome, recording
from fidelity.watched import run

from decgraph.runtime.models import hf
from decgraph.runtime.models.interface import Vocab
from decgraph.runtime.models.spelling import Spelling, spelled

DRIFTS = (
    "each call is replayed from the text that it stands on, where the recorded drafter's tokens spell this text: the recorded "
    "loop keeps them from call to call and repairs their end by the longest run that both have, which in a text that repeats "
    "itself may be an earlier place; ours spells the text anew. The first call of a text shorter than the window is left out "
    "too: there the recorded index is negative, and the window the last token"
)


def plain(pieces: list[str]) -> Spelling:
    """The recorded tokenizers: special tokens have no text, and pairs of letters are merged from left to right."""
    return spelled([p if not p.startswith("<") else "" for p in pieces])


@cache
def both() -> dict[str, Any]:
    """Target and drafter with their tokenizers; the drafter without the rows of tokens 30 and 31."""
    recorded = recording("ar2/hf_universal_assisted")
    target, drafter = (hf.load_causal(models.folder(name)) for name in ("target", "drafter"))  # other entries' stay as they are
    drafter.vocab = Vocab("letters", len(recorded["drafter_tokens"]))
    target.spelling, drafter.spelling = plain(recorded["target_tokens"]), plain(recorded["drafter_tokens"])
    return {"target": target, "drafter": drafter}


def universal(case: Case, backend: str) -> Outcome:
    p = case["parameters"]
    have, spells = both(), lambda tokens: both()["drafter"].spelling.read(both()["target"].spelling.text(tokens), whole=False)
    settings = {"gamma": p["num_assistant_tokens"], "back": p["assistant_lookbehind"]}
    whole = run("universal_assisted", case["prompt"], have, backend, max_tokens=p["max_new_tokens"], **settings)
    recorded: dict[str, Any] = {"tokens": tuple(case["output"]), "drafted": [], "accepted": [], "committed": []}
    made: dict[str, Any] = {"tokens": whole.tokens, "drafted": [], "accepted": [], "committed": []}
    end = len(case["prompt"]) + p["max_new_tokens"]
    at = len(case["prompt"])
    for call in case["calls"]:
        context = case["output"][:at]
        at += len(call["committed"])
        own = spells(context)
        if (
            own != tuple(call["assistant_ids"][: -p["num_assistant_tokens"]])
            or at == end
            or len(own) < p["assistant_lookbehind"]
        ):
            continue
        now = run("universal_assisted", context, have, backend, max_tokens=end - len(context), **settings)
        recorded["drafted"].append(shown([{d for d in chain_paths(call["proposed"]) if len(context) + len(d) < end}]))
        made["drafted"].append(shown([now.calls[0].drafted]))
        recorded["accepted"].append(call["accepted"])
        made["accepted"].append(now.calls[0].accepted)
        recorded["committed"].append(tuple(call["committed"]))
        made["committed"].append(now.committed[0])
    return Outcome(recorded, made)


ENTRIES = [Entry("ar2/hf_universal_assisted", "universal_assisted", universal, note=DRIFTS)]
