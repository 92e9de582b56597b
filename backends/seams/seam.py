"""A step whose target is an engine's: what every exported program shares.

The target computes nothing here. Its logits are the tensor that the engine hands over (`Seam.logits`), and its KV cache, its
scheduler and its samplers stay the engine's. Requests of the engine are lanes; a lane is found by its number, so that nothing
moves when the engine reorders its batch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Generic, NoReturn, TypeVar, cast

import torch
from torch import Tensor

from decgraph.backends.triton import shaping
from decgraph.backends.triton.cache import Cache
from decgraph.backends.triton.models.interface import DeviceModel, ModelPart
from decgraph.backends.triton.state import Frame, Slots, Step
from decgraph.backends.triton.support import NotSteppable
from decgraph.backends.triton.values import Array, NodeSet, Path, Shared, Tree, Vec, is_static
from decgraph.backends.triton.vectors import fitted
from decgraph.errors import DecError
from decgraph.ir.text import parse_module, print_module
from decgraph.ir.values import Module, Op
from decgraph.runtime.arguments import ParamValue
from decgraph.runtime.refused import refuse_unread, unread
from decgraph.runtime.request import Request
from decgraph.runtime.session import check_params

NO_LIMIT = 2**31 - 1
"""The most tokens of a request: the engine ends texts, and reads the end tokens."""
PLAIN = frozenset({"sampled", "greedy", "ends:4"})
SETTINGS = frozenset({*PLAIN, "top_k", "top_p", "min_p", "repetition", "counts"})
"""What requests may set for a program that shapes distributions itself: features of backends/triton/shaping.py."""
GROUP = 8
"""A batch of more rows than that is computed as a multiple of it, so that few sizes have a step of their own."""


class EngineModel(DeviceModel):
    """The engine's model: a name and a vocabulary. What it is asked for beside logits, no engine gives."""

    def __init__(self, name: str, vocab: int, kind: str = "causal", mask: int | None = None) -> None:
        self.name, self.vocab_size, self.kind, self.mask, self.dtype = name, vocab, kind, mask, torch.float32

    def read(self, states: Tensor) -> Tensor:
        return states

    def derive(self, how: str, *args: object) -> ModelPart:
        raise NotSteppable(f"a model that is derived from `{self.name}`: the engine computes it whole")

    def heads(self, states: Tensor) -> NoReturn:
        raise NotSteppable(f"heads of `{self.name}`'s own: the engine gives logits of its output layer alone")

    @property
    def layers(self) -> int:  # type: ignore[override]
        raise NotSteppable(f"the layers of `{self.name}`: the engine gives logits alone")


class EngineSlots(Cache):
    """The slots of the engine's model, which are the engine's."""

    def states(self, tree: Tree | None, nodes: NodeSet | Array, known: Tensor | None = None) -> Tensor:
        """The engine's logits [B, n, V] after nodes. Raises NotSteppable for what it has not computed."""
        if self.asked:  # a commit came between
            raise NotSteppable("the target is called again after a commit: the engine calls it once a step", self.s.place)
        logits = cast(Seam, self.s).logits
        if logits is None:
            raise NotSteppable("the target is called where the engine has computed nothing yet", self.s.place)
        if tree is not None:
            raise NotSteppable("the target is called at drafts: the engine gives the logits of one token", self.s.place)
        return logits[:, None]

    def parent_state(self) -> NoReturn:
        raise NotSteppable("the logits before the last token", self.s.place)

    def start(self) -> None:
        super().start()
        self.slots = self.slots[:0]

    def committed(self, before: Tensor, accepted: Tensor, most: int, path: Path | None) -> None:
        self.asked = True


