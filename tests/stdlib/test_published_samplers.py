"""Samplers at details of their published code that no recording here has, against the rules written once more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from lib.stdlib.published_details import Text, V, causal, run, said
from lib.stdlib.table_models import module

from decgraph.backends.registry import machine
from decgraph.runtime.models.interface import Model
from decgraph.runtime.models.reading import Reading
from decgraph.runtime.request import Request
from decgraph.runtime.session import Result, Session
from decgraph.runtime.text import detokenizer_of
from decgraph.runtime.trace import Committed

LIMIT = 10


class Letters:
    """A tokenizer of letters and marks."""

    detokenizer = detokenizer_of(["a", "b", "c", "d", ";", "\n", "?", "e"])

    def decode(self, tokens: Sequence[int]) -> str:
        return self.detokenizer.text(tokens)


MARKS = {4, 5, 6}


class Judges(Reading):
    """A head that says what a function does of a text, and remembers the texts."""

    def __init__(self, model: Model, value: Callable[[Text], float]) -> None:
        super().__init__(model, "prob", "judges")
        self.value = value
        self.texts: list[Text] = []

    def read(self, paths: Sequence[Text]) -> list[Any]:
        self.texts += [tuple(p) for p in paths]
        return [self.value(tuple(p)) for p in paths]


def spoken(name: str, models: dict[str, Any], params: dict[str, Any], **request: Any) -> Result:
    """A program that reads texts."""
    bound = Session(module(name), models, params, machine=machine("reference"), tokenizer=Letters())  # type: ignore[arg-type]
    done = bound.run(Request(**{"prompt": (0, 3), "max_tokens": LIMIT, "temperature": 0, **request}))
    assert done.error is None, done.error
    return done


def frustratingly_simple(after: Any, prompt: Text, k: int, alpha: float, n: int, beta: float) -> Text:
    """A text shorter than the context of the longest n-gram is not penalised."""
    text = prompt
    while len(text) - len(prompt) < LIMIT:
        p, anti = after(text), np.zeros(V)
        for v in range(V) if len(text) >= n - 1 else ():
            rest = 1.0
            for i in range(n - 1, -1, -1):
                follows = [text[j + i] for j in range(len(text) - i) if text[j : j + i] == text[len(text) - i :]]
                if v in follows:
                    share = follows.count(v) / (len(follows) + (1 if i else 0))
                    anti[v] += rest * share * (beta if i else 1)
                    rest *= 1 - beta
        score = np.where(p >= np.sort(p)[-k], (1 - alpha) * p - alpha * anti, -np.inf)
        text = (*text, int(score.argmax()))
    return text[len(prompt) :]


@pytest.mark.parametrize(("n", "alpha", "beta"), [(5, 0.6, 0.5), (3, 0.65, 0.9), (2, 0.8, 0.7)])
def test_a_text_shorter_than_the_n_gram_is_not_penalised(n: int, alpha: float, beta: float) -> None:
    for seed in range(3):
        for prompt in ((2,), (5, 5), (1, 4, 1, 4, 1)):
            model = causal(seed)
            params = {"k": 6, "alpha": alpha, "n": n, "beta": beta}
            done = run("frustratingly_simple", {"target": model}, prompt, params, max_tokens=LIMIT)
            assert done.tokens == frustratingly_simple(said(model), prompt, 6, alpha, n, beta), (seed, prompt)


def adadec(after: Any, prompt: Text, k: int, length: int, tau: float, max_tokens: int) -> Text:
    """Where the entropy is tau or more, the mean log-probability of a token and the greedy ones after it decides."""
    text = prompt
    while len(text) - len(prompt) < max_tokens:
        p = after(text)
        if -(p * np.log(p)).sum() < tau:
            text = (*text, int(p.argmax()))
            continue
        like = {}
        for v in np.argsort(-p, kind="stable")[:k]:
            at, total = (*text, int(v)), np.log(p[v])
            for _ in range(length):
                q = after(at)
                at, total = (*at, int(q.argmax())), total + np.log(q.max())
            like[int(v)] = total / (length + 1)
        text = (*text, max(like, key=lambda v: like[v]))
    return text[len(prompt) :]


@pytest.mark.parametrize(("k", "length", "tau"), [(3, 4, 1.0), (2, 1, 1.4), (4, 2, 0.0)])
def test_an_unsure_token_is_chosen_by_what_follows_it(k: int, length: int, tau: float) -> None:
    for seed in range(2):
        model = causal(seed)
        done = run("adadec", {"target": model}, (0, 3), {"k": k, "length": length, "tau": tau}, max_tokens=8 + length)
        assert done.tokens[:8] == adadec(said(model), (0, 3), k, length, tau, 8), seed


def test_a_cautious_trial_ends_at_any_mark() -> None:
    """What is committed at once is one token, or a trial: no mark before its end, and one there."""
    long = set()
    for seed in range(4):
        done = spoken("cautious", {"target": causal(seed)}, {"most": 3}, temperature=1, seed=seed, max_tokens=20)
        *chunks, _ = [e.tokens for e in done.events if isinstance(e, Committed)]
        for chunk in chunks:
            assert not MARKS & set(chunk[:-1])
            assert len(chunk) == 1 or chunk[-1] in MARKS
            long |= {chunk[-1]} if len(chunk) > 1 else set()
    assert long == MARKS


@pytest.mark.parametrize(("says", "writer"), [(0.5, "target"), (0.49, "drafter")])
def test_a_step_is_written_again_from_the_threshold_on(says: float, writer: str) -> None:
    for seed in range(3):
        models = {"target": causal(seed), "drafter": causal(seed + 9), "reader": causal(seed)}
        router = Judges(models["reader"], lambda text: says)
        done = spoken("arbitrage", models | {"router": router}, {"tau": 0.5, "mark": "?", "reach": 4})
        assert done.tokens == run("autoregressive", {"target": models[writer]}, (0, 3), {}, max_tokens=LIMIT).tokens


@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0])
def test_steps_compete_by_their_mean_probability_and_a_softmax_of_the_discriminator(beta: float) -> None:
    """Of the first step's candidates, which the discriminator saw."""
    for seed in range(4):
        model = causal(seed)

        def odds(text: Text) -> float:
            return (1 + sum(text) % 7) / 9

        head = Judges(model, odds)
        models = {"target": model, "reader": model, "discriminator": head}
        done = spoken("discriminator_guided", models, {"k": 5, "beta": beta, "mark": "?", "reach": 3}, temperature=1, seed=seed)
        steps = [text[2:] for text in head.texts[:5]]
        after = said(model)
        like = [np.exp(np.mean([np.log(after((0, 3, *s[:i]))[s[i]]) for i in range(len(s))])) for s in steps]
        share = np.array([odds((0, 3, *s)) / (1 - odds((0, 3, *s))) for s in steps])
        best = steps[int(((1 - beta) * np.array(like) + beta * share / share.sum()).argmax())]
        assert done.tokens[: len(best)] == best, (seed, steps)
