"""The vocabulary kernels as functions on device tensors: no synchronisation, static shapes, fit for CUDA graphs.

Rows are flattened, [R, V]; logits are bfloat16, float16 or float32 (computed in float32) or float64 (computed in float64).
The noise key is words int32[R, 3], the bits of the uint32 counters (c0, c1, c2) of runtime/noise.py, and seeds int64[R, 2],
the halves (k0, k1) of the seed. A row of -inf alone has probabilities 0 and the draw -1.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from decgraph.backends.triton.rows.launch import Made
from decgraph.backends.triton.rows.program import Node, RowProgram


@lru_cache(maxsize=512)
def _made(build: Callable[..., None], size: int, wide: bool, *options: Any) -> Made:
    program = RowProgram(build.__name__.strip("_"), wide=wide)
    build(program, *options)
    return Made(program, size)


def _run(build: Callable[..., None], rows: Tensor, given: dict[str, Any], *options: Any) -> dict[str, Tensor]:
    """Run the program that `build` makes over the rows of a tensor [R, V]."""
    made = _made(build, int(rows.shape[1]), rows.dtype == torch.float64, *options)
    return made.run(int(rows.shape[0]), given)


def _scores(p: RowProgram, bias: str) -> Node:
    """The logits, with a bias [V] ("shared") or [R, V] ("rows") where there is one."""
    x = p.row("logits", scores=True)
    if not bias:
        return x
    return p.map("add", x, p.shared("bias") if bias == "shared" else p.row("bias", scores=False))


def _biased(logits: Tensor, bias: Tensor | None) -> tuple[dict[str, Any], str]:
    if bias is None:
        return {"logits": logits}, ""
    return {"logits": logits, "bias": bias}, "shared" if bias.ndim == 1 else "rows"


def _heat(p: RowProgram, warm: bool) -> Node | float:
    """The temperature: given at launch, where it is not one."""
    return p.setting("temperature") if warm else 1.0


def _softmax(p: RowProgram, bias: str, warm: bool) -> None:
    p.output("probs", p.softmax(_scores(p, bias), _heat(p, warm)))


def softmax(logits: Tensor) -> Tensor:
    """Probabilities [R, V], float32 (float64 of float64), of logits [R, V]."""
    return _run(_softmax, logits, {"logits": logits}, "", False)["probs"]


def shaped(
    logits: Tensor,
    *,
    temperature: float,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """Probabilities [R, V] after bias [V] or [R, V] (-inf bans), temperature, top-k, top-p and min-p, in this order, each
    renormalised; of equals the lowest tokens are kept. temperature 0 is one-hot at the likeliest token."""
    if temperature == 0:
        best = argmax(logits, bias)
        kind = torch.float64 if logits.dtype == torch.float64 else torch.float32
        return torch.zeros(logits.shape, dtype=kind, device=logits.device).scatter_(1, best[:, None], 1.0)
    given, how = _biased(logits, bias)
    size = int(logits.shape[1])
    probs = _run(_softmax, logits, {**given, "temperature": temperature}, how, temperature != 1)["probs"]
    k = top_k if top_k is not None and top_k < size else None
    mass = top_p if top_p is not None and top_p < 1 else None
    if k is not None or mass is not None or min_p is not None:
        from decgraph.backends.triton.rows.truncate import truncate

        truncate(probs, top_k=k, top_p=mass, min_p=min_p)
    return probs


def _argmax(p: RowProgram, bias: str) -> None:
    p.output("token", p.argmax(_scores(p, bias)))


def argmax(logits: Tensor, bias: Tensor | None = None) -> Tensor:
    """The likeliest token of each row, ties to the lowest: int64[R]."""
    given, how = _biased(logits, bias)
    return _run(_argmax, logits, given, how)["token"]


def _draw(p: RowProgram) -> None:
    p.output("token", p.race(p.row("probs", scores=False), p.noise("noise")))


def draw(probs: Tensor, words: Tensor, seeds: Tensor) -> Tensor:
    """A draw from each row of probs [R, V], which need not sum to one: int64[R], -1 for a row without mass. One pass."""
    return _run(_draw, probs, {"probs": probs, "noise": (words, seeds)})["token"]


def _draw_logits(p: RowProgram, bias: str, warm: bool) -> None:
    p.output("token", p.race(p.softmax(_scores(p, bias), _heat(p, warm)), p.noise("noise")))


def draw_logits(logits: Tensor, words: Tensor, seeds: Tensor, *, temperature: float, bias: Tensor | None = None) -> Tensor:
    """A draw from softmax((logits + bias) / temperature) of each row: int64[R], -1 for a row of -inf. One pass and no
    normalising (float64: as the reference, after it). temperature 0: the likeliest token."""
    if temperature == 0:
        return argmax(logits, bias)
    given, how = _biased(logits, bias)
    given |= {"noise": (words, seeds), "temperature": temperature}
    return _run(_draw_logits, logits, given, how, temperature != 1)["token"]


def _topk(p: RowProgram, k: int) -> None:
    values, tokens = p.fold("best", p.row("values", scores=True), k=k)
    p.output("tokens", tokens)
    p.output("best", values)


def topk(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest entries of each row, largest first, ties to the lowest token: (tokens int64[R, k], values [R, k]). Where
    a row has fewer than k entries the rest is -1, with value -inf."""
    out = _run(_topk, values, {"values": values}, k)
    return out["tokens"], out["best"]


