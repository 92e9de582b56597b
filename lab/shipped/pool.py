"""What the zoo's drafter and heads learn from: the target's own text, and library code.

At temperature 0 a draft is judged on the target's own greedy continuations, so these are most of the pool: prompts
from training code and task lines, continued by the target. The rest are plain windows of training code.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from lab.shipped import data, loop, target, teacher
from lab.shipped.store import Rows, RowStore

ROW = 192
PROMPT = 48
CHUNK = 128
TASK_SHARE = 0.06


@torch.no_grad()
def continue_greedily(model: Any, prompts: torch.Tensor, count: int) -> torch.Tensor:
    """`[rows, prompt]` -> `[rows, prompt + count]`: the likeliest token, `count` times, never stopping."""
    ids, cache, fresh = prompts, None, prompts
    for _ in range(count):
        output = model(fresh, past_key_values=cache, use_cache=True, logits_to_keep=1)
        cache, fresh = output.past_key_values, output.logits[:, -1].argmax(-1, keepdim=True)
        ids = torch.cat((ids, fresh), dim=1)
    return ids


def prompts(tokenizer: Any, rows: int, seed: int) -> torch.Tensor:
    """`[rows, PROMPT]` windows to continue: mostly training code, some task lines."""
    generator = loop.rng(seed, 0, stream=3)
    code = torch.from_numpy(data.code_tokens(tokenizer, held=False))
    lines = torch.from_numpy(data.line_tokens(tokenizer, 8_000, seed=3))
    tasks = int(rows * TASK_SHARE)
    return torch.cat(
        (
            target.windows(code, rows - tasks, PROMPT, generator),
            target.windows(lines, tasks, PROMPT, generator),
        )
    )[torch.randperm(rows, generator=generator)]


def rows(
    model: Any, tokenizer: Any, *, written: int, plain: int, seed: int, note: Callable[[str], None] = print
) -> torch.Tensor:
    """int64 `[written + plain, ROW]`: rows that the target (any dtype) continued, then windows of library code."""
    code = torch.from_numpy(data.code_tokens(tokenizer, held=False))
    starts = prompts(tokenizer, written, seed)
    found = []
    for begin in range(0, written, CHUNK):
        found.append(continue_greedily(model, starts[begin : begin + CHUNK], ROW - PROMPT))
        note(f"pool: {begin + len(found[-1])} of {written} rows written")
    found.append(target.windows(code, plain, ROW, loop.rng(seed, 0, stream=4)))
    return torch.cat(found)


def obtain(
    model: Any, target_folder: Path, work: Path, layers: tuple[int, ...], *, written: int, plain: int, seed: int
) -> Rows:
    """The pool with the target's states, made once for these weights, layers and sizes, and stored in `work`."""
    from transformers import AutoModelForCausalLM

    origin = {"model": teacher.weights_digest(target_folder), "layers": list(layers), "seed": seed}
    name = f"pool-{'-'.join(map(str, layers))}-{written}-{plain}-{seed}"
    store = RowStore(work / name, {**origin, "written": written, "plain": plain})
    if len(store) < written + plain:
        # For one token at a time on a CPU, plain attention in bfloat16 is twice as fast as the fused kernel.
        writer = AutoModelForCausalLM.from_pretrained(
            target_folder, dtype=torch.bfloat16, attn_implementation="eager", trust_remote_code=False
        ).eval()
        tokenizer = data.load_tokenizer(target_folder)
        ids = rows(writer, tokenizer, written=written, plain=plain, seed=seed)[len(store) :]
        for part in teacher.view(model, ids, layers):
            store.add(part)
    return store.rows()
