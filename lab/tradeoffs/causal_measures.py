"""What the sweeps of lossy causal programs measure: counts of calls, and the emitted text as the target itself reads it.

The text is scored apart from decgraph,
by transformers' own forward of the same folder: the log-probability of every emitted token
given the prompt and the tokens before it, and whether it is the likeliest there. Where a program mixes two views (prompts,
models),
`contrast` is how much likelier the text is in the favoured view.
"""

from __future__ import annotations

import difflib
import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lab.tradeoffs.causal import Entry

Ids = tuple[int, ...]


@dataclass(frozen=True)
class Ran:
    """One run at one setting: its prompt, its tokens and text, what it returned and counted."""

    prompt: Ids
    tokens: Ids
    text: str
    results: tuple[Ids, ...]
    stats: Any
    rows: int
    commits: int = 0
    answer: str = ""


@dataclass
class Point:
    """All runs at one value of an entry's knob. params: of the program, with their defaults. beside: the distance of
    independent texts. encode: text to tokens."""

    runs: Sequence[Ran]
    params: Mapping[str, Any]
    entry: Entry
    value: Any = None
    layers: int = 6
    beside: float = 0.0
    encode: Callable[[str], Ids] = lambda text: ()


@functools.cache
def _module(folder: str) -> Any:
    import torch
    import transformers

    from decgraph.zoo import folder_of

    transformers.logging.disable_progress_bar()
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder_of(folder), dtype=torch.float32, trust_remote_code=False
    ).eval()


@functools.lru_cache(maxsize=4096)
def read(folder: str, prompt: Ids, tokens: Ids) -> tuple[tuple[float, ...], tuple[bool, ...]]:
    """For every one of `tokens` after `prompt`: its log-probability in nats by the model of a folder, and whether it is the
    model's likeliest there."""
    import torch

    if not tokens:
        return (), ()
    with torch.no_grad():
        logits = _module(folder)(torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 : -1].double()
    p = torch.log_softmax(logits, -1)
    at = torch.tensor(tokens)
    return tuple(p[torch.arange(len(tokens)), at].tolist()), tuple((p.argmax(-1) == at).tolist())


def mean(values: Sequence[float]) -> float:
    """The mean; 0 of none."""
    return sum(values) / len(values) if values else 0.0


def distinct(tokens: Sequence[int], n: int) -> float:
    """The share of a text's n-grams that are different ones; 1 for a text that is shorter."""
    grams = [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]
    return len(set(grams)) / len(grams) if grams else 1.0


def likeness(text: str, other: str) -> float:
    """How alike two texts are, 0 to 1: twice the characters that match over all."""
    return difflib.SequenceMatcher(None, text.strip(), other.strip(), autojunk=False).ratio()


def layers_of(call: str, layers: int) -> float | None:
    """How many layers a call of a derived model computes; None for a part that is read to decide (`upto`) and for heads."""
    if ".upto(" in call or not call.startswith("target") or ".head" in call:
        return None
    if found := re.search(r"\.exit\((\d+)\)", call):
        return float(found[1])
    sets = [len(re.findall(r"\d+", s)) for s in re.findall(r"\{([\d, ]*)\}", call)]
    part = 0.5 if "attention" in call else 1.0
    return layers - part * sum(sets)


def _layers(p: Point) -> float:
    total, tokens = 0.0, sum(len(r.tokens) for r in p.runs)
    for r in p.runs:
        done = max((layers_of(c, p.layers) or 0 for c in r.stats.calls if ".exit(" in c), default=0)
        for call, n in r.stats.calls.items():
            of = layers_of(call, p.layers)
            total += n * ((of - done if call == "target" else of) if of is not None else 0)
    return total / tokens / p.layers


def _per_token(count: Callable[[Ran], float]) -> Callable[[Point], float]:
    return lambda p: sum(map(count, p.runs)) / max(1, sum(len(r.tokens) for r in p.runs))


def _each(value: Callable[[Ran], float]) -> Callable[[Point], float]:
    return lambda p: mean([value(r) for r in p.runs])


def _logprob(p: Point) -> float:
    return mean([x for r in p.runs for x in read(p.entry.model, r.prompt, r.tokens)[0]])


def _drafter(p: Point) -> float:
    return mean([x for r in p.runs for x in read("drafter", r.prompt, r.tokens)[0]])


