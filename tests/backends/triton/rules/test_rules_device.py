"""Rules on the device for several sequences: as each alone, over padded trees, in poisoned memory, and seen when broken."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import shelf
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from walked_rules import Case, Host, captured_values, case, module_of, on_host, walk_of

from decgraph import stdlib
from decgraph.backends.registry import machine
from decgraph.backends.torch.kit import Kit, Walker
from decgraph.backends.torch.machine import TorchMachine
from decgraph.backends.torch.ops.draws import draw
from decgraph.backends.triton.rules import walk as walks
from decgraph.backends.triton.rules.compile import CompiledRule, rule_of
from decgraph.backends.triton.rules.device import Given, Walked, seed_words, site_word, site_words
from decgraph.backends.triton.rules.walk import called
from decgraph.dsl.lower import load_text
from decgraph.ir.values import Function, Module, Op
from decgraph.passes.manager import optimise
from decgraph.runtime.models.table import TableModel
from decgraph.runtime.noise import Key
from decgraph.runtime.request import Request
from decgraph.runtime.session import Session

DEEPEST = """rule deepest(t: tree, p: dist[t.nodes]):
    n = argmax(t.nodes where t.depth >= 0, by = [t.depth])
    accept n
    emit argmax(p[n])
"""


def rule(name: str) -> tuple[Module, CompiledRule]:
    module = module_of(name, DEEPEST if name == "deepest" else "")
    return module, rule_of(walk_of(module), module.entry.body)


def given(module: Module, made: CompiledRule, c: Case) -> Given:
    """One request as the kernels take it, B = 1."""
    m = c.machine(module)
    whole = made.op.attrs["scope"] == "tree"
    keys = dict(
        zip(made.captured, captured_values(Host(m, module, {"turn": 5, "tau": 0.25, "turns": 3}), made.captured), strict=True)
    )
    return walks._given(made, m, c.tree, walks._Evidence(m, c.tree, c.evidence, whole), keys)


def together(parts: list[Given]) -> Given:
    """Requests in lockstep: nodes, rows and laws padded with what must not matter."""
    out: dict[str, Any] = {"size": parts[0].size, "prefix": parts[0].prefix}
    nodes = max(p.token.shape[1] for p in parts)
    for f in fields(Given):
        held = [getattr(p, f.name) for p in parts]
        if f.name in ("size", "prefix", "columns") or all(h is None for h in held):
            continue
        if f.name == "law_row":
            held = [torch.full(p.token.shape, -1, dtype=torch.int32) if h is None else h for h, p in zip(held, parts)]
        if f.name == "q":
            like = next(h for h in held if h is not None)
            held = [like[:, :1] * torch.nan if h is None else h for h in held]
        if f.name == "live":
            continue
        long = max(h.shape[1] if h.ndim > 1 else 0 for h in held)
        padded = []
        for h in held:
            if h.ndim > 1 and h.shape[1] < long:
                more = (1, long - h.shape[1], *h.shape[2:])
                poison = torch.full(more, torch.nan if h.dtype.is_floating_point else 1, dtype=h.dtype)
                h = torch.cat([h, poison], 1)
            padded.append(h)
        out[f.name] = torch.cat(padded).contiguous()
    out["live"] = torch.stack([torch.arange(nodes) < p.token.shape[1] for p in parts])
    return Given(**out)


def plain(walked: Walked, b: int) -> tuple[Any, ...]:
    """What one sequence got; the accepted path without its padding."""
    count = int(walked.count[b])
    assert (walked.nodes[b, count:] == -1).all()
    tests = walked.tests[b].numpy()
    return (
        int(walked.node[b]),
        count,
        int(walked.emitted[b]),
        int(walked.fault[b]),
        walked.nodes[b, :count].tolist(),
        tests[: count + 1].tolist(),
        int(tests[count + 1 :].sum()),
        int(walked.visited[b]),
    )


class Quiet(TorchDispatchMode):
    """No value may come to the host."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert func is not torch.ops.aten._local_scalar_dense.default
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", ["rejection", "match", "typical_longest"])
@pytest.mark.parametrize("greedy", [False, True])
def test_several_sequences_walk_as_each_alone(name: str, greedy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    module, made = rule(name)
    cases = [
        case(seed, shape=shape, **({"temperature": 0} if greedy else {}))
        for seed, shape in ((0, (3, 2)), (1, (1, 1, 1)), (2, ()), (4, (2, 1, 1)))
    ]
    parts = [given(module, made, c) for c in cases]
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *shape, **kw: empty(*shape, **kw).fill_(-77))
    depth = max(c.tree.height() for c in cases) + 1
    alone = [plain(made.on_device(p, depth=depth), 0) for p in parts]
    with Quiet():
        joint = made.on_device(together(parts), depth=depth)
    assert [plain(joint, b) for b in range(len(cases))] == alone
    for c, found in zip(cases, alone, strict=True):
        path, _ = on_host(module, c)
        assert (path.node, path.depth, path.emitted) == (found[0], found[1], found[2] if found[2] >= 0 else None)


