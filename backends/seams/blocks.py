"""Masked programs over an engine's blocks: what an engine of diffusion language models asks for at every forward.

A program is cut at the calls of its model into parts: straight code, and the heads and ends of loops and branches. A request
waits at a call for the engine's next forward, and then goes on to its next call. Requests of one batch may wait at different
calls, in different iterations; a part is run for all who are in it, as lanes of one step. Tensors in, tensors out.

A block is a run of its own. Its tokens are those of `decgraph.run` with the text before it as the prompt, `max_tokens` the
positions that are left of it, the request's settings, and as `request_id` the number of the block in the text: its first
position divided by the block size. (Noise is keyed by it; without, every block would repeat the draws of the one before.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Final, cast

import torch
from torch import Tensor

from decgraph.backends.seams.seam import NO_LIMIT, PLAIN, Seam, checked, read
from decgraph.backends.triton import shaping
from decgraph.backends.triton.canvas_cache import Call, CanvasCache, CanvasMemory
from decgraph.backends.triton.ops.request import offered
from decgraph.backends.triton.state import Step
from decgraph.backends.triton.support import NotSteppable
from decgraph.backends.triton.values import Canvas, Context, Draws, Operand, Spans, flattened, rebuilt
from decgraph.backends.triton.vectors import beside
from decgraph.errors import DecError
from decgraph.ir.values import Function, Module, Op, Region, Value
from decgraph.ir.walk import free_values
from decgraph.runtime.arguments import ParamValue
from decgraph.runtime.refused import unread
from decgraph.runtime.request import Request
from decgraph.runtime.session import check_params

SIZES: Final = ("length", "block", "steps")
"""Parameters that are the engine's block size where nobody sets them; so is one that says how long a canvas is."""
FEATURES: Final = frozenset({*PLAIN, "top_k", "top_p", "min_p"})
"""What requests may set: features of backends/triton/shaping.py that do not read the text."""
WHOLE: Final = "the engine computes whole blocks, and keeps what it computed of the text"
MEMORY: Final = f"the model is called on a memory of the program's own: {WHOLE}"
OUTLIVES: Final = {
    "memory": MEMORY,
    "dist": "a distribution is read behind another call of the model: between two calls, tokens and numbers are kept",
    "tree": "a tree of canvases, each of which is a call of its own",
}
"""Values that a call cannot leave for another."""
NO_TEXT: Final = "it reads the text, of which the engine hands over one block"


@dataclass(frozen=True)
class BlockPart:
    """A part of a program, by kind. "ops": straight code. "call": the same, after a forward. "start" enters a loop; "test" goes
    on, or to `other`, which "leave"s it; "back" ends an iteration, for the test at `other`. "if" goes on, or to the second of
    `other`; "end" ends a branch, for `other`. saved: what other parts read of what it computes."""

    kind: str
    ops: list[Op]
    region: Region | None = None
    other: list[int] = field(default_factory=list)
    saved: list[Value] = field(default_factory=list)


