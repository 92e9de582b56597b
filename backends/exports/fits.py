"""Whether the drafts of a program can be proposed by another engine, which verifies them itself: read off the IR.

An engine's seam for drafters gives the tokens of a text and takes a chain of tokens. So drafting has to be a function of the
text's tokens alone, and the verification has to be one that the engine's own may stand for: the program claims the tokens of
autoregressive decoding, whatever was drafted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from decgraph.ir.values import Function, Module, Op, Region, StateDecl, Value
from decgraph.ir.walk import producers

RANDOM = frozenset({"draw", "draw.many", "draw.race", "draw.stated", "bernoulli", "beta"})
INSIDE = frozenset(
    {"model.memory", "model.states", "model.attention", "model.embed", "head.read", "head.score", "model.layers"}
)
CALLS = frozenset({"model.eval", "model.evals", "model.read"})
HOST = frozenset({"extern", "text_of", "completes", "automaton", "retokenize"})
CARRIED = frozenset({"tree.continue", "tree.reroot"})
BRANCHED = frozenset({"tree.best_first", "tree.keep", "tree.set", "tree.front"})
LEARNS = ("suffixes", "ngrams")


@dataclass(frozen=True)
class Misfit:
    """Why a program cannot be exported: a clause, and the line that it is about (0: no single one)."""

    why: str
    line: int = 0


def misfits(module: Module) -> list[Misfit]:
    """Every reason why the drafts of a module's algorithm cannot be proposed elsewhere, in the order of the lines; [] for one
    whose drafts are a chain that depends on the text's tokens alone."""
    found = dict.fromkeys(_Reader(module.entry).misfits())
    return sorted(found, key=lambda m: m.line)


