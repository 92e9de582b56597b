"""The heads that read a Hugging Face target's hidden states: Medusa, EAGLE features, Kangaroo's exit adapter, those that read
states up to one position and the tokens after it (Hydra, ReDrafter, DFlash), and those with one value after every token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from decgraph.errors import DecError
from decgraph.runtime.models.config import wholes
from decgraph.runtime.models.decoder.layers import over
from decgraph.runtime.models.features import check_known
from decgraph.runtime.models.heads.base import DraftHead, DraftLayers
from decgraph.runtime.models.heads.corrections import Correction
from decgraph.runtime.models.heads.dflash import DFlash
from decgraph.runtime.models.hf_causal import HFCausal
from decgraph.runtime.models.hf_masked import HFMasked
from decgraph.runtime.models.interface import (
    Memory,
    Model,
    OfTarget,
    Path,
    Row,
    Scores,
    Value,
    check_family,
    check_path,
    first_computed,
)
from decgraph.runtime.models.reading import Reading


class _Head(OfTarget[HFCausal]):
    """A head's vocabulary, context and family are its target's."""

    engine_module = "heads"

    def __init__(self, module: nn.Module, target: HFCausal, name: str) -> None:  # a head of zoo/modeling.py
        self.module, self.target, self.name = module, target, name
        self.vocab, self.context = target.vocab, target.context
        self.layers, self.family = target.layers, target.family


class HFHeads(_Head):
    """Medusa heads: row k scores the token k + 2 places after the path's last one."""

    def __init__(self, module: nn.Module, target: HFCausal, name: str) -> None:
        super().__init__(module, target, name)
        self.kind = "heads"
        self._of = target.with_heads(self)

    @torch.no_grad()
    def read_last(self, last: Row) -> list[Scores]:
        """The heads' scores on the target's last hidden state, after the final norm."""
        made = [made[0, 0] for made in self.module(last[None, None])]
        if self.module.own_output:
            return [self.target.scores(logits) for logits in made]
        return [self.target.read_feature(state) for state in made]

    def heads(self, path: Path) -> list[Scores]:
        return self._of.heads(path)


class HFAdapter(_Head):
    """An adapter from the target's states after `exit_layer` layers (None: any number) to states that its norm and head can
    read; `own_norm`: its head alone, because the adapter has a final norm."""

    def __init__(self, module: nn.Module, target: HFCausal, name: str) -> None:
        super().__init__(module, target, name)
        self.kind = "layers"
        adapter: Any = module  # `Adapter`, or another class with its attributes
        self.exit_layer: int | None = adapter.exit_layer
        self.own_norm = adapter.norm is not None

    @torch.no_grad()
    def apply(self, states: Mapping[int, Row]) -> dict[int, Row]:
        """The state at every position, from the states of the positions up to it."""
        at = sorted(states)
        rows = torch.stack([states[i] for i in at])
        out, _ = over(cast(DraftLayers, self.module), rows, torch.tensor(at, device=rows.device))
        norm = cast("nn.Module | None", self.module.norm)
        return dict(zip(at, out if norm is None else norm(out), strict=True))


class HFFeatures(_Head):
    """A head that reads what the target computed before a root, and drafts what comes after it (`heads.base.DraftHead`). Every
    path is computed whole, and nothing is remembered."""

    module: DraftHead

    def __init__(self, module: nn.Module, target: HFCausal, name: str, head: HFFeatures | None = None) -> None:
        """head: that whose scores it corrects."""
        super().__init__(module, target, name)
        self.kind, self.head = "features", head
        if isinstance(module, Correction):
            if head is None or not isinstance(head.module, DFlash):
                raise DecError(f"{name!r} corrects the scores of a head, and there is none")
            module.on(head.module)
        attach(module, target, name)

    def eval(self, paths: Sequence[Path], memory: Memory | None = None) -> list[Scores]:
        """Scores of the token after each path. `memory` is the target's memory at the root's parent, and the root the first
        token that it does not cover; left out, it is the target's memory of everything but the path's last token. Raises
        DecError for more drafted tokens than the head drafts."""
        found = [self._drafted(path, self.target.memory(path[:-1]) if memory is None else memory) for path in paths]
        return [self._scores(own[-1], len(own) - 1) for own in found]

    def states(self, path: Path, memory: Memory) -> dict[int, Row]:
        """The states that it predicts, or makes its scores of, at the positions that the memory does not cover. Raises DecError
        for a head without such states."""
        if not self.module.stated:
            raise DecError(
                f"a {type(self.module).__name__} head makes its scores of no state that it could give",
                hint="EAGLE's and DFlash's",
            )
        own = self._drafted(path, memory)
        known = len(path) - len(own)
        return {known + n: self.module.handed_on(state, n) for n, state in enumerate(own)}

    def read_state(self, state: np.ndarray) -> Scores:
        return self._scores(torch.from_numpy(state).to(self.target.token_embeddings()), 0)

    @torch.no_grad()
    def _scores(self, state: Tensor, drafted: int) -> Scores:
        if not self.module.own_output:
            return self.target.read_feature(state)
        return self.target.scores(self.module.read_out(state[None], drafted)[0])

    @torch.no_grad()
    def _drafted(self, path: Path, memory: Memory) -> list[Tensor]:
        """The head's own states at the positions of a path that the memory does not cover. Evicted positions are left out."""
        check_family(self, memory)
        known = first_computed(path := check_path(self, path), memory)
        check_known(self, memory, known)
        self.module.check_depth(len(path) - known, self.name)
        of = self.target.net.decoder
        found = {i: state_of(memory, i, self.module.reads, self.target.layers) for i in range(known)}
        rows = {i: row for i, row in found.items() if row is not None}
        if known and known - 1 not in rows:
            which = ", ".join(map(str, self.module.reads or ()))
            raise DecError(f"the memory has no states entering the layers {which} at position {known - 1}")
        states = torch.stack([*rows.values()]) if rows else torch.zeros(0, of.width, dtype=of.dtype, device=of.device)
        at, tokens = (torch.tensor(n, dtype=torch.int64, device=of.device) for n in ([*rows], path))
        return self.module.drafted(states, at, tokens, known)


