"""Masked programs over an engine's blocks: what an engine of diffusion language models asks for after every forward.

A program is run from one call of its model to the next. What is between two calls is straight code, loops and branches; the
calls are where a request waits for the engine's next forward. So requests of one batch may wait at different calls, in different
iterations: each part of the program is run for those that are in it, as lanes of one step, and what a lane knows is a row.
Nothing of this names an engine; tensors in, tensors out.

A block is a run of its own. Its tokens are those of `decgraph.run` with the text before it as the prompt, `max_tokens` the
positions that are left of it, the request's settings, and `request_id` the number of the block in the text: its first position
divided by the engine's block size. (Noise is keyed by it: without, every block would repeat the draws of the one before.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, ClassVar, Final, cast

import torch
from torch import Tensor

from decgraph.backends.seams.seam import NO_LIMIT, PLAIN, Seam
from decgraph.backends.triton import shaping
from decgraph.backends.triton.bodies import free
from decgraph.backends.triton.canvas_cache import Call, CanvasCache, CanvasMemory
from decgraph.backends.triton.ops.request import offered
from decgraph.backends.triton.state import Step
from decgraph.backends.triton.support import NotSteppable
from decgraph.backends.triton.values import Canvas, Operand, Rows, Spans, Vec, is_static
from decgraph.errors import DecError
from decgraph.ir.text import parse_module
from decgraph.ir.values import Function, Op, Region, Value
from decgraph.runtime.arguments import ParamValue
from decgraph.runtime.refused import refuse_unread, unread
from decgraph.runtime.request import Request
from decgraph.runtime.session import check_params

SIZES: Final = ("length", "block", "steps")
"""Parameters that are the engine's block size where nobody sets them."""
FEATURES: Final = frozenset({*PLAIN, "top_k", "top_p", "min_p"})
READS_TEXT: Final = "it reads the text, of which the engine hands over one block"


@dataclass(frozen=True)
class Part:
    """Instructions of a program, by kind: "ops" runs ops; "call" waits for a forward and runs the op; "start" enters a loop;
    "test" goes on, or behind the loop at `other`; "back" ends an iteration, for the test at `other`; "leave" is behind a loop; "if" goes on, or to `other`;
    "end" leaves a branch, for `other`. saved: what other parts read of what the ops compute."""

    kind: str
    ops: list[Op]
    region: Region | None = None
    other: list[int] = field(default_factory=list)
    saved: list[Value] = field(default_factory=list)


class Parts:
    """A function as a list of parts, cut at the calls of its model. Raises NotSteppable for calls where no request can wait."""

    def __init__(self, function: Function) -> None:
        self.parts: list[Part] = []
        self._compile(function.body)
        reads = [{v for r in self._read(p) for v in r} for p in self.parts]
        for n, part in enumerate(self.parts):
            if part.kind in ("ops", "call"):
                elsewhere = set[Value]().union(*reads[:n], *reads[n + 1 :])
                part.saved.extend(v for op in part.ops for v in op.results if v in elsewhere)
        bodies = [p.region.args for p in self.parts if p.kind == "back" and p.region is not None]
        made = [p.ops[0].results for p in self.parts if p.kind in ("leave", "end")]
        self.lasting = list(dict.fromkeys(v for vs in (*(p.saved for p in self.parts), *bodies, *made) for v in vs))
        """The values that one call may leave for another."""
        self.calls = [n for n, part in enumerate(self.parts) if part.kind == "call"]
        if not self.calls:
            raise NotSteppable("the model is not called")
        ops = list(function.body.walk())
        puts = [o for o in ops if o.opcode == "canvas.put"]
        commits = [o for o in ops if o.opcode == "commit"]
        self.edits = any(o.attrs.get("kind") == "mask" or not o.attrs.get("open") for o in puts) or any(
            o.operands[0].type.elem != "canvas" for o in commits
        )
        """Whether decided positions may change again: then a block is over when the program is, not when none is open."""
        for op in ops:
            asked = op.opcode == "ctx.get" and op.attrs["field"] != "length"
            reader = op.opcode != "ctx.get" and any(v.type.elem == "node" and v.type.of[:1] == ("ctx",) for v in op.operands)
            if asked or reader or op.opcode == "request" and op.attrs["field"] == "prompt":
                raise NotSteppable(READS_TEXT, op)

    def _compile(self, region: Region) -> None:
        for op in region.ops:
            if op.opcode == "model.eval":
                self._add("call", op)
            elif not any(o.opcode == "model.eval" for r in op.regions for o in r.walk()):
                if self.parts and self.parts[-1].kind in ("ops", "call") and not self._target(len(self.parts)):
                    self.parts[-1].ops.append(op)
                else:
                    self._add("ops", op)
            elif op.opcode in ("for", "while"):
                self._add("start", op)
                test = self._add("test", op)
                self._compile(op.regions[-1])
                self._add("back", op, op.regions[-1]).other.append(self.parts.index(test))
                test.other.append(len(self.parts))
                self._add("leave", op)
            elif op.opcode == "if":
                branch = self._add("if", op)
                self._compile(op.regions[0])
                first = self._add("end", op, op.regions[0])
                branch.other.append(len(self.parts))
                self._compile(op.regions[1])
                self._add("end", op, op.regions[1]).other.append(len(self.parts))
                first.other.append(len(self.parts))
            else:
                raise NotSteppable(f"the model is called inside of `{op.opcode}`, where no request can wait for a forward", op)

    def _add(self, kind: str, op: Op, region: Region | None = None) -> Part:
        self.parts.append(Part(kind, [op], region))
        return self.parts[-1]

    def _target(self, place: int) -> bool:
        """Whether a part begins here because others go to it."""
        return any(place in p.other for p in self.parts)

    def _read(self, part: Part) -> Iterator[Sequence[Value]]:
        """What a part reads."""
        for op in part.ops:
            yield op.operands
            yield part.region.yields if part.region is not None else ()
            if part.kind == "leave":
                yield op.regions[-1].args
            if part.kind in ("ops", "call", "test"):
                yield from (free(r) for r in (op.regions[:-1] if part.kind == "test" else op.regions))


