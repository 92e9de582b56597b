"""The heads that read a Hugging Face target's hidden states: Medusa, EAGLE features, Kangaroo's exit
adapter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from decgraph.errors import DecError
from decgraph.runtime.models.features import check_known
from decgraph.runtime.models.hf_causal import HFCausal
from decgraph.runtime.models.interface import (
    Memory,
    Model,
    Path,
    Row,
    Scores,
    check_family,
    check_path,
)


class _Head(Model):
    """What the three share: they take after the target."""

    def __init__(self, module: Any, target: HFCausal, name: str) -> None:  # Any: a head of zoo/modeling.py
        self.module, self.target, self.name = module, target, name
        self.vocab, self.context = target.vocab, target.context
        self.layers, self.family = target.layers, target.family

    def holder(self) -> object:
        return self.target.holder()


class HFHeads(_Head):
    """Medusa heads: row k scores the token k + 2 places after the path's last one."""

    def __init__(self, module: Any, target: HFCausal, name: str) -> None:
        super().__init__(module, target, name)
        self.kind = "heads"
        self._of = target.with_heads(self)

    @torch.no_grad()
    def read(self, last: Row) -> list[Scores]:
        """The heads' scores on the target's last hidden state, after the final norm."""
        made = [made[0, 0] for made in self.module(last[None, None])]
        if self.module.own_output:
            return [self.target.scores(logits) for logits in made]
        return [self.target.read_feature(state) for state in made]

    def heads(self, path: Path) -> list[Scores]:
        return self._of.heads(path)


class HFAdapter(_Head):
    """An adapter from the target's states after `exit_layer` layers (None: any number) to states that its norm and head can
    read; `normed`: its head alone, because the adapter has a final norm."""

    def __init__(self, module: Any, target: HFCausal, name: str) -> None:
        super().__init__(module, target, name)
        self.kind = "layers"
        self.exit_layer: int | None = module.exit_layer
        self.normed = module.norm is not None

    @torch.no_grad()
    def apply(self, states: Mapping[int, Row]) -> dict[int, Row]:
        """The state at every position, from the states of the positions up to it."""
        at = sorted(states)
        if at == list(range(len(at))):
            out = self.module(torch.stack([states[i] for i in at])[None])[0]
        else:
            positions = torch.tensor(at, device=next(iter(states.values())).device)
            mask = _additive(positions[None] <= positions[:, None], next(iter(states.values())).dtype)
            out = self.module(torch.stack([states[i] for i in at])[None], position_ids=positions[None], attention_mask=mask)[0]
        return dict(zip(at, out, strict=True))