def attach(module: nn.Module, target: HFCausal, name: str) -> None:
    """Gives a head its target's embeddings and output matrix, and the layers that it follows. Raises DecError for a head of
    another target."""
    if not isinstance(module, DraftHead):
        raise DecError(f"{name!r} is a {type(module).__name__}, which is no head that decgraph knows",
                       hint="give its folder, or a module of decgraph.zoo.modeling")  # fmt: skip
    head: Any = module  # of any class that has `attach`
    vocab = int(getattr(module, "vocab", 0)) or target.vocab.size  # 0: it has neither an embedding nor a matrix of its own
    if vocab < target.vocab.size:
        raise DecError(f"{name!r} has a vocabulary of {vocab} tokens and {target.name!r} one of {target.vocab.size}: it "
                       "belongs to another target")  # fmt: skip
    if head.reads is None:
        check_width(module, target, name)
    try:
        head.attach(target.token_embeddings(), target.net.read, target.layers)
        if hasattr(module, "follow"):  # it runs layers of the target's
            head.follow(target.net)
    except DecError as error:
        raise DecError(f"{name!r} does not fit {target.name!r}: {error.diagnostics[0]}", hint=error.hint) from error


def check_width(module: nn.Module, target: HFCausal, name: str) -> None:
    """Raises DecError unless a head's hidden size is the target's, and its vocabulary if it has an output matrix."""
    head: Any = module  # of any class
    if getattr(module, "own_output", False) and int(head.vocab) < target.vocab.size:
        raise DecError(f"{name!r} has output matrices for {head.vocab} tokens, and {target.name!r} has {target.vocab.size}: "
                       "it belongs to another target")  # fmt: skip
    if int(head.config.hidden_size) != target.width:
        raise DecError(
            f"{name!r} reads hidden states of size {head.config.hidden_size}, "
            f"those of {target.name!r} have {target.width}: it belongs to another target"
        )


def state_of(memory: Memory, position: int, reads: tuple[int, ...] | None, layers: int) -> Tensor | None:
    """The target's states [k width] at a position side by side, in the order of `reads` (None: the last state after the final
    norm); None if the memory lacks one of them."""
    last: Tensor | None = memory.features.get(position)
    if last is None or reads is None:
        return last
    read = [last if n == layers else memory[n].states.get(position) for n in reads]
    return None if any(state is None for state in read) else torch.cat(read)


class Mlp(nn.Module):
    """Linear layers with an activation between them. Its configuration has `sizes`, from the target's width to the number of
    outputs, and `activation`, a class of torch.nn."""

    def __init__(self, config: dict[str, object]) -> None:
        super().__init__()
        sizes, between = wholes(config, "sizes"), str(config.get("activation", "ReLU"))
        parts: list[nn.Module] = []
        for a, b in pairwise(sizes):
            parts += [nn.Linear(a, b), getattr(nn, between)()]
        self.layers = nn.Sequential(*parts[:-1])

    def forward(self, states: Tensor) -> Tensor:
        made: Tensor = self.layers(states)
        return made


