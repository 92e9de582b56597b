"""Checks of keyword arguments that a function collects (`**given`), with suggestions for unknown names."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping

from decgraph.errors import DecError

ELSEWHERE = {
    "max_tokens": ("max_new_tokens", "max_new", "max_length", "n_predict", "max_completion_tokens"),
    "stop": ("stop_strings", "stop_sequences"),
    "repetition_penalty": ("repeat_penalty",),
    "min_length": ("min_tokens", "min_new_tokens"),
    "bias": ("logit_bias",),
    "bans": ("bad_words_ids", "bad_words", "suppress_tokens"),
    "processors": ("logits_processor", "logits_processors"),
    "eos": ("eos_token_id", "stop_token_ids"),
    "seed": ("random_seed",),
}
"""Names of request fields on the command line, in the server and in other libraries, by their name here; docs/python.md."""


def check_keywords(
    title: str, given: Iterable[str], known: Iterable[str], *, elsewhere: Mapping[str, str] | None = None
) -> None:
    """Raises DecError for an unknown name, with the nearest known one. title: the function in messages. elsewhere: hints for
    names that are given in another way."""
    known = list(dict.fromkeys(known))
    for name in given:
        if name in known:
            continue
        if elsewhere is not None and name in elsewhere:
            raise DecError(f"{title} has no `{name}`", hint=elsewhere[name])
        ours = next((one for one, others in ELSEWHERE.items() if one in known and name in others), None)
        if ours is not None:
            raise DecError(f"{title} has no `{name}`", hint=f"it is {ours} here")
        near = difflib.get_close_matches(name, [*known, *(elsewhere or ())], 1)
        raise DecError(f"{title} has no `{name}`", hint=f"did you mean {near[0]}?" if near else f"it has {', '.join(known)}")


def check_by_name(**mappings: object) -> None:
    """Raises DecError for a value that is no mapping. given: what a caller hands over by name, such as `params`."""
    for name, value in mappings.items():
        if not isinstance(value, Mapping | None):
            raise DecError(f"{name} is {value!r}; it must be a mapping by name", hint=f"{name}={{NAME: ...}}")


def keywords_of(function: Callable[..., object]) -> list[str]:
    """The names of a function's keyword arguments, without those that it collects."""
    kinds = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p.name for p in inspect.signature(function).parameters.values() if p.kind in kinds and p.name != "self"]
