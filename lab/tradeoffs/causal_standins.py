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
from lab.tradeoffs.causal_measures import Ids, Ran, likeness, mean

VOCAB = 2048
WINDOW = 8
"""Tokens of a step that a stand-in of a step's reward reads."""


class Standin(Reading):
    """A head that is a function of the path: `value(logp of its last tokens by the target, their ratio to the likeliest)`."""

    def __init__(self, target: Model, window: int, value: Callable[[Sequence[float], Sequence[float]], float]) -> None:
        super().__init__(target, "prob", "stand-in")
        self.window, self.value = window, value

    def read(self, paths: Sequence[tuple[Any, ...]]) -> list[Any]:
        return [self._of(tuple(p)) for p in paths]

    def _of(self, path: Ids) -> float:
        cuts = range(max(1, len(path) - self.window), len(path))
        logp, ratio = [], []
        for cut, scores in zip(cuts, self.target.eval([path[:cut] for cut in cuts]), strict=True):
            x = np.asarray(scores.logits, dtype=np.float64)
            logp.append(float(x[path[cut]] - x.max() - math.log(np.exp(x - x.max()).sum())))
            ratio.append(math.exp(float(x[path[cut]] - x.max())))
        return self.value(logp, ratio)


Heads = Mapping[str, Callable[[Mapping[str, Model]], Model]]


def judge(models: Mapping[str, Model]) -> Model:
    """How likely a drafted token is beside the target's likeliest: 1 is the target's own."""
    return Standin(models["target"], 1, lambda logp, ratio: ratio[0] if ratio else 1.0)


def reward_of_step(models: Mapping[str, Model]) -> Model:
    """A step's likelihood per token by the target."""
    return Standin(models["target"], WINDOW, lambda logp, ratio: math.exp(mean(logp)))


def advantage(models: Mapping[str, Model]) -> Model:
    """What a step's likelihood per token by the target lacks of 1."""
    return Standin(models["target"], WINDOW, lambda logp, ratio: 1 - math.exp(mean(logp)))


def plain(models: Mapping[str, Model]) -> Model:
    """A reward that has nothing to do with likelihood: the share of the last 24 tokens that are different ones."""
    return Varied(models["target"])


class Varied(Reading):
    """The share of a path's last 24 tokens that are different ones."""

    def __init__(self, target: Model) -> None:
        super().__init__(target, "prob", "varied")

    def read(self, paths: Sequence[tuple[Any, ...]]) -> list[Any]:
        return [len(set(p[-24:])) / max(1, len(p[-24:])) for p in paths]


class Says(Reading):
    """A head that always says the same: a trained head's output, set by hand."""

    def __init__(self, target: Model, value: float) -> None:
        super().__init__(target, "prob", "says")
        self.said = value

    def read(self, paths: Sequence[tuple[Any, ...]]) -> list[Any]:
        return [self.said] * len(paths)


def says(value: float) -> Callable[[Mapping[str, Model]], Model]:
    """A head that gives the same probability at every place."""
    return lambda models: Says(models["target"], value)


def varied(run: Ran) -> float:
    """A reward: the share of the last 24 tokens that are different ones."""
    path = (run.prompt + run.tokens)[-24:]
    return len(set(path)) / len(path)


def answered(run: Ran) -> float:
    """How alike the text is to its task's answer."""
    return likeness(run.text, run.answer)


def long_text(run: Ran) -> float:
    """Characters of the text: the reward of length in papers about controlled decoding."""
    return float(len(run.text))


def no_e(run: Ran) -> float:
    """A reward: 1 for a text without the letter e."""
    return float("e" not in run.text)


def green(key: Ids) -> list[int]:
    """Half of the vocabulary, chosen by tokens and a key."""
    seed = int.from_bytes(hashlib.sha256(repr(key).encode()).digest()[:8], "big")
    return [int(t) for t in np.random.default_rng(seed).permutation(VOCAB)[: VOCAB // 2]]


def ones(tokens: Any, layer: int) -> list[int]:
    """The tokens with a 1 in a layer of the tournament, after these tokens."""
    return green((*(int(t) for t in tokens), -1 - int(layer)))


def kgw_hits(prompt: Ids, tokens: Ids) -> tuple[int, int]:
    """Green tokens, and tokens that a detector counts: each pair once, as the authors' detector does."""
    pairs = set(zip((*prompt[-1:], *tokens), tokens, strict=False))
    return sum(t in green((before,)) for before, t in pairs), len(pairs)


def synthid_hits(depth: int) -> Callable[[Ids, Ids], tuple[int, int]]:
    """The ones of the tournament's layers at each token with a full context, and how many bits those are."""

    def hits(prompt: Ids, tokens: Ids) -> tuple[int, int]:
        grams = {tuple(tokens[i - 4 : i + 1]) for i in range(4, len(tokens))}
        bits = [g[-1] in ones(g[:4], layer) for g in grams for layer in range(depth)]
        return sum(bits), len(bits)

    return hits


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
