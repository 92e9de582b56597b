"""The torch machine: one request running one compiled function. Its operations are in ops/, their order in the generated
driver: a generator that yields every model call and is sent its value."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from types import MethodType
from typing import ClassVar, cast

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.run import Run, Stop
from decgraph.backends.torch import calls, engines, noise, protocols
from decgraph.backends.torch.driver import Driver
from decgraph.backends.torch.lowering import supports
from decgraph.backends.torch.ops import draws
from decgraph.backends.torch.pending import Call, Steps
from decgraph.backends.torch.prefixes import CommittedText, Context
from decgraph.backends.torch.program import compile_function, program_of
from decgraph.backends.torch.rows import Rows
from decgraph.backends.torch.schedule import Ended, Schedule, run_many
from decgraph.backends.torch.timing import recorded, timed_call
from decgraph.backends.torch.transfer import number, watch
from decgraph.backends.torch.trees import TorchPath, TorchTree, path_of
from decgraph.errors import DecError, InternalError
from decgraph.ir.data.topology import Level
from decgraph.ir.values import Function, Loc, Op
from decgraph.runtime.automaton import Automaton
from decgraph.runtime.backend import Backend
from decgraph.runtime.faults import fault, noted_outside
from decgraph.runtime.models.engine.of import engine_of
from decgraph.runtime.models.interface import Model
from decgraph.runtime.request import Request
from decgraph.runtime.stop import StopMachine, StopState
from decgraph.runtime.trace import DraftEnded, Noted, Stats, Tally, Timing


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


class Later:
    """A method of the machine that few programs call: a function of a file that is imported when it is first read."""

    def __init__(self, file: str) -> None:
        self.file = f"decgraph.backends.torch.{file}"

    def __set_name__(self, owner: type[TorchMachine], name: str) -> None:
        self.owner, self.name = owner, name

    def __get__(self, machine: TorchMachine, owner: type[TorchMachine]) -> MethodType:
        function = getattr(import_module(self.file), self.name)
        setattr(self.owner, self.name, function)
        return MethodType(function, machine)


class TorchMachine(Run):
    """One request running one compiled function; its arguments are `Backend`'s."""

    name = "torch"
    counts = True
    compiled: ClassVar[Callable[[Function], Driver]] = staticmethod(compile_function)
    """What makes the driver of a function."""
    reused = 0
    """Tokens of the prompt whose keys and values a lane of a device had already."""
    uncounted = False
    """Whether calls are counted by their caller, as the parts of one."""
    part = ""
    """The opcode of the part of a draft loop that runs, which is one statement of the driver; "" outside of one."""

    def start_run(self) -> None:
        super().start_run()
        self.program: Driver = program_of(self.module, self.function.name, type(self).compiled)
        self.engines: engines.Engines = engines.Engines(
            id(self) if self.parent is None else (self.parent.engines.sequence, id(self))
        )
        self.second_contexts = engines.SecondContexts()
        self.marks: list[int] = [-1] * len(self.tokens)
        """For every token of the context the id of the tree node it came from, or -1."""
        self.text = CommittedText(self.tokens, self.request.begins)
        # Without stop strings and conditions of the caller the stop machine only counts tokens and finds ends: it is run when
        # it may fire, and its state is computed when it is read.
        self.counts_only = not self.request.stop and not self.request.until
        self.tally = Tally()
        self.uids = 0
        self.syncs = 0
        """Device-to-host synchronisations of the run; see transfer.py."""

    # -- what generated drivers call, beside the operations in ops/
    evaluate = calls.evaluate
    evaluate_together = calls.evaluate_together
    read_tokens = calls.read_tokens
    memory = calls.memory
    draft_loop = Later("draft_loops")
    batch_top = Later("ops.host")
    fold = Later("ops.host")
    full = Later("ops.trees")

    def sub_run(
        self,
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

    # -- the backend
    @classmethod
    def run_many(
        cls, waiting: Iterator[tuple[int, Backend]], width: int, ended: Callable[[int, Backend, BaseException | None], None]
    ) -> None:
        """Run several at a time, their model calls together; see schedule.py."""
        run_many(cast(Iterator[tuple[int, TorchMachine]], waiting), width, ended)

    @classmethod
    def schedule(
        cls, ended: Ended[TorchMachine], *, width: int = 8, chunk: int | None = None, apart: bool = False
    ) -> protocols.Schedule[TorchMachine]:
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

    # -- the KV cache
    def reuse(self, key: Hashable) -> None:
        self.engines.reuse(key, self.models, self.request.prompt)

    @classmethod
    def forget(cls, models: Mapping[str, Model], key: Hashable) -> None:
        engines.forget(models, key)

    def release(self) -> None:
        """Free this run's KV cache in the engines, that of second contexts also where that of the request stays."""
        self.second_contexts.release(self.engines)
        self.engines.release(self.models.values())

    def own_logits(self, begin: int, end: int) -> Iterator[np.ndarray]:
        return calls.own_logits(self, begin, end)

    # -- running
    def record(self, recorder: Timing) -> None:
        super().record(recorder)
        self.program = recorded(self.program, recorder)

    def places(self) -> Iterator[Loc]:
        for op in self.program.ops(self.waiting):
            parts = op.regions[0].walk() if self.part and op.opcode == "for" else ()
            yield next((part.loc for part in parts if part.opcode == self.part), op.loc)

    waiting: Steps[None] | None = None
    """The run, where it is recorded and waits for model calls."""

    def initial_states(self, values: Sequence[object]) -> Mapping[str, Callable[[], object]]:
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

    def answered(self, call: Call) -> object:
        """The value of a call of this run alone."""
        return call.compute_alone() if self.recorder is None else timed_call(self.recorder, call)

    def steps(self) -> Steps[None]:
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

    # -- commits
    @property
    def stop_state(self) -> StopState:
        """The state of the stop machine."""
        if self._stop.count != len(self.tokens) - self.base:
            self._stop = replace(self._stop, count=len(self.tokens) - self.base)
        return self._stop

    @stop_state.setter
    def stop_state(self, state: StopState) -> None:
        self._stop = state

    def feed(self, token: int) -> None:
        """Commit one token."""
        self.tokens.append(token)
        count = len(self.tokens) - self.base
        if not self.counts_only or token in self.request.eos or count >= self.request.max_tokens:
            state = self._stop if self._stop.count == count - 1 else replace(self._stop, count=count - 1)
            self._stop = StopMachine.feed(state, token)

    def done(self) -> bool:
        return bool(self._stop.done) or (self.window is not None and len(self.tokens) > self.window)

    # -- statistics
    def finish(self) -> None:
        super().finish()
        self.tally.stopped = self.reason

    def tell_note(self, event: Noted) -> None:
        self.tally.note(event)
        super().tell_note(event)

    def end_draft(self, event: DraftEnded) -> None:
        self.tally.errors[event.error] = self.tally.errors.get(event.error, 0) + 1
        super().end_draft(event)

    def stats(self) -> Stats:
        """The statistics of the run."""
        return self.tally.stats()

    def next_uids(self, n: int) -> np.ndarray:
        """int64[n]: fresh ids of tree nodes."""
        out = np.arange(self.uids, self.uids + n)
        self.uids += n
        return out

    def columns_of(self, tree: TorchTree) -> Mapping[str, Sequence[object]]:
        return {**tree.columns, "logprob": tree.logprobs().tolist()}

    def waited(self, copy: Callable[[], Tensor]) -> Tensor:
        """A copy from a device, of any shape, on the host; it waits for the device."""
        return copy()

    # -- noise
    key = noise.key_of
    flip = draws.flip
    beta = draws.drawn_beta

    # -- operations that run their NumPy meaning
    def automaton(self, op: Op, g: Automaton, args: Sequence[object]) -> object:
        """Query an automaton; see the op automaton."""
        from decgraph.backends import automata

        return automata.ask(op.attrs["what"], g, args, base=self.base, vocab_size=self.vocab_size)

    def reals(self, values: object) -> np.ndarray:
        return np.array(values, dtype=np.float64)

    def level_field(self, level: Level, field: str) -> object:
        v = getattr(level, field)
        return np.array(v, dtype=np.int64) if isinstance(v, tuple) else v