def _entropy(p: RowProgram) -> None:
    p.output("entropy", p.entropy(p.row("probs", scores=False)))


def entropy(probs: Tensor) -> Tensor:
    """The entropy of each row of probabilities, in nats: [R]."""
    return _run(_entropy, probs, {"probs": probs})["entropy"]


def _confidence(p: RowProgram, bias: str, warm: bool) -> None:
    p.output("prob", p.lookup(p.softmax(_scores(p, bias), _heat(p, warm)), p.token("token")))


def confidence(logits: Tensor, tokens: Tensor, *, temperature: float = 1.0, bias: Tensor | None = None) -> Tensor:
    """The probability of one token of each row, softmax((logits + bias) / temperature)[tokens]: [R]; 0 at a negative token.
    One pass. tokens: int64[R]."""
    given, how = _biased(logits, bias)
    given |= {"token": tokens, "temperature": temperature}
    return _run(_confidence, logits, given, how, temperature != 1)["prob"]


def _margin(p: RowProgram) -> None:
    values, tokens = p.fold("best", p.row("probs", scores=False), k=2)
    p.output("best", values)


def margin(probs: Tensor) -> Tensor:
    """How far the likeliest token of each row is ahead of the second: [R]."""
    best = _run(_margin, probs, {"probs": probs})["best"]
    return best[:, 0] - best[:, 1]


def _without(p: RowProgram, k: int) -> None:
    q = p.row("probs", scores=False)
    count = p.token("count")
    left = p.normalized(p.exclude(q, p.members("members", k), count))
    p.output("probs_left", p.map("select", p.map("gt", count, p.literal(0)), left, q))


def without(probs: Tensor, members: Tensor, count: Tensor) -> Tensor:
    """Each row without its first `count` members, renormalised: [R, V], the conditional distributions of draws without
    replacement. A row with count 0 is itself. members: int64[R, k] (-1: none); count: int32[R] or int64[R]."""
    return _run(_without, probs, {"probs": probs, "members": members, "count": count.long()}, int(members.shape[1]))[
        "probs_left"
    ]


def _draw_many(p: RowProgram, k: int) -> None:
    q = p.row("probs", scores=False)
    values, tokens = p.fold("best", p.race_key(p.map("log", q), p.noise("noise")), k=k)
    p.output("tokens", tokens)
    p.output("keys", values)


def draw_race(probs: Tensor, words: Tensor, seeds: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The first k of each row's race and their keys, log q - log E, highest first: int64[R, k], -1 where the row has fewer
    tokens, and [R, k]."""
    out = _run(_draw_many, probs, {"probs": probs, "noise": (words, seeds)}, k)
    return torch.where(out["keys"] > float("-inf"), out["tokens"], -1), out["keys"]


def draw_many(probs: Tensor, words: Tensor, seeds: Tensor, k: int) -> Tensor:
    """The first k of each row's race, a sample without replacement: int64[R, k], -1 where the row has fewer tokens."""
    return draw_race(probs, words, seeds, k)[0]


def _residual(p: RowProgram) -> None:
    over = p.map("relu", p.map("sub", p.row("p", scores=False), p.row("q", scores=False)))
    p.output("residual", p.normalized(over))


def residual(p: Tensor, q: Tensor) -> Tensor:
    """relu(p - q) of each row over its sum, zeros where that is 0: [R, V]."""
    return _run(_residual, p, {"p": p, "q": q})["residual"]