class BlockParts(list[BlockPart]):
    """The parts of a function. Raises NotSteppable for a call where no request can wait."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self._compile(function.body)
        self.calls = [n for n, part in enumerate(self) if part.kind == "call"]
        reads = [set(self._read(part)) for part in self]
        for n, part in enumerate(self):
            if part.kind in ("ops", "call"):
                others = set[Value]().union(*reads[:n], *reads[n + 1 :])
                part.saved.extend(v for o in part.ops for v in o.results if v in others)
                for o in part.ops:
                    for kind, why in OUTLIVES.items():
                        if any(v in others and v.type.elem == kind for v in o.results):
                            raise NotSteppable(why, o)
        made = [p.ops[0].results for p in self if p.kind in ("leave", "end")]
        made += [p.ops[0].regions[-1].args for p in self if p.kind == "start"]
        self.lasting = list(dict.fromkeys(v for values in (*(p.saved for p in self), *made) for v in values))
        """What a call may leave for another one."""
        ops = list(function.body.walk())
        self.edits = any(o.opcode == "commit" and o.operands[0].type.elem != "canvas" for o in ops) or any(
            o.opcode == "canvas.put" and (o.attrs["kind"] == "mask" or not o.attrs.get("open")) for o in ops
        )
        """Whether decided positions may change again: then a block is over when the program is, not when none is open."""

    def _compile(self, region: Region) -> None:
        fresh = True  # whether others go to where the next op stands
        for op in region.ops:
            if op.opcode == "model.eval":
                self._add("call", op)
            elif not any(o.opcode == "model.eval" for r in op.regions for o in r.walk()):
                if fresh:
                    self._add("ops", op)
                else:
                    self[-1].ops.append(op)
            elif op.opcode in ("for", "while"):
                self._add("start", op)
                test = self._add("test", op)
                self._compile(op.regions[-1])
                self._add("back", op, op.regions[-1]).other.append(self.index(test))
                test.other.append(len(self))
                self._add("leave", op)
            elif op.opcode == "if":
                branch, ends = self._add("if", op), list[BlockPart]()
                for side in op.regions:
                    branch.other.append(len(self))
                    self._compile(side)
                    ends.append(self._add("end", op, side))
                for end in ends:
                    end.other.append(len(self))
            else:
                raise NotSteppable(f"the model is called inside of `{op.opcode}`, where no request can wait for a forward", op)
            fresh = self[-1].kind not in ("ops", "call")

    def _add(self, kind: str, op: Op, region: Region | None = None) -> BlockPart:
        self.append(BlockPart(kind, [op], region))
        return self[-1]

    def _read(self, part: BlockPart) -> Iterator[Value]:
        """What a part reads of others."""
        for op in part.ops:
            yield from op.operands
            yield from part.region.yields if part.region is not None else ()
            for r in op.regions if part.kind in ("ops", "call") else op.regions[:-1] if part.kind == "test" else ():
                yield from free_values(r)


class BlockSlots(CanvasCache):
    """The slots of the engine's model, which are the engine's."""

    def __init__(self, s: Step, name: str, model: Any) -> None:
        self.s, self.name, self.model, self.width = s, name, model, s.frame.capacity
        self.start()

    def call(self, canvas: Canvas, at: Operand, memory: CanvasMemory | None) -> Call:
        """The engine's forward at the block as it is now, whatever positions int64[B, n] are asked for."""
        if memory is not None:
            raise NotSteppable(MEMORY, self.s.place)
        s = cast(BlockSeam, self.s)
        assert s.logits is not None
        return Call(s.logits, None, s.done, s.done)

    def count(self, canvas: Canvas, rows: Tensor | None) -> None:
        """Nothing: the engine counts. rows: bool[B, S] or None."""

    def rows(self, call: Call, canvas: Canvas, at: Tensor) -> Tensor:
        """Scores [B, n, V] at positions int64[B, n] of a canvas; the mask has none."""
        s = cast(BlockSeam, self.s)
        place = (canvas.base[:, None] + at - s.first[:, None]).clamp(0, self.width - 1)
        scores = call.states.gather(1, place[..., None].expand(-1, -1, call.states.shape[2]))
        return scores.masked_fill(s.steps(s.vocab_size) == self.model.mask, -torch.inf)


