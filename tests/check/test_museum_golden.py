"""Rules of verification against recordings of published code: the same drafts and uniforms, in exact fractions."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction as F
from pathlib import Path
from typing import Any

import pytest

from decgraph import stdlib
from decgraph.backends.exact.choices import Choices, runs
from decgraph.backends.exact.run import World
from decgraph.check.laws import Program, execute
from decgraph.dsl.lower import load_text
from decgraph.runtime.models.table import TableModel
from decgraph.runtime.request import Request

FOLDER = Path(__file__).parent / "museum"
START = (0,)
Rows = Sequence[Sequence[str]]
Coin = Callable[[F], bool]


def shown(row: Sequence[str]) -> dict[int, F]:
    """A recorded distribution, by token; tokens without probability left out."""
    return {v: F(x) for v, x in enumerate(row) if F(x)}


@dataclass
class Replay(Choices):
    """The choices of a recorded run: drafts by the labels of their draws, coins by uniforms, the last draw by nothing."""

    drafted: Callable[[str], int | None]
    coin: Coin
    odds: list[F] = field(default_factory=list)
    last: dict[int, F] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__(())

    def choose(self, weights: list[F], values: list[Any], label: str, kind: str = "chance") -> Any:
        if values == [True, False]:
            self.odds.append(weights[0])
            return self.coin(weights[0])
        token = self.drafted(label)
        if token is not None:
            assert weights[values.index(token)] > 0
            return token
        self.last = {v: w for v, w in zip(values, weights, strict=True) if w}
        return next(v for w, v in zip(weights, values, strict=True) if w > 0)


def below(uniforms: Sequence[str]) -> Coin:
    """Coins that say yes where the next uniform is at most their probability."""
    rest = iter(uniforms)
    return lambda p: F(next(rest)) <= p


def in_order(tokens: Sequence[int], names: str = "x") -> Callable[[str], int | None]:
    """Draws of these variables give the drafted tokens in turn."""
    rest: Iterator[int] = iter(tokens)
    return lambda label: next(rest) if label.split(",")[0] in names.split() else None


def text_of(name: str) -> str:
    path = FOLDER / f"{name}.dec"
    return path.read_text(encoding="utf-8") if path.exists() else stdlib.text(name)


def chain(rows: Rows, drafted: Sequence[int]) -> dict[tuple[int, ...], list[F]]:
    """Rows behind the beginnings of a chain, as a table."""
    return {START + tuple(drafted[:i]): [F(x) for x in row] for i, row in enumerate(rows)}


def replay(text: str, p: dict[Any, list[F]], q: dict[Any, list[F]], size: int, how: Replay, **params: Any) -> tuple[int, ...]:
    """The tokens of one step."""
    module = load_text(text, "replayed.dec")
    models = {"target": TableModel(size, 1, table=p, name="target"), "drafter": TableModel(size, 2, table=q, name="drafter")}
    world = World(coupled=False)
    world.restart(how)
    program = Program(module, module.main, models, params)
    return tuple(execute(program.machine(Request(START, limit=30), world, 1)).committed_tokens())


def cases(name: str) -> list[Any]:
    found = json.loads((FOLDER / "golden" / f"sampling_{name}.json").read_text(encoding="utf-8"))["cases"]
    return [pytest.param(c, id=f"{name} {c['id']}") for c in found]


def laws(case: Any) -> Rows:
    """The drafter's rows; those of drafts without probabilities are point masses."""
    return case["q"] or [[str(int(v == x)) for v in range(case["V"])] for x in case["drafted"]]


def block(name: str, case: Any, said: Any) -> None:
    """One step by a rule for blocks has the thresholds, the accepted drafts and the next token's distribution that are said."""
    drafted, size = case["drafted"], case["V"]
    open_ = [(F(h), u) for h, u in zip(said["thresholds"], case["uniforms"], strict=True) if 0 < F(h) < 1]
    rest = iter([u for _, u in open_])
    how = Replay(in_order(drafted), lambda h: F(next(rest)) <= h if 0 < h < 1 else h == 1)
    tokens = replay(text_of(name), chain(case["p"], drafted), chain(laws(case), drafted), size, how, gamma=len(drafted))
    n = said["accepted"]
    assert [h for h in how.odds if 0 < h < 1] == [h for h, _ in open_]
    assert (len(tokens) - 1, list(tokens[:n])) == (n, drafted[:n])
    assert how.last == shown(said["next_token_distribution"])


@pytest.mark.parametrize("case", [*cases("block_ascend_fixed"), *cases("block_ascend_wrong")])
def test_block_rejection_is_the_papers(case: Any) -> None:
    block("block_verification", case, case["paper"])


