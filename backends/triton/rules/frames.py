"""The code around a rule in its kernels: reading the tree, descending it, and precomputing features of every node."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from decgraph.backends.triton.rules.emit import HELPERS, PARAMETERS, SIZES, Again
from decgraph.backends.triton.rules.emit_columns import Columns, evidence
from decgraph.backends.triton.rules.emit_rows import closed
from decgraph.backends.triton.rules.tidy import tidied
from decgraph.backends.triton.rules.values import (
    RESERVED,
    Captured,
    Children,
    Column,
    Draw,
    Feature,
    Nodes,
    Nothing,
    Row,
    RuleNoise,
    Scalar,
    TreeOf,
    Unsupported,
)
from decgraph.backends.triton.source import HEADER, Text
from decgraph.ir.values import Op, Value


@dataclass(frozen=True)
class Written:
    """The text of a rule: the kernel `name` that verifies, `name`_rows that precomputes `features` of every node (none
    where there are no features), and their inputs. parameters: of every kernel, by name. closed: whether one-hot evidence
    needs no precomputation. drawn: see CompiledRule.drawn."""

    name: str
    source: str
    features: tuple[Feature, ...]
    slots: int
    sites: tuple[str, ...]
    ints: tuple[Any, ...]
    reals: tuple[Value, ...]
    needs: frozenset[str]
    closed: bool
    drawn: bool
    parameters: dict[str, tuple[str, ...]]


def captures(
    values: Sequence[Value], noises: dict[Value, Captured], sites: list[str], op: Op
) -> tuple[dict[Value, Any], list[Any], list[Value], list[str]]:
    """Captured values in the kernel, the columns of `counters` and of `reals`, and the lines that read them."""
    env: dict[Value, Any] = {}
    ints: list[Any] = []
    reals: list[Value] = []
    lines: list[str] = []
    taken: set[str] = set()

    def number(name: str, kind: str, key: Any) -> Scalar:
        name = f"given_{name}" if name else "given"
        while name in taken:
            name += "_"
        taken.add(name)
        if kind == "f":
            lines.append(f"{name} = tl.load(reals + b * L + {len(reals)})")
            reals.append(key)
        else:
            cast = ".to(tl.int64)" if kind == "i" else " != 0"
            lines.append(f"{name} = tl.load(counters + b * C + PREFIX + {len(ints)}){cast}")
            ints.append(key)
        return Scalar(name, kind, fixed=True)

    for v in values:
        t = v.type
        if t.elem == "noise":
            known = noises.get(v, Captured("output"))
            numbers = tuple(number("", "i", (v, i)) for i in range(known.counters))
            index = number("", "i", (v, "index")) if known.indexed else None
            name = "output" if known.kind == "output" else f"captured {len(sites)}"
            if known.kind != "output" or "output" not in sites:
                sites.append(name)
            env[v] = RuleNoise(known.kind, sites.index(name), numbers, index)
        elif t.elem == "none":
            env[v] = Nothing()
        elif t.dims or t.elem not in ("int", "token", "position", "node", "real", "prob", "bool"):
            raise Unsupported(f"it reads {v.name or 'a value'} of type {t} from outside", op)
        else:
            kind = "f" if t.elem in ("real", "prob") else "b" if t.elem == "bool" else "i"
            env[v] = number("".join(c for c in v.name if c.isalnum() or c == "_"), kind, v)
    return env, ints, reals, lines


def write(op: Op, name: str, captured: Mapping[Value, Any], noises: dict[Value, Captured]) -> Written:
    """The kernels of a verification. captured: the values read from outside, with the defining op of constants. Raises
    Unsupported."""
    guesses: dict[Value, bool] = {}
    while True:
        try:
            return _written(op, name, captured, noises, guesses)
        except Again:
            continue


def _written(
    op: Op, name: str, captured: Mapping[Value, Any], noises: dict[Value, Captured], guesses: dict[Value, bool]
) -> Written:
    region, tree = op.regions[0], op.attrs["scope"] == "tree"
    edits = not tree and region.args[1].type.elem == "edit"
    if not edits and op.operands[0].type.of[1] not in ("token", "any"):  # any: of tokens, carried from step to step
        raise Unsupported(f"a tree of {op.operands[0].type.of[1]}s is verified on the host", op)
    if not edits and op.operands[1].type.elem != "dist":
        raise Unsupported(f"evidence of type {op.operands[1].type}", op)
    sites: list[str] = []
    env, ints, reals, lines = captures([v for v, made in captured.items() if made is None], noises, sites, op)
    e = Columns(env, sites, guesses)
    e.taken |= {s.text for s in env.values() if isinstance(s, Scalar)}
    for made in captured.values():
        if made is not None:
            e.op_const(made)
    first, second, third = region.args
    seen = ""
    if tree:
        e.env.update(
            {
                first: e.constant(0, "i"),
                second: TreeOf(),
                third: Nodes("evidence", Column("index.to(tl.int64)", "i", "", ids=True)),
            }
        )
    else:
        seen = e.fresh(second.name or "p")
        e.env.update(
            {first: Scalar("depth", "i"), third: Children(), second: Scalar(seen, "i") if edits else Row(seen, "node")}
        )
    e.needs.add("p")
    e.text.depth = 1 if tree else 2
    yields = e.region(region)
    _end(e, op, yields, tree)
    used = str(e.text)
    body = Text()
    body.depth = 1
    body.line("b = tl.program_id(0).to(tl.int64)")
    _common(body, e, lines)
    for slot in range(e.slots):
        body.line(f"buffer_{slot} = tl.full((), 0, tl.int64)")
    _tree_columns(body, used, tree)
    _outputs(body)
    if not tree:
        _walk_head(body, e, seen, edits, used)
    body.lines += used.splitlines()
    body.line("emitted = tl.where(fault == 0, emitted, -1)")
    for i, what in enumerate(
        ("node", "depth", "emitted", "fault", "ended_slot", "ended_mass.to(tl.float64).to(tl.int64, bitcast=True)", "visited")
    ):
        body.line(f"tl.store(packed + b * width + {i}, {what})")
    source = Text()
    source.lines += [*HEADER.splitlines(), ""]
    before = f"Features of every node's distribution for `{name}`: a program for each node and part of the vocabulary."
    parts = [
        (f"{name}_rows", _rows_body(e, lines), before),
        (
            name,
            str(body).replace("b * SLOTS", f"b * {2 * e.slots}"),
            f"A tree verified by the rule `{name}`: a program for each sequence.",
        ),
    ]
    words = set(re.findall(r"\w+", "".join(text for _, text, _ in parts)))
    helpers = ", ".join(h for h in sorted(HELPERS) if h in words)
    if "hash_end" in words:
        source.line("from decgraph.backends.triton.prelude import hash_end")
    if helpers:
        source.lines += _wrapped(f"from decgraph.backends.triton.rules.kernels import ({helpers})")
    parameters: dict[str, tuple[str, ...]] = {}
    for kernel, text, doc in parts:
        if text:
            parameters[kernel] = _kernel(source, kernel, text, doc)
    shut = not tree and all(closed(f, "") is not None for f in e.features)
    drawn = shut and len(e.features) == 1 and e.features[0].kind == "race" and not edits and not _looked_into(used, seen)
    return Written(
        name,
        str(source),
        tuple(e.features),
        2 * e.slots,
        tuple(sites),
        tuple(ints),
        tuple(reals),
        frozenset(e.needs),
        shut,
        drawn,
        parameters,
    )


def _wrapped(line: str) -> list[str]:
    """A long head over several lines; a parameter stays with its annotation."""
    lines = textwrap.wrap(line.replace(": tl", ":~tl"), 120, subsequent_indent=" " * (line.index("(") + 1))
    return [text.replace(":~tl", ": tl") for text in lines]


def _kernel(out: Text, name: str, body: str, doc: str) -> tuple[str, ...]:
    """Write a kernel with the parameters that its body uses; their names, constexprs last."""
    body = tidied(body, frozenset({*RESERVED, *PARAMETERS, *SIZES, *HELPERS}))
    words = set(re.findall(r"\w+", body))
    plain, sizes = [p for p in PARAMETERS if p in words], [s for s in SIZES if s in words]
    out.lines += ["", "", "@triton.jit"]
    out.lines += _wrapped(f"def {name}({', '.join([*plain, *(f'{s}: tl.constexpr' for s in sizes)])}):")
    made = {m[1] for m in re.finditer(r"^    (\w+) = tl\.full\(", body, re.M) if len(re.findall(rf"\b{m[1]}\b", body)) == 1}
    out.lines += [f'    """{doc}"""', *(t for t in body.splitlines() if t.split(" = ")[0].strip() not in made)]
    return (*plain, *sizes)


def _common(out: Text, e: Columns, lines: Sequence[str]) -> None:
    """Captured numbers, the seed, and constants."""
    out.line("ELEM: tl.constexpr = scratch.dtype.element_ty")
    for text, name in e.pool.items():
        out.line(f"{name} = {text}")
    for text in lines:
        out.line(text)
    if "noise" in e.needs:
        out.line("k0 = tl.load(seeds + b * 2).to(tl.uint32)")
        out.line("k1 = tl.load(seeds + b * 2 + 1).to(tl.uint32)")
        out.line("state = prefixed(counters + b * C, PREFIX)")


def _tree_columns(out: Text, used: str, tree: bool) -> None:
    out.line("index = tl.arange(0, NB)")
    out.line("exists = index < N")
    with out.block("if LIVE:"):
        out.line("exists = exists & (tl.load(live + b * N + index, mask=exists, other=0) != 0)")
    out.line("above = tl.load(parents + b * N + index, mask=exists & (index > 0), other=0).to(tl.int32)")
    if tree:
        out.line("up = tl.where(exists, above, 0)")
        out.line("depths = depths_of(up, index, D)")
        out.line("height = tl.max(tl.where(exists, depths, 0))")
        if "leaf" in used:
            out.line("leaf = index < 0")
            with out.block("for other in range(0, N):"):
                out.line("inner = (above == other) & exists & (index > 0)")
                out.line("leaf = leaf | ((index == other) & (tl.sum(inner.to(tl.int32)) == 0))")


def _outputs(out: Text) -> None:
    out.line("width = 7 + 3 * D")
    out.line("path = packed + b * width + 7")
    out.line("tests = path + D")
    with out.block("for start in range(0, 3 * D, 64):"):
        out.line("at = start + tl.arange(0, 64)")
        out.line("tl.store(path + at, tl.where(at < D, -1, 0).to(tl.int64), mask=at < 3 * D)")
    out.line("tl.debug_barrier()   # before single entries are written over it")
    for name, start in (("node", 0), ("depth", 0), ("emitted", -1), ("fault", 0), ("ended_slot", -3), ("visited", 0)):
        out.line(f"{name} = tl.full((), {start}, tl.int64)")
    out.line("ended_mass = tl.full((), 1.0, ELEM)")


def _walk_head(out: Text, e: Columns, p: str, edits: bool, used: str) -> None:
    _row_of(out, "row", "node")
    out.line("walking = row >= 0")
    out.line("while walking:")
    out.depth += 1
    out.line("children = exists & (above == node.to(tl.int32)) & (index > 0)")
    if "(order ==" in used:
        out.line("order = tl.cumsum(children.to(tl.int32), 0) - 1")
    if "child_tokens" in used:
        out.line("child_tokens = tl.load(tokens + b * N + index, mask=children, other=-1)")
    if "node_position" in used:
        out.line("node_position = tl.load(positions + b) + depth")
        with out.block("if PLACED:"):
            out.line("node_position = tl.load(positions + b * N + node)")
    if edits:
        out.line(f"{p} = tl.load(prob_points + b * R + row)")
    elif _looked_into(used, p):
        evidence(out, p, "row", e.one(), e.constant(-1, "i").text)
    else:
        out.line(f"{p}_mass = {e.one()}")
        out.line(f"{p}_slot = {e.constant(-1, 'i').text}")
    out.depth -= 1


def _looked_into(used: str, p: str) -> bool:
    """Whether a rule's text reads the row p itself, not only its precomputed features."""
    return bool(re.search(rf"\b{p}_(point|base)\b", used))


