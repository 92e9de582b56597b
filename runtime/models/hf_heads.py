"""The heads that read a Hugging Face target's hidden states: Medusa, EAGLE features, Kangaroo's exit adapter, those that read
states up to one position and the tokens after it (Hydra, ReDrafter, DFlash), and those with one value after every token."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from decgraph.errors import DecError
from decgraph.runtime.models.config import wholes
from decgraph.runtime.models.features import check_known
from decgraph.runtime.models.heads.base import added_to_scores
from decgraph.runtime.models.heads.chained import Chained
from decgraph.runtime.models.heads.rooted import Before, Rooted
from decgraph.runtime.models.heads.staged import Staged
from decgraph.runtime.models.hf_causal import HFCausal
from decgraph.runtime.models.hf_masked import HFMasked
from decgraph.runtime.models.interface import (
    Memory,
    Model,
    OfTarget,
    Path,
    Row,
    Scores,
    SoftCell,
    Value,
    check_family,
    check_path,
    first_computed,
)
from decgraph.runtime.models.reading import Reading

if TYPE_CHECKING:
    from transformers import PretrainedConfig

    from decgraph.runtime.models.heads.base import LayerConfig


class FeatureHead(Protocol):
    """The methods of a head that reads features: of `Chained`, or of another class (the zoo's)."""

    config: LayerConfig | PretrainedConfig
    reads: tuple[int, ...] | None
    mask: int | None
    own_output: bool

    def __call__(self, tokens: Tensor, features: Tensor, *, position_ids: Tensor, attention_mask: Tensor) -> Tensor: ...

    def project(self, states: Tensor) -> Tensor: ...

    def back(self, states: Tensor) -> Tensor: ...

    def unknown(self) -> Tensor: ...

    def read_out(self, states: Tensor) -> Tensor: ...


class _Head(OfTarget[HFCausal]):
    """A head's vocabulary, context and family are its target's."""

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
        if at == list(range(len(at))):
            out = self.module(torch.stack([states[i] for i in at])[None])[0]
        else:
            positions = torch.tensor(at, device=next(iter(states.values())).device)
            mask = added_to_scores(positions[None] <= positions[:, None], next(iter(states.values())).dtype)
            out = self.module(torch.stack([states[i] for i in at])[None], position_ids=positions[None], attention_mask=mask)[0]
        return dict(zip(at, out, strict=True))


class _OnFeatures(_Head):
    """A head that reads what the target computed before a root, and drafts what comes after it."""

    def __init__(self, module: nn.Module, target: HFCausal, name: str) -> None:
        super().__init__(module, target, name)
        self.kind = "features"
        for part in module.stages if isinstance(module, Staged) else (module,):
            attach(part, target, name)

    def eval(self, paths: Sequence[Path], given: Memory | None = None) -> list[Scores]:
        """Scores of the token after each path. `given` is the target's memory at the root's parent, and the root the first
        token that it does not cover; left out, it is the target's memory of everything but the path's last token. Raises
        DecError for more drafted tokens than the head drafts."""
        if given is None:
            return [self.eval([p], self.target.memory(p[:-1]))[0] for p in paths]
        check_family(self, given)
        paths = [check_path(self, path) for path in paths]
        for path in paths:
            check_known(self, given, first_computed(path, given))
        return self._eval(paths, given)

    def _eval(self, paths: Sequence[Path], given: Memory) -> list[Scores]:
        raise NotImplementedError


class HFFeatures(_OnFeatures):
    """An EAGLE head (a module as in heads/chained.py). Feature i and token i + 1 make a slot, which sees the slots before it;
    every drafted token is a forward over all slots."""

    @property
    def _head(self) -> FeatureHead:
        head: Any = self.module  # of any class that `attach` takes
        made: FeatureHead = head
        return made

    def _eval(self, paths: Sequence[Path], given: Memory) -> list[Scores]:
        return [self._scores(self._own(path, given)[-1]) for path in paths]

    def states(self, path: Path, given: Memory) -> dict[int, Row]:
        """The features that it predicts at the positions that the memory does not cover."""
        check_family(self, given)
        known = first_computed(check_path(self, path), given)
        check_known(self, given, known)
        return dict(enumerate(self._own(path, given), start=known))

    def read_state(self, state: np.ndarray) -> Scores:
        return self._scores(torch.from_numpy(state).to(self.target.token_embeddings()))

    @torch.no_grad()
    def _scores(self, own: Tensor) -> Scores:
        """The scores of an own output [hidden]: by the target's output matrix, or as the head reads it out."""
        if not self._head.own_output:
            return self.target.read_feature(own)
        return self.target.scores(self._head.read_out(own[None])[0])

    def _feature(self, given: Memory, position: int) -> Tensor | None:
        """The target's feature of a position [hidden], if the memory has the states that it is made of."""
        states = state_of(given, position, self._head.reads, self.target.layers)
        return None if states is None else self._head.project(states)

    @torch.no_grad()
    def _own(self, path: Path, given: Memory) -> list[Tensor]:
        """The features [width] at the positions of a path that the memory does not cover."""
        known = first_computed(path, given)
        own: list[Tensor] = []
        for end in range(known + 1, len(path) + 1):
            own.append(self._forward(path[:end], known, own, given))
        return own

    def _forward(self, path: Path, known: int, own: Sequence[Tensor], given: Memory) -> Tensor:
        """The feature [width] at a path's end. own: those at the positions from `known` on, but the last."""
        head = self._head
        slots: list[tuple[int | SoftCell, Tensor, int]] = []  # token, feature before it, position
        for j in range(1, known + 1):
            feature = self._feature(given, j - 1)
            if feature is not None:
                slots.append((path[j], feature, j - 1))
        if not known:  # a prompt of one token has no feature before it
            slots.append((path[0], self.target.token_embeddings().new_zeros(head.config.hidden_size), 0))
        shift = 0 if known else 1
        for j in range(known + 1, len(path)):
            if head.mask is None:
                slots.append((path[j], head.back(own[j - 1 - known]), j - 1 + shift))
            else:  # it drafts in parallel, from tokens and features that are not known
                slots.append((head.mask, head.unknown(), j - 1 + shift))
        tokens, features, positions = zip(*slots, strict=True)
        at, dtype = features[0].device, features[0].dtype
        visible = torch.ones(len(slots), len(slots), dtype=torch.bool, device=at).tril()
        out = head(
            torch.tensor(tokens, device=at)[None],
            torch.stack(features)[None],
            position_ids=torch.tensor(positions, device=at)[None],
            attention_mask=added_to_scores(visible, dtype),
        )
        return out[0, -1]


class HFStaged(_OnFeatures):
    """A head with a module for every depth of a draft (a module as in heads/staged.py): MTP layers, each trained for its depth.
    The first reads the target's features, each next one the features that the one before gives, of the whole text, one place
    on. All of them are run over the whole text in every call."""

    module: Staged

    def _eval(self, paths: Sequence[Path], given: Memory) -> list[Scores]:
        return [self._scores(*self._last(path, given)) for path in paths]

    def states(self, path: Path, given: Memory) -> dict[int, Row]:
        """The features that it predicts at the positions that the memory does not cover."""
        found = [(i, *self._last(path[: i + 1], given)) for i in range(first_computed(path, given), len(path))]
        return {i: stage.back(own) for i, stage, own in found}

    @torch.no_grad()
    def _scores(self, stage: Chained, own: Tensor) -> Scores:
        return self.target.scores(stage.read_out(own[None])[0]) if stage.own_output else self.target.read_feature(own)

    @torch.no_grad()
    def _last(self, path: Path, given: Memory) -> tuple[Chained, Tensor]:
        """The module of a path's depth, and its own output [width] at the path's end."""
        known = first_computed(path, given)
        check_known(self, given, known)
        if len(path) - known > len(self.module.stages):
            raise DecError(
                f"{self.name!r} drafts at most {len(self.module.stages)} tokens: it has a layer for each",
                hint="fewer tokens a step",
            )
        features = {j: given.features[j] for j in range(known) if j in given.features}
        if not known:  # a prompt of one token has no feature before it
            features = {-1: self.target.token_embeddings().new_zeros(self.module.config.hidden_size)}
        found: list[tuple[Chained, Tensor]] = []
        for end, stage in zip(range(known, len(path)), self.module.stages, strict=False):  # the token at `end` is the newest
            assert isinstance(stage, Chained)
            at = sorted(j for j in features if j < end)
            device = features[at[0]].device
            out = stage(
                torch.tensor([path[j + 1] for j in at], device=device)[None],
                torch.stack([features[j] for j in at])[None],
                position_ids=torch.tensor(at, device=device)[None] - min(0, at[0]),
            )[0]
            found.append((stage, out[-1]))
            features = {j + 1: stage.back(own) for j, own in zip(at, out, strict=True)}
        return found[-1]


def attach(module: nn.Module, target: HFCausal, name: str) -> None:
    """Gives a head its target's embeddings and output matrix, and the layers that it follows. Raises DecError for a head of
    another target."""
    if getattr(module, "attach", None) is None:
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


class HFRooted(_OnFeatures):
    """A head that reads the target's states up to a root and the tokens after it (its module is one of heads/rooted.py)."""

    module: Rooted

    def _eval(self, paths: Sequence[Path], given: Memory) -> list[Scores]:
        return [self.target.scores(self._read(self.module.read, path, given)[0]) for path in paths]

    def states(self, path: Path, given: Memory) -> dict[int, Row]:
        """The states of which it makes its scores, at the positions that the memory does not cover. Raises DecError for a head
        whose scores are not made of a state each."""
        return {
            i: self._read(self.module.states, path[: i + 1], given)[0] for i in range(first_computed(path, given), len(path))
        }

    @torch.no_grad()
    def read_state(self, state: np.ndarray) -> Scores:
        return self.target.scores(self.module.logits(torch.from_numpy(state).to(self.target.token_embeddings())[None])[0])

    @torch.no_grad()
    def _read(self, read: Callable[..., Tensor], path: Path, given: Memory) -> Tensor:
        """The result [1, n] of a method of the module for the tokens that the memory does not cover."""
        known = first_computed(path, given)
        check_known(self, given, known)
        self.module.check_depth(len(path) - known - 1, self.name)
        tokens = torch.tensor([path[known:]], device=self.target.net.decoder.device)
        return read(self._before(given, known), tokens, known)

    def _before(self, given: Memory, known: int) -> Before:
        """The head's summary of the positions before the root; evicted ones are left out."""
        at, rows = [], []
        for position in range(known):
            state = state_of(given, position, self.module.reads, self.target.layers)
            if state is not None:
                at.append(position)
                rows.append(state)
            elif position in given.features:
                which = ", ".join(map(str, self.module.reads or ()))
                raise DecError(f"the memory has no states entering the layers {which} at position {position}")
        if not rows:
            return self.module.nothing()
        return self.module.prepare(torch.stack(rows), torch.tensor(at, device=rows[0].device))


def state_of(given: Memory, position: int, reads: tuple[int, ...] | None, layers: int) -> Tensor | None:
    """The target's states [k width] at a position side by side, in the order of `reads` (None: the last state after the final
    norm); None if the memory lacks one of them."""
    last: Tensor | None = given.features.get(position)
    if last is None or reads is None:
        return last
    read = [last if n == layers else given[n].states.get(position) for n in reads]
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
    if isinstance(target, HFFeatures | HFRooted | HFStaged | HFMasked):
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
