"""Gemma 4's assistants: small models without keys and values of their own, which attend to those of the target.

An assistant reads the embedding of the newest token beside the target's last state, or while drafting its own projected output,
and attends to what the target computed before the newest token: the keys and values of its last layer of each kind. All drafts
stand at the position of the root. Its layers are transformers' own; the keys and values are those that the target's layers make
of the states that enter them. transformers' `generate` also shows an assistant the row of the draft that was rejected last, at
the root's position; here there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from decgraph.errors import DecError
from decgraph.runtime.models.config import mapping, whole
from decgraph.runtime.models.heads.layout import Config, HeadFolder, HeadLayout, ReadHead
from decgraph.runtime.models.heads.rooted import Before, Rooted

if TYPE_CHECKING:
    from decgraph.runtime.models.decoder.net import Net

_KINDS = ("gemma4_assistant", "gemma4_unified_assistant")


class Assistant(Rooted):
    """An assistant of Gemma 4. Its configuration (`of`) and its tensors are those of transformers' class."""

    def __init__(self, config: Mapping[str, object]) -> None:
        from transformers.models.gemma4.configuration_gemma4 import Gemma4TextConfig
        from transformers.models.gemma4.modeling_gemma4 import Gemma4TextModel
        from transformers.models.gemma4_assistant import modeling_gemma4_assistant

        official = modeling_gemma4_assistant
        # 5.23 refuses a model all of whose layers share
        reuse = {"kv_sharing_modes": property(lambda self: ["reuse"] * self.num_hidden_layers)}
        shared: type[Gemma4TextConfig] = type("Shared", (Gemma4TextConfig,), reuse)
        width = whole(config, "hidden_size")
        super().__init__({"vocab_size": config["vocab_size"], "hidden_size": width})
        of = mapping(config, "of")
        inner = mapping(of, "text_config")
        text = shared.from_dict({**inner, "num_kv_shared_layers": inner["num_hidden_layers"]})
        text._attn_implementation = "eager"
        settings: Any = SimpleNamespace(**{**of, "text_config": text, "get_text_config": lambda: text})
        self.model: nn.Module = Gemma4TextModel(text)
        self.model.register_module("embed_tokens", nn.Identity())  # embeddings are the target's; its table is the output matrix
        self.lm_head = nn.Linear(text.hidden_size, text.vocab_size, bias=False)
        self.pre_projection = nn.Linear(2 * width, text.hidden_size, bias=False)
        self.post_projection = nn.Linear(text.hidden_size, width, bias=False)
        ordered = bool(of.get("use_ordered_embeddings"))
        self.masked_embedding: nn.Module | None = official.Gemma4AssistantMaskedEmbedder(settings) if ordered else None
        self._masks = official.Gemma4AssistantForCausalLM.create_attention_masks
        self._holder: Any = SimpleNamespace(config=settings)  # stands for the model, whose configuration `_masks` reads
        self._layers: Callable[[], Any] = nn.Module  # a Gemma 4 of transformers, the target, which is no part of the head

    def follow(self, net: Net) -> None:
        """Takes the layers of the target whose keys and values are read. Raises DecError for a target that is no Gemma 4."""
        base: Any = net.base  # a module of transformers
        kinds = list(getattr(getattr(base, "config", None), "layer_types", None) or ())
        if base is None or not kinds or not hasattr(base.layers[0].self_attn, "is_kv_shared_layer"):
            raise DecError("an assistant of Gemma 4 reads the keys and values of a Gemma 4", hint="its own target")
        own = [n for n in range(len(kinds)) if not base.layers[n].self_attn.is_kv_shared_layer]
        self._kept = [(kind, max(n for n in own if kinds[n] == kind)) for kind in dict.fromkeys(kinds)]
        self._layers = lambda: base
        self.reads = (*(n for _, n in self._kept), net.decoder.layers)
        self._embed = net.decoder.looked_up

    def prepare(self, states: Tensor, positions: Tensor, before: Before | None = None) -> Before:
        from transformers.models.gemma4.modeling_gemma4 import apply_rotary_pos_emb

        parts = states.chunk(len(self._kept) + 1, dim=-1)
        made, base = [], self._layers()
        for place, ((kind, n), entering) in enumerate(zip(self._kept, parts, strict=False)):
            layer, x = base.layers[n], entering[None]
            attention, x = layer.self_attn, layer.input_layernorm(x)
            shape = (1, len(positions), -1, attention.head_dim)
            key = attention.k_proj(x).view(shape)
            value = key if attention.v_proj is None else attention.v_proj(x).view(shape)
            cos, sin = base.rotary_emb(x, positions[None], kind)
            rows = (apply_rotary_pos_emb(attention.k_norm(key), cos, sin, unsqueeze_dim=2), attention.v_norm(value))
            keys, values = (row.transpose(1, 2) for row in rows)
            if before is not None and before.kv:
                old = before.kv[place]
                keys, values = torch.cat([old[0], keys], dim=2), torch.cat([old[1], values], dim=2)
            made.append((keys, values))
        return Before(parts[-1][-1], made)

    def nothing(self) -> Before:
        made, weight = super().nothing(), next(self.parameters())
        made.kv = []
        for _, n in self._kept:  # a row of zeros, which tells nothing
            attention = self._layers().layers[n].self_attn
            heads = attention.k_proj.out_features // attention.head_dim
            zeros = weight.new_zeros(1, heads, 1, attention.head_dim)
            made.kv.append((zeros, zeros))
        return made

    def states(self, before: Before, tokens: Tensor, position: int) -> Tensor:
        assert before.state is not None and before.kv is not None
        count = len(tokens)
        rows = [(keys.expand(count, -1, -1, -1), values.expand(count, -1, -1, -1)) for keys, values in before.kv]
        shared = {kind: row for (kind, _), row in zip(self._kept, rows, strict=True)}
        state, at = before.state.expand(count, 1, -1), torch.full((count, 1), position, device=tokens.device)
        own = state
        for depth in range(tokens.shape[1]):
            entering = self.pre_projection(torch.cat([self.embed(tokens[:, depth : depth + 1]).to(state.dtype), state], dim=-1))
            masks = self._masks(self._holder, entering, None, shared)
            named = {"attention_mask": masks, "position_ids": at, "shared_kv_states": shared, "use_cache": False}
            own = self.model(inputs_embeds=entering, **named).last_hidden_state
            state = self.post_projection(own)
        return own[:, 0]

    def read_out(self, states: Tensor, drafted: int = 0) -> Tensor:
        made: Tensor
        if self.masked_embedding is None:
            made = self.lm_head(states)
        else:  # one by one: tokens of no chosen group have the least score of a batch
            each = [self.masked_embedding(one[None, None], self.lm_head.weight)[0] for one in states]
            made = torch.cat(each)
        return made


def _is_assistant(config: Config, names: Collection[str]) -> bool:
    return config.get("model_type") in _KINDS


def _assistant(source: HeadFolder) -> ReadHead:
    of = source.config
    tensors = {name: source.tensors[name] for name in source.tensors}
    if (table := tensors.pop("model.embed_tokens.weight", None)) is not None:
        tensors.setdefault("lm_head.weight", table)
    size = source.number("vocab_size", of=mapping(of, "text_config"))
    config = {"vocab_size": size, "hidden_size": source.number("backbone_hidden_size"), "of": dict(of)}
    return ReadHead("Gemma 4 assistant", "features", "decgraph_assistant", config, tensors)


LAYOUTS = (HeadLayout("Gemma 4 assistant", "model_type gemma4_assistant in config.json", _is_assistant, _assistant),)
