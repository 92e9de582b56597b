"""Chains that vLLM's proposers draft with a head on the target's features, and its rejection sampler: EAGLE-3 and P-EAGLE."""

from __future__ import annotations

import inspect
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import nn

from lab.recordings import Case
from lab.recordings.states import TableHead
from lab.recordings.tables import Stream, TableLM, chains, untied
from lab.recordings.upstream import Upstream

BASE, UTILS = "vllm/v1/spec_decode/llm_base_proposer.py", "vllm/v1/spec_decode/utils.py"
SAMPLER = "vllm/v1/sample/rejection_sampler.py"


def models(case: Case) -> dict[str, Any]:
    """A target and a head."""
    target = untied(case["size"], case["seed"], window=None)
    return {"target": target, "head": TableHead(target, case["seed"] + 20, share=0.7)}


class Head:
    """A head of vLLM's interface, by a table. A feature is a one and the token that it is of; the head's own have zeros. A row
    is read from what stands in the slots up to its position."""

    def __init__(self, head: TableHead) -> None:
        self.head, self.slots = head, dict[int, tuple[int, int, int]]()

    def combine_hidden_states(self, states: Any) -> Any:
        """They are one already."""
        return states

    def compute_logits(self, states: Any) -> Any:
        """Scores are the states."""
        return states

    def __call__(self, input_ids: Any, positions: Any, hidden_states: Any, inputs_embeds: Any = None) -> Any:
        for token, at, (real, of) in zip(input_ids.tolist(), positions.tolist(), hidden_states.tolist(), strict=True):
            self.slots[at] = (int(token), int(real), int(of))
        rows = []
        for at in positions.tolist():
            seen = [self.slots[i] for i in range(at + 1)]
            known = [of for _, real, of in seen if real]
            path = [token for token, _, _ in seen[len(known) - 1 :]]
            rows.append(torch.tensor([float(p) for p in self.head.row(known, path)]).log())
        return torch.stack(rows), torch.zeros(len(rows), 2)


def launched(kernel: Any, warmup_inputs: Any) -> Any:
    """In the place of vLLM's dispatcher: the kernel with the grid and the constants that the function gives."""

    def wrap(function: Any) -> Any:
        def launch(*args: Any, **more: Any) -> None:
            grid, constants = function(*args, **more)
            named = inspect.signature(function).bind(*args, **more).arguments
            mine = {name if name in kernel.arg_names else f"{name}_ptr": value for name, value in named.items()}
            kernel[grid](**{name: value for name, value in mine.items() if name in kernel.arg_names}, **constants)

        return launch

    return wrap


def seen_by_kernels() -> dict[str, Any]:
    """What files of kernels see."""
    import triton
    import triton.language as tl

    found = {"torch": torch, "triton": triton, "tl": tl, "triton_kernel_dispatcher_with_warmup": launched}
    return found | {"DispatchSpec": Any, "WarmupChoices": mock.MagicMock(), "TritonWarmupTensor": mock.MagicMock()}


