"""Training of the heads on the target's hidden states: Medusa, EAGLE, and the Kangaroo exit adapter.

The target is frozen; each head learns, on the rows of the pool, to lead the target's own lm head to the
target's own next tokens. The heads are small and the teacher's hidden states are recomputed for every batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from decgraph.zoo import loop, pool
from decgraph.zoo.optim import Optimizer

ROWS = 12
HARD = 0.5
FROM = 4
MEDUSA_HEADS = 4
EXIT_LAYER = 2
FEATURE_WEIGHT = 0.2


def _llama_settings(config: Any) -> dict[str, Any]:
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


def new_head(name: str, target: Any) -> Any:
    """An untrained `medusa`, `eagle` or `exit` head for this target."""
    from decgraph.zoo import modeling

    if name == "medusa":
        return modeling.MedusaHeads(modeling.MedusaConfig(hidden_size=target.config.hidden_size, heads=MEDUSA_HEADS))
    if name == "exit":
        settings = _llama_settings(target.config)
        head: Any = modeling.ExitAdapter(modeling.ExitConfig(exit_layer=EXIT_LAYER, **settings))
        # The adapter starts as the target's last layer, which already knows how to end in the final norm.
        head.layer.load_state_dict(target.model.layers[-1].state_dict())
        return head
    head = modeling.EagleHead(modeling.EagleConfig(**_llama_settings(target.config)))
    torch.nn.init.zeros_(head.layer.self_attn.o_proj.weight)
    torch.nn.init.zeros_(head.layer.mlp.down_proj.weight)
    head.embed_tokens.load_state_dict(target.model.embed_tokens.state_dict())
    head.embed_tokens.weight.requires_grad_(False)
    return head


def medusa_loss(heads: Any, target: Any, hidden: Any, ids: torch.Tensor, lesson: Any) -> torch.Tensor:
    """Head i at place t against the target's view of place t + i + 2, that is of its row t + i + 1: a scalar."""
    top, weights = lesson
    total = torch.zeros(())
    for i, states in enumerate(heads(hidden[-1])):
        logits = target.lm_head(states[:, FROM : -(i + 1)])
        # Far heads are hard and matter less: an early miss makes them irrelevant.
        total = total + 0.8**i * pool.imitation(logits, top[:, FROM + i + 1 :], weights[:, FROM + i + 1 :])
    return total


def eagle_loss(head: Any, target: Any, hidden: Any, ids: torch.Tensor, lesson: Any) -> torch.Tensor:
    """The next feature and the target's view there; once from true features, once from the head's own: a scalar."""
    top, weights = lesson
    true = hidden[-1]
    tokens, features = ids[:, 1:], true[:, :-1]
    total = torch.zeros(())
    for share in (1.0, 0.7):
        guessed = head(tokens, features)
        logits = target.lm_head(guessed[:, FROM:])
        said = pool.imitation(logits, top[:, FROM + 1 :], weights[:, FROM + 1 :])
        close = F.smooth_l1_loss(guessed[:, FROM:].float(), true[:, FROM + 1 :].float())
        total = total + share * (said + FEATURE_WEIGHT * close)
        # Deeper in a draft the features are guesses: the guess at place i stands in for true feature i + 1.
        features = torch.cat((true[:, :1], guessed[:, :-1].detach()), dim=1)
    return total


def exit_loss(head: Any, target: Any, hidden: Any, ids: torch.Tensor, lesson: Any) -> torch.Tensor:
    """The adapter's view of the next token against the target's: a scalar."""
    top, weights = lesson
    logits = target.lm_head(target.model.norm(head(hidden[EXIT_LAYER])))[:, FROM:]
    return pool.imitation(logits, top[:, FROM:], weights[:, FROM:])


LOSSES: dict[str, Callable[..., torch.Tensor]] = {
    "medusa": medusa_loss,
    "eagle": eagle_loss,
    "exit": exit_loss,
}


def train(name: str, out: Path, target_folder: Path, budget: loop.Budget, *, written: int, plain: int) -> loop.Outcome:
    """Train the head `name` for the target in `target_folder` and write it to `out`."""
    from transformers import AutoModelForCausalLM

    lessons = pool.obtain(target_folder, budget.work, written=written, plain=plain, seed=budget.seed)
    labels = pool.soft_labels(lessons.logp, HARD)
    torch.manual_seed(budget.seed)
    target = AutoModelForCausalLM.from_pretrained(target_folder, dtype=torch.float32).eval().requires_grad_(False)
    head = new_head(name, target)

    def loss_of(step: int, progress: float) -> Iterator[torch.Tensor]:
        rows = torch.randint(0, len(lessons.ids), (ROWS,), generator=loop.rng(budget.seed, step))
        ids = lessons.ids[rows]
        with torch.autocast("cpu", torch.bfloat16):
            with torch.no_grad():
                hidden = target.model(ids, use_cache=False, output_hidden_states=True).hidden_states
            loss = LOSSES[name](head, target, hidden, ids, (lessons.top[rows], labels[rows]))
        yield loss

    def export(weights: dict[str, torch.Tensor], outcome: loop.Outcome) -> None:
        loop.save_model(head, out, weights, outcome)

    settings = {"rows_written_by_target": lessons.written, "rows_of_code": len(lessons.ids) - lessons.written}
    gentle = Optimizer(head, matrix_lr=0.02, other_lr=2e-3)
    return loop.fit(head, loss_of, export, name=name, budget=budget, optimizer=gentle, settings=settings)