def _row_of(out: Text, name: str, node: str) -> None:
    out.line(f"{name} = {node}")
    with out.block("if ROWS:"):
        out.line(f"{name} = tl.load(rows + b * N + {node})")


def _end(e: Columns, op: Op, yields: Sequence[Any], tree: bool) -> None:
    """Write the effect of the rule's verdict (accepts, which, emits, token)."""
    t = e.text
    has, which, emits, token = yields
    e.one()
    e.constant(-1, "i")
    if not isinstance(has, Scalar) or not isinstance(emits, Scalar):
        raise Unsupported("the verdict whether it accepts is no number", op)
    name, slot, mass = _emission(token, op)
    if tree:
        if isinstance(which, Nothing):
            which = e.constant(0, "i")
        if not isinstance(which, Scalar):
            raise Unsupported("the accepted value is no node", op)
        t.line(f"node = tl.where({has.text}, {which.text}, 0)")
        t.line("depth = depth_of(node, parents + b * N)")
        t.line("child = node")
        t.line("at_depth = depth")
        with t.block("while child > 0:"):
            t.line("at_depth -= 1")
            t.line("tl.store(path + at_depth, child, mask=at_depth < D)")
            t.line("tl.store(tests + 2 * at_depth, at_depth * 0 + 1, mask=at_depth < D)")
            t.line("tl.store(tests + 2 * at_depth + 1, at_depth * 0 + 1, mask=at_depth < D)")
            t.line("child = tl.load(parents + b * N + child)")
        t.line("below = tl.sum((exists & (above == node.to(tl.int32)) & (index > 0)).to(tl.int64))")
        t.line("tl.store(tests + 2 * depth, (below > 0).to(tl.int64), mask=depth < D)")
    else:
        t.line("visited += 1")
        child = ""
        if isinstance(which, Draw):
            child = f"{which.name}_node"
            if not which.child:
                t.line(
                    f"{which.name}_twin = tl.min(tl.where(children & (tl.load(tokens + b * N + index, mask=children, "
                    f"other=-1) == {which.name}_token), index, NB)).to(tl.int64)"
                )
                t.line(f"child = tl.where({child} >= 0, {child}, {which.name}_twin)")
                t.line(f"fault = tl.where({has.text} & (child == NB), 4, fault)")
                t.line("child = tl.where(child == NB, 0, child)")
                child = "child"
        elif not isinstance(which, Nothing):
            raise Unsupported("the accepted value is no draw", op)
        t.line(
            f"accepted = {has.text} & ({child} > 0) & (fault == 0)"
            if not isinstance(which, Nothing)
            else f"accepted = {has.text} & (depth < 0)"
        )
        t.line("tl.store(tests + 2 * depth, (tl.sum(children.to(tl.int32)) > 0).to(tl.int64), mask=depth < D)")
        t.line("tl.store(tests + 2 * depth + 1, accepted.to(tl.int64), mask=depth < D)")
        if not isinstance(which, Nothing):
            with t.block("if accepted:"):
                t.line(f"tl.store(path + depth, {child}, mask=depth < D)")
                t.line(f"node = {child}")
                t.line("depth += 1")
    if name:
        t.line(f"emitted = tl.where({emits.text}, {name}, emitted)")
        t.line(f"ended_slot = tl.where({emits.text}, {slot}, ended_slot)")
        if mass:
            t.line(f"ended_mass = tl.where({emits.text}, {mass}, ended_mass)")
    if not tree:
        t.line(f"walking = accepted & ({emits.text} == 0)")
        with t.block("if walking:"):
            t.line("row = node")
            with t.block("if ROWS:"):
                t.line("row = tl.load(rows + b * N + node)")
        t.line("walking = walking & (row >= 0)")


