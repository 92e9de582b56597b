"""Every op on the torch backend: lowered or hosted, with the reference's result on its samples; or refused by name."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from lib.ops.operands import OPERANDS
from lib.ops.torch_values import plain, torch_value

from decgraph import DecError
from decgraph.backends.indexes import Continuations, Lru
from decgraph.backends.reference.machine import ReferenceMachine
from decgraph.backends.reference.values import SuffixSearch as ReferenceSuffixes
from decgraph.backends.torch import lowering, noise
from decgraph.backends.torch.machine import TorchMachine
from decgraph.backends.torch.rows import Rows
from decgraph.backends.torch.stores import Recent
from decgraph.backends.torch.stores import Suffixes as TorchSuffixes
from decgraph.ir.table import TABLE
from decgraph.ir.text import parse_module
from decgraph.ir.values import Module, Op, Region, Value
from decgraph.ir.walk import free_values
from decgraph.passes.outline import straight
from decgraph.runtime import noise as reference_noise
from decgraph.runtime.automaton import Automaton
from decgraph.runtime.models.derive import derive
from decgraph.runtime.models.free import FreeAdapter, FreeFeatures, FreeModel
from decgraph.runtime.models.interface import Scores
from decgraph.runtime.models.reading import Confidence
from decgraph.runtime.noise import Key
from decgraph.runtime.request import Request
from decgraph.runtime.shaping import shaped_probs

OPS = sorted(TABLE)
with suppress(TypeError):  # an op that lacks its lowering fails in tests, not when they are collected
    lowering.load()
REFUSED = {name for name in OPS if TABLE[name].unavailable}
"""Parts of models that no backend can read: refused by name where they are reached."""
NO_TABLE = {
    '%z = automaton(%au, what = "live")',
    '%z = automaton(%au, what = "states")',
    '%z = automaton(%au, %st, what = "weights")',
    '%z = request(field = "pad")',
    "%z = memory.quantized(%mem, %three)",  # of a context: tests/stdlib/test_shelf.py, kv_quantized
    "%z = memory.merged(%mem, %xs, %xs)",  # of a context: tests/runtime/given/test_merged.py
}
"""What only the canned machine of tests/lib/ops/machine.py answers: the language has no word for them."""
# `run` needs a second function: tests/backends/torch/test_torch_programs.py has programs with it.
CASES = [
    (name, n)
    for name in OPS
    if name not in REFUSED | {"run"} | lowering.HOSTED.keys()
    for n, (text, _) in enumerate(TABLE[name].samples)
    if text not in NO_TABLE
]
HOSTED = [(name, n) for name in lowering.HOSTED for n, (text, _) in enumerate(TABLE[name].samples) if text not in NO_TABLE]
REQUEST = Request(prompt=(1, 0, 2), max_tokens=9, seed=5, eos=frozenset({2}), min_length=3)
SHAPED = replace(REQUEST, temperature=0.7, top_k=2, repetition_penalty=1.5, bias={0: 0.5})
GREEDY = replace(REQUEST, temperature=0)


class Letters:
    """A tokenizer's half: tokens are letters."""

    def text(self, tokens: Any) -> str:
        return "".join("abc"[int(t)] for t in tokens)


def models() -> dict[str, Any]:
    """Free models: they have layers, heads and memories."""
    target = FreeModel(3, 3, 2, heads=4, name="target")
    return {
        "target": target,
        "foreign": FreeModel(5, 4, 2, vocab="W", name="foreign"),
        "head": FreeFeatures(target, 1),
        "judge": Confidence(target, "prob"),
        "scorer": Confidence(target, "dist"),
        "masked": FreeModel(4, 3, 2, visibility="full", name="masked"),
        "trunk": derive(FreeAdapter(target), "on", derive(target, "upto", 1)),
    }


def own_values(text: str) -> str:
    """The sample with memories of its own models in place of canned ones, and a key where the canned index needs none."""
    before, text = "", text.replace('(%ix, what = "has")', '(%ix, %toks, what = "has")')
    if "%mem" in text:
        before = (
            "%up = context(parent = true)\n%mem = model.memory(%target, %up)\n"
            if "%head" in text
            else "%mem = model.memory(%masked, %c, queries = true)\n"
        )
    if "%mem2" in text or "%part" in text:
        before += '%mem2 = model.memory(%masked, %c, %ps, with = ("at",))\n'
    if "%part" in text:
        before += "%part = memory.layer(%mem2, %n)\n"
    return before + text


