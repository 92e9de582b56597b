"""An EAGLE-3 head (Li et al., 2025) in the layout that its authors publish, and the loss it is trained with.

Features are the inputs of three of the target's layers. Pair i is (feature of token i, token i + 1) and guesses
token i + 2. One layer reads the embedding of the token and the fused features side by side; deeper in a draft its
own output takes the features' place. The output matrix covers the draft vocabulary only.

"Training-time test": the head is unrolled on its own outputs. Step s of base i stands for the pair i + s of a
draft that begins after pair i: it attends to the pairs up to i as the target's features made them, and to the
steps 1..s of its own draft.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from decgraph.zoo.training.teacher import TOP, imitation, soft_labels


def feature_layers(layers: int) -> tuple[int, int, int]:
    """The layers whose inputs are the features, as the authors' code has them. They differ from 7 layers on."""
    return (2, layers // 2, layers - 3)


class _Norm(nn.Module):
    """Root-mean-square norm with a weight."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(states.float(), self.weight.shape, self.weight, self.eps).to(states.dtype)


class _Attention(nn.Module):
    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        width, heads, shared = (config[name] for name in ("hidden_size", "num_attention_heads", "num_key_value_heads"))
        self.size = config.get("head_dim") or width // heads
        self.heads, self.shared, self.theta = heads, shared, config["rope_theta"]
        self.q_proj = nn.Linear(2 * width, heads * self.size, bias=False)
        self.k_proj = nn.Linear(2 * width, shared * self.size, bias=False)
        self.v_proj = nn.Linear(2 * width, shared * self.size, bias=False)
        self.o_proj = nn.Linear(heads * self.size, width, bias=False)

    def split(self, states: torch.Tensor, places: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries [batch, shared, group, length, size], keys and values [batch, shared, 1, length, size]."""
        batch, length, _ = states.shape
        angle = places[:, None] * self.theta ** (-torch.arange(0, self.size, 2, device=places.device) / self.size)
        cos, sin = (torch.cat((part, part), -1) for part in (angle.cos(), angle.sin()))

        def part(layer: nn.Linear, rows: int, turn: bool) -> torch.Tensor:
            value = layer(states).view(batch, length, self.shared, rows, self.size).permute(0, 2, 3, 1, 4)
            if not turn:
                return value
            first, second = value.float().chunk(2, -1)
            return (torch.cat((first, second), -1) * cos + torch.cat((-second, first), -1) * sin).to(value.dtype)

        group = self.heads // self.shared
        return part(self.q_proj, group, True), part(self.k_proj, 1, True), part(self.v_proj, 1, False)


class _Mlp(nn.Module):
    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        width, inner = config["hidden_size"], config["intermediate_size"]
        self.gate_proj = nn.Linear(width, inner, bias=False)
        self.up_proj = nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return self.down_proj(F.silu(self.gate_proj(states)) * self.up_proj(states))


class _Layer(nn.Module):
    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        width, eps = config["hidden_size"], config["rms_norm_eps"]
        self.self_attn, self.mlp = _Attention(config), _Mlp(config)
        self.hidden_norm, self.input_layernorm = _Norm(width, eps), _Norm(width, eps)
        self.post_attention_layernorm = _Norm(width, eps)


class Eagle3(nn.Module):
    """The head; parameters are named as in the published folders. `ids` int64[draft vocabulary] are its tokens."""

    d2t: torch.Tensor
    t2d: torch.Tensor

    def __init__(self, config: dict[str, Any], ids: torch.Tensor) -> None:
        super().__init__()
        width = config["hidden_size"]
        self.config = config
        self.fc = nn.Linear(config.get("feature_size", 3 * width), width, bias=False)
        self.midlayer = _Layer(config)
        self.norm = _Norm(width, config["rms_norm_eps"])
        self.lm_head = nn.Linear(width, len(ids), bias=False)
        self.register_buffer("d2t", ids - torch.arange(len(ids)))
        kept = torch.zeros(config["vocab_size"], dtype=torch.bool)
        kept[ids] = True
        self.register_buffer("t2d", kept)

    @property
    def ids(self) -> torch.Tensor:
        """The tokens of the draft vocabulary, int64[draft vocabulary], ascending."""
        return self.d2t + torch.arange(len(self.d2t), device=self.d2t.device)

    def unroll(self, features: torch.Tensor, embedded: torch.Tensor, steps: int) -> list[torch.Tensor]:
        """States [batch, pairs - s, width] before the norm, for each step s; row i is base i and guesses token i + s + 2.

        `features` [batch, pairs, 3 * width]; `embedded` [batch, pairs, width] are the tokens after them.
        """
        layer, attention = self.midlayer, self.midlayer.self_attn
        hidden = self.fc(features)
        words = layer.input_layernorm(embedded)
        length = words.shape[1]
        causal = torch.full((length, length), -math.inf, device=words.device).triu(1)
        outs: list[torch.Tensor] = []
        first: tuple[torch.Tensor, torch.Tensor] | None = None
        past: list[tuple[torch.Tensor, torch.Tensor]] = []
        for step in range(steps):
            count = length - step
            if step:
                hidden = outs[-1][:, :count]
            joined = torch.cat((words[:, step:], layer.hidden_norm(hidden)), -1)
            query, key, value = attention.split(joined, torch.arange(step, length, device=words.device))
            if first is None:
                first = key, value
            else:
                past = [(old[0][..., :count, :], old[1][..., :count, :]) for old in past] + [(key, value)]
            first_key, first_value = first
            scores = query @ first_key[..., :count, :].transpose(-1, -2) / math.sqrt(attention.size)
            scores = scores.float() + causal[:count, :count]
            # What the draft itself has written is one key per base: elementwise, not a matrix.
            own = [(query.float() * old[0].float()).sum(-1, keepdim=True) / math.sqrt(attention.size) for old in past]
            weights = torch.cat((scores, *own), -1).softmax(-1).to(value.dtype)
            mixed = weights[..., :count] @ first_value[..., :count, :]
            for index, old in enumerate(past):
                mixed = mixed + weights[..., count + index, None] * old[1]
            batch = len(mixed)
            mixed = mixed.permute(0, 3, 1, 2, 4).reshape(batch, count, -1)
            states = hidden + attention.o_proj(mixed)
            outs.append(states + layer.mlp(layer.post_attention_layernorm(states)))
        return outs

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        """Logits over the draft vocabulary for states of any shape [..., width]."""
        return self.lm_head(self.norm(states))


def new_head(target: Any, ids: torch.Tensor, *, inner: int | None = None) -> Eagle3:
    """A head for `target` with the draft vocabulary `ids`; where shapes agree it starts as the target's last layer.

    The fused features start as the deepest of the three. The output matrix is the target's own rows and stays so: it is half of
    the head, and trained on little text it forgets the tokens that this text does not have.
    """
    source = target.config.get_text_config()
    width = source.hidden_size
    rope = getattr(source, "rope_parameters", None) or {}
    config = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "vocab_size": source.vocab_size,
        "draft_vocab_size": len(ids),
        "hidden_size": width,
        "intermediate_size": inner or source.intermediate_size,
        "num_hidden_layers": 1,
        "num_attention_heads": source.num_attention_heads,
        "num_key_value_heads": getattr(source, "num_key_value_heads", source.num_attention_heads),
        "head_dim": getattr(source, "head_dim", None) or width // source.num_attention_heads,
        "max_position_embeddings": source.max_position_embeddings,
        "rms_norm_eps": getattr(source, "rms_norm_eps", 1e-6),
        "rope_theta": float(rope.get("rope_theta", 10000.0)),
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        **{name: getattr(source, name, None) for name in ("bos_token_id", "eos_token_id", "pad_token_id")},
    }
    head = Eagle3(config, ids)
    with torch.no_grad():
        for weight in (head.midlayer.self_attn.o_proj.weight, head.midlayer.mlp.down_proj.weight):
            weight.zero_()
        for name in ("q_proj", "k_proj", "v_proj"):
            getattr(head.midlayer.self_attn, name).weight.mul_(0.5)
        head.fc.weight.normal_(0, 0.02 / math.sqrt(3))
        head.fc.weight[:, -width:] += torch.eye(width)
        head.lm_head.weight.copy_(target.get_output_embeddings().weight[ids])
        head.lm_head.weight.requires_grad_(False)
        _take_over(head, target, width)
    return head


