"""The state of a step: B sequences, their buffers on the device, and the order of its operations.

State that lasts from one step to the next is in buffers that are written in place, at fixed addresses for a captured graph: the
tokens, how many there are, which sequences are done, iterations, states, and every model's cache. Each step computes all else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.triton.kit import compiled_rule
from decgraph.backends.triton.rules.device import Given, Walked, site_words
from decgraph.backends.triton.step.cache import DeviceCache
from decgraph.backends.triton.step.distributions import DistributionKernels, Shape
from decgraph.backends.triton.step.evaluate import Evaluator, NotCapturable, is_static, load
from decgraph.backends.triton.step.keys import int32_words, site_word, words_for
from decgraph.backends.triton.step.values import DeviceDist, DeviceNoise, DeviceRows
from decgraph.ir.data.numbers import FLOAT
from decgraph.ir.data.topology import Topology
from decgraph.ir.values import Function, Module, Op
from decgraph.runtime.request import Request


@dataclass(frozen=True)
class Frame:
    """Sizes and shaping, the same for all requests of a program. capacity: tokens of a sequence, prompt included.
    ends: how many end-of-text ids a request may have."""

    batch: int
    capacity: int
    shape: Shape
    device: torch.device
    ends: int = 1


class DeviceStep(Evaluator):
    """One program on the device. models: `DeviceModel`s by parameter name."""

    num: Any = FLOAT
    meta = False
    """Whether only shapes are computed (why.py)."""

    def __init__(
        self, module: Module, function: str, models: Mapping[str, Any], params: Mapping[str, Any], frame: Frame
    ) -> None:
        super().__init__()
        load()
        self.module, self.function, self.params = module, module.functions[function], dict(params)
        self.frame, self.device = frame, frame.device
        b = frame.batch
        self.tokens = self.buffer(
            (b, frame.capacity + 1), torch.int64
        )  # the last column gets the tokens that are not committed
        self.length, self.base, self.limit, self.iteration = (self.buffer((b,), torch.int32) for _ in range(4))
        self.done, self.lost = self.buffer((b,), torch.bool), self.buffer((b,), torch.bool)
        self.request, self.seeds = self.buffer((b, 2), torch.int32), self.buffer((b, 2), torch.int64)
        self.ends = self.buffer((b, frame.ends), torch.int64)
        self.states: dict[str, Any] = {}
        self.most_uncached: dict[str, int] = {}
        self.tally = Counts(self)
        self._constants: dict[Any, Tensor] = {}
        self.caches: dict[str, DeviceCache] = {}
        self.names: dict[int, str] = {}
        for p in self.function.params:
            if p.value.type.elem == "model":
                model = models[p.name]
                self.caches.setdefault(p.name, DeviceCache(self, p.name, model))
                self.names[id(model)] = p.name
                self.env[p.value] = model
            else:
                self.env[p.value] = parameter(p, self.params[p.name])
        self.main = next((p.name for p in self.function.params if p.value.type.elem == "model"), "")
        self.vocab_size = int(models[self.main].vocab_size)
        self.kernels = self.make_kernels(models[self.main])
        self.ids = [0] * b  # the requests' ids, for the host
        self.site_columns: dict[tuple[str, ...], Tensor] = {}
        self.uids = self.epoch = 0
        self.before, self.loop = split(self.function)

    # -- buffers and constants
    def buffer(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Zeros that last."""
        return torch.zeros(shape, dtype=dtype, device=self.device)

    def constant(self, value: Any, dtype: torch.dtype | None = None) -> Tensor:
        """A static value as a tensor, created once and reused by later steps."""
        a = np.ascontiguousarray(value)
        key = (a.tobytes(), a.shape, a.dtype.str, dtype)
        if key not in self._constants:
            self._constants[key] = torch.from_numpy(a.copy()).to(device=self.device, dtype=dtype)
        return self._constants[key]

    def steps(self, n: int) -> Tensor:
        """int64[n]: 0 .. n - 1."""
        return self.constant(np.arange(n))

    # -- requests
    def admit(self, requests: Sequence[Request], uncached: Mapping[str, int], shared: Mapping[Any, Any] | None = None) -> None:
        """Write requests to the buffers, one for each sequence, and begin the models. Runs on the host, before any step.
        uncached: the most tokens that each model may have uncached when an iteration begins (why.py); shared: a session's
        states."""
        self.place(requests)
        self.most_uncached = dict(uncached)
        for cache in self.caches.values():
            cache.most_uncached = 1
            cache.begin([r.prompt for r in requests])
        self.tally.clear()
        self.start_states(shared)

    def place(self, requests: Sequence[Request]) -> None:
        """Write the buffers: one copy for each, from the host."""
        b, count = self.frame.batch, len(requests)
        if count != b:
            raise ValueError(f"{count} requests for a batch of {b}")
        tokens = np.zeros(tuple(self.tokens.shape), dtype=np.int64)
        ends = np.full((b, self.frame.ends), -2, dtype=np.int64)  # equal to no token, not even to -1
        for n, request in enumerate(requests):
            tokens[n, : len(request.prompt)] = request.prompt
            ends[n, : len(request.eos)] = sorted(request.eos)
        lengths = [len(r.prompt) for r in requests]
        self.ids = [r.request_id for r in requests]
        seeds = np.stack([int32_words(r.seed) for r in requests]).view(np.uint32).astype(np.int64)
        for buffer, value in (
            (self.tokens, tokens),
            (self.ends, ends),
            (self.length, lengths),
            (self.base, lengths),
            (self.limit, [min(r.limit, 2**31 - 1) for r in requests]),
            (self.seeds, seeds),
            (self.request, np.stack([int32_words(i) for i in self.ids])),
            *((words, site_words(self.ids, sites).numpy()) for sites, words in self.site_columns.items()),
        ):
            buffer.copy_(torch.from_numpy(np.array(value)))
        for buffer in (self.iteration, self.done, self.lost):
            buffer.zero_()

    # -- states
    def start_states(self, shared: Mapping[Any, Any] | None = None) -> None:
        """Set initial states: the session's, where it has them, else the program's. Every sequence has its own. Runs on the
        host. Raises NotCapturable for a state that is no tensor."""
        for state in self.function.states:
            kept = (shared or {}).get((self.function.name, state.name)) if state.scope == "session" else None
            value = np.asarray(self.region(state.init, ())[0] if kept is None else kept)
            if state.scope == "batch" or value.dtype == object or state.type.elem in ("list", "index", "tree", "path"):
                raise NotCapturable(f"the state `{state.name}`")
            made = torch.from_numpy(np.broadcast_to(value, (self.frame.batch, *value.shape)).copy()).to(self.device)
            kept = self.states.get(state.name)
            if isinstance(kept, Tensor) and kept.shape == made.shape:
                kept.copy_(made)
            else:
                self.states[state.name] = made

    def level_field(self, level: Any, field: str) -> Any:
        """A field of a level of a topology."""
        v = getattr(level, field)
        return np.array(v, dtype=np.int64) if isinstance(v, tuple) else v

    @property
    def reusable(self) -> bool:
        """Whether a captured iteration reads no result of the prologue: else it is captured again for other requests."""
        made = {v for op in self.before for v in op.results}
        read = {v for op in self.loop.regions[1].walk() for v in op.operands}
        return all(is_static(self.env.get(v)) or isinstance(self.env.get(v), DeviceNoise) for v in made & read)

    def uncached(self) -> dict[str, int]:
        """The most tokens that each model may have uncached now."""
        return {name: cache.most_uncached for name, cache in self.caches.items()}

    # -- an iteration
    def prologue(self) -> None:
        """Run the ops before `while not done`, once."""
        self.start_iteration()
        for op in self.before:
            self.op(op)

    def body(self) -> None:
        """One iteration of `while not done`, each model with `most_uncached` uncached tokens. Raises NotCapturable."""
        region = self.loop.regions[1]
        self.start_iteration()
        for name, cache in self.caches.items():
            cache.most_uncached = self.most_uncached.get(name, cache.most_uncached)
        self.env[region.args[0]] = self.iteration
        for op in region.ops:
            self.op(op)
        for tokens in self.unchecked:
            self.flag(tokens < 0)
        self.iteration.add_((~self.began).to(torch.int32))

    def start_iteration(self) -> None:
        self.uids = self.epoch = 0
        self.tally.calls, self.tally.drafted = {}, 0
        self.unchecked: list[Tensor] = []  # tokens of nodes that may be -1
        self.began = self.over()
        for cache in self.caches.values():
            cache.start()

    def over(self) -> Tensor:
        """bool[B]: the sequences that are over and do not change."""
        return self.done | self.lost

    def flag(self, wrong: Tensor) -> None:
        """Mark sequences (bool[B, ...]) with a case that only the driver handles: it runs them again."""
        self.lost.logical_or_(wrong.flatten(1).any(-1) & ~self.done if wrong.ndim > 1 else wrong & ~self.done)

    def next_uids(self, n: int) -> np.ndarray:
        """int64[n]: ids of new nodes, unique in an iteration."""
        out = np.arange(self.uids, self.uids + n)
        self.uids += n
        return out

    # -- noise and distributions
    def make_kernels(self, model: Any) -> DistributionKernels:
        """The kernels for distributions over the main model's vocabulary."""
        return DistributionKernels(self.frame.shape, model.vocab_size, self.device, wide=model.exact)

    def rule(self, op: Op) -> Any:
        """The kernels of a `tree.walk`, generated once for the op."""
        return compiled_rule(op, self.function)

    def walked(self, rule: Any, given: Given, depth: int) -> Walked:
        """Verify trees of at most that depth."""
        out: Walked = rule.on_device(given, depth=depth)
        return out

    def site_words(self, sites: tuple[str, ...]) -> Tensor:
        """int32[B, S]: the first key word of each site for each request; kept as long as the step is."""
        if sites not in self.site_columns:
            self.site_columns[sites] = site_words(self.ids, sites, self.device)
        return self.site_columns[sites]

    def key_words(self, noise: DeviceNoise, rows: int, positions: Tensor | None, lanes: np.ndarray | None = None) -> Tensor:
        """int32[B, rows, 3]: the key of every row's noise. positions: int64[B, rows] for the stream `output`."""
        out = torch.empty((self.frame.batch, rows, 3), dtype=torch.int32, device=self.device)
        if self.meta:
            return out
        if noise.kind == "output":
            if noise.index is not None:
                raise NotCapturable("`as output` at an index")
            if positions is None:
                raise NotCapturable("`as output` of a distribution without a position")
            site, counters, iteration_at = "output", positions[..., None], -1
            where = self.constant(np.zeros((1, 1, 0), dtype=np.int64))
        else:
            site, iteration_at = noise.site, -1
            numbers = []
            for i, c in enumerate(noise.counters):
                if c is self.iteration:
                    iteration_at = i
                elif isinstance(c, Tensor):
                    raise NotCapturable("a data-dependent loop counter")
                numbers.append(0 if c is self.iteration else int(c))
            counters = self.constant(np.array(numbers, dtype=np.int64).reshape(1, 1, -1))
            where = self.constant((np.arange(rows)[:, None] if lanes is None else lanes)[None].astype(np.int64))
        return words_for(
            out,
            self.request,
            self.constant(np.array([site_word(site)])),
            self.iteration,
            counters,
            where,
            iteration_at=iteration_at,
        )

    def face(self, rows: DeviceRows, name: str) -> Tensor:
        """Probabilities [B, R, V] of rows in a view (for "logits" the scores)."""
        if rows.given or name == "logits":
            return rows.scores
        if name not in rows.faces:
            flat = rows.scores.flatten(0, 1)
            rows.faces[name] = self.kernels.probs(flat, name).unflatten(0, rows.scores.shape[:2])
        return rows.faces[name]

    def points(self, rows: DeviceRows, name: str) -> Tensor | None:
        """int64[B, R]: the certain token of each row, where a view is one-hot by construction: the shaped one of a greedy
        request."""
        if rows.given or name != "shaped" or not self.frame.shape.greedy:
            return None
        if "points" not in rows.faces:
            flat = rows.scores.flatten(0, 1)
            rows.faces["points"] = self.kernels.best(flat).unflatten(0, rows.scores.shape[:2])
        return rows.faces["points"]

    def vector(self, q: DeviceDist) -> Tensor:
        """Probabilities [B, *shape, V]."""
        return take(self, self.face(q.rows, q.face), q.index)


