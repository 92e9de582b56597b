"""Loops, branches, rules and early ends as Python's own statements.

Where a branch of the IR ends with `break` or `verdict` the driver leaves there, and needs none of the flags by which the IR
says the same: those that every such way sets are constants on the ways that go on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from decgraph.backends.torch.header import OPS
from decgraph.backends.torch.lowering import lower
from decgraph.backends.torch.texts import CONSTANTS, atom, constant, hint_of, negated
from decgraph.backends.torch.values import WIDEST, literal
from decgraph.backends.torch.writer import Form, Writer
from decgraph.errors import DecError
from decgraph.ir.places import loop_tree
from decgraph.ir.values import Op, Region, Value
from decgraph.ir.walk import EXITS, breaks


@dataclass(frozen=True)
class Chain:
    """An autoregressive draft loop: its `for` op, the model, and the noise op of its draw."""

    model: Value
    noise: Op
    alone: bool


def chain_of(op: Op) -> Chain | None:
    """The draft loop that a `for` op is, or None. One tree is carried; its body is leaves, call, noise, draw, grow and no
    more:

    repeat gamma:
        x ~ drafter(t.leaves)
        grow x
    """
    region = op.regions[0]
    if op.attrs.get("stops") or op.attrs.get("lanes") or len(op.operands) != 3 or op.operands[2].type.elem != "tree":
        return None
    flat = list(_flattened(region.ops))
    body = [o for o in flat if o.opcode != "const"]
    if [o.opcode for o in body] not in (_SHAPE, _OTHER):
        return None
    found = {o.opcode: o for o in body}
    nodes, asked, noise, drawn, grown = (found[c] for c in _SHAPE)
    tree, same = region.args[1], _aliases(region.ops)
    plain = (
        nodes.attrs["which"] == "leaves"
        and same(nodes.operands[0]) is tree
        and tuple(asked.attrs.get("with", ())) == ("tree",)
        and not asked.attrs.get("part")
        and same(asked.operands[1]) is nodes.result
        and same(asked.operands[2]) is tree
        and same(drawn.operands[0]) is asked.result
        and same(drawn.operands[1]) is noise.result
        and same(grown.operands[0]) is tree
        and same(grown.operands[1]) is drawn.result
        and len(grown.operands) == 2
        and not grown.attrs.get("has_at")
        and not grown.attrs.get("columns")
        and not grown.attrs.get("chain")
        and same(region.yields[0]) is grown.results[0]
    )
    inside = {r for o in flat for r in o.results} | {tree}
    plain = plain and asked.operands[0] not in inside and not any(v in inside for v in noise.operands)
    return Chain(asked.operands[0], noise, not asked.attrs.get("joint")) if plain and len(drawn.operands) == 2 else None


_SHAPE = ["tree.nodes", "model.eval", "noise", "draw", "tree.grow"]
_OTHER = ["tree.nodes", "noise", "model.eval", "draw", "tree.grow"]


def _flattened(ops: Sequence[Op]) -> Sequence[Op]:
    """The ops, those of segments in place."""
    out: list[Op] = []
    for op in ops:
        out += _flattened(op.regions[0].ops) if op.opcode == "segment" else [op]
    return out


def _aliases(ops: Sequence[Op]) -> Callable[[Value], Value]:
    """Which value inside a segment one of its results is."""
    same: dict[Value, Value] = {}
    for op in ops:
        if op.opcode == "segment":
            inner = _aliases(op.regions[0].ops)
            same.update((r, inner(y)) for r, y in zip(op.results, op.regions[0].yields, strict=True))
    return lambda v: same.get(v, v)


def started(w: Writer, op: Op, init: Sequence[Value], known: Sequence[str | None] = ()) -> list[str]:
    """The names of a loop's results, with their first values assigned. The name of a value that nothing else uses is taken
    over. known: of each result, the constant that it is while the loop runs, which needs no name."""
    region, at = w.values.place
    names: list[str] = []
    for n, (r, v) in enumerate(zip(op.results, init, strict=True)):
        fixed = known[n] if known else None
        if fixed is not None:
            names.append(fixed)
            continue
        mine = w.values.texts.get(v, "")
        rests = max(w.values.uses.places(region, v), default=0) <= at and not inside(op, v) and mine not in names
        if (
            r not in w.values.wishes
            and mine.isidentifier()
            and mine not in w.values.pinned
            and rests
            and w.values.assignable(region, v)
        ):
            w.values.texts[r] = mine
        else:
            w.values.hint = hint_of(op, w.values.texts)
        names.append(w.name(r))
    w.lines.assign(names, [w.use(v) for v in init], op)
    return names


def for_loop(w: Writer, op: Op) -> None:
    """A `for` over a range; where its body drafts a chain that an engine can draft by itself, one call of that."""
    chain = chain_of(op)
    if chain is not None:
        draft_loop(w, op, chain)
        return
    lo, hi, *init = op.operands
    region = op.regions[0]
    constants = constants_of(w, op, init)
    results = started(w, op, init, constants)
    w.values.texts.update(zip(region.args[1:], results, strict=True))
    w.values.hint = "n"
    over(w, op, region, lo, hi)
    with w.lines.block():
        before = len(w.lines.text)
        filled(w, op, results)
        loop_body(w, op, results, constants)
        if len(w.lines.text) == before:
            w.line("pass")


def loop_body(w: Writer, op: Op, results: Sequence[str], constants: Sequence[str | None]) -> None:
    """The body of a loop and its end. results: the names of what the loop carries; constants: see `constants_of`."""
    region, stops = op.regions[-1], bool(op.attrs.get("stops"))
    into: list[tuple[str, Value | None] | None] = [
        None if constant else (name, v) for name, v, constant in zip(results, region.args[1:], constants, strict=True)
    ]
    outer, w.looped = w.looped, region if stops else None
    w.around.append(results)
    w.region(region, [None, *into] if stops else into)
    w.around.pop()
    w.looped = outer
    if not w.ended:
        end_of_body(w, results, [w.use(y) for y in region.yields], stops=stops)
    w.ended = False
    w.values.texts.update((r, constant) for r, constant in zip(op.results, constants, strict=True) if constant is not None)


def end_of_body(w: Writer, results: Sequence[str], texts: Sequence[str], *, stops: bool) -> None:
    """The end of a loop's body, which yields `texts`."""
    stop, last = (texts[0], texts[1:]) if stops else ("False", texts)
    changed = {name for name, text in zip(results, last, strict=True) if name != text}
    if stop not in CONSTANTS and changed & set(re.findall(r"\w+", stop)):
        w.line(f"stop = {stop}")
        stop = "stop"
    w.lines.assign(list(results), list(last))
    if stop == "True":
        w.line("break")
    elif stop != "False":
        w.line(f"if {stop}:")
        with w.lines.block():
            w.line("break")