def sample(text: str) -> Module:
    """The module of a sample, with what its last op gives written into states `out0`, `out1`, ..."""
    text = own_values(text)
    heads = " ".join(re.findall(r"^%[\w%, ]+ = ", text, re.M))
    inner = {*re.findall(r"%(\w+): ", text), *re.findall(r"%(\w+)", heads)}
    used = [n for n in dict.fromkeys(re.findall(r"%(\w+)", text)) if n in OPERANDS and n not in inner]
    params = ", ".join(f"%{n}: {OPERANDS[n][0]} = none" for n in used)
    module = parse_module(
        f'module(main = "f")\nextern judge(text) -> bool\nfunc f({params}) {{\n'
        "state count: int per sequence {\n%c = const(value = 5, type = !int)\nyield %c\n}\n"
        f"body {{\n{text}\n}}\n}}\n"
    )
    f = module.functions["f"]
    kept = [Op("state.write", (r,), {"state": f"out{i}", "type": r.type}, (), ()) for i, r in enumerate(f.body.ops[-1].results)]
    return _with_ops(module, (*f.body.ops, *kept))


def _with_ops(module: Module, ops: tuple[Op, ...]) -> Module:
    f = module.functions["f"]
    return replace(module, functions={"f": replace(f, body=replace(f.body, ops=ops))})


def in_a_segment(module: Module) -> Module | None:
    """The same with the sample's ops in one segment; None where they may not stand in one."""
    ops, writes = [], []
    for op in module.functions["f"].body.ops:
        (writes if str(op.attrs.get("state", "")).startswith("out") else ops).append(op)
    if not writes or not all(straight(op) for op in ops):
        return None
    results = ops[-1].results
    region = Region((), tuple(ops), results)
    given = tuple(Value(r.type, r.name) for r in results)
    segment = Op("segment", tuple(free_values(region)), {"kind": "device", "name": "sample"}, (region,), given)
    return _with_ops(module, (segment, *(replace(w, operands=(given[i],)) for i, w in enumerate(writes))))


class _Kept:
    """Gives parameters as they are and keeps what is written into `out` states."""

    def parameter(self: Any, p: Any) -> Any:
        return self.operands[p.name]

    def write_state(self: Any, name: str, value: Any) -> None:
        if name.startswith("out"):
            self.outs[name] = value
        else:
            super().write_state(name, value)  # type: ignore[misc]

    def start(self: Any, operands: dict[str, Any]) -> Any:
        self.operands, self.outs = operands, {}
        self.run()
        return {k: plain(v) for k, v in self.outs.items()}, self.tokens, self.results, self.sequence_states


class Reference(_Kept, ReferenceMachine):
    """The reference over a sample."""


class Torch(_Kept, TorchMachine):
    """The torch backend over a sample."""


OWN: dict[str, Any] = {"au": Automaton(((0, 1, -1), (1, 0, -1)), frozenset({0})), "st": 0}


def index_for(op: Op, suffixes: Any, table: Any) -> Any:
    """What the op of a sample asks: a table, an index asked already, or an index."""
    if op.attrs.get("what") == "get":
        return table(2).store(1, (0, 2)).store(1, (2,))
    index = suffixes(8).learn((0, 2, 0, 1, 0, 2, 2, 0, 2))
    return Continuations(index, (0,)) if op.opcode == "tree.best_first" else index


def operands(module: Module, request: Request, *, on_torch: bool, tensors: bool = False) -> dict[str, Any]:
    """The operands of a sample for one backend; models are the machine's, memories are made from them."""
    out: dict[str, Any] = {}
    for p in module.functions["f"].params:
        elem = p.value.type.elem
        if elem == "index":
            asking = next(op for op in module.functions["f"].body.walk() if p.value in op.operands and not op.regions)
            out[p.name] = index_for(asking, *((TorchSuffixes, Recent) if on_torch else (ReferenceSuffixes, Lru)))
        elif elem != "model":
            value = OWN.get(p.name, OPERANDS[p.name][1])
            vocab = any(d.kind == "vocab" for d in p.value.type.dims)
            out[p.name] = torch_value(value, request, tensors=tensors and vocab) if on_torch else value
    return out


PARAMS = {"text b": 1}
"""The token of the text of a sample, as a session binds it."""


def outcome(cls: Any, module: Module, request: Request, given: dict[str, Any]) -> tuple[Any, ...]:
    known = models()
    bound = {p.name: known[p.name] for p in module.functions["f"].params if p.value.type.elem == "model"}
    main = bound or {"target": known["target"]}
    machine = cls(module, "f", main, PARAMS, request, externs={"judge": lambda text: text == "ab"}, detokenizer=Letters())
    machine.vocab_size, machine.mask_token = 3, 3
    return machine.start(given)


@pytest.mark.parametrize("request_", [REQUEST, SHAPED, GREEDY], ids=["plain", "shaped", "greedy"])
@pytest.mark.parametrize(("name", "n"), CASES, ids=[f"{name}-{n}" for name, n in CASES])
def test_op_is_the_references(name: str, n: int, request_: Request) -> None:
    agrees(name, n, request_)


@pytest.mark.parametrize(("name", "n"), HOSTED, ids=[f"{name}-{n}" for name, n in HOSTED])
def test_a_hosted_op_gets_and_gives_torchs_values(name: str, n: int) -> None:
    """These run the reference's own NumPy meaning, so equality shows only that tensors reach it and that its results come back.
    That the meaning is right is shown in tests/ir/meanings, by plain Python that shares nothing with it; test_meanings.py wants
    one for each of these."""
    agrees(name, n, REQUEST)


