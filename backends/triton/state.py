"""The state of a program's steps: B lanes, their buffers, and the order of a step's operations.

What lasts from one step to the next is in buffers that are written in place, at fixed addresses: tokens, how many there are,
which lanes are over, iterations, states, and every model's keys and values. Each step computes all else. A lane is given to a
request between two steps (`admit`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, cast

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.torch.draws import Drawn
from decgraph.backends.triton import noise, shaping
from decgraph.backends.triton.evaluate import Evaluator, number
from decgraph.backends.triton.kernels import race
from decgraph.backends.triton.looks import unforked
from decgraph.backends.triton.models.interface import Chunk, DeviceModel, ModelPart
from decgraph.backends.triton.support import NotSteppable
from decgraph.backends.triton.values import Dist, Noise, Operand, Path, Rows, Static, Vec, flattened, is_static, rebuilt
from decgraph.backends.triton.vectors import alike, beside, fitted, live_of, vec_of
from decgraph.ir.data.numbers import FLOAT
from decgraph.ir.data.topology import Level, Topology
from decgraph.ir.ops.common import plain
from decgraph.ir.types import Type
from decgraph.ir.values import Function, Module, Op, Param
from decgraph.ir.walk import free_values, producers
from decgraph.runtime.arguments import ParamValue
from decgraph.runtime.models.derive import halves
from decgraph.runtime.request import Request
from decgraph.runtime.words import TEXT


@dataclass(frozen=True)
class Frame:
    """Sizes of a program. batch: lanes. capacity: tokens of a lane, prompt included. ends: how many end-of-text ids a request
    may have. features: what settings any lane may use (shaping.py)."""

    batch: int
    capacity: int
    device: torch.device
    features: frozenset[str] = frozenset()


class Slots:
    """The slots of one model in a program (cache.py, canvas_cache.py): name, what statistics call it; model; features: whether
    it reads states of another model."""

    name: str
    model: DeviceModel
    features = False
    used = 0
    asked = False

    def start(self) -> None:
        """A new iteration: no node has slots."""

    def committed(self, before: Tensor, accepted: Tensor, most: int, path: Path | None) -> None:
        """After a commit of kept int64[B] tokens, at most `most`, behind `before` int64[B] ones. path: the verified path of
        this step's tree, where it was committed."""
        raise NotImplementedError


