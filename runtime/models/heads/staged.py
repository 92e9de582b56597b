"""Heads with a module for every depth of a draft: several MTP layers in one checkpoint.

Layer k reads the features that layer k - 1 gives of the whole text, and the tokens one place on; the first reads the target's.

DeepSeek-AI, DeepSeek-V3 Technical Report, 2024 (section 2.2).
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn

from decgraph.runtime.models.heads.chained import Chained, Eagle
from decgraph.runtime.models.heads.mtp import Mtp

KINDS: Mapping[str, type[Chained]] = {"decgraph_mtp": Mtp, "decgraph_eagle2": Eagle}


class Staged(nn.Module):
    """`stages`: the modules in order, each of a kind of KINDS (config `stages`: their configurations, `of_kind`: the kind)."""

    own_output = True
    reads: tuple[int, ...] | None = None

    def __init__(self, config: Mapping[str, object]) -> None:
        super().__init__()
        stages = config["stages"]
        assert isinstance(stages, list), "a configuration for each stage"
        made = [KINDS[str(config["of_kind"])](stage) for stage in stages]
        self.stages = nn.ModuleList(made)
        self.config, self.vocab = made[0].config, made[0].vocab
