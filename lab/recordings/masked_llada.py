"""Decoders of LLaDA's family, sampled: tokens are drawn after temperature, and how sure they are is read before it."""

from __future__ import annotations

import contextlib
import io
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch

from lab.recordings import Case, Recording, tabled
from lab.recordings.canvases import BLOCKS, MaskedLM, canvas, races
from lab.recordings.upstream import Upstream

Decode = Callable[..., Any]


def decoded(
    case: Case, decode: Decode, *, columns: int = 0, cells: Callable[[MaskedLM, int], Sequence[int]] | None = None, **more: Any
) -> dict[str, Any]:
    """What a loop makes of a prompt. columns: of the logits behind the table's tokens; cells: of a draw's rows."""
    model = MaskedLM(canvas(case["size"], case["seed"]), len(case["prompt"]) + case["length"], more=columns)
    noise = races(model, case["seed"]) if cells is None else races(model, case["seed"], cells)
    with noise, torch.no_grad(), contextlib.redirect_stdout(io.StringIO()):
        out = decode(
            model, torch.tensor([case["prompt"]]), gen_length=case["length"], temperature=case["temperature"],
            mask_id=case["size"], **more,
        )  # fmt: skip
    out = out[0] if isinstance(out, tuple) else out
    return {"output": out[0].tolist(), "canvases": model.canvases, "computed": model.computed}


def named(case: Case, names: Mapping[str, str]) -> dict[str, Any]:
    """A case's parameters by the authors' names."""
    return {theirs: case[ours] for ours, theirs in names.items()}


def loop(
    upstream: Upstream, case: Case, path: str, function: str, names: Mapping[str, str], absent: tuple[str, ...] = (),
    also: Mapping[str, Any] | None = None, columns: int = 0,
) -> dict[str, Any]:  # fmt: skip
    """A loop of a module. names: its parameters by ours; also: others."""
    decode = getattr(upstream.module(path, absent=("transformers", "model", *absent)), function)
    return decoded(case, decode, columns=columns, **named(case, names), **(also or {}))


def prophet(upstream: Upstream, case: Case) -> dict[str, Any]:
    decode = upstream.module("generate_earlyexit.py", absent=("transformers",)).generate
    need = {"early": case["early"], "mid": case["middle"], "late": case["late"]}
    return decoded(
        case, decode, block_length=case["block"], steps=case["steps"], analyze_gap=True,
        answer_start_pos=len(case["prompt"]) + case["answer"], early_exit_thresholds=need,
        constraints={case["place"] + i: t for i, t in enumerate(case["suffix"])},
    )  # fmt: skip


def eoser(upstream: Upstream, case: Case, function: str, names: Mapping[str, str]) -> dict[str, Any]:
    module = upstream.module("eval/generate.py", absent=("transformers", "tqdm"), root="eval")
    vars(module).update(dist=SimpleNamespace(get_rank=lambda: 0), tqdm=lambda items, **_: items)
    tokenizer = SimpleNamespace(eos_token_id=case["eos"])
    with mock.patch.object(torch, "autocast", lambda **_: contextlib.nullcontext()):  # CUDA's
        return decoded(case, getattr(module, function), tokenizer=tokenizer, **named(case, names))


def slow_fast(upstream: Upstream, case: Case) -> dict[str, Any]:
    path = "slow-fast-sampling/sampling_utils/generate_slow_fast_sampling.py"
    absent = ("transformers", "dllm_cache", "accelerate", "matplotlib", "seaborn", "sampling_utils")
    decode = upstream.module(path, absent=absent).generate_slow_fast_sampling

    def run(model: MaskedLM, prompt: torch.Tensor, **more: Any) -> Any:
        return torch.cat([prompt, decode(prompt, None, model, **more)[0]], 1)

    names = {
        "block": "block_length", "explore": "k_exploration_steps", "far": "cycle_len_confidence_threshold",
        "window": "cycle_length_stability_window", "calm": "cycle_length_stability_std_dev_threshold",
        "tau": "high_confidence_threshold",
    }  # fmt: skip
    return decoded(case, run, cells=lambda model, n: range(len(case["prompt"]), len(case["prompt"]) + n), **named(case, names))