class HFReading(Reading):
    """A module on the target's last hidden state, after the final norm. Of its outputs a probability is the first one's
    sigmoid, or of two the second one's share; a number is the first, a class the largest one's place, and yes where the
    probability is at least one half. Outputs that are probabilities already say so: `probabilities = True` on the module."""

    def __init__(self, module: nn.Module, target: Model, gives: str, name: str) -> None:
        super().__init__(target, gives, name)
        self.module = module

    def read(self, paths: Sequence[Path]) -> list[Value]:
        rows = [self.target.memory(path).features[len(path) - 1] for path in paths]
        return self.of(torch.stack(rows)) if rows else []

    def of_states(self, states: np.ndarray, layer: int | None, tokens: Sequence[int] | None = None) -> list[Value]:
        parts = self.module if isinstance(self.module, nn.ModuleList) else None
        if (parts is None) != (layer is None) or parts is not None and layer is not None and not 0 <= layer < len(parts):
            has = "one part for all layers" if parts is None else f"parts for the layers 0..{len(parts) - 1}"
            raise DecError(
                f"the head {self.name!r} has {has}, and is read {'as a whole' if layer is None else f'for layer {layer}'}",
                hint="an nn.ModuleList has a part for each layer, router(h, layer = l)",
            )
        part = None if parts is None or layer is None else parts[layer]
        return self.of(torch.from_numpy(states).float(), part, _ids(tokens))

    @torch.no_grad()
    def scores_of(
        self, states: np.ndarray, layer: int | None, tokens: Sequence[int] | None = None, joint: bool = False
    ) -> list[Scores]:
        """The module's outputs are logits [n, V]. It gets all the states of a call: of cells, for each of them. Raises DecError
        for outputs of another shape, and for numbers that are none."""
        module: Any = self.module  # with a layer an nn.ModuleList, or another class that has parts by number
        out = outputs_of(module if layer is None else module[layer], torch.from_numpy(states).float(), _ids(tokens))
        size = self.vocab.size
        if out.ndim != 2 or out.shape[0] != len(states) or out.shape[1] < size or bool(out[:, :size].isnan().any()):
            raise DecError(
                f"the head {self.name!r} gave {list(out.shape)} for {len(states)} states and {size} tokens, or no numbers",
                hint="a module from hidden states [n, width], and perhaps tokens [n], to logits [n, vocabulary]",
            )
        return [Scores(logits=row[:size].cpu().numpy()) for row in out]

    @torch.no_grad()
    def of(self, states: Tensor, part: nn.Module | None = None, tokens: Tensor | None = None) -> list[Value]:
        """The values at states [n, width], of a part of the module or the whole, with tokens int64[n] where it reads them too.
        Raises DecError for outputs of another shape, or that are not numbers."""
        module = self.module if part is None else part
        out = outputs_of(module, states, tokens)
        if out.ndim != 2 or out.shape[0] != len(states) or not bool(torch.isfinite(out).all()):
            raise DecError(
                f"the head {self.name!r} gave {list(out.shape)} for {len(states)} states, or numbers that are not finite",
                hint="a module from hidden states [n, width] to [n, outputs]",
            )
        made: list[Value] = values_of(module, self.gives, out).tolist()
        return made if self.gives in ("real", "prob") else [bool(x) if self.gives == "bool" else int(x) for x in made]


def _ids(tokens: Sequence[int] | None) -> Tensor | None:
    return None if tokens is None else torch.tensor(tokens, dtype=torch.int64)


def outputs_of(module: nn.Module, states: Tensor, tokens: Tensor | None = None) -> Tensor:
    """A head's outputs float64[n, outputs] for states [n, width], and for a token beside each where the head reads tokens."""
    states = states.to(next(iter(module.parameters()), states))
    out: Tensor = (module(states) if tokens is None else module(states, tokens.to(states.device))).double()
    return out[:, None] if out.ndim == 1 else out


def values_of(module: nn.Module, gives: str, out: Tensor) -> Tensor:
    """The values that a head gives by its outputs float64[n, outputs] (`HFReading`): float64[n], of answers 0 or 1."""
    if gives == "real":
        return out[:, 0]
    if gives == "int":
        return out.argmax(-1).double()
    if not getattr(module, "probabilities", False):
        out = out.sigmoid() if out.shape[1] == 1 else out.softmax(-1)
    share = out[:, 0 if out.shape[1] == 1 else 1]
    return (share >= 0.5).double() if gives == "bool" else share


def reading_model(module: nn.Module, target: Model, gives: str, name: str) -> HFReading:
    """The head of a module, on a model or on a head on features. Raises DecError for a target whose hidden states cannot be
    read, or have another width."""
    if isinstance(target, HFFeatures | HFMasked):
        return HFReading(module, target, gives, name)
    if not isinstance(target, HFCausal):
        reason = getattr(target, "unreached", None)
        raise DecError(
            f"{name!r} reads hidden states of {target.name!r}, which has none that can be read", hint=str(reason or "")
        )
    weights = next((p for p in module.parameters() if p.ndim == 2), None)
    if weights is not None and weights.shape[1] != target.width:
        raise DecError(
            f"{name!r} reads hidden states of size {weights.shape[1]}, those of {target.name!r} have {target.width}: "
            "it belongs to another target"
        )
    return HFReading(module, target, gives, name)