class HFFeatures(_Head):
    """An EAGLE head (a module as in heads/chained.py). Feature i and token i + 1 make a slot; the slots of one call form a tree
    in which each sees the target's features and its own ancestors, and every depth is one forward."""

    def __init__(self, module: Any, target: HFCausal, name: str) -> None:
        super().__init__(module, target, name)
        self.kind = "features"
        attach(module, target, name)
        self._given: Memory | None = None
        self._own: dict[Path, Tensor] = {}

    def eval(self, paths: Sequence[Path], given: Memory | None = None) -> list[Scores]:
        """Scores of the token after each path. `given` is the target's memory at the root's parent; left out,
        it is the target's memory of everything but the path's last token."""
        if given is None:
            return [self.eval([p], self.target.memory(p[:-1]))[0] for p in paths]
        check_family(self, given)
        for path in paths:
            check_path(self, path)
            check_known(self, given, min(given.length, len(path) - 1))
        if given is not self._given:
            self._given, self._own = given, {}
        self._grow(paths, given)
        return [self._scores(self._own[p]) for p in paths]

    def states(self, path: Path, given: Memory) -> dict[int, Row]:
        """The features that it predicts at the positions that the memory does not cover."""
        self.eval([path], given)
        return {i: self._own[path[: i + 1]] for i in range(min(given.length, len(path) - 1), len(path))}

    @torch.no_grad()
    def _scores(self, own: Tensor) -> Scores:
        """The scores of an own output [hidden]: by the target's output matrix, or as the head reads it out."""
        if not self.module.own_output:
            return self.target.read_feature(own)
        logits: Tensor = self.module.read_out(own[None])[0]
        return self.target.scores(logits)

    def _feature(self, given: Memory, position: int) -> Tensor | None:
        """The target's feature of a position [hidden], if the memory has the states that it is made of."""
        last = given.features.get(position)
        if last is None or self.module.reads is None:
            return None if last is None else self.module.project(last)
        read = [last if n == self.target.layers else given[n].states.get(position) for n in self.module.reads]
        return None if any(state is None for state in read) else self.module.project(torch.cat(read))

    def _grow(self, paths: Sequence[Path], given: Memory) -> None:
        """The features at the paths and at their prefixes down to the root, depth by depth."""
        wanted: dict[int, dict[Path, None]] = {}
        for path in paths:
            known = min(given.length, len(path) - 1)
            for end in range(known + 1, len(path) + 1):
                if path[:end] not in self._own:
                    wanted.setdefault(end, {})[path[:end]] = None
        for end in sorted(wanted):
            for path, feature in zip(wanted[end], self._forward(list(wanted[end]), given), strict=True):
                self._own[path] = feature

    @torch.no_grad()
    def _forward(self, paths: Sequence[Path], given: Memory) -> Tensor:
        """The features [n, width] at paths of one length whose prefixes' are known."""
        length = len(paths[0])
        known = min(given.length, length - 1)
        # The paths of a call hang below one context; where they do not, they get a forward each.
        if len({p[: known + 1] for p in paths}) > 1 and len(paths) > 1:
            return torch.cat([self._forward([p], given) for p in paths])
        root = paths[0][: known + 1]
        features: list[Tensor] = []
        tokens: list[int] = []
        positions: list[int] = []
        for j in range(1, known + 1):
            feature = self._feature(given, j - 1)
            if feature is not None:
                features.append(feature)
                tokens.append(root[j])
                positions.append(j - 1)
        if not known:  # a prompt of one token has no feature before it
            features.append(self.target.token_embeddings().new_zeros(self.module.config.hidden_size))
            tokens.append(root[0])
            positions.append(0)
        shift = 0 if known else 1
        row: dict[Path, int] = {root: len(tokens) - 1}
        for path in paths:
            for end in range(known + 2, length + 1):
                if path[:end] not in row:
                    row[path[:end]] = len(tokens)
                    if self.module.mask is None:
                        features.append(self.module.back(self._own[path[: end - 1]]))
                        tokens.append(path[end - 1])
                    else:  # it drafts in parallel, from tokens and features that are not known
                        features.append(self.module.unknown())
                        tokens.append(self.module.mask)
                    positions.append(end - 2 + shift)
        visible = torch.zeros(len(tokens), len(tokens), dtype=torch.bool)
        base = row[root] + 1
        visible[:base, :base] = torch.ones(base, base, dtype=torch.bool).tril()
        for path, n in row.items():
            if n >= base:
                visible[n] = visible[row[path[:-1]]]
                visible[n, n] = True
        out = self.module(
            torch.tensor(tokens, device=features[0].device)[None],
            torch.stack(features)[None],
            position_ids=torch.tensor(positions, device=features[0].device)[None],
            attention_mask=_additive(visible.to(features[0].device), features[0].dtype),
        )[0]
        made: Tensor = out[[row[p] for p in paths]]
        return made


def _additive(visible: Tensor, dtype: torch.dtype) -> Tensor:
    """A 4-D additive mask [1, 1, n, n]. Additive and not boolean: the library's eager attention adds a
    boolean mask as zeros and ones."""
    zero = torch.zeros(visible.shape, dtype=dtype, device=visible.device)
    return zero.masked_fill(~visible, torch.finfo(dtype).min)[None, None]


def attach(module: Any, target: HFCausal, name: str) -> None:
    """Gives a head what it needs of its target. Raises DecError for one that belongs to another."""
    if getattr(module, "attach", None) is None:
        raise DecError(f"{name!r} is a {type(module).__name__}, which is no head that decgraph knows",
                       hint="give its folder, or a module of decgraph.zoo.modeling")  # fmt: skip
    vocab = int(getattr(module, "vocab", 0)) or target.vocab.size  # 0: it has neither an embedding nor a matrix of its own
    if vocab < target.vocab.size:
        raise DecError(f"{name!r} has a vocabulary of {vocab} tokens and {target.name!r} one of {target.vocab.size}: it "
                       "belongs to another target")  # fmt: skip
    if module.reads is None:
        check_width(module, target, name)
    try:
        module.attach(target.token_embeddings(), target.net.read, target.layers)
    except DecError as error:
        raise DecError(f"{name!r} does not fit {target.name!r}: {error.diagnostics[0]}", hint=error.hint) from error


def check_width(module: Any, target: HFCausal, name: str) -> None:
    """Raises DecError unless a head's hidden size is the target's, and its vocabulary if it has an output matrix."""
    if getattr(module, "own_output", False) and int(module.vocab) < target.vocab.size:
        raise DecError(f"{name!r} has output matrices for {module.vocab} tokens, and {target.name!r} has {target.vocab.size}: "
                       "it belongs to another target")  # fmt: skip
    if int(module.config.hidden_size) != target.width:
        raise DecError(
            f"{name!r} reads hidden states of size {module.config.hidden_size}, "
            f"those of {target.name!r} have {target.width}: it belongs to another target"
        )
