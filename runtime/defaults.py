"""Defaults of a request's fields: the model's generation settings, as transformers' `generate` reads them.

One rule holds wherever a prompt is decoded (`decgraph run`, `map`, `trace`, `serve`, `decgraph.run`, sessions; transformers
itself passes the settings to `decgraph.hf`): the caller's value, else that of the model's generation_config.json, else greedy
decoding without filters and penalties. What `generate` would do and a request cannot is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from decgraph.errors import DecError
from decgraph.runtime.models.folders import adapted_from, settings
from decgraph.runtime.models.interface import Model, folder_of
from decgraph.runtime.refused import adjusts
from decgraph.runtime.request import DEFAULT_TEMPERATURE, Request, RequestFields

if TYPE_CHECKING:
    from decgraph.runtime.bound import BoundProgram

OFF: dict[str, float] = {"top_k": 0, "top_p": 1, "min_p": 0}
"""The values by which generation settings turn a filter off."""
MODES: dict[str, tuple[float | None, ...]] = {
    "num_beams": (None, 1), "num_beam_groups": (None, 1), "penalty_alpha": (None, 0), "dola_layers": (None,),
    "constraints": (None,), "force_words_ids": (None,),
}  # fmt: skip
"""Settings of other ways to decode than an algorithm's, and the values that mean "off"."""
_REFUSED = {
    **MODES,
    "num_return_sequences": (None, 1),
    "guidance_scale": (None, 1),
    "max_time": (None,),
    "token_healing": (None, False),
}
_DRAWN = {"top_h": (None,), "typical_p": (None, 1), "epsilon_cutoff": (None, 0), "eta_cutoff": (None, 0)}
_PROCESSED: dict[str, tuple[float | None, ...]] = {
    "sequence_bias": (None,), "bad_words_ids": (None,), "begin_suppress_tokens": (None,), "suppress_tokens": (None,),
    "no_repeat_ngram_size": (None, 0), "encoder_no_repeat_ngram_size": (None, 0), "encoder_repetition_penalty": (None, 1),
    "forced_bos_token_id": (None,), "forced_eos_token_id": (None,), "remove_invalid_values": (None, False),
    "exponential_decay_length_penalty": (None,), "watermarking_config": (None,), "renormalize_logits": (None, False),
    "min_length": (None, 0), "min_new_tokens": (None, 0),
}  # fmt: skip
"""Settings of which transformers makes processors, of draws alone and of greedy tokens too, and the values that mean "off"."""
_PLACE = "the model's generation settings"


def generation(session: BoundProgram) -> Mapping[str, object]:
    """The generation settings of a session's requests: its own (`Session.generation`), else its first model's. Raises DecError
    for settings that cannot be read, and for what a request cannot do."""
    given, model = session.generation, _model(session)
    if given is None and model is not None:
        given, at = model.generation, folder_of(model)
        given = of_folder(at) if given is None and at is not None else given
    given = given or {}
    for name in _on(given, _REFUSED):
        if name not in MODES or not adjusts(session.function):  # such an algorithm is a beam search of its own
            raise DecError(f"{_PLACE} have {name} = {given[name]!r}, which a request cannot do",
                           hint="take it out of generation_config.json; `decgraph list` has beam searches")  # fmt: skip
    return given


def defaults(session: BoundProgram) -> RequestFields:
    """The sampling fields of a session's generation settings, without those that its algorithm never reads. Raises DecError as
    `generation` does."""
    fields = sampling(generation(session), _PLACE)
    read = {name: value for name, value in fields.items() if name not in session.unread}
    return {"temperature": DEFAULT_TEMPERATURE, **read}  # type: ignore[typeddict-item]