def _emission(token: Any, op: Op) -> tuple[str, str, str]:
    """The variables of an emitted token, its row's slot, and the mass there."""
    if isinstance(token, Nothing):
        return "", "", ""
    if isinstance(token, Draw):
        return f"{token.name}_token", f"{token.name}_slot", f"{token.name}_mass"
    if isinstance(token, Scalar) and token.kind == "i":
        return token.text, "-4", ""
    raise Unsupported("the emitted value is no token", op)


def _rows_body(e: Columns, lines: Sequence[str]) -> str:
    """The body of the kernel that computes the features: a program for each node and each part of the vocabulary."""
    if not e.features:
        return ""
    out = Text()
    f = Columns(dict(e.env), list(e.sites), {})
    f.pool, f.needs = e.pool, e.needs
    f.text.depth = 2
    row = Row("evidence", "here")
    folds = [(f"feature_{n}", x.kind, x.vec) for n, x in enumerate(e.features) if x.kind != "race"]
    if folds:
        f.fold(f.text, folds, "lo", "hi")
    for n, x in enumerate(e.features):
        if x.noise is not None and x.op is not None:
            f.text.mark(x.op)
            key = f.keys(x.noise, x.op, row, f"feature_{n}")
            f.text.line(f"feature_{n}_best, feature_{n}_who = race({row.handle()}, {key}, lo, hi, V, BLOCK)")
    out.depth = 1
    out.line("n = tl.program_id(0).to(tl.int64)")
    out.line("split = tl.program_id(1)")
    out.line("b = n // N")
    out.line("here = n % N")
    _common(out, e, lines)
    _row_of(out, "row", "here")
    out.line("wanted = row >= 0")
    with out.block("if LIVE:"):
        out.line("wanted = wanted & (tl.load(live + n) != 0)")
    evidence(out, "evidence", "row", e.one(), e.constant(-1, "i").text)
    out.line("lo = split * PER")
    out.line("hi = tl.minimum(lo + PER, V)")
    with out.block("if wanted:"):
        if "here_position" in str(f.text):
            with out.block("if PLACED:"):
                out.line("here_position = tl.load(positions + n)")
            with out.block("else:"):
                out.line("here_position = tl.load(positions + b) + depth_of(here, parents + b * N)")
    out.lines += str(f.text).splitlines()
    out.depth = 2
    for n, x in enumerate(e.features):
        where = f"({n} * BN + n) * SPLITS + split"
        value = f"feature_{n}_best" if x.kind in ("race", "arg") else f"feature_{n}"
        out.line(f"tl.store(values + {where}, {value}.to(tl.float64))")
        if x.kind in ("race", "arg"):
            out.line(f"tl.store(whos + {where}, feature_{n}_who)")
    return str(out)


__all__ = ["Written", "captures", "write"]