def break_(w: Writer, op: Op) -> None:
    """`break`, after its values are assigned to the results of the loop that it ends."""
    if can_leave(w, "break"):
        w.lines.assign(list(w.around[-1] or ()), [w.use(v) for v in op.operands])
        w.line("break")
        w.ended = True


def return_verdict(w: Writer, op: Op) -> None:
    """`return` of a rule's verdict."""
    if can_leave(w, "verdict"):
        w.line(f"return {verdict(w, op.operands)}")
        w.ended = True


def can_leave(w: Writer, opcode: str) -> bool:
    """Whether what is written now can end the loop or the rule around it: what drafts a tree ends by itself, and then the
    flags that the loop carries say the rest."""
    return bool(w.around) and None not in w.around[-1 if opcode == "break" else 0 :]


def leaves(w: Writer, region: Region) -> bool:
    """Whether every way through a region ends the loop or the rule around it."""
    return any(
        can_leave(w, op.opcode) if op.opcode in EXITS else op.opcode == "if" and all(leaves(w, r) for r in op.regions)
        for op in region.ops
    )


def constants_of(w: Writer, op: Op, init: Sequence[Value]) -> list[str | None]:
    """For each value that a loop carries the constant that it is as long as the loop runs, None: it changes. Flags are such
    constants where each way that sets them leaves."""
    w.around.append(())
    first = [constant(w.use(v)) for v in init]
    found = [text if text is not None and stays(w, op, n, text) else None for n, text in enumerate(first)]
    w.around.pop()
    return found


