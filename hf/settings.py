"""The settings of a generation configuration beyond processors and criteria; unsupported ones are refused by name."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from decgraph.errors import DecError
from decgraph.runtime.defaults import MODES
from decgraph.runtime.processors import listed

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import GenerationConfig, LogitsProcessor, PreTrainedModel, StoppingCriteria

_DIFFERENT = "decgraph.hf decodes with its algorithm, not with beams or another mode"

# setting -> (the values that mean "off", what to do about it)
_REFUSED: dict[str, tuple[tuple[float | None, ...], str]] = {
    **{name: (off, f"leave it out; {_DIFFERENT}") for name, off in MODES.items()},
    "num_beams": (MODES["num_beams"], f"num_beams=1; {_DIFFERENT}. decgraph.hf('beam_patience') is a beam search"),
    "prompt_lookup_num_tokens": ((None,), "decgraph.hf('prompt_lookup', k=...) is that algorithm"),
    "assistant_early_exit": ((None,), "an algorithm with target.exit(n) is that: decgraph.hf('kangaroo', ...)"),
    "use_mtp": ((None, False), "leave it out; what drafts is the algorithm's affair"),
    "is_assistant": ((None, False), "leave it out"),
    "output_attentions": ((None, False), "leave it out: decgraph computes attention by its own rules"),
    "output_hidden_states": ((None, False), "leave it out: hidden states are not kept"),
}


# Settings that a direct call (without `generate`) supports, or ignores.
_ALONE = frozenset(
    {"temperature", "top_k", "top_p", "min_p", "do_sample", "repetition_penalty", "suppress_tokens", "max_new_tokens"}
    | {
        "max_length",
        "min_new_tokens",
        "min_length",
        "eos_token_id",
        "pad_token_id",
        "bos_token_id",
        "return_dict_in_generate",
        "use_cache",
    }
    | {"output_scores", "output_logits", "num_return_sequences", "transformers_version", *_REFUSED}
)


def refuse(config: GenerationConfig, model: object) -> None:
    """Raises DecError for an unsupported setting, by name."""
    for name, (off, hint) in _REFUSED.items():
        value = getattr(config, name, None)
        if not any(value is o or value == o for o in off):
            raise DecError(f"{name}={value!r} is not supported with decgraph.hf", hint=hint)
    if getattr(config, "cache_implementation", None) == "quantized":
        raise DecError(
            "cache_implementation='quantized' is not supported with decgraph.hf: it changes the model's answers",
            hint="leave it out; decgraph keeps caches of its own",
        )
    if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        raise DecError(f"{type(model).__name__} is an encoder-decoder model; decgraph.hf takes decoder-only and masked models")


def pad_of(config: GenerationConfig) -> int | None:
    """The token that pads finished rows: the one that `generate` chose, else the configuration's."""
    for value in (getattr(config, "_pad_token_tensor", None), getattr(config, "pad_token_id", None)):
        if value is not None:
            return int(value)
    ends = eos_of(config)
    return ends[0] if ends else None


def eos_of(config: GenerationConfig) -> list[int]:
    """The ids that end a text, in the configuration's order."""
    found = getattr(config, "eos_token_id", None)
    if found is None:
        return []
    if hasattr(found, "flatten"):
        return [int(t) for t in found.flatten().tolist()]
    return [int(t) for t in (found if isinstance(found, list | tuple) else [found])]


def prepared(config: GenerationConfig, input_ids: Tensor) -> tuple[list[LogitsProcessor], list[StoppingCriteria]]:
    """Processors and criteria of a configuration, for a call that does not come through `generate`.

    Masked models have no `generate`, so `decgraph.hf(...)` can be called by itself. It applies the commonest settings
    in transformers' order. Raises DecError for the others, by name.
    """
    import transformers as hf

    for name, value in config.to_diff_dict().items():
        if name not in _ALONE and value not in (None, False) and not name.startswith("_"):
            raise DecError(f"{name} is not supported where decgraph.hf is called without generate", hint="leave it out")
    length, ends = input_ids.shape[1], eos_of(config)
    most = length + config.max_new_tokens if config.max_new_tokens is not None else config.max_length
    criteria: list[StoppingCriteria] = [hf.MaxLengthCriteria(most if most is not None else length + 20)]
    if ends:
        criteria.append(hf.EosTokenCriteria(ends))
    return listed(config, input_ids, ends), criteria


def alone(model: PreTrainedModel, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What a callable for `custom_generate` is called with, of `generate`'s own arguments for a model that has no `generate`.

    Settings stand in a `generation_config`, among the arguments by name, or in the model's configuration, as for `generate`.
    Raises DecError where there are no token ids, and as `prepared`.
    """
    from transformers import GenerationConfig

    rest = {name: value for name, value in arguments.items() if value is not None}
    given = rest.pop("generation_config", None) or getattr(model, "generation_config", None)
    config = copy.deepcopy(given) if given is not None else GenerationConfig.from_model_config(model.config)
    rest = config.update(**rest)
    ids = rest.pop("input_ids", rest.pop("inputs", None))
    if ids is None:
        raise DecError("there are no input_ids", hint='generate(model, **tokenizer(["..."], return_tensors="pt"))')
    copies = int(getattr(config, "num_return_sequences", None) or 1)
    mask = rest.pop("attention_mask", None)
    ids, mask = (t if t is None or copies == 1 else t.repeat_interleave(copies, dim=0) for t in (ids, mask))
    processors, criteria = prepared(config, ids)
    if (streamer := rest.get("streamer")) is not None:
        streamer.put(ids.cpu())
    return {
        **rest,
        "input_ids": ids,
        "attention_mask": mask,
        "generation_config": config,
        "logits_processor": [*processors, *(rest.get("logits_processor") or ())],
        "stopping_criteria": [*criteria, *(rest.get("stopping_criteria") or ())],
    }