def take(s: DeviceStep, values: Tensor, index: Any) -> Tensor:
    """values[b, index[b]]: rows of a tensor [B, R, ...] at an index, NumPy int64[*shape] or int64[B, *shape]."""
    if isinstance(index, Tensor):
        flat = index.flatten(1)
        rest = values.shape[2:]
        wide = flat.view(*flat.shape, *([1] * len(rest))).expand(-1, -1, *rest)
        return values.gather(1, wide).unflatten(1, index.shape[1:]) if index.ndim > 1 else values.gather(1, wide)
    if index.ndim == 0:
        return values.select(1, int(index))
    flat = index.ravel()
    n = int(values.shape[1])
    if len(flat) == n and bool((flat == np.arange(n)).all()):
        out = values
    else:
        out = values.index_select(1, s.constant(flat))
    return out if index.ndim == 1 else out.unflatten(1, index.shape)


def split(function: Function) -> tuple[list[Op], Op]:
    """The ops before `while not done`, and that loop. Raises NotCapturable for a function of another structure."""
    ops = list(function.body.ops)
    at = next((i for i, op in enumerate(ops) if op.opcode == "while" and op.attrs.get("bound") == "done"), None)
    if at is None:
        raise NotCapturable("there is no `while not done`")
    loop = ops[at]
    if loop.operands or loop.attrs.get("stops"):
        raise NotCapturable("the loop carries values from iteration to iteration, or may be left early", loop)
    if ops[at + 1 :]:
        raise NotCapturable("there are ops after `while not done`", ops[at + 1])
    return ops[:at], loop