def stays(w: Writer, loop: Op, n: int, text: str) -> bool:
    """Whether the n-th value that a loop carries is a constant after every iteration, if it is before."""
    body = loop.regions[-1]
    ends = [body.yields[n + bool(loop.attrs.get("stops"))], *(op.operands[n] for op in breaks(body))]
    return all(always(w, v, body.args[1 + n], text) for v in ends)


def always(w: Writer, v: Value, carried: Value, text: str) -> bool:
    """Whether a value is a constant on all ways that have not left, if `carried` is."""
    made = w.values.producers.get(v)
    if v is carried or w.values.fixed(v) == text:
        return True
    if made is None or made.opcode not in ("if", "for", "while"):
        return False
    n = made.results.index(v)
    if made.opcode == "if":
        return all(leaves(w, r) or always(w, r.yields[n], carried, text) for r in made.regions)
    first = made.operands[len(made.operands) - len(made.results) + n]
    return always(w, first, carried, text) and stays(w, made, n, text)


def verdict(w: Writer, values: Sequence[Value]) -> str:
    """What a rule returns, (accepts, child, emits, token), as `accept`, `emit` or `reject` where that is known."""
    accepts, child, emits, token = texts = [w.use(v) for v in values]
    if (accepts, emits) == ("True", "False"):
        return f"{w.support('accept')}({child})"
    if (accepts, emits) == ("True", "True"):
        return f"{w.support('accept')}({child}, emit={token})"
    if (accepts, emits) == ("False", "True"):
        return f"{w.support('emit')}({token})"
    return f"{w.support('reject')}()" if (accepts, emits) == ("False", "False") else ", ".join(texts)


def over(w: Writer, op: Op, region: Region, lo: Value, hi: Value) -> None:
    """The head of a `for` loop: over the elements of a vector where the body begins by taking one; else over numbers."""
    counter = region.args[0]
    counted = w.values.producers.get(hi)
    wanted = (counted.operands[0], counter) if counted is not None and counted.opcode == "len" else ()
    first = next((o for o in region.ops if o.opcode == "gather" and o.operands == wanted), None)
    if w.use(lo) == "0" and counted is not None and first is not None and w.values.texts.get(hi, "").startswith("len("):
        vector = w.use(counted.operands[0])
        w.skipped = first
        w.values.hint = hint_of(first, w.values.texts)
        element = w.name(first.result)
        if w.values.uses.once(counter):
            w.line(f"for {element} in {vector}:", op)
        else:
            w.values.hint = "n"
            w.line(f"for {w.name(counter)}, {element} in enumerate({vector}):", op)
        return
    ends = [w.values.whole(lo), w.values.whole(hi)]
    if not w.values.uses.total[counter]:
        w.values.texts[counter] = "_"
    w.line(f"for {w.name(counter)} in range({', '.join(ends if ends[0] != '0' else ends[1:])}):", op)


def filled(w: Writer, op: Op, results: Sequence[str]) -> None:
    """No iteration of a loop that drafts where nothing fits any more."""
    if "fills" in op.attrs and loop_tree(op) >= 0:
        w.line(f"if m.full({results[loop_tree(op)]}, {literal(op.attrs['fills'].rpartition('.')[2])}):")
        with w.lines.block():
            w.line("break")


def draft_loop(w: Writer, op: Op, chain: Chain) -> None:
    """An autoregressive draft loop as one call of the machine (draft_loops.py)."""
    lo, hi, tree = op.operands
    result = started(w, op, [tree])[0]
    counter = w.name(op.regions[0].args[0])
    noise = lower(chain.noise)
    kwargs = [f"{k}={literal(v)}" for k, v in noise.kwargs.items()]
    args = [counter if v is op.regions[0].args[0] else w.use(v) for v in chain.noise.operands]
    name = w.header.call(chain.noise, noise, w.values.names)
    alone = ", alone=True" if chain.alone else ""
    told = ", ".join([w.use(chain.model), w.use(tree), w.values.whole(lo), w.values.whole(hi)])
    w.values.names.taken.discard(counter)
    drawn = f"lambda {counter}: {name}({', '.join(['m', *args, *kwargs])})"
    w.line(f"{result} = yield from m.draft_loop({told}, {drawn}{alone})", op)
    w.asks = True


