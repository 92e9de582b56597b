"""A small config of a model's family and switches, and a small copy of a module by it with windows that few tokens pass: a real
model shows a wrong window after thousands of tokens. Verdicts stay in the user's cache. Importing this loads no torch."""

from __future__ import annotations

import copy
import functools
import hashlib
import importlib.metadata
import json
import logging
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

from decgraph import cache
from decgraph.errors import DecError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_log = logging.getLogger("decgraph.engine")
LAYERS, HEADS, SIZE, WIDE, VOCABULARY, WINDOW = 4, 4, 16, 48, 64, 4
_SMALL: dict[str, int] = {
    **dict.fromkeys(("vocab_size", "vocab_size_per_layer_input"), VOCABULARY),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "num_layers", "n_layers"), LAYERS),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), HEADS),
    **dict.fromkeys(("hidden_size", "n_embd", "d_model", "word_embed_proj_dim"), HEADS * SIZE),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "n_inner", "moe_intermediate_size", "shared_intermediate_size",
                     "shared_expert_intermediate_size", "ffn_hidden_size", "prefix_dense_intermediate_size"), WIDE),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), 16),
    **dict.fromkeys(("n_group", "num_experts_per_tok", "moe_k", "moe_topk"), 4),
    "topk_group": 2,
    **dict.fromkeys(("head_dim", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim", "rotary_dim"), SIZE),
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank"), 24),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "n_ctx", "max_sequence_length"), 128),
    "max_window_layers": 8,
}  # fmt: skip
"""Sizes of a small model by their names; what a config has at less, or does not have, stays."""
_MOST = 10**7  # weights of a small copy, which is drawn in a tenth of a second
_WINDOWS = re.compile(r"window(_size)?$|chunk_size$|local_attention$|attention_span$|block_size$|index_topk$")
"""Names of settings that say how many tokens a layer looks back, or reads at a time."""
_FORGOTTEN = ("dtype", "torch_dtype", "auto_map", "architectures", "_name_or_path", "transformers_version", "use_cache")
_TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id")


def small(config: Mapping[str, object]) -> dict[str, object]:
    """A config of the same family and switches, with few layers, heads, experts and tokens."""
    made = {name: value for name, value in config.items() if name not in _FORGOTTEN and value is not None}
    made |= dict.fromkeys(_TOKENS)  # theirs are past the small vocabulary
    for name, size in _SMALL.items():
        if (value := made.get(name)) and type(value) is int and value > size:
            made[name] = size
    made |= {name: min(value, WINDOW) for name, value in windows(made).items()}
    heads = max(_sizes(made, "num_attention_heads", "n_head", "num_heads"), default=1)
    before = next(iter(_sizes(config, "num_attention_heads", "n_head", "num_heads")), 1)
    for name in ("num_key_value_heads", "num_kv_heads", "n_head_kv"):
        for size in _sizes(made, name):
            made[name] = heads if config[name] == before else min(size, 2)
    counts = ("num_hidden_layers", "n_layer", "num_layers")
    layers, before = (next(iter(_sizes(one, *counts)), LAYERS) for one in (made, config))
    for name, value in made.items():
        if isinstance(value, list) and len(value) > layers and len(value) == before:
            made[name] = _first(value, layers)
    if "attention_types" in made and isinstance(kinds := made.get("attention_layers"), list):  # GPT-Neo has them twice
        made["attention_types"] = [[kinds, 1]]
    return made


def windows(config: Mapping[str, object]) -> dict[str, int]:
    """The settings of a config that say how far layers look back, or how many tokens they read at a time."""
    return {n: value for n, value in config.items() if _WINDOWS.search(n) and type(value) is int and value > 0}


def small_copy(base: PreTrainedModel) -> PreTrainedModel:
    """A module of a base module's class, or of its text's, by a small config: with windows that few tokens pass and matrices so
    large that a wrong mask shows."""
    import torch
    import transformers

    text = base.config.get_text_config()
    own = (m for m in base.modules() if isinstance(m, transformers.PreTrainedModel) and m.config is text)
    kind, made = type(next(own, base)), copy.deepcopy(text)
    before = text.to_dict()
    for name, value in small(before).items():
        if type(value) in (int, list) and before[name] != value:
            setattr(made, name, value)
    for name in _TOKENS:
        setattr(made, name, None if getattr(made, name, None) is None else 0)
    if made._attn_implementation != "sdpa":
        made._attn_implementation_internal = "eager"
    from decgraph.runtime.models.quiet import quiet

    with quiet(), torch.random.fork_rng(devices=[]), torch.device("cpu"), torch.no_grad():
        torch.manual_seed(0)
        with torch.device("meta"):
            if sum(weight.numel() for weight in kind(made).parameters()) > _MOST:
                raise ValueError("parts of it have sizes of their own")
        copied = cast("PreTrainedModel", kind(made)).float().eval().requires_grad_(False)
        for weight in copied.parameters():
            if weight.dim() > 1:
                weight.data = torch.randn(weight.shape) * 1.5 * weight.shape[-1] ** -0.5
        copied(input_ids=torch.ones(1, 2, dtype=torch.long), use_cache=False)  # so that sizes are known to fit each other
    return copied


def probed(base: PreTrainedModel, what: str, check: Callable[[PreTrainedModel], object]) -> str:
    """What a check raises of a small copy of a base module, as text; empty where it raises nothing. It is run once for each
    config, class and version. Of a class that takes no small config nothing is known."""
    kind = type(base)
    name = key(
        {**base.config.get_text_config().to_dict(), "probe": [what, kind.__qualname__, base.config._attn_implementation]}
    )
    kept = cache.read(kept_in()).get(name) if kind.__module__.startswith("transformers.") else None
    if isinstance(kept, str):
        return kept
    said = ""
    try:
        made = small_copy(base)
    except Exception as error:  # its class raises what it likes
        _log.info("%s takes no small config: %s", kind.__name__, error)
    else:
        try:
            check(made)
        except Exception as error:
            _log.info("a small %s", kind.__name__, exc_info=True)
            said = str(error.diagnostics[0]) if isinstance(error, DecError) else str(error)
    cache.add(kept_in(), {name: said})
    return said


def _sizes(config: Mapping[str, object], *names: str) -> list[int]:
    """The whole numbers among these settings."""
    return [value for name in names if type(value := config.get(name)) is int]


def _first(values: list[object], count: int) -> list[object]:
    """So many values by layer, among them each that there is, in their order."""
    chosen = sorted({values.index(value) for value in values})[:count]
    rest = (at for at in range(len(values)) if at not in chosen)
    return [values[at] for at in sorted([*chosen, *(next(rest) for _ in range(count - len(chosen)))])]


def version() -> str:
    """The installed transformers'."""
    try:
        return importlib.metadata.version("transformers")
    except importlib.metadata.PackageNotFoundError:
        return "absent"


def key(config: Mapping[str, object]) -> str:
    """The shape of a config, and the versions that a verdict is of."""
    from decgraph.version import __version__

    shape = json.dumps(small(config), sort_keys=True, default=str)
    return hashlib.sha256(f"{shape} {version()} {__version__} {_code()}".encode()).hexdigest()[:32]


@functools.cache
def _code() -> str:
    """A digest of what verdicts are of: the files beside this one."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def kept_in() -> Path:
    """The file of all verdicts."""
    return cache.folder() / "compared.json"
