"""Callers of vLLM's interfaces, faked: batches that come and go by the words of model runners V1 and V2, no code of them.

A request is computed in parts, preempted and taken up again; rows move (V1), slots are reused (V2); under speculation a request
has a row a draft token. What a processor lets through is what is drawn.
"""

from __future__ import annotations

import random
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

Row = Callable[[list[int]], Tensor]
"""Logits [V] after a text."""


class Move(Enum):
    UNIDIRECTIONAL = 0
    SWAP = 1


class V1Base(ABC):
    @abstractmethod
    def __init__(self, vllm_config: Any, device: Any, is_pin_memory: bool) -> None: ...

    @abstractmethod
    def apply(self, logits: Tensor) -> Tensor: ...

    @abstractmethod
    def is_argmax_invariant(self) -> bool: ...

    @abstractmethod
    def update_state(self, batch_update: Any) -> None: ...


class V2Base(ABC):
    @abstractmethod
    def apply(self, logits: Tensor, ctx: Any) -> Tensor: ...


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have `import vllm...` of exported files find the names above."""
    modules = {
        "vllm.v1.sample.logits_processor": {"LogitsProcessor": V1Base, "MoveDirectionality": Move},
        "vllm.v1.worker.gpu.sample.logits_processor": {"LogitsProcessor": V2Base},
        "vllm.v1.worker.gpu.spec_decode": {"init_speculator": lambda config, device, states: "theirs"},
        "vllm.v1.worker.gpu.spec_decode.speculator": {"BaseSpeculator": ABC},
    }
    for path, names in modules.items():
        parts = path.split(".")
        for n in range(1, len(parts) + 1):
            name = ".".join(parts[:n])
            if name not in sys.modules:
                monkeypatch.setitem(sys.modules, name, ModuleType(name))
                if n > 1:
                    setattr(sys.modules[".".join(parts[: n - 1])], parts[n - 1], sys.modules[name])
        for name, value in names.items():
            setattr(sys.modules[path], name, value)


def params(**given: Any) -> SimpleNamespace:
    """A request's sampling parameters with vLLM's defaults."""
    plain = {
        "temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0,
        "frequency_penalty": 0.0, "seed": None, "extra_args": None, "eos_token_id": None,
    }  # fmt: skip
    return SimpleNamespace(**{**plain, **given})


def config(most: int, vocab: int, longest: int = 96, drafts: int = 0) -> Any:
    model = SimpleNamespace(
        max_model_len=longest, seed=0, get_vocab_size=lambda: vocab, hf_text_config=SimpleNamespace(eos_token_id=1)
    )
    return SimpleNamespace(
        model_config=model,
        scheduler_config=SimpleNamespace(max_num_seqs=most),
        parallel_config=SimpleNamespace(data_parallel_rank=0, enable_batch_sharded_sampling=False, worker_extension_cls=""),
        speculative_config=SimpleNamespace(num_speculative_tokens=drafts, model="") if drafts else None,
    )


@dataclass
class Asked:
    """A request. output: what the engine has; computed: how much of the text has keys and values."""

    prompt: list[int]
    params: Any
    most: int
    output: list[int] = field(default_factory=list)
    computed: int = 0
    expected: list[int] = field(default_factory=list)

    @property
    def text(self) -> list[int]:
        return self.prompt + self.output

    @property
    def over(self) -> bool:
        return len(self.output) >= self.most


def drawn(row: Tensor) -> int:
    """The one token that a row lets through."""
    (tokens,) = torch.nonzero(row > -torch.inf, as_tuple=True)
    assert len(tokens) == 1, "a row lets one token through"
    assert row[tokens[0]] == 0
    return int(tokens[0])


class Engine:
    """What both runners share: requests that wait, run in parts and are preempted, at random."""

    def __init__(self, processor: Any, row: Row, most: int, rng: random.Random) -> None:
        self.processor, self.row, self.most, self.rng = processor, row, most, rng
        self.preempted: list[Asked] = []
        self.counts = {"preempted": 0, "discarded": 0, "moved": 0, "accepted": 0}

    def part(self, request: Asked) -> None:
        """Compute a part of what is not computed."""
        request.computed = min(len(request.text), request.computed + self.rng.choice((2, 5, 100)))

    def next_one(self, waiting: list[Asked]) -> Asked | None:
        """The request that comes into the batch now: one that was preempted before a new one."""
        queue = self.preempted or waiting
        return queue.pop(0) if queue and self.rng.random() < 0.5 else None


class V1(Engine):
    """Model runner V1: a dense batch whose rows are removed, added and moved. late: a request that comes back after a
    preemption has another list, as under asynchronous scheduling."""

    def __init__(self, *args: Any, late: bool = False) -> None:
        super().__init__(*args)
        self.batch: list[Asked] = []
        self.late = late

    def run(self, requests: list[Asked]) -> None:
        waiting = list(requests)
        while waiting or self.batch or self.preempted:
            self.step(waiting)

    def step(self, waiting: list[Asked]) -> None:
        removed, added, moved = [], [], []
        rows: list[Asked | None] = list(self.batch)
        for n, request in enumerate(self.batch):
            preempt = not request.over and self.rng.random() < 0.1
            if request.over or preempt:
                removed.append(n)
                rows[n] = None
            if preempt:
                self.counts["preempted"] += 1
                request.computed = 0
                self.preempted.append(request)
        while sum(r is not None for r in rows) < self.most and (request := self.next_one(waiting)):
            if self.late and request.output:
                request.output = list(request.output)
            place = rows.index(None) if None in rows else len(rows)
            if place in removed:  # a hole that is filled is not said to be removed
                removed.remove(place)
            rows[place:place] = [None] if place == len(rows) else []
            rows[place] = request
            added.append((place, request.params, request.prompt, request.output))
        while None in rows:
            if rows[-1] is None:
                rows.pop()
                continue
            hole = rows.index(None)
            moved.append((len(rows) - 1, hole, Move.UNIDIRECTIONAL))
            rows[hole] = rows.pop()
        if len(rows) > 1 and self.rng.random() < 0.3:
            a, b = self.rng.sample(range(len(rows)), 2)
            rows[a], rows[b] = rows[b], rows[a]
            moved.append((a, b, Move.SWAP))
        self.batch = [r for r in rows if r is not None]
        self.counts["moved"] += len(moved)
        changed = bool(removed or added or moved)
        update = SimpleNamespace(batch_size=len(rows), removed=removed, added=added, moved=moved)
        self.processor.update_state(update if changed else None)
        if not self.batch:
            return
        for request in self.batch:
            self.part(request)
        logits = self.processor.apply(torch.stack([self.row(r.text[: r.computed]) for r in self.batch]))
        tokens = [drawn(row) for row in logits]
        for request, token in zip(self.batch, tokens, strict=True):
            if request.computed == len(request.text):
                request.output.append(token)
            else:
                self.counts["discarded"] += 1


class Buffer:
    """A tensor of slots that host and device see."""

    def __init__(self, *shape: int) -> None:
        self.gpu = torch.zeros(shape, dtype=torch.int32)
        self.np: np.ndarray = self.gpu.numpy()


def slots(most: int, vocab: int, longest: int) -> Any:
    """The state of V2's requests by slot."""
    return SimpleNamespace(
        device=torch.device("cpu"), max_num_reqs=most, vocab_size=vocab, all_token_ids=Buffer(most, longest),
        prompt_len=Buffer(most), prefill_len=Buffer(most), total_len=Buffer(most),
    )  # fmt: skip


