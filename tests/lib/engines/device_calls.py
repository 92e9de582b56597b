"""Random work for device models: prompts of several lengths, trees level by level, moves of an accepted path."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from decgraph.backends.triton.models.interface import Seen
from decgraph.runtime.models.engine.plain import stacked
from lib.devices.without_sync import nothing_read

Path = tuple[int, ...]


def gives(made: Any, want: Callable[[list[Path]], Tensor], **close: Any) -> Callable[[list[Path], Tensor, int], None]:
    """A check that a device model's numbers after paths are those that are wanted; without tolerances to the last bit."""

    def check(paths: list[Path], states: Tensor, lane: int) -> None:
        got, wanted = made.read(states), want(paths)
        same = torch.allclose(got.double(), wanted.double(), **close) if close else torch.equal(got, wanted)
        assert same, (paths, (got - wanted).abs().max())

    return check


class Walk:
    """Lanes that commit tokens step by step: in each step the last committed token and a tree below it are computed, and a
    random path of it is moved to where it is committed. check(paths, states, lane): compares the states [n, W] of paths."""

    def __init__(self, model: Any, vocab: int, seed: int, check: Callable[[list[Path], Tensor, int], None]) -> None:
        self.model, self.vocab, self.check, self.rng = model, vocab, check, random.Random(seed)
        self.texts: list[list[int]] = []

    def token(self) -> int:
        return self.rng.randrange(self.vocab)

    def run(self, prompts: Sequence[int], steps: int, levels: Sequence[int] = (2, 3, 2)) -> None:
        self.texts = [[self.token() for _ in range(n)] for n in prompts]
        for lane, text in enumerate(self.texts):
            self.model.fill(lane, text, 0, len(text) - 1)
        for _ in range(steps):
            self.step(levels)

    def step(self, levels: Sequence[int]) -> None:
        lanes = len(self.texts)
        base = torch.tensor([len(t) - 1 for t in self.texts])  # the slot of the last committed token
        paths: list[list[Path]] = [[tuple(t)] for t in self.texts]
        above: list[list[int]] = [[0]]  # by node: it and its ancestors, the same in every lane
        nodes = [0]  # those of a level
        for width in (*levels, 0):
            tail = torch.zeros(1, len(nodes), len(above), dtype=torch.bool)
            for row, node in enumerate(nodes):
                tail[0, row, above[node]] = True
            depth = torch.tensor([len(above[node]) - 1 for node in nodes])
            tokens = torch.tensor([[paths[lane][node][-1] for node in nodes] for lane in range(lanes)])
            slots = base[:, None] + torch.tensor(nodes)
            with nothing_read():
                seen = Seen(base[:, None].expand(-1, len(nodes)), tail, base)
                states = self.model.forward(tokens, base[:, None] + depth, slots, seen)
            for lane in range(lanes):
                self.check([paths[lane][node] for node in nodes], states[lane], lane)
            nodes = list(range(len(above), len(above) + width))
            for node in nodes:
                parent = self.rng.randrange(nodes[0])
                above.append([*above[parent], node])
                for lane in range(lanes):
                    paths[lane].append((*paths[lane][parent], self.token()))
        self.commit(base, above, paths)

    def heads(self) -> Iterator[tuple[Tensor, Path]]:
        """What the model's own heads [n, V] give after the committed tokens but for the last one and after the first, with
        its path."""
        ends = torch.tensor([[len(t) - 2, 0] for t in self.texts])
        tokens = torch.tensor([[text[end] for end in row] for text, row in zip(self.texts, ends.tolist(), strict=True)])
        with nothing_read():
            got = self.model.heads(self.model.forward(tokens, ends, ends, Seen(ends + 1)))
        for lane, text in enumerate(self.texts):
            yield from ((got[lane, n], tuple(text[: end + 1])) for n, end in enumerate(ends[lane].tolist()))

    def commit(self, base: Tensor, above: list[list[int]], paths: list[list[Path]]) -> None:
        most = max(map(len, above)) - 1
        spare = self.model.capacity - 1
        source, dest = torch.full((len(base), most), spare), torch.full((len(base), most), spare)
        for lane in range(len(base)):
            chosen = self.rng.choice(above)
            for n, node in enumerate(chosen[1:]):
                source[lane, n], dest[lane, n] = int(base[lane]) + node, int(base[lane]) + 1 + n
            self.texts[lane] = [*paths[lane][chosen[-1]], self.token()]
        with nothing_read():
            self.model.move(source, dest)


