"""Runs of another function on a scratch context, whose tokens are draws of the run around them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from decgraph.backends.run import Stop
from decgraph.backends.torch.pending import Steps
from decgraph.backends.torch.prefixes import Context
from decgraph.backends.torch.protocols import Machine
from decgraph.backends.torch.rows import Rows
from decgraph.backends.torch.transfer import number
from decgraph.backends.torch.trees import TorchPath, TorchTree, path_of
from decgraph.runtime.faults import noted_outside
from decgraph.runtime.models.interface import Model
from decgraph.runtime.request import Request


class LaterDraw:
    """A token of a sub-run as a draw: its raw probability under the model that drew it is computed when read."""

    def __init__(self, request: Request, model: Model, path: tuple[int, ...], token: int) -> None:
        self.request, self.model, self.path, self.token = request, model, path, token

    def prob(self, seen: str = "raw") -> float:
        """The probability of the token after its path. The model is called once for it."""
        scores = torch.from_numpy(np.asarray(self.model.eval([self.path], None)[0].to_float().logits))[None]
        rows = Rows(scores, self.request, path=lambda i: self.path)
        return number(rows.face(seen)[0, self.token])


def drawn_later(
    request: Request, model: Model | None, base: tuple[int, ...], tokens: Sequence[int]
) -> tuple[LaterDraw | None, ...]:
    """The tokens that a sub-run of `model` appended to `base`."""
    if model is None:
        return (None,) * len(tokens)
    return tuple(LaterDraw(request, model, (*base, *tokens[:i]), t) for i, t in enumerate(tokens))


def sub_run(
    m: Machine,
    callee: str,
    site: str,
    start: Context | int,
    bound: int,
    args: dict[str, object],
    tree: TorchTree,
    counters: Sequence[object],
    until: Callable[[TorchPath], object],
) -> Steps[TorchPath]:
    """Run another function on a scratch context until its condition holds: a generator of its model calls."""
    base = start.ids() if isinstance(start, Context) else (*m.tokens, *path_of(tree, int(start)).tokens)
    inner = m.inner_run(callee, site, base, bound, args, counters)
    inner.until = lambda m: bool(until(TorchPath(tuple(m.tokens[m.base :]), base=m.base)))
    try:
        yield from inner.steps()
    except Stop:
        pass
    except Exception as error:
        noted_outside(error)
        raise
    finally:
        inner.release()
        m.tally.called(inner.tally)
    tokens = inner.committed_tokens()
    model = next(iter(inner.models.values()), None)
    return TorchPath(tokens, base=len(base), uids=(-1,) * len(tokens), draws=drawn_later(m.request, model, base, tokens))
