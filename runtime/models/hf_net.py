"""A transformers model as a function of (fresh positions, cached rows), through its registered attention interface.

The model's own code runs unmodified: embedding, rotary positions, layers, norm. Attention is ours. Every
fresh position is a query; the keys are the cached and the fresh rows; the caller computes the boolean attention mask
from positions, so no mask of the library is used. One forward thus serves a chain, a tree of
paths (each node attends to its ancestors) and a canvas on top of a memory (the fresh positions attend to the cached
ones), always with batch size one.

Needs: decoder or encoder layers in a list that pass unknown keyword arguments on to attention, as Llama, Qwen, Mistral, BERT,
EuroBERT and ModernBERT do. Loading checks this.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface

from decgraph.errors import DecError
from decgraph.runtime.models.hf_parts import Entering, part_of, reading
from decgraph.runtime.models.parts import Use
from decgraph.runtime.models.rotary import boundary_of
from decgraph.runtime.models.rounding import rounded
from decgraph.runtime.models.shadow import borrows
from decgraph.runtime.models.tape import Tape

ATTENTION = "decgraph_positions"


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    decgraph: Tape | None = None,
    sliding_window: int | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Softmax attention of queries [1, heads, fresh, dim] over cached and fresh rows, weights in float32."""
    if decgraph is None:
        raise DecError("the model does not hand keyword arguments on to its attention")
    if others.get("softcap") is not None or others.get("s_aux") is not None:
        raise DecError(f"{type(module).__name__} needs soft caps or sinks, which decgraph's attention lacks")
    tape, layer = decgraph, int(module.layer_idx)
    tape.keys[layer], tape.values[layer] = key[0].transpose(0, 1), value[0].transpose(0, 1)
    tape.queries[layer] = query[0].transpose(0, 1)
    keys, values = tape.keys[layer], tape.values[layer]
    positions, visible = tape.positions, tape.visible
    if layer in tape.held:
        held = tape.held[layer]
        keys, values = torch.cat([held.keys, keys]), torch.cat([held.values, values])
        positions = torch.cat([held.positions, positions])
        visible = torch.cat([held.visible, visible], dim=1)
    if sliding_window is not None:
        visible = visible & ((tape.positions[:, None] - positions[None]).abs() < sliding_window)
    groups = query.shape[1] // keys.shape[1]
    keys = keys.repeat_interleave(groups, dim=1).permute(1, 2, 0)
    values = values.repeat_interleave(groups, dim=1).transpose(0, 1)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    scores = (query[0] @ keys * scale).masked_fill(~visible, float("-inf"))
    weights = scores.softmax(dim=-1, dtype=torch.float32)
    if tape.attended is not None:
        tape.attended.index_add_(0, positions, weights.double().mean(dim=(0, 1)))
    weights = weights.to(query.dtype)
    return (weights @ values).transpose(0, 1)[None].contiguous(), None


# A name of its own without a mask function: transformers then creates no masks.
AttentionInterface.register(ATTENTION, _attention)