class BlockSeam(Seam):
    """One program at one block of each of B requests. logits: [B, block, V]. cells: int64[B, block], tokens, and the mask where
    a position is open. first: int64[B], the first position of the block; at: int64[B], the part that a request waits at."""

    slots: ClassVar = {**Step.slots, "masked": BlockSlots}

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.first, self.at = torch.zeros_like(self.length), torch.zeros_like(self.length)
        self.cells = torch.zeros((self.batch, self.frame.capacity), dtype=torch.int64, device=self.device)

    def put(self, tokens: Tensor, base: Tensor, count: Tensor) -> None:
        """Write int64[B] of tokens int64[B, N], -1 for the mask, behind int64[B] tokens of the text, in the lanes here."""
        place = self.steps(self.frame.capacity) - (base - self.first)[:, None]
        told = tokens.gather(1, place.clamp(0, tokens.shape[1] - 1)) if tokens.shape[1] else torch.full_like(place, -1)
        there = (place >= 0) & (place < count[:, None]) & self.active()[:, None]
        self.cells = torch.where(there, torch.where(told < 0, cast(int, self.mask_token), told), self.cells)

    def op_commit(self, op: Op) -> Sequence[Operand]:
        """Tokens become text. The request's limit is the end of its block; end tokens are the engine's to read."""
        tokens, count = offered(self, self.env[op.operands[0]], op)
        room = self.limit - (self.length - self.base)
        kept = torch.where(self.active() & ~self.done, torch.minimum(self.lanes(count), room), 0)
        self.put(tokens, self.length, kept)
        self.length.add_(kept)
        self.done.logical_or_(self.active() & (self.length - self.base >= self.limit))
        return ()

    def op_ctx_get(self, op: Op) -> Sequence[Operand]:
        """The length of the text."""
        if op.attrs["field"] != "length":
            raise NotSteppable(NO_TEXT, op)
        return [self.length.clone()]

    def tokens_of(self, x: Any) -> Any:
        """Vectors as they are; the text is not here."""
        if isinstance(x, Context):
            raise NotSteppable(NO_TEXT, self.place)
        return super().tokens_of(x)

    def join(self, lanes: Tensor, a: Operand, b: Operand) -> Operand:
        """Also of the blocks of a canvas. lanes: bool[B]."""
        if not (isinstance(a, Spans) and isinstance(b, Spans)):
            return super().join(lanes, a, b)
        out = Spans(cast(Any, self.join(lanes, x, y)) for x, y in zip(a, b, strict=True))
        out.live = self.either(lanes, a.live, b.live)
        return out

    def set(self, value: Value, new: Operand, lanes: Tensor) -> None:
        """A value in lanes bool[B]; the others have what they had."""
        self.env[value] = self.join(lanes, new, self.env[value]) if value in self.env else new

    def buffers(self) -> list[Tensor]:
        """Where requests have a row each, [B, ...], but for their values."""
        settings = (v for v in vars(self.settings).values() if isinstance(v, Tensor) and v is not self.tokens)
        return [self.length, self.base, self.done, self.lost, self.first, self.at, *settings, *self.open.values()]


@dataclass(frozen=True)
class Kept:
    """What n requests have between two steps, as rows: `buffers` of a seam, values by `Value`, and states by name."""

    buffers: list[Tensor]
    values: dict[Value | str, Operand]
    count: int


@dataclass
class Block:
    """A request's block, which an engine keeps with the request. needs: features of its settings."""

    kept: Kept
    row: int
    needs: frozenset[str]


