"""Drafters that go on while the target verifies."""

from __future__ import annotations

import dataclasses
import enum
import itertools
from copy import copy
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from lab.recordings import Case
from lab.recordings.tables import TableLM, untied
from lab.recordings.upstream import Upstream

FAR = 1 << 20
"""A page of the cache, larger than any text: a slot is a position."""


class Pipe:
    """torch.distributed between the two processes, the target's 0 and the drafter's 1: what one sends the other receives, in
    order. serve: what the drafter does when the target waits for it."""

    ProcessGroup = object

    def __init__(self) -> None:
        self.to: tuple[list[Tensor], list[Tensor]] = [], []
        self.serve: Any = None

    def send(self, tensor: Tensor, dst: int, group: Any = None) -> None:
        """torch.distributed.send."""
        self.to[dst].append(tensor.clone())

    def recv(self, tensor: Tensor, src: int, group: Any = None) -> None:
        """torch.distributed.recv."""
        mine = self.to[1 - src]
        if not mine:
            self.serve()
        tensor.copy_(mine.pop(0).view(tensor.shape))


class Pages:
    """The drafter's forward over a paged cache, by a table. A row of a branch of the tree reads the text before the branch and
    the branch itself, as the engine's attention mask says there."""

    def __init__(self, table: Any, prompt: list[int]) -> None:
        self.model, self.slots, self.branches = TableLM(table), dict(enumerate(prompt)), list[list[int]]()
        self.mapped: list[int] = []

    def set_context(self, *_: Any, slot_mapping: Tensor, **__: Any) -> None:
        """Where the next call's tokens are stored."""
        self.mapped = slot_mapping.tolist()

    def __call__(
        self, tokens: Tensor, positions: Tensor, is_prefill: bool, last_only: bool = True,
        tree_decode_step: int | None = None, **_: Any,
    ) -> Tensor:  # fmt: skip
        """float32[n, V]"""
        at = positions.tolist()
        if tree_decode_step is not None:
            self.branches = [[]] * len(at) if tree_decode_step == 0 else self.branches
            self.branches = [[*b, t] for b, t in zip(self.branches, tokens.tolist(), strict=True)]
            starts = [p - tree_decode_step for p in at]
            texts = [[*self.before(n), *b] for n, b in zip(starts, self.branches, strict=True)]
        else:
            assert self.mapped == at
            self.slots.update(zip(at, tokens.tolist(), strict=True))
            texts = [self.before(p + 1) for p in at]
        return torch.stack([self.model.row(text) for text in texts])

    def before(self, n: int) -> list[int]:
        """The text's first n tokens."""
        return [self.slots[i] for i in range(n)]


