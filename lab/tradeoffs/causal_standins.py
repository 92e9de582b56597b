"""What stands in for the trained parts of lossy causal programs (heads, rewards), a watermark's keys, and cache budgets.

A trained judge, router or reward model is a part of its paper that no zoo ships. The stand-ins here are the target's own
probabilities (an oracle: what it costs to read them is not counted), the answer of a synthetic task, or a plain function of the
text. A result with them says what the decoder does with a reward, not how good the reward is.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from decgraph.runtime.models.interface import Model
from decgraph.runtime.models.reading import Reading
from lab.tradeoffs.causal_measures import Ids, likeness, mean, read

VOCAB = 2048
WINDOW = 8
"""Tokens of a step that a stand-in of a step's reward reads."""


class Standin(Reading):
    """A head that is a function of the path."""

    def __init__(self, target: Model, value: Callable[[Ids], float]) -> None:
        super().__init__(target, "prob", "stand-in")
        self.value = value

    def read(self, paths: Sequence[tuple[Any, ...]]) -> list[Any]:
        return [self.value(tuple(path)) for path in paths]


Heads = Mapping[str, Callable[[Mapping[str, Model]], Model]]


def _likelihoods(target: Model, path: Ids, window: int) -> tuple[list[float], list[float]]:
    """Of a path's last tokens the log-probabilities by the target, and their probabilities over the likeliest token's."""
    cuts = range(max(1, len(path) - window), len(path))
    logp, ratio = [], []
    for cut, scores in zip(cuts, target.eval([path[:cut] for cut in cuts]), strict=True):
        x = np.asarray(scores.logits, dtype=np.float64)
        ratio.append(math.exp(float(x[path[cut]] - x.max())))
        logp.append(float(x[path[cut]] - x.max() - math.log(np.exp(x - x.max()).sum())))
    return logp, ratio


def _of_step(target: Model, path: Ids) -> float:
    return math.exp(mean(_likelihoods(target, path, WINDOW)[0]))


def _variety(tokens: Ids) -> float:
    return len(set(tokens[-24:])) / max(1, len(tokens[-24:]))


def _head(value: Callable[[Model, Ids], float]) -> Callable[[Mapping[str, Model]], Model]:
    return lambda models: Standin(models["target"], lambda path: value(models["target"], path))


def process(answer: str, least: float = 0.0) -> Mapping[str, Any]:
    """A process reward model that knows the answer; a step is two characters. least: the worth of a step without hope."""

    def worth(text: str) -> float:
        alike = likeness(text, answer[: max(1, len(text.strip()))] if "\n" not in text else answer)
        return least + (1 - least) * alike

    return {"worth": worth, "step_ends": lambda text: len(text.strip()) % 2 == 0}