@pytest.mark.parametrize("name", ["rejection", "match", "typical_longest"])
def test_pruned_nodes_are_not_there(name: str) -> None:
    """A tree with nodes marked dead walks as the tree without them: the same tokens, whatever the nodes are called."""
    module, made = rule(name)
    shorter = 0
    for seed in range(3):
        c = case(seed, shape=(3, 2))
        live = np.random.default_rng(seed).random(len(c.tree)) < 0.7
        live[0] = True
        for n in range(1, len(live)):
            live[n] &= live[c.tree.parent[n]]
        kept = np.flatnonzero(live)
        want = replace(c, tree=c.tree.only(c.tree.closed_under_parents(kept)), evidence=c.evidence.pick(kept))
        path, _ = on_host(module, want)
        walked = made.on_device(replace(given(module, made, c), live=torch.from_numpy(live)[None]), depth=3)
        found = [int(c.tree.token[n]) for n in walked.nodes[0, : int(walked.count[0])]]
        assert (*found, *([int(walked.emitted[0])] if int(walked.emitted[0]) >= 0 else [])) == path.tokens
        shorter += plain(walked, 0) != plain(made.on_device(given(module, made, c), depth=3), 0)
    assert shorter or name == "match"


def test_positions_of_the_root_are_those_of_the_nodes() -> None:
    module, made = rule("match")
    whole = given(module, made, case(3))
    assert whole.position is not None
    root = replace(whole, position=whole.position[:, 0].contiguous())
    assert plain(made.on_device(root, depth=4), 0) == plain(made.on_device(whole, depth=4), 0)


def test_match_needs_only_what_was_drawn() -> None:
    """The tokens drawn at the nodes, given as certain evidence, are followed as the kernels' own draws are."""
    module, made = rule("match")
    assert made.drawn
    assert not rule("rejection")[1].drawn
    assert not rule("typical_longest")[1].drawn
    for seed in range(3):
        c = case(seed, shape=(3, 2))
        m = c.machine(module)
        own = Host(m, module, {"turn": 5, "tau": 0.25, "turns": 3})
        key = own.env[made.captured[0]]
        tokens = np.array([int(draw(m, c.evidence.take(n), key).tokens) for n in range(len(c.tree))])
        whole = given(module, made, c)
        told = replace(whole, p=None, p_points=torch.from_numpy(tokens)[None], row=None, size=c.size)
        assert plain(made.on_device(told, depth=2), 0) == plain(made.on_device(whole, depth=2), 0)


def test_what_is_missing_is_said() -> None:
    module, made = rule("match")
    whole = given(module, made, case(3))
    for lacks in ({"seeds": None}, {"position": None}, {"p": None}):
        with pytest.raises(ValueError, match="needs"):
            made.on_device(replace(whole, **lacks), depth=4)
    with pytest.raises(ValueError, match="contiguous"):
        made.on_device(replace(whole, token=whole.token.repeat(1, 2)[:, ::2]), depth=4)


def test_words_are_those_of_the_keys() -> None:
    for request, site in ((0, "output"), (2**40 + 3, "a.dec:3"), (7, "captured")):
        assert site_word(request, site) % 2**32 == Key(0, request, site).words()[0]
    assert site_words([1, 2], ["a", "output"]).shape == (2, 2)
    assert seed_words([2**33 + 5]).tolist() == [[5, 2]]


