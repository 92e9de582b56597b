"""Blocks whose length a delimiter's confidence sets: AdaBlock on LLaDA without a cache and under both, and on Dream."""

from __future__ import annotations

from fidelity.canvases import compared, run
from fidelity.entry import Case, Entry, Outcome
from fidelity.masked_blocks import Replay

# Dream's function has these written into it and takes no others: the recorded `delimiter_ids` reached nothing, and the recorded
# vocabulary of 128 has none of these.
DREAMS = [198, 271, 280, 319, 340, 382, 401, 532, 624, 630, 692, 698, 921, 1248, 1837, 1939, 2219, 2533, 3276, 3876, 4894, 5267]
UNREAD = "upstream reads its own list of delimiters, none in the recorded vocabulary: all blocks have the usual length"


def replay(cache: str | None, model: str = "llama_bidir", program: str = "adablock") -> Replay:
    """AdaBlock on a model under a cache."""

    def go(case: Case, backend: str) -> Outcome:
        p = case["parameters"]
        (prompt,) = case["prompt"]
        done = run(
            program,
            model,
            prompt,
            p["gen_length"],
            backend,
            cache=cache,
            block=p.get("init_block_length", p.get("block_length")),
            tau=p["threshold"],
            marks=p["delimiter_ids"] if model == "llama_bidir" else DREAMS,
            trust=p["delimiter_threshold"],
        )
        return compared(case, [done])

    return go


DREAM = "qwen2_bidir_shift"

ENTRIES = [
    *(
        Entry(
            f"dllm/adablock_{kind}",
            f"adablock, cache {kind}",
            replay(None if kind == "none" else kind),
            "masked",
        )
        for kind in ("none", "prefix", "dual")
    ),
    Entry("dllm/adablock_dream_none", "adablock", replay(None, DREAM), "masked", note=UNREAD),
    Entry(
        "dllm/adablock_dream_dual", "adablock_dream, cache dual", replay(None, DREAM, "adablock_dream"), "masked", note=UNREAD
    ),
]
