"""Heads side by side, and the target's own guesses at adaptive tokens: blockwise parallel decoding, Medusa, SDSAT. Greedy."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from fidelity.transcribed.compared import Columns, Compared, Text, after, best, replayed, verified
from fidelity.transcribed.eagle_trees import SIZE, Uneven, cases, columns, rounds, target, uneven

from decgraph.runtime.models.interface import Path, Scores


class Headed(Uneven):
    """A target with heads that agree often: half of their mass is what it says after its own likeliest tokens."""

    def heads(self, path: Path) -> list[Scores]:
        out, text = [], list(path)
        text.append(best(after(self, text), 1)[0])
        for i in range(self.heads_count):
            said, other = self.eval([tuple(text)])[0].weights or (), uneven((self.seed, i, path[-2:]), self.vocab.size)
            out.append(Scores(weights=tuple((a + b) / 2 for a, b in zip(said, other, strict=True))))
            text.append(best(after(self, text), 1)[0])
        return out


def headed(case: Mapping[str, Any]) -> Headed:
    return Headed(case.get("size", SIZE), case["seed"], window=2, heads=case["heads"], vocab="t", name="target")


def guesses(model: Headed, text: list[int]) -> list[np.ndarray]:
    """What the heads say at the token before the last one, which the target itself has chosen."""
    return [np.asarray([float(p) for p in s.weights or ()]) for s in model.heads(tuple(text[:-1]))]


def blockwise_parallel(case: Mapping[str, Any]) -> Columns:
    """Blocks of k guesses, of which the first is the model's own next token: its call has given it, and the others, at the last
    kept place. The longest beginning that is the model's own is kept."""
    model, k = headed(case), case["k"]
    text, drafted, accepted = list(case["prompt"]), [[]], [0]
    block = [best(after(model, text), 1)[0]]
    block += [int(np.argmax(g)) for g in guesses(model, [*text, block[0]])][: k - 1]
    while True:
        kept = 0
        while kept < len(block) and block[kept] == best(after(model, [*text, *block[:kept]]), 1)[0]:
            kept += 1
        drafted.append([tuple(block[1 : i + 1]) for i in range(1, len(block))])
        accepted.append(kept - 1)
        text += block[:kept]
        if len(text) >= len(case["prompt"]) + case["limit"] - 1:
            break
        block = [best(after(model, text), 1)[0]]
        block += [int(np.argmax(g)) for g in guesses(model, [*text, block[0]])][: k - 1]
    end = len(case["prompt"]) + case["limit"]
    text.append(best(after(model, text), 1)[0])
    return {"tokens": tuple(text[:end]), "drafted": drafted, "accepted": accepted}


def medusa(case: Mapping[str, Any]) -> Columns:
    """Candidates are a template of the heads' likeliest tokens; the longest that is the target's own is kept."""
    model = headed(case)
    template = [tuple(p) for p in json.loads(case["shape"])]

    def tree(text: list[int]) -> list[Text]:
        rows = [best(g, SIZE) for g in guesses(model, text)]
        return sorted({tuple(rows[d][rank] for d, rank in enumerate(path)) for path in template})

    return rounds(case, model, tree)


def sdsat(case: Mapping[str, Any]) -> Columns:
    """Two calls a round: behind the last token and the adaptive ones, then on what they gave, the first of which is exact."""
    model, n = target(case), case["gamma"]
    text, drafted, accepted = list(case["prompt"]), [[]], [0]
    text.append(best(after(model, text), 1)[0])
    while len(text) < len(case["prompt"]) + case["limit"]:
        first = [best(after(model, [*text, *[case["adaptive"]] * i]), 1)[0] for i in range(n + 1)]
        drafted += [[tuple([case["adaptive"]] * (i + 1)) for i in range(n)], [tuple(first[: i + 1]) for i in range(n + 1)]]
        kept, _ = verified(model, [*text, first[0]], [tuple(first[1 : i + 1]) for i in range(1, n + 1)])
        accepted += [0, len(kept)]
        text += [first[0], *kept]
    return {"tokens": tuple(text[: len(case["prompt"]) + case["limit"]]), "drafted": drafted, "accepted": accepted}


def ours(program: str, model: Any, *names: str) -> Any:
    """A program of one model with its parameters, as columns."""
    return replayed(program, *names, models=lambda case: {"target": model(case)}, columns=columns, beyond=16)


COMPARED = [
    Compared(
        "blockwise_parallel",
        "tensorflow/tensor2tensor bafdc1b6, tensor2tensor/models/research/transformer_parallel.py, "
        "_slow_greedy_infer_guess_and_check",
        blockwise_parallel,
        ours("blockwise_parallel", headed, "k"),
        cases({"k": 4, "heads": 3}, {"k": 3, "heads": 4}, {"k": 2, "heads": 1}),
        "k is block_size, guess_and_check_top_k is 1; a block's first guess, which is always kept, is our call's own token",
    ),
    Compared(
        "medusa_match",
        "FasterDecoding/Medusa e2a5d20c, medusa/model/utils.py, generate_candidates and evaluate_posterior, temperature 0",
        medusa,
        ours("medusa_match", headed, "shape"),
        cases(
            {"heads": 3, "shape": "[[0], [1], [2], [0, 0], [0, 1], [1, 0], [0, 0, 0], [0, 1, 0]]"},
            {"heads": 2, "shape": "[[0], [1], [3], [0, 0], [3, 1]]"},
        ),
        "greedy: sampled, their code has lossy rules only",
    ),
    Compared(
        "sdsat",
        "ainergy-ml/SDSAT 9ce0a30e, decoders/sdsat.py, SDSATDecoderGreedy.decode",
        sdsat,
        ours("sdsat", target, "adaptive", "gamma", "shape"),
        cases(
            {"gamma": 3, "adaptive": 0, "shape": "1x1x1", "size": 5, "limit": 20},
            {"gamma": 5, "adaptive": 2, "shape": "1x1x1x1x1", "size": 4, "limit": 20},
        ),
        "sats, one id as often as nrof_sat, is `adaptive`",
    ),
]
