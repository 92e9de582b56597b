"""From an IR function to the text of a Python driver: a generator of model calls, readable and steppable.

Control flow becomes Python's, single ops become expressions (expressions.py) or calls of their lowerings, names come from the
source, and marks give the line of the `.dec` file that a line is for. Loops and rules that leave early do so with `break` and
`return` (exits.py), for which the IR carries flags.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from decgraph.backends.torch.asking import Asking
from decgraph.backends.torch.chains import Chain, chain_of
from decgraph.backends.torch.exits import FALLS, Exit, LoopExit, Mistaken, RuleExit, constant
from decgraph.backends.torch.header import OPS, reserved
from decgraph.backends.torch.inlining import without_segments
from decgraph.backends.torch.names import Names
from decgraph.backends.torch.phrases import WIDEST
from decgraph.backends.torch.texts import atom, function_name, hint_of, negated, summary
from decgraph.backends.torch.uses import Uses
from decgraph.errors import DecError
from decgraph.ir.places import loop_tree
from decgraph.ir.values import Function, Op, Region, Value


class Writer(Asking):
    """Writes one function after the other into a module; see `program.py`."""

    def function(self, f: Function) -> tuple[str, dict[str, str]]:
        """Write a function and the initial values of its states; returns the driver's name and by state those of the initial
        values."""
        self.original = f
        self.f, self.origin, self.same = without_segments(f, lambda op: self.kit.fused(op) is not None)
        ops = [*self.f.body.walk(), *(op for s in self.f.states for op in s.init.walk())]
        self.names = Names()
        self.producers = {r: op for op in ops for r in op.results}
        self.names.taken |= self.shared.taken | reserved(op for op in ops if self.written(op) is None)
        self.env: dict[Value, str] = {}
        self.depth = 0
        self.marked: tuple[str, int] = ("", 0)
        self.hint = ""  # names of values without a name of their own
        self.flow = Uses(self.f)
        self.pinned: set[str] = set()  # names in use for a second value, which no third may get
        self.wishes: dict[Value, str] = {}  # names that values get because they are yielded under them
        self.holders: dict[str, Value | None] = {}  # which value has such a name until then
        self.here: tuple[Region, int] = (self.f.body, 0)  # the op that is being written
        self.given: set[Value] = set()  # trees whose variables the blocks that draft them may assign again
        self.asks = False
        title = function_name(f.name)
        self.names.taken.add(title)
        params = [self.name(p.value) for p in self.f.params]
        self.line(f"def {title}({', '.join(['m', *params])}):")
        self.depth += 1
        if f.doc:
            self.docstring(summary(f.doc))
        self.region(self.f.body)
        if not self.asks:
            self.line("return")
            self.line("yield  # no model is called, and yet a generator")
        self.depth -= 1
        starts = {}
        for s in self.f.states:
            self.out += ["", ""]
            starts[s.name] = start = self.names.fresh(f"start_{s.name}")
            self.line(f"def {start}({', '.join(['m', *params])}):")
            self.depth += 1
            self.region(s.init)
            self.line(f"return {self.use(s.init.yields[0])}")
            self.depth -= 1
        self.shared.taken |= {title, *starts.values(), *self.header.declared.values(), *self.header.brought}
        return title, starts

    def region(self, region: Region, into: Sequence[tuple[str, Value | None] | None] = (), leave: Exit = FALLS) -> None:
        """Write a region's ops and its exit. into: for each of its yields the name after the region, and the value that has
        that name until then."""
        for y, goal in zip(region.yields, into):
            if goal is not None and self.flow.may_take(region, y, goal[1]):
                self.wishes[y], self.holders[goal[0]] = goal
        for n, op in enumerate(region.ops):
            self.here, self.hint = (region, n), hint_of(op, self.env)
            if op.opcode == "if":
                self.op_if(op, leave)
            elif op.opcode == "for":
                self.op_for(op, leave)
            else:
                self.op(op)
        leave.close(self, [self.use(y) for y in region.yields])

    def block(self, region: Region, into: Sequence[tuple[str, Value | None]]) -> None:
        """A region whose yields are then assigned."""
        self.region(region, into)
        self.assign([name for name, _ in into], [self.use(y) for y in region.yields])

    def op(self, op: Op) -> None:
        special = getattr(self, "op_" + op.opcode.replace(".", "_"), None)
        if op is self.skipped:
            return
        if special is not None:
            special(op)
        else:
            self.plain(op)

    def started(self, op: Op, init: Sequence[Value], known: Sequence[str | None] = ()) -> list[str]:
        """The names of a loop's results, with their first values assigned. The name of a value that nothing else uses is taken
        over. known: of each result, the constant that it is while the loop runs, which needs no name."""
        region, at = self.here
        names: list[str] = []
        for n, (r, v) in enumerate(zip(op.results, init, strict=True)):
            fixed = known[n] if known else None
            if fixed is not None:
                names.append(fixed)
                continue
            mine = self.env.get(v, "")
            rests = max(self.flow.places(region, v), default=0) <= at and not inside(op, v) and mine not in names
            if r not in self.wishes and mine.isidentifier() and mine not in self.pinned and rests and self.own(region, v):
                self.env[r] = mine
            else:
                self.hint = hint_of(op, self.env)
            names.append(self.name(r))
        self.assign(names, [self.use(v) for v in init], op)
        return names

    def op_for(self, op: Op, leave: Exit) -> None:
        chain = chain_of(op) if self.kit.draft_loops else None
        if chain is not None:
            self.draft_loop(op, chain)
            return
        lo, hi, *init = op.operands
        first = [constant(self.use(v)) for v in init]
        stops = bool(op.attrs.get("stops"))
        if stops and any(first) and isinstance(leave, RuleExit):
            try:
                self.attempt().loop(op, first, leave)
            except Mistaken:
                pass
            else:
                self.loop(op, first, leave)
                return
        self.loop(op, [None] * len(init), None)

    def attempt(self) -> Writer:
        """A writer in the state of this one, whose text and names are its own: what it writes leaves no trace here."""
        out = copied(self)
        out.names, out.shared, out.header = copied(self.names), copied(self.shared), copied(self.header)
        return out

    def loop(self, op: Op, known: Sequence[str | None], after: RuleExit | None) -> None:
        """A `for` loop. known: the constant that each carried value is at the head of every iteration, or None; after: the exit
        of the enclosing rule, where stopping the loop leaves it directly."""
        (around, at), (lo, hi, *init), region = self.here, op.operands, op.regions[0]
        results = self.started(op, init, known)
        counter, *carried = region.args
        self.env.update(zip(carried, results, strict=True))
        self.hint = "n"
        self.over(op, region, lo, hi)
        self.depth += 1
        before = len(self.out)
        self.filled(op, results)
        into: list[tuple[str, Value | None] | None] = [
            None if k else (name, v) for name, v, k in zip(results, carried, known, strict=True)
        ]
        stops = bool(op.attrs.get("stops"))
        leave = LoopExit(op, results, known, around, at, after)
        self.region(region, [None, *into] if stops else into, leave)
        if len(self.out) == before:
            self.line("pass")
        self.depth -= 1
        for r, k in zip(op.results, known, strict=True):
            if k is not None:
                self.env[r] = k

    def over(self, op: Op, region: Region, lo: Value, hi: Value) -> None:
        """The head of a `for` loop: over the elements of a vector where the body begins by taking one; else over numbers."""
        counter = region.args[0]
        counted = self.producers.get(hi)
        wanted = (counted.operands[0], counter) if counted is not None and counted.opcode == "len" else ()
        first = next((o for o in region.ops if o.opcode == "gather" and o.operands == wanted), None)
        if self.use(lo) == "0" and counted is not None and first is not None and self.env.get(hi, "").startswith("len("):
            vector = self.use(counted.operands[0])
            self.skipped = first
            self.hint = hint_of(first, self.env)
            element = self.name(first.result)
            if self.flow.once(counter):
                self.line(f"for {element} in {vector}:", op)
            else:
                self.hint = "n"
                self.line(f"for {self.name(counter)}, {element} in enumerate({vector}):", op)
            return
        ends = [self._int(lo), self._int(hi)]
        if not self.flow.total[counter]:
            self.env[counter] = "_"
        self.line(f"for {self.name(counter)} in range({', '.join(ends if ends[0] != '0' else ends[1:])}):", op)

    skipped: Op | None = None  # the op that takes an element, which the head of the loop does

    def filled(self, op: Op, results: Sequence[str]) -> None:
        """No iteration of a loop that drafts where nothing fits any more."""
        if "fills" in op.attrs and loop_tree(op) >= 0:
            self.line(f"if m.full({results[loop_tree(op)]}, {self.literal(op.attrs['fills'].rpartition('.')[2])}):")
            self.depth += 1
            self.line("break")
            self.depth -= 1

    def draft_loop(self, op: Op, chain: Chain) -> None:
        """An autoregressive draft loop as one call of the machine (draft_loops.py)."""
        lo, hi, tree = op.operands
        result = self.started(op, [tree])[0]
        counter = self.name(op.regions[0].args[0])
        noise = self.kit.lower(self.origin.get(chain.noise, chain.noise))
        kwargs = [f"{k}={self.literal(v)}" for k, v in noise.kwargs.items()]
        args = [counter if v is op.regions[0].args[0] else self.use(v) for v in chain.noise.operands]
        name = self.header.call(chain.noise, noise, self.names)
        alone = ", alone=True" if chain.alone else ""
        told = ", ".join([self.use(chain.model), self.use(tree), self._int(lo), self._int(hi)])
        self.names.taken.discard(counter)
        drawn = f"lambda {counter}: {name}({', '.join(['m', *args, *kwargs])})"
        self.line(f"{result} = yield from m.draft_loop({told}, {drawn}{alone})", op)
        self.asks = True

    def op_while(self, op: Op) -> None:
        init = list(op.operands)
        limit = self.use(init.pop(0)) if op.attrs.get("limited") else None
        cond, body = op.regions
        results = self.started(op, init)
        for region in (cond, body):
            self.env.update(zip(region.args[1:], results, strict=True))
        where = self.literal(str(op.loc))
        leave = LoopExit(op, results)
        into: list[tuple[str, Value | None] | None] = [*zip(results, body.args[1:], strict=True)]
        stops = bool(op.attrs.get("stops"))
        last = self.producers.get(cond.yields[0])
        if (
            op.attrs.get("bound") == "done"
            and [o.opcode for o in cond.ops] == ["done", "map"]
            and last is not None
            and last is cond.ops[1]
            and last.attrs["fn"] == "not"
            and not limit
            and "fills" not in op.attrs
        ):
            counter = self.names.fresh("step") if self.flow.total[body.args[0]] else "_"
            self.env[body.args[0]] = counter
            self.line(f"for {counter} in {self.support('until_done')}(m, {where}):", op)
            self.depth += 1
            self.region(body, [None, *into] if stops else into, leave)
            self.depth -= 1
            return
        self.hint = "n"
        counter = self.name(cond.args[0])
        self.env[body.args[0]] = counter
        self.line(f"{counter} = 0")
        head, marked = len(self.out), self.marked
        self.line("while True:", op)
        self.depth += 1
        self.filled(op, results)
        self.region(cond)
        within = f"{counter} < {limit}" if limit else ""
        goes_on = self.use(cond.yields[0])
        if len(self.out) == head + 1:  # the condition is one expression
            del self.out[head]
            self.marked, self.depth = marked, self.depth - 1
            self.line(f"while {within + ' and ' + atom(goes_on) if within else goes_on}:", op)
            self.depth += 1
        else:
            self.out[head] = self.out[head].replace("while True:", f"while {within}:") if within else self.out[head]
            self.line(f"if {negated(goes_on)}:")
            self.depth += 1
            self.line("break")
            self.depth -= 1
        check = {"done": "check_progress", "cells": "check_waiting"}.get(str(op.attrs.get("bound")), "check_bound")
        self.line(f"m.{check}({where}, {counter})")
        self.region(body, [None, *into] if stops else into, leave)
        self.line(f"{counter} += 1")  # last: what an iteration yields may be its number
        self.depth -= 1

    def op_unfailing(self, op: Op) -> None:
        self.env[op.result] = "True"

    def draft(self, op: Op) -> None:
        """A block that drafts a tree, which an error in it ends."""
        (region, n), block, before = self.here, op.regions[0], op.regions[1].yields[0]
        name, drafting = self.use(before), self.names.fresh("drafting")
        self.line(f"with m.drafting({self.literal(op.attrs['draft'])}, {name}) as {drafting}:", op)
        if self.own(region, before) and max(self.flow.places(region, before)) <= n and name not in self.pinned:
            self.env[op.result] = name
            self.given.add(before)
        self.depth += 1
        self.region(block, [None])
        self.line(f"{drafting}.tree = {self.use(block.yields[0])}")
        self.depth -= 1
        self.names.taken.discard(drafting)
        self.line(f"{self.name(op.result)} = {drafting}.tree")

    def op_if(self, op: Op, leave: Exit) -> None:
        if "draft" in op.attrs:
            return self.draft(op)
        region, n = self.here
        condition = self.use(op.operands[0])
        if constant(condition):
            self.branch(op, op.regions[condition == "False"])
            return
        for chosen, value in ((0, "True"), (1, "False")):
            way, other = op.regions[chosen], op.regions[1 - chosen]
            known: dict[Value, Value | str] = dict(self.decided(op.operands[0], value))
            for r, y in zip(op.results, way.yields, strict=True):
                made = self.producers.get(y)
                if made is not None and made.opcode == "const":
                    self.op_const(made)
                    known[r] = self.env[y]
                else:
                    known[r] = y
            written = {v for o in way.ops for v in o.results if o.opcode != "const"}
            if leave.at_once(_Ahead(self, written), region, n + 1, known):
                self.line(f"if {negated(condition) if chosen else condition}:", op)
                self.depth += 1
                self.region(way)
                leave.leave(self, region, n + 1, known)
                self.depth -= 1
                for v, text in self.decided(op.operands[0], negated(value)).items():
                    if self.flow.producer(region, v) is not None:
                        self.env[v] = text
                self.here = (region, n)
                self.branch(op, other)
                return
        self.branches(op, condition)

    def decided(self, condition: Value, value: str) -> dict[Value, str]:
        """The conditions whose value follows from the value of `condition`: itself, and those that it negates."""
        out = {condition: value}
        made = self.producers.get(condition)
        while made is not None and made.opcode == "map" and made.attrs["fn"] == "not":
            condition, value = made.operands[0], negated(value)
            out[condition] = value
            made = self.producers.get(condition)
        return out

    def branch(self, op: Op, region: Region) -> None:
        """The branch of an `if` with a constant condition, in its place."""
        goals = [self.wishes.get(r) for r in op.results]
        self.region(region, [None if name is None else (name, self.holders.get(name)) for name in goals])
        within = {v for o in region.ops for v in o.results}
        for r, y in zip(op.results, region.yields, strict=True):
            text = self.use(y)
            made = self.producers.get(y)
            stays = y in within or made is not None and made.opcode not in ("for", "while", "const")
            if constant(text) or self.flow.total[r] == 0:
                self.env[r] = text
            elif r not in self.wishes and stays and text.isidentifier():
                self.env[r] = text
                self.pinned.add(text)
            else:
                self.hint = y.name or self.hint
                self.assign([self.name(r)], [text], op)

    def branches(self, op: Op, condition: str) -> None:
        """Both branches of an `if`."""
        into = []
        for r, y in zip(op.results, op.regions[0].yields, strict=True):
            self.hint = y.name or self.hint
            name = self.name(r)
            into.append((name, self.holders.get(name) if r in self.wishes else None))
        head, marked = len(self.out), self.marked
        for n, region in enumerate(op.regions):
            line = f"if {condition}:" if n == 0 else "else:" if len(self.out) > head else f"if {negated(condition)}:"
            at, then = len(self.out), self.marked
            self.line(line, op if line != "else:" else None)
            self.depth += 1
            self.block(region, into)
            self.depth -= 1
            if len(self.out) == at + 1:  # nothing to do
                del self.out[at]
                self.marked = marked if n == 0 else then

    def op_each(self, op: Op) -> None:
        region, filtered = op.regions[0], bool(op.attrs.get("filtered"))
        items = self.names.fresh("items")
        self.line(f"{items} = []", op)
        vector, (counter, element) = self.use(op.operands[0]), region.args
        counted = self.flow.total[counter] > 0
        x = self.name(element)
        over = f"for {self.name(counter)}, {x} in enumerate({vector})" if counted else f"for {x} in {vector}"
        self.line(f"{over}:", op)
        before = len(self.out)
        self.depth += 1
        self.region(region)
        kept, made = (self.use(region.yields[1]) if filtered else ""), self.use(region.yields[0])
        whole = f"[{made} {over}{f' if {kept}' if filtered else ''}]"
        if len(self.out) == before and len(whole) < WIDEST:
            del self.out[-2:]
            self.names.taken.discard(items)
            items = whole
        else:
            if filtered:
                self.line(f"if {kept}:")
            self.depth += filtered
            self.line(f"{items}.append({made})")
            self.depth -= filtered
        self.depth -= 1
        as_list = op.result.type.elem == "list"
        text = items if as_list else f"{self.header.need('stacked', OPS + '.vectors')}(m, {items})"
        if as_list and items.isidentifier():
            self.env[op.result] = items
        else:
            self.line(f"{self.name(op.result)} = {text}", op)

    def function_of(self, region: Region, name: str, op: Op, leave: Exit = FALLS) -> str:
        """A nested function for a region; returns its name. Raises DecError for a model call inside."""
        asks = ("model.eval", "model.evals", "model.read", "run", "batch.fold", "batch.top")
        if any(o.opcode in asks for o in region.walk()):
            raise DecError(
                f"{op.loc}: the torch backend cannot call a model inside `{op.opcode}`",
                hint="evaluate it before, at every node, and look the rows up",
            )
        fn = self.names.fresh(name)
        if self.out and not self.out[-1].endswith(":"):
            self.out.append("")
        outside = set(self.names.taken)
        self.line(f"def {fn}({', '.join(self.name(a) for a in region.args)}):", op)
        self.depth += 1
        self.region(region, leave=leave)
        if leave is FALLS:
            self.line(f"return {self.uses(region.yields)}")
        self.names.taken = outside | set(self.header.declared.values()) | set(self.header.brought)
        self.depth -= 1
        self.out.append("")
        return fn

    def op_tree_walk(self, op: Op) -> None:
        made = self.kit.walk(self.origin.get(op, op), self.original)
        if made is not None:
            name = self.header.object(made.name, made.call, self.names)
            given = ", ".join(["m", *map(self.use, (*op.operands[:2], *made.captured))])
            self.line(f"{self.name(op.result)} = {name}({given})", op)
            return
        rule = self.function_of(op.regions[0], str(op.attrs.get("rule") or "rule").replace(".", "_"), op, RuleExit())
        scope = "" if op.attrs["scope"] == "node" else f", scope={self.literal(op.attrs['scope'])}"
        given = ", ".join(["m", *map(self.use, op.operands[:2]), rule])
        self.line(f"{self.name(op.result)} = {self.support('walk')}({given}{scope})", op)

    def op_run(self, op: Op) -> None:
        until = self.function_of(op.regions[0], "until", op)
        start, bound, *rest = (self.use(v) for v in op.operands)
        n = len(op.attrs["args"])
        tree = rest[n] if op.attrs["has_tree"] else "None"
        counters = rest[n + 1 if op.attrs["has_tree"] else n :]
        args = ", ".join(f'"{k}": {v}' for k, v in zip(op.attrs["args"], rest))
        self.asks = True
        listed = "".join(f"{c}, " for c in counters)
        self.line(
            f"{self.name(op.result)} = yield from m.sub_run({op.attrs['callee']!r}, {op.attrs['site']!r}, {start}, "
            f"int({bound}), {{{args}}}, {tree}, ({listed}), {until})",
            op,
        )

    def op_segment(self, op: Op) -> None:
        """A segment for which a backend has one call; others are written in place (inlining.py)."""
        fused = self.kit.fused(self.origin.get(op, op))
        assert fused is not None
        name = self.header.object(fused.name, fused.fn, self.names)
        for r, y in zip(op.results, op.regions[0].yields, strict=True):
            made = self.flow.producer(op.regions[0], y)
            self.hint = y.name or (hint_of(op.regions[0].ops[made], self.env) if made is not None else self.hint)
            self.name(r)
        self.line(f"{self.targets(op)} = {name}({', '.join(['m', *map(self.use, op.operands)])})", op)


def inside(op: Op, v: Value) -> bool:
    """Whether the regions of an op use a value."""
    return any(v in r.yields or any(v in o.operands or inside(o, v) for o in r.ops) for r in op.regions)


class _Ahead:
    """A view of the writer for looking ahead: with names for the values that a branch will have written."""

    def __init__(self, writer: Writer, written: set[Value]) -> None:
        self.writer, self.env = writer, {**dict.fromkeys(written, "later"), **writer.env}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.writer, name)

    def op_const(self, op: Op) -> None:
        self.writer.op_const(op)
        self.env[op.result] = self.writer.env[op.result]


def copied(original: Any) -> Any:
    """A shallow copy of an object, with dictionaries, lists and sets of its own."""
    out = copy.copy(original)
    vars(out).update({name: copy.copy(v) for name, v in vars(original).items() if isinstance(v, dict | list | set)})
    return out