MUTANTS = {
    "siblings in the other order": ("rejection", "(order == i)", "(order == len_2 - 1 - i)"),
    "the residual forgotten": ("rejection", "tl.maximum((", "tl.maximum((0.0 * "),
    "the law of another row": ("rejection", "law_rows + b * N + x_node", "law_rows + b * N + (x_node ^ 1) % N"),
    "one counter of a coin": ("rejection", "hashed(hashed(state, given_i), depth), i)", "hashed(hashed(state, i), depth), i)"),
    "one noise for coins and draws": ("rejection", "tl.load(words + b * S + 1)", "tl.load(words + b * S + 0)"),
    "a depth too many": ("match", "depth_of(here, parents + b * N)", "depth_of(here, parents + b * N) + 1"),
    "an off by one position": ("match", "hashed(state, here_position)", "hashed(state, here_position + 1)"),
    "the last of equals": ("deepest", "_at = tl.min(tl.where(kept, index, NB))", "_at = tl.max(tl.where(kept, index, -1))"),
    "parents forgotten": ("typical_longest(0.3, 0.8)", "(tl.gather(live_2, up, 0) & live_2)", "live_2"),
    "the root's children alone": ("match", "(above == node.to(tl.int32))", "(above == 0)"),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_kernel_is_seen(mutant: str) -> None:
    name, old, new = MUTANTS[mutant]
    module, made = rule(name)
    source = made.source
    assert source.count(old) >= 1, source
    written = replace(made.parts, source=source.replace(old, new))
    broken = CompiledRule(made.op, made.name, made.captured, made.noises, made.constants, written)
    differ = 0
    for seed in range(12):
        p = given(module, made, case(seed, shape=(3, 2), how="with"))
        if p.position is not None and name == "match":
            p = replace(p, position=p.position[:, 0].contiguous())
        differ += plain(broken.on_device(p, depth=3), 0) != plain(made.on_device(p, depth=3), 0)
        if differ:
            break
    assert differ, "the tests could not tell"


class RulesOnly(Kit):
    """The torch backend with rules as kernels and nothing else."""

    def walk(self, op: Op, function: Function) -> Walker | None:
        made = rule_of(op, function.body)
        assert made.supported, made.unsupported
        return Walker(made.name, partial(called, made), made.captured)


class WithRules(TorchMachine):
    kit = RulesOnly()


PROGRAM = """
algorithm siblings(target: causal, drafter: causal, k: int in 1..4 = 2):
    while not done:
        draft t:
            repeat 2:
                grow sample(drafter(t.leaves), k, replace = {replace})
        verify t by {rule} against target(t)
        commit t.accepted
"""


@pytest.mark.parametrize("name", ["rejection", "match", "typical_longest"])
@pytest.mark.parametrize("replace_", ["yes", "no"])
def test_whole_runs_commit_the_references_tokens(name: str, replace_: str) -> None:
    rules = (stdlib.path("speculative").parent / "rules.dec").read_text(encoding="utf-8")
    module = optimise(load_text(rules + PROGRAM.format(rule=name, replace=replace_), "siblings.dec"))[0]
    models = {"target": TableModel(5, 1), "drafter": TableModel(5, 2)}
    for temperature in (1, 0):
        request = Request(prompt=(0, 1), limit=8, seed=3, temperature=temperature)
        runs = [Session(module, models, {}, machine=m).run(request) for m in (machine("reference"), WithRules)]
        assert all(r.error is None for r in runs), [r.error for r in runs]
        assert runs[0].tokens == runs[1].tokens
        assert len(runs[0].tokens) == 8


@pytest.mark.parametrize("name", ["freedave", "pearl", "sequoia"])
def test_shipped_algorithms_commit_the_references_tokens(name: str) -> None:
    entry = shelf.module(name).entry
    models = {p.name: shelf.tables()[p.name] for p in entry.params if p.value.type.elem == "model"}
    bound = Session(optimise(shelf.module(name))[0], models, shelf.parameters(name), machine=WithRules)
    request = {"prompt": (0, 1), "limit": 8, "seed": 5}
    result = bound.run(Request(**request))
    assert result.error is None, result.error
    assert result.tokens == shelf.run(name, **request).tokens


def test_every_shipped_rule_but_two_has_kernels() -> None:
    seen = {}
    for name in shelf.NAMES:
        module = optimise(load_text(stdlib.text(name), f"stdlib/{name}.dec"))[0]
        for function in module.functions.values():
            for op in function.body.walk():
                if op.opcode == "tree.walk":
                    seen[name] = rule_of(op, function.body).supported
    assert len(seen) >= 15
    # Block verification folds a path's worth with sums over the vocabulary, which no rule kernel does, and Lookahead draws a
    # token after every node of a tree at once: torch walks these.
    assert {name for name, supported in seen.items() if not supported} == {"block_verification", "lookahead"}
