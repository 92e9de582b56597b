"""Decoders that write a piece, judge it, and write it again or keep it: Monitoring Decoding, AdaDec, CNTP, GRACE, Arbitrage,
RSD."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from fidelity.entry import recorded
from fidelity.transcribed.compared import Columns, Compared, Text, after, best, by_step, replayed
from fidelity.watched import run

from lab.recordings import tabled
from lab.recordings.tables import Letters, Stream, untied


def models(case: Mapping[str, Any]) -> dict[str, Any]:
    """A target, and a drafter that agrees with it on most tokens."""
    seed, size, sharp = case["seed"], case.get("size", 8), case.get("sharp", 1.0)
    drafter = untied(size, seed, sharp=sharp, name="drafter", blend=(seed + 1, case.get("blend", 0.8)))
    reader = untied(size, seed + 2, sharp=sharp, name="reader")
    return {"target": untied(size, seed, sharp=sharp), "drafter": drafter, "reader": reader, "judge": reader}


def pieces(program: str, *names: str, using: tuple[str, ...] = ("target", "drafter"), **more: Any) -> Any:
    """Ours: the text, by what each step commits."""
    return replayed(program, *names, models=models, columns=by_step, using=using, **more)


def prob(model: Any, text: Text, piece: Text) -> float:
    """How likely a piece is after a text."""
    return math.prod(after(model, (*text, *piece[:i]))[x] for i, x in enumerate(piece))


def monitoring(case: Mapping[str, Any]) -> Columns:
    """base: the drafter, expert: the target. The loop's depth is cut where the text reaches its limit."""
    expert, base = models(case)["target"], models(case)["drafter"]
    text, committed = tuple(case["prompt"]), []
    while (left := len(case["prompt"]) + case["limit"] - len(text)) and text[-1] not in case["eos"]:
        piece: Text = ()
        while len(piece) < min(case["depth"], left) and piece[-1:] not in [(e,) for e in case["eos"]]:
            piece = (*piece, best(after(base, (*text, *piece)), 1)[0])
        if prob(expert, text, piece) / prob(base, text, piece) < case["tau"]:
            paths: list[Text] = [()]
            for level in range(min(case["depth"], left)):
                k = case["width"] if level == 0 else case["width"] // case["branch"]
                wider = [(*p, x) for p in paths for x in best(after(base, (*text, *p)), k)]
                wider.sort(key=lambda p: -prob(expert, text, p) / prob(base, text, p))
                paths = wider[: case["branch"]]
            piece = paths[0]
        for i, x in enumerate(piece):
            if x in case["eos"]:
                piece = piece[: i + 1]
                break
        text += piece
        committed.append(piece)
    return {"tokens": text, "committed": committed}


class Writer:
    """Draws tokens at a temperature, greedily at 0."""

    def __init__(self, case: Mapping[str, Any]) -> None:
        self.temperature, self.noise = case.get("temperature", 0), Stream(case["seed"])
        self.end = len(case["prompt"]) + case["limit"]
        self.eos = case.get("eos", ())

    def law(self, model: Any, text: Text) -> np.ndarray:
        """What is drawn from."""
        p = after(model, text)
        if not self.temperature:
            return np.where(np.arange(len(p)) == p.argmax(), 1.0, 0.0)
        p = p ** (1 / self.temperature)
        return np.asarray(p / p.sum())

    def sure(self, model: Any, text: Text) -> float:
        """How likely the model's likeliest token is."""
        return float(after(model, text).max())

    def token(self, model: Any, text: Text, banned: Sequence[int] = ()) -> int:
        law = self.law(model, text)
        if banned:
            p = after(model, text) ** (1 / (self.temperature or 1))
            p[list(banned)] = 0
            law = p / p.sum()
        return self.noise.draw(law) if self.temperature else int(law.argmax())

    def step(self, model: Any, text: Text, marks: Sequence[int], reach: int) -> Text:
        """Tokens up to a mark, an end token, or `reach` of them."""
        piece: Text = ()
        while len(piece) < reach and piece[-1:] not in [(m,) for m in (*marks, *self.eos)]:
            piece = (*piece, self.token(model, (*text, *piece)))
        return piece

    def over(self, text: Text) -> bool:
        return len(text) == self.end or text[-1] in self.eos