class Net:
    """A loaded model in evaluation mode. `base` returns last hidden states, `output` turns them into logits.

    readout: what turns last hidden states into logits, where that is neither the output matrix nor `head` and the output matrix
    (encoders: `masked_net`); such a model may lack a final norm.
    """

    def __init__(self, model: Any, readout: nn.Module | None = None) -> None:
        boundary = boundary_of(model.config)
        if boundary is not None and boundary.recomputed:
            raise DecError(f"{type(model).__name__} is not supported: its {boundary.kind} changes all rows of a cache")
        model.eval()
        if not borrows(model):
            model.requires_grad_(False)
        self.base: Any = model.base_model
        self.layers = list(layer_list(self.base)[-1])  # all that there are; `uses` says which of them `base` runs
        self.uses: tuple[Use, ...] = tuple(Use(index) for index in range(len(self.layers)))
        self.norm: Any = next((getattr(self.base, n) for n in ("norm", "final_norm") if hasattr(self.base, n)), None)
        # ModernBERT's, between the last state and the output matrix
        self._head: Any = getattr(model, "head", None) if readout is None else None
        self._out: Any = model.get_output_embeddings() if readout is None else readout
        if self._out is None or (self.norm is None and readout is None):
            raise DecError(f"{type(model).__name__} is not supported: no final norm or no output matrix was found")
        if getattr(model.config, "final_logit_softcapping", None):
            raise DecError(f"{type(model).__name__} is not supported: it caps its logits")
        if any(getattr(model.config, name, None) not in (None, 1.0) for name in ("logit_scale", "logits_scaling")):
            raise DecError(f"{type(model).__name__} is not supported: it scales its logits")
        for index, layer in enumerate(self.layers):
            layer.register_forward_pre_hook(_recorder(index), with_kwargs=True)
        at = self.embedding.device
        probe = Tape(torch.zeros(1, dtype=torch.long, device=at), torch.ones(1, 1, dtype=torch.bool, device=at))
        self.run(torch.zeros(1, dtype=torch.long, device=at), probe)
        if set(probe.keys) != set(range(len(self.layers))) or set(probe.states) != set(probe.keys):
            raise DecError(f"{type(model).__name__} is not supported: its layers do not use the attention registered")

    @property
    def config(self) -> dict[str, Any]:
        """The settings, as config.json has them."""
        found: dict[str, Any] = self.base.config.get_text_config().to_dict()
        return found

    @property
    def lookup(self) -> Any:
        """Embeddings of tokens: the module's own."""
        return self.base.get_input_embeddings()

    @property
    def read(self) -> Any:
        """Last states [..., width] to logits [..., vocabulary], in the weights' dtype."""
        return self._out

    @property
    def output(self) -> Tensor:
        """The output matrix [vocabulary, width]."""
        weight: Tensor = self._out.weight
        return weight

    def parameters(self) -> Iterator[Tensor]:
        """The weights [...]."""
        yield from self.base.parameters()

    def expert(self, rank: int, name: str) -> Net:
        """See `hf_experts.expert_net`."""
        from decgraph.runtime.models.hf_experts import expert_net

        return expert_net(self, rank, name)

    @property
    def width(self) -> int:
        """The size of a hidden state."""
        return int(self.embedding.shape[1])

    @property
    def device(self) -> torch.device:
        """Where the weights lie, and so what is computed."""
        return self.embedding.device

    @property
    def embedding(self) -> Tensor:
        """The input embeddings [vocabulary, width]."""
        weight: Tensor = self.base.get_input_embeddings().weight
        return weight

    @torch.no_grad()
    def run(self, cells: Tensor, tape: Tape) -> Tensor:
        """The last hidden states [fresh, width], after the final norm, of fresh positions: token ids int64[fresh]
        or embeddings [fresh, width]. Fills in the tape."""
        given = {"inputs_embeds" if cells.is_floating_point() else "input_ids": cells[None]}
        out = self.base(**given, position_ids=tape.positions[None], decgraph=tape)
        last: Tensor = out.last_hidden_state[0]
        return last

    @torch.no_grad()
    def logits(self, states: Tensor) -> Tensor:
        """Logits float64[n, vocabulary] of last hidden states [n, width]."""
        logits: Tensor = self._out(states if self._head is None else self._head(states))
        return logits.double()

    @torch.no_grad()
    def normed(self, states: Tensor) -> Tensor:
        """The final norm of states [n, width] that have not been through it. Raises DecError for a model without one."""
        if self.norm is None:
            raise DecError(f"{type(self.base).__name__} has no final norm, so no layer but its last can be read out")
        out: Tensor = self.norm(states)
        return out

    def using(self, uses: Sequence[Use | int]) -> Net:
        """The same weights with only these layers, or parts of layers."""
        made = copy.copy(self)
        made.uses = tuple(use if isinstance(use, Use) else Use(use) for use in uses)
        groups: dict[int, Entering] = {use.reads: Entering() for use in made.uses if use.reads is not None}
        parts = [reading(part_of(self.layers[use.layer], use), use, groups) for use in made.uses]
        made.base = _with_layers(self.base, nn.ModuleList(parts))
        return made

    def without_norm(self) -> Net:
        """The same layers, whose last states have not been through the final norm."""
        made = copy.copy(self)
        made.base = copy.copy(self.base)
        made.base._modules = {k: nn.Identity() if v is self.norm else v for k, v in self.base._modules.items()}
        return made

    def quantized(self, bits: int) -> Net:
        """The same layers with their matrices rounded to so many bits, row by row."""
        made = self.copied()
        for layer in made.layers:
            for part in layer.modules():
                if isinstance(part, nn.Linear):
                    part.weight.data = rounded(part.weight.data, bits)
        return made.using(self.uses)

    def copied(self, shared: Iterable[Any] = ()) -> Net:
        """The same net with copies of the layers, in which these objects are not copied; `base` is not changed."""
        made = copy.copy(self)
        configs = (self.base.config, self.base.config.get_text_config())  # shared: it says which attention runs
        known = {id(one): one for one in (*configs, *shared)}
        made.layers = [copy.deepcopy(layer, dict(known)) for layer in self.layers]
        return made


_LISTS = (("layers",), ("encoder", "layer"), ("transformer", "layer"), ("encoder", "layers"))
"""Where models have their layers: decoders and newer encoders, BERT and its like, DistilBERT."""


def layer_list(base: Any) -> list[Any]:
    """The modules from a base model down to its list of layers, the list last. Raises DecError for a model without one."""
    for names in _LISTS:
        found = [base]
        for name in names:
            found.append(getattr(found[-1], name, None))
        if isinstance(found[-1], nn.ModuleList):
            return found
    raise DecError(f"{type(base).__name__} is not supported: it has no list of layers")


def _with_layers(base: Any, layers: nn.ModuleList) -> Any:
    """A base model with another list of layers, everything else shared."""
    old, new = layer_list(base), layers
    for outer, inner in zip(reversed(old[:-1]), reversed(old[1:]), strict=True):
        made = copy.copy(outer)
        made._modules = {name: new if child is inner else child for name, child in outer._modules.items()}
        new = made
    return new


def is_recorder(hook: Any) -> bool:
    """Whether a hook is one that `Net` registers."""
    return getattr(hook, "__module__", None) == __name__


def _recorder(index: int) -> Any:  # Any: what register_forward_pre_hook takes
    def record(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        tape = kwargs.get("decgraph")
        if tape is not None:
            tape.states[index] = (args[0] if args else kwargs["hidden_states"])[0]

    return record


def plainly(net: Net) -> Callable[[Tensor], Tensor]:
    """Token ids int64[1, n] to last states [1, n, width] of one path, without a cache."""

    def last(ids: Tensor) -> Tensor:
        count = ids.shape[1]
        tape = Tape(torch.arange(count, device=ids.device), torch.ones(count, count, dtype=torch.bool).tril().to(ids.device))
        return net.run(ids[0], tape)[None]

    return last
