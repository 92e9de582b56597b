"""Noise of a torch run: the key of each draw, Bernoulli draws, and the ids of new tree nodes."""

from __future__ import annotations

from typing import Any

import numpy as np

from decgraph.backends.torch import noise
from decgraph.backends.torch.calls import Calls
from decgraph.errors import DecError
from decgraph.ir.ops.draws import NO_PLACE, NoiseKey
from decgraph.ir.values import Op
from decgraph.runtime.noise import Key, output_key, words


class Randomness(Calls):
    """Noise keys and Bernoulli draws of a run."""

    def start_run(self) -> None:
        super().start_run()
        self.uids = 0

    def key(self, key: NoiseKey, lane: tuple[int, ...], position: Any = None, node: Any = None, index: Any = None) -> Key:
        """The Philox key of a draw; `position` and `node` are the row's. Raises DecError for output noise of a distribution
        that stands at no position of the text, without an index."""
        seed, request = self.request.seed, self.request.request_id
        if key.kind != "output":
            return Key(seed, request, self.site_prefix + key.site, self.counter_prefix + key.counters, lane)
        at = index if index is not None else position
        if at is None:
            raise DecError("`as output` needs an index here: the distribution has no place of its own", hint=NO_PLACE)
        place = (int(node),) if index is not None and node is not None else ()
        if self.site_prefix:
            return Key(seed, request, self.site_prefix + "output", self.counter_prefix + (int(at),), place)
        return output_key(seed, request, int(at), place)

    def flip(self, p: float, key: NoiseKey, lane: int) -> bool:
        """True with probability p. Certain outcomes read no noise: the uniform is never 0 and never 1.
        Raises DecError for a NaN."""
        if p != p:
            raise DecError("bernoulli of NaN (0 / 0)")
        if p >= 1:
            return True
        return p > 0 and noise.unit(self.key(key, (lane,))) < p

    def beta(self, op: Op, a: Any, b: Any, key: NoiseKey) -> Any:
        w = words(self.key(key, ()), 4)
        return float(np.random.Generator(np.random.Philox(key=[int(w[0]), int(w[1])])).beta(float(a), float(b)))

    def next_uids(self, n: int) -> np.ndarray:
        """int64[n]: fresh node ids of this run."""
        out = np.arange(self.uids, self.uids + n)
        self.uids += n
        return out
