"""Live transformers modules as models: any causal architecture, as it is, wherever it is.

`eval` is the module's own full forward, path by path: what the reference means by the model. The engine of such a
model (`engine_of`) shares its weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeGuard

import numpy as np
import torch

from decgraph.errors import DecError
from decgraph.runtime.models.interface import Memory, Model, Path, Scores, Vocab, check_path, check_scores
from decgraph.runtime.models.rotary import boundary_of, bounded
from decgraph.runtime.models.soft_inputs import inputs

if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedModel


class LiveModel(Model):
    """A live causal language model. Rows are float64 logits of what the module computes in its own dtype."""

    engine_module = "live"

    def __init__(self, module: PreTrainedModel, *, name: str, vocab: Vocab, context: int | None, family: str) -> None:
        self.kind = "causal"
        self.name, self.vocab, self.family, self.module = name, vocab, family, module
        self.context, self.bounded = bounded(context, module.config, name)
        boundary = boundary_of(module.config)
        self.boundary = boundary if boundary is not None and boundary.recomputed else None
        self.layers = int(module.config.get_text_config().num_hidden_layers)

    @torch.no_grad()
    def eval(self, paths: Sequence[Path], memory: Memory | None = None) -> list[Scores]:
        if memory is not None:
            raise self._cannot("read a memory: its keys and values are its engine's own")
        return [Scores(logits=self._row(check_path(self, path))) for path in paths]

    def _row(self, path: Path) -> np.ndarray:
        device = next(self.module.parameters()).device
        read = inputs(self.module.get_input_embeddings(), path, device)
        name = "inputs_embeds" if read.is_floating_point() else "input_ids"
        row: np.ndarray = self._logits(name, read[None])[-1, : self.vocab.size].double().cpu().numpy()
        check_scores(self, len(path) - 1, row)
        return row

    def _logits(self, name: str, read: torch.Tensor) -> torch.Tensor:
        """The module's scores [n, V] of ids or embeddings [1, n, ...], which it takes under a name."""
        out: torch.Tensor = self.module(**{name: read}, use_cache=False).logits[0]
        return out


def _is_causal(module: nn.Module) -> TypeGuard[PreTrainedModel]:
    output = getattr(module, "get_output_embeddings", lambda: None)
    return getattr(module, "config", None) is not None and output() is not None


def context_in(config: object) -> int | None:
    """The most positions that a model reads, by its configuration, or None."""
    limit = getattr(config, "max_position_embeddings", None)
    return int(limit) if limit is not None and limit > 0 else None  # XLNet's is -1


def from_module(module: nn.Module, *, name: str, vocab: Vocab | None = None) -> LiveModel:
    """A live `AutoModelForCausalLM` (any: gpt2, gpt_neox, opt, phi3, gemma3, ...) as a model. The module is put in
    evaluation mode and otherwise left as it is. Without `vocab` the tokens are the ids of its output matrix.

    Raises DecError for a module that is no causal language model.
    """
    if not _is_causal(module):
        raise DecError(f"{name!r} is a {type(module).__name__}, not a causal language model of transformers")
    config = module.config
    text = config.get_text_config()
    if getattr(config, "is_encoder_decoder", False):
        raise DecError(f"{name!r} is an encoder and a decoder, not a causal language model")
    module.eval()
    return LiveModel(
        module,
        name=name,
        vocab=vocab or Vocab("ids", int(text.vocab_size)),
        context=context_in(text),
        family=f"{name}@{id(module)}",
    )