def _contrast(p: Point) -> float:
    views = p.entry.views
    assert views
    each = [(r, *views(r, p.encode)) for r in p.runs]
    read_in = [[sum(read(p.entry.model, view, r.tokens)[0]) for view in both] for r, *both in each]
    return mean([(a - b) / max(1, len(r.tokens)) for (a, b), r in zip(read_in, p.runs, strict=True)])


def _score(p: Point) -> float:
    assert p.entry.score
    return mean([p.entry.score(r) for r in p.runs])


def _stored(p: Point) -> float:
    assert p.entry.stored
    return mean([p.entry.stored(p.params, len(r.prompt), len(r.tokens)) for r in p.runs])


def _z(p: Point) -> float:
    assert p.entry.hits
    counts = [p.entry.hits(p.value, r.prompt, r.tokens) for r in p.runs]
    hits, n = sum(h for h, _ in counts), sum(n for _, n in counts)
    return (hits - n / 2) / math.sqrt(n / 4)


def _texts(r: Ran) -> Sequence[Ids]:
    return r.results or (r.tokens,)


def _apart(texts: Sequence[Ids]) -> float:
    pairs = [(a, b) for i, a in enumerate(texts) for b in texts[:i]]
    return mean([1 - len(set(a) & set(b)) / max(1, len(set(a) | set(b))) for a, b in pairs])


MEASURES: dict[str, tuple[str, Callable[[Point], float]]] = {
    "tokens/call": ("committed tokens per call of the target", lambda p: 1 / max(1e-9,
    _per_token(lambda r: r.stats.target_calls)(p))),
    "target calls": ("calls of the target per committed token", _per_token(lambda r: r.stats.target_calls)),
    "rows": ("next-token distributions that the models gave, per committed token", _per_token(lambda r: r.rows)),
    "all rows": ("next-token distributions that the models gave, per request", _each(lambda r: r.rows)),
    "commits": ("commits per committed token: rounds of a program that commits by steps", _per_token(lambda r: r.commits)),
    "layers": ("share of the target's layers that are computed, per token", _layers),
    "log p": ("mean log-probability of the emitted tokens by the target, nats", _logprob),
    "text log p": ("log-probability of a whole text by the target, nats", lambda p: _each(lambda r: sum(read(p.entry.model,
    r.prompt, r.tokens)[0]))(p)),
    "greedy": ("share of emitted tokens that are the target's likeliest after the text so far",
    lambda p: mean([float(x) for r in p.runs for x in read(p.entry.model, r.prompt, r.tokens)[1]])),
    "drafter log p": ("mean log-probability of the emitted tokens by the drafter, nats", _drafter),
    "over drafter": ("log-probability by the target less that by the drafter, nats a token",
    lambda p: _logprob(p) - _drafter(p)),
    "contrast": ("log-probability in the favoured view less that in the other, nats a token", _contrast),
    "distinct-2": ("share of a text's token pairs that are different ones", _each(lambda r: distinct(r.tokens, 2))),
    "repeated-4": ("share of a text's runs of four tokens that stood in it before", _each(lambda r: 1 - distinct(r.tokens, 4))),
    "reward": ("mean reward of the committed text", _score),
    "stored": ("share of the context's keys and values that are kept or read", _stored),
    "z": ("z-score of the detector over all texts", _z),
    "texts": ("texts that one request returns", _each(lambda r: len(_texts(r)))),
    "different": ("share of the returned texts that are different ones", _each(lambda r: len(set(_texts(r))) / len(_texts(r)))),
    "apart": ("mean Jaccard distance of the tokens of two returned texts", _each(lambda r: _apart(_texts(r)))),
    "all distinct-2": ("share of the token pairs of all runs that are different ones", lambda p: _all_distinct(p)),
    "all log p": ("mean log-probability of the tokens of all returned texts, nats",
    lambda p: mean([x for r in p.runs for t in _texts(r) for x in read(p.entry.model, r.prompt, t)[0]])),
    "over independent": ("`apart` less that of as many independent samples",
    lambda p: mean([_apart(_texts(r)) for r in p.runs]) - p.beside),
    "length": ("committed tokens", _each(lambda r: len(r.tokens))),
    "bits": ("surprise of the emitted tokens by the target, bits", lambda p: -_logprob(p) / math.log(2)),
    "rows/text": ("next-token distributions that the target gave, per returned text", _each(lambda r: r.rows / len(_texts(r)))),
}  # fmt: skip
"""By name: in words, and as a function of a point."""


def _all_distinct(p: Point) -> float:
    pairs = [pair for r in p.runs for pair in zip(r.tokens, r.tokens[1:], strict=False)]
    return len(set(pairs)) / max(1, len(pairs))