def dinfer(upstream: Upstream, case: Case, kind: str, names: Mapping[str, str]) -> dict[str, Any]:
    """A decoder of dInfer's; the loop is ours: each block until no mask is left in it."""
    with mock.patch.object(torch, "compile", lambda **_: lambda function: function):
        module = upstream.module(
            "python/dinfer/decoding/parallel_strategy.py",
            root="python/dinfer/decoding",
            absent=("dinfer",),
            __package__="dinfer",
        )
    utils = upstream.names("python/dinfer/decoding/utils.py", "add_gumbel_noise", torch=torch, math=math)
    vars(module).update(add_gumbel_noise=utils["add_gumbel_noise"])
    decoder = getattr(module, kind)(temperature=case["temperature"], mask_id=case["size"], **named(case, names))

    def run(model: MaskedLM, x: torch.Tensor, gen_length: int, **_: Any) -> torch.Tensor:
        start = x.shape[1]
        x = torch.cat([x, torch.full((1, gen_length), case["size"])], 1)
        for begin in range(start, start + gen_length, case["block"]):
            end = begin + case["block"]
            while (x[:, begin:end] == case["size"]).any():
                decoder.decode(model(x).logits[:, begin:end], begin, end, x)
        return x

    def block(model: MaskedLM, n: int) -> Sequence[int]:
        """The block of the first mask."""
        at = model.canvases[-1].index(-1) - len(case["prompt"])
        first = len(case["prompt"]) + at // n * n
        return range(first, first + n)

    return decoded(case, run, cells=block)


def pc_sampler(upstream: Upstream, case: Case) -> dict[str, Any]:
    module = upstream.module("src/generate.py")
    often = torch.arange(1.0, case["size"] + 1)
    vars(module).update(BASE_LINE=often / often.sum())
    names = {"block": "block_length", "steps": "steps", "lam": "lambd", "alpha": "alpha"}
    return decoded(case, module.generate_with_pc_sampler, **named(case, names))


def cases(columns: str, rows: Sequence[Sequence[Any]], **shared: Any) -> dict[str, dict[str, Any]]:
    """Cases with a seed, a size, a length, a block and a temperature, and more columns."""
    return tabled("{seed} {block} {temperature}", f"{BLOCKS} {columns}", rows, **{"prompt": (1, 2), **shared})


MORE = ((1, 8, 12, 6, 0.0), (2, 8, 16, 8, 0.7), (3, 12, 12, 12, 1.0), (4, 8, 12, 4, 1.5))
"""Seed, size, length, block, temperature."""
THRESHOLD = {"block": "block_length", "tau": "threshold", "length": "steps"}
NAMES: dict[str, Mapping[str, str]] = {
    "eoser": {"block": "block_length", "steps": "steps", "least": "eos_min_gamma", "most": "eos_max_gamma"},
    "eoser_ass": {"groups": "block_num", "steps": "steps", "least": "eos_min_gamma", "most": "eos_max_gamma"},
    "remdm": {"k": "unmask_k", "start": "init_unmask_ratio", "rounds": "loop_steps"},
    "r2": {
        "block": "block_length", "tau": "threshold", "length": "steps", "spatial": "spatial_threshold",
        "size_": "confidence_cluster_size", "calm": "temporal_steps", "temporal": "temporal_threshold",
    },
    "d3llm": {"block": "block_size", "tau": "threshold", "add": "block_add_threshold", "length": "max_new_tokens"},
}  # fmt: skip


def d3llm(upstream: Upstream, case: Case) -> dict[str, Any]:
    decode = upstream.module("d3llm/d3llm_LLaDA/d3llm_llada_generate_util.py", absent=("transformers", "utils", "d3llm"))

    def run(model: MaskedLM, prompt: torch.Tensor, gen_length: int, **more: Any) -> Any:
        return decode.generate_multi_block(model, prompt, max_new_tokens=gen_length, **more)

    return decoded(
        case, run, block_size=case["block"], threshold=case["tau"], block_add_threshold=case["add"], early_stop=False
    )