class BlockSlots(CanvasCache):
    """The slots of the engine's model, which are the engine's: it computes whole blocks."""

    def __init__(self, s: Step, name: str, model: Any) -> None:
        self.s, self.name, self.model, self.width = s, name, model, s.frame.capacity
        self.start()

    def call(self, canvas: Canvas, at: Operand, memory: CanvasMemory | None) -> Call:
        """The engine's forward at the block as it is now."""
        s = cast(BlockSeam, self.s)
        if memory is not None:
            raise NotSteppable("the model is called on a memory of the program's own: the engine computes whole blocks", s.place)
        assert s.logits is not None
        return Call(s.logits, None, s.done, s.done)

    def count(self, canvas: Canvas, rows: Tensor | None) -> None:
        """Nothing: the engine counts."""

    def rows(self, call: Call, canvas: Canvas, at: Tensor) -> Tensor:
        """Scores [B, n, V] at positions int64[B, n] of a canvas; the mask has none."""
        s = cast(BlockSeam, self.s)
        place = (canvas.base[:, None] + at - s.first[:, None]).clamp(0, self.width - 1)
        scores = call.states.gather(1, place[..., None].expand(-1, -1, call.states.shape[2]))
        return scores.masked_fill(s.constant(range(s.vocab_size)) == self.model.mask, -torch.inf)


class BlockSeam(Seam):
    """One program at one block for each of n requests. logits: [n, block, V]. cells: int64[n, block], tokens, and the mask where
    a position is open. first: int64[n], the first position of the block; at: int64[n], the call that a request waits at."""

    slots: ClassVar = {**Step.slots, "masked": BlockSlots}

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.first, self.at = torch.zeros_like(self.length), torch.zeros_like(self.length)
        self.cells = torch.zeros((self.batch, self.frame.capacity), dtype=torch.int64, device=self.device)

    def put(self, tokens: Tensor, base: Tensor, size: Tensor) -> None:
        """Write tokens int64[B, N], -1 for the mask, behind int64[B] tokens of the text, int64[B] of them, in the lanes here."""
        assert self.mask_token is not None
        place = self.steps(self.frame.capacity) - (base - self.first)[:, None]
        told = tokens.gather(1, place.clamp(0, tokens.shape[1] - 1))
        there = (place >= 0) & (place < size[:, None]) & self.active()[:, None]
        self.cells = torch.where(there, torch.where(told < 0, self.mask_token, told), self.cells)

    def op_commit(self, op: Op) -> Sequence[Operand]:
        """Tokens become text. The block's end is the request's limit; the engine reads end tokens."""
        tokens, count = offered(self, self.env[op.operands[0]], op)
        room = self.limit - (self.length - self.base)
        kept = torch.where(self.active() & ~self.done, torch.minimum(self.lanes(count), room), 0)
        if tokens.shape[1]:
            self.put(tokens, self.length, kept)
        self.length.add_(kept)
        self.done.logical_or_(self.active() & (self.length - self.base >= self.limit))
        return ()

    def rows(self) -> list[Tensor]:
        """The buffers in which a request has a row."""
        settings = (v for v in vars(self.settings).values() if isinstance(v, Tensor) and v is not self.tokens)
        return [self.length, self.base, self.done, self.lost, self.first, self.at, *settings, *self.open.values()]

    def join(self, lanes: Tensor, a: Operand, b: Operand) -> Operand:
        """Also of lists, item by item."""
        if not (isinstance(a, list) and isinstance(b, list)) or a is b or is_static(a) and is_static(b):
            return super().join(lanes, a, b)
        if len(a) != len(b):
            raise NotSteppable("a list whose length data decides goes from call to call", self.place)
        out = [self.join(lanes, x, y) for x, y in zip(a, b, strict=True)]
        return spans(cast(list[Vec], out), self.either(lanes, a.live, b.live)) if isinstance(a, Spans) else out

    def set(self, value: Value, new: Operand, lanes: Tensor, old: Operand | None = None) -> None:
        """A value in some lanes, bool[B]; the others have what they had."""
        before = self.env.get(value) if old is None else old
        self.env[value] = new if before is None else self.join(lanes, new, before)


