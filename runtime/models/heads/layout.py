"""What reading a published layout gives: a kind of head of ours, its configuration, and its tensors by our names.

A layout says by which names its tensors go (`Renaming`); shapes come from the tensors wherever they say them, since published
configurations are often those of the target. Tensors that the head has not, and those that it lacks, are errors: loaders that
skip them leave random weights behind.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from torch import Tensor

from decgraph.errors import DecError
from decgraph.runtime.models.heads.files import Tensors

Config = dict[str, object]
Part = Literal["features", "heads", "layers", "head"]
Beside = Literal["features", "dist", "prob"]
"""What a folder has beside its head: what corrects the head's scores, bound to a part on features or to one that gives a
distribution of each state and token; and what gives a probability of them."""
_USELESS = ("rotary_emb.inv_freq",)  # what old versions of transformers stored with a model


@dataclass(frozen=True)
class HeadFolder:
    """A folder: its configuration and its tensors."""

    folder: Path
    config: Config
    tensors: Tensors

    def shape(self, name: str) -> tuple[int, ...]:
        """A tensor's shape. Raises DecError, with the tensor's name, if the folder has none of that name."""
        if name not in self.tensors:
            raise DecError(f"{self.folder} has no tensor {name}", hint=f"it has {some(self.tensors)}")
        return tuple(self.tensors[name].shape)

    def said(self, key: str) -> object:
        """What DFlash's configurations say, in a part of their own or at the top; None where they do not."""
        own = self.config.get("dflash_config") or self.config.get("dspark_config") or {}
        return (own if isinstance(own, dict) else {}).get(key, self.config.get(key))

    def number(self, key: str, otherwise: int | None = None, *, of: Config | None = None) -> int:
        """A whole number of the configuration. Raises DecError for one that is missing, or no whole number."""
        value = (self.config if of is None else of).get(key, otherwise)
        if isinstance(value, bool) or not isinstance(value, int):
            what = "has no" if value is None else f"has {value!r} for"
            raise DecError(f"{self.folder / 'config.json'} {what} {key}", hint=f'"{key}": a whole number')
        return value


@dataclass(frozen=True)
class ReadHead:
    """A head that was read: `model_type` names its module (load.py), `part` what it can be bound to."""

    layout: str
    part: Part
    model_type: str
    config: Config
    tensors: dict[str, Tensor]
    stored: dict[str, str] = field(default_factory=dict)  # our names' beginnings -> those in the file, for messages
    beside: tuple[str, ...] = ()  # other parts that its folder has

    def name(self, ours: str) -> str:
        """A tensor's name in the file, of our name."""
        for begin, published in sorted(self.stored.items(), key=lambda pair: -len(pair[0])):
            if ours.startswith(begin):
                return published + ours.removeprefix(begin)
        return ours


@dataclass(frozen=True)
class HeadLayout:
    """A published layout. looks: whether a configuration and tensors' names are of this layout. read: reads it. beside: reads
    what else it has. what: which files and tensors it has, for messages."""

    name: str
    what: str
    looks: Callable[[Config, Collection[str]], bool]
    read: Callable[[HeadFolder], ReadHead]
    beside: Callable[[HeadFolder, Beside], ReadHead] | None = None


def renamed(
    source: HeadFolder, rules: Mapping[str, str], *, drop: Iterable[str] = ()
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The source's tensors, of any shapes, by our names, and how to get back. rules: beginnings in the file -> ours, the
    longest first; a name without a rule stays. drop: names that are not part of the head. Raises DecError for two tensors that
    are one part."""
    out, left = dict[str, Tensor](), set(drop)
    for name in source.tensors:
        if name in left or name.endswith(_USELESS):
            continue
        begin = max((b for b in rules if name.startswith(b)), key=len, default=None)
        ours = name if begin is None else rules[begin] + name.removeprefix(begin)
        if ours in out:
            raise DecError(f"{source.folder} has a tensor {name}, and another that is the same part of the head")
        out[ours] = source.tensors[name]
    return out, {ours: published for published, ours in rules.items()}


def layer_settings(source: HeadFolder, prefix: str, of: Config | None = None, *, entering: int = 1) -> tuple[Config, Config]:
    """(shape, options) of decoder layers from a configuration and the tensors of the first one, whose names begin so.

    entering: how many states its attention reads side by side. Raises DecError for a configuration that does not say the number
    of heads, or that the tensors contradict.
    """
    config = source.config if of is None else of
    heads = source.number("num_attention_heads", of=config)
    rows, width = source.shape(f"{prefix}self_attn.q_proj.weight")
    hidden = source.shape(f"{prefix}self_attn.o_proj.weight")[0]
    if width != entering * hidden:
        raise _contradicted(source, f"{prefix}self_attn.q_proj.weight", (rows, width), f"states of width {entering * hidden}")
    if heads < 1 or rows % heads:
        raise _contradicted(source, f"{prefix}self_attn.q_proj.weight", (rows, width), f"{heads} heads")
    size = rows // heads
    if isinstance(config.get("head_dim"), int) and config["head_dim"] != size:
        raise _contradicted(source, f"{prefix}self_attn.q_proj.weight", (rows, width), f"heads of {config['head_dim']}")
    shared = source.shape(f"{prefix}self_attn.k_proj.weight")[0]
    if shared % size or heads % max(shared // size, 1):
        raise _contradicted(source, f"{prefix}self_attn.k_proj.weight", (shared, width), f"heads of {size}")
    has = lambda name: f"{prefix}{name}" in source.tensors
    inner = source.shape(f"{prefix}mlp.gate_proj.weight")[0] if has("mlp.gate_proj.weight") else None
    shape = {
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_attention_heads": heads,
        "num_key_value_heads": shared // size,
        "head_dim": size,
        **{k: config[k] for k in ("max_position_embeddings", "rms_norm_eps", "rope_theta", "rope_scaling", "rope_parameters",
                                  "hidden_act") if config.get(k) is not None},
    }  # fmt: skip
    options: Config = {
        "qkv_bias": any(has(f"self_attn.{n}_proj.bias") for n in "qkv"),
        "output_bias": has("self_attn.o_proj.bias"),
        "qk_norm": any(has(f"self_attn.{n}_norm.weight") for n in "qk"),
        "mlp_bias": any(has(f"mlp.{n}_proj.bias") for n in ("gate", "up", "down")),
        "mlp": any(name.startswith(f"{prefix}mlp.") for name in source.tensors),
        "input_norm": has("input_layernorm.weight"),
    }
    return shape, options


def count_of(names: Iterable[str], prefix: str) -> int:
    """How many numbers follow this beginning in tensors' names: layers, heads."""
    return len({name.removeprefix(prefix).split(".")[0] for name in names if name.startswith(prefix)})


def some(names: Collection[str], most: int = 4) -> str:
    """A few names for a message."""
    first = sorted(names)[:most]
    return ", ".join(first) + (f" and {len(names) - most} more" if len(names) > most else "") if first else "no tensors"


def _contradicted(source: HeadFolder, name: str, shape: Sequence[int], what: str) -> DecError:
    return DecError(f"{source.folder}: {name} has the shape {'x'.join(map(str, shape))}, and config.json says {what}")
