"""What stands in for SGLang in tests: modules with the names that exported files import, and an engine's loop that calls them.

Typed by hand from the public source of SGLang 0.5.23 (`srt/dllm/algorithm/base.py`, `srt/dllm/mixin/`, `srt/layers/sampler.py`,
`srt/sampling/`): names, parameters and the order of calls, no code. With DECGRAPH_SGLANG, folders that have `sglang` and what
it imports, the classes are SGLang's own.
"""

from __future__ import annotations

import os
import random
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any
from weakref import proxy

import pytest
import torch
from torch import Tensor

BLOCK, MASK = 8, 22
SAMPLING = {
    "temperature": 1.0, "top_k": 1 << 30, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0,
    "frequency_penalty": 0.0, "min_new_tokens": 0, "logit_bias": None, "sampling_seed": None, "custom_params": None,
    "json_schema": None, "regex": None, "ebnf": None, "structural_tag": None,
}  # fmt: skip
"""Fields of `SamplingParams` as a request has them that sets nothing."""


class DllmAlgorithm:
    """The base class of dLLM algorithms: it runs `prepare_inputs`, the model and `step`, for a block or once."""

    def __init__(self, config: Any) -> None:
        self.block_size, self.mask_id, self.fdfo = config.block_size, config.mask_id, config.first_done_first_out_mode

    def run(self, model_runner: Any, forward_batch: Any, algo_states: list[Any] | None = None) -> tuple[Any, ...]:
        n = forward_batch.batch_size
        a: Any = self
        begins = (forward_batch.input_ids.view(n, -1) != self.mask_id).sum(1).tolist()
        fresh = a.init_step_state(forward_batch)
        states = [fresh[i] if s is None else s for i, s in enumerate(algo_states or [None] * n)]
        for _ in range(1 if self.fdfo else a.max_steps(self.block_size)):
            a.prepare_inputs(model_runner, forward_batch, states)
            out = model_runner.forward(forward_batch, pp_proxy_tensors=None)
            if not self.fdfo and all(b == self.block_size for b in begins):
                return out.logits_output, [], None, None, out.can_run_graph
            done = a.step(forward_batch, out.logits_output.full_logits, states)
            if all(done):
                break
        cells = forward_batch.input_ids.view(n, -1)
        if not self.fdfo:
            return out.logits_output, [row[b:] for row, b in zip(cells, begins)], None, None, out.can_run_graph
        left = [None if d else s for d, s in zip(done, states)]
        return out.logits_output, cells.tolist(), [self.block_size if d else 0 for d in done], left, out.can_run_graph


class CustomLogitProcessor:
    """The base class of custom logit processors."""

    @classmethod
    def to_str(cls) -> str:
        return f"{cls.__module__}.{cls.__qualname__}"


class FINISH_ABORT:
    """A reason for which a request ends."""

    def __init__(self, message: str | None = None, status_code: Any = None, err_type: str | None = None) -> None:
        self.message, self.status_code, self.err_type = message, status_code, err_type


MODULES = {
    "sglang.srt.dllm.algorithm": {"algo_name_to_cls": {}},
    "sglang.srt.dllm.algorithm.base": {"DllmAlgorithm": DllmAlgorithm},
    "sglang.srt.managers.schedule_batch": {"FINISH_ABORT": FINISH_ABORT},
    "sglang.srt.sampling.custom_logit_processor": {"CustomLogitProcessor": CustomLogitProcessor},
}


