"""What is trained: one class for each kind of draft, with its loss, what it would draft, and the folder it is written as."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch

from decgraph.errors import DecError
from decgraph.zoo.training import teacher
from decgraph.zoo.training.store import StoredRow

# The share of the label on the target's first choice: at temperature 0 only that one is accepted.
HARD = 0.5
# Of a draft's later places, how much each counts against the one before it.
FALLING = 0.8


@dataclass(frozen=True)
class PaddedRows:
    """Rows padded on the right: `ids` int64[rows, length], `states` bfloat16[rows, length, layers * width].

    `counts` float32[rows, length] is how much a guess of the token after each place counts; 0 at the padding.
    """

    ids: torch.Tensor
    states: torch.Tensor
    counts: torch.Tensor

    def to(self, device: torch.device) -> PaddedRows:
        """The same rows on a device."""
        return PaddedRows(self.ids.to(device), self.states.to(device), self.counts.to(device))


class Student:
    """A drafter or head in training. `layers` are the target's states it needs, the last one always among them."""

    kind: ClassVar[str]
    module: Any
    layers: tuple[int, ...]
    gamma = 7

    def __init__(self, target: Any) -> None:
        self.target, self.width = target, target.config.get_text_config().hidden_size
        self.output = target.get_output_embeddings().weight

    @classmethod
    def layers_for(cls, target: Any, **options: Any) -> tuple[int, ...]:
        """The target's states that this kind reads: i is the input of layer i, the number of layers is the end."""
        return (target.config.get_text_config().num_hidden_layers,)

    def state(self, states: torch.Tensor, index: int) -> torch.Tensor:
        """The states of the layer `layers[index]` out of all that are side by side in the last dimension."""
        index %= len(self.layers)
        return states[..., index * self.width : (index + 1) * self.width]

    def labels(self, batch: PaddedRows, where: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The target's likeliest tokens and their weights at the places `where`: both [places, TOP]."""
        with torch.no_grad():
            logits = self.state(batch.states, -1)[where] @ self.output.to(batch.states.dtype).T
            logp, top = logits.float().log_softmax(-1).topk(min(teacher.TOP, logits.shape[-1]))
        return top, teacher.soft_labels(logp, HARD)

    def loss(self, batch: PaddedRows) -> torch.Tensor:
        """What is to fall, a scalar."""
        raise NotImplementedError

    def guesses(self, text: StoredRow) -> list[torch.Tensor]:
        """The tokens of a greedy chain, int64[places] for each depth, on the text as it is.

        Row p of depth s is the guess of token p + 1 + s when tokens 0..p are committed. Where a draft's earlier tokens agree
        with the text this is what the draft has; elsewhere it is not read.
        """
        raise NotImplementedError

    def save(self, folder: Path, weights: dict[str, torch.Tensor], tokenizer: Any) -> None:
        """Write `weights`, of the module's shapes, to `folder` in bfloat16."""
        copy = type(self.module)(self.module.config)
        copy.load_state_dict(weights)
        copy.to(torch.bfloat16).save_pretrained(folder)


class DrafterStudent(Student):
    """A small Llama with the target's tokenizer; the embedding is the output matrix too."""

    kind = "drafter"

    @classmethod
    def layers_for(cls, target: Any, *, width: int = 128, **_: Any) -> tuple[int, ...]:
        """The end; as in `Student`. Raises DecError for a width that heads of 32 do not fill."""
        if width % 32:
            raise DecError(f"a drafter of width {width} has no whole number of heads of 32", hint="give a multiple of 32")
        return super().layers_for(target)

    def __init__(self, target: Any, *, width: int = 128, depth: int = 2, **_: Any) -> None:
        from transformers import LlamaConfig, LlamaForCausalLM

        super().__init__(target)
        source = target.config.get_text_config()
        self.layers = self.layers_for(target, width=width)
        config = LlamaConfig(
            vocab_size=source.vocab_size,
            hidden_size=width,
            intermediate_size=2 * width,
            num_hidden_layers=depth,
            num_attention_heads=width // 32,
            num_key_value_heads=width // 32,
            max_position_embeddings=source.max_position_embeddings,
            tie_word_embeddings=True,
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
            bos_token_id=getattr(source, "bos_token_id", None),
            eos_token_id=getattr(source, "eos_token_id", None),
            pad_token_id=getattr(source, "pad_token_id", None),
        )
        self.module = LlamaForCausalLM(config)
        for layer in self.module.model.layers:
            torch.nn.init.zeros_(layer.self_attn.o_proj.weight)
            torch.nn.init.zeros_(layer.mlp.down_proj.weight)

    def loss(self, batch: PaddedRows) -> torch.Tensor:
        """Cross entropy against the target's view of the token after each place, a scalar."""
        where = batch.counts > 0
        states = self.module.model(batch.ids, use_cache=False).last_hidden_state
        said = teacher.imitation(self.module.lm_head(states[where]), *self.labels(batch, where))
        return mean(said, batch.counts[where])

    def guesses(self, text: StoredRow) -> list[torch.Tensor]:
        """int64[places] for each depth, as in `Student`."""
        chosen = self.module(text.ids[None].to(self.target.device), use_cache=False).logits[0].argmax(-1)
        return [chosen[step:] for step in range(self.gamma)]

    def save(self, folder: Path, weights: dict[str, torch.Tensor], tokenizer: Any) -> None:
        """Write the model from `weights`, of the module's shapes, and the target's tokenizer."""
        super().save(folder, weights, tokenizer)
        tokenizer.save_pretrained(folder)


class Exit(Student):
    """Kangaroo's adapter (Liu et al., 2024): one layer from the state after `exit_layer` layers to the target's end."""

    kind = "exit"

    @classmethod
    def layers_for(cls, target: Any, *, exit_layer: int | None = None, **_: Any) -> tuple[int, ...]:
        """The exit and the end; as in `Student`. Raises DecError for an exit that is not inside the target."""
        count = target.config.get_text_config().num_hidden_layers
        chosen = exit_layer if exit_layer is not None else max(2, count // 8)
        if not 1 <= chosen < count:
            raise DecError(f"there is no layer {chosen} to leave at: the target has {count}", hint=f"1 to {count - 1}")
        return (chosen, count)

    def __init__(self, target: Any, *, exit_layer: int | None = None, **_: Any) -> None:
        from decgraph.zoo import modeling

        super().__init__(target)
        source = target.config.get_text_config()
        self.layers = self.layers_for(target, exit_layer=exit_layer)
        chosen = self.layers[0]
        if not hasattr(target.base_model, "norm"):
            raise DecError(f"{type(target).__name__} has no final norm under the name `norm`, which an exit adapter needs")
        self.norm = target.base_model.norm
        self.module = modeling.ExitAdapter(modeling.ExitConfig(exit_layer=chosen, **llama_settings(source)))
        last = target.base_model.layers[-1].state_dict()
        own = self.module.layer.state_dict()
        if {n: v.shape for n, v in last.items()} == {n: v.shape for n, v in own.items()}:
            # The adapter starts as the target's last layer, which already knows how to end in the final norm.
            self.module.layer.load_state_dict(last)

    def loss(self, batch: PaddedRows) -> torch.Tensor:
        """Cross entropy of the adapter's view against the target's, a scalar."""
        where = batch.counts > 0
        states = self.norm(self.module(self.state(batch.states, 0)))[where]
        said = teacher.imitation(states @ self.output.to(states.dtype).T, *self.labels(batch, where))
        return mean(said, batch.counts[where])

    def guesses(self, text: StoredRow) -> list[torch.Tensor]:
        """int64[places] for each depth, as in `Student`."""
        text = text.to(self.target.device)
        states = self.norm(self.module(self.state(text.states, 0).float()[None]))[0]
        chosen = (states @ self.output.to(states.dtype).T).argmax(-1)
        return [chosen[step:] for step in range(self.gamma)]


class Medusa(Student):
    """Medusa's heads (Cai et al., 2024) through the target's own output matrix: decgraph's layout, not Medusa's.

    Medusa's folders hold an output matrix for every head: on SmolLM2 four times 28 million numbers for heads that have 0.7
    million each without it.
    """

    kind = "medusa"

    def __init__(self, target: Any, *, heads: int = 4, **_: Any) -> None:
        from decgraph.zoo import modeling

        super().__init__(target)
        self.layers = self.layers_for(target)
        self.gamma = heads
        config = modeling.MedusaConfig(hidden_size=self.width, inner_size=2 * self.width, heads=heads)
        self.module = modeling.MedusaHeads(config)

    def loss(self, batch: PaddedRows) -> torch.Tensor:
        """Head i at place t against the target's view of token t + i + 2: a scalar."""
        total = torch.zeros(())
        for index, states in enumerate(self.module(self.state(batch.states, -1))):
            where = torch.zeros_like(batch.counts, dtype=torch.bool)
            where[:, index + 1 :] = batch.counts[:, index + 1 :] > 0
            logits = states[:, : -(index + 1)][where[:, index + 1 :]] @ self.output.to(states.dtype).T
            said = teacher.imitation(logits, *self.labels(batch, where))
            total = total + FALLING**index * mean(said, batch.counts[where])
        return total

    def guesses(self, text: StoredRow) -> list[torch.Tensor]:
        """int64[places] for each depth, as in `Student`; the newest state is that of the token before the last."""
        text = text.to(self.target.device)
        heads = self.module(self.state(text.states, -1).float()[None])
        first, output = torch.zeros_like(text.ids[:1]), self.output.to(heads[0].dtype)
        return [torch.cat((first, (states[0] @ output.T).argmax(-1))) for states in heads]


def llama_settings(config: Any) -> dict[str, Any]:
    """What a one-layer head takes over from the target's configuration. Raises DecError where that lacks something."""
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
    missing = [name for name in names if not hasattr(config, name)]
    if missing:
        raise DecError(f"this head is one Llama layer, and the target's configuration has no {', '.join(missing)}")
    return {**{name: getattr(config, name) for name in names}, "num_hidden_layers": 1}


def mean(values: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """The mean of `values`, each as often as it counts; both [places]."""
    return (values * counts).sum() / counts.sum().clamp_min(1)
