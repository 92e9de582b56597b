"""Models behind a soft prompt of PEFT's (prompt tuning, p-tuning, prefix tuning): virtual tokens that every text begins with.

Lester, Al-Rfou and Constant, The Power of Scale for Parameter-Efficient Prompt Tuning, 2021. Liu et al., GPT Understands, Too,
2021. Li and Liang, Prefix-Tuning, 2021.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers import DynamicCache

from decgraph.errors import DecError
from decgraph.runtime.models.hf_live import LiveModel, from_module
from decgraph.runtime.models.interface import Vocab

if TYPE_CHECKING:
    from peft import PeftModel

KINDS = ("PROMPT_TUNING", "P_TUNING", "PREFIX_TUNING")


class SoftPrompted(LiveModel):
    """The model inside a PeftModel, read after its virtual tokens. wrapper: the PeftModel. prefix: their keys and values by
    layer, each [1, heads, count, dim]."""

    def __init__(self, wrapper: PeftModel, inner: LiveModel) -> None:
        prompt: Any = wrapper.active_peft_config  # that of a soft prompt, which has a class of its own by peft's kind
        context = None if inner.context is None else inner.context - prompt.num_virtual_tokens
        super().__init__(inner.module, name=inner.name, vocab=inner.vocab, context=context, family=inner.family)
        self.wrapper = wrapper
        self.prefix = _prefix(wrapper, inner.module.base_model)
        self.count = self.prefix[0][0].shape[2]

    def _logits(self, name: str, read: Tensor) -> Tensor:
        out: Tensor = self.wrapper(**{name: read}).logits[0, -read.shape[1] :]
        return out


@torch.no_grad()
def _prefix(wrapper: PeftModel, base: Any) -> list[tuple[Tensor, Tensor]]:
    made: Any = wrapper.get_prompt(1)  # embeddings, a cache, or tuples, whatever peft says
    if isinstance(made, Tensor) and made.ndim == 3:  # embeddings [1, count, width]
        cache: Any = base(inputs_embeds=made.to(base.dtype), past_key_values=DynamicCache(), use_cache=True).past_key_values
    elif not hasattr(made, "layers"):  # by layer [2, 1, heads, count, dim]
        return [(keys, values) for keys, values in made]
    else:
        cache = made
    return [(layer.keys, layer.values) for layer in cache.layers]


def soft_prompted(wrapper: PeftModel, name: str, vocab: Vocab) -> SoftPrompted:
    """See `SoftPrompted`. Raises DecError for another kind of soft prompt."""
    kind = wrapper.active_peft_config.peft_type
    kind = getattr(kind, "value", kind)
    if kind not in KINDS:
        raise DecError(
            f"{kind} puts virtual tokens before the prompt in a way that decgraph does not decode with",
            hint=f"call generate without custom_generate, or use one of {', '.join(KINDS)}",
        )
    inner = from_module(wrapper.get_base_model(), name=name, vocab=vocab)
    if inner.boundary is not None:
        raise DecError(
            f"{inner.name!r} changes its rotary frequencies with a text's length, which {kind} does not go with here"
        )
    return SoftPrompted(wrapper, inner)
