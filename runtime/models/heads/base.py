"""What the modules of drafting heads have in common: their configuration, and an output matrix that may be the target's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor, nn

from decgraph.errors import DecError
from decgraph.runtime.models.config import number, whole
from decgraph.runtime.native.products import output_of

if TYPE_CHECKING:
    from transformers import PretrainedConfig


class LayerConfig:
    """The shape of a head's decoder layers, in Llama's names and with Llama's defaults. Raises ValueError for numbers
    that are none."""

    NUMBERS = {
        "vocab_size": 32000,
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "max_position_embeddings": 2048,
    }
    SETTINGS = (*NUMBERS, "num_key_value_heads", "head_dim", "rms_norm_eps", "rope_parameters", "rope_theta", "rope_scaling",
                "hidden_act")  # fmt: skip

    def __init__(self, config: Mapping[str, object]) -> None:
        given = {key: config[key] for key in self.SETTINGS if config.get(key) is not None}
        sizes: dict[str, int] = dict(self.NUMBERS)
        for key, value in given.items():
            if key not in (*self.NUMBERS, "head_dim"):
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < (key != "vocab_size"):
                raise ValueError(f"{key} is {value!r}, and must be a whole number")
            sizes[key] = value
        self.vocab_size = sizes["vocab_size"]
        self.hidden_size = sizes["hidden_size"]
        self.intermediate_size = sizes["intermediate_size"]
        self.num_hidden_layers = sizes["num_hidden_layers"]
        self.num_attention_heads = sizes["num_attention_heads"]
        self.num_key_value_heads = whole(given, "num_key_value_heads", self.num_attention_heads)
        self.head_dim = sizes.get("head_dim") or self.hidden_size // self.num_attention_heads
        self.rms_norm_eps = number(given, "rms_norm_eps", 1e-6)
        self.hidden_act = str(given.get("hidden_act", "silu"))
        self._settings = given

    def to_dict(self) -> dict[str, object]:
        """As a configuration of Llama."""
        own = {key: getattr(self, key) for key in self.SETTINGS if hasattr(self, key)}
        return {"model_type": "llama", **self._settings, **own}


class DraftLayers(Protocol):
    """A drafting head's module, as those of runtime/models/heads and zoo/modeling.py are."""

    config: LayerConfig | PretrainedConfig
    layers: nn.ModuleList
    rotary: nn.Module


class Head(nn.Module):
    """A drafting head. `config` says the shape of its layers, `options` what else its kind has.

    own_output: whether its logits are more than the target's output matrix of its states: it has a matrix or a norm of its own
    (`read_out`), over the target's whole vocabulary. A head without an embedding or a matrix of its own gets the target's
    (`attach`).
    """

    own_output = False
    embed_tokens: nn.Embedding | None
    output: nn.Module | None

    def __init__(self, config: Mapping[str, object]) -> None:
        super().__init__()
        self.embed_tokens = self.output = None
        self.shape = LayerConfig(config)
        self.config: LayerConfig | PretrainedConfig = self.shape  # an MTP layer has its target's
        self.options: dict[str, object] = {key: value for key, value in config.items() if key not in LayerConfig.SETTINGS}
        self.vocab = whole(config, "vocab_size", 0)  # 0: it neither reads nor gives tokens
        self._embed: Callable[[Tensor], Tensor] | None = None
        self._output: Callable[[Tensor], Tensor] | None = None

    def attach(self, embedding: Tensor, output: Callable[[Tensor], Tensor], layers: int) -> None:
        """A target: its embeddings [V, width], its output matrix (states to logits) and the number of its layers. Raises
        DecError where the head needs one that does not fit."""
        if self.output is None:
            self._output = output
        if self.embed_tokens is None:
            if embedding.shape[1] != self.config.hidden_size:
                raise DecError(
                    f"the head has no embedding of its own, and the target's has width {embedding.shape[1]} where the head's "
                    f"states have {self.config.hidden_size}"
                )
            self._embed = lambda tokens: nn.functional.embedding(tokens, embedding)

    def embed(self, tokens: Tensor) -> Tensor:
        """Embeddings [..., hidden] of token ids int64[...]."""
        if self.embed_tokens is not None:
            found: Tensor = self.embed_tokens(tokens)
            return found
        assert self._embed is not None, "attach comes before use"
        return self._embed(tokens)

    def logits(self, states: Tensor) -> Tensor:
        """Logits [n, V] of states [n, hidden]: by the head's own output matrix, or by the target's."""
        made: Tensor | None = None if self.output is None else self.output(states)
        if made is not None:
            return made
        assert self._output is not None, "attach comes before use"
        return (output_of(self._output) if isinstance(self._output, nn.Module) else self._output)(states)