def speculative_speculative(upstream: Upstream, case: Case) -> dict[str, Any]:
    k, fan, cpu, pipe = case["gamma"], case["fan"], torch.device("cpu"), Pipe()
    target = TableLM(untied(case["size"], case["seed"], window=None))
    pages = Pages(
        untied(case["size"], case["seed"], window=None, blend=(99, case["apart"]), name="drafter"), case["prompt"][:-1]
    )
    helpers = upstream.names(
        "ssd/utils/async_helpers/async_spec_helpers.py",
        *("make_glue_decode_input_ids", "get_forked_recovery_tokens_from_logits", "apply_sampler_x_rescaling"),
        torch=torch, Config=object, AutoTokenizer=object,
    )  # fmt: skip
    packed = upstream.names(
        "ssd/utils/async_helpers/nccl_pack.py", "concat_int64", "send_int64", "recv_int64", torch=torch, dist=pipe
    )
    params = upstream.names("ssd/sampling_params.py", "SamplingParams", dataclass=dataclasses.dataclass)
    sequences = upstream.names(
        "ssd/engine/sequence.py", "SequenceStatus", "Sequence",
        copy=copy, Enum=enum.Enum, auto=enum.auto, count=itertools.count, SamplingParams=params["SamplingParams"],
    )  # fmt: skip
    results = upstream.names(
        "ssd/engine/helpers/speculate_types.py", "SpeculateResult", "VerifyResult", "SpeculatorBase",
        dataclass=dataclasses.dataclass, torch=torch, Sequence=object, ABC=object, abstractmethod=lambda f: f,
    )  # fmt: skip
    own = {
        name: value for scope in (results, packed, helpers) for name, value in scope.items()
        if getattr(value, "__module__", "") in ("nccl_pack", "async_spec_helpers", "speculate_types")
    }  # fmt: skip
    shared = {**own, "torch": torch, "dist": pipe, "PROFILE_DRAFT": False, "ttl": 0, "ttl_hit": 0}
    sampler = upstream.names("ssd/layers/sampler.py", "Sampler", nn=torch.nn, **shared)["Sampler"]
    drafter = object.__new__(upstream.names(
        "ssd/engine/draft_runner.py", "DraftRunner",
        ModelRunner=object, Config=object, set_context=pages.set_context, reset_context=lambda: None,
        os=__import__("os"), time=__import__("time"), dataclasses=dataclasses, **shared,
    )["DraftRunner"])  # fmt: skip
    fans = [fan] * (k + 1)
    drafter.__dict__.update(
        config=SimpleNamespace(
            speculate_k=k, MQ_LEN=sum(fans), fan_out_list=fans, fan_out_list_miss=fans, fan_out_t=torch.tensor(fans),
            fan_out_t_miss=torch.tensor(fans), async_fan_out=fan, use_eagle=False, verbose=False, jit_speculate=True,
            max_blocks=1,
        ),
        hf_config=SimpleNamespace(vocab_size=case["size"], torch_dtype=torch.float32, hidden_size=1),
        device=cpu, block_size=FAR, run_model=pages, sampler=sampler(), tokenizer=None, async_pg=None,
        recv_tensor=lambda shape, dtype: pipe.to[1].pop(0),
    )  # fmt: skip
    drafter._reset_tree_cache_tensors()
    drafter._init_prealloc_buffers()

    def serve() -> None:
        """A turn of the drafter's own loop for a request."""
        pipe.to[1].pop(0)  # the command
        glue, partial = drafter._service_spec_request()
        drafter._reset_tree_cache_tensors()
        tree = drafter._build_tree_batch(partial, glue)
        tokens, logits, states = drafter._decode_tree(tree)
        drafter._populate_tree_cache(tree, tokens, logits, tree["cache_hits"], states)

    pipe.serve = serve
    speculator = upstream.names(
        "ssd/engine/speculator_async.py", "SpeculatorAsync",
        AutoTokenizer=object, Sequence=object, prepare_prefill_payload=None, decode_tokens=None, **shared,
    )["SpeculatorAsync"](k, cpu, fan, 1, case["size"], torch.float32, FAR, FAR, None, 1, None, False)  # fmt: skip
    verify = upstream.names("ssd/utils/verify.py", "verify", Config=object, **shared)["verify"]
    after = upstream.names(
        "ssd/engine/scheduler.py", "Scheduler", Config=object, Sequence=object, SequenceStatus=None, BlockManager=None,
        compute_megaspec_lookahead=None, torch=torch,
    )["Scheduler"]._update_sequence_metadata  # fmt: skip
    sequences["Sequence"].block_size = FAR
    seq = sequences["Sequence"]([*case["prompt"][:-1]], params["SamplingParams"](temperature=0.0, ignore_eos=True))
    seq.recovery_token_id, seq.block_table, seq.draft_block_table = case["prompt"][-1], [0], [0]
    temperature, pending, committed, hits = torch.zeros(1), [], [], []
    for _ in range(case["calls"]):
        seq.num_cached_tokens = seq.num_draft_cached_tokens = len(seq)
        saved = [*seq.token_ids]
        found = speculator.speculate([seq], results["VerifyResult"]([], [], None))
        chain = found.speculations[0].tolist()
        rows = torch.stack([target.row([*saved, *chain[: i + 1]]) for i in range(k + 1)])[None]
        ((suffix,), (token,)) = verify(
            rows, found.logits_q, found.speculations, temperature, temperature, found.cache_hits, jit_speculate=True
        )
        seq.token_ids, seq.num_tokens = saved, len(saved)
        seq.num_cached_tokens = seq.num_draft_cached_tokens = len(saved)
        after(SimpleNamespace(block_size=FAR), seq, suffix, token)
        pending.append(chain[1:])
        committed.append([*suffix[1:], token])
        hits.append(bool(found.cache_hits[0]))
    return {"pending": pending, "committed": committed, "there": hits}


RECORDINGS = {
    "speculative_speculative": speculative_speculative,
}