def green(key: Ids) -> list[int]:
    """Half of the vocabulary, chosen by tokens and a key."""
    seed = int.from_bytes(hashlib.sha256(repr(key).encode()).digest()[:8], "big")
    return [int(t) for t in np.random.default_rng(seed).permutation(VOCAB)[: VOCAB // 2]]


def ones(tokens: Any, layer: int) -> list[int]:
    """The tokens with a 1 in a layer of the tournament, after these tokens."""
    return green((*(int(t) for t in tokens), -1 - int(layer)))


def kgw_hits(delta: float, prompt: Ids, tokens: Ids) -> tuple[int, int]:
    """Green tokens, and tokens that a detector counts: each pair once, as the authors' detector does."""
    pairs = set(zip((*prompt[-1:], *tokens), tokens, strict=False))
    return sum(t in green((before,)) for before, t in pairs), len(pairs)


def synthid_hits(depth: int, prompt: Ids, tokens: Ids) -> tuple[int, int]:
    """The ones of the tournament's layers at each token with a full context, and how many bits those are."""
    grams = {tuple(tokens[i - 4 : i + 1]) for i in range(4, len(tokens))}
    bits = [g[-1] in ones(g[:4], layer) for g in grams for layer in range(depth)]
    return sum(bits), len(bits)


def evicted(params: Mapping[str, Any], prompt: int, new: int) -> float:
    """kv_evict: what its budgets keep of a context, averaged over the new tokens."""
    old = min(prompt, max(params["prefill"], params["window"]))
    kept = [(old + min(i, params["heavy"] + params["recent"])) / (prompt + i) for i in range(new)]
    return mean(kept)


def compressed(params: Mapping[str, Any], prompt: int, new: int) -> float:
    """kv_frequency: positions that its cache holds over the context's, averaged over the new tokens."""
    held, kept = prompt - 1, []
    for i in range(new):
        while held > params["capacity"]:
            held = params["sinks"] + math.ceil((held - params["sinks"]) / 2)
        kept.append((held + 1) / (prompt + i))
        held += 1
    return mean(kept)


def quantized(params: Mapping[str, Any], prompt: int, new: int) -> float:
    """kv_quantized: bits of the cache over those of float32, averaged over the new tokens."""
    sizes = [prompt + i for i in range(new)]
    bits = (params["bits"] + params["bits_v"]) / 2
    return mean([(bits * max(0, n - params["residual"]) + 32 * min(n, params["residual"])) / (32 * n) for n in sizes])


def sparsely(params: Mapping[str, Any], prompt: int, new: int) -> float:
    """kv_sparse_read: positions that a token reads over those of the context."""
    return mean([min(n, params["heavy"]) / n for n in range(prompt, prompt + new)])


def parallel(params: Mapping[str, Any], prompt: int, new: int) -> float:
    """parallel_context: pairs of positions that the prompt's reading attends to, over those of causal attention."""
    first, q = params["shared"], params["question"]
    pairs, start = first * (first + 1) / 2, first
    while start < prompt - q:
        n = min(start + params["length"], prompt - q) - start
        pairs, start = pairs + n * first + n * (n + 1) / 2, start + n
    pairs += sum(range(prompt - q + 1, prompt + 1))
    return pairs / (prompt * (prompt + 1) / 2)


def prefilled(params: Mapping[str, Any], prompt: int, new: int) -> float:
    """sparse_prefill: the same, of segments that attend to themselves and to a budget of positions before them, the last to
    all."""
    pairs, start = 0.0, 0
    while start < prompt:
        n = min(params["segment"], prompt - start)
        budget = prompt if start + n == prompt else max(params["block"], params["budget"])
        pairs += n * min(start, budget) + n * (n + 1) / 2
        start += n
    return pairs / (prompt * (prompt + 1) / 2)


SOURCE = "class Queue:\n    def __init__(self):\n        self.queue = []\n\n    def append(self, value):\n"
GUARD, ADVERSARY, SYSTEM = "# safe, tested and documented code\n", "raise SystemError(1)\n" * 2, "# documented\n"

FUNCTIONS: Mapping[str, Mapping[str, Any]] = {
    "heads": {
        # how likely a drafted token is beside the target's likeliest: 1 is the target's own
        "judge": _head(lambda target, path: (*_likelihoods(target, path, 1)[1], 1.0)[0]),
        "reward_of_step": _head(_of_step),
        "advantage": _head(lambda target, path: 1 - _of_step(target, path)),
        "variety": _head(lambda target, path: _variety(path)),
    },
    "at": {
        "typical": lambda epsilon: {"fixed": {"epsilon": epsilon, "delta": min(0.9, epsilon**0.5)}},
        "budget": lambda n: {"fixed": {"window": 4, "prefill": n, "heavy": n // 2, "recent": max(1, n // 2)}},
        "heat": lambda heat: {"heads": {"heat": _head(lambda target, path: heat), "mass": _head(lambda target, path: 1.0)}},
        "hard": lambda least: {"externs": {"hard": lambda text: len(text) >= least, "needs": lambda text, j: False}},
    },
    "externs": {
        "alike": lambda a, b: a == b,
        "without_e": lambda text: "e" not in text,
        "difficulty": lambda text: 0.7,
        "different": lambda text: len(set(text)),
        "length": len,
        "likeness": likeness,
        "green": lambda token: green((int(token),)),
        "ones": ones,
    },
    "answers": {
        "verifier": lambda answer: {"reward": lambda text: likeness(text, answer)},
        "process": process,
        "value": lambda answer: process(answer, 0.3),  # so that bad steps do not get the largest budgets
    },
    "views": {  # what a text is to depend on, and without it
        "alone": lambda run, ids: (run.prompt, run.prompt[-1:]),
        "evidence": lambda run, ids: (run.prompt, run.prompt[24:]),
        "opposite": lambda run, ids: (ids(GUARD) + run.prompt, ids(ADVERSARY) + run.prompt),
        "system": lambda run, ids: (ids(SYSTEM) + run.prompt[-8:], run.prompt),
        "source": lambda run, ids: (ids(SOURCE) + run.prompt, run.prompt),
    },
    "score": {
        "variety": lambda run: _variety(run.prompt + run.tokens),
        "says_answer": lambda run: float(run.answer in run.text),
        "different": lambda run: len(set(run.text)),
        "reads_back": lambda run: mean(read("target", run.tokens, run.prompt)[0]),
        "answered": lambda run: likeness(run.text, run.answer),
        "length": lambda run: len(run.text),
        "without_e": lambda run: float("e" not in run.text),
    },
    "stored": {
        "evicted": evicted, "compressed": compressed, "quantized": quantized, "sparsely": sparsely, "parallel": parallel,
        "prefilled": prefilled,
    },
    "hits": {"kgw": kgw_hits, "synthid": synthid_hits},
}  # fmt: skip
"""What the fields of an entry of causal.toml name."""
