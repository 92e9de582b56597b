"""The torch machine: one request running one compiled function. Its operations are in ops/, their order in the generated
driver: a generator that yields every model call and is sent its value."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch

from decgraph.backends import automata
from decgraph.backends.base import Backend
from decgraph.backends.drafting import calls
from decgraph.backends.run import Stop
from decgraph.backends.torch.draft_loops import DraftLoops
from decgraph.backends.torch.driver import Driver
from decgraph.backends.torch.kit import TORCH, Kit
from decgraph.backends.torch.lowering import supports
from decgraph.backends.torch.ops.selection import ranked, top
from decgraph.backends.torch.pending import MeetingCall, Pending
from decgraph.backends.torch.program import program_of
from decgraph.backends.torch.schedule import Ended, Schedule, run_many
from decgraph.backends.torch.sub_runs import drawn_later
from decgraph.backends.torch.timing import recorded, timed_call
from decgraph.backends.torch.transfer import fetched, watch
from decgraph.backends.torch.trees import Context, TorchPath, path_of
from decgraph.errors import DecError, InternalError
from decgraph.ir.ops.common import plain
from decgraph.ir.ops.host import folded, shares
from decgraph.ir.values import Loc, Op
from decgraph.runtime.faults import fault, noted_outside
from decgraph.runtime.models.engine.of import engine_of
from decgraph.runtime.models.interface import Model
from decgraph.runtime.recording import Timing


class TorchMachine(DraftLoops):
    """One request running one compiled function; its arguments are `Backend`'s."""

    name = "torch"
    kit: ClassVar[Kit] = TORCH

    def start_run(self) -> None:
        super().start_run()
        self.program: Driver = program_of(self.module, self.function.name, self.kit)

    # -- the backend
    @classmethod
    def run_many(
        cls, waiting: Iterator[tuple[int, Backend]], width: int, ended: Callable[[int, Backend, BaseException | None], None]
    ) -> None:
        """Run several at a time, their model calls together; see schedule.py."""
        run_many(waiting, width, ended)

    @classmethod
    def schedule(cls, ended: Ended, *, width: int = 8, chunk: int | None = None, apart: bool = False) -> Any:
        """What runs machines that join and leave, for a caller that advances it by itself. width: about how many at a time."""
        return Schedule(ended, chunk=chunk, apart=apart)

    @classmethod
    def limit_memory(cls, models: Mapping[str, Model], budget: int) -> None:
        for model in models.values():
            engine_of(model).limit(budget)

    @classmethod
    def compile(cls, models: Mapping[str, Model], notice: Callable[[str], None]) -> None:
        """Compile every decoder with torch.compile, which takes time at the first calls."""
        for name, model in models.items():
            if not engine_of(model).compile(notice):
                notice(f"`{name}` is not compiled: no decoder runs it")

    @classmethod
    def supports(cls, opcode: str) -> str | None:
        """None for an operation with a lowering, or one that generated drivers write inline; see lowering.py for the others."""
        return supports(opcode)

    # -- running
    def record(self, recorder: Timing) -> None:
        super().record(recorder)
        self.program = recorded(self.program, recorder)

    def places(self) -> Iterator[Loc]:
        for op in self.program.ops(self.waiting):
            parts = op.regions[0].walk() if self.part and op.opcode == "for" else ()
            yield next((part.loc for part in parts if part.opcode == self.part), op.loc)

    waiting: Generator[Pending[Any], Any, None] | None = None
    """The run, where it is recorded and waits for model calls."""

    def initial_states(self, values: Sequence[Any]) -> Mapping[str, Callable[[], Any]]:
        return {name: partial(start, self, *values) for name, start in self.program.starts.items()}

    def run(self) -> tuple[int, ...]:
        watch(self)
        try:
            steps = self.steps()
            self.waiting = steps if self.recorder is not None else None
            call = next(steps)
            while True:
                try:
                    answer = self.answered(call)
                except Exception as error:  # the driver's line made the call
                    call = steps.throw(noted_outside(error))
                else:
                    call = steps.send(answer)
        except StopIteration:
            return self.committed_tokens()
        finally:
            self.release()

    def answered(self, call: Pending[Any]) -> Any:
        """The value of a call of this run alone."""
        return call.compute_alone() if self.recorder is None else timed_call(self.recorder, call)

    def steps(self) -> Generator[Pending[Any], Any, None]:
        """The run as a generator of model calls, each to be sent its result, or thrown the exception raised instead. Raises
        DecError for any exception on the way."""
        try:
            values = self.arguments()
            self.start_states(values)
            yield from self.program.driver(self, *values)
            self.finish()
            if self.parent is None:
                self.read_logprobs()  # now: their keys and values are still in the cache
        except (InternalError, Stop):
            raise
        except Exception as error:
            told = self.failure(error)
            if not self.ended_by(told):
                raise told from told.__cause__
            self.read_logprobs()

    def failure(self, error: Exception) -> DecError:
        """An exception of the program as an error of this request at the program's line."""
        cause = error.__cause__
        if isinstance(cause, StopIteration):  # Python turns one inside a generator into a RuntimeError without content
            place, op = self.program.place(cause) or ("", "")
            return fault(cause, request=self.title, place=place, op=op)
        place, op = self.program.place(error) or ("", "")
        return fault(error, request=self.title, place=place, op=op)

    def sub_run(
        self,
        callee: str,
        site: str,
        start: Any,
        bound: int,
        args: dict[str, Any],
        tree: Any,
        counters: Sequence[Any],
        until: Callable[[TorchPath], Any],
    ) -> Generator[Pending[Any], Any, TorchPath]:
        """Run another function on a scratch context until its condition holds: a generator of its model calls."""
        base = start.ids() if isinstance(start, Context) else (*self.tokens, *path_of(tree, int(start)).tokens)
        inner = self.inner_run(callee, site, base, bound, args, counters)
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
            self.tally.called(inner.tally)
        tokens = inner.committed_tokens()
        model = next(iter(inner.models.values()), None)
        return TorchPath(tokens, base=len(base), uids=(-1,) * len(tokens), draws=drawn_later(self.request, model, base, tokens))

    # -- computed on the host
    def automaton(self, op: Op, g: Any, args: Sequence[Any]) -> Any:
        """Query an automaton; see the op automaton."""
        return automata.ask(op.attrs["what"], g, args, base=self.base, vocab_size=self.vocab_size)

    @calls
    def batch_top(self, x: Any, k: Any, by: Sequence[Any], site: str) -> MeetingCall:
        """The meaning of `batch.top`: a call that waits for the other sequences' candidates."""
        _, order, keys = ranked(self, x, by)
        best = [tuple(key[i] for key in keys) for i in range(min(len(order), max(0, int(k))))]
        return MeetingCall((best, int(k)), shares, site, finish=lambda n: top(self, x, n, *by))

    @calls
    def fold(self, x: Any, fn: str, site: str) -> MeetingCall:
        """The meaning of `batch.fold`: a call that waits for the other sequences."""
        value = fetched(x) if isinstance(x, torch.Tensor) else x
        return MeetingCall(plain(value), partial(folded, fn), site)

    def reals(self, values: Any) -> np.ndarray:
        return np.array(values, dtype=np.float64)

    def restrict(self, memory: Any, positions: Any, kind: str) -> Any:
        return memory.restrict(positions, kind)

    def above(self, q: Any, n: int) -> float:
        """The log-probability of the path to the node that row n of a dist was evaluated at, by the dist's own view."""
        tree = q.rows.tree
        if tree is None or q.rows.nodes is None:
            return 0.0
        total = 0.0
        with np.errstate(divide="ignore"):
            for node in tree.path_nodes(int(q.rows.nodes[int(q.index.reshape(-1)[n])]))[1:]:
                total += float(np.log(tree.draw(node).prob(q.face)))
        return total
