"""A compiled verification rule: its kernels, their inputs, and their launch."""

from __future__ import annotations

import keyword
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from decgraph.backends.triton import source, tuned
from decgraph.backends.triton.rules.device import Given, Walked
from decgraph.backends.triton.rules.emit import HELPERS
from decgraph.backends.triton.rules.frames import Written, write
from decgraph.backends.triton.rules.values import Captured, Unsupported
from decgraph.ir.values import Op, Region, Value

WALK = tuned.Config(block=2048, warps=16)
"""Warps for a verification over the vocabulary: one program a sequence may use a whole multiprocessor."""
NODES = tuned.Config(block=16, warps=1)
"""Warps for a verification over nodes alone: folds within one warp need no barrier."""
ROWS = tuned.Config(block=2048, warps=4, splits=4)
PROGRAMS = 256
"""Programs that fill a device."""


def free_values(region: Region) -> tuple[Value, ...]:
    """The values that a region reads and does not define, in the order of their first use."""
    made: set[Value] = set(region.args)
    out: dict[Value, None] = {}

    def visit(r: Region) -> None:
        made.update(r.args)
        for op in r.ops:
            out.update(dict.fromkeys(v for v in op.operands if v not in made))
            for inner in op.regions:
                visit(inner)
            made.update(op.results)
        out.update(dict.fromkeys(v for v in r.yields if v not in made))

    visit(region)
    return tuple(out)


@dataclass
class CompiledRule:
    """The kernels of one `tree.walk`. captured: the values from outside that its calls take, in order. `unsupported`: why
    there are none, else None; where it is set only `name` and `captured` are valid."""

    op: Op
    name: str
    captured: tuple[Value, ...]
    noises: dict[Value, Captured]
    constants: dict[Value, Op]
    written: Written | None = None
    unsupported: Unsupported | None = None
    variants: dict[Any, CompiledRule] = field(default_factory=dict, repr=False)

    @property
    def supported(self) -> bool:
        return self.written is not None

    @property
    def parts(self) -> Written:
        """The text and its inputs. Raises Unsupported."""
        if self.written is None:
            raise self.unsupported or Unsupported("it was not compiled", self.op)
        return self.written

    @property
    def source(self) -> str:
        """The Triton text of its kernels."""
        return self.parts.source

    @property
    def sources(self) -> dict[str, str]:
        return {self.name: self.source} if self.supported else {}

    @property
    def kernels(self) -> tuple[str, ...]:
        """The names of its kernels in `source`, in the order of launching."""
        return ((f"{self.name}_rows",) if self.parts.features else ()) + (self.name,)

    @property
    def sites(self) -> tuple[str, ...]:
        return self.parts.sites

    @property
    def ints(self) -> tuple[Any, ...]:
        """The columns of `counters`: captured values, (noise, i) for counter i of a captured noise, (noise, "index")."""
        return self.parts.ints

    @property
    def reals(self) -> tuple[Value, ...]:
        return self.parts.reals

    @property
    def needs(self) -> frozenset[str]:
        return self.parts.needs

    @property
    def drawn(self) -> bool:
        """Whether the evidence is only drawn from, once at each node and as output (`match`). A caller that has drawn with the
        same keys may pass the tokens as `p_points` instead of probabilities."""
        return self.parts.drawn

    def on_device(self, given: Given, *, depth: int) -> Walked:
        """Verify every sequence's tree; see device.py. depth: no node is deeper. Nothing is read back, and the launches may be
        captured as a graph. Raises Unsupported for a rule without kernels, ValueError where `given` lacks what it needs."""
        launch = launches(self, given, depth)
        for kernel, grid, args, config in launch.runs:
            kernel[grid](**args, num_warps=config.warps, num_stages=config.stages)
        return Walked(launch.packed, depth, launch.scratch)

    def variant(self, noises: dict[Value, Captured]) -> CompiledRule:
        """The rule for captured noises of other kinds than those it was compiled for."""
        key = tuple(noises.get(v) for v in self.captured)
        if noises == self.noises:
            return self
        if key not in self.variants:
            self.variants[key] = _compiled(self.op, self.name, self.captured, noises, self.constants)
        return self.variants[key]


@dataclass(frozen=True)
class Launches:
    """The kernels of a verification with their arguments: (kernel, grid, arguments, sizes)."""

    runs: list[tuple[Any, tuple[int, ...], dict[str, Any], tuned.Config]]
    packed: Tensor
    scratch: Tensor


