"""The three heads that read the target's hidden states: Medusa, EAGLE and a Kangaroo exit adapter.

Importing this registers them with transformers' `AutoConfig` and `AutoModel`, so that
`AutoModel.from_pretrained` loads their folders. None has an output matrix: logits come from the target's lm
head. Their forwards are plain functions of whole sequences, without caches.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, AutoModel, LlamaConfig, PreTrainedConfig, PreTrainedModel
from transformers.masking_utils import create_causal_mask
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding

from decgraph.runtime.native.products import NativeLinear


class MedusaConfig(PreTrainedConfig):
    """`heads` residual blocks of `inner_size` on hidden states of `hidden_size`."""

    model_type = "decgraph_medusa"

    def __init__(self, hidden_size: int = 256, inner_size: int = 512, heads: int = 4, **rest: Any) -> None:
        self.hidden_size = hidden_size
        self.inner_size = inner_size
        self.heads = heads
        super().__init__(**rest)


class EagleConfig(LlamaConfig):
    """One Llama layer over (embedding of the next token, feature); `feature_size` is the target's width."""

    model_type = "decgraph_eagle"


class ExitConfig(LlamaConfig):
    """One Llama layer on the target's hidden state after `exit_layer` layers."""

    model_type = "decgraph_exit"

    def __init__(self, exit_layer: int = 2, **rest: Any) -> None:
        self.exit_layer = exit_layer
        super().__init__(**rest)


class MedusaHeads(PreTrainedModel):
    """Medusa (Cai et al., 2024), section 2.1: head i guesses the token i + 1 places after the next one.

    `forward(hidden)` takes the target's last hidden state after its final norm, `[batch, length, hidden]`,
    and gives one tensor of that shape per head; the target's lm head turns each into logits. A
    block is h + B silu(A h); the paper's h + silu(A h) has an lm head per head to take things away again.
    """

    config_class = MedusaConfig
    own_output = False  # as `runtime/models/heads/medusa.py` has it

    def __init__(self, config: MedusaConfig) -> None:
        super().__init__(config)
        self.rise = nn.ModuleList(NativeLinear(config.hidden_size, config.inner_size) for _ in range(config.heads))
        self.fall = nn.ModuleList(NativeLinear(config.inner_size, config.hidden_size, bias=False) for _ in range(config.heads))
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        # A head starts as the identity, that is as a repetition of the target's own guess.
        if isinstance(module, nn.Linear) and module.out_features == self.config.hidden_size:
            nn.init.zeros_(module.weight)

    def forward(self, hidden: torch.Tensor) -> list[torch.Tensor]:
        """`[batch, length, hidden]` -> one `[batch, length, hidden]` per head."""
        return [hidden + fall(nn.functional.silu(rise(hidden))) for rise, fall in zip(self.rise, self.fall, strict=True)]


class _Layer(PreTrainedModel):
    """What EAGLE's and Kangaroo's heads share: one causal Llama layer with its rotary embedding."""

    config: Any
    _supports_sdpa = True
    _supports_attention_backend = True

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__(config)
        self.layer = LlamaDecoderLayer(config, 0)
        self.rotary = LlamaRotaryEmbedding(config)

    @property
    def layers(self) -> list[nn.Module]:
        """The layers in order, as heads with several have them: one."""
        return [self.layer]

    def run(self, states: torch.Tensor, position_ids: torch.Tensor | None, attention_mask: torch.Tensor | None) -> torch.Tensor:
        """The layer over `[batch, length, hidden]`; a 4-D attention mask is used as it is."""
        if position_ids is None:
            position_ids = torch.arange(states.shape[1], device=states.device)[None]
        mask = create_causal_mask(self.config, states, attention_mask, None, position_ids=position_ids)
        rotary = self.rotary(states, position_ids=position_ids)
        return self.layer(states, attention_mask=mask, position_ids=position_ids, position_embeddings=rotary)


class EagleHead(_Layer):
    """EAGLE's feature head (Li et al., 2024): feature i and token i + 1 yield feature i + 1.

    Features are the target's last hidden states after its final norm; `forward(tokens, features)` takes the
    token *after* each feature (`[batch, length]`) and the features (`[batch, length, hidden]`) and gives the
    next features. The target's lm head turns them into logits. The embedding is a copy of the target's.
    """

    config_class = EagleConfig
    # As `runtime/models/heads/chained.py` has them: it reads the target's last states, and its own outputs are features.
    reads = mask = None
    own_output = False

    def __init__(self, config: EagleConfig) -> None:
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.fc = NativeLinear(2 * config.hidden_size, config.hidden_size, bias=False)
        self.entering = config.hidden_size
        self.post_init()

    def attach(self, embedding: torch.Tensor, output: Any, layers: int) -> None:
        """Nothing of the target is needed (its embedding `[V, hidden]`) beside its states and its output matrix."""

    def project(self, states: torch.Tensor) -> torch.Tensor:
        """The target's states `[..., hidden]` are the features."""
        return states

    def back(self, states: torch.Tensor) -> torch.Tensor:
        """Own outputs `[..., hidden]` are the next slots' features."""
        return states

    def enter(self, tokens: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
        """What enters the layer, `[..., hidden]`."""
        joined: torch.Tensor = self.fc(torch.cat((self.embed_tokens(tokens).to(features.dtype), features), dim=-1))
        return joined

    def forward(
        self,
        tokens: torch.Tensor,
        features: torch.Tensor,
        position_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """(`[batch, length]`, `[batch, length, hidden]`) -> `[batch, length, hidden]`."""
        return self.run(self.enter(tokens, features), position_ids, attention_mask)


class ExitAdapter(_Layer):
    """Kangaroo's adapter (Liu et al., 2024): early hidden states become late ones.

    `forward(hidden)` takes the target's hidden state after `config.exit_layer` layers, `[batch, length,
    hidden]`, and gives a state of that shape; the target's final norm and lm head turn it into logits.
    """

    config_class = ExitConfig
    norm = None  # as `runtime/models/heads/kangaroo.py` has it: the target's norm reads its states

    def __init__(self, config: ExitConfig) -> None:
        super().__init__(config)
        self.exit_layer = config.exit_layer
        self.post_init()

    def forward(
        self,
        hidden: torch.Tensor,
        position_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """`[batch, length, hidden]` -> `[batch, length, hidden]`."""
        return self.run(hidden, position_ids, attention_mask)


for _config, _model in ((MedusaConfig, MedusaHeads), (EagleConfig, EagleHead), (ExitConfig, ExitAdapter)):
    AutoConfig.register(_config.model_type, _config, exist_ok=True)
    AutoModel.register(_config, _model, exist_ok=True)