class Drafts:
    """A head on features as EAGLE's programs use it: the committed tokens that it has not read yet, then a tree below the last
    one, level by level; what the head computed of the tree is not kept. check(text, paths, states): see `Walk`."""

    def __init__(
        self, target: Any, head: Any, vocab: int, seed: int, check: Callable[[Path, list[Path], Tensor], None]
    ) -> None:
        self.target, self.head, self.vocab, self.check, self.rng = target, head, vocab, check, random.Random(seed)

    def run(self, prompts: Sequence[int], steps: int, levels: Sequence[int] = (2, 3, 2)) -> None:
        texts = [[self.rng.randrange(self.vocab) for _ in range(n)] for n in prompts]
        for lane, text in enumerate(texts):
            self.target.fill(lane, text, 0, len(text) - 1)
            self.head.fill(lane, text, 0, len(text) - 1)
        for _ in range(steps):
            self.draft(texts, levels)
            most = self.commit(texts)
            self.lead(texts, most)

    def lead(self, texts: list[list[int]], most: int) -> None:
        """The target and the head compute what was committed, lanes of fewer tokens some of them again; the target not the
        last one."""
        ends = torch.tensor([[len(t) - 1] for t in texts])
        at = (ends - most + torch.arange(most)).clamp(min=0)
        tokens = torch.tensor([[texts[lane][i] for i in row] for lane, row in enumerate(at.tolist())])
        with nothing_read():
            self.target.forward(tokens, at, at, Seen(at + 1))
        at = at.clamp(min=1)
        tokens = torch.tensor([[texts[lane][i] for i in row] for lane, row in enumerate(at.tolist())])
        with nothing_read():
            self.head.forward(tokens, at, at, Seen(at + 1), parents=at - 1, known=ends[:, 0])

    def commit(self, texts: list[list[int]]) -> int:
        most = 3
        for text in texts:
            text += [self.rng.randrange(self.vocab) for _ in range(self.rng.randint(1, most))]
        return most

    def draft(self, texts: list[list[int]], levels: Sequence[int]) -> None:
        known = torch.tensor([len(t) - 1 for t in texts])
        paths: list[list[Path]] = [[(t[-1],)] for t in texts]
        above, nodes = [[0]], [0]
        for width in (*levels, 0):
            tail = torch.zeros(1, len(nodes), len(above), dtype=torch.bool)
            for row, node in enumerate(nodes):
                tail[0, row, above[node]] = True
            depth = torch.tensor([len(above[node]) - 1 for node in nodes])
            before = torch.tensor([above[node][-2] if len(above[node]) > 1 else -1 for node in nodes])
            tokens = torch.tensor([[paths[lane][node][-1] for node in nodes] for lane in range(len(texts))])
            with nothing_read():
                seen = Seen(known[:, None].expand(-1, len(nodes)), tail, known)
                slots = known[:, None] + torch.arange(nodes[0], nodes[0] + len(nodes))
                parents = known[:, None] + before
                states = self.head.forward(tokens, known[:, None] + depth, slots, seen, parents=parents, known=known)
            for lane, text in enumerate(texts):
                self.check(tuple(text), [(*text[:-1], *paths[lane][node]) for node in nodes], states[lane])
            nodes = list(range(len(above), len(above) + width))
            for node in nodes:
                parent = self.rng.randrange(nodes[0])
                above.append([*above[parent], node])
                for lane in range(len(texts)):
                    paths[lane].append((*paths[lane][parent], self.rng.randrange(self.vocab)))


class Following:
    """A derived model on the memory of the one that it is derived from: after each commit the latter computes all but the last
    token, and the former that one and a chain behind it, and tokens before it, which it takes from there."""

    def __init__(self, whole: Any, made: Any, vocab: int) -> None:
        self.whole, self.made, self.vocab, self.rng = whole, made, vocab, random.Random(8)

    def run(self, model: Any, root: Any, prompts: list[int]) -> None:
        texts = [[self.rng.randrange(self.vocab) for _ in range(n)] for n in prompts]
        for lane, text in enumerate(texts):
            for each in (self.whole, self.made):
                each.fill(lane, text, 0, len(text) - 1)
        for _ in range(2):
            known = torch.tensor([len(t) - 1 for t in texts])
            drafts = [[self.rng.randrange(self.vocab) for _ in range(3)] for _ in texts]
            at = (known[:, None] + torch.arange(-2, 4)).clamp(min=0)
            tokens = torch.tensor([[(t + d)[i] for i in row] for t, d, row in zip(texts, drafts, at.tolist(), strict=True)])
            parents = (at - 1).clamp(min=0)
            # A head's own feature is there once the token before has been computed.
            cuts = [(0, 3), (3, 4), (4, 5), (5, 6)] if self.made.kind == "features" else [(0, 6)]
            made = []
            with nothing_read():
                for a, b in cuts:
                    part, seen = at[:, a:b], Seen(at[:, a:b] + 1)
                    made.append(self.made.forward(tokens[:, a:b], part, part, seen, parents=parents[:, a:b], known=known))
            states = torch.cat(made, 1)
            for lane, (text, own) in enumerate(zip(texts, drafts, strict=True)):
                paths = [(*text, *own[:n]) for n in range(4)]
                want = stacked(model.eval(paths, memory=root.memory(tuple(text[:-1]))), model.vocab.size)
                gives(self.made, lambda _, want=want: want, atol=3e-4, rtol=1e-4)(paths, states[lane, 2:], lane)
            for text in texts:
                text += [self.rng.randrange(self.vocab) for _ in range(2)]
            before = known[:, None] + torch.arange(2)
            tokens = torch.tensor([[t[i] for i in row] for t, row in zip(texts, before.tolist(), strict=True)])
            self.whole.forward(tokens, before, before, Seen(before + 1))
