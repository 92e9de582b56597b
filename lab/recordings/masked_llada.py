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

from lab.recordings import Case
from lab.recordings.canvases import MaskedLM, canvas, races
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


RECORDINGS = {
    "fast_dllm": partial(loop, path="llada/generate.py", function="generate_with_dual_cache", names=THRESHOLD),
    "fast_dllm_uncached": partial(loop, path="llada/generate.py", function="generate", names=THRESHOLD),
    "adablock": partial(
        loop,
        path="llada/generate_adablock.py",
        function="generate_adablock",
        names={"block": "init_block_length", "tau": "threshold", "marks": "delimiter_ids", "trust": "delimiter_threshold"},
    ),
    "dparallel": partial(loop, path="LLaDA/generate.py", function="generate", names=THRESHOLD),
    "d3llm": d3llm,
    "prophet": prophet,
    "saber": partial(loop, path="decoding.py", function="generate_with_saber", names={"block": "block_length", "n": "n"}),
    "eoser": partial(eoser, function="eoser_generate", names=NAMES["eoser"]),
    "eoser_ass": partial(eoser, function="eoser_ass_generate", names=NAMES["eoser_ass"]),
    "slow_fast": slow_fast,
    "dinfer_hierarchy": partial(dinfer, kind="HierarchyDecoder", names={"tau": "threshold", "low": "low_threshold"}),
    "credit_decoding": partial(
        dinfer,
        kind="CreditThresholdParallelDecoder",
        names={"tau": "threshold", "alpha": "credit_alpha", "gamma": "boost_gamma", "beta": "decay_beta"},
    ),
    "eb_sampler": partial(loop, path="src/generate.py", function="generate_with_eb_sampler", names={"gamma": "gamma"}),
    "pc_sampler": pc_sampler,
    "remdm_loop": partial(
        loop,
        path="decoding.py",
        function="generate_with_remdm",
        names=NAMES["remdm"],
        columns=1,
        also={"tokenizer": SimpleNamespace(decode=lambda *_, **__: "")},
    ),
}
