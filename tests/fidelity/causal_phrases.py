"""Constrained beam search as transformers had it: phrases, and choices between phrases, by banks that are filled in turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fidelity import models
from fidelity.causal_beams import scored
from fidelity.entry import FOLDER, Case, Entry, Outcome
from fidelity.forced import near
from fidelity.watched import run

Phrases = list[list[int]]


class Progress:
    """How far a text is with its constraints, each a list of phrases one of which must stand in it; the prompt counts. One that
    breaks off waits again, behind the others."""

    def __init__(self, wanted: Sequence[Phrases], text: Sequence[int]) -> None:
        self.longest = max(len(p) for one in wanted for p in one)
        self.waiting, self.met = list(wanted), 0
        self.open: Phrases | None = None
        self.begun: list[int] = []
        for token in text:
            if not self.complete:
                self.add(token)

    @property
    def complete(self) -> bool:
        return not self.waiting and self.open is None

    def follows(self, one: Phrases, begun: Sequence[int]) -> list[int]:
        n = len(begun)
        return list(dict.fromkeys(p[n] for p in one if p[:n] == list(begun) and len(p) > n))

    def needs(self) -> list[int]:
        if self.complete:
            return []
        if self.open is not None:
            return self.follows(self.open, self.begun)
        return [t for one in self.waiting for t in self.follows(one, [])]

    def add(self, token: int) -> None:
        if self.open is None:
            self.begun = []
            self.open = next((one for one in self.waiting if token in self.follows(one, [])), None)
            if self.open is None:
                return
            self.waiting.remove(self.open)
        elif token not in self.follows(self.open, self.begun):
            self.waiting.append(self.open)
            self.open = None
            return
        self.begun = [*self.begun, token]
        if self.begun in self.open:
            self.open, self.met = None, self.met + 1

    def bank(self) -> int:
        length = 0 if self.open is None else max(map(len, self.open))
        return self.met * self.longest + (0 if self.open is None else self.longest - length + len(self.begun))


def phrases(case: Case, backend: str) -> Outcome:
    p, prompt = case["parameters"], tuple(case["prompt"])
    wanted = [one if isinstance(one[0], list) else [one] for one in p["force_words_ids"]]
    eos = p.get("eos_token_id", -1)

    def progress(path: Any) -> Progress:
        return Progress(wanted, (*prompt, *(int(t) for t in path[1:])))

    done = run(
        "phrases",
        prompt,
        {"target": models.causal("target")},
        backend,
        text=(FOLDER / "programs" / "phrases.dec").read_text(encoding="utf-8"),
        externs={
            "bank": lambda path: progress(path).bank(),
            "needs": lambda path: progress(path).needs(),
            "complete": lambda path: progress(path).complete,
        },
        max_tokens=p["max_new_tokens"],
        k=p["num_beams"],
        kept=p["num_return_sequences"],
        end=eos,
    )
    found = [tuple(path) for path in done.result.results][: p["num_return_sequences"]]
    beams = [[()], *(sorted(texts) for texts in running(case))]
    recorded: dict[str, Any] = {
        "tokens": tuple(case["output"]),
        "outputs": [tuple(o) for o in case["outputs"]],
        "scores": case["sequences_scores"],
        "target calls": case["target_forwards"],
        "beams": beams[: case["target_forwards"]],
    }
    ours = {
        "tokens": done.tokens,
        "outputs": [(*prompt, *t) for t in found],
        "scores": near(recorded["scores"], [scored(t, prompt, 1.0) for t in found], 1e-4),
        "target calls": len(done.calls),
        "beams": [sorted({row[len(prompt) :] for row in c.rows}) for c in done.calls],
    }
    return Outcome(recorded, ours)


def running(case: Case) -> list[list[tuple[int, ...]]]:
    """The texts of each step's beam, from its tokens and their parents."""
    beam: list[tuple[int, ...]] = [()] * case["parameters"]["num_beams"]
    out = []
    for step in case["steps"]:
        beam = [(*beam[b["parent"]], b["token"]) for b in step["running"]]
        out.append(beam)
    return out


ENTRIES = [
    Entry(
        "logits/constrained_beam",
        "[phrases](../tests/fidelity/programs/phrases.dec)",
        phrases,
        note="which token brings a phrase forward is a function of the caller's; stdlib's constrained_beam has the banks of "
        "the paper's authors",
    )
]
