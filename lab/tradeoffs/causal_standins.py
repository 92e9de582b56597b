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
from lab.tradeoffs.causal_measures import Ids, Ran, likeness, mean, read

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


def judge(models: Mapping[str, Model]) -> Model:
    """How likely a drafted token is beside the target's likeliest: 1 is the target's own."""
    target = models["target"]
    return Standin(target, lambda path: (*_likelihoods(target, path, 1)[1], 1.0)[0])


def _of_step(target: Model, path: Ids) -> float:
    return math.exp(mean(_likelihoods(target, path, WINDOW)[0]))


def reward_of_step(models: Mapping[str, Model]) -> Model:
    """A step's likelihood per token by the target."""
    return Standin(models["target"], lambda path: _of_step(models["target"], path))


def advantage(models: Mapping[str, Model]) -> Model:
    """What a step's likelihood per token by the target lacks of 1."""
    return Standin(models["target"], lambda path: 1 - _of_step(models["target"], path))


def _variety(tokens: Ids) -> float:
    return len(set(tokens[-24:])) / max(1, len(tokens[-24:]))


def discriminator(models: Mapping[str, Model]) -> Model:
    """A reward that has nothing to do with likelihood: the share of the last 24 tokens that are different ones."""
    return Standin(models["target"], _variety)


# What a program is called with at a value


def typical(epsilon: float) -> Mapping[str, Mapping[str, Any]]:
    """Typical acceptance: delta is the root of epsilon."""
    return {"fixed": {"epsilon": epsilon, "delta": min(0.9, epsilon**0.5)}}


def budget(n: int) -> Mapping[str, Mapping[str, Any]]:
    """kv_evict: what it may keep of the prompt and of new tokens."""
    return {"fixed": {"window": 4, "prefill": n, "heavy": n // 2, "recent": max(1, n // 2)}}


def heat(value: float) -> Mapping[str, Mapping[str, Any]]:
    """autodeco: heads that give the same temperature and mass at every place."""
    says = {"heat": value, "mass": 1.0}
    return {
        "heads": {name: lambda models, said=said: Standin(models["target"], lambda path: said) for name, said in says.items()}
    }


def hard(least: int) -> Mapping[str, Mapping[str, Any]]:
    """skeleton_graph: points with so many characters are hard."""
    return {"externs": {"hard": lambda text: len(text) >= least, "needs": lambda text, j: False}}


# Externs


def alike(a: str, b: str) -> bool:
    """Whether two steps are the same."""
    return a == b


def without_e(text: str) -> bool:
    """A constraint."""
    return "e" not in text


def difficulty(text: str) -> float:
    """Every task is as hard as the others."""
    return 0.7


def different(text: str) -> int:
    """A reward of a prefix: how many different characters it has."""
    return len(set(text))


def length(text: str) -> int:
    """A reward: characters."""
    return len(text)


def verifier(answer: str) -> Mapping[str, Any]:
    """A verifier that knows the task's answer: how alike the text is to it."""
    return {"reward": lambda text: likeness(text, answer)}


def process(answer: str) -> Mapping[str, Any]:
    """A process reward model that knows the answer; a step is two characters."""

    def worth(text: str) -> float:
        return likeness(text, answer[: max(1, len(text.strip()))] if "\n" not in text else answer)

    return {"worth": worth, "step_ends": lambda text: len(text.strip()) % 2 == 0}


def value(answer: str) -> Mapping[str, Any]:
    """The same as a value network that is never quite without hope, so that bad steps do not get the largest budgets."""
    made = process(answer)
    return {**made, "worth": lambda text: 0.3 + 0.7 * made["worth"](text)}


# Two views of a text: what it is to depend on, and what not


Encode = Callable[[str], Ids]


def alone(r: Ran, ids: Encode) -> tuple[Ids, Ids]:
    """With the prompt, and with its last token."""
    return r.prompt, r.prompt[-1:]


def evidence(r: Ran, ids: Encode) -> tuple[Ids, Ids]:
    """With and without the 24 tokens that context-aware decoding takes for evidence."""
    return r.prompt, r.prompt[24:]


def opposite(r: Ran, ids: Encode) -> tuple[Ids, Ids]:
    """After the guard, and after the adversary."""
    return ids("# safe, tested and documented code\n") + r.prompt, ids("raise SystemError(1)\n" * 2) + r.prompt


def system(r: Ran, ids: Encode) -> tuple[Ids, Ids]:
    """After the system prompt, and without it."""
    return ids("# documented\n") + r.prompt[-8:], r.prompt


def source(r: Ran, ids: Encode) -> tuple[Ids, Ids]:
    """With and without the text that is translated."""
    return ids(
        "class Queue:\n    def __init__(self):\n        self.queue = []\n\n    def append(self, value):\n"
    ) + r.prompt, r.prompt


# Rewards of a run


def varied(run: Ran) -> float:
    """The share of the last 24 tokens that are different ones."""
    return _variety(run.prompt + run.tokens)


def says_answer(run: Ran) -> float:
    """Whether the text says what the evidence says."""
    return float(run.answer in run.text)


def different_characters(run: Ran) -> float:
    """How many different characters the text has."""
    return len(set(run.text))


def reads_back(run: Ran) -> float:
    """How likely the prompt is after the text."""
    return mean(read("target", run.tokens, run.prompt)[0])


def answered(run: Ran) -> float:
    """How alike the text is to its task's answer."""
    return likeness(run.text, run.answer)


def long_text(run: Ran) -> float:
    """Characters of the text: the reward in papers about controlled decoding."""
    return float(len(run.text))


def no_e(run: Ran) -> float:
    """1 for a text without the letter e."""
    return float(without_e(run.text))


def green(key: Ids) -> list[int]:
    """Half of the vocabulary, chosen by tokens and a key."""
    seed = int.from_bytes(hashlib.sha256(repr(key).encode()).digest()[:8], "big")
    return [int(t) for t in np.random.default_rng(seed).permutation(VOCAB)[: VOCAB // 2]]


def ones(tokens: Any, layer: int) -> list[int]:
    """The tokens with a 1 in a layer of the tournament, after these tokens."""
    return green((*(int(t) for t in tokens), -1 - int(layer)))


def green_after(token: Any) -> list[int]:
    """Half of the vocabulary, chosen by the token before."""
    return green((int(token),))


def kgw_hits(delta: float, prompt: Ids, tokens: Ids) -> tuple[int, int]:
    """Green tokens, and tokens that a detector counts: each pair once, as the authors' detector does."""
    pairs = set(zip((*prompt[-1:], *tokens), tokens, strict=False))
    return sum(t in green((before,)) for before, t in pairs), len(pairs)


def synthid_hits(depth: int, prompt: Ids, tokens: Ids) -> tuple[int, int]:
    """The ones of the tournament's layers at each token with a full context, and how many bits those are."""
    grams = {tuple(tokens[i - 4 : i + 1]) for i in range(4, len(tokens))}
    bits = [g[-1] in ones(g[:4], layer) for g in grams for layer in range(depth)]
    return sum(bits), len(bits)


# Shares of a context's keys and values that are kept or read


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
