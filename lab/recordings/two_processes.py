"""Decoders that draft while the target verifies: PEARL, DuoDecoding, SpecBranch. Their two processes are two threads here."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Iterator, Sequence
from itertools import pairwise, takewhile
from queue import Queue
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch

from lab.recordings import Case
from lab.recordings.chains import models
from lab.recordings.tables import Coin, Legacy, OnCPU, Stream, TableLM
from lab.recordings.upstream import Upstream


class Process(threading.local):
    """Which of the two processes a thread is; shared: whether both know the same since they last exchanged something."""

    main = True
    shared = False


class Both:
    """Two processes of accelerate's and torch.distributed's interfaces, and their draws: what both draw after an exchange is
    the same, and what the target's process draws alone is read by nobody. sent: what the first process sent."""

    def __init__(self, seed: int) -> None:
        self.mine, self.stream = Process(), Stream(seed)
        self.boxes = {True: Queue[Any](), False: Queue[Any]()}
        self.drawn, self.sent = Queue[Any](), list[Any]()

    @property
    def is_main_process(self) -> bool:
        """The drafter's."""
        return self.mine.main

    def wait_for_everyone(self) -> None:
        """`gather` waits."""

    def send(self, tensor: torch.Tensor, dst: int = 0) -> None:
        """To the other one."""
        if self.mine.main:
            self.sent.append(tensor.clone())
        self.boxes[not self.mine.main].put(tensor.clone())

    def recv(self, tensor: torch.Tensor, src: int = 0) -> None:
        """From the other one."""
        tensor.copy_(self.boxes[self.mine.main].get(timeout=60))

    def gather(self, tensor: torch.Tensor) -> torch.Tensor:
        """What the drafter's process has, and what the target's has."""
        self.send(tensor)
        other = self.boxes[self.mine.main].get(timeout=60)
        self.mine.shared = True
        return torch.cat([tensor, other] if self.mine.main else [other, tensor])

    def alone(self) -> None:
        """A model is called, so that what is drawn next is this process's own."""
        self.mine.shared = False

    def draw(self, how: Any) -> Any:
        """What `how` draws, or what the other process drew."""
        if self.mine.main:
            value = how()
            if self.mine.shared:
                self.drawn.put(value)
            return value
        return self.drawn.get(timeout=60) if self.mine.shared else 0

    def run(self, loop: Any, prefix: torch.Tensor) -> list[int]:
        """The text that the loop writes."""
        texts: list[Any] = [None, None]

        def one(main: bool) -> None:
            self.mine.main = main
            with OnCPU():
                texts[main] = loop(prefix)[0].tolist()

        token = lambda row: self.draw(lambda: self.stream.draw(row / row.sum()))
        multinomial = lambda p, num_samples: torch.tensor([[token(row)] for row in p.double().numpy()])
        flip = lambda p: p > 1 - 1e-6 or (p > 1e-6 and bool(self.draw(lambda: self.stream.flip(p))))
        rand = lambda *_, **__: Coin(flip)
        with mock.patch.object(torch, "multinomial", multinomial), mock.patch.object(torch, "rand", rand):
            other = threading.Thread(target=one, args=(False,), daemon=True)
            other.start()
            one(True)
            other.join(60)
        assert texts[0] == texts[1]
        return list(texts[0])


class Watched(TableLM):
    """A model whose calls are noted where they are made."""

    def __init__(self, table: Any, both: Both) -> None:
        super().__init__(table)
        self.both, self.cache = both, Legacy

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """See TableLM; SpecBranch's code copies states that nothing of it reads."""
        self.both.alone()
        out = super().forward(*args, **kwargs)
        out.hidden_states = (out.logits,)
        return out


def loop_of(upstream: Upstream, name: str, case: Case, both: Both, drafter: Any = None, **names: Any) -> tuple[Any, Watched]:
    """A method of the authors' class `Decoding`, and the target that it calls. names: what its module sees."""
    target, small = (Watched(table, both) for table in models(case).values())
    with upstream.importable("", ("accelerate", "draftretriever", "ipdb", "llama_cpp", "fastchat", "src.model")):
        engine = importlib.import_module("src.engine")
        for module in (engine, sys.modules.get("src.model_cpu", engine)):
            module.__dict__.update(names)
        kind: Any = type("Decoder", (engine.Decoding,), dict.fromkeys(engine.Decoding.__abstractmethods__))
    processes = {}
    for main in (True, False):
        self = processes[main] = kind.__new__(kind)
        settings = {"temp": case["temperature"], "top_k": 0, "top_p": case["top_p"], "gamma": case["gamma"]}
        self.args = SimpleNamespace(**settings, max_tokens=case["limit"], branches=case.get("k"))
        self.accelerator, self.seed, self.vocab_size, self.state = both, 1234, case["size"], 1
        self.draft_forward_times = self.target_forward_times = self.num_rollback_tokens = 0
        self.num_acc_tokens, self.target_model, self.draft_model = [], target, drafter or small
    return lambda prefix: getattr(processes[both.mine.main], name)(prefix), target


