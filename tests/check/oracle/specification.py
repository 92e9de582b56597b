"""What the claims speak of, without a program: text one token at a time, static masked decoding, support and `ensures`."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from oracle import language as L
from oracle.choices import Choices, Output, every
from oracle.interpret import Machine
from oracle.values import Dist, Drawn
from oracle.worlds import Request, World, ended, raw_of, shaped_of

Law = dict[tuple[Any, ...], Fraction]


def next_row(w: World, spec: Any, request: Request, new: tuple[int, ...]) -> tuple[Fraction, ...]:
    """The shaped distribution of the next token of `autoregressive(model)`."""
    path = request.prompt + new
    return shaped_of(raw_of(w.models[spec.args[0].id].row(path), path, request), path, request)


def next_token(w: World, spec: Any, request: Request, new: tuple[int, ...], output: Output, choices: Choices) -> int:
    """The specification's next token under the noise that a run has read."""
    return output.read(len(request.prompt) + len(new), next_row(w, spec, request, new), choices)


def texts(w: World, spec: Any, request: Request) -> dict[tuple[int, ...], Fraction]:
    """The law of one request's text, one token at a time."""
    now: dict[tuple[int, ...], Fraction] = {(): Fraction(1)}
    out: dict[tuple[int, ...], Fraction] = {}
    while now:
        then: dict[tuple[int, ...], Fraction] = {}
        for new, p in now.items():
            for v, q in enumerate(next_row(w, spec, request, new)):
                if q:
                    (out if ended((*new, v), request) else then)[(*new, v)] = p * q
        now = then
    return out


def specified(w: World, spec: Any, spend: Callable[[], None]) -> Law:
    """The law of the texts of all requests of a session."""
    law: Law = {(): Fraction(1)}
    for request in w.requests:
        one = static_law(w, spec, request, spend) if spec.func.id == "static_masked" else texts(w, spec, request)
        law = {(*history, new): p * q for history, p in law.items() for new, q in one.items()}
    return law


# ---- canvases


def static(w: World, spec: Any, request: Request, output: Output, choices: Choices) -> tuple[int, ...]:
    """`static_masked(model, length, block)`: of a block's masked cells the surest one, drawn with noise keyed by the number of
    decided cells and the cell, then the next."""
    model = w.models[spec.args[0].id]
    reader = Machine(L.Program("", (), (), (), ()), w, request, choices, output)
    length, block = (int(reader.value(a)) for a in spec.args[1:])
    length = min(length, request.max_tokens)
    cells: list[Any] = [None] * length
    for start in range(0, length, block):
        part = range(start, min(start + block, length))
        while any(cells[i] is None for i in part):
            decided = sum(c is not None for c in cells)
            best = None
            for i in range(length):
                seen = request.prompt + tuple("_" if c is None else c for c in cells)
                path = tuple(0 if x == "_" else x for x in seen[: len(request.prompt) + i])
                if i not in part or cells[i] is not None:
                    continue
                raw = raw_of(model.row((*seen, "cell", i), len(path)), path, request)
                x = output.read((decided, ("cell", i)), shaped_of(raw, path, request), choices)
                if best is None or raw[x] > best[0]:
                    best = (raw[x], i, x)
            assert best is not None
            cells[best[1]] = best[2]
    new: tuple[int, ...] = ()
    for c in cells:
        if ended(new, request):
            break
        new += (c,)
    return new


def static_law(w: World, spec: Any, request: Request, spend: Callable[[], None]) -> dict[tuple[int, ...], Fraction]:
    """The law of what static masked decoding commits."""
    out: dict[tuple[int, ...], Fraction] = {}
    for p, new in every(lambda c: static(w, spec, request, Output({}, True), c), spend):
        out[new] = out.get(new, Fraction(0)) + p
    return out


# ---- of single tokens


def supported(w: World, claim: Any, program: Any, request: Request, new: tuple[int, ...], x: int) -> bool:
    """`keeps support of model`: what is committed has probability under the model's unshaped distribution."""
    path = request.prompt + new
    return raw_of(w.models[claim.models].row(path), path, request)[x] > 0


def ensured(w: World, claim: Any, program: Any, request: Request, new: tuple[int, ...], x: int) -> bool:
    """`ensures condition`: it is true of p, the first causal model's shaped distribution, and of the token x."""
    path = request.prompt + new
    model = w.models[next(p.name for p in program.params if p.type.startswith("causal"))]
    raw = raw_of(model.row(path), path, request)
    shaped = shaped_of(raw, path, request)
    m = Machine(program, w, request, Choices([]), Output({}, True))
    m.env = {"p": Dist(shaped, raw), "x": Drawn(x, shaped, raw)}
    return m.truth(m.value(claim.condition))
