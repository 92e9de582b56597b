"""Decoders whose calls depend on guesses drawn at random, which stdlib makes otherwise; early exits."""

from __future__ import annotations

from fidelity import models
from fidelity.columns import compared
from fidelity.entry import Case, Columns, Entry, Outcome, recorded
from fidelity.watched import Watched, run

from decgraph import stdlib
from lab.recordings.tables import untied


def texts(case: Case, done: Watched) -> Outcome:
    """The text, and that of a run that nobody listens to."""
    ours = {"tokens": done.tokens} | ({} if done.unheard is None else {"tokens unheard": done.unheard})
    return Outcome(dict.fromkeys(ours, tuple(case["output"])), ours)


def lookahead(case: Case, backend: str) -> Outcome:
    """Calls are compared up to the first match of a whole n-gram, behind which ours commits the target's next token too."""
    p, prompt, calls = case["parameters"], list(case["prompt"]), case["calls"]
    window = " ++ ".join(f"prompt[{i}:{i + 1}]" for i in map(prompt.index, case["initial_window"]))
    text = stdlib.text("lookahead").replace("cycle(prompt, w + n - 3)", window)
    target, n = {"target": models.causal("target")}, len(case["output"]) - len(prompt)
    params = {"w": p["WINDOW_SIZE"], "n": p["LEVEL"], "g": p["GUESS_SET_SIZE"]}
    done = run("lookahead", prompt, target, backend, max_tokens=n, text=text, **params)
    whole = next((i for i, c in enumerate(calls) if c["accepted"] == p["LEVEL"] - 2), len(calls) - 1)
    recorded = [(len(prompt) + sum(len(c["committed"]) for c in calls[:i]), asked(c)) for i, c in enumerate(calls[: whole + 1])]
    ours = [(c.past, sorted(c.drafted)) for c in done.calls[: whole + 1]]
    found = texts(case, done)
    return Outcome({**found.recorded, "drafted": recorded}, {**found.ours, "drafted": ours})


def asked(call: Case) -> list[tuple[int, ...]]:
    """The paths after which a call is asked: of the window the last row, each behind the tokens above and before it; of the
    guesses all."""
    first, *rows = call["window"]
    tips = [(*first[:j], *(row[j] for row in rows)) for j in range(len(rows[-1]))] if rows else prefixes(first)
    return sorted({*tips, *(path for guess in call["guesses"] for path in prefixes(guess))})


def prefixes(tokens: list[int]) -> list[tuple[int, ...]]:
    return [tuple(tokens[: i + 1]) for i in range(len(tokens))]


def jacobi(case: Case, backend: str) -> Columns:
    """Published code reads a block's last token too, and calls once more where it alone has changed."""
    target, length = {"target": untied(case["size"], case["seed"], window=None)}, case["length"]
    done = run("jacobi", case["prompt"], target, backend, max_tokens=length, length=length)
    return {"tokens": done.tokens, "guesses": [max(c.drafted, key=len) for c in done.calls]}


def early_exit(case: Case, backend: str) -> Outcome:
    p = case["parameters"]
    target = models.causal("target")
    both = {"target": target, "drafter": models.exit_of("target", p["assistant_early_exit"])}
    done = run("speculative", case["prompt"], both, backend, max_tokens=p["max_new_tokens"], gamma=p["num_assistant_tokens"])
    return compared(case, done, drafter=case["drafter_forwards"])


ENTRIES = [
    Entry(
        "ar/lookahead",
        "lookahead",
        lookahead,
        triton=1,
        note="the first window, drawn from the prompt there, is the recorded one here; behind the match of a whole n-gram "
        "published code commits one token less, so calls are compared up to the first",
    ),
    recorded("jacobi", jacobi),
    Entry("ar/hf_early_exit", "speculative", early_exit, note="the drafter is the target's first layers"),
]