@pytest.mark.parametrize("case", cases("block_ascend_fixed"))
def test_the_early_thresholds_are_those_that_were_shipped(case: Any) -> None:
    """The program that is refuted is the rule that an engine ran."""
    block("m12_block_early", case, case)


def test_the_repaired_rule_differs() -> None:
    assert any(c.values[0]["differs_from_paper"] for c in cases("block_ascend_fixed"))


@pytest.mark.parametrize("case", cases("block_ascend_wrong"))
def test_the_product_of_uniforms_is_the_one_that_was_shipped(case: Any) -> None:
    """Of two drafts our program accepts both with probability d - d * log(d), up to its four parts of a uniform."""
    drafted = case["drafted"][:2]
    p, q = chain(case["p"][:3], drafted), chain(laws(case)[:2], drafted)
    ratio = [min(F(1), F(case["p"][i][x]) / F(laws(case)[i][x])) for i, x in enumerate(drafted)]
    assert [F(x) for x in case["cumulative_ratio"][:2]] == [ratio[0], ratio[0] * ratio[1]]
    d = float(ratio[0] * ratio[1])
    counts = [F(0), F(0), F(0)]

    def program(choices: Choices) -> int:
        coins: list[Any] = []

        def flip(h: F) -> bool:
            coins.append(h)
            return bool(choices.choose([h, 1 - h], [True, False], "coin"))

        return len(replay(text_of("m12_block_product"), p, q, case["V"], Replay(in_order(drafted), flip))) - 1

    for choices, n in runs(program, 200):
        counts[n] += choices.weight()
    both = d - d * math.log(d) if d else 0.0
    assert abs(float(counts[2]) - both) < 0.02
    assert abs(float(counts[0] + counts[1]) - (1 - both)) < 0.02 and sum(counts) == 1


@pytest.mark.parametrize("case", cases("block_sequential"))
def test_the_sequential_form(case: Any) -> None:
    """A position's draw is a token while its uniform is below 1 - continue; at the end the drafts stand above it."""
    drafted, k = case["drafted"], len(case["drafted"])
    at = iter([(i, F(u), F(c)) for i, (u, c) in enumerate(zip(case["uniforms"], case["continue_probabilities"], strict=True))])

    def coin(h: F) -> bool:
        i, u, c = next(at)
        while c == 1 and i < k:      # nothing is missing there, and nobody asks
            i, u, c = next(at)
        assert h == 1 - c
        return u >= c if i == k else u < h

    how = Replay(in_order(drafted), coin)
    text = text_of("m12_block_first_right")
    tokens = replay(text, chain(case["p"], drafted), chain(laws(case), drafted), case["V"], how, gamma=k)
    n = case["accepted"]
    assert (len(tokens) - 1, list(tokens[:n])) == (n, drafted[:n])
    assert case["extra_token"] in how.last
    if n < k:      # the token by its place in the running sum, as the recording drew it
        u = F(case["uniforms"][n]) / (1 - F(case["continue_probabilities"][n]))
    else:
        u = F(case["bonus_uniform"])
    assert next(v for v in range(case["V"]) if u < sum(w for x, w in how.last.items() if x <= v)) == case["extra_token"]


@pytest.mark.parametrize("case", cases("lenience"))
def test_lenience(case: Any) -> None:
    drafted = case["drafted"]
    how = Replay(in_order(drafted), below(case["uniforms"]))
    tokens = replay(text_of("x_lenience"), chain(case["p"], drafted), chain(case["q"], drafted), case["V"], how,
                    gamma=len(drafted), l=F(case["lenience"]))
    assert len(tokens) - 1 == case["accepted"]
    assert how.last == shown(case["next_token_distribution"])


SIBLINGS = """
algorithm siblings(target: causal, drafter: causal, k: int in 1..8 = 2):
    refines autoregressive(target) in distribution

    while not done:
        draft t:
            x = sample(drafter(root), k, replace = no)
            grow x at root
        verify t by rejection against target(t)
        commit t.accepted
"""


@pytest.mark.parametrize("case", cases("rrs"))
def test_recursive_rejection_without_replacement(case: Any) -> None:
    drafted = case["candidates"]
    how = Replay(in_order(drafted, "draw.many x"), below(case["uniforms"]))
    p, q = {START: [F(x) for x in case["p"]]}, {START: [F(x) for x in case["q"]]}
    tokens = replay(SIBLINGS, p, q, case["V"], how, k=len(drafted))
    assert len(how.odds) == case["uniforms_used"]
    if case["accepted_index"] is None:
        assert len(tokens) == 1 and how.last == shown(case["residual_distribution"])
    else:
        assert len(tokens) == 2 and tokens[0] == drafted[case["accepted_index"]]