RECORDINGS = [
    Recording(
        "fast_dllm",
        "NVlabs/Fast-dLLM",
        "24cc59e75f20a6384bae8c905965bb090b96388e",
        "llada/generate.py, generate_with_dual_cache and get_transfer_index",
        partial(loop, path="llada/generate.py", function="generate_with_dual_cache", names=THRESHOLD),
        cases("tau", [(*row, tau) for row, tau in zip(MORE, (0.9, 0.7, 0.8, 0.8), strict=True)]),
        "greedy, sampled",
        "tau: threshold; remasking low_confidence; no block is full after its first call, which costs upstream an empty one",
    ),
    Recording(
        "fast_dllm_uncached",
        "NVlabs/Fast-dLLM",
        "24cc59e75f20a6384bae8c905965bb090b96388e",
        "llada/generate.py, generate and get_transfer_index",
        partial(loop, path="llada/generate.py", function="generate", names=THRESHOLD),
        cases("tau", [(*row, tau) for row, tau in zip(MORE, (0.9, 0.7, 0.8, 0.5), strict=True)]),
        "greedy, sampled",
        "tau: threshold; remasking low_confidence",
    ),
    Recording(
        "adablock",
        "lgxi24/AdaBlock-dLLM",
        "491b20580ad90f6019f29e045f484b538581101a",
        "llada/generate_adablock.py, generate_adablock and compute_block_length",
        partial(
            loop,
            path="llada/generate_adablock.py",
            function="generate_adablock",
            names={"block": "init_block_length", "tau": "threshold", "marks": "delimiter_ids", "trust": "delimiter_threshold"},
        ),
        cases("tau trust", [(*row, 0.8, 0.2) for row in MORE], marks=(1, 3, 5)),
        "greedy, sampled",
        "tau: threshold, marks: delimiter_ids, trust: delimiter_threshold",
    ),
    Recording(
        "dparallel",
        "czg1225/dParallel",
        "2ca4d147641e02c30c7564222683d7b8eb0394c0",
        "LLaDA/generate.py, generate and get_transfer_index_entropy",
        partial(loop, path="LLaDA/generate.py", function="generate", names=THRESHOLD),
        cases("tau", [(*row, tau) for row, tau in zip(MORE, (0.5, 0.9, 1.2, 0.7), strict=True)]),
        "greedy, sampled",
        "tau: threshold",
    ),
    Recording(
        "d3llm",
        "hao-ai-lab/d3LLM",
        "e5bfcaccb775ee75759c24ccc9a28218b8372b34",
        "d3llm/d3llm_LLaDA/d3llm_llada_generate_util.py, generate_multi_block",
        d3llm,
        cases("tau add", [(*MORE[0], 0.5, 0.1), (*MORE[1], 0.8, 0.5), (*MORE[2], 0.4, 1.0), (*MORE[3], 0.1, 0.3)]),
        "greedy, sampled",
        "tau: threshold, add: block_add_threshold; early_stop off",
    ),
    Recording(
        "prophet",
        "pixeli99/Prophet",
        "460afe41c7063a29a9893675aca07b985997bb83",
        "generate_earlyexit.py, generate",
        prophet,
        cases(
            "answer early suffix place",
            [(*MORE[0], 8, 2.5, (), 0), (*MORE[1], 10, 1.5, (3, 4), 8), (*MORE[2], 6, 1.2, (), 0), (*MORE[3], 9, 0.9, (5,), 7)],
            steps=12,
            middle=1.0,
            late=0.6,
        ),
        "greedy, sampled",
        "the suffix is handed over as constraints; early, middle, late: early_exit_thresholds",
    ),
    Recording(
        "saber",
        "zhaoyMa/Saber",
        "2f061e2e07359e27479174e862f46db5f9791c6c",
        "decoding.py, generate_with_saber",
        partial(loop, path="decoding.py", function="generate_with_saber", names={"block": "block_length", "n": "n"}),
        cases("n", [(1, 8, 12, 12, 0.0, 2), (2, 8, 12, 12, 0.7, 2), (3, 12, 12, 12, 1.0, 1), (4, 8, 16, 16, 1.3, 2)]),
        "greedy, sampled",
    ),
    Recording(
        "eoser",
        "yjyddq/EOSER-ASS-RL",
        "5affb4ec0db9d3819175c2011c94e38c74325624",
        "eval/generate.py, eoser_generate and sampling",
        partial(eoser, function="eoser_generate", names=NAMES["eoser"]),
        cases("steps", [(*MORE[0], 6), (*MORE[1], 8), (*MORE[2], 6), (*MORE[3], 6)], eos=3, least=0.4, most=1.0),
        "greedy, sampled",
        "least: eos_min_gamma, most: eos_max_gamma",
    ),
    Recording(
        "eoser_ass",
        "yjyddq/EOSER-ASS-RL",
        "5affb4ec0db9d3819175c2011c94e38c74325624",
        "eval/generate.py, eoser_ass_generate and ass_sampling",
        partial(eoser, function="eoser_ass_generate", names=NAMES["eoser_ass"]),
        cases(
            "steps groups",
            [(1, 8, 8, 8, 0.0, 3, 1), (2, 8, 16, 16, 0.7, 4, 2), (3, 12, 8, 8, 1.0, 3, 1), (4, 8, 16, 16, 1.3, 4, 3)],
            eos=3,
            least=0.01,
            most=1.0,
        ),
        "greedy, sampled",
        "groups: block_num, least: eos_min_gamma, most: eos_max_gamma",
    ),
    Recording(
        "slow_fast",
        "LiangrunFlora/Slow-Fast-Sampling",
        "dd9958fe5fdba706c3c51d5c85fa72e093ae66eb",
        "slow-fast-sampling/sampling_utils/generate_slow_fast_sampling.py, generate_slow_fast_sampling",
        slow_fast,
        cases("explore", [(*MORE[0], 3), (*MORE[1], 4), (*MORE[2], 6), (*MORE[3], 2)], far=0.3, window=2, calm=1.0, tau=0.8),
        "greedy, sampled",
        "explore, far, window, calm, tau: k_exploration_steps, cycle_len_confidence_threshold, cycle_length_stability_window, "
        "cycle_length_stability_std_dev_threshold, high_confidence_threshold",
    ),
    Recording(
        "dinfer_hierarchy",
        "inclusionAI/dInfer",
        "fce4e32804103baa5d55230dff0352da0cdd6ceb",
        "python/dinfer/decoding/parallel_strategy.py, HierarchyDecoder.decode",
        partial(dinfer, kind="HierarchyDecoder", names={"tau": "threshold", "low": "low_threshold"}),
        cases("tau low", [(*row, 0.8, 0.3) for row in MORE]),
        "greedy, sampled",
        "tau: threshold, low: low_threshold; the loop over blocks and calls is ours",
    ),
    Recording(
        "credit_decoding",
        "inclusionAI/dInfer",
        "fce4e32804103baa5d55230dff0352da0cdd6ceb",
        "python/dinfer/decoding/parallel_strategy.py, CreditThresholdParallelDecoder.decode",
        partial(
            dinfer,
            kind="CreditThresholdParallelDecoder",
            names={"tau": "threshold", "alpha": "credit_alpha", "gamma": "boost_gamma", "beta": "decay_beta"},
        ),
        cases("tau", [(*row, 0.8) for row in MORE], alpha=0.7, gamma=0.2, beta=0.8),
        "greedy, sampled",
        "tau: threshold, alpha: credit_alpha, gamma: boost_gamma, beta: decay_beta; the loop over blocks and calls is ours",
    ),
    Recording(
        "eb_sampler",
        "NEUIR/PC-Sampler",
        "8b106b09877b2f69085db1b7bd7c1cc1e935d5a5",
        "src/generate.py, generate_with_eb_sampler",
        partial(loop, path="src/generate.py", function="generate_with_eb_sampler", names={"gamma": "gamma"}),
        tabled(
            "{seed} {gamma} {temperature}",
            "seed size length gamma temperature",
            ((1, 8, 12, 0.5, 0.0), (2, 8, 12, 1.5, 0.7), (3, 12, 12, 0.1, 1.0), (4, 8, 16, 3.0, 1.3)),
            prompt=(1, 2),
        ),
        "greedy, sampled",
    ),
    Recording(
        "pc_sampler",
        "NEUIR/PC-Sampler",
        "8b106b09877b2f69085db1b7bd7c1cc1e935d5a5",
        "src/generate.py, generate_with_pc_sampler and pc_sampler_function",
        pc_sampler,
        cases("steps", [(*MORE[0], 6), (*MORE[1], 8), (*MORE[2], 6), (*MORE[3], 12)], lam=0.25, alpha=10.0),
        "greedy, sampled",
        "lam: lambd; how often token i of V occurs is (i + 1) / (V (V + 1) / 2)",
    ),
    Recording(
        "remdm_loop",
        "zhaoyMa/Saber",
        "2f061e2e07359e27479174e862f46db5f9791c6c",
        "decoding.py, generate_with_remdm",
        partial(
            loop,
            path="decoding.py",
            function="generate_with_remdm",
            names=NAMES["remdm"],
            columns=1,
            also={"tokenizer": SimpleNamespace(decode=lambda *_, **__: "")},
        ),
        tabled(
            "{seed} {k} {temperature}",
            "seed size length k start rounds temperature",
            ((1, 8, 8, 1, 0.75, 4, 0.0), (2, 8, 8, 1, 0.5, 4, 0.7), (3, 12, 12, 2, 0.5, 3, 1.0), (4, 8, 8, 2, 0.75, 2, 1.3)),
            prompt=(1, 2),
        ),
        "greedy, sampled",
        "k: unmask_k, start: init_unmask_ratio, rounds: loop_steps",
    ),
]
# fmt: skip
