"""`drafter.speaking(target)`: a model in another model's vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from decgraph.errors import DecError
from decgraph.runtime.models.interface import Memory, Model, Path, Scores, SoftCell, check_path
from decgraph.runtime.models.spelling import retokenized, shared
from decgraph.runtime.models.vocabularies import spelling_of


class Speaking(Model):
    """A causal model that reads the text of a path of `other`'s tokens, in its own tokens, and gives its distribution over the
    tokens that both vocabularies share, which there sums to one: the others have no mass. Where it gives no mass to any of
    them, they are equally likely. Of a text that is longer than its context it reads the end."""

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

    def eval(self, paths: Sequence[Path], given: Memory | None = None) -> list[Scores]:
        if given is not None:
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