def agrees(name: str, n: int, request_: Request) -> None:
    """The torch backend gives what the reference gives, on a sample alone and in a segment, over arrays and tensors."""
    module = sample(TABLE[name].samples[n][0])
    wanted = outcome(Reference, module, request_, operands(module, request_, on_torch=False))
    segment = in_a_segment(module)
    for form in (module, segment):
        for tensors in (False, True):
            if form is not None:
                got = outcome(Torch, form, request_, operands(form, request_, on_torch=True, tensors=tensors))
                assert got == wanted, f"{name} {'in a segment' if form is segment else ''}"


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_is_refused_is_refused_by_name(name: str) -> None:
    for text, _ in TABLE[name].samples:
        module = sample(text)
        for cls, on_torch in ((Reference, False), (Torch, True)):
            with pytest.raises(DecError, match=name.split(".")[1]) as caught:
                outcome(cls, module, REQUEST, operands(module, REQUEST, on_torch=on_torch))
            assert caught.value.hint


def test_every_op_is_lowered_hosted_written_or_refused() -> None:
    """`load` refuses an op that is in none of the tables."""
    lowering.load()
    tables = (lowering.LOWERINGS, lowering.PLANS, lowering.HOSTED, lowering.WRITTEN)
    assert sorted([*REFUSED, *(name for table in tables for name in table)]) == OPS
    for name, f in {**lowering.LOWERINGS, **lowering.PLANS}.items():
        assert f.__module__.rpartition(".")[2] == TABLE[name].topic, f"{name} is lowered in another file than it stands in"


def test_an_op_without_a_lowering_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    row = replace(TABLE["softmax"], name="softer")
    monkeypatch.setitem(TABLE, "softer", row)
    with pytest.raises(TypeError, match=r'op softer .* in backends/torch/ops/distributions.py write .*@lowering\("softer"\)'):
        lowering.load.__wrapped__()


def test_an_op_with_regions_that_is_not_known_is_refused() -> None:
    op = Op("lanes", (), {}, (Region((), (), ()),), ())
    with pytest.raises(DecError, match="cannot run `lanes`"):
        lowering.lower(op)


@pytest.mark.parametrize("far", [False, True])
def test_order_of_what_is_no_number(far: bool) -> None:
    """Places and firsts as the meanings give them, with numbers that are none, ties and rows of one kind."""
    rows = np.array([[1.0, np.nan, 3.0, 3.0], [np.nan] * 4, [0.0] * 4, [-np.inf, 2.0, -np.inf, 2.0]])
    for name in ("rank", "first_max"):
        op = sample(TABLE[name].samples[1][0]).functions["f"].body.ops[0]
        wanted = TABLE[name].meaning(ReferenceMachine, op, rows)[0]
        got = lowering.load()[name](None, torch.from_numpy(rows) if far else rows)
        assert plain(got) == plain(wanted)


def test_an_automatons_masks_are_remembered_by_state() -> None:
    from decgraph.backends.torch.prefixes import alone
    from decgraph.backends.torch.shaping import _allowed

    au = Automaton(((0, 1, -1), (1, 0, -1)), frozenset({0}))
    first = _allowed(au, alone((0, 1), 0), 0, 3)
    assert first is _allowed(au, alone((1, 0, 0), 0), 0, 3) and first.tolist() == [True, True, False]
    assert _allowed(lambda generated: {2}, alone((0,), 0), 0, 3).tolist() == [False, False, True]


def test_a_nucleus_ends_where_its_mass_is_reached_exactly() -> None:
    scores = np.log(np.array([0.5, 0.25, 0.125, 0.125]))
    for share, kept in ((0.5, 1), (0.75, 2), (0.875, 3)):
        request = Request((1,), top_p=share)
        mine = Rows(torch.from_numpy(scores)[None], request, path=lambda _: (1,)).face("shaped")[0].numpy()
        assert np.count_nonzero(mine) == kept
        assert np.array_equal(mine, shaped_probs(Scores(logits=scores), (1,), request))


def test_many_draws_of_large_vocabularies_have_the_noise_of_each_alone() -> None:
    """It is computed for a few keys at once, as many as fit into the cache of a processor."""
    size, keys = 20_001, [Key(7, 1, "a", (n,)) for n in range(8)]
    wanted = np.array([reference_noise.exponentials(key, size) for key in keys])
    assert np.array_equal(noise.exponentials(keys, size), wanted)
    q = np.random.default_rng(0).dirichlet(np.full(size, 0.01), len(keys))
    first = [reference_noise.race_order(reference_noise.race_keys(np.log(row), one), 3) for row, one in zip(q + 1e-300, wanted)]
    assert np.array_equal(noise.first_arrivals(q + 1e-300, keys, 3), first)
    assert np.array_equal(noise.races(q + 1e-300, keys), [order[0] for order in first])