def _take_over(head: Eagle3, target: Any, width: int) -> None:
    """Copy the weights of the target's last layer and final norm where the shapes agree."""
    inner = target.base_model
    last = inner.layers[-1] if hasattr(inner, "layers") else None
    known = dict(last.named_parameters()) if last is not None else {}
    for name, parameter in head.midlayer.named_parameters():
        old = known.get(name if name != "hidden_norm.weight" else "input_layernorm.weight")
        if old is None or name == "input_layernorm.weight":
            continue
        if parameter.shape == old.shape:
            parameter.copy_(old)
        elif parameter.shape == (old.shape[0], 2 * width) and old.shape[1] == width:
            parameter[:, :width] *= 0.2
            parameter[:, width:] = old
    norm = getattr(inner, "norm", None)
    if norm is not None and getattr(norm, "weight", torch.empty(0)).shape == head.norm.weight.shape:
        head.norm.weight.copy_(norm.weight)


def loss(
    head: Eagle3,
    features: torch.Tensor,
    embedded: torch.Tensor,
    said: torch.Tensor,
    counts: torch.Tensor,
    *,
    output: torch.Tensor,
    steps: int,
    hard: float,
    falling: float = 0.8,
) -> torch.Tensor:
    """The loss of one batch: cross entropy against the target's likeliest tokens among some, all steps summed.

    `features` [batch, length, 3 * width] and `embedded` [batch, length, width] belong to tokens 0..length-1,
    `output` [tokens, width] are the rows of the target's output matrix for the tokens that the loss distinguishes, `said`
    [batch, length, tokens] the target's logits for them after each place, `counts` [batch, length] how much a guess of the
    token after each counts (0: not at all). A share `hard` of the label lies on the target's first choice.
    """
    with torch.no_grad():
        values, top = said.topk(min(TOP, said.shape[-1]))
        weights = soft_labels(values.float().log_softmax(-1), hard)
    total = torch.zeros(())
    outs = head.unroll(features[:, :-1], embedded[:, 1:], steps)
    for step, states in enumerate(outs):
        counted = counts[:, step + 1 :]
        where = counted > 0
        each = imitation(F.linear(head.norm(states[where]), output), top[:, step + 1 :][where], weights[:, step + 1 :][where])
        total = total + falling**step * (each * counted[where]).sum() / counted.sum().clamp_min(1)
    return total
