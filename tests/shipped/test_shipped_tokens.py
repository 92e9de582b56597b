"""On the shipped models: what refines autoregressive in tokens commits exactly its tokens; the rest has its law.

The fast suite draws a few (prompt, seed, temperature); `make slow` the 200 that the project promises.
"""

from __future__ import annotations

import random
from collections import Counter
from functools import cache
from typing import Any

import pytest
from lib.stdlib import table_models as shelf

import decgraph
from decgraph import zoo
from decgraph.models import request_for, shipped
from decgraph.runtime.text import Tokenizer

LIMIT = 10
TEMPERATURES = (0, 0.6, 1, 1.3)


@cache
def session(name: str) -> Any:
    """An algorithm on the shipped models; models of one folder are shared so that what is computed once is kept."""
    algorithm = decgraph.load(name)
    models: dict[str, Any] = {}
    for parameter, folder in shipped(algorithm.function).items():
        models[parameter] = shared(folder)
        if "heads" in str(algorithm.function.param(parameter).value.type.of[3]):
            from decgraph.runtime.models import hf

            models[parameter] = shared(folder).with_heads(hf.load_heads(zoo.path("medusa"), shared(folder)))
    small = {
        "jacobi": {"length": 8},
        "eagle2": {"depth": 3, "k": 4, "budget": 12},
        "lookahead": {"w": 5, "n": 4, "g": 5},
        "token_recycling": {"shape": "table_16"},
    }
    return algorithm.session(models, tokenizer=Tokenizer(zoo.path("target")), **small.get(name, {}))


def run(name: str, **fields: Any) -> Any:
    s = session(name)
    result = s.run(request_for(s, **fields), keep_events=False)
    assert result.error is None, str(result.error)
    return result


@cache
def shared(folder: str) -> Any:
    from decgraph.runtime.models import hf
    from decgraph.runtime.models.masked_load import load_masked

    if folder in ("eagle", "exit"):
        load = hf.load_features if folder == "eagle" else hf.load_adapter
        return load(zoo.path(folder), shared("target"))
    return load_masked(zoo.path(folder)) if folder == "masked" else hf.load_causal(zoo.path(folder))


def by_mode(mode: str) -> list[str]:
    """Algorithms that claim to refine autoregressive in this mode."""
    return shelf.refining(mode, "autoregressive")


def requests(count: int) -> list[dict[str, Any]]:
    """Prompts from library sources and tasks, with seeds and temperatures; always the same ones."""
    r = random.Random(7)
    texts = [
        "def mean(values):\n    ",
        "import os\n\nclass ",
        "    for i in range(len(",
        "try:\n    import ",
        "copy: a b c\n",
        "x = [1, 2, 3]\nprint(",
        '"""Return the ',
        "return self._",
        "raise ValueError(",
        "if not isinstance(",
    ]
    out = []
    for i in range(count):
        text = texts[i % len(texts)] + "".join(r.choice("abcdefgh_ ") for _ in range(r.randint(0, 6)))
        out.append({"prompt": text, "seed": r.randrange(2**32), "temperature": TEMPERATURES[i % 4]})
    return out


@cache
def expected(i: int) -> tuple[int, ...]:
    return tuple(run("autoregressive", max_tokens=LIMIT, **requests(200)[i]).tokens)


def commits_the_same(name: str, count: int) -> None:
    for i, request in enumerate(requests(200)[:count]):
        assert tuple(run(name, max_tokens=LIMIT, **request).tokens) == expected(i), request


@pytest.mark.parametrize("name", by_mode("tokens"))
def test_tokens_are_those_of_autoregressive(name: str) -> None:
    commits_the_same(name, 4)


@pytest.mark.nightly
@pytest.mark.parametrize("name", by_mode("tokens"))
def test_tokens_are_those_of_autoregressive_200_times(name: str) -> None:
    commits_the_same(name, 200)


def counts(name: str, runs: int) -> Counter[tuple[int, ...]]:
    """What two tokens after one prompt come out, over seeds; peaked by a low temperature so that outcomes repeat."""
    out: Counter[tuple[int, ...]] = Counter()
    for seed in range(runs):
        offset = 0 if name == "autoregressive" else 10_000_019
        out[tuple(run(name, prompt="return self._", max_tokens=2, seed=seed + offset, temperature=0.5).tokens)] += 1
    return out


@cache
def law(runs: int) -> Counter[tuple[int, ...]]:
    return counts("autoregressive", runs)


@pytest.mark.nightly
@pytest.mark.parametrize("name", by_mode("distribution"))
def test_short_continuations_have_the_law_of_autoregressive(name: str) -> None:
    """A two-sample chi-square test, rare outcomes pooled; a wrong law of a few per cent would show."""
    runs = 1500
    ours, theirs = counts(name, runs), law(runs)
    cells = [k for k in {*ours, *theirs} if ours[k] + theirs[k] >= 20]
    pairs = [(ours[k], theirs[k]) for k in cells]
    rest = (runs - sum(a for a, _ in pairs), runs - sum(b for _, b in pairs))
    pairs += [rest] if sum(rest) else []
    statistic = sum((a - b) ** 2 / (a + b) for a, b in pairs)
    freedom = len(pairs) - 1
    assert freedom >= 3
    # Wilson and Hilferty: the chi-square's upper 1e-5 quantile.
    bound = freedom * (1 - 2 / (9 * freedom) + 4.26 * (2 / (9 * freedom)) ** 0.5) ** 3
    assert statistic < bound, (statistic, bound, pairs)
