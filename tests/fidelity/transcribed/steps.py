"""Decoders that write a piece, judge it, and write it again or keep it: Monitoring Decoding."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fidelity.given_noise import given
from fidelity.transcribed.compared import Columns, Compared, Text, after, best
from fidelity.untied import untied
from fidelity.watched import run


def models(case: Mapping[str, Any]) -> dict[str, Any]:
    """A target, and a drafter that agrees with it on most tokens."""
    seed, size, sharp = case["seed"], case.get("size", 8), case.get("sharp", 1.0)
    drafter = untied(size, seed, sharp=sharp, name="drafter", blend=(seed + 1, case.get("blend", 0.8)))
    return {"target": untied(size, seed, sharp=sharp), "drafter": drafter}


def pieces(program: str, *names: str, using: tuple[str, ...] = ("target", "drafter"), **more: Any) -> Any:
    """Ours: the text, by what each step commits."""

    def ours(case: Mapping[str, Any], backend: str) -> Columns:
        params = {name: case[name] for name in names}
        with given(case["seed"]):
            done = run(
                program,
                case["prompt"],
                {name: models(case)[name] for name in using},
                backend,
                limit=case["limit"],
                eos=case.get("eos", ()),
                temperature=case.get("temperature", 0),
                **params,
                **more,
            )
        return {"tokens": done.tokens, "committed": done.committed}

    return ours


def prob(model: Any, text: Text, piece: Text) -> float:
    """How likely a piece is after a text."""
    return math.prod(after(model, (*text, *piece[:i]))[x] for i, x in enumerate(piece))


def monitoring(case: Mapping[str, Any]) -> Columns:
    """base: the drafter, expert: the target. The loop's depth is cut where the text reaches its limit."""
    expert, base = models(case)["target"], models(case)["drafter"]
    text, committed = tuple(case["prompt"]), []
    while (left := len(case["prompt"]) + case["limit"] - len(text)) and text[-1] not in case["eos"]:
        piece: Text = ()
        while len(piece) < min(case["depth"], left) and piece[-1:] not in [(e,) for e in case["eos"]]:
            piece = (*piece, best(after(base, (*text, *piece)), 1)[0])
        if prob(expert, text, piece) / prob(base, text, piece) < case["tau"]:
            paths: list[Text] = [()]
            for level in range(min(case["depth"], left)):
                k = case["width"] if level == 0 else case["width"] // case["branch"]
                wider = [(*p, x) for p in paths for x in best(after(base, (*text, *p)), k)]
                wider.sort(key=lambda p: -prob(expert, text, p) / prob(base, text, p))
                paths = wider[: case["branch"]]
            piece = paths[0]
        for i, x in enumerate(piece):
            if x in case["eos"]:
                piece = piece[: i + 1]
                break
        text += piece
        committed.append(piece)
    return {"tokens": text, "committed": committed}


COMPARED = [
    Compared(
        "monitoring",
        "yuruic/monitoring_decoding afef899c, decoding.py, _MonitorDecodingEngine.decode",
        monitoring,
        pieces("monitoring", "depth", "width", "branch", "tau"),
        {
            f"{seed} {tau}": {
                "seed": seed, "prompt": (1, 2, seed), "limit": 17, "eos": eos, "depth": depth, "width": width, "branch": branch,
                "tau": tau, "blend": blend,
            }
            for seed, depth, width, branch, tau, blend, eos in (
                (1, 4, 4, 2, 0.5, 0.8, ()), (2, 4, 4, 2, 0.5, 0.4, (7,)), (3, 3, 6, 3, 0.9, 0.8, (7,)), (4, 2, 5, 2, 0.3, 1.2, ())
            )
        },
        "tau: ratio_threshold; a text is cut after its first end token, the published code after its last",
    ),
]