def columns(target: Watched, text: list[int], case: Case, drafted: Sequence[Sequence[Sequence[int]]]) -> dict[str, Any]:
    """By round: how much of the text is confirmed and what is pending behind it; the sequences that are drafted; and how much
    is confirmed then. drafted: by round; the text goes on by one of them, of which all but the first token are pending, or
    nothing is."""
    texts = [*(rows[0][-1] for rows in target.calls), tuple(text)]
    pending = [0]
    for (before, after), sequences in zip(pairwise(texts), drafted, strict=True):
        pending.append(len(after) - len(before) - 1 if after[len(before) :] in map(tuple, sequences) else 0)
    sure = [len(t) - n for t, n in zip(texts, pending, strict=True)]
    return {
        "tokens": text[: min(sure[-1], len(case["prompt"]) + case["limit"])],
        "pending": [(n, t[n:]) for n, t in zip(sure[:-1], texts, strict=False)],
        "drafted": [sorted([int(x) for x in s] for s in sequences) for sequences in drafted],
        "confirmed": sure[1:],
    }


def pearl(upstream: Upstream, case: Case) -> dict[str, Any]:
    both, gamma = Both(case["seed"]), case["gamma"]
    loop, target = loop_of(upstream, "parallel_speculative_decoding", case, both)
    text = both.run(loop, torch.tensor([case["prompt"]]))
    return columns(target, text, case, [[sent[0, 0, gamma : 2 * gamma].int().tolist()] for sent in both.sent])


def specbranch(upstream: Upstream, case: Case) -> dict[str, Any]:
    both, gamma = Both(case["seed"]), case["gamma"]
    loop, target = loop_of(upstream, "branch_speculative_decoding", case, both)
    text = both.run(loop, torch.tensor([case["prompt"]]))
    rows = [[sent[b, 0].int().tolist() for b in range(case["k"])] for sent in both.sent]
    return columns(target, text, case, [[r[gamma : gamma + r[2 * gamma + 1] + 1] for r in row] for row in rows])


class LlamaCpp:
    """A table of llama-cpp-python's interface: tokens of its cache that begin a text are not read again."""

    ctx = None

    def __init__(self, table: Any) -> None:
        self.model, self.input_ids, self.n_tokens, self.cache = TableLM(table), np.zeros(512, dtype=np.int64), 0, list[int]()
        self.scores, self.states = np.zeros((512, table.vocab.size), dtype=np.float32), dict[int, list[int]]()

    @property
    def _scores(self) -> np.ndarray:
        return self.scores[: self.n_tokens]

    def generate(self, tokens: Sequence[int], top_k: int, top_p: float, temp: float) -> Iterator[int]:
        """Greedy tokens behind a text."""
        same = len(
            [*takewhile(lambda pair: pair[0] == pair[1], zip(self.input_ids[: self.n_tokens], tokens[:-1], strict=False))]
        )
        self.n_tokens, new = same, [int(x) for x in tokens[same:]]
        while True:
            del self.cache[self.n_tokens :]
            for token in new:
                self.cache.append(token)
                self.input_ids[self.n_tokens] = token
                self.scores[self.n_tokens] = self.model.row(self.cache).numpy()
                self.n_tokens += 1
            new = [int(self.scores[self.n_tokens - 1].argmax())]
            yield new[0]

    def logits_to_logprobs(self, logits: np.ndarray) -> np.ndarray:
        """Logarithms."""
        return np.asarray(torch.log_softmax(torch.from_numpy(logits.copy()), -1))

    def save(self, ctx: Any, buffer: Any, size: int) -> None:
        """The state, in the place of a copy of bytes."""
        self.states[id(buffer)] = [*self.cache]

    def restore(self, ctx: Any, buffer: Any, size: int) -> None:
        """A state that was saved."""
        self.cache = [*self.states[id(buffer)]]


def duodecoding(upstream: Upstream, case: Case) -> dict[str, Any]:
    both = Both(case["seed"])
    drafter = LlamaCpp(models(case)["drafter"])
    of_llama = SimpleNamespace(
        llama_get_state_size=lambda ctx: 0, llama_state_get_data=drafter.save, llama_state_set_data=drafter.restore
    )
    loop, target = loop_of(upstream, "duodecoding", case, both, drafter, dist=both, llama_cpp=of_llama)
    text = both.run(loop, torch.tensor([case["prompt"]]))
    drafted = []
    for i, sent in enumerate(s for s in both.sent if s.dtype == torch.float32):
        k, flat = int(sent[0]), sent[1 : case["gamma"] + 1 if i else 2].int().tolist()
        drafted.append([flat[j * len(flat) // k : (j + 1) * len(flat) // k] for j in range(k)])
    return columns(target, text, case, drafted)


RECORDINGS = {
    "pearl": pearl,
    "specbranch": specbranch,
    "duodecoding": duodecoding,
}