def while_loop(w: Writer, op: Op) -> None:
    """`while`, its condition as an expression where it is one; a bounded one counts its iterations."""
    init = list(op.operands)
    limit = w.use(init.pop(0)) if op.attrs.get("limited") else None
    cond, body = op.regions
    constants = constants_of(w, op, init)
    results = started(w, op, init, constants)
    for region in (cond, body):
        w.values.texts.update(zip(region.args[1:], results, strict=True))
    where = literal(str(op.loc))
    last = w.values.producers.get(cond.yields[0])
    if (
        op.attrs.get("bound") == "done"
        and [o.opcode for o in cond.ops] == ["done", "map"]
        and last is not None
        and last is cond.ops[1]
        and last.attrs["fn"] == "not"
        and not limit
        and "fills" not in op.attrs
    ):
        counter = w.values.names.fresh("step") if w.values.uses.total[body.args[0]] else "_"
        w.values.texts[body.args[0]] = counter
        w.line(f"for {counter} in {w.support('until_done')}(m, {where}):", op)
        w.lines.depth += 1
        loop_body(w, op, results, constants)
        w.lines.depth -= 1
        return
    w.values.hint = "n"
    counter = w.name(cond.args[0])
    w.values.texts[body.args[0]] = counter
    w.line(f"{counter} = 0")
    head, marked = len(w.lines.text), w.lines.marked
    w.line("while True:", op)
    w.lines.depth += 1
    filled(w, op, results)
    w.region(cond)
    within = f"{counter} < {limit}" if limit else ""
    goes_on = w.use(cond.yields[0])
    if len(w.lines.text) == head + 1:  # the condition is one expression
        del w.lines.text[head]
        w.lines.marked, w.lines.depth = marked, w.lines.depth - 1
        w.line(f"while {within + ' and ' + atom(goes_on) if within else goes_on}:", op)
        w.lines.depth += 1
    else:
        w.lines.text[head] = w.lines.text[head].replace("while True:", f"while {within}:") if within else w.lines.text[head]
        w.line(f"if {negated(goes_on)}:")
        w.lines.depth += 1
        w.line("break")
        w.lines.depth -= 1
    check = {"done": "check_progress", "cells": "check_waiting"}.get(str(op.attrs.get("bound")), "check_bound")
    w.line(f"m.{check}({where}, {counter})")
    loop_body(w, op, results, constants)
    w.line(f"{counter} += 1")  # last: what an iteration yields may be its number
    w.lines.depth -= 1


def unfailing(w: Writer, op: Op) -> None:
    """What cannot fail here is true."""
    w.values.texts[op.result] = "True"


def draft(w: Writer, op: Op) -> None:
    """A block that drafts a tree, which an error in it ends."""
    (region, n), block, before = w.values.place, op.regions[0], op.regions[1].yields[0]
    name, drafting = w.use(before), w.values.names.fresh("drafting")
    w.line(f"with m.drafting({literal(op.attrs['draft'])}, {name}) as {drafting}:", op)
    if w.values.assignable(region, before) and max(w.values.uses.places(region, before)) <= n and name not in w.values.pinned:
        w.values.texts[op.result] = name
        w.values.assignable_trees.add(before)
    with w.lines.block():
        w.around.append(None)
        w.region(block, [None])
        w.around.pop()
        w.line(f"{drafting}.tree = {w.use(block.yields[0])}")
    w.values.names.taken.discard(drafting)
    w.line(f"{w.name(op.result)} = {drafting}.tree")


def if_else(w: Writer, op: Op) -> None:
    """`if` and `else`, or a conditional expression; branches that draft run in the block of their tree."""
    if "draft" in op.attrs:
        return draft(w, op)
    here = w.values.place
    condition = w.use(op.operands[0])
    if constant(condition):
        branch(w, op, op.regions[condition == "False"])
        return
    way = next((n for n, r in enumerate(op.regions) if leaves(w, r)), None)
    if way is None:
        way = next((n for n in (0, 1) if leads_out(w, op, n)), None)
    if way is None:
        branches(w, op, condition)
        return
    w.line(f"if {negated(condition) if way else condition}:", op)
    with w.lines.block():
        if leaves(w, op.regions[way]):
            w.region(op.regions[way])
        elif here[1] + 1 < len(here[0].ops):
            w.region(here[0].ops[here[1] + 1].regions[0])
        else:
            end_of_body(w, w.around[-1] or (), ["True", *map(w.use, here[0].yields[1:])], stops=True)
    w.ended, w.values.place = False, here
    for v, text in decided(w, op.operands[0], "True" if way else "False").items():
        if w.values.producer(here[0], v) is not None:
            w.values.texts[v] = text
    branch(w, op, op.regions[1 - way])


