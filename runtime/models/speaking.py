"""`drafter.speaking(target)`: a model in another model's vocabulary; and how a model's own vocabulary is spelled."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from decgraph.errors import DecError
from decgraph.ir.memo import memo_of
from decgraph.runtime.arguments import Tokenizing
from decgraph.runtime.models.interface import Memory, Model, Path, Scores, SoftCell, check_path
from decgraph.runtime.models.spelling import Spelling, numbered, retokenized, shared
from decgraph.runtime.text import Tokenizer, has_tokenizer


def spelling_of(model: Model) -> Spelling:
    """The spelling of a model's vocabulary: the one it was given, its folder's tokenizer, or, of a model without one such as a
    table, letters by number. Raises DecError for a model that needs a tokenizer and has none beside it."""
    if model.spelling is not None:
        return model.spelling
    made: Spelling = memo_of(model).once("spelling", lambda: _of(model))
    return made


def _of(model: Model) -> Spelling:
    module = getattr(getattr(model, "net", None), "base", None) or getattr(model, "module", None)
    named = getattr(getattr(module, "config", None), "name_or_path", "")
    for home in (model.home, model.family, named):
        if home and has_tokenizer(pathlib.Path(str(home))):
            return of_tokenizer(Tokenizer(pathlib.Path(str(home))), model)
    if any(kind.__module__.startswith("decgraph.runtime.models.hf") for kind in type(model).__mro__):
        raise DecError(
            f"the program asks for the texts of {model.name!r}'s tokens, and it has no tokenizer beside it",
            hint="load it from a folder that has a tokenizer.json",
        )
    return numbered(model.vocab.size)


def of_tokenizer(tokenizer: Tokenizing, model: Model) -> Spelling:
    """The spelling of a tokenizer, for a model that may know fewer tokens."""
    known = tokenizer.detokenizer
    pieces = known.pieces[: model.vocab.size]
    special = {name: t for t, name in sorted(known.special.items()) if t < len(pieces)}
    ends = sorted(model.eos or ())
    first = ends[0] if ends else next(iter(special.values()), 0)
    return Spelling(pieces, getattr(tokenizer, "encode_part", tokenizer.encode), special, first, tokenizer.encode)


class Speaking(Model):
    """A causal model that reads the text of a path of `other`'s tokens, in its own tokens, and gives its distribution over the
    tokens that both vocabularies share, which there sums to one: the others have no mass. Where it gives no mass to any of
    them, they are equally likely. Of a text that is longer than its context it reads the end."""

    engine_module = "speaking"

    def __init__(self, base: Model, other: Model) -> None:
        if base.kind != "causal":
            raise DecError(f"a {base.kind} model does not speak another vocabulary: {base.name!r}", hint="a causal model does")
        self.kind = "causal"
        self.name, self.vocab, self.context = f"{base.name}.speaking({other.name})", other.vocab, None
        self.layers, self.exact, self.family = base.layers, base.exact, f"{base.family} speaking {other.vocab.name}"
        self.base, self.source, self.own = base, spelling_of(other), spelling_of(base)
        self.spelling = self.source
        self.shared = shared(self.own, self.source)
        if not self.shared:
            raise DecError(
                f"{base.name!r} and {other.name!r} have no token in common",
                hint="draft in the drafter's own tokens, and retokenize the text: retokenize(tokens, target)",
            )

    def holder(self) -> object:
        return self.base.holder()

    def translated(self, path: Path) -> tuple[int, ...]:
        """The text of a path in the model's own tokens."""
        tokens = [token for token in path if not isinstance(token, SoftCell)]
        if len(tokens) < len(path):
            raise self._cannot("read mixtures of another model's embeddings")
        own = retokenized(tokens, self.source, self.own, whole=True)
        return own if self.base.context is None else own[-self.base.context :]

    def eval(self, paths: Sequence[Path], memory: Memory | None = None) -> list[Scores]:
        if memory is not None:
            raise self._cannot("be called on a memory: its keys and values are of other tokens")
        rows = self.base.eval([self.translated(check_path(self, path)) for path in paths])
        return [self._over(row) for row in rows]

    def _over(self, row: Scores) -> Scores:
        """A row over the other vocabulary."""
        if row.weights is not None:
            found = {other: row.weights[own] for own, other in self.shared}
            total = sum(found.values()) or 0
            share = Fraction(1, len(found))
            return Scores(
                weights=tuple(
                    (found[v] / total if total else share) if v in found else Fraction(0) for v in range(self.vocab.size)
                )
            )
        assert row.logits is not None
        own, other = np.array(self.shared).T
        out = np.full(self.vocab.size, -np.inf)
        out[other] = row.logits[own]
        if not np.isfinite(out).any():
            out[other] = 0.0
        return Scores(logits=out)
