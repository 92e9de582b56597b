"""Ratios of CPU time to transformers' own loops, on one thread, each side on a copy of the weights of its own.

    OMP_NUM_THREADS=1 python -m decgraph.bench.cpu [--models shipped,random-25M] [--rows ar,pld] [--limit 48] [--rounds 3]

`python -m decgraph.bench` runs both sides on the same modules, whose matrices decgraph stores its own way; here the loops of
transformers have theirs untouched. Runs alternate within one process (timing.py), and times are of `process_time`, which a
machine with more to do than cores hardly changes. Both sides are greedy, and tokens are compared before anything is timed.
`--models` also takes a folder: its rows use prompts by kind, `copy` (text to correct, which lookup lives on) and `chat`.
"""

from __future__ import annotations

import argparse
import copy
import gc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

import decgraph
from decgraph.bench import baselines, weights
from decgraph.bench.contenders import Agreement, params_for, request_of, run, session_on
from decgraph.bench.machine import facts, load
from decgraph.bench.timing import alternated
from decgraph.runtime.text import Tokenizer

Prompt = tuple[int, ...]
# name: (algorithm, its settings, the loop of transformers, sequences at a time)
ROWS: dict[str, tuple[str, dict[str, Any], str, int]] = {
    "ar": ("autoregressive", {}, "generate", 1),
    "spec": ("speculative", {"gamma": 4}, "assisted", 1),
    "pld": ("prompt_lookup", {"k": 10}, "prompt_lookup", 1),
    "ar8": ("autoregressive", {}, "generate", 8),
    "spec8": ("speculative", {"gamma": 4}, "generate", 8),
    "pld8": ("prompt_lookup", {"k": 10}, "generate", 8),
    "first": ("autoregressive", {}, "generate", 1),  # one token after a long prompt
    "long": ("autoregressive", {}, "generate", 1),  # 16 tokens after a long prompt
}
LONG = 3000  # tokens of a long prompt, or what the model's context has room for
TEXT = (
    "the committee met on tuesday to discus the new library and it's opening hours. several members was in favour of "
    "opening on sundays, but the treasurer said that there was not enough money for the staff. it was agreed that the "
    "library would open on sundays in december only, and that the question would be discussed again in the spring."
)
ASKED = {
    "copy": (
        f"Correct the spelling and grammar of this text and repeat it whole:\n\n{TEXT}",
        f"Repeat the following text word for word, with a capital letter at the start of every sentence:\n\n{TEXT}",
    ),
    "chat": (
        "What should I see in Paris in two days?",
        "Explain to a child why the sky is blue.",
    ),
}


def folder(path: Path) -> weights.Weights:
    """A causal model's folder, without a drafter."""
    from transformers import AutoModelForCausalLM

    made = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="sdpa").eval()
    return weights.Weights(path.name, made.requires_grad_(False), None, made.config.vocab_size, Tokenizer(path))


def prompts_of(given: weights.Weights, path: Path | None, kind: str) -> list[Prompt]:
    """The prompts of a row. kind: of `ASKED`, or "" for a benchmark's own, or "long"."""
    if kind == "long":
        context = int(given.target.config.max_position_embeddings)
        return [tuple(n * 7919 % (given.size - 4) + 4 for n in range(min(LONG, context - 20)))]
    if path is None:
        return given.prompts(8)
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(path)
    asked = [[{"role": "user", "content": text}] for text in ASKED[kind]]
    return [tuple(tokenizer.apply_chat_template(a, add_generation_prompt=True, return_dict=False)) for a in asked]


def compared(name: str, given: weights.Weights, prompts: Sequence[Prompt], limit: int, rounds: int) -> str:
    """One line: the ratio of CPU times with its quartiles, and how many runs gave equal tokens."""
    algorithm, settings, loop, batch = ROWS[name]
    own = copy.copy(given)
    own.target, own.drafter = copy.deepcopy(given.target), copy.deepcopy(given.drafter)
    made = decgraph.load(algorithm)
    params = params_for(made, settings)
    session, theirs = session_on(made, own, params), baselines.baseline(loop, given, params)
    groups = [list(prompts[:8])] if batch > 1 else [[p] for p in prompts[:4]]
    if batch > 1 and len(prompts) < batch:
        groups = [[prompts[n % len(prompts)] for n in range(batch)]]

    def ours(n: int) -> list[Prompt]:
        asked = [request_of(p, limit, number=i) for i, p in enumerate(groups[n])]
        if batch == 1:
            return [tuple(run(session, asked[0]).tokens)]
        return [tuple(r.tokens) for r in session.generate(asked, batch=batch, keep_events=False)]

    def other(n: int) -> list[list[int]]:
        return theirs(groups[n], limit)

    agreement = Agreement(given)
    for n, group in enumerate(groups):
        for prompt, mine, its in zip(group, ours(n), other(n), strict=True):
            agreement.compare(prompt, mine, its)
    contenders: dict[str, Callable[[int], object]] = {"ours": ours, "theirs": other}
    times = alternated(contenders, len(groups), rounds, warm=0)
    ratio = times.ratio("theirs", "ours", cpu=True)
    ms = 1000 / (limit * len(groups[0]))
    tokens = {k: v for k, v in agreement.to_json().items() if v}
    return (
        f"{given.name:14} {name:6} {algorithm:15} / {loop:13} {ratio.median:5.2f} ({ratio.low:.2f} to {ratio.high:.2f})  "
        f"{ms * sorted(times.cpu['ours'])[len(times.cpu['ours']) // 2]:7.2f} ms a token  {tokens}  load {load()}"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="shipped,random-25M,random-135M")
    parser.add_argument("--rows", default="ar,spec,pld,ar8,spec8,pld8,long,first")
    parser.add_argument("--limit", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    print(facts(), flush=True)
    for name in asked.models.split(","):
        path = Path(name) if Path(name).is_dir() else None
        given = folder(path) if path else weights.shipped() if name == "shipped" else weights.random_llama(name)
        print({**given.facts(), "name": given.name} if given.drafter else given.name, flush=True)
        for row in asked.rows.split(","):
            if row.startswith("spec") and given.drafter is None:
                continue
            kinds = ["long"] if row in ("long", "first") else list(ASKED) if path else [""]
            limit = {"long": 16, "first": 1}.get(row, asked.limit)
            for kind in kinds:
                shown = compared(row, given, prompts_of(given, path, kind), limit, asked.rounds)
                print(shown, kind, flush=True)
                gc.collect()


if __name__ == "__main__":
    main()