class Seam(Step):
    """One program over lanes of an engine. open: parameters of which every lane has a number of its own, float64[B].

    logits: what the engine computed for this step, [B, V] (`EngineSlots` says of what). Raises NotSteppable for a program that
    has no step, and DecError for values that its parameters do not take."""

    slots: ClassVar = {**Step.slots, "": EngineSlots}

    def __init__(
        self, module: Module, params: Mapping[str, ParamValue], *, vocab: int, lanes: int, capacity: int,
        device: torch.device | str = "cpu", features: Collection[str] = PLAIN, mask: int | None = None,
        open: Sequence[str] = (),
    ) -> None:  # fmt: skip
        function, place = module.entry, torch.device(device)
        names = {p.name: p.value.type for p in function.params if p.value.type.elem == "model"}
        models = {name: EngineModel(name, vocab, str(type.of[0]), mask) for name, type in names.items()}
        frame = Frame(lanes, capacity, place, frozenset(features))
        super().__init__(module, module.main, models, check_params(function, params), frame)
        if len(models) > 1:
            raise NotSteppable(f"it calls {', '.join(models)}: the engine computes one model")
        self.logits: Tensor | None = None
        self.open: dict[str, Tensor] = {}
        for p in function.params:
            if p.name in open:
                row = torch.full((lanes,), float(cast(float, self.params[p.name])), dtype=torch.float64, device=place)
                self.open[p.name] = self.env[p.value] = row

    def enter(
        self, lane: int, prompt: Sequence[int], output: Sequence[int] = (), *, settings: Mapping[str, Any] | None = None,
        params: Mapping[str, float] | None = None,
    ) -> None:  # fmt: skip
        """A request begins in a lane, with the tokens that it has generated before. settings: fields of `Request`; params:
        numbers of its own for parameters that are `open`. Raises DecError for values that are none of those."""
        n = len(prompt)
        if n + len(output) > self.frame.capacity:
            most = self.frame.capacity
            raise DecError(f"a text of {n + len(output)} tokens: there is room for {most}", hint="more capacity")
        self.admit(lane, Request(prompt=tuple(prompt), **{"max_tokens": NO_LIMIT, **(settings or {})}))
        if output:
            self.tokens[lane, n : n + len(output)] = torch.tensor(list(output), device=self.device)
            self.length[lane], self.iteration[lane] = n + len(output), len(output)
        own = check_params(self.function, {**self.params, **(params or {})})
        for name, row in self.open.items():
            row[lane] = float(cast(float, own[name]))
        mask = torch.zeros_like(self.done)
        mask[lane] = True
        self.begin_lanes([lane], mask)

    def begin_lanes(self, lanes: Sequence[int], mask: Tensor) -> None:
        """Initial states, and the ops before the loop, in lanes, bool[B]. Raises NotSteppable for a value of theirs that is no
        number and that a later step reads."""
        self.start_states(lanes)
        self.prologue(mask)
        for value in (*self.states.values(), *self.carried, *(self.env[v] for v in self.outside)):
            if not (isinstance(value, Tensor | Vec | Shared) or is_static(value)):
                raise NotSteppable("a value that is no number goes from step to step")

    def op(self, op: Op) -> None:
        try:
            super().op(op)
        except NotSteppable as error:
            error.op = error.op or op  # refusals have a line
            raise

    def fill(self, cache: Slots, lane: int) -> None:
        """Nothing: the engine computes texts."""

    # -- what a lane has
    def lasting(self) -> list[Slot]:
        """Where the tensors are that a step changes and the next one reads."""
        step = [(vars(self), name) for name in ("length", "iteration", "done", "lost")]
        return [*step, *((self.states, name) for name in self.states), *((self.carried, n) for n in range(len(self.carried)))]

    def constant_rows(self) -> list[Slot]:
        """The same for what a lane has from its beginning on: its text, settings and parameters."""
        settings = vars(self.settings)
        text = [(vars(self), name) for name in ("tokens", "base")]
        own = [(settings, name) for name, v in settings.items() if isinstance(v, Tensor) and v is not self.tokens]
        return [*text, *own, *((self.open, name) for name in self.open), *((self.env, v) for v in self.outside)]

    def copy_lanes(self, other: Seam, rows: Tensor) -> None:
        """Have what the lanes int64[B] of another step of the same program have."""
        here, there = ((*s.constant_rows(), *s.lasting()) for s in (self, other))
        for (target, key), (source, _) in zip(here, there, strict=True):
            if isinstance(value := source[key], Tensor):
                put(target, key, value.index_select(0, rows))
            elif isinstance(value, Vec):
                target[key] = Vec(value.data.index_select(0, rows), value.live.index_select(0, rows))


S = TypeVar("S", bound=Seam)
Slot = tuple[Any, Any]
"""A container and a key of it."""


def put(container: Any, key: Any, value: Tensor) -> None:
    """Write a tensor into the one of that place, where it has one of the same dtype: recorded steps read that."""
    old = container[key]
    if isinstance(old, Tensor) and old.dtype == value.dtype:
        old.copy_(value)
    else:
        container[key] = value