class DraftHead:
    """A module that drafts from the target's states (`features`), whoever calls it: engines and devices node by node on what
    they keep, the reference whole.

    reads: which of the target's states it is given side by side: the layers whose inputs are read, in order (the number of
    layers: its last states after the final norm). None: the last states alone. depth: how many tokens after the root it drafts
    at most, the root's among them, None: any. stated: whether the states that its scores are made of may be read as values.
    own_output: whether logits come from `read_out`; otherwise the target's output matrix reads own states as they are.
    """

    own_output = False
    reads: tuple[int, ...] | None = None
    depth: int | None = None
    stated = True

    def drafted(self, states: Tensor, at: Tensor, tokens: Tensor, known: int) -> list[Tensor]:
        """The states of which scores are made, of each of `tokens` int64[m] from position `known` on. states: the target's
        [n, k width] at positions int64[n] before that, or n = 0. Everything is computed anew."""
        raise NotImplementedError

    def read_out(self, states: Tensor, drafted: int = 0) -> Tensor:
        """Logits [n, V] of own states [n, width] after so many drafted tokens, of a head with `own_output`."""
        raise NotImplementedError

    def handed_on(self, state: Tensor, drafted: int) -> Tensor:
        """An own state [width] after so many drafted tokens as others read it as a value."""
        return state

    def check_depth(self, count: int, name: str) -> None:
        """Raises DecError for more tokens from the root on than it has heads, layers or places for."""
        if self.depth is not None and count > self.depth:
            raise DecError(f"{name!r} drafts at most {self.depth} tokens", hint="a smaller tree, or fewer tokens a step")


OUTSIDE = -1e9
"""The logit of a token that a head has no row for: its probability is 0. It is not -inf: a grammar may allow such tokens
alone; one of them is then drafted and verified, where no token at all would end the run."""


def outside(dtype: torch.dtype) -> float:
    """`OUTSIDE`, or a number of a smaller type that is as good."""
    return max(OUTSIDE, torch.finfo(dtype).min / 2)


class DraftOutput(nn.Module):
    """An output matrix over some tokens of a vocabulary of `size`: the others have no probability (`OUTSIDE`).

    `tokens` int64[draft] are the ids of its rows; None: its rows are the vocabulary. shared: the rows are the target's, which
    `share` brings; no file holds them.
    """

    tokens: Tensor | None
    matrix: nn.Linear

    def __init__(self, width: int, rows: int, size: int, *, mapped: bool, bias: bool = False, shared: bool = False) -> None:
        super().__init__()
        if not shared:
            self.matrix = nn.Linear(width, rows, bias=bias)
        self.size = size
        self.register_buffer("tokens", torch.zeros(rows, dtype=torch.int64) if mapped else None)

    def forward(self, states: Tensor) -> Tensor:
        """Logits [n, size] of states [n, width]."""
        return self.spread(output_of(self.matrix)(states))

    def share(self, output: Callable[[Tensor], Tensor]) -> None:
        """Copy the rows at `tokens` of a target's output, which gives logits [n, V] of states [n, width]. Raises DecError for
        an output that is more than a matrix, and for tokens that it has no rows for."""
        if not isinstance(output, nn.Linear) or type(output) is not nn.Linear or not output.weight.is_floating_point():
            raise DecError(
                f"the head reads the target's output matrix, which is a {type(output).__name__} here and not a plain matrix",
                hint="a head with `lm_head.weight` in its folder reads its own",
            )
        assert self.tokens is not None, "without a map the head reads the target's whole matrix"
        if int(self.tokens.max()) >= len(output.weight):
            raise DecError(
                f"the head's draft vocabulary has the token {int(self.tokens.max())}, and the target's output matrix has "
                f"{len(output.weight)} rows"
            )
        at = self.tokens.to(output.weight.device)
        with torch.no_grad():
            self.matrix = nn.Linear(output.in_features, len(at), bias=output.bias is not None, device="meta")
            self.matrix.weight = nn.Parameter(output.weight[at], requires_grad=False)
            if output.bias is not None:
                self.matrix.bias = nn.Parameter(output.bias[at], requires_grad=False)

    def spread(self, logits: Tensor) -> Tensor:
        """Logits [n, rows of the matrix] as logits [n, V]: `OUTSIDE` for the tokens that have no row."""
        if self.tokens is None:
            return logits
        return logits.new_full((len(logits), self.size), outside(logits.dtype)).index_copy_(1, self.tokens, logits)