def test_skipping_a_repeated_token_is_off_by_what_was_recorded() -> None:
    """The distance that the recording's notes give for one table; without the skip it is 0."""
    p, q = [F(3, 28), F(1, 4), F(9, 28), F(9, 28)], [F(1, 16), F(3, 8), F(5, 16), F(1, 4)]
    distance = {}
    for name in ("m14_equal_siblings_skipped", "m14_equal_siblings_skipped_right"):
        law = [F(0)] * 4

        def program(choices: Choices, name: str = name) -> int:
            world = World(coupled=False)
            world.restart(choices)
            module = load_text(text_of(name), name)
            models = {"target": TableModel(4, table={(): p}, window=0, name="target"),
                      "drafter": TableModel(4, table={(): q}, window=0, name="drafter")}
            m = execute(Program(module, module.main, models, {}).machine(Request(START, limit=1), world, 1))
            return int(m.committed_tokens()[0])

        for choices, token in runs(program, 2000):
            law[token] += choices.weight()
        distance[name] = sum(abs(a - b) for a, b in zip(law, p, strict=True)) / 2
    assert round(float(distance["m14_equal_siblings_skipped"]), 4) == 0.0057
    assert distance["m14_equal_siblings_skipped_right"] == 0


@pytest.mark.parametrize("case", cases("spechub"))
def test_spechub(case: Any) -> None:
    drafted = case["candidates"]
    how = Replay(in_order(drafted, "x y"), below(case["uniforms"]))
    p, q = {START: [F(x) for x in case["p"]]}, {START: [F(x) for x in case["q"]]}
    tokens = replay(text_of("x_spechub_right"), p, q, case["V"], how)
    assert len(how.odds) == case["uniforms_used"]
    if case["accepted_index"] is None:
        assert len(tokens) == 1 and how.last == shown(case["residual_distribution"])
    else:
        assert len(tokens) == 2 and tokens[0] == drafted[case["accepted_index"]]


def tree_program(case: Any, replace: str) -> tuple[str, dict[str, list[int]]]:
    """A program that grows the tree of a case, a line for the children of a node, and the tokens drawn at each line."""
    lines = ["algorithm recorded(target: causal, drafter: causal):", "    refines autoregressive(target) in distribution",
             "    while not done:", "        draft t:"]
    name, drawn = {0: "root"}, {}
    for node in range(len(case["tokens"])):
        kids = [n for n, parent in enumerate(case["parents"]) if parent == node]
        if not kids:
            continue
        above = name[node]
        lines.append(f"            g{node} = grow sample(drafter({above}), {len(kids)}, replace = {replace}) at {above}")
        drawn[str(len(lines))] = [case["tokens"][n] for n in kids]
        name.update({n: f"g{node}[{i}]" for i, n in enumerate(kids)})
    lines += ["        verify t by rejection against target(t)", "        commit t.accepted"]
    return "\n".join(lines) + "\n", drawn


def by_tokens(case: Any, which: str) -> dict[tuple[int, ...], list[F]] | None:
    """Rows by the tokens up to a node; None where two nodes with the same tokens have different rows, which no model gives."""
    path, rows = {0: START}, {}
    for node, above in enumerate(case["parents"]):
        if above >= 0:
            path[node] = (*path[above], case["tokens"][node])
        row = case[which][node]
        if row is None:
            continue
        if rows.setdefault(path[node], row) != row:
            return None
    return {k: [F(x) for x in row] for k, row in rows.items()}


def tree(case: Any, replace: str) -> bool:
    """One step by recursive rejection accepts the recorded nodes; False where no model has the case's rows."""
    p, q = by_tokens(case, "target"), by_tokens(case, "draft")
    if p is None or q is None:
        return False
    text, drawn = tree_program(case, replace)

    def drafted(label: str) -> int | None:
        found = re.match(r"draw.many, .*?line (\d+) .*number (\d+)", label)
        return drawn[found[1]][int(found[2])] if found else None

    how = Replay(drafted, below([case["uniforms"][n] for n in case["uniforms_used"]]))
    tokens = replay(text, p, q, case["V"], how)
    assert len(how.odds) == len(case["uniforms_used"])
    assert list(tokens[:-1]) == [case["tokens"][n] for n in case["accepted_nodes"]]
    assert how.last == shown(case["next_token_distribution"])
    return True


@pytest.mark.parametrize("case", cases("sequoia_wor"))
def test_trees_without_replacement(case: Any) -> None:
    assert tree(case, "no")


def test_trees_with_replacement() -> None:
    """SpecInfer's rule. Where a token is drafted twice below a node the recordings have rows that no model has."""
    done = [tree(c.values[0], "yes") for c in cases("specinfer_multiround")]
    assert sum(done) >= 2
