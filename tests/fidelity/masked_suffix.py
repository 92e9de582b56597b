"""DPad: of the masks behind a block some are kept, and the others do not exist for its calls; alone and with its two caches."""

from __future__ import annotations

from fidelity.canvases import compared, evaluated, run
from fidelity.entry import Case, Entry, Outcome
from fidelity.masked_blocks import Replay


def dpad(reuse: int) -> Replay:
    """DPad, by what later calls of a block reuse."""

    def go(case: Case, backend: str) -> Outcome:
        p = case["parameters"]
        (prompt,) = case["prompt"]

        def kept(start: int, position: int) -> bool:
            return len(prompt) + int(position) in seen(case, int(start))

        done = run(
            "dpad",
            "llama_bidir",
            prompt,
            p["gen_length"],
            backend,
            externs={"kept": kept},
            eos=126,
            block=p["block_length"],
            tau=p.get("threshold", 0.9),
            steps=0 if "threshold" in p else p["steps"],
            stops=p.get("early_termination", True),
            reuse=reuse,
        )
        return compared(case, [done], repeats=not reuse)

    return go


def seen(case: Case, start: int) -> set[int]:
    """The positions that the first call of a block saw: the first one from position 0 on that decided some of it."""
    begin = len(case["prompt"][0]) + start
    block = range(begin, begin + case["parameters"]["block_length"])
    calls = [c for c in case["calls"] if evaluated(c)[0] == 0 and any(i in block for _, i, _ in c["decided"])]
    return set(evaluated(calls[0]))


SAID = "the kept positions are the recorded ones"

ENTRIES = [
    Entry("dllm2/dpad_none", "dpad", dpad(0), "masked", note=SAID),
    Entry("dllm2/dpad_prefix", "dpad, reuse = 1", dpad(1), "masked", note=SAID),
    Entry("dllm2/dpad_dual", "dpad, reuse = 2", dpad(2), "masked", note=SAID),
]
