"""Grammars: which tokens may come next, told from the words of a language themselves."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from itertools import product
from typing import Any

import numpy as np
from fidelity.given_noise import given
from fidelity.transcribed.compared import Columns, Compared, after
from fidelity.watched import run

from lab.recordings.tables import Letters, Stream, untied

PIECES = ("a", "b", "ab", "ba", "c", "bc", "")
EOS = 6


class Pieces(Letters):
    """A tokenizer of these pieces."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces = list(PIECES)
        self.detokenizer = type(self.detokenizer)(tuple(p.encode() for p in PIECES))


def models(case: Mapping[str, Any]) -> dict[str, Any]:
    seed = case["seed"]
    drafter = untied(len(PIECES), seed, name="drafter", blend=(seed + 1, 0.8))
    target = untied(len(PIECES), seed)
    target.eos = frozenset({EOS})
    return {"target": target, "drafter": drafter}


@cache
def listed(expression: str) -> list[str]:
    """The words of up to nine letters."""
    return ["".join(w) for n in range(10) for w in product("abc", repeat=n) if re.fullmatch(expression, "".join(w))]


def grammar(case: Mapping[str, Any]) -> Columns:
    """A token may come where a word of the language goes on so; the end, where the text is a word. The words up to some length
    are listed, so no lexer and no parser are needed."""
    words = listed(case["g"])
    noise, text, said = Stream(case["seed"]), tuple(case["prompt"]), ""
    for _ in range(case["limit"]):
        p = after(models(case)["target"], text)
        ok = [any(w.startswith(said + piece) for w in words) if piece else said in words for piece in PIECES]
        p = np.where(ok, p, 0.0)
        token = noise.draw(p / p.sum()) if case["temperature"] else int(p.argmax())
        text, said = (*text, token), said + PIECES[token]
        if token == EOS:
            break
    return {"tokens": text}


def ours(case: Mapping[str, Any], backend: str) -> Columns:
    with given(case["seed"]):
        done = run(
            "grammar",
            case["prompt"],
            models(case),
            backend,
            max_tokens=case["limit"],
            eos=(EOS,),
            temperature=case["temperature"],
            tokenizer=Pieces(),
            g=case["g"],
            gamma=case["gamma"],
        )
    return {"tokens": done.tokens}


COMPARED = [
    Compared(
        "grammar",
        "ebmoon/greatgramma edb6cb9c, src/cfg_monitor.py, CFGMonitor.filter_vocab and update",
        grammar,
        ours,
        {
            f"{seed} {g} {t}": {"seed": seed, "prompt": (0, 4), "limit": 4, "g": g, "gamma": gamma, "temperature": t}
            for seed, g, gamma, t in (
                (1, "(ab|ba){1,3}c", 3, 0),
                (2, "a*b(c|bc)", 2, 0),
                (3, "(a|bc){2,5}", 4, 0),
                (4, "b(ab)*c?", 1, 0),
            )
        },
        "regular languages, whose words are listed; drafts and jumps are not the paper's and change nothing",
    ),
]
