"""Tokens that a program, or the value of a parameter, names by their text."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from decgraph.errors import DecError
from decgraph.ir.values import Module
from decgraph.ir.walk import functions_of, ops_of
from decgraph.runtime.arguments import Tokenizing
from decgraph.runtime.models.interface import Model

if TYPE_CHECKING:
    from decgraph.runtime.models.spelling import Spelling

TEXT = "text "
"""Begins the name under which the parameters of a run have the token of a text."""


def spelling_for(tokenizer: Tokenizing | None, main: Model | None) -> Spelling:
    """The spelling of the session's tokenizer, else that of its first model. Raises DecError where there is none."""
    if main is None:
        raise DecError("a token by its text needs a model", hint="algorithm name(target: causal): ...")
    from decgraph.runtime.models.speaking import of_tokenizer, spelling_of

    return spelling_of(main) if tokenizer is None else of_tokenizer(tokenizer, main)


def token_of(text: str, spelling: Spelling) -> int:
    """The one token with a text. Raises DecError where the text is none, or several, which are named."""
    found = spelling.token(text)
    if found is not None:
        return found
    spelt = lambda s: json.dumps(s, ensure_ascii=False)
    read = spelling.read(text, whole=False)
    pieces = [spelt(spelling.text([t])) for t in read] if spelling.text(read) == text else []
    near = next((t for t in (f" {text}", text.strip()) if t != text and spelling.token(t) is not None), None)
    what = f"{len(pieces)} tokens of the tokenizer, {', '.join(pieces)}" if pieces else "no token of the tokenizer"
    advice = "compare with one of them, or texts: text_of(tokens)" if pieces else "tokenizer=FOLDER, where the model has none"
    raise DecError(f"{spelt(text)} is {what}", hint=f"{spelt(near)} is one token" if near is not None else advice)


def tokens_by_text(module: Module, name: str, tokenizer: Tokenizing | None, main: Model | None) -> dict[str, int]:
    """The tokens that function `name` and those that it runs name by their texts, each under `TEXT` and its text. Raises
    DecError, with the place, for a text that is not one token."""
    functions = functions_of(replace(module, main=name))
    texts = [(op.attrs["text"], op.loc) for f in functions for op in ops_of(f) if op.opcode == "token"]
    for f in functions[:-1]:  # the defaults of those that it runs
        texts += [(p.default, f.loc) for p in f.params if isinstance(p.default, str) and p.value.type.elem == "token"]
    spelling = spelling_for(tokenizer, main) if texts else None
    out: dict[str, int] = {}
    for text, loc in texts:
        try:
            assert spelling is not None
            out[TEXT + text] = token_of(text, spelling)
        except DecError as error:
            raise DecError(f"{loc.told}: {error.diagnostics[0]}", hint=error.hint) from None
    return out