def spans(parts: Sequence[Vec], live: Tensor) -> Spans:
    """Parts of a canvas. live: bool[B, n]."""
    out = Spans(parts)
    out.live = live
    return out


def mapped(value: Any, f: Callable[[Tensor], Tensor], known: dict[int, Any]) -> Any:
    """A value with other tensors, f of its own. known: what was made of values before, by id, so that what two share they share
    still."""
    if isinstance(value, Tensor):
        return f(value)
    if id(value) in known:
        return known[id(value)]
    out = value
    if isinstance(value, Spans):
        out = spans([mapped(v, f, known) for v in value], f(value.live))
    elif isinstance(value, list | tuple):
        out = type(value)(mapped(v, f, known) for v in value)
    elif isinstance(value, Rows):
        named = {k: mapped(getattr(value, k), f, known) for k in ("positions", "nodes", "allow", "before", "numbers")}
        out = Rows(f(value.scores), is_probs=value.is_probs, **named)
        out.faces = {k: f(v) for k, v in value.faces.items()}
    elif is_dataclass(value) and not isinstance(value, type):
        out = replace(value, **{x.name: mapped(getattr(value, x.name), f, known) for x in fields(value)})
    known[id(value)] = out
    return out


@dataclass(frozen=True)
class Kept:
    """What n requests have between two steps: a row each of the seam's buffers, and of values."""

    rows: list[Tensor]
    values: dict[Value | str, Operand]
    count: int


@dataclass
class Block:
    """A request's block. needs: features of its settings. The engine keeps it with the request, and it ends with it."""

    kept: Kept
    row: int
    needs: frozenset[str]


