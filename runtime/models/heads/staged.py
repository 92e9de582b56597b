"""Heads with a module for every depth of a draft: several MTP layers in one checkpoint.

Layer k reads the features that layer k - 1 gives of the whole text, and the tokens one place on; the first reads the target's.

DeepSeek-AI, DeepSeek-V3 Technical Report, 2024 (section 2.2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import cast

from torch import Tensor, nn

from decgraph.runtime.models.decoder.layers import over
from decgraph.runtime.models.heads.base import DraftHead
from decgraph.runtime.models.heads.chained import Chained, Eagle
from decgraph.runtime.models.heads.mtp import Mtp

KINDS: Mapping[str, type[Chained]] = {"decgraph_mtp": Mtp, "decgraph_eagle2": Eagle}


class Staged(DraftHead, nn.Module):
    """`stages`: the modules in order, each of a kind of KINDS (config `stages`: their configurations, `of_kind`: the kind)."""

    own_output = True

    def __init__(self, config: Mapping[str, object]) -> None:
        super().__init__()
        stages = config["stages"]
        assert isinstance(stages, list), "a configuration for each stage"
        made = [KINDS[str(config["of_kind"])](stage) for stage in stages]
        self.stages = cast(Sequence[Chained], nn.ModuleList(made))
        self.config, self.vocab, self.depth = made[0].config, made[0].vocab, len(made)

    def attach(self, embedding: Tensor, output: Callable[[Tensor], Tensor], layers: int) -> None:
        """A target's embeddings [V, width] and the rest, for every stage; see `Head`."""
        for stage in self.stages:
            stage.attach(embedding, output, layers)

    def drafted(self, states: Tensor, at: Tensor, tokens: Tensor, known: int) -> list[Tensor]:
        """See `DraftHead`: states [hidden]; each stage runs over the whole text."""
        features, at = (states, at) if known else (self.stages[0].nothing(states), at.new_full((1,), -1))
        own: list[Tensor] = []
        for stage, _ in zip(self.stages, tokens[known:], strict=False):
            made, _ = over(stage, stage.enter(tokens[at + 1], features), at - at[0].clamp(max=0))
            own.append(made[-1])
            features, at = stage.back(made), at + 1
        return own

    def read_out(self, states: Tensor, drafted: int = 0) -> Tensor:
        return self.stages[drafted].read_out(states)

    def handed_on(self, state: Tensor, drafted: int) -> Tensor:
        return self.stages[drafted].back(state)
