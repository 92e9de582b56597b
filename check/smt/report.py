"""What a proof for all distributions says: its obligations one by one, and a model where one fails."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from decgraph.check.smt.diagrams import Tokens

PROVED, REFUTED, UNDECIDED = "proved for all distributions", "refuted", "undecided"


@dataclass
class Model:
    """Distributions with which a claim fails, and the two distributions of the first tokens, as the exact checker computes
    them."""

    rows: dict[tuple[str, Tokens], tuple[Fraction, ...]]
    ours: dict[Tokens, Fraction]
    theirs: dict[Tokens, Fraction]
    names: tuple[str, str]
    same_noise: bool = False

    @property
    def distance(self) -> Fraction:
        """The total variation of the two distributions."""
        keys = {*self.ours, *self.theirs}
        return sum((abs(self.ours.get(k, Fraction(0)) - self.theirs.get(k, Fraction(0))) for k in keys), Fraction(0)) / 2

    def render(self) -> list[str]:
        """Lines of text."""
        out = [
            f"{name}( . | {' '.join(map(str, path))} ) = {' '.join(map(str, row))}"
            for (name, path), row in sorted(self.rows.items(), key=lambda r: (len(r[0][1]), r[0]))
        ]
        if self.same_noise:
            out += [
                f"with the same noise {n} commits {list(next(iter(d)))}"
                for n, d in zip(self.names, (self.ours, self.theirs), strict=True)
            ]
            return out
        width = max(14, *map(len, self.names))
        out.append(f"distribution of the first tokens: total variation {self.distance} = {float(self.distance):.4f}")
        out.append(f"{'tokens':<10} {self.names[0]:>{width}} {self.names[1]:>{width}}")
        for k in sorted({*self.ours, *self.theirs}):
            a, b = self.ours.get(k, Fraction(0)), self.theirs.get(k, Fraction(0))
            out.append(f"{' '.join(map(str, k)):<10} {a!s:>{width}} {b!s:>{width}}" + ("" if a == b else "   <-"))
        return out

    def to_json(self) -> dict[str, Any]:

        def written(d: dict[Tokens, Fraction]) -> dict[str, str]:
            return {" ".join(map(str, k)): str(v) for k, v in sorted(d.items())}

        return {
            "rows": [
                {"model": name, "after": list(path), "probabilities": [str(x) for x in row]}
                for (name, path), row in self.rows.items()
            ],
            "ours": written(self.ours),
            "theirs": written(self.theirs),
            "total_variation": str(self.distance),
        }


@dataclass
class Obligation:
    """One thing that was to be proved, and what became of it.

    runs: ways of the program that were followed, each with symbolic probabilities. symbols: entries of distributions, and
    positive parts of polynomials in them. questions: how many were asked of the solver. length: the most tokens of a step.
    """

    label: str
    vocab: int
    verdict: str = UNDECIDED
    reason: str = ""
    runs: int = 0
    symbols: int = 0
    questions: int = 0
    length: int = 0
    seconds: float = 0.0
    model: Model | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "label": self.label,
            "vocab": self.vocab,
            "verdict": self.verdict,
            "reason": self.reason,
            "runs": self.runs,
            "symbols": self.symbols,
            "questions": self.questions,
            "length": self.length,
            "seconds": round(self.seconds, 3),
            "model": self.model.to_json() if self.model else None,
        }


@dataclass
class SmtReport:
    """The verdict on an algorithm or a rule: proved where every obligation is, refuted where one is, else undecided."""

    name: str
    claim: str
    obligations: list[Obligation] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        """`proved for all distributions`, `refuted` or `undecided`."""
        verdicts = {o.verdict for o in self.obligations}
        if REFUTED in verdicts:
            return REFUTED
        return PROVED if verdicts == {PROVED} else UNDECIDED

    @property
    def seconds(self) -> float:
        return sum(o.seconds for o in self.obligations)

    def to_json(self) -> dict[str, Any]:
        """Plain data for `--json`."""
        return {
            "name": self.name,
            "claim": self.claim,
            "verdict": self.verdict,
            "seconds": round(self.seconds, 3),
            "obligations": [o.to_json() for o in self.obligations],
        }

    def render(self) -> str:
        """A page of text."""
        out = [f"{self.verdict}: {self.name}: {self.claim}"]
        for o in self.obligations:
            out.append(f"    {o.verdict:<28}  {o.label}, {o.vocab} tokens")
            out.append(f"        {o.runs} ways, {o.symbols} symbols, {o.questions} questions to the solver, {o.seconds:.1f} s")
            if o.reason:
                out.append(f"        {o.reason}")
            if o.model is not None:
                out += ["        " + line for line in o.model.render()]
        return "\n".join(out)


__all__ = ["PROVED", "REFUTED", "UNDECIDED", "Model", "Obligation", "SmtReport"]