def proposer(upstream: Upstream, case: Case, parallel: bool) -> Any:
    """An instance of the authors' proposer, with what its __init__ reads from an engine's configuration."""
    step, expand = "eagle_step_update_slot_mapping_and_metadata", "_copy_and_expand_eagle_inputs"
    wanted: tuple[str, ...] = (
        step,
        "_eagle_step_slot_mapping_metadata",
        "eagle_step_slot_mapping_metadata_kernel",
        "_eagle_step_warmup_inputs",
    )
    wanted += (expand, "copy_and_expand_eagle_inputs_kernel", "_copy_and_expand_eagle_warmup_inputs")
    utils = upstream.names(UTILS, *wanted, "PADDING_SLOT_ID", **seen_by_kernels())
    heads = ("Eagle3LlamaForCausalLM", "Eagle3DeepseekV2ForCausalLM", "DFlashQwen3ForCausalLM", "Eagle3Qwen3ForCausalLM")
    seen: dict[str, Any] = dict.fromkeys((*heads, "DFlashLagunaForCausalLM"), Head)
    seen |= {name: utils[name] for name in (step, expand, "PADDING_SLOT_ID")}
    seen |= {"torch": torch, "nn": nn, "np": np, "BreakableCUDAGraphWrapper": type("Wrapper", (), {})}
    seen |= {"set_forward_context": lambda *_, **__: nullcontext(), "next_power_of_2": lambda n: 1 << (n - 1).bit_length()}
    seen |= {
        "compute_new_slot_mapping": lambda new_positions, **_: new_positions,
        "extend_all_queries_by_N": lambda cad, **_: cad,
    }
    annotated = "VllmConfig CUDAGraphMode EplbState CommonAttentionMetadata SamplingMetadata KVCacheConfig Any InputBatch"
    annotated += " SpecDecodeMetadata CachedRequestState AttentionGroup SupportsMultiModal UniformTypeKVCacheSpecs"
    seen |= dict.fromkeys(annotated.split(), Any)
    kind = upstream.names(BASE, "SpecDecodeBaseProposer", **seen)["SpecDecodeBaseProposer"]
    self = kind.__new__(kind)
    size, extra = 4096, case["gamma"] if parallel else 1
    self.__dict__ |= {
        "method": "eagle3",
        "model": Head(models(case)["head"]),
        "hidden_size": 2,
        "eplb_state": None,
        "vllm_config": mock.MagicMock(),
        "use_heterogeneous_vocab": False,
        "needs_extra_input_slots": extra > 1,
        "extra_slots_per_request": extra,
        "net_num_new_slots_per_request": extra - 1,
        "parallel_drafting": parallel,
        "parallel_drafting_token_id": [*case["eos"], 0][0],
        "parallel_drafting_hidden_state_tensor": torch.zeros(2),
        "pass_hidden_states_to_model": True,
        "device": "cpu",
        "input_ids": torch.zeros(size, dtype=torch.int32),
        "positions": torch.zeros(size, dtype=torch.int64),
        "hidden_states": torch.zeros(size, 2),
        "uses_mrope": False,
        "supports_mm_inputs": False,
        "block_size": 16,
        "max_model_len": size,
        "is_rejected_token_mask": torch.zeros(size, dtype=torch.bool),
        "is_masked_token_mask": torch.zeros(size, dtype=torch.bool),
        "_share_mtp_indices": False,
        "_slot_mapping_buffer": torch.zeros(size, dtype=torch.int64),
        "_draft_attn_layer_names": (),
        "draft_attn_groups": [],
        "constant_draft_positions": False,
        "allowed_attn_types": None,
        "arange": torch.arange(size),
        "token_arange_np": np.arange(size),
        "use_local_argmax_reduction": False,
        "_enable_probabilistic_draft_probs": False,
        "_determine_batch_execution_and_padding": lambda n: (None, n, None),
    }
    self.vllm_config.model_config.uses_mrope = False
    return self


def sampler(upstream: Upstream) -> Any:
    """The authors' rejection sampler, whose noise is put in beforehand."""
    kernels = ("rejection_greedy_sample", "rejection_random_sample", "sample_recovered_tokens")
    wanted = [form.format(k) for k in kernels for form in ("{}_kernel", "_{}", "_{}_warmup_inputs")]
    more = (
        "rejection_sample",
        "sample_recovered_tokens",
        "generate_uniform_probs",
        "PLACEHOLDER_TOKEN_ID",
        "GREEDY_TEMPERATURE",
    )
    return upstream.names(SAMPLER, *wanted, *more, SamplingMetadata=Any, Any=Any, **seen_by_kernels())


