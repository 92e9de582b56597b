"""The bookkeeping kernels of a step against plain Python: cells, commits, what models keep, paths."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from decgraph.backends.triton.rules.device import Walked
from decgraph.backends.triton.step import launch
from decgraph.backends.triton.step.cache import packed
from decgraph.runtime.request import Request
from decgraph.runtime.stop import StopMachine


@pytest.fixture(autouse=True)
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs hold nonsense before a kernel writes them."""

    def nonsense(shape: int | tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        return torch.full(shape if isinstance(shape, tuple) else (shape,), -77, dtype=dtype)

    class Torch:
        empty = staticmethod(nonsense)
        empty_like = staticmethod(lambda t: torch.full_like(t, -77))

        def __getattr__(self, name: str) -> object:
            return getattr(torch, name)

    monkeypatch.setattr(launch, "torch", Torch())


def ints(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


@pytest.mark.parametrize(("lead", "span", "nodes"), [(1, 1, 0), (3, 3, 0), (0, 3, 5), (2, 2, 40), (3, 3, 70)])
def test_cells_of_a_forward(lead: int, span: int, nodes: int) -> None:
    rng = np.random.default_rng(nodes + lead)
    batch, width, cap = 3, 4, 12
    length, held = np.array([5, 9, 12]), np.array([5, 9, 12]) - rng.integers(1, span + 1, 3)
    committed, token = rng.integers(0, 99, (batch, cap + 1)), rng.integers(-1, 99, (batch, nodes + 3))
    ids, depth = np.arange(nodes) + 2, rng.integers(1, 6, nodes)
    sees = rng.random((nodes, width * 32)) < 0.3
    sees[:, :span] = False
    wanted = np.array([-1, *range(lead, lead + nodes, 2)])
    pad = np.zeros((1, 1), dtype=np.int64)
    got = launch.new_cells(
        torch.from_numpy(committed),
        ints(*length),
        ints(*held),
        torch.from_numpy(token),
        torch.from_numpy(ids[None] if nodes else pad),
        torch.from_numpy(depth[None] if nodes else pad),
        torch.from_numpy(packed(sees)[None] if nodes else np.zeros((1, 1, width), np.int32)),
        torch.from_numpy(wanted),
        count=nodes,
        lead=lead,
        most_uncached=span,
    )
    tokens, positions, bits, rows = (a.numpy() for a in got)
    for b in range(batch):
        p = int(length[b] - held[b])
        for j in range(lead):
            if j < p:
                assert (tokens[b, j], positions[b, j]) == (committed[b, held[b] + j], held[b] + j)
            want = np.zeros(width * 32, dtype=bool)
            want[: j + 1] = j < p
            assert np.array_equal(bits[b, j], packed(want[None])[0]), (b, j)
        for i in range(nodes):
            assert tokens[b, lead + i] == max(0, token[b, ids[i]])
            assert positions[b, lead + i] == length[b] - 1 + depth[i]
            want = sees[i].copy()
            want[:p] = True
            assert np.array_equal(bits[b, lead + i], packed(want[None])[0]), (b, i)
        assert rows[b].tolist() == [p - 1, *wanted[1:]]


@pytest.mark.parametrize("seed", range(6))
def test_commits_are_cut_where_the_stop_machine_cuts(seed: int) -> None:
    rng = np.random.default_rng(seed)
    batch, n = 5, int(rng.integers(1, 8))
    base, limit = rng.integers(1, 5, batch), rng.integers(1, 9, batch)
    so_far = np.array([int(rng.integers(0, m)) for m in limit])
    tokens, count = rng.integers(0, 6, (batch, n)), rng.integers(1, n + 1, batch)
    ends = np.array([[5, -1], [0, 3], [-1, -1], [2, -1], [5, 5]])
    done, lost = torch.tensor([False, False, False, False, True]), torch.tensor([False, False, False, True, False])
    committed = torch.full((batch, 20), -1)
    length, was = ints(*(base + so_far)), torch.stack([done, lost]).clone()
    kept = launch.commit_tokens(
        committed, length, ints(*base), ints(*limit), done, lost, torch.from_numpy(ends), torch.from_numpy(tokens), ints(*count)
    )
    for b in range(batch):
        over = bool(was[:, b].any())
        request = Request(prompt=(0,) * int(base[b]), limit=int(limit[b]), eos=frozenset(int(e) for e in ends[b] if e >= 0))
        state = StopMachine.start(request)
        for _ in range(int(so_far[b])):
            state = StopMachine.feed(state, 1)  # no end
        fed, state = ((), state) if over else StopMachine.cut(state, tokens[b, : count[b]].tolist())
        assert int(kept[b]) == len(fed) and int(length[b]) == base[b] + so_far[b] + len(fed)
        assert committed[b, base[b] + so_far[b] :][: len(fed)].tolist() == list(fed)
        assert (committed[b, base[b] + so_far[b] + len(fed) :] == -1).all()
        assert bool(done[b]) == (bool(was[0, b]) or (not over and state.done)) and bool(lost[b]) == bool(was[1, b])


def test_a_turn_without_progress_and_a_token_that_is_none_are_the_drivers() -> None:
    done, lost = torch.zeros(3, dtype=torch.bool), torch.zeros(3, dtype=torch.bool)
    kept = launch.commit_tokens(
        torch.zeros((3, 9), dtype=torch.int64),
        ints(2, 2, 2),
        ints(2, 2, 2),
        ints(9, 9, 9),
        done,
        lost,
        torch.full((3, 1), -2),
        torch.tensor([[4, 4], [4, -1], [4, 4]]),
        ints(0, 2, 1),
    )
    assert lost.tolist() == [True, True, False] and not done.any() and kept.tolist() == [0, 2, 1]


@pytest.mark.parametrize("seed", range(8))
def test_what_a_model_keeps(seed: int) -> None:
    """Over many commits a model's cells are those of the committed tokens, in order, whatever was accepted and computed."""
    rng = np.random.default_rng(seed)
    batch, deepest, nodes, span, back = 4, 3, 9, 4, int(rng.integers(1, 3))
    parent = np.array([0, 0, 0, 1, 1, 3, 3, 2, 7])
    computed = np.flatnonzero(rng.random(nodes) < 0.6)
    cell = np.full(nodes, -1)
    cell[computed[computed > 0]] = span + np.arange((computed > 0).sum())
    length = rng.integers(3, 9, batch)
    held = length - rng.integers(back, span + 1, batch)
    paths, kept = np.full((batch, deepest), -1), np.zeros(batch, dtype=int)
    for b in range(batch):
        node = int(rng.integers(0, nodes))
        way = []
        while node:
            way.append(node)
            node = int(parent[node])
        paths[b, : len(way)] = way[::-1]
        kept[b] = 0 if b == 3 else rng.integers(1, len(way) + 2)  # a commit may be cut
    source, count, after = launch.compact_cache(
        ints(*(length + kept)),
        ints(*held),
        ints(*kept),
        torch.from_numpy(paths),
        torch.from_numpy(cell[None]),
        most_uncached=span,
        back=back,
    )
    assert source is not None
    for b in range(batch):
        slots = [("held", i) for i in range(int(held[b]))]
        pending = int(length[b] - held[b])
        tail: dict[int, tuple[str, int]] = {j: ("held", int(held[b]) + j) for j in range(pending)}
        tail |= {int(cell[n]): ("node", n) for n in range(nodes) if cell[n] >= 0}
        moved = [tail[int(i)] for i in source[b, : int(count[b])]]
        lead = 0
        while lead < deepest and paths[b, lead] > 0 and cell[paths[b, lead]] >= 0:
            lead += 1
        tokens = [("held", i) for i in range(int(length[b]))] + [("node", int(n)) for n in paths[b] if n > 0]
        want = int(held[b]) if not kept[b] else min(int(length[b]) + lead, int(length[b] + kept[b]) - back)
        assert int(after[b]) == want
        if kept[b]:
            assert [*slots, *moved] == tokens[:want] or want < len(slots)
        assert all(x < y for x, y in zip(source[b, : int(count[b])].tolist(), source[b, 1 : int(count[b])].tolist()))


def test_paths_of_walks() -> None:
    depth, nodes = 2, 4
    rows = torch.full((4, Walked.HEAD + 3 * depth), -1)
    rows[:, 3] = torch.tensor([0, 0, 2, 0])
    for b, (count, emitted, path) in enumerate([(1, 9, [2, -1]), (2, -1, [1, 3]), (0, 5, [-1, -1]), (0, 4, [-1, -1])]):
        rows[b, 1], rows[b, 2] = count, emitted
        rows[b, Walked.HEAD : Walked.HEAD + depth] = torch.tensor(path)
        rows[b, Walked.HEAD + depth :] = torch.tensor([1, 1, 1, 0])
    token = torch.tensor([[-1, 10, 20, 30]] * 3 + [[-1, 10, -1, 30]])
    done, lost = torch.tensor([False, True, False, False]), torch.zeros(4, dtype=torch.bool)
    tested, accepted = torch.zeros((4, 8), dtype=torch.int64), torch.zeros((4, 8), dtype=torch.int64)
    tokens, count, offered = launch.accepted_path(rows, Walked.HEAD, depth, token, done, lost, tested, accepted)
    assert nodes == token.shape[1] and count.tolist() == [1, 2, 0, 0] and offered.tolist() == [2, 2, 1, 1]
    assert tokens[0, :2].tolist() == [20, 9] and tokens[1, :2].tolist() == [10, 30] and tokens[2, 0] == 5
    assert lost.tolist() == [False, False, True, True], "a fault, and a node without a token"
    assert tested[0].tolist() == [1, 1] + [0] * 6 and accepted[0].tolist() == [1, 0] + [0] * 6 and not tested[1].any()
