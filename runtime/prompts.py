"""Requests from prompts: a text, token ids or the messages of a chat."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, Unpack, cast

import numpy as np

from decgraph.errors import DecError
from decgraph.runtime.arguments import Prompt, is_chat
from decgraph.runtime.defaults import completed
from decgraph.runtime.grammars import Grammar, Parsed, complete
from decgraph.runtime.keywords import check_keywords
from decgraph.runtime.models.folders import ends, without_tokenizer
from decgraph.runtime.models.interface import folder_of
from decgraph.runtime.request import Request, RequestFields, renamed

if TYPE_CHECKING:
    from decgraph.runtime.bound import BoundProgram


def request_for(session: BoundProgram, prompt: Prompt, **fields: Unpack[RequestFields]) -> Request:
    """A request for a session's models. Sampling fields that are left out come from the model's generation settings
    (runtime/defaults.py), `eos` from the model. Messages, each `{"role": ..., "content": ...}`, go through its chat template.

    Raises DecError for a text without a tokenizer, messages without a template, and for every field outside its range.
    """
    tokens: Sequence[int]
    if session.tokenizer is None and (isinstance(prompt, str) or is_chat(prompt)):
        raise no_tokenizer(session)
    if is_chat(prompt):
        from decgraph.runtime.chat import tokens_of

        tokens = tokens_of(session.tokenizer, prompt)
    elif isinstance(prompt, str) and session.tokenizer is not None:
        if not prompt:
            raise DecError("the prompt is empty; a request needs at least one token to read")
        tokens = session.tokenizer.encode(prompt)
    else:
        tokens = _ids(prompt)
    if "eos" not in fields:
        fields["eos"] = end_of_text(session)
    fields = renamed(fields)
    check_keywords("a request", fields, Request.__dataclass_fields__)
    fields = completed(session, fields, tokens)
    if isinstance(grammar := fields.get("allow"), Grammar):
        _constrain(session, grammar, fields, len(tokens))
    return Request(prompt=tuple(tokens), **cast("dict[str, Any]", fields))  # a request reads its fields in any form


def _ids(prompt: object) -> tuple[int, ...]:
    """Token ids as a caller has them. Raises DecError for what is no sequence, or one of other things."""
    if isinstance(prompt, bytes | Mapping | Set) or not isinstance(prompt, Iterable):
        hint = "a text, token ids, or messages: [{'role': 'user', 'content': 'Hello'}]"
        raise DecError(f"{prompt!r} is not a prompt", hint=hint)
    ids = tuple(prompt)
    if ids and (isinstance(ids[0], str) or np.ndim(ids[0])):
        raise DecError("these are several prompts, and one is read here",
                       hint="session.generate(prompts) reads several; of a batch of ids give one row: ids[0]")  # fmt: skip
    return ids


def no_tokenizer(session: BoundProgram) -> DecError:
    """The error for a text in a session without a tokenizer."""
    places = (model.home or folder_of(model) for model in session.models.values())
    return DecError("a text needs a tokenizer, and these models have none", hint=without_tokenizer(places))


def check_grammar(session: BoundProgram) -> None:
    """Raises DecError for a masked model's session: a grammar reads the text before a token, and a canvas has gaps there."""
    if next(iter(session.models.values())).kind == "masked":
        raise DecError(
            f"{session.function.name} does not decide the positions of a canvas from left to right, so a request's grammar "
            "cannot bind them",
            hint="use an algorithm of a causal model, or dingo, which reads an automaton itself (--g)",
        )


def _constrain(session: BoundProgram, grammar: Grammar, fields: RequestFields, base: int) -> None:
    """Put a grammar into the fields, as an automaton over the session's tokens. Without an end token the text ends where the
    automaton allows no further one. Raises DecError for a masked model's session."""
    check_grammar(session)
    eos = Request((0,), eos=cast("frozenset[int]", fields.get("eos", ()))).eos
    fields["allow"] = automaton = automaton_of(session, grammar, eos).anew()
    if not eos:
        fields["until"] = (*fields.get("until", ()), complete(automaton, base))


def automaton_of(session: BoundProgram, grammar: Grammar, eos: Collection[int]) -> Parsed:
    """A grammar as an automaton over the session's tokens, which all its requests share: they go on with copies."""
    return grammar.over(session.tokenizer, eos, next(iter(session.models.values())).vocab.size)


def end_of_text(session: BoundProgram) -> frozenset[int]:
    """The end-of-text tokens of the first model, or of its folder: as in transformers' `generate`, the generation settings
    decide where there are any, even if they name no token, and else the configuration."""
    model = next(iter(session.models.values()), None)
    if model is not None and model.eos is not None:
        return model.eos
    at = None if model is None else folder_of(model)
    return frozenset() if at is None else ends(at)
