"""A step whose target is an engine's: what every exported program shares.

The target computes nothing here. Its logits are the tensor that the engine hands over (`Seam.logits`), and its KV cache, its
scheduler and its samplers stay the engine's. Requests of the engine are lanes; a lane is found by its number, so that nothing
moves when the engine reorders its batch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NoReturn, cast

import torch
from torch import Tensor

from decgraph.backends.triton.bodies import free
from decgraph.backends.triton.cache import Cache
from decgraph.backends.triton.models.interface import DeviceModel, ModelPart
from decgraph.backends.triton.state import Frame, Slots, Step
from decgraph.backends.triton.support import NotSteppable
from decgraph.backends.triton.values import Array, NodeSet, Path, Shared, Tree, Vec, is_static
from decgraph.backends.triton.vectors import alike, fitted
from decgraph.ir.text import print_module
from decgraph.ir.values import Module
from decgraph.runtime.arguments import ParamValue
from decgraph.runtime.request import Request
from decgraph.runtime.session import check_params

NO_LIMIT = 2**31 - 1
"""The most tokens of a request: the engine ends texts, and reads the end tokens."""
GROUP = 8
"""A batch of more rows than that is computed as a multiple of it, so that few sizes have a step of their own."""
PLAIN = frozenset({"sampled", "greedy", "ends:4"})
SETTINGS = frozenset({*PLAIN, "top_k", "top_p", "min_p", "repetition", "counts"})
"""What requests may set for a program that shapes distributions itself: features of backends/triton/shaping.py."""


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
        device: torch.device | str = "cpu", features: Collection[str] = PLAIN, mask: int | None = None, open: Sequence[str] = (),
    ) -> None:  # fmt: skip
        function, place = module.entry, torch.device(device)
        names = {p.name: p.value.type for p in function.params if p.value.type.elem == "model"}
        models = {name: EngineModel(name, vocab, str(type.of[0]), mask) for name, type in names.items()}
        frame = Frame(lanes, capacity, place, frozenset(features))
        super().__init__(module, module.main, models, check_params(function, params), frame)
        if len(models) > 1:
            raise NotSteppable(f"it calls {', '.join(models)}: the engine computes one model")
        self.logits: Tensor | None = None
        read = [] if self.loop is None else [v for r in self.loop.regions for v in free(r)]
        self.outside = [v for v in dict.fromkeys(read) if v not in self.env]
        """What the loop reads of what was computed before it."""
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
        before, outside = self.carried, {v: self.env[v] for v in self.outside if v in self.env}
        self.prologue(mask)
        self.env.update((v, self.join(mask, self.env[v], old)) for v, old in outside.items())
        if before:  # the others go on with what they carry
            new, self.carried = self.carried, before
            self.carry(mask, new)
        for value in (*self.states.values(), *self.carried, *(self.env[v] for v in self.outside)):
            if not (isinstance(value, Tensor | Vec | Shared) or is_static(value)):
                raise NotSteppable("a value that is no number goes from step to step")

    def fill(self, cache: Slots, lane: int) -> None:
        """Nothing: the engine computes texts."""

    # -- what a lane has
    def lasting(self) -> Iterator[tuple[MutableMapping[Any, Any] | list[Any], Any]]:
        """Where the tensors are that a step changes and the next one reads: containers and keys."""
        yield from ((vars(self), name) for name in ("length", "iteration", "done", "lost"))
        for container, keys in ((self.states, list(self.states)), (self.carried, range(len(self.carried)))):
            yield from ((cast(Any, container), key) for key in keys)

    def constant_rows(self) -> Iterator[tuple[MutableMapping[Any, Any], Any]]:
        """The same for what a lane has from the beginning on: its text, settings and parameters."""
        settings = vars(self.settings)
        yield from ((vars(self), name) for name in ("tokens", "base"))
        yield from ((settings, name) for name, v in settings.items() if isinstance(v, Tensor) and v is not self.tokens)
        yield from ((self.open, name) for name in self.open)
        yield from ((self.env, v) for v in self.outside)


def carried(module: Module) -> str:
    """The text of what an exported file carries of a module: its algorithm without claims, and nothing else."""
    return print_module(Module({module.main: replace(module.entry, claims=())}, module.main, module.path))


def bring(table: Seam, s: Seam, rows: Tensor) -> None:
    """Have a step of some rows go on with what lanes have. rows: int64[n], a lane for each row of `s`."""
    for (source, key), (target, _) in zip((*table.constant_rows(), *table.lasting()), (*s.constant_rows(), *s.lasting()), strict=True):
        value = source[key]
        if isinstance(value, Vec):
            target[key] = Vec(value.data.index_select(0, rows), value.live.index_select(0, rows))
        elif isinstance(value, Tensor):
            there, now = value.index_select(0, rows), target[key]
            if isinstance(now, Tensor) and now.dtype == there.dtype:
                now.copy_(there)
            else:
                target[key] = there


def keep(table: Seam, s: Seam, at: Tensor) -> None:
    """Note what the first rows of a step have come to. at: int64[n], their lanes."""
    tokens = (vars(table), "tokens"), (vars(s), "tokens")
    for (container, key), (source, _) in (tokens, *zip(table.lasting(), s.lasting(), strict=True)):
        new, old = source[key], container[key]
        if isinstance(new, Vec):
            width = int(new.data.shape[1])
            data, live = fitted(table.lanes(old), width), fitted(table.lives(old), width)
            container[key] = Vec(_put(data, at, new.data), _put(live, at, new.live))
        elif isinstance(new, Tensor):
            container[key] = _put(table.lanes(old), at, new)


def _put(old: Tensor, at: Tensor, new: Tensor) -> Tensor:
    """A tensor [B, ...] with the first rows of another in its rows int64[n], itself where that can be."""
    if old.dtype == new.dtype and old.is_contiguous():
        return old.index_copy_(0, at, new[: len(at)])
    x, y = alike([old, new[: len(at)]])
    return x.index_copy(0, at, y)