class Lanes(Generic[S]):
    """The requests of an engine, a lane each in `table`, and steps of as many rows as are there. make: a step of so many lanes,
    for settings that have these features. undoes: whether steps may turn out not to have happened."""

    def __init__(self, lanes: int, make: Callable[[int, frozenset[str]], S], undoes: bool = True) -> None:
        self.table, self.make, self.undoes = make(lanes, SETTINGS), make, undoes
        self.needs = [PLAIN] * lanes
        self.steps: dict[Hashable, S] = {}
        self.before: dict[int, Tensor] = {}
        """By place in `lasting`: what the lanes had before their last step."""
        self.texts = self.table.tokens[:0]
        """The buffer that all steps have their texts in: no two of them are computed at a time."""

    def enter(
        self, lane: int, prompt: Sequence[int], output: Sequence[int] = (), *, settings: Mapping[str, Any] | None = None,
        params: Mapping[str, float] | None = None,
    ) -> None:  # fmt: skip
        """A request begins in a lane (`Seam.enter`)."""
        self.table.enter(lane, prompt, output, settings=settings, params=params)
        self.needs[lane] = shaping.need(Request(prompt=(0,), max_tokens=1, **(settings or {})))

    def step(self, at: Tensor, undo: Tensor | None = None) -> S:
        """A step whose first rows are the lanes int64[n]; what is behind them repeats the first one. undo: bool[lanes], whose
        last step did not happen."""
        table, n = self.table, len(at)
        if undo is not None and self.before:
            for place, (container, key) in enumerate(table.lasting()):
                if isinstance(now := container[key], Tensor):
                    old = self.before[place].to(now.dtype)
                    now.copy_(torch.where(undo.reshape(-1, *[1] * (now.ndim - 1)), old, now))
        size = n if n <= GROUP else -(-n // GROUP) * GROUP
        which = size, frozenset().union(PLAIN, *self.needs)
        s = self.steps.get(which)
        if s is None:
            s = self.steps[which] = self.make(*which)
            if (have := len(self.texts)) < size:  # smaller steps keep the one that they have
                self.texts = s.tokens.new_zeros((max(size, 2 * have), s.tokens.shape[1]))
            s.tokens = s.settings.text = self.texts[:size]
            for row in range(size):
                s.admit(row, Request(prompt=(0,), max_tokens=1))
            s.begin_lanes(range(size), torch.ones_like(s.done))
        s.copy_lanes(table, torch.cat([at, at[:1].expand(size - n)]))
        s.done.fill_(False)
        return s

    def store(self, at: Tensor, s: S, most: int) -> Tensor:
        """The lanes int64[n] have what a step made of them; the up to `most` tokens that it committed, int64[n, most], with
        others behind them."""
        table, n = self.table, len(at)
        where = (table.length.index_select(0, at)[:, None] + table.steps(most)).clamp(max=table.frame.capacity)
        tokens = s.tokens[:n].gather(1, where)
        table.tokens[at[:, None], where] = tokens
        for place, ((container, key), (made, _)) in enumerate(zip(table.lasting(), s.lasting(), strict=True)):
            new, old = made[key], container[key]
            if isinstance(new, Vec):  # in steps that are not undone
                data, live = fitted(table.lanes(old), new.data.shape[1]), fitted(table.lives(old), new.data.shape[1])
                data = data.to(torch.promote_types(data.dtype, new.data.dtype))
                container[key] = Vec(data.index_copy(0, at, new.data[:n].to(data.dtype)), live.index_copy(0, at, new.live[:n]))
            if not isinstance(new, Tensor):
                continue
            old = old if isinstance(old, Tensor) else table.lanes(old).clone()
            container[key] = old = old.to(torch.promote_types(old.dtype, new.dtype))
            if not self.undoes:
                old.index_copy_(0, at, new[:n].to(old.dtype))
                continue
            was = self.before.get(place)
            was = self.before[place] = old.clone() if was is None else was.to(old.dtype)
            was.index_copy_(0, at, old.index_select(0, at))
            old.index_copy_(0, at, new[:n].to(old.dtype))
        return tokens


def read(program: str | Module) -> Module:
    """A program's module, which an exported file has as a text."""
    return parse_module(program) if isinstance(program, str) else program


def checked(
    module: Module,
    params: Mapping[str, ParamValue],
    open: Collection[str],
    settings: Mapping[str, Any],
    own: Mapping[str, float],
) -> Request:
    """A request's settings, with a prompt of no meaning. own: its numbers for parameters that are `open`. Raises DecError
    for settings that the program does not read, and for values that its parameters do not take."""
    for name in own:
        if name not in open:
            known = f"a request may set {', '.join(open)}" if open else "a request may set none"
            raise DecError(f"{module.main} has no parameter `{name}` of a request's own", hint=known)
        if isinstance(own[name], bool) or not isinstance(own[name], int | float):
            raise DecError(f"{module.main}: `{name}` must be a number, not {own[name]!r}", hint=f"{name}: 0.5")
    check_params(module.entry, {**params, **own})
    request, ignored = Request(prompt=(0,), max_tokens=1, **settings), unread(module.entry)
    refuse_unread(module.entry, request, ignored)
    draws = any(op.opcode in ("draw", "draw.many", "draw.race") for op in module.entry.body.walk())
    if draws and request.temperature == 0 and "temperature" in ignored:  # in an engine the caller has asked for it
        why = f"{module.main} draws from unshaped distributions: temperature 0 would not make it greedy"
        raise DecError(why, hint="temperature 1, or an algorithm that draws from shaped distributions")
    return request


def carried(module: Module) -> str:
    """The text of what an exported file carries of a module: its algorithm without claims, and nothing else."""
    return print_module(Module({module.main: replace(module.entry, claims=())}, module.main, module.path))
