"""Masked decoders at details of their published loops that no recording here has, against the loops written once more."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from lib.stdlib.published_details import canvases, run, seen, steps

PROMPTS: list[tuple[int, ...]] = [(0, 3), (5, 1, 1)]


def saber(model: Any, prompt: tuple[int, ...], length: int, block: int, n: int) -> list[list[int]]:
    """Confidence is that of the call's likeliest token at every cell; cells of a block that begins have no earlier one, so none
    of them is among the first that lose their token."""
    cells, found = [-1] * length, [[-1] * length]
    taken: dict[int, float] = {}
    past = np.zeros(length)
    for end in range(block, length + 1, block):
        while -1 in cells[:end]:
            p = seen(model, prompt, cells)
            x, s = p.argmax(-1), p.max(-1)
            fell = np.where(np.isfinite(past), past - s, -np.inf)
            left = [i for i in range(end) if cells[i] < 0]
            known = [v for i, v in taken.items() if i < end]
            new = [i for i in left if s[i] > (np.mean(known) if known else 1.0)]
            if len(new) < n:
                new = sorted(left, key=lambda i: -s[i])[:n]
            for i in new:
                cells[i], taken[i] = int(x[i]), float(s[i])
            if -1 in cells[:end]:
                k = min(max(n // 2, (len(new) + 7) // 8), len(new) - 1)
                for i in sorted((i for i in range(end) if cells[i] >= 0), key=lambda i: -fell[i])[:k]:
                    cells[i] = -1
            past = np.where(np.arange(length) < end, s, -np.inf)
            found.append(list(cells))
    return found


@pytest.mark.parametrize(("length", "block", "n"), [(12, 4, 2), (12, 6, 3), (10, 10, 4)])
def test_saber_spares_the_first_tokens_of_a_block(length: int, block: int, n: int) -> None:
    for seed in range(2):
        for prompt in PROMPTS:
            model = canvases(seed)
            done = run("saber", {"model": model}, prompt, {"length": length, "block": block, "n": n}, max_tokens=length)
            assert steps(done, length) == saber(model, prompt, length, block, n), (seed, prompt)


def slow_fast(model: Any, prompt: tuple[int, ...], length: int, explore: int, window: int, far: float) -> list[list[int]]:
    """One block. The estimates of a cycle that ends before there are `window` of them are averaged."""
    cells, found, start = [-1] * length, [[-1] * length], 0
    while -1 in cells:
        history: list[int] = []
        end, settled = length, False
        for step in range(explore):
            p = seen(model, prompt, cells)
            x, s = p.argmax(-1), p.max(-1)
            left = [i for i in range(start, length) if cells[i] < 0]
            if not settled:
                history = [*history, max([start + 1, *(i + 1 for i in left if s[i] >= far)])][-window:]
                settled = len(history) == window and float(np.std(history)) < 1
                if settled or len(history) == window or step == explore - 1:
                    end = history[-1] if settled else int(np.mean(history))
            if left:
                i = max(left, key=lambda i: s[i])
                cells[i] = int(x[i])
                found.append(list(cells))
        whole = True
        while -1 in cells[start:end]:
            p = seen(model, prompt, cells if whole else cells[:end])
            i = max((i for i in range(start, end) if cells[i] < 0), key=lambda i: p[i].max())
            cells[i], whole = int(p[i].argmax()), False
            found.append(list(cells))
        start = end
    return found


@pytest.mark.parametrize(("explore", "window"), [(1, 2), (2, 3), (4, 2)])
def test_a_short_exploration_averages_what_it_has(explore: int, window: int) -> None:
    for seed in range(3):
        model, far = canvases(seed), 0.9
        params = {"length": 12, "block": 12, "explore": explore, "window": window, "far": far, "tau": 1.0}
        done = run("slow_fast", {"model": model}, PROMPTS[0], params, max_tokens=12)
        assert steps(done, 12) == slow_fast(model, PROMPTS[0], 12, explore, window, far), seed
