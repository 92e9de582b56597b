"""The torch machine: one request running one compiled function. Holds the context, the states and the stop machine, answers
model calls through engines, and reports events. What it computes is in ops/; the order of it is in the generated driver."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any

import numpy as np

from decgraph.backends.reference.stores import Stores
from decgraph.backends.torch import noise
from decgraph.backends.torch.calls import Calls
from decgraph.backends.torch.effects import Effects
from decgraph.backends.torch.kit import TORCH, Kit
from decgraph.backends.torch.program import Program, program_of
from decgraph.backends.torch.rolls import Rolls
from decgraph.backends.torch.transfer import watch
from decgraph.errors import DecError, InternalError
from decgraph.ir.data.numbers import FLOAT
from decgraph.ir.data.topology import Topology
from decgraph.ir.opdef import OpError
from decgraph.ir.ops.draws import NO_PLACE, NoiseKey
from decgraph.ir.values import Module
from decgraph.runtime.faults import fault
from decgraph.runtime.idle import idle
from decgraph.runtime.noise import Key, output_key
from decgraph.runtime.trace import Tally


class Machine(Calls, Rolls, Effects, Stores):
    """Made as backends.reference.machine.Machine is; `session` names the store that engines keep for this request."""

    num: Any = FLOAT
    kit: Kit = TORCH
    most_turns = 100_000

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
        parent: Any = None,
        program: Program | None = None,
    ) -> None:
        self.module, self.function = module, module.functions[function]
        self.models, self.params, self.request = dict(models), dict(params), request
        self.listener, self.externs = listener, dict(externs or {})
        self.shared = shared if shared is not None else {}
        self.detokenizer, self.parent = detokenizer, parent
        self.program = program if program is not None else program_of(module, function, self.kit)
        self.tally = Tally()
        self.memo: dict[Any, Any] = {}
        self.site_prefix, self.counter_prefix = "", ()
        self.results: list[Any] = []
        self.main = main = self.main_model()
        self.vocab_size = main.vocab.size if main is not None else 0
        self.mask_token = next((m.mask for m in self.models.values() if m.mask is not None), -1)
        self.last_turn, self.decided, self.uids, self.uncounted = (-1, -1), 0, 0, False
        self.idle: dict[str, Any] = {}
        self.start_effects()

    # -- running
    def run_function(self) -> Any:
        """Run to the end; returns the committed tokens. Raises DecError."""
        watch(self)
        try:
            steps = self.steps()
            call = next(steps)
            while True:
                try:
                    answer = call.answer_alone()
                except Exception as error:  # it is the driver's line that asked
                    call = steps.throw(error)
                else:
                    call = steps.send(answer)
        except StopIteration:
            return self.committed_tokens()
        finally:
            self.release()

    @staticmethod
    def run_many(
        waiting: Iterator[tuple[int, Machine]], width: int, ended: Callable[[int, Machine, BaseException | None], None]
    ) -> None:
        """Run several at a time, their model calls together; see schedule.py."""
        from decgraph.backends.torch.schedule import run_many

        run_many(waiting, width, ended)

    @staticmethod
    def limit_memory(models: Mapping[str, Any], budget: int) -> None:
        """Bound what every model's engine holds, in bytes."""
        from decgraph.runtime.models.engine.of import engine_of

        for model in models.values():
            found = engine_of(model)
            parts: list[Any] = [found, getattr(found, "core", None), getattr(found, "below", None)]
            for part in parts:
                if hasattr(part, "store"):
                    part.store.budget = budget
                elif hasattr(part, "budget"):
                    part.budget = budget

    @staticmethod
    def compile_forwards(models: Mapping[str, Any], notice: Callable[[str], None]) -> None:
        """Put every captured forward behind torch.compile, which takes its time at the first calls; `notice` is told of what
        stays as it is."""
        from decgraph.runtime.models.capture.compiled import compiled
        from decgraph.runtime.models.capture.step import Step
        from decgraph.runtime.models.engine.of import engine_of

        for name, model in models.items():
            found = engine_of(model)
            parts: list[Any] = [getattr(found, "core", found), getattr(found, "below", None)]
            parts = [part for part in parts if hasattr(part, "step")]
            for part in parts:
                if isinstance(part.step, Step):
                    part.step = compiled(part.step, notice=notice)
            if not any(isinstance(part.step, Step) for part in parts):
                notice(f"`{name}` is not compiled: its forward is not a captured graph")

    def steps(self) -> Generator[Any, Any, None]:
        """The run as a generator of model calls, each to be sent its answer, or thrown what was raised instead. Raises DecError
        for everything that is raised on the way."""
        try:
            values = [self.models[p.name] if p.value.type.elem == "model" else self.parameter(p) for p in self.function.params]
            self.start_states(values)
            yield from self.program.driver(self, *values)
            self.finish()
        except (InternalError, Stop):
            raise
        except Exception as error:
            told = self.failure(error)
            raise told from told.__cause__

    def parameter(self, p: Any) -> Any:
        if p.name not in self.params:
            raise DecError(f"{self.function.name} needs a value for `{p.name}`")
        v = self.params[p.name]
        if p.value.type.elem == "topology" and not isinstance(v, Topology):
            return Topology.of(v)
        return self.num.const(v)

    def failure(self, error: Exception) -> DecError:
        """What happened while the program ran, as an error of this request at the program's line."""
        cause = error.__cause__
        if isinstance(cause, StopIteration):  # what Python makes of one inside a generator says nothing
            place, op = self.program.place(cause) or ("", "")
            return fault(cause, request=self.title, place=place, op=op)
        place, op = self.program.place(error) or ("", "")
        return fault(error, request=self.title, place=place, op=op)

    def turn(self, where: str, i: int) -> None:
        """Called before every turn of `while not done`: a place to notice a loop that makes no progress."""
        now = (self.committed(), self.decided)
        if i and now == self.last_turn:
            raise DecError(
                f"{where}: a turn of `while not done` committed nothing and decided nothing",
                hint="commit at least one token on every way through the loop",
            )
        self.last_turn = now

    def waits(self, where: str, i: int) -> None:
        """Called before every turn of a loop that waits for cells to be decided."""
        self.idle = idle(self.idle, where, i, (self.committed(), self.decided))
        self.bounded(where, i)

    def bounded(self, where: str, i: int) -> None:
        """Called before every turn of other loops."""
        if i > self.most_turns:
            raise DecError(
                f"{where}: this loop has turned {i} times without ending", hint="bound it: while condition at most n:"
            )

    # -- randomness
    def key(self, key: NoiseKey, lane: tuple[int, ...], position: Any = None, node: Any = None, index: Any = None) -> Key:
        """The Philox key of a draw; `position` and `node` are the row's."""
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
        """True with probability p. Certain outcomes read no noise: the uniform is never 0 and never 1."""
        if p != p:
            raise DecError("bernoulli of a number that is none (0 / 0)")
        if p >= 1:
            return True
        return p > 0 and noise.unit(self.key(key, (lane,))) < p

    def beta(self, op: Any, a: Any, b: Any, key: NoiseKey) -> Any:
        from decgraph.runtime.noise import words

        w = words(self.key(key, ()), 4)
        return float(np.random.Generator(np.random.Philox(key=[int(w[0]), int(w[1])])).beta(float(a), float(b)))

    def restrict(self, memory: Any, positions: Any, kind: str) -> Any:
        return memory.restrict(positions, kind)

    def above(self, q: Any, n: int) -> float:
        """The log-probability of the path to the node that row n of a dist was evaluated at, by the dist's own face."""
        tree = q.rows.tree
        if tree is None or q.rows.nodes is None:
            return 0.0
        total = 0.0
        with np.errstate(divide="ignore"):
            for node in tree.path_nodes(int(q.rows.nodes[int(q.index.reshape(-1)[n])]))[1:]:
                total += float(np.log(tree.draw(node).prob(q.face)))
        return total

    def reals(self, values: Any) -> np.ndarray:
        return np.array(values, dtype=np.float64)

    def nothing(self, op: Any, what: str) -> Any:
        raise OpError(what, "make sure that there is at least one candidate")

    def next_uids(self, n: int) -> np.ndarray:
        """Fresh node ids of this run."""
        out = np.arange(self.uids, self.uids + n)
        self.uids += n
        return out


class Stop(Exception):
    """Ends a sub-run whose condition holds."""