class Blocks:
    """A masked program for an engine's blocks. program: its text; params: values of its parameters, of which those in SIZES are
    `block` by default; vocab: columns of logits; mask: the mask's id; open: parameters that a request may set for itself; ends:
    tokens that end texts, for programs that read them. Raises NotSteppable for a program that cannot wait for an engine where it
    calls its model, and DecError for wrong values of parameters."""

    longest = 4096
    """The most passes through the program between two forwards."""

    def __init__(
        self, program: str, params: Mapping[str, ParamValue] | None = None, *, block: int, vocab: int, mask: int,
        device: torch.device | str = "cpu", open: Sequence[str] = (), ends: Sequence[int] = (),
    ) -> None:  # fmt: skip
        self.module = parse_module(program)
        function = self.module.entry
        sizes = {p.name: block for p in function.params if p.name in SIZES}
        self.params, self.open, self.ends = {**sizes, **(params or {})}, tuple(open), tuple(ends)
        check_params(function, self.params)
        self.block, self.vocab, self.mask, self.device = block, vocab, mask, torch.device(device)
        self.code, self.unread = Parts(function), unread(function)
        self.seams: dict[tuple[int, frozenset[str]], BlockSeam] = {}
        self.bounds: tuple[dict[Value, float], dict[Value, float]] = ({}, {})
        self._seam(1, PLAIN)

    def _seam(self, count: int, needs: frozenset[str]) -> BlockSeam:
        """A step of so many requests."""
        if (count, needs) not in self.seams:
            made = self.seams[count, needs] = BlockSeam(
                self.module, self.params, vocab=self.vocab, lanes=count, capacity=self.block, device=self.device,
                features=needs, mask=self.mask, open=self.open,
            )  # fmt: skip
            made.sizes, made.tops = self.bounds  # what is known of values does not depend on who computed them
        return self.seams[count, needs]

    def check(self, settings: Mapping[str, Any], params: Mapping[str, float] | None = None) -> None:
        """Raises DecError for settings that the program does not read or that blocks do not have, and for values that its
        parameters do not take."""
        for name in params or {}:
            if name not in self.open:
                known = f"a request may set {', '.join(self.open)}" if self.open else "a request may set none"
                raise DecError(f"{self.module.main} has no parameter `{name}` of a request's own", hint=known)
        check_params(self.module.entry, {**self.params, **(params or {})})
        request = Request(prompt=(0,), max_tokens=1, **settings)
        refuse_unread(self.module.entry, request, self.unread)
        if not shaping.covers(FEATURES, shaping.need(request)):
            wrong = ", ".join(sorted({f.partition(":")[0] for f in shaping.need(request) - FEATURES}))
            raise DecError(f"{wrong}: the engine does not hand over the text that this setting reads")

    @torch.no_grad()
    def enter(
        self, first: Tensor, cells: Tensor, settings: Sequence[Mapping[str, Any]], params: Sequence[Mapping[str, float]] = (),
        prompt: Tensor | None = None,
    ) -> list[Block]:  # fmt: skip
        """Blocks begin. first: int64[n], their first positions; cells: int64[n, block]; settings: fields of `Request`, the seed
        among them; params: numbers of each request's own; prompt: bool[n, block], the positions that are text already, by default
        those before the first mask. Raises DecError as `check` does."""
        requests = [Request(prompt=(0,), max_tokens=NO_LIMIT, **{"eos": self.ends, **chosen}) for chosen in settings]
        needs = [shaping.need(request) for request in requests]
        s = self._seam(len(requests), frozenset().union(PLAIN, *needs))
        for lane, request in enumerate(requests):
            own = {**self.params, **(params[lane] if params else {})}
            s.admit(lane, request)
            for name, row in s.open.items():
                row[lane] = float(cast(float, own[name]))
        text = (cells != self.mask).long().cumprod(1).sum(1) if prompt is None else prompt.long().sum(1)
        s.first, s.cells = first.long().clone(), cells.long().clone()
        for buffer in (s.length, s.base):
            buffer.copy_(s.first + text)
        s.limit.copy_(self.block - text)
        s.settings.request.copy_(torch.stack([s.first // self.block, torch.zeros_like(first)], 1))
        s.settings.noise_id.copy_(s.settings.request)
        s.states.clear()
        s.begin(None)
        s.start_states(range(len(requests)))
        s.at.fill_(len(self.code.parts))
        self._run(s, {0: text < self.block})
        return self._kept(s, needs)

    @torch.no_grad()
    def step(self, blocks: Sequence[Block], cells: Tensor, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """One forward further, for cells int64[n, block] and their logits [n, block, V]: new cells; bool[n], which blocks are
        over, so that this forward has seen their last tokens; bool[n], which have met an error, which `decgraph.run` would word,
        and end as they are."""
        s = self._seam(len(blocks), frozenset().union(PLAIN, *(b.needs for b in blocks)))
        self._restore(s, blocks)
        s.logits, s.cells = logits.float(), cells.long().clone()
        over = (s.at == len(self.code.parts)) | s.lost
        s.begin(~over)
        self._run(s, {n: (s.at == n) & ~over for n in self.code.calls})
        for block, new in zip(blocks, self._kept(s, [b.needs for b in blocks]), strict=True):
            block.kept, block.row = new.kept, new.row
        s.logits = None
        return s.cells, over, s.lost

    def _run(self, s: BlockSeam, there: dict[int, Tensor]) -> None:
        """Run lanes, bool[B] by the part where they are, to their next call or the end. A call that they are at, they have had."""
        had, there = there, {}
        for _ in range(self.longest):
            n = min(had or there)
            begins = bool(had)
            here = (had or there).pop(n)
            if not s.reads(here.any()):
                pass
            elif n == len(self.code.parts) or not begins and n in self.code.calls:
                s.at.copy_(torch.where(here, n, s.at))
                if n in self.code.calls:
                    self._show(s, self.code.parts[n].ops[0], here)
            else:
                with s.within(here):
                    for to, lanes in self._part(s, self.code.parts[n], n, here):
                        there[to] = there[to] | lanes if to in there else lanes
            if not (had or there):
                return
        raise NotSteppable("a loop that does not end between two calls")

    def _part(self, s: BlockSeam, part: Part, n: int, here: Tensor) -> Iterator[tuple[int, Tensor]]:
        """Run one part in lanes bool[B], and say where they go on."""
        op, region = part.ops[0], part.region
        if part.kind in ("ops", "call"):
            old = {v: s.env.get(v) for v in part.saved}
            for o in part.ops:
                s.op(o)
            for v, before in old.items():
                if before is not None:
                    s.set(v, s.env[v], here, before)
            yield n + 1, here
        elif part.kind == "start":
            first = 2 if op.opcode == "for" else int(bool(op.attrs.get("limited")))
            begin = s.env[op.operands[0]] if op.opcode == "for" else 0
            for v, operand in zip(op.regions[-1].args, [begin, *(s.env[v] for v in op.operands[first:])], strict=True):
                s.set(v, operand, here)
            yield n + 1, here
        elif part.kind == "test":
            turn, *carried = (s.env[v] for v in op.regions[-1].args)
            live = here
            if op.opcode == "for" or op.attrs.get("limited"):
                live = here & (s.lanes(turn) < s.lanes(s.env[op.operands[op.opcode == "for"]]))
            if op.opcode == "while":
                with s.within(live):
                    live = live & s.lanes(s.region(op.regions[0], [turn, *carried])[0]).bool()
            yield n + 1, live
            yield part.other[0], here & ~live
        elif part.kind == "back":
            assert region is not None
            turn, *yields = s.lanes(s.env[region.args[0]]) + 1, *(s.env[v] for v in region.yields)
            stop = s.lanes(yields.pop(0)).bool() & here if op.attrs.get("stops") else torch.zeros_like(here)
            for v, new in zip(region.args, [turn, *yields], strict=True):
                s.set(v, new, here)
            yield part.other[0], here & ~stop
            yield n + 1, stop
        elif part.kind == "if":
            holds = s.lanes(s.env[op.operands[0]]).bool() & here
            yield n + 1, holds
            yield part.other[0], here & ~holds
        else:
            made = op.regions[-1].args[1:] if part.kind == "leave" or region is None else region.yields
            for v, new in zip(op.results, [s.env[v] for v in made], strict=True):
                s.set(v, new, here)
            yield part.other[0] if part.other else n + 1, here

    def _show(self, s: BlockSeam, op: Op, here: Tensor) -> None:
        """Lanes wait for a forward at a canvas, which is all that is left of the block."""
        canvas = s.env[op.operands[1]]
        if not isinstance(canvas, Canvas):
            raise NotSteppable("the model is called at something else than a canvas", op)
        with s.within(here):
            s.put(canvas.cells, canvas.base, canvas.size)
            s.flag(canvas.base + canvas.size != s.first + self.block)
        if not self.code.edits:
            decided = (s.cells != self.mask).all(1)
            s.at.copy_(torch.where(here & decided, len(self.code.parts), s.at))

    def _kept(self, s: BlockSeam, needs: Sequence[frozenset[str]]) -> list[Block]:
        """What requests go on with."""
        known: dict[int, Any] = {}

        def whole(t: Tensor) -> Tensor:
            return t if t.shape[0] == s.batch else t.expand(s.batch, *t.shape[1:])

        values = {key: mapped(v, whole, known) for key, v in self._values(s).items()}
        kept = Kept([t.clone() for t in s.rows()], values, s.batch)
        return [Block(kept, row, need) for row, need in enumerate(needs)]

    def _values(self, s: BlockSeam) -> dict[Value | str, Operand]:
        return {**{v: s.env[v] for v in self.code.lasting if v in s.env}, **s.states}

    def _restore(self, s: BlockSeam, blocks: Sequence[Block]) -> None:
        """Go on with requests, which may have been in other batches before."""
        parts = {id(b.kept): b.kept for b in blocks}
        for v in self.code.lasting:
            s.env.pop(v, None)
        s.states.clear()
        merged: dict[Value | str, Operand] = {}
        for kept in parts.values():
            rows = torch.tensor([b.row if b.kept is kept else 0 for b in blocks], device=self.device)
            here = torch.tensor([b.kept is kept for b in blocks], device=self.device)
            known: dict[int, Any] = {}
            for buffer, row in zip(s.rows(), kept.rows, strict=True):
                buffer.copy_(torch.where(here.reshape(-1, *[1] * (buffer.ndim - 1)), row.index_select(0, rows), buffer))
            for key, value in kept.values.items():
                new = mapped(value, lambda t, rows=rows: t.index_select(0, rows), known)
                merged[key] = s.join(here, new, merged[key]) if key in merged else new
        for key, value in merged.items():
            if isinstance(key, str):
                s.states[key] = value
            else:
                s.env[key] = value
