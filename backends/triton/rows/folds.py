"""The folds of a row in a kernel: accumulators before the loop, their update by a block, their results, and the partial
results of splits for the next kernel."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from decgraph.backends.triton.rows.program import Node
from decgraph.backends.triton.source import Text

if TYPE_CHECKING:
    from decgraph.backends.triton.rows.emit import Emitter

KEPT = {"real": "*real", "int": "*i32", "long": "*i64"}
"""Triton types of partial results."""


@dataclass
class Partial:
    """A partial result for the next pass: a tensor [R, splits, *tail] of "real", "int" or "long"."""

    name: str
    type: str
    tail: int = 1


class Folds(ABC):
    """The part of a kernel's writer that folds rows. local: folds whose results this kernel computes."""

    e: Emitter
    text: Text
    ready: set[str]
    local: set[int]

    @abstractmethod
    def param(self, name: str, kind: str) -> str:
        """A parameter of the kernel."""

    @abstractmethod
    def number(self, n: Node) -> str:
        """The name of a number of the row."""

    @abstractmethod
    def vector(self, n: Node, at: str) -> str:
        """The name of a vector's entries at `at`."""

    def begin(self, f: Node) -> None:
        """Accumulators before the loop."""
        t, n, real = self.text, f.name, self.e.real
        first = "split * ITERATIONS * BLOCK + lane" if self.e.split else "lane"
        low, high = 'float("-inf")', 'float("inf")'
        if f.kind in ("max", "min"):
            t.line(f"{n}_lanes = tl.full((BLOCK,), {low if f.kind == 'max' else high}, {real})")
        elif f.kind == "sum":
            t.line(f"{n}_lanes = tl.zeros((BLOCK,), {real})")
        elif f.kind in ("any", "all", "count"):
            t.line(f"{n}_lanes = tl.full((BLOCK,), {int(f.kind == 'all')}, tl.int32)")
        elif f.kind in ("argmax", "argmin"):
            t.line(f"{n}_lanes = tl.full((BLOCK,), {low if f.kind == 'argmax' else high}, {real})")
            t.line(f"{n}_at = {first}")
        elif f.kind == "logsum":
            t.line(f"{n}_top = tl.full((), {low}, {real})")
            t.line(f"{n}_lanes = tl.zeros((BLOCK,), {real})")
            if self.moment(f):
                t.line(f"{n}_moment = tl.zeros((BLOCK,), {real})")
        else:
            self.best_slots(f)

    def best_slots(self, f: Node) -> None:
        p = power(f.attrs["k"])
        if self.e.packs(f):
            self.text.line(f"{f.name}_keys = nobody({p})")
            return
        self.text.line(f'{f.name}_values = tl.full(({p},), float("-inf"), {self.e.real})')
        self.text.line(f"{f.name}_tokens = tl.full(({p},), 2147483647, tl.int32)")

    def moment(self, f: Node) -> bool:
        """Whether the third sum of a logsum is used."""
        return any(n.kind == "result" and n.args[0] is f and n.attrs["index"] == 2 for n in self.e.nodes)

    def update(self, f: Node) -> None:
        """Fold one block into the accumulators."""
        t, n, one = self.text, f.name, self.e.single
        v = self.vector(f.args[0], "token")
        if f.kind in ("max", "min", "argmax", "argmin"):
            down = f.kind in ("max", "argmax")
            guarded = f'tl.where(inside, {v}, float("{"-" if down else ""}inf"))'
            if one:
                t.line(f"{n}_lanes = {guarded}")
                if f.kind.startswith("arg"):
                    t.line(f"{n}_at = token")
            elif not f.kind.startswith("arg"):
                t.line(f"{n}_lanes = tl.{'maximum' if down else 'minimum'}({n}_lanes, {guarded})")
            else:
                t.line(f"{n}_new = {guarded}")
                t.line(f"{n}_at = tl.where({n}_new {'>' if down else '<'} {n}_lanes, token, {n}_at)")
                t.line(f"{n}_lanes = tl.{'maximum' if down else 'minimum'}({n}_lanes, {n}_new)")
        elif f.kind in ("sum", "count", "any", "all"):
            guarded = (
                f"tl.where(inside, {v}, 0.0)"
                if f.kind == "sum"
                else f"(inside & ({v})).to(tl.int32)"
                if f.kind != "all"
                else f"((inside == 0) | ({v})).to(tl.int32)"
            )
            join = {"sum": "{0} + {1}", "count": "{0} + {1}", "any": "{0} | {1}", "all": "{0} & {1}"}[f.kind]
            t.line(f"{n}_lanes = {guarded if one else join.format(f'{n}_lanes', guarded)}")
        elif f.kind == "logsum":
            self.update_logsum(f, v)
        else:
            k, p = f.attrs["k"], power(f.attrs["k"])
            if one:
                self.best_slots(f)
            if self.e.packs(f):
                none = f'packed(tl.where(inside, {v}, float("-inf")), tl.where(inside, token, 2147483647))'
                t.line(f"{n}_keys = merge_best({n}_keys, {none}, {p})")
                return
            low = "-1.7976931348623157e308" if self.e.program.wide else "-3.4028234663852886e38"
            t.line(f'{n}_new = tl.where(inside, tl.maximum({v}, {low}), float("-inf"))    # -inf in the row is an entry too')
            t.line(f"{n}_values, {n}_tokens = keep_best({n}_values, {n}_tokens, {n}_new, token, {k}, {p})")

    def update_logsum(self, f: Node, v: str) -> None:
        t, n, one = self.text, f.name, self.e.single
        over = self.over(*f.args[1:])
        t.line(f'{n}_x = tl.where(inside, {v}, float("-inf"))')
        t.line(f"{n}_new = {f'tl.max({n}_x, 0)' if one else f'tl.maximum({n}_top, tl.max({n}_x, 0))'}")
        t.line(f'{n}_base = tl.where({n}_new == float("-inf"), 0.0, {n}_new)')
        t.line(f"{n}_z = {over.format(f'({n}_x - {n}_base)')}")
        t.line(f"{n}_e = tl.exp({n}_z)")
        moment = f"tl.where({n}_e > 0, {n}_e * {n}_z, 0.0)"
        if one:
            t.line(f"{n}_lanes = {n}_e")
            if self.moment(f):
                t.line(f"{n}_moment = {moment}")
        else:
            t.line(f"{n}_shift = {over.format(f'({n}_top - {n}_base)')}")
            t.line(f"{n}_keep = tl.exp({n}_shift)")
            if self.moment(f):
                t.line(f"{n}_moved = tl.where({n}_keep > 0, {n}_shift * {n}_lanes, 0.0)")
                t.line(f"{n}_moment = {n}_keep * ({n}_moment + {n}_moved) + {moment}")
            t.line(f"{n}_lanes = {n}_lanes * {n}_keep + {n}_e")
        t.line(f"{n}_top = {n}_new")

    def over(self, *temperature: Node) -> str:
        """x over the temperature. In float64 it is divided, as the reference does."""
        if not temperature:
            return "{}"
        t = self.number(*temperature)
        if temperature[0].kind == "literal" and not self.e.program.wide:
            return f"{{}} * {1 / temperature[0].attrs['value']!r}"
        return f"{{}} / {t}" if self.e.program.wide else f"{{}} * {t}_inverse"

    def finish(self, f: Node, n: str, lanes: str) -> None:
        """Accumulators into the results of a fold."""
        t = self.text
        if f.kind in ("max", "min"):
            t.line(f"{n} = tl.{f.kind}({n}_lanes, 0)")
        elif f.kind in ("sum", "count"):
            t.line(f"{n} = {self.total(f, f'{n}_lanes', lanes)}")
        elif f.kind in ("any", "all"):
            t.line(f"{n} = tl.{'max' if f.kind == 'any' else 'min'}({n}_lanes, 0) > 0")
        elif f.kind in ("argmax", "argmin"):
            t.line(f"{n} = tl.{f.kind[3:]}({n}_lanes, 0)")
            t.line(f"{n}_token = tl.min(tl.where({n}_lanes == {n}, {n}_at, 2147483647), 0)")
        elif f.kind == "logsum":
            t.line(f"{n} = {self.total(f, f'{n}_lanes', lanes)}")
            if self.moment(f):
                t.line(f"{n}_moments = tl.sum({n}_moment, 0)")

    def total(self, f: Node, lanes: str, merged: str) -> str:
        if self.e.single and self.e.program.wide and self.e.size <= 128 and not merged and f.kind != "count":
            return f"sum_as_numpy({lanes}, V, BLOCK)"
        return f"tl.sum({lanes}, 0)"

    # -- splits --------------------------------------------------------------------------------------------------------

    def kept(self, f: Node) -> list[tuple[str, str, str]]:
        """(suffix, type, what pads) of the partials of a fold."""
        if f.kind in ("argmax", "argmin"):
            return [("lanes", "real", "-inf" if f.kind == "argmax" else "inf"), ("at", "int", "2147483647")]
        if f.kind == "logsum":
            kept = [("top", "real", "-inf"), ("lanes", "real", "0.0"), ("moment", "real", "0.0")]
            return kept if self.moment(f) else kept[:2]
        if f.kind == "best":
            return [("keys", "long", "")] if self.e.packs(f) else [("values", "real", "-inf"), ("tokens", "int", "2147483647")]
        pad = {"max": "-inf", "min": "inf", "sum": "0.0", "count": "0", "any": "0", "all": "1"}[f.kind]
        return [("lanes", "real" if f.kind in ("max", "min", "sum") else "int", pad)]

    def leave(self, f: Node) -> None:
        """Write a split's part of a fold."""
        t, n = self.text, f.name
        here = {x: f"{n}_{x}" for x in ("top", "values", "tokens", "keys")}
        self.finish(f, n, "")
        here |= {"lanes": n, "at": f"{n}_token", "moment": f"{n}_moments"}
        for suffix, kind, _ in self.kept(f):
            name, tail = f"{n}_{suffix}_part", power(f.attrs["k"]) if f.kind == "best" else 1
            self.param(name, KEPT[kind])
            if not any(p.name == name for p in self.e.partials):
                self.e.partials.append(Partial(name, kind, tail))
            value = f"{here[suffix]}.to(tl.int32)" if kind == "int" and f.kind != "best" else here[suffix]
            at = "row * SPLITS + split" if f.kind != "best" else f"(row * SPLITS + split) * {tail} + tl.arange(0, {tail})"
            t.line(f"tl.store({name} + {at}, {value})")

    def merge(self, f: Node) -> None:
        """The results of a fold from the splits' partial results."""
        t, n = self.text, f.name
        if "splits" not in self.ready:
            self.ready.add("splits")
            t.mark(None)
            t.line("splits = tl.arange(0, SPLITS_P)")
            t.mark(f.op)
        tail = power(f.attrs["k"]) if f.kind == "best" else 1
        if tail > 1:
            t.line(f"{n}_slots = tl.arange(0, SPLITS_P * {tail})")
        at = f"row * SPLITS * {tail} + {n}_slots" if tail > 1 else "row * SPLITS + splits"
        there = f"{n}_slots < SPLITS * {tail}" if tail > 1 else "splits < SPLITS"
        for suffix, kind, pad in self.kept(f):
            self.param(f"{n}_{suffix}_part", KEPT[kind])
            other = f"nobody(SPLITS_P * {tail})" if kind == "long" else f'float("{pad}")' if "inf" in pad else pad
            t.line(f"{n}_{suffix} = tl.load({n}_{suffix}_part + {at}, mask={there}, other={other})")
        if f.kind == "logsum":
            over = self.over(*f.args[1:])
            t.line(f"{n}_tops, {n}_top = {n}_top, tl.max({n}_top, 0)")
            t.line(f'{n}_base = tl.where({n}_top == float("-inf"), 0.0, {n}_top)')
            t.line(f"{n}_shift = {over.format(f'({n}_tops - {n}_base)')}")
            t.line(f"{n}_keep = tl.exp({n}_shift)")
            if self.moment(f):
                t.line(f"{n}_moved = tl.where({n}_keep > 0, {n}_shift * {n}_lanes, 0.0)")
                t.line(f"{n}_moment = {n}_keep * ({n}_moment + {n}_moved)")
            t.line(f"{n}_lanes = {n}_lanes * {n}_keep")
        if f.kind == "best" and self.e.packs(f):
            t.line(f"{n}_keys = merge_best(nobody({tail}), {n}_keys, {tail})")
        elif f.kind == "best":
            k, p = f.attrs["k"], tail
            t.line(f"{n}_new, {n}_from = {n}_values, {n}_tokens")
            self.best_slots(f)
            t.line(f"{n}_values, {n}_tokens = keep_best({n}_values, {n}_tokens, {n}_new, {n}_from, {k}, {p})")
        self.finish(f, n, "merged")
        self.local.add(id(f))


def power(n: int) -> int:
    """The least power of two that is not below n."""
    return 1 << max(0, n - 1).bit_length()