class _Reader:
    """One reading of a function."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.producers = producers(function.body)
        self.loop = next((o for o in function.body.ops if o.opcode == "while" and o.attrs.get("bound") == "done"), None)
        self.walks = [o for o in function.body.walk() if o.opcode == "tree.walk"]
        within = {o for walk in self.walks for r in walk.regions for o in r.walk()}
        self.ops = [o for o in function.body.walk() if o not in within]  # rules are not run: the engine verifies

    def misfits(self) -> Iterator[Misfit]:
        yield from self.models()
        if self.loop is None or not self.walks:
            yield Misfit("it drafts nothing that is verified in a loop `while not done`")
            return
        for state in self.function.states:
            yield from self.state(state)
        if len(self.walks) > 1:
            yield Misfit("it verifies more than once in a step", self.walks[1].loc.line)
        yield from self.verification(self.walks[0])
        for op in self.ops:
            yield from self.op(op)

    def models(self) -> Iterator[Misfit]:
        models = [p for p in self.function.params if p.value.type.elem == "model"]
        for p in models:
            if p.value.type.of[0] == "masked":
                yield Misfit(f"`{p.name}` is a masked model: it decides cells of a canvas, and proposes no tokens")
        for p in models[1:]:
            yield Misfit(f"it drafts with a model, `{p.name}`: the seam hands over token ids and no engine for another model")

    def state(self, state: StateDecl) -> Iterator[Misfit]:
        if state.scope != "sequence":
            why = f"state {state.name} is kept per {state.scope}: the seam does not say when a request begins and ends"
            yield Misfit(why, next((o.loc.line for o in state.init.walk()), 0))
        elif state.type.elem != "index" or state.type.of[0] not in LEARNS:
            line = next((o.loc.line for o in state.init.walk()), 0)
            yield Misfit(f"state {state.name} is no index of the text: it depends on how earlier drafts were verified", line)
        for op in state.init.walk():
            if op.opcode in (*CALLS, *INSIDE, *HOST):
                yield Misfit(f"state {state.name} begins with what {op.opcode} gives", op.loc.line)

    def verification(self, walk: Op) -> Iterator[Misfit]:
        line = walk.loc.line
        claims = [c for c in self.function.claims if c.kind == "refines" and not c.conditional and c.mode == "tokens"]
        if not any(c.spec == "autoregressive" for c in claims):
            rule = walk.attrs.get("rule", "its rule")
            yield Misfit(
                f"its verification by {rule} is its own: the engine's may stand only for one of a program that "
                "`refines autoregressive(target) in tokens`",
                line,
            )
        if walk.operands[0].type.of[1] != "token":
            yield Misfit("its drafts are no tokens", line)
        call = self.producers.get(walk.operands[1])
        plain = call is not None and call.opcode == "model.eval" and not call.attrs.get("with") and not call.attrs.get("part")
        if not plain or call is None or call.operands[1] is not walk.operands[0]:
            yield Misfit("it is not verified by one plain call of the target at every node of what was drafted", line)
        self.evidence = call if plain else None

    def op(self, op: Op) -> Iterator[Misfit]:
        line, code = op.loc.line, op.opcode
        if code in CALLS and op is not self.evidence:
            yield Misfit(
                f"it calls `{op.operands[0].name or 'a model'}` besides the verification: the seam has token ids only", line
            )
        elif code in INSIDE:
            yield Misfit(f"it reads what is inside a model ({code}): the seam has token ids only", line)
        elif code in RANDOM:
            yield Misfit(
                "it draws at random outside of the verification: the seam takes tokens without their probabilities", line
            )
        elif code in HOST:
            yield Misfit(f"it reads texts or calls a function of the caller ({code}): the seam has token ids only", line)
        elif code.startswith("batch."):
            yield Misfit("it reads the other sequences of its batch", line)
        elif code == "run":
            yield Misfit(f"it runs {op.attrs['callee']} to draft", line)
        elif code in CARRIED:
            yield Misfit("it carries a tree of drafts from step to step", line)
        elif code in BRANCHED or code == "tree.grow" and not chained(op):
            yield Misfit("it drafts a tree: the seam takes one chain of tokens", line)
        elif code == "state.write" or code == "index.learn":
            yield Misfit("it stores what the seam does not tell again, such as what was accepted", line)
        elif code == "request":
            field = str(op.attrs["field"])
            yield Misfit(f"it reads `{field}` of the request: the seam has one list of tokens", line)
        elif code == "commit" and op.operands[0] not in self.walks[0].results:
            yield Misfit("it commits more than what the verification accepted", line)


def chained(op: Op) -> bool:
    """Whether a growth goes on at the end of a chain, token after token."""
    siblings = any(
        d.kind == "k" and d.bound != 1 for d in op.operands[1].type.dims
    )  # else one for each leaf, of which there is one
    return bool(op.attrs.get("chain") or not siblings) and not op.attrs.get("has_at")


def longest(function: Function) -> int | None:
    """The most tokens of a step's chain; None where the program sets no number, or one that its parameters' values, which have
    to be constants of the function by now, do not tell."""
    made = producers(function.body)
    loop = next((op for op in function.body.ops if op.opcode == "while" and op.attrs.get("bound") == "done"), None)
    return None if loop is None else _grown(loop.regions[-1], made)


def _grown(region: Region, producers: Mapping[Value, Op]) -> int | None:
    """How many tokens are grown onto the chain in a region."""
    total = 0
    for op in region.ops:
        count = _of(op, producers)
        if count is None:
            return None
        total += count
    return total


def _of(op: Op, producers: Mapping[Value, Op]) -> int | None:
    if op.opcode == "tree.grow":
        return _source(op.operands[1], producers) if op.attrs.get("chain") else 1
    if op.opcode == "tree.walk":  # rules grow nothing
        return 0
    within = [_grown(region, producers) for region in op.regions]
    known = [count for count in within if count is not None]
    if len(known) < len(within):
        return None
    most = max(known, default=0)
    if not most or op.opcode not in ("for", "while"):
        return most
    times = op.attrs.get("bound")
    if op.opcode == "for":
        first, last = (_constant(value, producers) for value in op.operands[:2])
        times = last - first if first is not None and last is not None else times
    return max(0, times) * most if isinstance(times, int) else None


def _source(tokens: Value, producers: Mapping[Value, Op]) -> int | None:
    """The most items of a vector that is grown as a chain."""
    op = producers.get(tokens)
    if op is not None and op.opcode == "index.ask" and "at_most" in op.attrs.get("named", ()):
        named = op.attrs["named"]
        return _constant(op.operands[len(op.operands) - len(named) + named.index("at_most")], producers)
    bounds = [dim.bound for dim in tokens.type.dims if dim.kind == "k"]
    return bounds[0] if bounds and isinstance(bounds[0], int) else None


def _constant(value: Value, producers: Mapping[Value, Op]) -> int | None:
    op = producers.get(value)
    found = op.attrs["value"] if op is not None and op.opcode == "const" else None
    return found if isinstance(found, int) else None