def leads_out(w: Writer, op: Op, way: int) -> bool:
    """Whether a branch of an `or` decides that the next `if` leaves, with what is known already, or that the loop stops."""
    region, n = w.values.place
    if len(op.results) != 1 or not w.values.uses.once(op.result) or w.values.fixed(op.regions[way].yields[0]) != "True":
        return False
    if n + 1 == len(region.ops):
        return region is w.looped and region.yields[0] is op.result and can_leave(w, "break")
    after = region.ops[n + 1]
    if after.opcode != "if" or after.operands[0] is not op.result or not leaves(w, after.regions[0]):
        return False
    return all(o.opcode in ("const", *EXITS) for o in (*op.regions[way].ops, *after.regions[0].ops))


def decided(w: Writer, condition: Value, value: str) -> dict[Value, str]:
    """The conditions that follow from the value of `condition`: itself, what it negates, and what negates these."""
    out = {condition: value}
    made = w.values.producers.get(condition)
    while made is not None and made.opcode == "map" and made.attrs["fn"] == "not":
        condition, value = made.operands[0], negated(value)
        out[condition] = value
        made = w.values.producers.get(condition)
    for op in w.values.place[0].ops:
        if op.opcode == "map" and op.attrs["fn"] == "not" and op.operands[0] in out:
            out[op.result] = negated(out[op.operands[0]])
    return out


def branch(w: Writer, op: Op, region: Region) -> None:
    """The branch of an `if` with a constant condition, in its place."""
    goals = [w.values.wishes.get(r) for r in op.results]
    w.region(region, [None if name is None else (name, w.values.holders.get(name)) for name in goals])
    if w.ended:
        return
    within = {v for o in region.ops for v in o.results}
    for r, y in zip(op.results, region.yields, strict=True):
        text = w.use(y)
        made = w.values.producers.get(y)
        stays = y in within or made is not None and made.opcode not in ("for", "while", "const")
        if constant(text) or w.values.uses.total[r] == 0:
            w.values.texts[r] = text
        elif r not in w.values.wishes and stays and text.isidentifier():
            w.values.texts[r] = text
            w.values.pinned.add(text)
        else:
            w.values.hint = y.name or w.values.hint
            w.lines.assign([w.name(r)], [text], op)


def branches(w: Writer, op: Op, condition: str) -> None:
    """Both branches of an `if`."""
    goals: list[tuple[str, Value | None] | None] = []
    same: dict[Value, str] = {}
    for r, y in zip(op.results, op.regions[0].yields, strict=True):
        w.values.hint = y.name or w.values.hint
        name = w.name(r)
        goals.append((name, w.values.holders.get(name) if r in w.values.wishes else None))
    head, marked = len(w.lines.text), w.lines.marked
    for n, region in enumerate(op.regions):
        line = f"if {condition}:" if n == 0 else "else:" if len(w.lines.text) > head else f"if {negated(condition)}:"
        at, then = len(w.lines.text), w.lines.marked
        w.line(line, op if line != "else:" else None)
        with w.lines.block():
            w.region(region, goals)
            if not w.ended:
                if n == 0:  # a result that is one constant on both ways needs no name
                    for k, (r, y, z) in enumerate(zip(op.results, region.yields, op.regions[1].yields, strict=True)):
                        if constant(w.use(y)) and w.values.fixed(z) == w.use(y):
                            goals[k], same[r] = None, w.use(y)
                pairs = [(goal[0], w.use(y)) for goal, y in zip(goals, region.yields, strict=True) if goal is not None]
                w.lines.assign([name for name, _ in pairs], [text for _, text in pairs])
            w.ended = False
        if len(w.lines.text) == at + 1:  # nothing to do
            del w.lines.text[at]
            w.lines.marked = marked if n == 0 else then
    w.values.texts.update(same)


