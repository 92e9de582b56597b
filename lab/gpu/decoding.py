"""Decoding end to end with backend triton: against transformers' `generate`, eager and compiled, assisted generation and prompt
lookup, on the same weights and so with the same drafts accepted."""

from __future__ import annotations

from functools import partial

from lab.gpu.lab import Lab
from lab.gpu.report import Items, OutOfTime, Row, limited
from lab.gpu.speed import compared

WANTED = 4.0
"""How many times assisted generation decoding with a drafter has to be at least."""


def stage(lab: Lab) -> Items:
    """The items of the stage `decoding`."""
    ours = partial(compared, lab, backend="triton")
    yield "speculative against assisted", lambda: judged(ours("speculative", "assisted", gamma=4))
    yield "autoregressive against generate", lambda: ours("autoregressive", "generate")
    yield "prompt_lookup against its own", lambda: ours("prompt_lookup", "prompt_lookup", k=8)
    yield "autoregressive, sampled", lambda: ours("autoregressive", "generate", sampled=True)
    yield "autoregressive against static", partial(against_static, lab)


def judged(row: Row) -> Row:
    """Whether the request as a whole is as many times as fast as is asked for, with the same drafts accepted."""
    same = abs(row["tokens_per_call"] - row["theirs_tokens_per_call"]) / row["tokens_per_call"]
    return {**row, "wanted": WANTED, "reached": row["ratio"]["median"] >= WANTED, "acceptance_apart": round(same, 3)}


def against_static(lab: Lab, seconds: float = 85) -> Row:
    """`generate` compiled with a static cache; compiling a large model may take longer than so many seconds."""
    if not lab.cuda:
        return {"says": "transformers compiles on a GPU only"}
    try:
        with limited(seconds):
            return compared(lab, "autoregressive", "static", backend="triton")
    except OutOfTime:
        return {"left_out": f"more than {seconds:g} s", "says": "generate did not compile in time"}
