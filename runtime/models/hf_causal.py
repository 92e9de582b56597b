"""Hugging Face causal language models as plain forwards."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence, Set
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from decgraph.errors import DecError
from decgraph.runtime.models.decoder.net import Net
from decgraph.runtime.models.interface import (
    Cell,
    LayerMemory,
    Memory,
    Model,
    Path,
    Row,
    Scores,
    Vocab,
    check_family,
    check_path,
    check_scores,
    first_computed,
)
from decgraph.runtime.models.parts import check_layers, grouped, no_such, skip_name, without
from decgraph.runtime.models.rotary import bounded
from decgraph.runtime.models.sharing import renewed
from decgraph.runtime.models.soft_inputs import inputs
from decgraph.runtime.models.tape import Tape, held_of, memory_of


class Heads(Protocol):
    """Medusa heads (hf_heads.py)."""

    module: nn.Module

    def read_last(self, last: Row) -> list[Scores]:
        """See `HFHeads`."""
        ...


class HFCausal(Model):
    """A causal language model in float32, its logits in float64. Every path of every call is a forward of its own, from its
    first token or the end of the memory on, and nothing is remembered: this is what engines are compared with."""

    def __init__(self, net: Net, *, name: str, vocab: Vocab, context: int | None, family: str) -> None:
        self.kind = "causal"
        self.name, self.vocab, self.family = name, vocab, family
        self.context, self.bounded = bounded(context, getattr(net.base, "config", None), name)
        self.layers, self.net = len(net.layers), net
        self.attached: Heads | None = None
        self.origin: tuple[HFCausal, str, tuple[object, ...]] | None = None  # of a derived model: whose it is, and how

    @property
    def engine_module(self) -> str:  # type: ignore[override]  # it follows what is attached
        """See `Model`."""
        return "heads" if self.attached is not None else "nets" if self.origin is None else "exits"

    def eval(self, paths: Sequence[Path], memory: Memory | None = None) -> list[Scores]:
        made = {path: self._score(path, memory) for path in dict.fromkeys(paths)}
        return [made[path] for path in paths]

    def _score(self, path: Path, memory: Memory | None) -> Scores:
        _, last, _ = self._run(path, memory)
        return self._row(self.net.logits(last[-1:]).cpu().numpy()[0], len(path) - 1)

    def _row(self, logits: np.ndarray, position: int | None = None) -> Scores:
        row = logits[: self.vocab.size].copy()
        check_scores(self, position, row)
        return Scores(logits=row)

    def _run(
        self, path: Path, memory: Memory | None, *, net: Net | None = None, attended: Tensor | None = None
    ) -> tuple[Tape, Tensor, int]:
        """One forward over the positions of a path that a memory does not cover, or all: its tape, the last states [fresh,
        width] and the first of the positions."""
        path, net = check_path(self, path), net or self.net
        check_family(self, memory)
        first, at = first_computed(path, memory), net.decoder.device
        positions = torch.arange(first, len(path), device=at)
        held = {} if memory is None else held_of(memory, positions, ())
        tape = Tape(positions, positions[None] <= positions[:, None], held, attended=attended)
        return tape, net.run(inputs(net.decoder.looked_up, path[first:], at), tape), first

    def memory(self, cells: Sequence[Cell], at: Sequence[int] | None = None, memory: Memory | None = None) -> Memory:
        if not cells:
            return Memory(self.family, 0, tuple(LayerMemory({}, {}) for _ in range(self.layers)))
        path = check_path(self, cells)
        tape, last, first = self._run(path, memory)
        keep = range(first, len(path)) if at is None else at
        if not set(keep) <= set(range(first, len(path))):
            raise DecError(f"{self.name!r} computes positions {first}..{len(path) - 1}, not all of {list(keep)}")
        made = memory_of(tape, last, self.family, self.layers, path, {i: i - first for i in keep})
        return made if memory is None else memory.join(made)

    def attention(self, path: Path, memory: Memory | None = None, last: int = 1) -> list[float]:
        path = check_path(self, path)
        start = first_computed(path, memory)
        first = max(start, len(path) - max(1, last))
        if first > start:  # of the positions before the last ones no attention counts
            memory = self.memory(path[:first], memory=memory)
        length = max(len(path), 0 if memory is None else memory.length)
        attended = torch.zeros(length, dtype=torch.float64, device=self.net.decoder.device)
        tape, _, _ = self._run(path, memory, attended=attended)
        return [float(w) for w in attended[: len(path)] / max(1, len(tape.keys))]

    def check_entered(self, layer: int) -> None:
        if not 0 <= layer < self.layers:
            raise DecError(
                f"{self.name!r} has {self.layers} layers, so no states enter layer {layer}",
                hint=f"a number of layers in 1..{self.layers - 1}",
            )
        if all(use.layer != layer for use in self.net.decoder.uses):
            raise DecError(f"{self.name!r} does not run layer {layer}, so no states enter it")

    def hidden(self, path: Path, layer: int, memory: Memory | None = None) -> dict[int, Row]:
        """The state entering `layer` at every position, float32[width]; from `memory` if it has the position. Raises
        DecError for a layer that it does not have or does not run."""
        self.check_entered(layer)
        tape, _, first = self._run(path, memory)
        out: dict[int, Row] = {} if memory is None else {i: r for i, r in memory[layer].states.items() if i < first}
        out.update({first + i: row for i, row in enumerate(tape.states[layer])})
        return out

    def hidden_at_ends(self, paths: Sequence[Path], layer: int, memory: Memory | None = None) -> list[Row]:
        """The state at the end of each path after those of the first `layer` layers that the model runs, float32[width],
        before any final norm."""
        trunk = self.net.using([use for use in self.net.decoder.uses if use.layer < layer]).without_norm()
        return [self._run(path, memory, net=trunk)[1][-1] for path in paths]

    @torch.no_grad()
    def forward_from(self, layer: int, states: Mapping[int, Row], memory: Memory | None) -> Scores:
        """The scores after the last of positions whose states enter `layer`, read on what `memory` has of the others."""
        at = sorted(states)
        positions = torch.tensor(at, device=self.net.decoder.device)
        held = {} if memory is None else held_of(memory, positions, at)
        upper = self.net.using([use for use in self.net.decoder.uses if use.layer >= layer])
        tape = Tape(positions, positions[None] <= positions[:, None], held)
        last = upper.run(torch.stack([states[i] for i in at]).to(self.net.decoder.embedding), tape)
        return self._row(self.net.logits(last[-1:]).cpu().numpy()[0], at[-1])

    def normed(self, state: Row) -> Row:
        """A state [width] after the final norm."""
        return self.net.normed(state[None])[0]

    def read_out(self, state: Row) -> Scores:
        """The scores of a state that has not been through the final norm."""
        return self.read_feature(self.normed(state))

    def read_state(self, state: np.ndarray) -> Scores:
        return self.read_out(torch.from_numpy(state).to(self.net.decoder.embedding))

    def read_bare(self, state: Row) -> Scores:
        """The scores of a state as it is, without the final norm."""
        return self.read_feature(state)

    def read_feature(self, feature: Row) -> Scores:
        """The scores of a feature: a last state after the final norm, or a head's prediction of one."""
        return self.scores(self.net.logits(feature[None])[0])

    def scores(self, logits: Tensor) -> Scores:
        """The scores of a row of logits [V or more], a head's own."""
        return self._row(logits.double().cpu().numpy())

    def with_heads(self, heads: Heads) -> HFCausal:
        """The same model with these Medusa heads for `heads(path)`."""
        made = copy.copy(self)
        made.attached = heads
        made.renew = None if self.renew is None else lambda: made if (now := renewed(self)) is self else now.with_heads(heads)
        return made

    def heads(self, path: Path) -> list[Scores]:
        if self.attached is None:
            raise self._cannot("answer with heads; load them with load_heads and attach them with with_heads")
        return self.attached.read_last(self._run(path, None)[1][-1])

    def derive(self, how: str, *args: object) -> Model:
        uses = self.net.decoder.uses
        match how, args:
            case "exit", (int(n),) if 1 <= n <= self.layers:
                return self._with(f"exit({n})", self.net.using([use for use in uses if use.layer < n]), (how, args))
            case "skip", (Set() as attention, Set() as mlp):
                check_layers(self, {*attention, *mlp})
                return self._with(skip_name(attention, mlp), self.net.using(without(uses, attention, mlp)), (how, args))
            case "parallel", (int(size),) if size >= 1:
                return self._with(f"parallel({size})", self.net.using(grouped(uses, size)), (how, args))
            case "quantized", (int(bits),) if 1 <= bits <= 16:
                return self._with(f"quantized({bits})", self.net.quantized(bits), (how, args))
            case "expert", (int(rank),):
                return self._with(f"expert({rank})", self.net.expert(rank, self.name), (how, args))
        raise no_such(self.name, self.layers, how, args)

    def _with(self, name: str, net: Net, origin: tuple[str, tuple[object, ...]]) -> HFCausal:
        made = copy.copy(self)
        made.name, made.net, made.attached = f"{self.name}.{name}", net, None
        made.origin = (self, *origin)
        made.renew = (
            None
            if self.renew is None
            else lambda: made if (now := renewed(self)) is self else now.derive(origin[0], *origin[1])
        )
        return made

    def holder(self) -> object:
        return self.root.net

    @property
    def root(self) -> HFCausal:
        """The loaded model that this one is derived from, or itself."""
        return self if self.origin is None else self.origin[0].root

    @property
    def width(self) -> int:
        """The size of a hidden state."""
        return self.net.decoder.width

    def token_embeddings(self) -> Tensor:
        """The input embeddings, float32[V, width]."""
        return self.net.decoder.embedding[: self.vocab.size]