def launches(rule: CompiledRule, given: Given, depth: int) -> Launches:
    """The launches of a verification. Raises as CompiledRule.on_device does."""
    w = rule.parts
    _complete(rule, given)
    batch, nodes = given.token.shape
    device, like = given.token.device, given.p if given.p is not None else given.q
    dtype = torch.float32 if like is None else like.dtype
    size = int(like.shape[-1]) if like is not None else given.size
    rows = given.p.shape[1] if given.p is not None else given.p_points.shape[1] if given.p_points is not None else 1
    laws = given.q.shape[1] if given.q is not None else given.q_points.shape[1] if given.q_points is not None else 1
    config = _fitting(tuned.config("rule", (rule.name, size, str(dtype)), WALK), size)
    per_row = _fitting(tuned.config("rule rows", (rule.name, size, str(dtype)), ROWS), size)
    wanted = max(per_row.splits, _power(_over(PROGRAMS, batch * nodes)))  # fill the device even with few nodes
    splits = min(wanted, _power(_over(size, per_row.block)), 64)
    part = _over(_over(size, splits), per_row.block) * per_row.block
    made = max(1, len(w.features)) * batch * nodes * splits
    # zeros: a node without a row has no values, and is loaded beside those that have (its exponentials would overflow)
    values = torch.zeros(made, dtype=torch.float64, device=device)
    whos = torch.zeros(made, dtype=torch.int32, device=device)
    scratch = torch.empty(max(1, batch * w.slots * size), dtype=dtype, device=device)
    packed = torch.empty(batch, Walked.HEAD + 3 * depth, dtype=torch.int64, device=device)
    floats = values[:1]
    ints = whos[:1]
    longs = packed
    live = given.live.view(torch.uint8) if given.live is not None else longs
    args: dict[str, Any] = {
        "tokens": given.token,
        "parents": given.parent,
        "live": live,
        "rows": _or(given.row, longs),
        "probs": _or(given.p, scratch),
        "prob_points": _or(given.p_points, longs),
        "law_rows": _or(given.law_row, ints),
        "laws": _or(given.q, scratch),
        "law_points": _or(given.q_points, longs),
        "positions": _or(given.position, longs),
        "seeds": _or(given.seeds, longs),
        "words": _or(given.words, ints),
        "counters": _or(given.counters, ints),
        "reals": _or(given.reals, floats),
        **{f"column_{c}": given.columns.get(c, floats) for c in ("prob", "race", "point")},
        "values": values,
        "whos": whos,
        "scratch": scratch,
        "packed": packed,
        "N": nodes,
        "R": rows,
        "M": laws,
        "V": size,
        "S": len(w.sites),
        "C": 0 if given.counters is None else given.counters.shape[1],
        "L": len(w.reals),
        "D": depth,
        "BN": batch * nodes,
        "PER": part,
        "NB": max(2, _power(nodes)),
        "SPLITS": splits,
        "LIVE": given.live is not None,
        "ROWS": given.row is not None,
        "POINTS": given.p_points is not None,
        "LAWS": given.law_row is not None,
        "CERTAIN": given.q_points is not None,
        "PLACED": given.position is not None and given.position.ndim == 2,
        "PREFIX": given.prefix,
    }
    space = source.load(rule.name, w.source)
    runs: list[tuple[Any, tuple[int, ...], dict[str, Any], tuned.Config]] = []
    for kernel in rule.kernels:
        before = kernel != rule.name
        if before and w.closed and given.p_points is not None:
            continue
        sizes = per_row if before else config if "BLOCK" in w.parameters[kernel] else _over_nodes(nodes)
        known = {**args, "BLOCK": sizes.block}
        grid = (batch * nodes, splits) if before else (batch,)
        runs.append((space[kernel], grid, {p: known[p] for p in w.parameters[kernel]}, sizes))
    return Launches(runs, packed, scratch)


