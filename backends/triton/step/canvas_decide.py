"""A token for every cell and its confidence, in one pass over the scores: one row program."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from decgraph.backends.triton.rows.launch import Made
from decgraph.backends.triton.rows.program import RowProgram


@lru_cache(maxsize=64)
def decision(size: int, wide: bool, temperature: float, banned: bool, biased: bool) -> Made:
    """The program for a vocabulary: token, its probability before temperature and bias, and the largest score.

    wide: float64 scores. banned, biased: whether vectors [V] of 0 or -inf, and of the request's bias, are added.
    """
    p = RowProgram("decide", wide=wide)
    x = p.row("logits", scores=True)
    if banned:
        x = p.map("add", x, p.shared("bans"))
    y = p.map("add", x, p.shared("bias")) if biased else x
    token = p.argmax(y) if temperature == 0 else p.race(p.softmax(y, temperature), p.noise("noise"))
    p.output("token", token)
    p.output("prob", p.lookup(p.softmax(x), token))
    p.output("most", p.fold("max", x)[0])
    return Made(p, size)


def decide(
    logits: Tensor, temperature: float, noise: tuple[Tensor, Tensor] | None, bans: Tensor | None, bias: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """(tokens int64[R], their probabilities [R], the largest scores [R]) of logits [R, V].

    temperature 0: the likeliest tokens; else `noise` is (words int32[R, 3], seeds int64[R, 2]), see rows/functions.py.
    bans: [V], 0 or -inf, for both tokens and probabilities; bias: [V], for tokens alone.
    """
    made = decision(int(logits.shape[1]), logits.dtype == torch.float64, temperature, bans is not None, bias is not None)
    given: dict[str, Any] = {"logits": logits, "bans": bans, "bias": bias, "noise": noise}
    out = made.run(int(logits.shape[0]), {k: v for k, v in given.items() if v is not None})
    return out["token"], out["prob"], out["most"]
