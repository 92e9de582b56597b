"""The reference interpreter: runs an IR function op by op, in NumPy float64. Slow, obvious, and the meaning.

It evaluates regions, holds the committed context and the states, and reports events. Randomness, model calls, walks and
stores stand in the files beside it. The exact checker runs the same machine over rationals, with another source of choices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from decgraph.backends.reference.calls import Calls
from decgraph.backends.reference.cells import Sequences
from decgraph.backends.reference.effects import Effects
from decgraph.backends.reference.randomness import Randomness
from decgraph.backends.reference.stores import Stores
from decgraph.backends.reference.walk import Walk
from decgraph.errors import DecError, InternalError
from decgraph.ir.data.numbers import FLOAT
from decgraph.ir.data.topology import Topology
from decgraph.ir.opdef import OpError
from decgraph.ir.table import TABLE
from decgraph.ir.values import Function, Module, Op, Region, Value
from decgraph.runtime.faults import fault, title_of
from decgraph.runtime.idle import idle


class Machine(Randomness, Calls, Walk, Effects, Stores):
    """One request running one function of a module.

    models: by parameter name. params: by name, checked by the caller (runtime/session.py). listener: called with every
    event (runtime/trace.py). shared: states per session, by (function, name). externs: Python functions by name.
    """

    num: Any = FLOAT
    faults: tuple[type[Exception], ...] = (Exception,)
    """What an op may raise that becomes an error of the run; other machines use exceptions to find their way."""

    def __init__(
        self,
        module: Module,
        function: str,
        models: Mapping[str, Any],
        params: Mapping[str, Any],
        request: Any,
        *,
        listener: Callable[[Any], None] | None = None,
        shared: dict[Any, Any] | None = None,
        externs: Mapping[str, Callable[..., Any]] | None = None,
        detokenizer: Any = None,
        parent: Machine | None = None,
    ) -> None:
        self.module, self.function = module, module.functions[function]
        self.models, self.params, self.request = dict(models), dict(params), request
        self.listener, self.externs = listener, dict(externs or {})
        self.shared = shared if shared is not None else {}
        self.detokenizer = detokenizer
        self.parent = parent
        self.env: dict[Value, Any] = {}
        self.table = TABLE
        self.memo: dict[Any, Any] = {}
        self.last_canvases: dict[int, list[tuple[set[Any], Any]]] = {}
        self.kept: Sequences = Sequences(parent.kept if parent is not None else None)
        self.site_prefix, self.counter_prefix = "", ()
        self.results: list[Any] = []
        self.op: Op | None = None
        main = self.main_model()
        self.vocab_size = main.vocab.size if main is not None else 0
        self.mask_token = next((m.mask for m in self.models.values() if m.mask is not None), -1)
        self.start_effects()

    # -- running
    def run_function(self) -> Any:
        """Run the body to its end; returns the committed tokens. Raises DecError for whatever is raised on the way."""
        f = self.function
        try:
            for p in f.params:
                self.env[p.value] = self.models[p.name] if p.value.type.elem == "model" else self.parameter(p)
            self.start_states()
            self.region(f.body, [self.env[p.value] for p in f.params])
            self.finish()
        except (InternalError, Stop):
            raise
        except self.faults as error:
            told = fault(error, request=title_of(self.request))
            raise told from told.__cause__
        return self.committed_tokens()

    def parameter(self, p: Any) -> Any:
        if p.name not in self.params:
            raise DecError(f"{self.function.name} needs a value for `{p.name}`")
        v = self.params[p.name]
        if p.value.type.elem == "topology" and not isinstance(v, Topology):
            return Topology.of(v)
        return self.num.const(v)

    def region(self, region: Region, args: Sequence[Any]) -> list[Any]:
        """Run a region's ops with its arguments; returns what it yields."""
        env, apply = self.env, self.apply
        env.update(zip(region.args, args))
        for op in region.ops:
            self.op = op
            try:
                out = apply(op)
            except (InternalError, Stop):
                raise
            except self.faults as error:
                told = self.failure(op, error)
                raise told from told.__cause__
            for value, result in zip(op.results, out):
                env[value] = result
        return [env[v] for v in region.yields]

    def apply(self, op: Op) -> Any:
        """The results of one op, its operands taken from the environment."""
        env = self.env
        return self.table[op.opcode].meaning(self, op, *[env[v] for v in op.operands])

    def failure(self, op: Op, error: Exception) -> DecError:
        """What happened while an op was computed, as an error of this request at the op's line."""
        return fault(error, request=title_of(self.request), place=str(op.loc) if op.loc.line else "", op=op.opcode)

    def turn(self, op: Op, i: int, values: tuple[Any, ...] = ()) -> None:
        """Called before every turn of a while loop: a place to notice a loop that makes no progress."""
        if op.attrs.get("bound") == "done":
            now = (self.committed(), self.decided)
            if i and now == self.last_turn:
                raise DecError(
                    f"{op.loc}: a turn of `while not done` committed nothing and decided nothing",
                    hint="commit at least one token on every way through the loop",
                )
            self.last_turn = now
            return
        if op.attrs.get("bound") == "cells":
            self.idle = idle(self.idle, str(op.loc), i, (self.committed(), self.decided))
        if i > self.most_turns:
            raise DecError(
                f"{op.loc}: this loop has turned {i} times without ending", hint="bound it: while condition at most n:"
            )

    def carried(self, op: Op, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """The values with which a while loop is entered: a place for the checker to start from another state."""
        return values

    most_turns = 100_000
    last_turn = (-1, -1)
    decided = 0
    idle: Mapping[str, Any] = MappingProxyType({})

    def decide(self, op: Op, cond: Any) -> bool:
        return self.num.truth(cond)

    # -- numbers
    def reals(self, values: Sequence[Any]) -> Any:
        """A vector of numbers."""
        if self.num.exact:
            out = np.empty(len(values), dtype=object)
            out[:] = values
            return out
        return np.array(values, dtype=np.float64)

    def column(self, values: list[Any], type: Any) -> Any:
        """An author's column over all nodes; where it was never set it is zero."""
        from decgraph.ir.ops.common import array

        zero = next((np.zeros_like(np.asarray(array(self, v))) for v in values if v is not None), 0)
        filled = [zero if v is None else array(self, v) for v in values]
        if type.elem == "astate":
            out = np.empty(len(values), dtype=object)
            out[:] = values
            return out
        if self.num.exact and type.elem in ("real", "prob"):
            return self.reals([plain_zero(x) for x in filled])
        return np.array(filled)

    def no_mass(self, op: Op, weights: Any) -> Any:
        """normalize of zeros: there is no law. It stays zeros, and drawing from it is an error (randomness.py): a residual
        without mass is reached with probability 0."""
        return np.zeros_like(weights)

    def nothing(self, op: Op, what: str) -> Any:
        raise OpError(what, "make sure that there is at least one candidate")


def plain_zero(x: Any) -> Any:
    return x.item() if isinstance(x, np.ndarray) and x.shape == () else x


class Stop(Exception):
    """Ends a sub-run whose condition holds."""


__all__ = ["Function", "Machine", "Stop"]