def _complete(rule: CompiledRule, given: Given) -> None:
    """Raises ValueError for a tensor that is missing or has another type than the kernels read."""
    needs = rule.needs
    missing = [
        what
        for what, there in (
            ("p or p_points", given.p is not None or given.p_points is not None),
            ("position", "position" not in needs or given.position is not None),
            ("seeds and words", "noise" not in needs or given.seeds is not None and given.words is not None),
            ("counters", not (rule.ints or given.prefix) or given.counters is not None),
            ("reals", not rule.reals or given.reals is not None),
            (
                "q for law_row",
                "laws" not in needs or given.law_row is None or given.q is not None or given.q_points is not None,
            ),
            *((f"columns[{c!r}]", c not in needs or c in given.columns) for c in ("prob", "race", "point")),
        )
        if not there
    ]
    if missing:
        raise ValueError(f"the rule {rule.name} needs {', '.join(missing)}")
    if given.p is not None and given.q is not None and given.p.dtype != given.q.dtype:
        raise ValueError(f"evidence in {given.p.dtype} and draft distributions in {given.q.dtype}")
    if given.p is None and given.q is None and given.size < 1:
        raise ValueError("one-hot evidence and draft distributions do not determine the vocabulary size: pass size")
    used = [
        given.token,
        given.parent,
        given.live,
        given.p,
        given.p_points,
        given.row,
        given.q,
        given.q_points,
        given.law_row,
        given.position,
        given.seeds,
        given.words,
        given.counters,
        given.reals,
        *given.columns.values(),
    ]
    if not all(t.is_contiguous() for t in used if t is not None):
        raise ValueError("a tensor of a verification is not contiguous")


def _or(t: Tensor | None, other: Tensor) -> Tensor:
    return other if t is None else t


def _over(n: int, by: int) -> int:
    """How many parts of a size cover n."""
    return -(-n // by)


def _power(n: int) -> int:
    """The power of two at n or above it."""
    return 1 << max(0, n - 1).bit_length()


def _over_nodes(nodes: int) -> tuned.Config:
    return NODES if nodes <= 128 else tuned.Config(NODES.block, 4)


def _fitting(config: tuned.Config, size: int) -> tuned.Config:
    """No larger a block than a small vocabulary fills."""
    block = max(16, min(config.block, _power(size)))
    return tuned.Config(block, config.warps if block >= 1024 else 1, config.stages, _power(config.splits))


def rule_of(op: Op, within: Region | None = None) -> CompiledRule:
    """The kernels of a `tree.walk` op. within: the body of its function, which defines the captured values: constants are then
    folded in, and noises from outside are resolved (without it a captured noise is assumed to be the output stream, and
    `walk.called` compiles again where it is not). Never raises Unsupported: see `CompiledRule.unsupported`."""
    made: dict[Value, Op] = {}
    for other in within.walk() if within is not None else ():
        made.update(dict.fromkeys(other.results, other))
        if other.opcode == "segment":
            made.update({r: made[y] for r, y in zip(other.results, other.regions[0].yields, strict=True) if y in made})
    free = free_values(op.regions[0])
    constants = {v: made[v] for v in free if v in made and made[v].opcode == "const" and _plain(v)}
    captured = tuple(v for v in free if v not in constants)
    noises = {v: _captured(v, made) for v in captured if v.type.elem == "noise"}
    name = "".join(c if c.isalnum() else "_" for c in str(op.attrs.get("rule") or "rule"))
    if name in (*HELPERS, "tl", "triton") or keyword.iskeyword(name):  # functions that its kernels call keep their names
        name += "_rule"
    return _compiled(op, name, captured, noises, constants)


def _plain(v: Value) -> bool:
    return not v.type.dims and v.type.elem in ("int", "token", "real", "prob", "bool", "none")


def _captured(v: Value, producers: Mapping[Value, Op]) -> Captured:
    made = producers.get(v)
    if made is None or made.opcode != "noise":
        return Captured("output")
    output = made.attrs["kind"] == "output"
    return Captured(str(made.attrs["kind"]), 0 if output else len(made.operands), output and bool(made.operands))


def _compiled(
    op: Op, name: str, captured: tuple[Value, ...], noises: dict[Value, Captured], constants: dict[Value, Op]
) -> CompiledRule:
    try:
        written = write(op, name, {**dict.fromkeys(captured), **constants}, noises)
        return CompiledRule(op, name, captured, noises, constants, written)
    except Unsupported as error:
        return CompiledRule(op, name, captured, noises, constants, None, error)


__all__ = ["CompiledRule", "Given", "Unsupported", "Walked", "free_values", "rule_of"]
