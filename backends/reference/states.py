"""Hidden states in the reference: calls of trunks, and heads that read states."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from decgraph.backends.reference.values import ReferenceMemory
from decgraph.ir.data.dist import Dist, Draw, Draws, Path, resolve_path
from decgraph.ir.data.hidden import joint, states_value
from decgraph.ir.values import Op
from decgraph.runtime import trace
from decgraph.runtime.models.features import states_at
from decgraph.runtime.models.reading import valued


def text_of(place: Any, extra: dict[str, Any]) -> tuple[int, ...] | None:
    """The tokens of a second context; None for a place in this one."""
    read: Any = place.tokens if isinstance(place, Path) else place.items if isinstance(place, Draws) else place
    here = isinstance(place, np.ndarray | list) and "tree" in extra
    return None if here or not isinstance(place, Path | Draws | np.ndarray | list) else resolve_path(read)


def texts(tokens: tuple[int, ...], each: bool) -> tuple[list[tuple[int, ...]], tuple[int, ...], None]:
    """The texts whose ends are read, as `place_states` has them: one, or every beginning."""
    return ([tokens[: i + 1] for i in range(len(tokens))], (len(tokens),), None) if each else ([tokens], (), None)


def read_states(m: Any, trunk: Any, paths: Sequence[tuple[int, ...]], shape: tuple[int, ...], given: Any) -> np.ndarray:
    """The states at the ends of paths, as one value of the shape [*shape, width]; counts the call."""
    m.count_call(trunk, len(paths), sum(map(len, paths)))
    rows = states_at(trunk, paths, given.memory if isinstance(given, ReferenceMemory) else given)
    return states_value(rows, shape)


def ids(tokens: Any) -> list[int] | None:
    """The ids of a token or a vector of tokens; None for none."""
    if tokens is None:
        return None
    found = tokens.tokens() if isinstance(tokens, Draws) else tokens.token if isinstance(tokens, Draw) else tokens
    return [int(t) for t in np.ravel(np.asarray(found))]


def _same(scores: Any) -> Any:
    return scores


class HeadsOfStates:
    """A machine that reads heads of hidden states."""

    def read_states(self, op: Op, head: Any, states: Any, layer: Any = None, token: Any = None) -> Any:
        """The meaning of `head.read` of hidden states."""
        machine: Any = self
        rows = np.asarray(states).reshape(-1, np.shape(states)[-1])
        machine.emit_event(trace.ModelCall(head.name, len(rows), 0, "draft", None))
        values = self.state_values(head, rows, None if layer is None else int(layer), ids(token))
        return valued(self, op.result.type.elem, values, np.shape(states)[:-1])

    def score_states(self, op: Op, head: Any, states: Any, layer: Any = None, token: Any = None) -> Dist:
        """The meaning of `head.score`."""
        machine: Any = self
        shape, rows = np.shape(states)[:-1], np.asarray(states).reshape(-1, np.shape(states)[-1])
        machine.emit_event(trace.ModelCall(head.name, len(rows), 0, "draft", None))
        scores = head.scores_of(rows, None if layer is None else int(layer), ids(token), joint(op.operands[1].type))
        made = np.empty(len(rows), dtype=object)
        for i, one in enumerate(scores):
            row = partial(_same, one if machine.num.exact else one.to_float())
            made[i] = machine.model_row(head, row, machine.context(), i, None)
        return Dist(made.reshape(shape))

    def state_values(self, head: Any, rows: np.ndarray, layer: int | None, tokens: Any) -> list[Any]:
        """What a head says of hidden states [n, width], each with the token beside it if there are tokens."""
        made: list[Any] = head.of_states(rows, layer, tokens)
        return made
