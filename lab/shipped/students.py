"""The drafter and the heads in training: one class for each kind, with its loss and the folder it is written as."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from lab.shipped import teacher
from lab.shipped.store import Rows

# The share of the label on the target's first choice: at temperature 0 only that one is accepted.
HARD = 0.5
# Of a draft's later places, how much each counts against the one before it.
FALLING = 0.8
DRAFTER_WIDTH = 128
MEDUSA_HEADS = 4
EXIT_LAYER = 2


class Student:
    """A drafter or head in training. `layers` are the target's states it needs, the last one always among them: i is the input
    of layer i, the number of layers is the end."""

    module: Any
    layers: tuple[int, ...]

    def __init__(self, target: Any) -> None:
        self.width, self.output = target.config.hidden_size, target.get_output_embeddings().weight
        self.layers = (target.config.num_hidden_layers,)

    def state(self, states: torch.Tensor, index: int) -> torch.Tensor:
        """The states of the layer `layers[index]` out of all that are side by side in the last dimension."""
        index %= len(self.layers)
        return states[..., index * self.width : (index + 1) * self.width]

    def labels(self, rows: Rows, where: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The target's likeliest tokens and their weights at the places `where`: both [places, TOP]."""
        with torch.no_grad():
            logits = self.state(rows.states, -1)[where] @ self.output.to(rows.states.dtype).T
            logp, top = logits.float().log_softmax(-1).topk(min(teacher.TOP, logits.shape[-1]))
        return top, teacher.soft_labels(logp, HARD)

    def loss(self, rows: Rows) -> torch.Tensor:
        """What is to fall, a scalar."""
        raise NotImplementedError

    def save(self, folder: Path, weights: dict[str, torch.Tensor], tokenizer: Any) -> None:
        """Write `weights`, of the module's shapes, to `folder` in bfloat16."""
        copy = type(self.module)(self.module.config)
        copy.load_state_dict(weights)
        copy.to(torch.bfloat16).save_pretrained(folder)


class DrafterStudent(Student):
    """A small Llama with the target's tokenizer; the embedding is the output matrix too."""

    def __init__(self, target: Any) -> None:
        from transformers import LlamaConfig, LlamaForCausalLM

        super().__init__(target)
        source = target.config
        config = LlamaConfig(
            vocab_size=source.vocab_size,
            hidden_size=DRAFTER_WIDTH,
            intermediate_size=2 * DRAFTER_WIDTH,
            num_hidden_layers=2,
            num_attention_heads=DRAFTER_WIDTH // 32,
            num_key_value_heads=DRAFTER_WIDTH // 32,
            max_position_embeddings=source.max_position_embeddings,
            tie_word_embeddings=True,
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
            bos_token_id=source.bos_token_id,
            eos_token_id=source.eos_token_id,
            pad_token_id=source.pad_token_id,
        )
        self.module = LlamaForCausalLM(config)
        for layer in self.module.model.layers:
            torch.nn.init.zeros_(layer.self_attn.o_proj.weight)
            torch.nn.init.zeros_(layer.mlp.down_proj.weight)

    def loss(self, rows: Rows) -> torch.Tensor:
        """Cross entropy against the target's view of the token after each place, a scalar."""
        where = rows.asked
        states = self.module.model(rows.ids, use_cache=False).last_hidden_state
        return teacher.imitation(self.module.lm_head(states[where]), *self.labels(rows, where)).mean()

    def save(self, folder: Path, weights: dict[str, torch.Tensor], tokenizer: Any) -> None:
        """Write the model from `weights`, of the module's shapes, and the target's tokenizer."""
        super().save(folder, weights, tokenizer)
        tokenizer.save_pretrained(folder)


class Exit(Student):
    """Kangaroo's adapter (Liu et al., 2024): one layer from the state after `exit_layer` layers to the target's end."""

    def __init__(self, target: Any) -> None:
        from decgraph.zoo import modeling

        super().__init__(target)
        self.layers = (EXIT_LAYER, *self.layers)
        self.norm = target.base_model.norm
        self.module = modeling.ExitAdapter(modeling.ExitConfig(exit_layer=EXIT_LAYER, **llama_settings(target.config)))
        # The adapter starts as the target's last layer, which already knows how to end in the final norm.
        self.module.layer.load_state_dict(target.base_model.layers[-1].state_dict())

    def loss(self, rows: Rows) -> torch.Tensor:
        """Cross entropy of the adapter's view against the target's, a scalar."""
        where = rows.asked
        states = self.norm(self.module(self.state(rows.states, 0)))[where]
        return teacher.imitation(states @ self.output.to(states.dtype).T, *self.labels(rows, where)).mean()


class Medusa(Student):
    """Medusa's heads (Cai et al., 2024) through the target's own output matrix: decgraph's layout, not Medusa's."""

    def __init__(self, target: Any) -> None:
        from decgraph.zoo import modeling

        super().__init__(target)
        config = modeling.MedusaConfig(hidden_size=self.width, inner_size=2 * self.width, heads=MEDUSA_HEADS)
        self.module = modeling.MedusaHeads(config)

    def loss(self, rows: Rows) -> torch.Tensor:
        """Head i at place t against the target's view of token t + i + 2: a scalar."""
        total = torch.zeros(())
        for index, states in enumerate(self.module(self.state(rows.states, -1))):
            where = rows.asked
            where[:, : index + 1] = False
            logits = states[:, : -(index + 1)][where[:, index + 1 :]] @ self.output.to(states.dtype).T
            total = total + FALLING**index * teacher.imitation(logits, *self.labels(rows, where)).mean()
        return total


def llama_settings(config: Any) -> dict[str, Any]:
    """What a one-layer head takes over from the target's configuration."""
    names = (
        "vocab_size",
        "hidden_size",
        "intermediate_size",
        "num_attention_heads",
        "num_key_value_heads",
        "max_position_embeddings",
        "rms_norm_eps",
        "rope_parameters",
        "bos_token_id",
        "eos_token_id",
        "pad_token_id",
    )
    return {**{name: getattr(config, name) for name in names}, "num_hidden_layers": 1}