def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have SGLang importable, or what stands in for it."""
    if folder := os.environ.get("DECGRAPH_SGLANG"):
        for part in folder.split(os.pathsep):
            monkeypatch.syspath_prepend(part)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name in MODULES:
                import_module(name)
        return
    for name, values in MODULES.items():
        made = ModuleType(name)
        vars(made).update(values)
        parts = name.split(".")
        for n in range(1, len(parts)):
            above = ".".join(parts[:n])
            if above not in sys.modules:
                monkeypatch.setitem(sys.modules, above, ModuleType(above))
        monkeypatch.setitem(sys.modules, name, made)


def loaded(text: str, name: str) -> dict[str, Any]:
    """What an exported file defines. name: of its module."""
    made: dict[str, Any] = {"__name__": name}
    exec(compile(text, f"{name}.py", "exec"), made)
    return made


@dataclass(eq=False)
class Req:
    """A request of the engine. plain: fields of `SamplingParams` that it sets."""

    rid: str
    origin_input_ids: list[int]
    plain: dict[str, Any] = field(default_factory=dict)
    eos_token_ids: set[int] | None = None
    length: int = 0

    def __post_init__(self) -> None:
        self.output_ids: list[int] = []
        self.to_finish: Any = None
        self.kv = SimpleNamespace(kv_committed_len=0)
        self.cells: list[int] | None = None
        self.state: Any = None
        self.sampling_params = SimpleNamespace(**{**SAMPLING, **self.plain})
        if isinstance(own := self.sampling_params.custom_params, dict):
            self.sampling_params.custom_params = {**own, "__req__": proxy(self)}


@dataclass
class Forward:
    """A `ForwardBatch`."""

    batch_size: int
    input_ids: Tensor
    positions: Tensor
    rids: list[str]
    dllm_prompt_mask: Tensor | None = None

    def mark_forward_metadata_ready(self, replan_equivalent: bool = True) -> None:
        """Nothing is planned."""


class DllmEngine:
    """An engine that runs a dLLM algorithm. row: logits [block, V] of a block's cells behind a text."""

    def __init__(self, algorithm: Any, row: Callable[[list[int], list[int]], Tensor], vocab: int) -> None:
        config = SimpleNamespace(block_size=BLOCK, mask_id=MASK, algorithm_config={}, first_done_first_out_mode=False)
        self.make, self.config, self.row, self.rounds = algorithm, config, row, 0
        self.model_config = SimpleNamespace(vocab_size=vocab)
        self.texts: dict[str, list[int]] = {}

    def forward(self, batch: Forward, pp_proxy_tensors: Any) -> Any:
        """The model's forward, of a model runner."""
        self.rounds += 1
        rows = batch.input_ids.view(batch.batch_size, BLOCK).tolist()
        logits = torch.cat([self.row(self.texts[rid], cells) for rid, cells in zip(batch.rids, rows)])
        return SimpleNamespace(logits_output=SimpleNamespace(full_logits=logits), can_run_graph=False)

    def blocks(self, reqs: Sequence[Req]) -> Iterator[tuple[Req, list[int], list[int]]]:
        for r in reqs:
            text = r.origin_input_ids + r.output_ids
            whole = len(text) // BLOCK * BLOCK
            yield r, text[:whole], [*text[whole:], *[MASK] * (BLOCK - len(text) + whole)]

    def serve(self, reqs: Sequence[Req], fdfo: bool, rng: random.Random, aborts: Sequence[Req] = ()) -> None:
        """Run requests until each has its length, in whole blocks, or has an error. Those of `aborts` go away in their third
        round."""
        self.config.first_done_first_out_mode = fdfo
        algorithm = self.make(self.config)
        waits = {r.rid: rng.randrange(4) if fdfo else 0 for r in reqs}
        seen = dict.fromkeys((r.rid for r in reqs), 0)
        live = []
        for r in reqs:
            wrong = algorithm.validate_request(r)
            if wrong is not None:
                r.to_finish = SimpleNamespace(message=wrong)
            else:
                live.append(r)
        for _ in range(2000):
            live = [r for r in live if len(r.output_ids) < r.length and r.to_finish is None]
            if not live:
                return
            waits = {rid: n - 1 for rid, n in waits.items()}
            here = [r for r in live if waits[r.rid] < 0 and (not fdfo or rng.random() < 0.9)]
            rng.shuffle(here)
            if not here:
                continue
            cells = {}
            for r, text, new in self.blocks(here):
                self.texts[r.rid], cells[r.rid] = text, r.cells or new
                seen[r.rid] += 1
            batch = Forward(
                len(here),
                torch.tensor([c for r in here for c in cells[r.rid]]),
                torch.tensor([len(self.texts[r.rid]) + i for r in here for i in range(BLOCK)], dtype=torch.int32),
                [r.rid for r in here],
            )
            out = algorithm.run(self, batch, [r.state for r in here] if fdfo else None)
            if not fdfo:
                for r, new in zip(here, out[1]):
                    r.output_ids += new.tolist()
                continue
            for r, new, length, state in zip(here, out[1], out[2], out[3]):
                r.cells, r.state = (None, None) if length else (new, state)
                if length:
                    r.output_ids += new[len(r.origin_input_ids + r.output_ids) - len(self.texts[r.rid]) :]
                if r in aborts and seen[r.rid] == 3:
                    live.remove(r)
        raise AssertionError("a block does not end")


class LogitsEngine:
    """An engine with a custom logit processor. row: logits [V] after a text. Prompts are computed in parts of up to `part`
    tokens, each of which is drawn after; with `overlap` outputs are known a step late, and a request that is retracted loses
    the token of the step that runs."""

    def __init__(self, make: Callable[[], Any], row: Callable[[list[int]], Tensor], *, overlap: bool, part: int = 3) -> None:
        self.make, self.row, self.overlap, self.part = make, row, overlap, part
        self.parts = self.retracted = 0

    def serve(self, reqs: Sequence[Req], rng: random.Random, most: int = 3) -> None:
        """Run requests until each has its length, or has an error; up to `most` at once."""
        wait, live, running = list(reqs), list[Req](), self.make()
        late: list[tuple[Req, int]] = []
        while wait or live:
            begins = bool(wait) and len(live) < most
            while wait and len(live) < most:
                live.append(wait.pop(0))
            processor = self.make() if begins else running  # an instance for each batch that begins
            rng.shuffle(live)
            drawn = dict(late)
            texts = {id(r): [*r.origin_input_ids, *r.output_ids, *([drawn[r]] if r in drawn else [])] for r in live}
            for r in live:
                text = texts[id(r)]
                step = 1 if r.kv.kv_committed_len + 1 == len(text) and r.output_ids else self.part
                r.kv.kv_committed_len = min(len(text), r.kv.kv_committed_len + step)
            logits = torch.stack([self.row(texts[id(r)][: r.kv.kv_committed_len]) for r in live])
            params = [r.sampling_params.custom_params for r in live]
            tokens = processor(logits, params).argmax(1).tolist()
            for r, token in late:
                self.append(r, token)
            late = []
            for r, token in zip(live, tokens):
                if r.kv.kv_committed_len < len(texts[id(r)]):
                    self.parts += 1
                elif self.overlap:
                    late.append((r, token))
                else:
                    self.append(r, token)
            for r in live:
                if rng.random() < 0.08 and r.output_ids and r.to_finish is None:
                    self.retracted += 1
                    r.kv.kv_committed_len = 0
                    late = [(other, token) for other, token in late if other is not r]
            live = [r for r in live if len(r.output_ids) < r.length and r.to_finish is None]
            late = [(r, token) for r, token in late if r in live]

    def append(self, r: Req, token: int) -> None:
        if len(r.output_ids) < r.length:
            r.output_ids.append(token)
