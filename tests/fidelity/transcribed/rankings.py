"""A ranking by exclusion: IRanker. What is asked, and who is named in a reply, are functions of the caller's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fidelity.transcribed.compared import Columns, Compared, Text, after, best
from fidelity.watched import run

from lab.recordings.tables import Letters, untied

SIZE = 9


def asked(left: Sequence[Any]) -> list[int]:
    """The candidates, and how many they are."""
    return [int(x) for x in left] + [len(left) % SIZE]


def named(reply: str, left: Sequence[Any]) -> int:
    """The first candidate that the last words of a reply have in them, or the one whose letter is nearest to the last."""
    letters = [chr(97 + int(x)) for x in left]
    found = [i for i, x in enumerate(letters) if x in reply[-4:]]
    near = sorted(range(len(letters)), key=lambda i: abs(ord(letters[i]) - ord(reply[-1:] or "a")))
    return (found or near)[0]


def eliminated(case: Mapping[str, Any]) -> Columns:
    """Who is removed first is ranked last; the last one left is first."""
    model, left, removed, calls = target(case), list(case["items"]), [], []
    while len(left) > 1:
        question: Text = (*case["prompt"], *asked(left))
        reply: Text = ()
        while len(reply) < case["reach"] and reply[-1:] not in [(e,) for e in case["eos"]]:
            reply = (*reply, best(after(model, (*question, *reply)), 1)[0])
        calls += [(*question, *reply[:i]) for i in range(len(reply))]
        removed.append(left.pop(named("".join(chr(97 + x) for x in reply), left)))
    return {"ranking": (*left, *reversed(removed)), "calls": calls}


def target(case: Mapping[str, Any]) -> Any:
    return untied(SIZE, case["seed"])


def ours(case: Mapping[str, Any], backend: str) -> Columns:
    done = run(
        "iterative_elimination",
        case["prompt"],
        {"target": target(case)},
        backend,
        max_tokens=16,
        eos=case["eos"],
        externs={"asked": asked, "named": named},
        tokenizer=Letters(),
        items=case["items"],
        reach=case["reach"],
    )
    return {"ranking": done.tokens[len(case["prompt"]) :], "calls": [c.rows[0] for c in done.calls]}


COMPARED = [
    Compared(
        "iterative_elimination",
        "ulab-uiuc/IRanker f32eb9ee, eval/eval_rec.py, process_batch",
        eliminated,
        ours,
        {
            f"seed{s} {len(items)}": {"seed": s, "prompt": (0, s), "items": items, "reach": reach, "eos": (8,)}
            for s, items, reach in ((1, (1, 2, 3, 4), 12), (2, (7, 5, 3, 1, 0), 5), (3, (2, 6), 8), (4, (4,), 3))
        },
        "a candidate is a token, there a text; a reply that names none is matched by the caller's function",
    ),
]