def each(w: Writer, op: Op) -> None:
    """A comprehension: a list that a loop appends to."""
    region, filtered = op.regions[0], bool(op.attrs.get("filtered"))
    items = w.values.names.fresh("items")
    w.line(f"{items} = []", op)
    vector, (counter, element) = w.use(op.operands[0]), region.args
    counted = w.values.uses.total[counter] > 0
    x = w.name(element)
    over = f"for {w.name(counter)}, {x} in enumerate({vector})" if counted else f"for {x} in {vector}"
    w.line(f"{over}:", op)
    before = len(w.lines.text)
    w.lines.depth += 1
    w.region(region)
    kept, made = (w.use(region.yields[1]) if filtered else ""), w.use(region.yields[0])
    whole = f"[{made} {over}{f' if {kept}' if filtered else ''}]"
    if len(w.lines.text) == before and len(whole) < WIDEST:
        del w.lines.text[-2:]
        w.values.names.taken.discard(items)
        items = whole
    else:
        if filtered:
            w.line(f"if {kept}:")
        w.lines.depth += filtered
        w.line(f"{items}.append({made})")
        w.lines.depth -= filtered
    w.lines.depth -= 1
    as_list = op.result.type.elem == "list"
    text = items if as_list else f"{w.header.need('stacked', OPS + '.vectors')}(m, {items})"
    if as_list and items.isidentifier():
        w.values.texts[op.result] = items
    else:
        w.line(f"{w.name(op.result)} = {text}", op)


def function_of(w: Writer, region: Region, name: str, op: Op, *, rule: bool = False) -> str:
    """A nested function for a region; returns its name. Raises DecError for a model call inside."""
    asks = ("model.eval", "model.evals", "model.read", "run", "batch.fold", "batch.top")
    if any(o.opcode in asks for o in region.walk()):
        raise DecError(
            f"{op.loc}: the torch backend cannot call a model inside `{op.opcode}`",
            hint="evaluate it before, at every node, and look the rows up",
        )
    fn = w.values.names.fresh(name)
    if w.lines.text and not w.lines.text[-1].endswith(":"):
        w.lines.text.append("")
    outside = set(w.values.names.taken)
    w.line(f"def {fn}({', '.join(w.name(a) for a in region.args)}):", op)
    with w.lines.block():
        outer = w.around
        w.around = [()] if rule else []
        w.region(region)
        if not w.ended:
            w.line(f"return {verdict(w, region.yields) if rule else w.values.listed(region.yields)}")
        w.ended, w.around = False, outer
        w.values.names.taken = outside | set(w.header.declared.values())
    w.lines.text.append("")
    return fn


def tree_walk(w: Writer, op: Op) -> None:
    """A verification, its rule as a function."""
    rule = function_of(w, op.regions[0], str(op.attrs.get("rule") or "rule").replace(".", "_"), op, rule=True)
    scope = "" if op.attrs["scope"] == "node" else f", scope={literal(op.attrs['scope'])}"
    given = ", ".join(["m", *map(w.use, op.operands[:2]), rule])
    w.line(f"{w.name(op.result)} = {w.support('walk')}({given}{scope})", op)


def sub_run(w: Writer, op: Op) -> None:
    """A run of another algorithm, with its `until` as a function."""
    until = function_of(w, op.regions[0], "until", op)
    start, bound, *rest = (w.use(v) for v in op.operands)
    n = len(op.attrs["args"])
    tree = rest[n] if op.attrs["has_tree"] else "None"
    counters = rest[n + 1 if op.attrs["has_tree"] else n :]
    args = ", ".join(f'"{k}": {v}' for k, v in zip(op.attrs["args"], rest))
    w.asks = True
    listed = "".join(f"{c}, " for c in counters)
    w.line(
        f"{w.name(op.result)} = yield from m.sub_run({op.attrs['callee']!r}, {op.attrs['site']!r}, {start}, "
        f"int({bound}), {{{args}}}, {tree}, ({listed}), {until})",
        op,
    )


def inside(op: Op, v: Value) -> bool:
    """Whether the regions of an op use a value."""
    return any(v in r.yields or any(v in o.operands or inside(o, v) for o in r.ops) for r in op.regions)


FORMS: dict[str, Form] = {
    "break": break_,
    "each": each,
    "for": for_loop,
    "if": if_else,
    "run": sub_run,
    "tree.walk": tree_walk,
    "unfailing": unfailing,
    "verdict": return_verdict,
    "while": while_loop,
}
