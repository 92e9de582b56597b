"""Which programs go into which interface of an engine: found by trying a step of each on random logits.

A reading of the IR says what a trial cannot see: what an interface does not tell a program again. All else is the step's own
word: a program fits where it raises no `NotSteppable`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch

from decgraph.backends.seams.blocks import Blocks
from decgraph.backends.seams.drafts import Asked, Drafts, NewTokens
from decgraph.backends.seams.rows import Rows
from decgraph.backends.triton.support import NotSteppable
from decgraph.ir.values import Module
from decgraph.runtime.session import check_params

VOCAB, LANES, CAPACITY = 61, 3, 64
PROMPTS: Final = ((3, 4, 5, 3, 4), (7, 8, 7, 8, 7, 8))
"""Sizes and texts of a trial."""


@dataclass(frozen=True)
class Misfit:
    """Why a program does not fit: a clause, and the line that it is about (0: no single one)."""

    why: str
    line: int = 0


@dataclass(frozen=True)
class Trial:
    """What was found of a program at an interface. open: parameters of which every request may have a number of its own; most:
    tokens of a draft, at most."""

    misfits: tuple[Misfit, ...] = ()
    open: tuple[str, ...] = ()
    most: int = 0


def trial(module: Module, params: Mapping[str, Any], core: str) -> Trial:
    """Try a module's algorithm with values of its parameters (others have their defaults). core: "rows", "drafts", "trees" or
    "blocks". Raises DecError for values that the parameters do not take."""
    check_params(module.entry, params)
    found = list(_read(module, core))
    if found:
        return Trial(tuple(found))
    try:
        return CORES[core](module, params)
    except NotSteppable as error:
        return Trial((Misfit(error.why, error.op.loc.line if error.op is not None else 0),))


def _read(module: Module, core: str) -> Iterator[Misfit]:
    """What is read off a program before it is tried."""
    function = module.entry
    models = [p for p in function.params if p.value.type.elem == "model"]
    for p in models:
        if (p.value.type.of[0] == "masked") != (core == "blocks"):
            kind = "a masked model, which decides positions of a canvas" if core != "blocks" else "no masked model"
            yield Misfit(f"`{p.name}` is {kind}")
    if len(models) > 1:
        yield Misfit(f"it calls {', '.join(f'`{p.name}`' for p in models)}: the engine computes one model")
    for op in function.body.walk():
        if op.opcode == "extern":
            yield Misfit(f"it calls `{op.attrs['extern']}`, a function of the caller's", op.loc.line)
    if core == "drafts":
        yield from _verified_elsewhere(module)


def _verified_elsewhere(module: Module) -> Iterator[Misfit]:
    """Why an engine's own verification cannot stand for the program's, or drafts depend on how earlier ones were verified."""
    function = module.entry
    walks = [op for op in function.body.walk() if op.opcode == "tree.walk"]
    if not walks:
        yield Misfit("it drafts nothing that is verified")
    claims = [c for c in function.claims if c.kind == "refines" and not c.conditional and c.spec == "autoregressive"]
    if walks and not claims:
        rule = walks[0].attrs.get("rule", "its rule")
        why = f"its verification by {rule} is its own: the engine's stands only for one that `refines autoregressive(target)`"
        yield Misfit(why, walks[0].loc.line)
    for state in function.states:
        line = next((o.loc.line for o in state.init.walk()), 0)
        if state.scope != "sequence":
            yield Misfit(f"state {state.name} is kept per {state.scope}: drafts are asked for by texts", line)
        elif state.type.elem != "index":
            yield Misfit(f"state {state.name} is no index of the text: it depends on how earlier drafts were verified", line)
    for op in function.body.walk():
        if op.opcode in ("state.write", "index.learn") and op not in function.body.ops:  # those stand before the loop
            yield Misfit("it stores what the engine does not tell again, such as what was accepted", op.loc.line)


def _rows(module: Module, params: Mapping[str, Any]) -> Trial:
    """Draws of one token from one row of logits."""
    random = torch.Generator().manual_seed(0)

    def steps(*names: str) -> None:
        rows = Rows(module, params, lanes=LANES, capacity=CAPACITY, vocab=VOCAB, open=names)
        for lane, prompt in enumerate(PROMPTS):
            rows.enter(lane, prompt, settings={"seed": lane})
        at = torch.arange(len(PROMPTS))
        for _ in range(3):
            rows.step(at, torch.randn(len(PROMPTS), VOCAB, generator=random) * 2)
            if bool(rows.failed(at).any()):
                raise NotSteppable("a step of it does not commit one token")

    steps()
    return Trial(open=tuple(name for name in _numbers(module) if _works(steps, name)))


def _blocks(module: Module, params: Mapping[str, Any]) -> Trial:
    """Decisions at the positions of a block, from forward to forward."""
    size, mask, random = 8, VOCAB - 1, torch.Generator().manual_seed(0)

    def steps(*names: str) -> None:
        blocks = Blocks(module, params, block=size, vocab=VOCAB, mask=mask, open=names)
        cells = torch.full((2, size), mask)
        cells[1, :3] = 5
        at, cells = blocks.enter(torch.tensor([2 * size, size]), cells, [{"seed": 1}, {"seed": 2, "temperature": 0}])
        for _ in range(3 * size):
            cells, over, failed = blocks.step(at, cells, torch.randn(2, size, VOCAB, generator=random) * 2)
            if bool(failed.any()):
                raise NotSteppable("a step of it at a block has an error")
            if bool(over.all()):
                break

    steps()
    return Trial(open=tuple(name for name in _numbers(module) if _works(steps, name)))


def _numbers(module: Module) -> list[str]:
    """Parameters that are numbers and steer no shapes."""
    return [p.name for p in module.entry.params if p.value.type.elem in ("real", "prob") and not p.value.type.dims]


def _works(run: Callable[[str], object], name: str) -> bool:
    """Whether steps run with a number of a parameter for every request."""
    try:
        run(name)
    except NotSteppable:
        return False
    return True


def _drafts(module: Module, params: Mapping[str, Any]) -> Trial:
    """Chains of tokens that follow texts."""
    drafts = Drafts(module, params, rows=len(PROMPTS), vocab=VOCAB)
    texts, lengths = torch.zeros((len(PROMPTS), CAPACITY), dtype=torch.int64), torch.tensor([len(p) for p in PROMPTS])
    for row, prompt in enumerate(PROMPTS):
        texts[row, : len(prompt)] = torch.tensor(prompt)
    found, _ = drafts.draft(texts, lengths, prompts=lengths)
    return Trial(most=found.shape[1] if found.shape[1] < CAPACITY - 1 else SOME)


def _trees(module: Module, params: Mapping[str, Any]) -> Trial:
    """Trees of drafts, or chains, that the program verifies by the engine's logits, here by those of pairs of tokens."""
    capacity, most = 8 * CAPACITY, 0
    table = torch.randn((VOCAB, VOCAB), generator=torch.Generator().manual_seed(0)) * 3
    drafts = Drafts(module, params, rows=len(PROMPTS), vocab=VOCAB, capacity=capacity, sparing=False)
    for lane, prompt in enumerate(PROMPTS):
        drafts.enter(lane, prompt, settings={"seed": lane})
    for _ in range(4):
        x: Asked | NewTokens = drafts.propose(range(len(PROMPTS)))
        while isinstance(x, Asked):
            most, x = max(most, x.tokens.shape[1]), drafts.finish(table[x.tokens])
        if bool(drafts.failed().any()) or int(x.counts.min()) < 1:
            raise NotSteppable("a step of it commits nothing, or meets an error")
    if most == 1:
        raise NotSteppable("it drafts nothing that the target would verify")
    if most >= capacity:
        raise NotSteppable("a step of it drafts as many tokens as a text may have: no number of nodes is enough")
    return Trial(most=most - 1)


SOME = 8
"""Tokens of a draft for a program that sets no number of them."""
CORES: Final[dict[str, Callable[[Module, Mapping[str, Any]], Trial]]] = {
    "rows": _rows, "drafts": _drafts, "trees": _trees, "blocks": _blocks,
}  # fmt: skip
