"""Hugging Face causal language models as plain forwards."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Mapping, Sequence, Set
from typing import Protocol

import numpy as np
import torch
from torch import nn

from decgraph.errors import DecError
from decgraph.runtime.models.decoder.net import Net
from decgraph.runtime.models.hf_rows import Forest, held_of
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
from decgraph.runtime.models.tape import Tape

_REMEMBERED = 2048  # rows of scores kept
_NODES = 4096  # nodes after which a reused forest starts afresh


class Heads(Protocol):
    """Medusa heads (hf_heads.py)."""

    module: nn.Module

    def read_last(self, last: Row) -> list[Scores]:
        """See `HFHeads`."""
        ...


class HFCausal(Model):
    """A causal language model in float32, its logits in float64.

    The paths of one call are merged as a trie and evaluated in one forward in which every node attends to its
    ancestors. Calls are pure, so scores of recent paths are remembered. With `reuse`, so are the nodes of
    earlier calls, and a call computes only the new ones; without, every call starts from its first token.
    """

    def __init__(self, net: Net, *, name: str, vocab: Vocab, context: int | None, family: str, reuse: bool = False) -> None:
        self.kind = "causal"
        self.name, self.vocab, self.family = name, vocab, family
        self.context, self.bounded = bounded(context, getattr(net.base, "config", None), name)
        self.layers, self.net = len(net.layers), net
        self.reuse = reuse and not net.decoder.recurrent  # whose states are in no rows
        self.attached: Heads | None = None
        self.origin: tuple[HFCausal, str, tuple[object, ...]] | None = None  # of a derived model: whose it is, and how
        self._forget()

    def _forget(self) -> None:
        self._scores: OrderedDict[Path, Scores] = OrderedDict()
        self._memories: OrderedDict[Path, Memory] = OrderedDict()
        self._forest = Forest()
        self._attended = Forest()
        self.trunks: dict[int, HFCausal] = {}

    def eval(self, paths: Sequence[Path], given: Memory | None = None) -> list[Scores]:
        missing = [p for p in dict.fromkeys(paths) if given is not None or p not in self._scores]
        new: dict[Path, Scores] = {}
        if missing:
            forest, nodes = self._run(missing, given)
            logits = self.net.logits(forest.last([nodes[p][-1] for p in missing])).cpu().numpy()
            for path, row in zip(missing, logits, strict=True):
                new[path] = self._row(row, len(path) - 1)
        if given is None:
            self._scores.update(new)
            answer = []
            for path in paths:
                self._scores.move_to_end(path)
                answer.append(self._scores[path])
            while len(self._scores) > _REMEMBERED:
                self._scores.popitem(last=False)
            return answer
        return [new[p] for p in paths]

    def _row(self, logits: np.ndarray, position: int | None = None) -> Scores:
        row = logits[: self.vocab.size].copy()
        check_scores(self, position, row)
        return Scores(logits=row)

    def _run(self, paths: Sequence[Path], given: Memory | None) -> tuple[Forest, dict[Path, list[int]]]:
        """A forest with the paths' nodes computed, and those nodes: from `given.length` on, or all."""
        for path in paths:
            check_path(self, path)
        check_family(self, given)
        if self.reuse and given is None:
            if len(self._forest) + sum(map(len, paths)) > _NODES:
                self._forest = Forest()
            forest = self._forest
        else:
            forest = Forest()
        nodes = {p: forest.add(p, first_computed(p, given)) for p in paths}
        forest.compute(self.net, given)
        return forest, nodes

    def memory(self, cells: Sequence[Cell], at: Sequence[int] | None = None, given: Memory | None = None) -> Memory:
        if not cells:
            return Memory(self.family, 0, tuple(LayerMemory({}, {}) for _ in range(self.layers)))
        path = check_path(self, cells)
        plain = given is None and at is None
        if plain and path in self._memories:
            return self._memories[path]
        forest, nodes = self._run([path], given)
        fresh = range(len(path) - len(nodes[path]), len(path))
        keep = fresh if at is None else at
        if not set(keep) <= set(fresh):
            raise DecError(f"{self.name!r} computes positions {fresh.start}..{fresh.stop - 1}, not all of {list(keep)}")
        made = forest.memory(self.family, self.layers, path, nodes[path], keep)
        if plain:
            self._memories[path] = made
            while len(self._memories) > 8:
                self._memories.popitem(last=False)
        return made if given is None else given.join(made)

    def attention(self, path: Path, given: Memory | None = None, last: int = 1) -> list[float]:
        path = check_path(self, path)
        check_family(self, given)
        if len(self._attended) + len(path) > _NODES:
            self._attended = Forest()
        forest = self._attended if given is None else Forest()
        return forest.attention(self.net, given, path, first_computed(path, given), last)

    def check_entered(self, layer: int) -> None:
        if not 0 <= layer < self.layers:
            raise DecError(
                f"{self.name!r} has {self.layers} layers, so no states enter layer {layer}",
                hint=f"a number of layers in 1..{self.layers - 1}",
            )
        if all(use.layer != layer for use in self.net.decoder.uses):
            raise DecError(f"{self.name!r} does not run layer {layer}, so no states enter it")

    def hidden(self, path: Path, layer: int, given: Memory | None = None) -> dict[int, Row]:
        """The state entering `layer` at every position, float32[width]; from `given` if it has the position. Raises
        DecError for a layer that it does not have or does not run."""
        self.check_entered(layer)
        forest, nodes = self._run([path], given)
        states = forest.states(layer, nodes[path])
        first = len(path) - len(states)
        out: dict[int, Row] = {} if given is None else {i: r for i, r in given[layer].states.items() if i < first}
        out.update({first + i: row for i, row in enumerate(states)})
        return out

    def hidden_at_ends(self, paths: Sequence[Path], layer: int, given: Memory | None = None) -> list[Row]:
        """The state at the end of each path after those of the first `layer` layers that the model runs, float32[width],
        before any final norm."""
        trunk = self.trunks.get(layer)
        if trunk is None:
            net = self.net.using([use for use in self.net.decoder.uses if use.layer < layer]).without_norm()
            trunk = self.trunks[layer] = self._with(f"upto({layer})", net, ("upto", (layer,)))
        distinct = list(dict.fromkeys(paths))
        forest, nodes = trunk._run(distinct, given)
        rows = dict(zip(distinct, forest.last([nodes[p][-1] for p in distinct]), strict=True))
        return [rows[p] for p in paths]

    @torch.no_grad()
    def forward_from(self, layer: int, states: Mapping[int, Row], given: Memory | None) -> Scores:
        """The scores after the last of positions whose states enter `layer`, read on what `given` has of the others."""
        at = sorted(states)
        positions = torch.tensor(at, device=self.net.decoder.device)
        held = {} if given is None else held_of(given, positions, at)
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

    def scores(self, logits: torch.Tensor) -> Scores:
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
        forest, nodes = self._run([path], None)
        rows: list[Scores] = self.attached.read_last(forest.last(nodes[path][-1:])[0])
        return rows

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
        made._forget()
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

    def token_embeddings(self) -> torch.Tensor:
        """The input embeddings, float32[V, width]."""
        return self.net.decoder.embedding[: self.vocab.size]