class Step(Evaluator):
    """One program. models: `DeviceModel`s by parameter name. slots: what makes the slots of a model, by its kind ("" is that of
    all other kinds)."""

    num = FLOAT
    slots: ClassVar[dict[str, Callable[[Step, str, DeviceModel], Slots]]] = {}
    as_driver = True
    """Whether drafts are a driver's where tokens do not depend on it: trees end where the request may, indexes forget."""
    longest_chain: int | None = None
    """The most drafts of a chain that are of use."""

    def __init__(
        self, module: Module, function: str, models: Mapping[str, DeviceModel], params: Mapping[str, ParamValue], frame: Frame
    ) -> None:
        super().__init__(frame.batch, frame.device)
        self.module, self.function, self.params = module, module.functions[function], dict(params)
        self.frame = frame
        b = frame.batch
        self.tokens = self.buffer((b, frame.capacity + 1), torch.int64)  # the last column takes what is not committed
        self.length, self.base, self.iteration = (self.buffer((b,), torch.int64) for _ in range(3))
        self.states: dict[str, Operand] = {}
        self.counts = Counts(self)
        self.caches: dict[int, Slots] = {}
        self.names: dict[int, str] = {}
        self.taken: set[int] = set()
        """The lanes that have a request."""
        self.chunk: Chunk | None = None
        """A part of a prompt that models compute beside a step, in their first forward."""
        self.chunked: set[int] = set()
        """The models that have done so, in the last step that was computed or recorded with one."""
        self.sized = False
        """Whether something has the size of the longest text (`text_size`)."""
        self.uids = self.epoch = 0
        self.committed_now = self.committed_most = 0
        """The most tokens that are committed: in this iteration so far, and in one."""
        for p in self.function.params:
            if p.value.type.elem == "model":
                self.env[p.value] = models[p.name]
                self.names[id(models[p.name])] = p.name
            else:
                self.env[p.value] = parameter(p, self.params[p.name])
        self.main = next((p.name for p in self.function.params if p.value.type.elem == "model"), "")
        if not self.main:
            raise NotSteppable("no model is called")
        main = models[self.main]
        self.vocab_size = int(main.vocab_size)
        masks = (models[p.name].mask for p in self.function.params if p.value.type.elem == "model")
        self.mask_token = next((m for m in masks if m is not None), None)
        self.exact = bool(main.exact)
        self.settings = shaping.LaneSettings(frame.features, b, self.vocab_size, self.device, self.tokens)
        self.ends, self.limit = self.settings.ends, self.settings.limit
        self.before, self.loop = split(self.function)
        self.makers = producers(self.function.body)
        self.unforked = unforked(self.function) if self.as_driver else frozenset[str]()
        """The trees that must be chains (looks.py)."""
        self.carried: list[Operand] = []
        read = [] if self.loop is None else [v for r in self.loop.regions for v in free_values(r)]
        self.outside = [v for v in dict.fromkeys(read) if v not in self.env]
        """What the loop reads of what is computed before it."""

    # -- requests
    def admit(self, lane: int, request: Request, noise_id: int | None = None) -> None:
        """Give a lane to a request: its prompt, settings and states; `noise_id` as `LaneSettings.admit` has it. Runs between
        steps, on the host. The keys and values of the models that were called before are the caller's to compute (`fill`)."""
        row = np.zeros(self.frame.capacity + 1, dtype=np.int64)
        row[: len(request.prompt)] = request.prompt
        self.tokens[lane].copy_(torch.from_numpy(row))
        self.length[lane] = self.base[lane] = len(request.prompt)
        self.iteration[lane] = 0
        self.done[lane] = self.lost[lane] = False
        self.taken.add(lane)
        self.settings.admit(lane, request, noise_id)
        self.counts.clear(lane)

    @property
    def keys(self) -> noise.Keys:
        """The requests' part of noise keys."""
        return self.settings.rng

    @property
    def text_size(self) -> int:
        """The most tokens of a lane, for what has that size: lanes are no longer than requests need then."""
        self.sized = True
        return self.frame.capacity

    # -- states
    def start_states(self, lanes: Sequence[int], shared: Mapping[tuple[str, str], object] | None = None) -> None:
        """Set the initial states of lanes: the session's, where it has them, else the program's. Raises NotSteppable for a
        state that is no tensor."""
        for state in self.function.states:
            kept = (shared or {}).get((self.function.name, state.name)) if state.scope == "session" else None
            kept = kept.tokens if isinstance(kept, Drawn) else kept  # a request that the driver ran leaves draws
            made = self.region(state.init, ())[0] if kept is None else cast(Operand, kept)  # the host value of a session
            if state.scope == "batch" or state.type.elem in ("tree", "path", "list", "memory"):
                raise NotSteppable(f"the state `{state.name}`")
            if state.type.elem == "index" and state.scope != "sequence":
                raise NotSteppable(f"the state `{state.name}`, an index of what a session has read")
            if state.type.elem == "index":
                self.states[state.name] = made
                continue
            old = self.states.get(state.name)
            if not isinstance(old, Tensor | Vec):
                old = self.states[state.name] = self.lanes(made).clone()
            here = torch.zeros_like(self.done)
            here[list(lanes)] = True
            what = f"the state `{state.name}`"
            self.states[state.name] = written(self, old, made, here, what, bound_of(state.type))

    def token_of(self, text: str) -> int:
        """The token that has a text. Raises NotSteppable in an engine, which binds no tokenizer."""
        if (found := self.params.get(TEXT + text)) is None:
            raise NotSteppable("a token by its text", self.place)
        return cast(int, found)

    def level_field(self, level: Level | Topology, field: str) -> Operand:
        """A field of a level of a topology."""
        if isinstance(level, Topology):
            return level.width
        v = getattr(level, field)
        return np.array(v, dtype=np.int64) if isinstance(v, tuple) else v

    def reads_column(self, name: str) -> bool:
        """Whether the program reads a column of a tree."""
        return any(op.opcode == "tree.get" and op.attrs["column"] == name for op in self.function.body.walk())

    # -- a step
    def cache_of(self, model: DeviceModel) -> Slots:
        """The slots of a model that is called. At its first call it computes the texts of all lanes."""
        if id(model) not in self.caches:
            made = self.slots.get(model.kind, self.slots[""])
            self.caches[id(model)] = made(self, self.names.get(id(model), model.name), model)
            for lane in sorted(self.taken):
                self.fill(self.caches[id(model)], lane)
        return self.caches[id(model)]

    def fill(self, cache: Slots, lane: int) -> None:
        """Compute a lane's text but for its last token. Runs on the host, outside of graphs."""
        n = int(self.length[lane])
        if cache.model.kind != "masked":
            cache.model.fill(lane, self.tokens[lane, :n].tolist(), 0, max(0, n - 1))

    def derived(self, op: Op, model: ModelPart, args: Sequence[Operand]) -> ModelPart:
        """A model that the program derives, the same one for the same arguments."""
        if not all(is_static(a) for a in args):
            raise NotSteppable("a model that is derived by data", op)
        how = "on" if op.attrs["how"] == "adapter" else str(op.attrs["how"])
        return model.derive(
            how, *[a if isinstance(a, ModelPart) else plain(a) for a in halves(args, op.attrs.get("named", ()))]
        )

    def prologue(self, lanes: Tensor) -> None:
        """The ops before `while not done` (all of them, in a program without that loop), in some lanes bool[B]; the others go
        on with what they have."""
        carried, outside = self.carried, {v: self.env.get(v) for v in self.outside}
        self.begin(lanes)
        with self.within(lanes):
            for op in self.before:
                self.op(op)
        if self.loop is None:
            self.done.logical_or_(lanes)
            return
        self.env.update((v, self.lasted(lanes, self.env[v], old)) for v, old in outside.items())
        self.carried = [self.env[v] for v in self.loop.operands]
        if carried:
            new, self.carried = self.carried, carried
            self.carry(lanes, new)

    def lasted(self, lanes: Tensor, new: Operand, old: Operand) -> Operand:
        """A value that steps read and that was computed before them, in the buffers of the old one (None: in new ones): that of
        lanes bool[B], the others' as it was. Recorded steps read the buffers. Raises NotSteppable where its shape differs from
        lane to lane."""
        made: list[Tensor] = []
        structure = flattened(new, made)
        if old is None:
            return rebuilt(new, iter([t if t is self.tokens else t.clone() for t in made]))
        there: list[Tensor] = []
        if flattened(old, there) != structure:
            raise NotSteppable("a value before the loop whose shape data decides")
        for a, b in zip(there, made, strict=True):
            if a is not self.tokens and len(a) == self.batch:
                a.copy_(torch.where(beside(lanes, a), b, a))
        return old

    def body(self) -> None:
        """One iteration of `while not done`."""
        assert self.loop is not None
        live, arguments = self.opened()
        with self.within(live):
            self.closed(live, self.region(self.loop.regions[1], arguments))

    def opened(self) -> tuple[Tensor, Sequence[Operand]]:
        """An iteration of `while not done` begins: bool[B], the lanes that are in it, and the arguments of its body."""
        live = ~self.over()
        self.begin(live)
        return live, [self.iteration.clone(), *self.carried]

    def closed(self, live: Tensor, made: Sequence[Operand]) -> None:
        """The end of an iteration of lanes bool[B], whose body gave these values."""
        assert self.loop is not None
        stops = bool(self.loop.attrs.get("stops"))
        stop, after = (made[0], made[1:]) if stops else (False, made)
        self.carry(live, after)
        if stops and stop is not False:
            self.done.logical_or_(self.lanes(stop) & live)
        self.iteration.add_(live.long())

    def carry(self, live: Tensor, after: Sequence[Operand]) -> None:
        """Keep the values that one iteration hands to the next, in buffers. live: bool[B]."""
        assert self.loop is not None
        for n, (old, new, value) in enumerate(zip(self.carried, after, self.loop.operands, strict=True)):
            if old is new:
                continue
            if is_static(old) and is_static(new) and type(old) is type(new) and np.array_equal(old, new):
                continue
            if isinstance(old, Tensor | Vec) or is_static(old) and not isinstance(old, str | None | list):
                start = old if isinstance(old, Tensor | Vec) else self.lanes(old).clone()
                self.carried[n] = written(self, start, new, live, f"value {n} that the loop carries", bound_of(value.type))
            else:
                self.carried[n] = self.join(live, new, old)

    def begin(self, lanes: Tensor | None) -> None:
        """A new iteration of some lanes, bool[B] or None: no node has slots."""
        self.uids = self.epoch = 0
        self.leading.clear()
        self.committed_most, self.committed_now = max(self.committed_most, self.committed_now), 0
        self.counts.start(lanes)
        for cache in self.caches.values():
            cache.start()

    def next_uids(self, n: int) -> np.ndarray:
        """int64[n]: keys of new nodes, unique in an iteration."""
        out = np.arange(self.uids, self.uids + n)
        self.uids += n
        return out

    # -- distributions and noise
    def view(self, rows: Rows, face: str) -> Tensor:
        """Probabilities [B, R, V] of rows in a view (for "logits" the scores)."""
        if rows.is_probs:
            return rows.faces.get(face, rows.scores)
        if face not in rows.faces:
            rows.faces[face] = shaping.shape(
                self.settings, rows.scores, self.row_place(rows.positions, rows.path, rows.before), face, rows.allow
            )
        return rows.faces[face]

    def row_place(
        self, positions: Tensor | None, path: Callable[[], Tensor] | None, before: Tensor | None = None
    ) -> shaping.RowPlace:
        """Where rows stand; the tokens of their paths are computed only where a setting reads them.
        positions: int64[B, R] or None."""
        read = {"repetition", "counts"} & self.settings.features
        if before is not None:
            count = 1 if positions is None else int(positions.shape[1])
            return shaping.RowPlace(before[:, None].expand(-1, count), before)
        positions = self.length[:, None] if positions is None else self.lanes(positions)
        return shaping.RowPlace(positions, self.length, path() if path is not None and read else None)

    def draw(self, probs: Tensor, words: tuple[Tensor, ...], live: Tensor | None = None) -> Tensor:
        """int64[B, n]: one draw from each row [B, n, V] with its noise. live: bool[B, m], whose rows are drawn from: n / m
        each. One without mass, or with numbers that are none, is an error, which is the driver's."""
        tokens: Tensor = race.draw(probs, *words)
        wrong = tokens < 0
        if live is not None:
            wrong = by_row(wrong, live) & live[..., None]
        self.flag(wrong)
        return tokens.clamp(min=0)

    def vector(self, q: Dist) -> Tensor:
        """Probabilities [B, *shape, V]."""
        self.require_mass(q)
        return self.take(self.view(q.rows, q.face), q.index)

    def require_mass(self, q: Dist) -> None:
        """Called for distributions that are read: where constraints leave one of them without a token, that is an error, which
        is the driver's. Rows that are never read, after drafts that are forbidden, may be empty."""
        rows = q.rows
        if rows.is_probs or not (rows.allow is not None or {"bans", "min_length"} & self.settings.features):
            return
        if rows.empty is None:
            rows.empty = ~(self.lanes(self.view(rows, q.face)).amax(-1) > (-torch.inf if q.face == "logits" else 0))
        wrong = self.take(rows.empty, q.index)
        if q.live is not None:
            wrong = by_row(wrong, q.live) & q.live[..., None]
        self.flag(wrong)

    def no_tokens(self, numbers: Tensor, live: Tensor | None) -> None:
        """Flag lanes in which numbers [B, *shape] are no tokens of the vocabulary: the driver's error."""
        wrong = (numbers < 0) | (numbers >= self.vocab_size)
        self.flag(wrong if live is None or numbers.ndim == 1 else wrong & live.view(*live.shape, *([1] * (wrong.ndim - 2))))

    def noise_words(
        self, key: Noise, n: int, positions: Tensor | None, lanes: Sequence[Tensor] | None = None, live: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """The words of n rows' noise, int64[B, n] each. positions: int64[B, n], for the stream `output`. lanes: the numbers
        that tell them apart (by default the row's, as `counted` says), each [n] or [B, n]."""
        if key.kind == "output":
            where = self.lined(key.index, n) if key.index is not None else positions
            if where is None:
                raise NotSteppable("`as output` of a distribution without a position", self.place)
            return noise.words(self.keys, "output", [where], lanes or [] if key.index is not None else [])
        counters = [self.tensor(c) if not isinstance(c, int) else c for c in key.counters]
        return noise.words(self.keys, key.site, counters, [self.counted(n, live)] if lanes is None else lanes)

    def counted(self, n: int, live: Tensor | None) -> Tensor:
        """int64[B or 1, n]: the numbers of n rows among those that are there. live: bool[B, m], for n / m rows each."""
        if live is None or not n:
            return self.steps(n)[None]
        each = n // int(live.shape[1])
        return (((live.long().cumsum(1) - 1) * each)[..., None] + self.steps(each)).flatten(1)

    def lined(self, index: Operand, n: int) -> Tensor:
        """Indices int64[B or 1, n] of n rows: one for all, or lined up with the leading axis."""
        a = self.tensor(index).flatten(1) if self.tensor(index).ndim > 1 else self.tensor(index)[:, None]
        have = int(a.shape[1])
        return a.expand(-1, n) if have in (1, n) else a.repeat_interleave(n // have, 1)


def written(s: Step, old: Tensor | Vec, new: Operand, mask: Tensor, what: str, bound: int | None = None) -> Tensor | Vec:
    """A buffer with a new value in the lanes of `mask` bool[B], in place; another one where its type is a wider one, or (with
    `lengths`) when its length is found to depend on data: then it has as many elements as its bound."""
    value, have = s.lanes(new), s.tensor(old)
    if live_of(new) is not None or isinstance(old, Vec) or value.shape != have.shape:
        if not s.lengths or bound is None or value.ndim < 2 or value.shape[2:] != have.shape[2:]:
            raise NotSteppable(f"{what} has a length that data decides", s.place)
        return _written(s, old, s.packed(vec_of(value, live_of(new))), mask, bound)
    first, second = alike([value, have])
    data = torch.where(beside(mask, have), first, second)
    if data.dtype != have.dtype:
        return data.clone()
    have.copy_(data)
    return have


def _written(s: Step, old: Tensor | Vec, new: Tensor | Vec, mask: Tensor, bound: int) -> Vec:
    """The same of vectors, at most `bound` elements: more are an error, which is the driver's."""
    s.flag(s.lives(new)[:, bound:].any(1))
    first, second = alike([s.lanes(new), s.lanes(old)])
    data = torch.where(beside(mask, first), fitted(first, bound), fitted(second, bound))
    live = torch.where(mask[:, None], fitted(s.lives(new), bound), fitted(s.lives(old), bound))
    if isinstance(old, Vec) and old.data.shape == data.shape and old.data.dtype == data.dtype:
        old.data.copy_(data)
        old.live.copy_(live)
        return old
    return Vec(data, live)


def bound_of(type: Type) -> int | None:
    """The most elements that a vector can have, None: not known."""
    return type.dims[0].bound if type.dims and isinstance(type.dims[0].bound, int) else None


def by_row(wrong: Tensor, live: Tensor) -> Tensor:
    """[B, n] as [B, m, n / m], beside live [B, m]."""
    m = int(live.shape[1])
    return wrong.flatten(1).unflatten(1, (m, int(wrong[0].numel()) // max(1, m)))


def split(function: Function) -> tuple[list[Op], Op | None]:
    """The ops before `while not done`, and that loop, None where the program has none. Raises NotSteppable for one that goes on
    behind it."""
    ops = list(function.body.ops)
    at = next((i for i, op in enumerate(ops) if op.opcode == "while" and op.attrs.get("bound") == "done"), None)
    if at is not None and at + 1 < len(ops):
        raise NotSteppable("what stands behind `while not done`", ops[at + 1])
    return (ops, None) if at is None else (ops[:at], ops[at])


def parameter(p: Param, value: ParamValue) -> Operand:
    """A parameter as a host value."""
    if p.value.type.elem == "topology":
        return cast(Operand, Topology.of(value))
    return number(cast(Static, value))


class Counts:
    """Statistics by lane: how often drafts at a depth were tested and accepted, int64[B, depth]; how many were drafted, cells
    decided and masked again, int64[B]. calls: of every iteration, of all lanes that are in it; often: int64[B] by model, those
    that only some of them make. notes: by name how many values, the last, the sum, the least and the largest, float64[B, 5]."""

    deepest = 64

    def __init__(self, s: Step) -> None:
        self.s = s
        self.tested, self.accepted = (s.buffer((s.frame.batch, self.deepest + 1), torch.int64) for _ in range(2))
        self.drafted, self.unmasked, self.remasked = (s.buffer((s.frame.batch,), torch.int64) for _ in range(3))
        self.calls: dict[str, int] = {}
        self.often: dict[str, Tensor] = {}
        self.notes: dict[str, Tensor] = {}
        self.whole: Tensor | None = None

    def start(self, lanes: Tensor | None) -> None:
        """A new iteration, in which these lanes are, bool[B] or None."""
        self.calls, self.whole = {}, lanes

    def call(self, name: str, lanes: Tensor | None = None) -> None:
        """One more call of a model by the lanes that are here, or by some of them, bool[B]."""
        if self.s.mask is self.whole and lanes is None:
            self.calls[name] = self.calls.get(name, 0) + 1
            return
        if name not in self.often:
            self.often[name] = self.s.buffer((self.s.frame.batch,), torch.int64)
        self.often[name].add_((self.s.active() if lanes is None else self.s.active() & lanes).long())

    def decide(self, cells: Tensor, again: bool) -> None:
        """Count cells bool[B, n] that are decided, or masked again, in the lanes that are here."""
        (self.remasked if again else self.unmasked).add_(torch.where(self.s.active(), cells.sum(1), 0))

    def draft(self, n: int | Tensor) -> None:
        """Count drafted tokens in the lanes that are here."""
        self.drafted.add_(torch.where(self.s.active(), n, 0))

    def test(self, tested: Tensor, accepted: Tensor) -> None:
        """Count tests of drafts bool[B, D] at the depths from 1 on, and which of them were accepted."""
        here, last = self.s.active()[:, None], self.deepest - 1
        for buffer, some in ((self.tested, tested & here), (self.accepted, tested & accepted & here)):
            n = some.long()
            if int(n.shape[1]) > self.deepest:
                n = torch.cat([n[:, :last], n[:, last:].sum(1, keepdim=True)], 1)
            buffer[:, 1 : int(n.shape[1]) + 1].add_(n)

    def note(self, name: str, value: Tensor) -> None:
        """A figure [B] of the program, in the lanes that are here."""
        before = self.notes.get(name)
        if before is None:
            before = self.notes[name] = self.s.buffer((self.s.frame.batch, 5), torch.float64)
        value, (count, _, total, low, high) = value.double(), before.unbind(1)
        low, high = (torch.where(count > 0, f(end, value), value) for f, end in ((torch.minimum, low), (torch.maximum, high)))
        after = torch.stack([count + 1, value, total + value, low, high], 1)
        before.copy_(torch.where(self.s.active()[:, None], after, before))

    def clear(self, lane: int) -> None:
        """A lane begins anew."""
        for buffer in self.buffers():
            buffer[lane] = 0

    def buffers(self) -> list[Tensor]:
        """All that is counted by lane, [B, ...]."""
        counts = self.tested, self.accepted, self.drafted, self.unmasked, self.remasked
        return [*counts, *self.often.values(), *self.notes.values()]
