"""Several texts, drawn one beside the other, and which of them is the answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, Literal, Union

import numpy as np

from decgraph.runtime.models.table import TableModel
from lab.recordings import Case
from lab.recordings.tables import Letters, Stream, untied
from lab.recordings.upstream import Upstream


def model(case: Case) -> TableModel:
    """What all texts are drawn from."""
    return untied(case["size"], case["seed"], window=None)


def drawn(case: Case) -> list[tuple[int, ...]]:
    """n texts up to the end token or the limit, a token of each by turns: each reads a row of the case's noise."""
    table, noise = model(case), Stream(case["seed"])
    texts: list[tuple[int, ...]] = [()] * case["n"]
    for _ in range(case["limit"]):
        for i, text in enumerate(texts):
            if text[-1:] != (case["eos"],):
                weights = table.eval([(*case["prompt"], *text)])[0].weights or ()
                texts[i] = (*text, int(np.argmin(noise.waits(None, len(weights)) / np.array([*map(float, weights)]))))
    return texts


def spelled(case: Case, text: Sequence[int]) -> str:
    """A letter for each token, none for the end."""
    return str(Letters().decode([x for x in text if x != case["eos"]]))


def reward(text: str) -> float:
    """Between 0 and 1, in steps of a twentieth, so that texts can be equal."""
    return sum(7**i * (ord(c) - 96) for i, c in enumerate(text)) % 20 / 20


def answer(text: str) -> str:
    """The kind of its length and of its last letter."""
    return f"{len(text) % 3}{text[-1:]}"


def best_of_n(upstream: Upstream, case: Case) -> dict[str, Any]:
    """Its engine gives the drawn texts, its reward model a score for each."""
    score = upstream.names("src/sal/utils/score.py", "aggregate_scores", Literal=Literal)["aggregate_scores"]
    seen = {"np": np, "aggregate_scores": score, "SamplingParams": dict, "Config": Any, "LLM": Any, "PRM": Any}
    chosen = upstream.names("src/sal/search/best_of_n.py", "best_of_n", **seen)["best_of_n"]
    texts = drawn(case)
    outputs = [SimpleNamespace(outputs=[SimpleNamespace(text=spelled(case, t), token_ids=t)]) for t in texts]
    tokenizer = SimpleNamespace(apply_chat_template=lambda convs, **_: ["" for _ in convs])
    engine = SimpleNamespace(get_tokenizer=lambda: tokenizer, generate=lambda *_, **__: outputs)
    scorer = SimpleNamespace(score=lambda problems, found: [[[reward(t)] for t in one] for one in found])
    config = SimpleNamespace(
        n=case["n"], system_prompt="", custom_chat_template=None, temperature=1, max_tokens=case["limit"], top_p=1,
        agg_strategy="last",
    )  # fmt: skip
    return {"answer": chosen({"problem": [""]}, config, engine, scorer)["pred"][0]}


def self_consistency(upstream: Upstream, case: Case) -> dict[str, Any]:
    """The filter reads the texts' answers; the text is the first that has the voted one."""
    given: dict[str, Any] = {"Filter": object, "register_filter": lambda _: lambda kind: kind}
    names = upstream.names("lm_eval/filters/selection.py", "MajorityVoteFilter", Counter=Counter, **given)
    texts = [spelled(case, t) for t in drawn(case)]
    ((voted,),) = names["MajorityVoteFilter"]().apply([[answer(t) for t in texts]], [])
    return {"vote": voted}


def first_finish(upstream: Upstream, case: Case) -> dict[str, Any]:
    """The function says whether the answer of FFS-1 is right and how long it is; each text is asked about."""
    typed: dict[str, Any] = {"np": np, "List": list, "Tuple": tuple, "Union": Union}
    names = upstream.names("evaluation/evaluate_vanilla.py", "run_experiment", "Answer", **typed)
    texts = drawn(case)
    data = [(len(t), spelled(case, t) if t[-1] == case["eos"] else "NO_ANSWER") for t in texts]
    found = {told: names["run_experiment"](data, told, case["n"])[0] for _, told in data}
    (right,) = [told for told, row in found.items() if row[0]]
    return {"answer": right, "steps": int(found[right][1])}


CASES = ((1, 6, 4, 12), (2, 6, 8, 9), (3, 5, 16, 12), (4, 9, 5, 20), (5, 5, 1, 9), (6, 5, 32, 7))
RECORDINGS = {
    "best_of_n": best_of_n,
    "self_consistency": self_consistency,
    "first_finish": first_finish,
}
