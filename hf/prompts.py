"""Batches as transformers has them and rows as decgraph has them: left padding off, and on again at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from decgraph.errors import DecError
from decgraph.runtime.processors import PaddedPrompt

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel


def rows_of(input_ids: Tensor, attention_mask: Tensor | None) -> list[PaddedPrompt]:
    """The rows of int64[B, T] token ids, split where the mask [B, T] (None: all ones) becomes one.

    Raises DecError for ids or a mask of another shape, for padding on the right or in the middle, for an empty row and for no
    row.
    """
    if input_ids.dim() != 2 or input_ids.is_floating_point():
        raise DecError(
            f"input_ids must be token ids [batch, length], not {list(input_ids.shape)} of {input_ids.dtype}",
            hint="inputs_embeds are not supported; give input_ids",
        )
    if not len(input_ids):
        raise DecError("the batch is empty", hint="give input_ids of one prompt at least")
    ids = input_ids.tolist()
    if attention_mask is None:
        firsts = [0] * len(ids)
    else:
        if tuple(attention_mask.shape) != tuple(input_ids.shape):
            raise DecError(f"attention_mask is {list(attention_mask.shape)}, but input_ids {list(input_ids.shape)}")
        firsts = [_first(mask, row) for row, mask in enumerate(attention_mask.bool().tolist())]
    for row, first in enumerate(firsts):
        if first >= len(ids[row]):
            raise DecError(f"row {row} of the batch has no token", hint="a prompt needs one at least")
    return [
        PaddedPrompt(i, tuple(row[:first]), tuple(row[first:])) for i, (row, first) in enumerate(zip(ids, firsts, strict=True))
    ]


def check_embeddings(model: PreTrainedModel, input_ids: Tensor, embeddings: Tensor | None) -> None:
    """Raises DecError for inputs_embeds [B, T, width] that are not the embeddings of input_ids int64[B, T]: what is drafted is
    looked up, hashed and verified by token, so decgraph decodes from tokens only."""
    if embeddings is None:
        return
    if not input_ids.shape[1]:
        raise DecError(
            "inputs_embeds are not supported without input_ids: drafts are made and verified by tokens, which embeddings lack",
            hint="give input_ids, or use generate without custom_generate",
        )
    own = model.get_input_embeddings()(input_ids)
    if own.shape != embeddings.shape or not own.isclose(embeddings, atol=1e-5).all():
        raise DecError(
            "inputs_embeds are not the embeddings of input_ids, and decgraph decodes from tokens: the rest would be lost",
            hint="leave inputs_embeds out, or use generate without custom_generate",
        )


def _first(mask: Sequence[bool], row: int) -> int:
    """Where a row begins."""
    first = mask.index(True) if True in mask else len(mask)
    if not all(mask[first:]):
        where = "on the right" if True not in mask[mask.index(False, first) :] else "in the middle"
        raise DecError(f"row {row} of the batch is padded {where}", hint="pad on the left: tokenizer.padding_side = 'left'")
    return first


def check_model_arguments(given: Mapping[str, Any], rows: Sequence[PaddedPrompt]) -> None:
    """Raises DecError for arguments that `generate` would pass to the model's forward and that would change its scores."""
    for name, value in given.items():
        if value is None or value is False or name in _WITHOUT_EFFECT or (isinstance(value, Mapping) and not value):
            continue  # generate adds empty mappings by itself: mm_encoder_outputs of a model that was given no image
        if name == "position_ids":
            _check_positions(given[name], rows)
        elif name in _CACHES:
            if _holds_tokens(value):
                raise DecError(f"{name} already holds tokens; decgraph keeps caches of its own", hint="leave it out")
        elif name in _IMAGES:
            raise DecError(
                f"images, sounds and videos (`{name}`) are not supported: decgraph passes only token ids to the model",
                hint="decode prompts of text alone, or use generate without custom_generate",
            )
        else:
            raise DecError(
                f"`{name}` is not supported: decgraph passes only token ids to the model",
                hint=f"leave {name} out, or use generate without custom_generate",
            )


def _holds_tokens(cache: Any) -> bool:
    """Whether a cache of transformers was filled. One of recurrent layers (Mamba) counts no tokens: it refuses the question."""
    try:
        return int(cache.get_seq_length()) > 0
    except ValueError:
        return bool(cache.has_previous_state())
    except AttributeError:
        return True  # not one of transformers' caches


# Arguments that generate adds by itself, or that change no score.
_WITHOUT_EFFECT = {"use_cache", "logits_to_keep", "num_logits_to_keep", "cache_position", "return_dict"}
_CACHES = {"past_key_values", "cache_params"}
_IMAGES = {"mm_encoder_outputs", "pixel_values", "pixel_values_videos", "image_features", "input_features", "input_values"}


def _check_positions(positions: Tensor, rows: Sequence[PaddedPrompt]) -> None:
    planes = positions.tolist() if positions.dim() == 3 else [positions.tolist()]  # Qwen-VL: text, time, height, width
    for row, given in ((row, plane) for row in rows for plane in planes):
        here = given[row.index if len(given) > 1 else 0]
        if here[len(row.pads) :] != list(range(len(row.prompt))):
            raise DecError("position_ids do not count each prompt from 0", hint="leave position_ids out")


def assembled(input_ids: Tensor, new: Sequence[Sequence[int]], pad: int | None) -> Tensor:
    """int64[B, T + longest]: each row as given, followed by its new tokens and then by `pad`, as `generate` returns it.

    Raises DecError where a row must be filled up and there is nothing to fill it with.
    """
    longest = max(map(len, new))
    if pad is None and any(len(tokens) < longest for tokens in new):
        raise DecError(
            "the sequences end at different lengths and there is no token to fill them up with",
            hint="give generate a pad_token_id",
        )
    made = input_ids.new_full((len(new), input_ids.shape[1] + longest), pad or 0)
    made[:, : input_ids.shape[1]] = input_ids
    for row, tokens in enumerate(new):
        if tokens:
            made[row, input_ids.shape[1] : input_ids.shape[1] + len(tokens)] = input_ids.new_tensor(list(tokens))
    return made