def completed(session: BoundProgram, fields: RequestFields, prompt: Sequence[int]) -> RequestFields:
    """A request's fields for a prompt, with those that its caller left out. Raises DecError as `generation` does."""
    given, model = generation(session), _model(session)
    made: dict[str, Any] = {**defaults(session), **fields}
    if model is None or model.kind == "masked":  # which transformers has no `generate` for
        return cast("RequestFields", made)
    if "max_tokens" not in made and (most := limit(given, len(prompt))) is not None:
        made["max_tokens"] = most
    if "stop" not in made and given.get("stop_strings"):
        made["stop"] = given["stop_strings"]
    sampled = made["temperature"] != 0
    if "processors" in session.unread or not _on(given, {**_PROCESSED, **_DRAWN} if sampled else _PROCESSED):
        return cast("RequestFields", made)
    said = {name: off if made.get(name) is None else made[name] for name, off in (*OFF.items(), ("repetition_penalty", 1))}
    said |= {"do_sample": sampled, "temperature": made["temperature"] if sampled else None}
    if "min_length" in made:
        said |= {"min_length": None, "min_new_tokens": made["min_length"]}
    from decgraph.runtime.processors import of_settings

    shaping = of_settings(
        {**given, **said},
        prompt,
        eos=Request((0,), eos=made.get("eos", ())).eos,
        size=model.vocab.size,
        width=_width(model),
        limit=made.get("max_tokens", Request.max_tokens),
        place=_PLACE,
    )
    own = Request((0,), bans=made.get("bans", ()), bias=made.get("bias", ()))
    made = {name: value for name, value in made.items() if name not in said} | {"temperature": 1.0, **shaping.fields}
    made["bans"] = own.bans | shaping.fields.get("bans", frozenset())
    made["bias"] = {**shaping.fields.get("bias", {}), **dict(own.bias_pairs)}
    if shaping.hook is not None:
        made["processors"] = (shaping.hook, *made.get("processors", ()))
    return cast("RequestFields", made)


def limit(settings: Mapping[str, object], length: int) -> int | None:
    """The most new tokens after a prompt of this length, by generation settings; None where they do not say. Raises DecError
    for what is no number, and for a prompt that is as long."""
    if settings.get("max_new_tokens") is not None:
        return max(1, _count(settings, "max_new_tokens"))
    if settings.get("max_length") is None:
        return None
    if (left := _count(settings, "max_length") - length) < 1:
        raise DecError(
            f"{_PLACE} have max_length = {settings['max_length']}, and the prompt has {length} tokens", hint="max_tokens"
        )
    return left


def of_folder(at: Path) -> dict[str, object]:
    """The generation settings in a model's folder; none where there is no such file."""
    file = (adapted_from(at) or at) / "generation_config.json"
    return settings(file) if file.is_file() else {}


def sampling(settings: Mapping[str, object], place: str) -> RequestFields:
    """The sampling fields of generation settings; without `do_sample` they are greedy, with it and without a top_k the 50
    likeliest tokens stay, as in `generate`. place: names the settings in errors. Raises DecError for a value that is no
    number."""
    sampled = bool(settings.get("do_sample"))
    found: dict[str, object] = {"temperature": 1.0, "top_k": 50} if sampled else {"temperature": DEFAULT_TEMPERATURE}
    for name in ("temperature", *OFF, "repetition_penalty"):
        value = settings.get(name)
        if value is None or (name == "temperature" and not sampled):
            continue
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise DecError(f"{place}: {name} is {value!r}", hint="a number")
        found[name] = None if value == OFF.get(name) else value
    return found  # type: ignore[return-value]  # by their names


def _on(settings: Mapping[str, object], names: Mapping[str, tuple[float | None, ...]]) -> list[str]:
    return [name for name, off in names.items() if settings.get(name) not in off]


def _count(settings: Mapping[str, object], name: str) -> int:
    value = settings.get(name) or 0
    if type(value) is not int:
        raise DecError(f"{_PLACE}: {name} is {value!r}", hint="a whole number")
    return value


def _model(session: BoundProgram) -> Model | None:
    return next(iter(session.models.values()), None)


def _width(model: Model) -> int:
    """How many scores a model's output matrix gives, rows of no token included, as far as its folder says."""
    at = folder_of(model)
    config = settings(at / "config.json") if at is not None and (at / "config.json").is_file() else {}
    size = config.get("vocab_size")
    return size if type(size) is int else model.vocab.size
