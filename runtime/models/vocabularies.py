"""The spelling of a model's vocabulary: its own, that of the tokenizer beside it, or letters by number."""

from __future__ import annotations

from pathlib import Path

from decgraph.errors import DecError
from decgraph.ir.memo import memo_of
from decgraph.runtime.models.interface import Model
from decgraph.runtime.models.spelling import Spelling, numbered
from decgraph.runtime.text import Tokenizer, has_tokenizer


def spelling_of(model: Model) -> Spelling:
    """The spelling of a model's vocabulary: the one it was given, its folder's tokenizer, or, of a model without one such as a
    table, letters by number. Raises DecError for a model that needs a tokenizer and has none beside it."""
    if model.spelling is not None:
        return model.spelling
    made: Spelling = memo_of(model).once("spelling", lambda: _of(model))
    return made


def _of(model: Model) -> Spelling:
    module = getattr(getattr(model, "net", None), "module", None) or getattr(model, "module", None)
    named = getattr(getattr(module, "config", None), "name_or_path", "")
    for home in (model.home, model.family, named):
        if home and has_tokenizer(Path(str(home))):
            return of_tokenizer(Path(str(home)), model)
    if any(kind.__module__.startswith("decgraph.runtime.models.hf") for kind in type(model).__mro__):
        raise DecError(
            f"{model.name!r} is to share tokens with a model of another vocabulary, and has no tokenizer beside it",
            hint="load it from a folder that has a tokenizer.json",
        )
    return numbered(model.vocab.size)


def of_tokenizer(folder: Path, model: Model) -> Spelling:
    """The spelling of a folder's tokenizer, for a model that may know fewer tokens."""
    tokenizer = Tokenizer(folder)
    pieces = tokenizer.detokenizer.pieces[: model.vocab.size]
    names = ((tokenizer.spelled(t), t) for t, piece in enumerate(pieces) if not piece)
    special = {name: t for name, t in names if name is not None}
    ends = sorted(model.eos or ())
    first = ends[0] if ends else next(iter(special.values()), 0)
    return Spelling(pieces, tokenizer.encode_part, special, first, tokenizer.encode)
