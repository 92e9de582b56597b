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
    """The rows of int64[B, T] token ids, divided by the mask [B, T] (None: all ones).

    Raises DecError for ids or a mask of another shape, for a row whose last token is masked, for an empty row and for no row.
    """
    if input_ids.dim() != 2 or input_ids.is_floating_point():
        raise DecError(
            f"input_ids must be token ids [batch, length], not {list(input_ids.shape)} of {input_ids.dtype}",
            hint="inputs_embeds are not supported; give input_ids",
        )
    if not len(input_ids):
        raise DecError("the batch is empty", hint="give input_ids of one prompt at least")
    if attention_mask is not None and tuple(attention_mask.shape) != tuple(input_ids.shape):
        raise DecError(f"attention_mask is {list(attention_mask.shape)}, but input_ids {list(input_ids.shape)}")
    ids = input_ids.tolist()
    masks = [[True] * len(row) for row in ids] if attention_mask is None else attention_mask.bool().tolist()
    return [_row(n, row, mask) for n, (row, mask) in enumerate(zip(ids, masks, strict=True))]


def _row(index: int, ids: Sequence[int], mask: Sequence[bool]) -> PaddedPrompt:
    if True not in mask:
        raise DecError(f"row {index} of the batch has no token", hint="a prompt needs one at least")
    if not mask[-1]:
        raise DecError(
            f"row {index} of the batch is padded on the right: its next token would be read off one that is masked",
            hint="pad on the left: tokenizer.padding_side = 'left'",
        )
    pads, prompt = (tuple(t for t, seen in zip(ids, mask, strict=True) if seen is which) for which in (False, True))
    return PaddedPrompt(index, pads, prompt, tuple(place for place, seen in enumerate(mask) if seen))


def check_holes(model: PreTrainedModel, rows: Sequence[PaddedPrompt], processors: Sequence[object] | None) -> None:
    """Raises DecError for tokens that are masked between others where they still count for something: windows of attention
    count them, recurrent layers and logits processors read them. Elsewhere such a prompt is the one without them."""
    from decgraph.runtime.models.decoder.small import windows
    from decgraph.runtime.models.decoder.states import is_recurrent

    row = next((row for row in rows if row.holes), None)
    if row is None:
        return
    counted = (
        "windows" if windows(model.config.get_text_config().to_dict()) else "recurrent layers" if is_recurrent(model) else ""
    )
    if counted or processors:
        why = f"and the model has {counted}, which count them" if counted else "and logits processors read them"
        raise DecError(
            f"row {row.index} of the batch is padded in the middle, {why}",
            hint="leave the masked tokens out, or pad on the left: tokenizer.padding_side = 'left'",
        )


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


def check_model_arguments(arguments: Mapping[str, Any], rows: Sequence[PaddedPrompt]) -> None:
    """Raises DecError for arguments that `generate` would pass to the model's forward and that would change its scores."""
    for name, value in arguments.items():
        if value is None or value is False or name in _WITHOUT_EFFECT or (isinstance(value, Mapping) and not value):
            continue  # generate adds empty mappings by itself: mm_encoder_outputs of a model that was given no image
        if name == "position_ids":
            _check_positions(arguments[name], rows)
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
        if [here[place] for place in row.places] != list(range(len(row.prompt))):
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
