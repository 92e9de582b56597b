"""What engines do around a program: facts that were read in their sources, with the place of each.

vLLM is 0.32.0, paths below `vllm/`; SGLang is 0.5.23, paths below `sglang/srt/`. The words are ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["tokens", "distribution", "greedy", "support", "ensures"]
"""What a claim is about."""
ALL: Final[tuple[Kind, ...]] = ("tokens", "distribution", "greedy", "support", "ensures")
VERSIONS: Final = {"vllm": "vLLM 0.32.0", "sglang": "SGLang 0.5.23"}


@dataclass(frozen=True)
class EngineFact:
    """A setting, what it does, where that was read, and which claims it breaks."""

    setting: str
    says: str
    where: str
    breaks: tuple[Kind, ...]


@dataclass(frozen=True)
class Way:
    """How programs go into an engine. core: what tries them (backends/seams/fits.py), "" for a drafter of the engine's own,
    which decgraph does not write. chain: whether it takes no tree. verification, noise, settings: whose they are, in words.
    own_rule: whether what is committed is decided by the program's rule. blocks: whether it is asked for a block at a
    time."""

    engine: str
    name: str
    core: str
    verification: str
    noise: str
    settings: str
    facts: tuple[EngineFact, ...]
    own_rule: bool = True
    blocks: bool = False
    chain: bool = False
    first: bool = True


VLLM_FLOATS: Final = EngineFact(
    "VLLM_BATCH_INVARIANT=0",
    "logits depend on which requests are computed together: choices that are nearly equal may differ",
    "envs.py:636",
    ("tokens", "greedy"),
)
SGLANG_FLOATS: Final = EngineFact(
    "without --enable-deterministic-inference",
    "logits depend on which requests are computed together: choices that are nearly equal may differ",
    "arg_groups/fields/exec_.py:1153",
    ("tokens", "greedy"),
)
SYNTHETIC: Final = EngineFact(
    'rejection_sample_method = "synthetic"',
    "drafts are accepted at rates by position, whatever the model says of them",
    "config/speculative.py:529",
    ALL,
)
THRESHOLDS: Final = (
    EngineFact(
        "--speculative-accept-threshold-single below 1",
        "a draft that the target gives more than that is accepted without a coin",
        "speculative/eagle_utils.py:781",
        ("tokens", "distribution"),
    ),
    EngineFact(
        "--speculative-accept-threshold-acc below 1",
        "drafts are accepted with 1 / threshold times the target's probability",
        "speculative/eagle_utils.py:782",
        ("tokens", "distribution"),
    ),
)
RELAXED: Final = EngineFact(
    "a request with penalties",
    "all drafts of a step are penalised for the same text, the drafts above them are not counted",
    "speculative/eagle_utils.py:562",
    ("tokens", "distribution", "greedy"),
)
NO_MIN_P: Final = EngineFact(
    "a request with min_p",
    "the verification applies temperature, top-k and top-p alone",
    "speculative/eagle_utils.py:724",
    ("tokens", "distribution", "support"),
)
GREEDY_HERE: Final = EngineFact(
    "a CPU or XPU (HIP: without --speculative-use-rejection-sampling)",
    "the verification takes the likeliest token at every temperature",
    "speculative/eagle_utils.py:500",
    ("tokens", "distribution"),
)
SIMULATED: Final = EngineFact(
    "SGLANG_SIMULATE_ACC_LEN", "as many drafts are accepted as it says, for benchmarks", "speculative/eagle_utils.py:807", ALL
)

WAYS: Final = (
    Way(
        "vllm",
        "vllm logits processor",
        "rows",
        "there is none: a step is one token",
        "the program's: a function of the request's seed and id, which the engine's sampler does not touch",
        "bans, biases and grammar masks (on runner V2 penalties, too) are in the logits that the program is given; temperature "
        "and truncations are the program's",
        (
            VLLM_FLOATS,
            EngineFact(
                "a thinking budget, or another processor behind it",
                "the token that was drawn is replaced, and a text goes on that the program has not drawn",
                "v1/sample/sampler.py:408, v1/worker/gpu/sample/sampler.py:258",
                ALL,
            ),
            EngineFact(
                "speculative decoding on model runner V1",
                "logits processors of others are refused beside it",
                "v1/sample/logits_processor/__init__.py:208",
                (),
            ),
        ),
    ),
    Way(
        "vllm",
        "vllm drafter",
        "drafts",
        "the engine's rejection sampler: a draft is a certain token, accepted where the target's draw is that token",
        "the engine's, and that of its rejection sampler is not that of its sampler",
        "the engine's; runner V1 refuses min_p and logit_bias beside speculation",
        (VLLM_FLOATS, SYNTHETIC),
        own_rule=False,
    ),
    Way(
        "sglang",
        "sglang logits processor",
        "rows",
        "there is none: a step is one token",
        "the program's: a function of the request's seed and id, which the engine's sampler does not touch",
        "penalties, biases and grammar masks are in the logits that the program is given; temperature and truncations are the "
        "program's",
        (
            SGLANG_FLOATS,
            EngineFact(
                "--speculative-algorithm EAGLE or NGRAM",
                "the verification does not call logits processors of requests",
                "speculative/eagle_utils.py:521",
                ALL,
            ),
        ),
    ),
    Way(
        "sglang",
        "sglang drafter",
        "trees",
        "the program's rule, in the place of eagle_sample, on the engine's logits at the nodes",
        "the program's, but for the first token, which comes with the prompt and is the engine's draw",
        "biases and grammar masks are in the logits; temperature, truncations and penalties are the program's, at each node "
        "for its own path; min_new_tokens and thresholds of the engine's verification are not read",
        (SGLANG_FLOATS,),
        first=False,
    ),
    Way(
        "sglang",
        "sglang dllm",
        "blocks",
        "the program's, block by block: the engine's block is its canvas",
        "the program's: each block is a run of its own, with the request's seed and the block's number for its id",
        "temperature, top-k, top-p and min-p are the program's, on the engine's logits of the block",
        (SGLANG_FLOATS,),
        blocks=True,
    ),
)
OWN: Final = (
    Way(
        "vllm",
        "a drafter of vLLM's own (checked, not exported)",
        "",
        "the engine's rejection sampler, which takes for the distribution of a draft what its logits state",
        "the engine's",
        "the engine's; runner V1 refuses min_p and logit_bias beside speculation",
        (VLLM_FLOATS, SYNTHETIC),
        own_rule=False,
        chain=True,
    ),
    Way(
        "sglang",
        "a drafter of SGLang's own (checked, not exported)",
        "",
        "the engine's: by default it reads no distribution of a draft; with --speculative-use-rejection-sampling it takes, of "
        "a chain, the stated one for the draft's",
        "the engine's",
        "the engine's",
        (SGLANG_FLOATS, *THRESHOLDS, RELAXED, NO_MIN_P, GREEDY_HERE, SIMULATED),
        own_rule=False,
    ),
)
"""Drafters that decgraph does not write, but whose drafts can be written in a program and checked."""