class V2(Engine):
    """Model runner V2: a slot a request, and penalties before the processor. drafts: how many tokens it drafts, right and wrong
    ones of what is expected."""

    def __init__(self, *args: Any, state: Any, drafts: int = 0) -> None:
        super().__init__(*args)
        self.state, self.drafts = state, drafts
        self.slot: dict[int, Asked] = {}

    def run(self, requests: list[Asked]) -> None:
        waiting = list(requests)
        while waiting or self.slot or self.preempted:
            self.step(waiting)

    def step(self, waiting: list[Asked]) -> None:
        state = self.state
        for slot, request in list(self.slot.items()):
            if not request.over and self.rng.random() < 0.1:
                self.counts["preempted"] += 1
                request.computed = 0
                self.preempted.append(request)
            elif not request.over:
                continue
            del self.slot[slot]
        while len(self.slot) < self.most and (request := self.next_one(waiting)):
            slot = self.rng.choice([n for n in range(self.most) if n not in self.slot])
            self.slot[slot] = request
            text = request.text
            state.prompt_len.np[slot], state.prefill_len.np[slot] = len(request.prompt), len(text)
            state.total_len.np[slot] = len(text)
            state.all_token_ids.np[slot, : len(text)] = text
            assert self.processor.add_request(slot, request.params)
        self.processor.apply_staged_writes()
        batch = [slot for slot in self.slot if self.rng.random() < 0.9]
        self.rng.shuffle(batch)
        if batch:
            self.draw(batch)

    def drafted(self, request: Asked) -> list[int]:
        """Drafts of a request whose prompt is computed: what is expected, and now and then something else."""
        if request.computed < len(request.text):
            return []
        n = len(request.output)
        right = request.expected[n : n + min(self.drafts, request.most - n - 1)]
        return [t if self.rng.random() < 0.8 else 2 for t in right[: self.rng.randrange(self.drafts + 1)]]

    def penalised(self, row: Tensor, text: list[int], request: Asked) -> Tensor:
        """Logits [V] after a request's penalties."""
        p, seen, row = request.params, sorted({*text}), row.clone()
        row[seen] = torch.where(row[seen] > 0, row[seen] / p.repetition_penalty, row[seen] * p.repetition_penalty)
        new = torch.bincount(torch.tensor(text[len(request.prompt) :], dtype=torch.int64), minlength=len(row))
        return row - p.frequency_penalty * new - p.presence_penalty * (new > 0)

    def draw(self, batch: list[int]) -> None:
        for slot in batch:
            self.part(self.slot[slot])
        drafts = [self.drafted(self.slot[slot]) if self.drafts else [] for slot in batch]
        rows: list[tuple[int, int, int, Tensor]] = []
        for slot, own in zip(batch, drafts, strict=True):
            request = self.slot[slot]
            known = request.text[: request.computed]
            for depth in range(1 + len(own)):
                text = [*known, *own[:depth]]
                rows.append((slot, depth, text[-1], self.penalised(self.row(text), text, request)))
        ctx = SimpleNamespace(
            expanded_idx_mapping=torch.tensor([r[0] for r in rows], dtype=torch.int32),
            idx_mapping=torch.tensor(batch, dtype=torch.int32),
            idx_mapping_np=np.array(batch),
            expanded_local_pos=torch.tensor([r[1] for r in rows], dtype=torch.int32),
            input_ids=torch.tensor([r[2] for r in rows], dtype=torch.int32),
        )
        logits = self.processor.apply(torch.stack([r[3] for r in rows]), ctx)
        at = 0
        for slot, own in zip(batch, drafts, strict=True):
            request, mine = self.slot[slot], logits[at : at + 1 + len(own)]
            at += 1 + len(own)
            if request.computed < len(request.text):
                self.counts["discarded"] += 1
                continue
            for depth, row in enumerate(mine):
                token = drawn(row)
                request.output.append(token)
                self.state.all_token_ids.np[slot, len(request.text) - 1] = token
                if depth == len(own) or token != own[depth]:
                    break
                self.counts["accepted"] += 1
            request.computed = len(request.text) - 1
            self.state.total_len.np[slot] = len(request.text)