def parameter(p: Any, value: Any) -> Any:
    """A parameter as a host value."""
    if p.value.type.elem == "topology":
        return Topology.of(value)
    return float(value) if hasattr(value, "numerator") and not isinstance(value, bool | int) else value


class Counts:
    """Statistics on the device: int64[B, depth] each, how often drafts at a depth were tested and accepted; and, on
    the host, the calls and drafted tokens of an iteration."""

    deepest = 64

    def __init__(self, s: DeviceStep) -> None:
        self.both, self.before = (s.buffer((2, s.frame.batch, self.deepest), torch.int64) for _ in range(2))
        self.tested, self.accepted = self.both
        self.kept, self.offered = (s.buffer((s.frame.batch,), torch.int32) for _ in range(2))
        self.useless = s.buffer((s.frame.batch,), torch.int64)
        self.calls: dict[str, int] = {}
        self.drafted = 0

    def walks(self, over: Tensor) -> None:
        """Begin a verification. over: bool[B], sequences whose iteration is not counted."""
        torch.where(over[None, :, None], self.before, self.both, out=self.before)

    def leaves_out(self, live: Tensor, over: Tensor) -> None:
        """Count only the nodes bool[B, N] of a tree as drafted."""
        self.useless.add_(torch.where(over, 0, (~live).sum(1)))

    def committed(self, kept: Tensor, offered: Tensor, over: Tensor) -> None:
        """Count kept int[B] committed tokens of the verified path."""
        torch.where(over, self.kept, kept, out=self.kept)
        torch.where(over, self.offered, offered, out=self.offered)

    def counted(self) -> Tensor:
        """int64[2, B, depth]: `tested` and `accepted` without the tests of the last verification after the end of a text."""
        depth = torch.arange(1, self.deepest + 1, device=self.both.device)
        behind = (self.kept < self.offered)[:, None] & (depth > self.kept[:, None])
        return self.both - (self.both - self.before) * behind

    def iteration(self) -> tuple[dict[str, int], int]:
        """Calls by name, and drafted tokens, of the last iteration (or prologue)."""
        return dict(self.calls), self.drafted

    def clear(self) -> None:
        for buffer in (self.both, self.before, self.kept, self.offered, self.useless):
            buffer.zero_()