def decoded(upstream: Upstream, case: Case, parallel: bool) -> dict[str, Any]:
    """A loop of one sequence around both, as the engine's runner has it."""
    drafting, judge = proposer(upstream, case, parallel), sampler(upstream)
    stream, hot = Stream(case["seed"]), bool(case["temperature"])
    model, text, calls = TableLM(models(case)["target"]), [*case["prompt"]], []
    metadata = SimpleNamespace(all_greedy=not hot, all_random=hot, temperature=torch.tensor([float(hot)]), generators={})

    def p(row: torch.Tensor) -> np.ndarray:
        return np.asarray(torch.softmax(row.double(), -1))

    def one(row: torch.Tensor) -> int:
        return stream.draw(p(row)) if hot else int(row.argmax())

    def propose(start: int, token: int) -> list[int]:
        """Drafts behind the text and this token; the head has not read the tokens from `start` on."""
        new = torch.tensor(text[start:])
        states = torch.stack([torch.ones(len(new)), new.float()], 1)
        slots = torch.arange(start, len(text))
        cad = SimpleNamespace(
            batch_size=lambda: 1,
            query_start_loc=torch.tensor([0, len(new)], dtype=torch.int32),
            max_query_len=len(new),
            slot_mapping=slots,
            seq_lens=torch.tensor([len(text)], dtype=torch.int32),
            block_table_tensor=torch.zeros(1, 256, dtype=torch.int32),
            max_seq_len=len(text),
            seq_lens_cpu_upper_bound=None,
        )
        tokens = torch.tensor([token], dtype=torch.int32)
        drafts = drafting.propose(case["gamma"], new.int(), slots, states, tokens, None, cad, metadata)
        return [int(x) for x in drafts[0]]

    calls.append([[tuple(text)]])
    token = one(model.row(text))
    drafts, text = propose(0, token), [*text, token]
    while len(text) < len(case["prompt"]) + case["limit"] + 16 and not {*text[len(case["prompt"]) :]} & {*case["eos"]}:
        rows = [tuple(text + drafts[:i]) for i in range(len(drafts) + 1)]
        calls.append([rows])
        scores = torch.stack([model.row(row) for row in rows])
        uniforms, accepted = [], 0
        for row, x in zip(scores, drafts, strict=False) if hot else ():
            odds = float(torch.softmax(row, -1)[x])
            uniforms.append(0.0 if odds > 1 - 1e-6 else 1.0 if odds <= 1e-6 else stream.coin())
            if odds < uniforms[-1]:
                break
            accepted += 1
        noise = torch.tensor(uniforms + [0.5] * (len(drafts) - len(uniforms)), dtype=torch.float64)
        last = one(scores[-1]) if accepted == len(drafts) or not hot else 0
        waits = (
            torch.tensor(stream.waits(None, case["size"])[None])
            if hot and accepted < len(drafts)
            else torch.ones(1, case["size"])
        )
        judge["generate_uniform_probs"] = lambda *_, noise=noise: noise
        with mock.patch.object(torch.Tensor, "exponential_", lambda x, waits=waits: x.copy_(waits)):
            found = judge["rejection_sample"](
                torch.tensor(drafts, dtype=torch.int32),
                [len(drafts)],
                len(drafts),
                torch.tensor([len(drafts)], dtype=torch.int32),
                None,
                scores[:-1].contiguous(),
                torch.tensor([[last]], dtype=torch.int32),
                metadata,
            )[0]
        new = [int(x) for x in found if x != judge["PLACEHOLDER_TOKEN_ID"]]
        start, text = len(text) - 1, [*text, *new[:-1]]
        drafts, text = propose(start, new[-1]), [*text, new[-1]]
    return chains(calls, text, case["prompt"], case["limit"], case["eos"])


def eagle3(upstream: Upstream, case: Case) -> dict[str, Any]:
    return decoded(upstream, case, parallel=False)


def p_eagle(upstream: Upstream, case: Case) -> dict[str, Any]:
    return decoded(upstream, case, parallel=True)


RECORDINGS = {
    "eagle3": eagle3,
    "p_eagle": p_eagle,
}