class Blocks:
    """A masked program for an engine's blocks. program: its text, or its module, whose lines refusals name; params: values of
    its parameters, of which some are `block` by default (SIZES); vocab: columns of logits; mask: the mask's id; open:
    parameters that a request may set for itself. Raises NotSteppable for a program that cannot wait for an engine where it
    calls its model, and DecError for wrong values of parameters."""

    longest = 4096
    """The most parts that are run between two forwards."""

    def __init__(
        self, program: str | Module, params: Mapping[str, ParamValue] | None = None, *, block: int, vocab: int, mask: int,
        device: torch.device | str = "cpu", open: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.module = read(program)
        function = self.module.entry
        canvases = [o.operands[0] for o in function.body.walk() if o.opcode == "canvas.new"]
        sizes = {p.name: block for p in function.params if p.name in SIZES or p.value in canvases}
        self.params, self.open = {**sizes, **(params or {})}, tuple(open)
        self.block, self.vocab, self.mask, self.device = block, vocab, mask, torch.device(device)
        self.parts, self.unread = BlockParts(function), unread(function)
        self.bounds: tuple[dict[Value, float], dict[Value, float]] = ({}, {})
        self.seams: dict[tuple[int, frozenset[str]], BlockSeam] = {}
        self._seam(1, [PLAIN])

    def _seam(self, count: int, needs: Sequence[frozenset[str]]) -> BlockSeam:
        """A step of so many requests."""
        which = count, PLAIN.union(*needs)
        if which not in self.seams:
            made = self.seams[which] = BlockSeam(
                self.module, self.params, vocab=self.vocab, lanes=count, capacity=self.block, device=self.device,
                features=which[1], mask=self.mask, open=self.open,
            )  # fmt: skip
            made.sizes, made.tops = self.bounds  # what is known of values, whichever step has computed them
        return self.seams[which]

    def check(self, settings: Mapping[str, Any], params: Mapping[str, float] | None = None) -> None:
        """Raises DecError for settings that the program does not read or that need the text, and for values that its parameters
        do not take."""
        request = checked(self.module, self.params, self.open, settings, params or {})
        if request.min_length or not shaping.covers(FEATURES, shaping.need(replace(request, eos=frozenset()))):
            raise DecError("penalties, biases, bans and a least length: at a block an engine applies none, and no program does")

    @torch.no_grad()
    def enter(
        self, first: Tensor, cells: Tensor, settings: Sequence[Mapping[str, Any]], params: Sequence[Mapping[str, float]] = (),
        prompt: Tensor | None = None,
    ) -> tuple[list[Block], Tensor]:  # fmt: skip
        """Blocks begin: they, and int64[n, block], their cells for the first forward.

        first: int64[n], their first positions; cells: int64[n, block]; settings: fields of `Request`, seeds and end tokens
        among them; params: numbers of each request's own; prompt: bool[n, block], the cells that are text already, by default
        those before the first mask. Raises DecError for wrong values, as `check` does."""
        requests = [Request(prompt=(0,), max_tokens=NO_LIMIT, **chosen) for chosen in settings]
        needs = [shaping.need(request) for request in requests]
        s = self._seam(len(requests), needs)
        for lane, request in enumerate(requests):
            s.admit(lane, request)
            own = check_params(self.module.entry, {**self.params, **(params[lane] if params else {})})
            for name, row in s.open.items():
                row[lane] = float(cast(float, own[name]))
        text = (cells != self.mask).long().cumprod(1).sum(1) if prompt is None else prompt.long().sum(1)
        number = torch.stack([first.long() // self.block, torch.zeros_like(first.long())], 1)
        s.first.copy_(first)
        for buffer, new in ((s.length, s.first + text), (s.base, s.first + text), (s.limit, self.block - text)):
            buffer.copy_(new)
        for buffer in (s.settings.request, s.settings.noise_id):
            buffer.copy_(number)
        self._clear(s)
        s.cells = cells.long().clone()
        s.begin(None)
        s.start_states(range(len(requests)))
        s.at.fill_(len(self.parts))
        self._run(s, {0: text < self.block})
        return [Block(kept, row, need) for kept in [self._kept(s)] for row, need in enumerate(needs)], s.cells

    @torch.no_grad()
    def step(self, blocks: Sequence[Block], cells: Tensor, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What follows from a forward at cells int64[n, block], with logits [n, block, V]: new cells; bool[n], which blocks are
        over, so that this forward has seen their last tokens; bool[n], which have met an error, and stay as they are."""
        s = self._seam(len(blocks), [b.needs for b in blocks])
        self._restore(s, blocks)
        s.logits, s.cells = logits.float(), cells.long().clone()
        over = (s.at == len(self.parts)) | s.lost
        s.begin(~over)
        self._run(s, {n: (s.at == n) & ~over for n in self.parts.calls})
        s.logits, kept = None, self._kept(s)
        for row, block in enumerate(blocks):
            block.kept, block.row = kept, row
        return s.cells, over | s.lost, s.lost.clone()

    def _run(self, s: BlockSeam, had: dict[int, Tensor]) -> None:
        """Run lanes bool[B], by the part where they are, to their next call or the end. had: at a call they have had it."""
        there: dict[int, Tensor] = {}
        for _ in range(self.longest):
            waits, lanes = not had, had or there
            if not lanes:
                return
            n = min(lanes)
            here = lanes.pop(n)
            if not s.reads(here.any()):
                continue
            if n == len(self.parts) or waits and n in self.parts.calls:
                s.at.copy_(torch.where(here, n, s.at))
                if n < len(self.parts):
                    self._show(s, self.parts[n].ops[0], here)
                continue
            with s.within(here):
                for to, some in self._part(s, n, here):
                    there[to] = there[to] | some if to in there else some
        raise NotSteppable("it goes on and on between two calls of the model", s.place)

    def _part(self, s: BlockSeam, n: int, here: Tensor) -> Iterator[tuple[int, Tensor]]:
        """Run a part in lanes bool[B], and say where they go on."""
        part = self.parts[n]
        op, kind, carried = part.ops[0], part.kind, part.ops[0].regions[-1].args if part.ops[0].regions else []
        if kind in ("ops", "call"):
            before = {v: s.env[v] for v in part.saved if v in s.env}
            for each in part.ops:
                s.op(each)
            s.env.update((v, s.join(here, s.env[v], old)) for v, old in before.items())
        elif kind == "start":
            first = 2 if op.opcode == "for" else int(bool(op.attrs.get("limited")))
            begin = s.env[op.operands[0]] if op.opcode == "for" else 0
            for v, new in zip(carried, [begin, *(s.env[v] for v in op.operands[first:])], strict=True):
                s.set(v, new, here)
        elif kind == "test":
            live, now = here, [s.env[v] for v in carried]
            if op.opcode == "for" or op.attrs.get("limited"):
                live = live & (s.lanes(now[0]) < s.lanes(s.env[op.operands[op.opcode == "for"]]))
            if op.opcode == "while":
                with s.within(live):
                    live = live & s.lanes(s.region(op.regions[0], now)[0]).bool()
            yield part.other[0], here & ~live
            here = live
        elif kind == "back":
            new = [s.env[v] for v in cast(Region, part.region).yields]
            stop = s.lanes(new.pop(0)).bool() & here if op.attrs.get("stops") else torch.zeros_like(here)
            for v, value in zip(carried, [s.lanes(s.env[carried[0]]) + 1, *new], strict=True):
                s.set(v, value, here)
            yield part.other[0], here & ~stop
            here = stop
        elif kind == "if":
            holds = s.lanes(s.env[op.operands[0]]).bool()
            yield part.other[1], here & ~holds
            here = here & holds
        else:
            for v, new in zip(op.results, carried[1:] if part.region is None else part.region.yields, strict=True):
                s.set(v, s.env[new], here)
            n = part.other[0] - 1 if part.other else n
        yield n + 1, here

    def _show(self, s: BlockSeam, op: Op, here: Tensor) -> None:
        """Lanes wait for a forward at a canvas, which has to be all that is left of the block."""
        canvas = s.env[op.operands[1]]
        if not isinstance(canvas, Canvas):
            raise NotSteppable(f"the model is called at something else than a canvas: {WHOLE}", op)
        with s.within(here):
            s.put(canvas.cells, canvas.base, canvas.size)
            other = canvas.base + canvas.size != s.first + self.block
            if s.logits is None and s.reads((other & here).any()):
                raise NotSteppable(f"the model is called at a canvas that is not the rest of the block: {WHOLE}", op)
            s.flag(other)
        if not self.parts.edits:
            s.at.copy_(torch.where(here & (s.cells != self.mask).all(1), len(self.parts), s.at))

    # -- between two steps
    def _clear(self, s: BlockSeam) -> None:
        s.states.clear()
        for v in self.parts.lasting:
            s.env.pop(v, None)

    def _kept(self, s: BlockSeam) -> Kept:
        values: dict[Value | str, Operand] = {v: s.env[v] for v in self.parts.lasting if v in s.env}
        values.update(s.states)
        for key, value in values.items():
            if isinstance(value, Draws):  # tokens: what they were drawn from is gone
                values[key] = replace(value, sources=(), row=None, rank=None, race=None)
        wide = {key: rowed(value, s.lanes) for key, value in values.items()}
        return Kept([t.clone() for t in s.buffers()], wide, s.batch)

    def _restore(self, s: BlockSeam, blocks: Sequence[Block]) -> None:
        """Go on with requests, which may come from other batches."""
        self._clear(s)
        merged: dict[Value | str, Operand] = {}
        for kept in {id(b.kept): b.kept for b in blocks}.values():
            rows = torch.tensor([b.row if b.kept is kept else 0 for b in blocks], device=self.device)
            here = torch.tensor([b.kept is kept for b in blocks], device=self.device)
            for buffer, old in zip(s.buffers(), kept.buffers, strict=True):
                buffer.copy_(torch.where(beside(here, buffer), old.index_select(0, rows), buffer))
            for key, value in kept.values.items():
                new = rowed(value, partial(torch.index_select, dim=0, index=rows))
                merged[key] = s.join(here, new, merged[key]) if key in merged else new
        for key, value in merged.items():
            if isinstance(key, str):
                s.states[key] = value
            else:
                s.env[key] = value


def rowed(value: Operand, f: Callable[[Tensor], Tensor]) -> Operand:
    """A value with f of each of its tensors [B, ...]."""
    tensors: list[Tensor] = []
    flattened(value, tensors)
    return rebuilt(value, map(f, tensors))
