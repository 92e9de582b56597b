"""Searches and samplers of several texts: diverse beams, minimum Bayes risk, arithmetic sampling, rejection of single tokens.

What a recording drew at random is drawn here too: the permutations and the offset, the samples, the keys of a race.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import repeat
from typing import Any
from unittest.mock import patch

import numpy as np
from fidelity import models
from fidelity.entry import Case, Entry, Outcome
from fidelity.forced import Script, below, lines, near, on_reference, torch_draws
from fidelity.watched import Path, Watched, run
from lib.stdlib.letters import Letters

from decgraph import stdlib
from decgraph.backends.torch import noise as of_torch
from decgraph.runtime import noise


def beams(case: Case, size: int) -> list[list[Path]]:
    """The texts that run after every step, of all groups."""
    groups = case["parameters"]["num_beam_groups"]
    now: list[list[Path]] = [[()] * size for _ in range(groups)]
    out = []
    for i in range(0, len(case["steps"]), groups):
        for s in case["steps"][i : i + groups]:
            g, old = s["group"], now[s["group"]]
            now[g] = [(*old[b["parent"] - g * size if b["parent"] >= size else b["parent"]], b["token"]) for b in s["running"]]
        out.append(sorted({t for rows in now for t in rows}))
    return out


def unpadded(text: Path, start: int, eos: int | None) -> Path:
    """A text without what stands behind its end."""
    return text[: text.index(eos, start) + 1] if eos in text[start:] else text


def diverse(case: Case, backend: str) -> Outcome:
    p, prompt = case["parameters"], case["prompt"]
    size = p["num_beams"] // p["num_beam_groups"]
    done = run(
        "diverse_beam",
        prompt,
        {"target": models.causal("target")},
        backend,
        max_tokens=p["max_new_tokens"],
        eos=[p["eos_token_id"]] if "eos_token_id" in p else [],
        k=size,
        groups=p["num_beam_groups"],
        penalty=p["diversity_penalty"],
        alpha=p.get("length_penalty", 1.0),
    )
    recorded: dict[str, Any] = {
        "tokens": tuple(case["output"]),
        "outputs": [unpadded(tuple(o), len(prompt), p.get("eos_token_id")) for o in case["outputs"]],
        "target calls": case["target_forwards"],
        "beams": [[()], *beams(case, size)[:-1]],
    }
    ours = {
        "tokens": done.tokens,
        "outputs": [(*prompt, *path) for path in done.result.results][: p["num_return_sequences"]],
        "target calls": len(done.calls),
        "beams": [sorted({row[len(prompt) :] for row in c.rows}) for c in done.calls],
    }
    return Outcome(recorded, ours)


def drawn(program: str, case: Case, backend: str, tokens: Sequence[int], **more: Any) -> Watched:
    """A run whose draws, in their order, are these tokens."""
    script = Script({lines(stdlib.text(program), "x ~ ")[0]: tokens}, below([]))
    target = {"target": models.causal("target")}
    if backend == "reference":
        return run(program, case["prompt"], target, backend, change=lambda kind: on_reference(kind, script), **more)
    with torch_draws(script):
        return run(program, case["prompt"], target, backend, **more)


def risk(case: Case, backend: str) -> Outcome:
    """The samples are drawn, side by side; the utility of two texts is the recorded one."""
    texts = case["hypotheses"]
    words = [t.strip() for t in case["hypotheses_text"]]

    def utility(hypothesis: str, reference: str) -> float:
        value: float = case["utilities"][words.index(hypothesis.strip())][words.index(reference.strip())]
        return value

    done = drawn(
        "mbr",
        case,
        backend,
        [text[j] for j in range(len(texts[0])) for text in texts],
        max_tokens=len(texts[0]),
        temperature=1,
        externs={"utility": utility},
        tokenizer=Letters("".join((" ", *(chr(97 + f * i % 26) for f in (1, 7, 3)))) for i in range(32)),
        n=len(texts),
        weighted="reference_lprobs" in case,
    )
    found = [texts.index(list(path)) for path in done.result.results]
    recorded = {"tokens": tuple(case["output"]), "best": case["nbest_index"]}
    return Outcome(recorded, {"tokens": done.tokens, "best": found[: case["parameters"]["nbest"]]})


@contextmanager
def arriving(times: Iterator[Any]) -> Iterator[None]:
    """The next draws race with these arrival times."""
    with (
        patch.object(noise, "exponentials", lambda key, n: next(times)),
        patch.object(of_torch, "exponentials", lambda keys, n: np.stack([next(times) for _ in keys])),
    ):
        yield


def arithmetic(case: Case, backend: str) -> Outcome:
    """The offset is the recorded one, and each step's order is the recorded permutation."""
    p = case["parameters"]

    def offset(kind: Any) -> Any:
        return type("Offset", (kind,), {"beta": lambda self, op, a, b, key: case["offset"]})

    with arriving(iter([1.0 + np.argsort(s["permutation"]) for s in case["steps"]])):
        done = run(
            "arithmetic_sampling",
            case["prompt"],
            {"target": models.causal("target")},
            backend,
            change=offset,
            max_tokens=p["steps"],
            temperature=p["temperature"],
            settings={"top_k": p["topk"] or None, "top_p": p["topp"] or None},
            n=p["num_decodes"],
        )
    recorded = {"outputs": [tuple(o) for o in case["outputs"]], "target calls": len(case["steps"])}
    found = [(*case["prompt"], *path) for path in done.result.results]
    return Outcome(recorded, {"outputs": found, "target calls": len(done.calls)})


def rejected(case: Case, backend: str) -> Outcome:
    """One token: the race reads the recorded uniforms, and the constraint is the recorded set."""
    asked: list[list[Any]] = []

    def valid(text: str) -> bool:
        asked.append([ord(text[-1]), ord(text[-1]) in case["accepted_set"]])
        return bool(asked[-1][1])

    times = repeat(-np.log(np.array(case["uniforms"][0])))
    most = case["parameters"]["max_rejects"]
    with arriving(times):
        done = run(
            "awrs",
            [0],
            {"target": models.Same(case["logits"])},
            backend,
            max_tokens=1,
            temperature=1,
            externs={"valid": valid},
            tokenizer=Letters(chr(i) for i in range(64)),
            weigh=case["parameters"]["algorithm"] != "improper",
            **({} if most is None else {"tries": most}),
        )
    weight = done.result.results[0][0]
    recorded = {"token": case["token"], "tried": case["accept_calls"], "log weight": case["log_weight"]}
    ours = {
        "token": done.tokens[1],
        "tried": asked,
        "log weight": "-inf" if weight == NONE else near(case["log_weight"], weight / 1000, 1e-3),
    }
    return Outcome(recorded, ours)


NONE = -(10**9)
"""What the program says of a weight of 0."""
RECURSIVE = (
    "the program is the recursive form: there are no phantom rejects and no second accepts in it "
    "(genlm/control/sampler/token.py:602)"
)
ENTRIES = [
    Entry("logits/diverse_beam", "diverse_beam", diverse, note="padding behind the end of a text is left out"),
    Entry("logits/mbr", "mbr", risk, note="the recorded samples are drawn, and the recorded chrF is the function handed over"),
    Entry(
        "logits/arithmetic_sampling", "arithmetic_sampling", arithmetic, note="offset and permutations are drawn as recorded"
    ),
    Entry(
        "logits/awrs",
        "awrs",
        rejected,
        leaves_out={
            "geometric_2": RECURSIVE,
            "geometric_limit": RECURSIVE,
        },
        note="the recorded uniforms are the race's, the recorded set is the function handed over",
    ),
]
