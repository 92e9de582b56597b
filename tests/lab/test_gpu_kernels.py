"""The stage `kernels` of lab/gpu/run.py on the CPU: kernels in the interpreter against float64, planted mistakes found."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import decgraph.backends.triton  # noqa: F401
from decgraph.backends.triton.attention import attend
from decgraph.backends.triton.rows import functions
from decgraph.runtime import noise, shaping
from decgraph.runtime.models.interface import Scores
from decgraph.runtime.request import Request
from lab.gpu import attention, clocks, exact, kernels, pool, rows, small
from lab.gpu.lab import SIZES, Lab
from lab.gpu.poison import poisoned
from lab.gpu.report import OutOfTime, Report, limited

CPU = torch.device("cpu")


@pytest.fixture
def lab() -> Lab:
    return Lab(CPU, SIZES["tiny"])


def test_vocabulary_kernels(lab: Lab) -> None:
    row = rows.checks(lab)
    assert row["right"] and len(row["worst"]) == 13 and row["says"].endswith("comparisons, 0 wrong")


def test_attention_kernels(lab: Lab) -> None:
    row = attention.checks(lab)
    assert row["right"] and len(row["worst"]) == len(attention.TINY) and max(row["worst"].values()) > 0


@pytest.mark.parametrize("name", ["draw", "shaped", "topk"])
def test_a_vocabulary_kernel_that_is_wrong_is_found(lab: Lab, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right: Callable[..., Any] = getattr(functions, name)

    def wrong(*args: Any, **more: Any) -> Any:
        out = right(*args, **more)
        if name == "topk":
            return out[0].flip(-1), out[1]
        return (out + 1) % args[0].shape[1] if name == "draw" else torch.empty_like(out).copy_(out) * 1.001

    monkeypatch.setattr(functions, name, wrong)
    monkeypatch.setattr(rows, "TINY", [(3, 50, "float32")])
    row = rows.checks(lab)
    assert not row["right"] and all(name in what for what in row["wrong"])


def test_attention_that_is_wrong_is_found(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    right = attend.attend

    def blind(q: Tensor, keys: Tensor, values: Tensor, held: Tensor, bits: Tensor, first: int, **more: Any) -> Tensor:
        bits = bits.clone()
        bits[:, 0] |= 2  # the first row sees the second cell of the tail
        return right(q, keys, values, held, bits, first, **more)

    monkeypatch.setattr(attend, "attend", blind)
    row = attention.checks(lab)
    assert not row["right"] and row["wrong"]


def test_memory_that_nobody_wrote_is_poisoned(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    with poisoned():
        assert torch.empty(3).isnan().all() and torch.empty_like(torch.ones(2)).isnan().all()
    assert not torch.are_deterministic_algorithms_enabled()
    monkeypatch.setattr(attend, "attend", lambda q, *_, **more: torch.empty_like(q))
    assert attention.checked(lab, attention.TINY[0])[0][1] == float("inf")
    assert not attention.checks(lab)["right"]


def test_other_kernels(lab: Lab) -> None:
    row = small.checks(lab)
    assert row["right"] and not row["wrong"], row


def test_small_kernels_that_are_wrong_are_found(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    from decgraph.backends.triton.attention import move, tree
    from decgraph.backends.triton.rules import compile as rules
    from decgraph.backends.triton.step import keys

    right = {"ancestors": tree.ancestors, "words_for": keys.words_for, "move": move.move, "match": rules.CompiledRule.on_device}

    def one_more(self: Any, given: Any, *, depth: int) -> Any:
        walked = right["match"](self, given, depth=depth)
        walked.packed[:, 2] += 1
        return walked

    words = exact.words
    monkeypatch.setattr(exact, "words", lambda key, n, device: words(noise.Key(key.seed ^ 1, 0, 0), n, device))
    monkeypatch.setattr(tree, "ancestors", lambda *a: right["ancestors"](*a) ^ 1)
    monkeypatch.setattr(keys, "words_for", lambda out, *a, **b: right["words_for"](out, *a, **b).bitwise_xor_(1 << 30))
    monkeypatch.setattr(move, "move", lambda caches, held, source, count: right["move"](caches, held, source, count - 1))
    monkeypatch.setattr(rules.CompiledRule, "on_device", one_more)
    assert [w.split("'")[1] for w in small.checks(lab)["wrong"]] == list(small.CHECKS)


def test_what_is_right_is_what_the_reference_means() -> None:
    """exact.py against runtime/shaping.py and runtime/noise.py, which are what decides."""
    made = torch.Generator().manual_seed(3)
    x = (torch.randn((4, 40), generator=made, dtype=torch.float64) * 2).round(decimals=1)
    kept: dict[str, Any] = {"temperature": 0.7, "top_k": 9, "top_p": 0.8, "min_p": 0.1}
    mine = exact.shaped(x, **kept)
    keys = [noise.Key(2**40 + 3, row, "s:1", (row,)) for row in range(4)]
    times = exact.times(keys, 40, CPU)
    for row in range(4):
        right = shaping.shaped_probs(Scores(logits=x[row].numpy()), (1,), Request((1,), **kept))
        assert torch.allclose(mine[row], torch.tensor(right), atol=1e-14) and (mine[row] > 0).tolist() == (right > 0).tolist()
        winner = noise.race(right, noise.exponentials(keys[row], 40))
        found, behind = exact.margin(mine[row : row + 1], times[row : row + 1], torch.tensor([winner]))
        assert int(found) == winner and float(behind) == 0
    assert exact.shaped(x, 0)[0].argmax() == exact.first_max(x)[0] and exact.top(x, 3)[1][0, 0] == exact.first_max(x)[0]


def test_attention_in_float64_is_torchs() -> None:
    made = torch.Generator().manual_seed(3)
    q, k, v = (torch.randn(2, t, h, 8, generator=made, dtype=torch.float64) for t, h in ((3, 4), (7, 2), (7, 2)))
    seen = torch.rand(2, 3, 7, generator=made) > 0.4
    seen[..., 0] = True
    theirs = torch.nn.functional.scaled_dot_product_attention(
        *(x.transpose(1, 2) for x in (q, k, v)), attn_mask=seen[:, None], scale=0.3, enable_gqa=True
    ).transpose(1, 2)
    assert torch.allclose(exact.attention(q, k, v, seen, 0.3), theirs)
    seen[0, 0] = False
    assert (exact.attention(q, k, v, seen, 0.3)[0, 0] == 0).all()


def test_timings(lab: Lab) -> None:
    """Every timed item runs, with its peers."""
    found = {name: work() for name, work in kernels.timings(lab)}
    assert len(found) == 8 + 2 + 2
    for name, row in found.items():
        if "Flex" not in name:
            assert row["says"] and "error" not in str(row), row
    assert found["softmax, 2 x 100"]["bytes"] == 1200 and found["softmax, 2 x 100"]["ms"]["median"] > 0
    assert [t["cells"] for t in found["attention, 1 x 32"]["trees"]] == [1, 4]


class Apart(Lab):
    """A lab on the CPU that starts processes as on a GPU."""

    cuda = True  # type: ignore[assignment]


def test_checks_run_in_processes_of_their_own(lab: Lab) -> None:
    tasks = [("gather of a path", 1), ("no such check", 1), ("bits of trees", 2), ("gather of a path", 3)]
    found = pool.spread(Apart(CPU, lab.sizes), small.checked, tasks, 2)
    assert [f[0][0] for f in (found[0], *found[2:])] == [tasks[n][0] for n in (0, 2, 3)] and "KeyError" in found[1]


@pytest.mark.slow
def test_limits(tmp_path: Path) -> None:
    with pytest.raises(OutOfTime), limited(0.05):
        time.sleep(5)
    with limited(5):
        with pytest.raises(OutOfTime), limited(0.05):
            time.sleep(5)
        time.sleep(0.01)
    with pytest.raises(OutOfTime), limited(0.2):
        with limited(5):
            time.sleep(0.01)
        time.sleep(5)
    report = Report(tmp_path / "r.json", 60, {}, limit=1)
    report.run("s", iter([("slow", lambda: {"x": time.sleep(5)}), ("fast", lambda: {"says": "done"})]))
    assert report.wrong == ["s: slow"] and "longer than 1 s" in report.data["stages"]["s"]["items"]["slow"]["error"]
    assert report.data["stages"]["s"]["items"]["fast"]["says"] == "done" and "running" not in report.data


def test_launches_are_spread_over_memory(lab: Lab) -> None:
    assert clocks.copies(lab, 1) == 1
    far = replace(lab.sizes, name="far")
    there = Lab(torch.device("cuda"), far)
    assert clocks.copies(there, 16 << 20) == 8 and clocks.copies(there, 1 << 30) == 2 and clocks.copies(there, 1) == 64
