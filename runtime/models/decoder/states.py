"""The work of recurrent layers in one forward (hybrid.py), for each row of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias, cast

from torch import Tensor

if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedModel
    from transformers.cache_utils import LinearAttentionLayer

_RECURRENT = {"conv", "hybrid", "linear_attention", "mamba", "mamba2", "recurrent", "rwkv"}
State: TypeAlias = (
    "dict[int, LinearAttentionLayer]"  # by recurrent layer, transformers' object with the tensors of one sequence
)


def is_recurrent(module: nn.Module) -> bool:
    """Whether a module has layers whose state cannot be rolled back."""
    kinds = getattr(cast("PreTrainedModel", module).config.get_text_config(), "layer_types", None) or ()
    return bool(getattr(module, "_is_stateful", False)) or bool(_RECURRENT & set(kinds))


@dataclass
class DraftedStates:
    """A draft token: the input [width] of each recurrent layer at it, and the states after it where they were saved."""

    entered: dict[int, Tensor]
    state: State | None = None


@dataclass
class Work:
    """A row of a forward. state: after the chain's first tokens, None at its beginning; pending: the committed tokens after
    those. chain: how many of the row's tokens are committed ones. known: the draft tokens of earlier calls, and above: their
    parents; parents: of the new ones, places in known and new ones together, -1 for the chain's end. after, drafted: what the
    forward leaves."""

    state: State | None
    pending: Sequence[DraftedStates]
    chain: int
    known: Sequence[DraftedStates]
    above: Sequence[int]
    parents: Sequence[int]
    after: dict[int, LinearAttentionLayer | None] = field(default_factory=dict)
    drafted: list[DraftedStates] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.drafted = [DraftedStates({}) for _ in self.parents]

    def state_after(self) -> State | None:
        """The state that the forward leaves; None where it is still at the chain's beginning."""
        return {m: state for m, state in self.after.items() if state is not None} or None

    def paths(self) -> list[tuple[int, list[int]]]:
        """The place whose state each path begins with (-1: the chain's end), and the path's places down to a leaf."""
        first = len(self.known)
        inner = set(self.parents)
        made = []
        for leaf in (n for n in range(first, first + len(self.parents)) if n not in inner):
            path, at = [], leaf
            while at >= 0 and (at >= first or self.known[at].state is None):
                path.append(at)
                at = self.parents[at - first] if at >= first else self.above[at]
            made.append((at, path[::-1]))
        return made


class Works:
    """The work of recurrent layers in one forward for all rows. The paths of all drafts are listed once, for all layers."""

    def __init__(self, works: Sequence[Work]) -> None:
        self.works = works
        found = [(row, start, path) for row, work in enumerate(works) for start, path in work.paths()]
        self.paths = [[p for p in found if (p[1] < 0 and self._begins(p[0])) is begins] for begins in (False, True)]

    def _begins(self, row: int) -> bool:
        work = self.works[row]
        return work.state is None and not work.chain and not work.pending