def adadec(case: Mapping[str, Any], backend: str) -> Columns:
    """With how many tokens were chosen by looking ahead: by as many rows in a call as there are candidates."""
    models, names = {"target": untied(case["size"], case["seed"], window=None)}, ("k", "length", "tau")
    params = {name: case[name] for name in names}
    done = run("adadec", case["prompt"], models, backend, max_tokens=case["limit"], eos=case["eos"], **params)
    ahead = [c for c in done.calls if len(c.rows) == case["k"]]
    return {"tokens": done.tokens, "lookaheads": len(ahead) // case["length"]}


def cautious(case: Mapping[str, Any]) -> Columns:
    """As many trials as the entropy says; that of the lowest perplexity stays. Tokens 0 and 1 are marks."""
    model, text, committed, write = models(case)["target"], tuple(case["prompt"]), [], Writer(case)
    while not write.over(text):
        p = write.law(model, text)
        entropy = -(p * np.log(p + 1e-10)).sum()
        share = min(1.0, max(0.0, (entropy - case["low"]) / (case["high"] - case["low"])))
        trials = int(1 + (case["most"] - 1) * share)
        if trials == 1:
            piece: Text = (write.token(model, text),)
        else:
            tried = [write.step(model, text, [0, 1], write.end - len(text)) for _ in range(trials)]
            laws = [[write.law(model, (*text, *t[:i]))[x] for i, x in enumerate(t)] for t in tried]
            perplexity = [math.exp(-sum(map(math.log, law)) / len(law)) for law in laws]
            piece = tried[perplexity.index(min(perplexity))]
        text += piece
        committed.append(piece)
    return {"tokens": text, "committed": committed}


def grace(case: Mapping[str, Any]) -> Columns:
    """Candidates by the mean of their log-probabilities and the softmax of the discriminator's scores: here the log-odds of
    the largest probability that the reader gives after a candidate."""
    target, reader = models(case)["target"], models(case)["reader"]
    text, committed, write = tuple(case["prompt"]), [], Writer(case)
    while not write.over(text):
        steps = [write.step(target, text, [0], case["reach"]) for _ in range(case["k"])]
        means = [np.mean([np.log(write.law(target, (*text, *s[:i]))[x]) for i, x in enumerate(s)]) for s in steps]
        right = np.array([after(reader, (*text, *s)).max() for s in steps])
        odds = right / (1 - right)
        final = (1 - case["beta"]) * np.exp(means) + case["beta"] * odds / odds.sum()
        piece = steps[int(np.argmax(final))][: write.end - len(text)]
        text += piece
        committed.append(piece)
    return {"tokens": text, "committed": committed}


def judged(case: Mapping[str, Any], again: Any) -> Columns:
    """A drafted step stays, or the target writes another. The judge's score is its largest probability after the step."""
    text, committed, write = tuple(case["prompt"]), [], Writer(case)
    while not write.over(text):
        reach = min(case["reach"], write.end - len(text))
        piece = write.step(models(case)["drafter"], text, [0], reach)
        if again(after(models(case)["reader"], (*text, *piece)).max()):
            piece = write.step(models(case)["target"], text, [0], reach)
        text += piece
        committed.append(piece)
    return {"tokens": text, "committed": committed}


def arbitrage(case: Mapping[str, Any]) -> Columns:
    return judged(case, lambda advantage: advantage >= case["tau"])


def rsd(case: Mapping[str, Any]) -> Columns:
    return judged(case, lambda reward: reward < case["delta"])


LINES: dict[str, Any] = {"tokenizer": Letters("\n")}
"""Token 0 ends a line."""


ENTRIES = [recorded("adadec", adadec)]
COMPARED = [
    Compared(
        "monitoring",
        "yuruic/monitoring_decoding afef899c, decoding.py, _MonitorDecodingEngine.decode",
        monitoring,
        pieces("monitoring", "depth", "width", "branch", "tau"),
        {
            f"{seed} {tau}": {
                "seed": seed,
                "prompt": (1, 2, seed),
                "limit": 17,
                "eos": eos,
                "depth": depth,
                "width": width,
                "branch": branch,
                "tau": tau,
                "blend": blend,
            }
            for seed, depth, width, branch, tau, blend, eos in (
                (1, 4, 4, 2, 0.5, 0.8, ()),
                (2, 4, 4, 2, 0.5, 0.4, (7,)),
                (3, 3, 6, 3, 0.9, 0.8, (7,)),
                (4, 2, 5, 2, 0.3, 1.2, ()),
            )
        },
        "tau: ratio_threshold; a text is cut after its first end token, the published code after its last",
    ),
    Compared(
        "cautious",
        "wyzjack/CNTP 105b0968, transformers/generation/utils.py, _sample_reflect_perplexity",
        cautious,
        pieces("cautious", "low", "high", "most", using=("target",), tokenizer=Letters("\n;")),
        tabled(
            "{seed} {most}",
            "seed low high most temperature eos",
            ((1, 0.01, 1.5, 10, 1.0, ()), (2, 1.2, 1.9, 5, 0.8, (7,)), (3, 1.3, 1.7, 4, 0.6, ()), (4, 0.5, 2.0, 3, 1.2, (7,))),
            prompt=(1, 2),
            limit=20,
        ),
        "of its ten marks the line end alone",
    ),
    Compared(
        "discriminator_guided",
        "mukhal/grace be493be2, grace/reason.py, _generate_step_with_score_disc",
        grace,
        pieces("discriminator_guided", "k", "beta", "reach", using=("target", "reader"), **LINES),
        {
            f"{seed} {k}": {"seed": seed, "prompt": (1, 2), "limit": 18, "k": k, "beta": beta, "reach": reach, "temperature": t}
            for seed, k, beta, reach, t in ((1, 5, 0.1, 6, 0.8), (2, 8, 0.5, 4, 1.0), (3, 3, 0.9, 8, 0.8), (4, 1, 0.1, 5, 1.0))
        },
        "method random; without the calculator, and the question after which a final answer is not judged",
    ),
    Compared(
        "arbitrage",
        "SqueezeAILab/Arbitrage c8dd0983, arbitrage.py, get_responses (router)",
        arbitrage,
        pieces("arbitrage", "tau", "reach", using=("target", "drafter", "reader"), mark="\n", **LINES),
        tabled(
            "{seed} {tau} {temperature}",
            "seed tau reach temperature",
            ((1, 0.4, 9, 0), (1, 0.3784523926278545, 9, 0), (2, 0.35, 5, 1.0), (3, 0.3, 9, 0.6), (5, 0.45, 24, 1.0)),
            prompt=(1, 2),
            limit=24,
        ),
        "tau: prm_threshold, once what the router says itself; a limit of a step alone does not end a text",
    ),
    Compared(
        "reward_guided_sd",
        "BaohaoLiao/RSD 933d8e57, main_online.py, get_responses",
        rsd,
        pieces("reward_guided_sd", "delta", "reach", using=("target", "drafter", "judge"), mark="\n", **LINES),
        tabled(
            "{seed} {delta} {temperature}",
            "seed delta reach temperature",
            ((1, 0.4, 9, 0), (2, 0.35, 5, 1.0), (3, 0.3, 9, 0.6), (5, 0.45, 24, 1.0)),
            prompt=(1, 2),
            limit=24,
        ),
        "delta: prm_threshold; a limit of a step alone does not end a text",
    ),
]
