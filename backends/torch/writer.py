"""From an IR function to the text of a Python driver: a generator of model calls, readable and steppable.

Control flow becomes Python's, single ops become expressions (expressions.py) or calls of their lowerings, names come from the
source, and marks give the line of the `.dec` file that a line is for. Where a branch of the IR ends with `break` or `verdict`,
the driver leaves there by `break` and `return`, and needs none of the flags by which the IR says the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from decgraph.backends.torch import model_calls
from decgraph.backends.torch.chains import Chain, chain_of
from decgraph.backends.torch.expressions import expression
from decgraph.backends.torch.header import GENERATED, OPS, Header, reserved
from decgraph.backends.torch.inlining import without_segments
from decgraph.backends.torch.kit import Kit
from decgraph.backends.torch.lines import Lines
from decgraph.backends.torch.texts import CONSTANTS, Names, atom, constant, folded, function_name, hint_of, negated, summary
from decgraph.backends.torch.values import NESTED, WIDEST, Values, literal
from decgraph.errors import DecError
from decgraph.ir.places import loop_tree
from decgraph.ir.values import Function, Op, Region, Value
from decgraph.ir.walk import EXITS, breaks


class Writer:
    """Writes one function after the other into a module; see `program.py`. lines: the module's text; values: the texts of the
    values of the function that is being written."""

    f: Function
    values: Values

    def __init__(self, header: Header, kit: Kit) -> None:
        self.header, self.kit = header, kit
        self.shared = Names()
        self.lines = Lines()
        self.line = self.lines.add
        self.around: list[Sequence[str] | None] = []
        """Of the rule and the loops around: the names that an early end assigns; None: a block whose end is its own."""
        self.looped: Region | None = None
        """The body of the loop around, where it may stop."""
        self.left = False
        """Whether what was written last ends a loop or a rule."""
        self.skipped: Op | None = None
        """The op that takes an element, which the head of its loop does."""
        self.asks = False
        """Whether the function that is being written waits for an answer."""

    def function(self, f: Function) -> tuple[str, dict[str, str]]:
        """Write a function and the initial values of its states; returns the driver's name and by state those of the initial
        values."""
        self.original = f
        self.f, self.origin, same = without_segments(f, lambda op: self.kit.fused(op) is not None)
        self.values = values = Values(self.f, self.shared.taken, same)
        self.use, self.name = values.use, values.name
        ops = (op for r in (self.f.body, *(s.init for s in self.f.states)) for op in r.walk())
        values.names.taken |= reserved(op for op in ops if values.expression(op) is None)
        self.lines.marked = ("", 0)
        self.asks = False
        title = function_name(f.name)
        values.names.taken.add(title)
        params = [self.name(p.value) for p in self.f.params]
        self.line(f"def {title}({', '.join(['m', *params])}):")
        with self.lines.block():
            if f.doc:
                self.lines.docstring(summary(f.doc))
            self.region(self.f.body)
            if not self.asks:
                self.line("return")
                self.line("yield  # no model is called, and yet a generator")
        starts = {}
        for s in self.f.states:
            self.lines.text += ["", ""]
            starts[s.name] = start = values.names.fresh(f"start_{s.name}")
            self.line(f"def {start}({', '.join(['m', *params])}):")
            with self.lines.block():
                self.region(s.init)
                self.line(f"return {self.use(s.init.yields[0])}")
        self.shared.taken |= {title, *starts.values(), *self.header.declared.values(), *self.header.brought}
        return title, starts

    def support(self, name: str) -> str:
        """A name of generated.py, imported."""
        return self.header.need(name, GENERATED)

    def region(self, region: Region, into: Sequence[tuple[str, Value | None] | None] = ()) -> None:
        """Write a region's ops. into: for each of its yields the name after the region, and the value that has that name until
        then."""
        self.values.yielded(region, into)
        for n, op in enumerate(region.ops):
            self.values.here, self.values.hint = (region, n), hint_of(op, self.values.texts)
            self.op(op)
            if self.left:
                return

    def op(self, op: Op) -> None:
        if op is self.skipped:
            return
        written = WRITERS.get(op.opcode)
        if written is not None:
            written(self, op)
        else:
            self.plain(op)

    def plain(self, op: Op) -> None:
        """An op as an expression, or as a call of its lowering."""
        low = self.kit.lower(self.origin.get(op, op))
        args = [self.use(v) for v in op.operands]
        if op.opcode == "map" and (
            known := folded(str(op.attrs["fn"]), args) if op.attrs["fn"] in ("not", "and", "or") else None
        ):
            self.values.texts[op.result] = known
            return
        text = None if low.own else expression(op, args, self.values.producers)
        if text is not None:
            text = self.imports_of(text)
            if self.values.inlined(op, text):
                return
        else:
            text = self.called(op, args)
            if op.opcode in NESTED and not low.own and self.values.inlined(op, text):
                return
        self.line(f"{self.values.targets(op)} = {text}" if op.results else text, op)

    def called(self, op: Op, args: Sequence[str]) -> str:
        """An op as a call of its lowering."""
        low = self.kit.lower(self.origin.get(op, op))
        name = self.header.call(op, low, self.values.names)
        typed = name in self.header.declared.values()
        kwargs = [] if typed else [f"{k}={literal(v)}" for k, v in low.kwargs.items()]
        return f"{name}({', '.join(['m', *args, *kwargs])})"

    def imports_of(self, text: str) -> str:
        """Import the functions that an expression calls; returns the expression."""
        for word in re.findall(r"\b(np|torch)\.", text):
            self.header.need(word)
        for name, module in {"law": "draws", "probability": "distributions"}.items():
            if text.startswith(f"{name}("):
                text = self.header.need(name, f"{OPS}.{module}") + text[len(name) :]
        return text

    def op_const(self, op: Op) -> None:
        v = op.attrs["value"]
        if not isinstance(v, list | tuple):
            self.values.constant(op)
        else:
            self.values.texts[op.result] = f"{self.header.need('np')}.array({literal(list(v))})" if v else "[]"

    def started(self, op: Op, init: Sequence[Value], known: Sequence[str | None] = ()) -> list[str]:
        """The names of a loop's results, with their first values assigned. The name of a value that nothing else uses is taken
        over. known: of each result, the constant that it is while the loop runs, which needs no name."""
        region, at = self.values.here
        names: list[str] = []
        for n, (r, v) in enumerate(zip(op.results, init, strict=True)):
            fixed = known[n] if known else None
            if fixed is not None:
                names.append(fixed)
                continue
            mine = self.values.texts.get(v, "")
            rests = max(self.values.uses.places(region, v), default=0) <= at and not inside(op, v) and mine not in names
            if (
                r not in self.values.wishes
                and mine.isidentifier()
                and mine not in self.values.pinned
                and rests
                and self.values.own(region, v)
            ):
                self.values.texts[r] = mine
            else:
                self.values.hint = hint_of(op, self.values.texts)
            names.append(self.name(r))
        self.lines.assign(names, [self.use(v) for v in init], op)
        return names

    def op_for(self, op: Op) -> None:
        chain = chain_of(op) if self.kit.draft_loops else None
        if chain is not None:
            self.draft_loop(op, chain)
            return
        lo, hi, *init = op.operands
        region = op.regions[0]
        constants = self.constants(op, init)
        results = self.started(op, init, constants)
        self.values.texts.update(zip(region.args[1:], results, strict=True))
        self.values.hint = "n"
        self.over(op, region, lo, hi)
        with self.lines.block():
            before = len(self.lines.text)
            self.filled(op, results)
            self.body(op, results, constants)
            if len(self.lines.text) == before:
                self.line("pass")

    def body(self, op: Op, results: Sequence[str], constants: Sequence[str | None]) -> None:
        """The body of a loop and its end. results: the names of what the loop carries; constants: see `constants`."""
        region, stops = op.regions[-1], bool(op.attrs.get("stops"))
        into: list[tuple[str, Value | None] | None] = [
            None if constant else (name, v) for name, v, constant in zip(results, region.args[1:], constants, strict=True)
        ]
        outer, self.looped = self.looped, region if stops else None
        self.around.append(results)
        self.region(region, [None, *into] if stops else into)
        self.around.pop()
        self.looped = outer
        if not self.left:
            self.end(results, [self.use(y) for y in region.yields], stops=stops)
        self.left = False
        self.values.texts.update(
            (r, constant) for r, constant in zip(op.results, constants, strict=True) if constant is not None
        )

    def end(self, results: Sequence[str], texts: Sequence[str], *, stops: bool) -> None:
        """The end of a loop's body, which yields `texts`."""
        stop, last = (texts[0], texts[1:]) if stops else ("False", texts)
        changed = {name for name, text in zip(results, last, strict=True) if name != text}
        if stop not in CONSTANTS and changed & set(re.findall(r"\w+", stop)):
            self.line(f"stop = {stop}")
            stop = "stop"
        self.lines.assign(list(results), list(last))
        if stop == "True":
            self.line("break")
        elif stop != "False":
            self.line(f"if {stop}:")
            with self.lines.block():
                self.line("break")

    # -- early ends
    def op_break(self, op: Op) -> None:
        if self.can_leave("break"):
            self.lines.assign(list(self.around[-1] or ()), [self.use(v) for v in op.operands])
            self.line("break")
            self.left = True

    def op_verdict(self, op: Op) -> None:
        if self.can_leave("verdict"):
            self.line(f"return {self.verdict(op.operands)}")
            self.left = True

    def can_leave(self, opcode: str) -> bool:
        """Whether what is written now can end the loop or the rule around it: what drafts a tree ends by itself, and then the
        flags that the loop carries say the rest."""
        return bool(self.around) and None not in self.around[-1 if opcode == "break" else 0 :]

    def leaves(self, region: Region) -> bool:
        """Whether every way through a region ends the loop or the rule around it."""
        return any(
            self.can_leave(op.opcode) if op.opcode in EXITS else op.opcode == "if" and all(map(self.leaves, op.regions))
            for op in region.ops
        )

    def constants(self, op: Op, init: Sequence[Value]) -> list[str | None]:
        """For each value that a loop carries the constant that it is as long as the loop runs, None: it changes. Flags are such
        constants where each way that sets them leaves."""
        self.around.append(())
        first = [constant(self.use(v)) for v in init]
        found = [text if text is not None and self.stays(op, n, text) else None for n, text in enumerate(first)]
        self.around.pop()
        return found

    def stays(self, loop: Op, n: int, text: str) -> bool:
        """Whether the n-th value that a loop carries is a constant after every iteration, if it is before."""
        body = loop.regions[-1]
        ends = [body.yields[n + bool(loop.attrs.get("stops"))], *(op.operands[n] for op in breaks(body))]
        return all(self.always(v, body.args[1 + n], text) for v in ends)

    def always(self, v: Value, carried: Value, text: str) -> bool:
        """Whether a value is a constant on all ways that have not left, if `carried` is."""
        made = self.values.producers.get(v)
        if v is carried or self.values.fixed(v) == text:
            return True
        if made is None or made.opcode not in ("if", "for", "while"):
            return False
        n = made.results.index(v)
        if made.opcode == "if":
            return all(self.leaves(r) or self.always(r.yields[n], carried, text) for r in made.regions)
        first = made.operands[len(made.operands) - len(made.results) + n]
        return self.always(first, carried, text) and self.stays(made, n, text)

    def verdict(self, values: Sequence[Value]) -> str:
        """What a rule returns, (accepts, child, emits, token), as `accept`, `emit` or `reject` where that is known."""
        accepts, child, emits, token = texts = [self.use(v) for v in values]
        if (accepts, emits) == ("True", "False"):
            return f"{self.support('accept')}({child})"
        if (accepts, emits) == ("True", "True"):
            return f"{self.support('accept')}({child}, emit={token})"
        if (accepts, emits) == ("False", "True"):
            return f"{self.support('emit')}({token})"
        return f"{self.support('reject')}()" if (accepts, emits) == ("False", "False") else ", ".join(texts)

    def over(self, op: Op, region: Region, lo: Value, hi: Value) -> None:
        """The head of a `for` loop: over the elements of a vector where the body begins by taking one; else over numbers."""
        counter = region.args[0]
        counted = self.values.producers.get(hi)
        wanted = (counted.operands[0], counter) if counted is not None and counted.opcode == "len" else ()
        first = next((o for o in region.ops if o.opcode == "gather" and o.operands == wanted), None)
        if (
            self.use(lo) == "0"
            and counted is not None
            and first is not None
            and self.values.texts.get(hi, "").startswith("len(")
        ):
            vector = self.use(counted.operands[0])
            self.skipped = first
            self.values.hint = hint_of(first, self.values.texts)
            element = self.name(first.result)
            if self.values.uses.once(counter):
                self.line(f"for {element} in {vector}:", op)
            else:
                self.values.hint = "n"
                self.line(f"for {self.name(counter)}, {element} in enumerate({vector}):", op)
            return
        ends = [self.values.whole(lo), self.values.whole(hi)]
        if not self.values.uses.total[counter]:
            self.values.texts[counter] = "_"
        self.line(f"for {self.name(counter)} in range({', '.join(ends if ends[0] != '0' else ends[1:])}):", op)

    def filled(self, op: Op, results: Sequence[str]) -> None:
        """No iteration of a loop that drafts where nothing fits any more."""
        if "fills" in op.attrs and loop_tree(op) >= 0:
            self.line(f"if m.full({results[loop_tree(op)]}, {literal(op.attrs['fills'].rpartition('.')[2])}):")
            with self.lines.block():
                self.line("break")

    def draft_loop(self, op: Op, chain: Chain) -> None:
        """An autoregressive draft loop as one call of the machine (draft_loops.py)."""
        lo, hi, tree = op.operands
        result = self.started(op, [tree])[0]
        counter = self.name(op.regions[0].args[0])
        noise = self.kit.lower(self.origin.get(chain.noise, chain.noise))
        kwargs = [f"{k}={literal(v)}" for k, v in noise.kwargs.items()]
        args = [counter if v is op.regions[0].args[0] else self.use(v) for v in chain.noise.operands]
        name = self.header.call(chain.noise, noise, self.values.names)
        alone = ", alone=True" if chain.alone else ""
        told = ", ".join([self.use(chain.model), self.use(tree), self.values.whole(lo), self.values.whole(hi)])
        self.values.names.taken.discard(counter)
        drawn = f"lambda {counter}: {name}({', '.join(['m', *args, *kwargs])})"
        self.line(f"{result} = yield from m.draft_loop({told}, {drawn}{alone})", op)
        self.asks = True

    def op_while(self, op: Op) -> None:
        init = list(op.operands)
        limit = self.use(init.pop(0)) if op.attrs.get("limited") else None
        cond, body = op.regions
        constants = self.constants(op, init)
        results = self.started(op, init, constants)
        for region in (cond, body):
            self.values.texts.update(zip(region.args[1:], results, strict=True))
        where = literal(str(op.loc))
        last = self.values.producers.get(cond.yields[0])
        if (
            op.attrs.get("bound") == "done"
            and [o.opcode for o in cond.ops] == ["done", "map"]
            and last is not None
            and last is cond.ops[1]
            and last.attrs["fn"] == "not"
            and not limit
            and "fills" not in op.attrs
        ):
            counter = self.values.names.fresh("step") if self.values.uses.total[body.args[0]] else "_"
            self.values.texts[body.args[0]] = counter
            self.line(f"for {counter} in {self.support('until_done')}(m, {where}):", op)
            self.lines.depth += 1
            self.body(op, results, constants)
            self.lines.depth -= 1
            return
        self.values.hint = "n"
        counter = self.name(cond.args[0])
        self.values.texts[body.args[0]] = counter
        self.line(f"{counter} = 0")
        head, marked = len(self.lines.text), self.lines.marked
        self.line("while True:", op)
        self.lines.depth += 1
        self.filled(op, results)
        self.region(cond)
        within = f"{counter} < {limit}" if limit else ""
        goes_on = self.use(cond.yields[0])
        if len(self.lines.text) == head + 1:  # the condition is one expression
            del self.lines.text[head]
            self.lines.marked, self.lines.depth = marked, self.lines.depth - 1
            self.line(f"while {within + ' and ' + atom(goes_on) if within else goes_on}:", op)
            self.lines.depth += 1
        else:
            self.lines.text[head] = (
                self.lines.text[head].replace("while True:", f"while {within}:") if within else self.lines.text[head]
            )
            self.line(f"if {negated(goes_on)}:")
            self.lines.depth += 1
            self.line("break")
            self.lines.depth -= 1
        check = {"done": "check_progress", "cells": "check_waiting"}.get(str(op.attrs.get("bound")), "check_bound")
        self.line(f"m.{check}({where}, {counter})")
        self.body(op, results, constants)
        self.line(f"{counter} += 1")  # last: what an iteration yields may be its number
        self.lines.depth -= 1

    def op_unfailing(self, op: Op) -> None:
        self.values.texts[op.result] = "True"

    def draft(self, op: Op) -> None:
        """A block that drafts a tree, which an error in it ends."""
        (region, n), block, before = self.values.here, op.regions[0], op.regions[1].yields[0]
        name, drafting = self.use(before), self.values.names.fresh("drafting")
        self.line(f"with m.drafting({literal(op.attrs['draft'])}, {name}) as {drafting}:", op)
        if (
            self.values.own(region, before)
            and max(self.values.uses.places(region, before)) <= n
            and name not in self.values.pinned
        ):
            self.values.texts[op.result] = name
            self.values.given.add(before)
        with self.lines.block():
            self.around.append(None)
            self.region(block, [None])
            self.around.pop()
            self.line(f"{drafting}.tree = {self.use(block.yields[0])}")
        self.values.names.taken.discard(drafting)
        self.line(f"{self.name(op.result)} = {drafting}.tree")

    def op_if(self, op: Op) -> None:
        if "draft" in op.attrs:
            return self.draft(op)
        here = self.values.here
        condition = self.use(op.operands[0])
        if constant(condition):
            self.branch(op, op.regions[condition == "False"])
            return
        way = next((n for n, r in enumerate(op.regions) if self.leaves(r)), None)
        if way is None:
            way = next((n for n in (0, 1) if self.leads_out(op, n)), None)
        if way is None:
            self.branches(op, condition)
            return
        self.line(f"if {negated(condition) if way else condition}:", op)
        with self.lines.block():
            if self.leaves(op.regions[way]):
                self.region(op.regions[way])
            elif here[1] + 1 < len(here[0].ops):
                self.region(here[0].ops[here[1] + 1].regions[0])
            else:
                self.end(self.around[-1] or (), ["True", *map(self.use, here[0].yields[1:])], stops=True)
        self.left, self.values.here = False, here
        for v, text in self.decided(op.operands[0], "True" if way else "False").items():
            if self.values.producer(here[0], v) is not None:
                self.values.texts[v] = text
        self.branch(op, op.regions[1 - way])

    def leads_out(self, op: Op, way: int) -> bool:
        """Whether a branch of an `or` decides that the next `if` leaves, with what is known already, or that the loop stops."""
        region, n = self.values.here
        if (
            len(op.results) != 1
            or not self.values.uses.once(op.result)
            or self.values.fixed(op.regions[way].yields[0]) != "True"
        ):
            return False
        if n + 1 == len(region.ops):
            return region is self.looped and region.yields[0] is op.result and self.can_leave("break")
        after = region.ops[n + 1]
        if after.opcode != "if" or after.operands[0] is not op.result or not self.leaves(after.regions[0]):
            return False
        return all(o.opcode in ("const", *EXITS) for o in (*op.regions[way].ops, *after.regions[0].ops))

    def decided(self, condition: Value, value: str) -> dict[Value, str]:
        """The conditions that follow from the value of `condition`: itself, what it negates, and what negates these."""
        out = {condition: value}
        made = self.values.producers.get(condition)
        while made is not None and made.opcode == "map" and made.attrs["fn"] == "not":
            condition, value = made.operands[0], negated(value)
            out[condition] = value
            made = self.values.producers.get(condition)
        for op in self.values.here[0].ops:
            if op.opcode == "map" and op.attrs["fn"] == "not" and op.operands[0] in out:
                out[op.result] = negated(out[op.operands[0]])
        return out

    def branch(self, op: Op, region: Region) -> None:
        """The branch of an `if` with a constant condition, in its place."""
        goals = [self.values.wishes.get(r) for r in op.results]
        self.region(region, [None if name is None else (name, self.values.holders.get(name)) for name in goals])
        if self.left:
            return
        within = {v for o in region.ops for v in o.results}
        for r, y in zip(op.results, region.yields, strict=True):
            text = self.use(y)
            made = self.values.producers.get(y)
            stays = y in within or made is not None and made.opcode not in ("for", "while", "const")
            if constant(text) or self.values.uses.total[r] == 0:
                self.values.texts[r] = text
            elif r not in self.values.wishes and stays and text.isidentifier():
                self.values.texts[r] = text
                self.values.pinned.add(text)
            else:
                self.values.hint = y.name or self.values.hint
                self.lines.assign([self.name(r)], [text], op)

    def branches(self, op: Op, condition: str) -> None:
        """Both branches of an `if`."""
        goals: list[tuple[str, Value | None] | None] = []
        same: dict[Value, str] = {}
        for r, y in zip(op.results, op.regions[0].yields, strict=True):
            self.values.hint = y.name or self.values.hint
            name = self.name(r)
            goals.append((name, self.values.holders.get(name) if r in self.values.wishes else None))
        head, marked = len(self.lines.text), self.lines.marked
        for n, region in enumerate(op.regions):
            line = f"if {condition}:" if n == 0 else "else:" if len(self.lines.text) > head else f"if {negated(condition)}:"
            at, then = len(self.lines.text), self.lines.marked
            self.line(line, op if line != "else:" else None)
            with self.lines.block():
                self.region(region, goals)
                if not self.left:
                    if n == 0:  # a result that is one constant on both ways needs no name
                        for k, (r, y, z) in enumerate(zip(op.results, region.yields, op.regions[1].yields, strict=True)):
                            if constant(self.use(y)) and self.values.fixed(z) == self.use(y):
                                goals[k], same[r] = None, self.use(y)
                    pairs = [(goal[0], self.use(y)) for goal, y in zip(goals, region.yields, strict=True) if goal is not None]
                    self.lines.assign([name for name, _ in pairs], [text for _, text in pairs])
                self.left = False
            if len(self.lines.text) == at + 1:  # nothing to do
                del self.lines.text[at]
                self.lines.marked = marked if n == 0 else then
        self.values.texts.update(same)

    def op_each(self, op: Op) -> None:
        region, filtered = op.regions[0], bool(op.attrs.get("filtered"))
        items = self.values.names.fresh("items")
        self.line(f"{items} = []", op)
        vector, (counter, element) = self.use(op.operands[0]), region.args
        counted = self.values.uses.total[counter] > 0
        x = self.name(element)
        over = f"for {self.name(counter)}, {x} in enumerate({vector})" if counted else f"for {x} in {vector}"
        self.line(f"{over}:", op)
        before = len(self.lines.text)
        self.lines.depth += 1
        self.region(region)
        kept, made = (self.use(region.yields[1]) if filtered else ""), self.use(region.yields[0])
        whole = f"[{made} {over}{f' if {kept}' if filtered else ''}]"
        if len(self.lines.text) == before and len(whole) < WIDEST:
            del self.lines.text[-2:]
            self.values.names.taken.discard(items)
            items = whole
        else:
            if filtered:
                self.line(f"if {kept}:")
            self.lines.depth += filtered
            self.line(f"{items}.append({made})")
            self.lines.depth -= filtered
        self.lines.depth -= 1
        as_list = op.result.type.elem == "list"
        text = items if as_list else f"{self.header.need('stacked', OPS + '.vectors')}(m, {items})"
        if as_list and items.isidentifier():
            self.values.texts[op.result] = items
        else:
            self.line(f"{self.name(op.result)} = {text}", op)

    def function_of(self, region: Region, name: str, op: Op, *, rule: bool = False) -> str:
        """A nested function for a region; returns its name. Raises DecError for a model call inside."""
        asks = ("model.eval", "model.evals", "model.read", "run", "batch.fold", "batch.top")
        if any(o.opcode in asks for o in region.walk()):
            raise DecError(
                f"{op.loc}: the torch backend cannot call a model inside `{op.opcode}`",
                hint="evaluate it before, at every node, and look the rows up",
            )
        fn = self.values.names.fresh(name)
        if self.lines.text and not self.lines.text[-1].endswith(":"):
            self.lines.text.append("")
        outside = set(self.values.names.taken)
        self.line(f"def {fn}({', '.join(self.name(a) for a in region.args)}):", op)
        with self.lines.block():
            outer, self.around = self.around, [()] if rule else []
            self.region(region)
            if not self.left:
                self.line(f"return {self.verdict(region.yields) if rule else self.values.listed(region.yields)}")
            self.left, self.around = False, outer
            self.values.names.taken = outside | set(self.header.declared.values()) | set(self.header.brought)
        self.lines.text.append("")
        return fn

    def op_tree_walk(self, op: Op) -> None:
        made = self.kit.walk(self.origin.get(op, op), self.original)
        if made is not None:
            name = self.header.object(made.name, made.call, self.values.names)
            given = ", ".join(["m", *map(self.use, (*op.operands[:2], *made.captured))])
            self.line(f"{self.name(op.result)} = {name}({given})", op)
            return
        rule = self.function_of(op.regions[0], str(op.attrs.get("rule") or "rule").replace(".", "_"), op, rule=True)
        scope = "" if op.attrs["scope"] == "node" else f", scope={literal(op.attrs['scope'])}"
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
        name = self.header.object(fused.name, fused.fn, self.values.names)
        for r, y in zip(op.results, op.regions[0].yields, strict=True):
            made = self.values.producer(op.regions[0], y)
            self.values.hint = y.name or (
                hint_of(op.regions[0].ops[made], self.values.texts) if made is not None else self.values.hint
            )
            self.name(r)
        self.line(f"{self.values.targets(op)} = {name}({', '.join(['m', *map(self.use, op.operands)])})", op)


def inside(op: Op, v: Value) -> bool:
    """Whether the regions of an op use a value."""
    return any(v in r.yields or any(v in o.operands or inside(o, v) for o in r.ops) for r in op.regions)


WRITERS: dict[str, Callable[[Writer, Op], None]] = {
    "batch.fold": model_calls.fold,
    "batch.top": model_calls.top,
    "break": Writer.op_break,
    "const": Writer.op_const,
    "each": Writer.op_each,
    "for": Writer.op_for,
    "if": Writer.op_if,
    "run": Writer.op_run,
    "segment": Writer.op_segment,
    "tree.walk": Writer.op_tree_walk,
    "unfailing": Writer.op_unfailing,
    "verdict": Writer.op_verdict,
    "while": Writer.op_while,
    "model.eval": model_calls.evaluation,
    "model.evals": model_calls.evaluations,
    "model.memory": model_calls.memory,
    "model.read": model_calls.reading,
}
"""The ops that are written as statements: those that backends/torch/ops has as `written`."""
