"""The judge of the checker: that it is right where the answer is known, that it is independent, and what it says of edits."""

from __future__ import annotations

import ast
import random
from fractions import Fraction as F
from pathlib import Path

import pytest
from oracle import language as L
from oracle.bases import LAW, REJECT, TEXTS, bases
from oracle.carried import carried
from oracle.choices import Choices, Output, TooMany, every, joint, possible
from oracle.edits import KINDS, edited
from oracle.judge import Budget, decided, judge, law
from oracle.reading import program
from oracle.replay import Replay, distance
from oracle.run import Row, loads, row, table
from oracle.specification import specified
from oracle.values import Stuck
from oracle.worlds import Model, Request, World, shaped_of, world

HERE = Path(__file__).parent / "oracle"
BETWEEN = {"run.py", "replay.py"}  # where the oracle and decgraph meet


def given(models: dict[str, tuple[F, ...]], max_tokens: int = 1, **params: object) -> World:
    """A world in which every model has one row."""
    made = {}
    for name, row_ in models.items():
        made[name] = Model(name, 0, len(row_), window=1)
        made[name].row = lambda key, length=None, w=row_: w  # type: ignore[method-assign]
    return World(len(next(iter(models.values()))), made, dict(params), (Request((0,), max_tokens=max_tokens),))


def budget() -> Budget:
    return Budget(50000, float("inf"))


HALF = (F(1, 2), F(1, 2))
TILTED = (F(9, 14), F(5, 14))


# ---- it is independent


@pytest.mark.parametrize("path", sorted(HERE.glob("*.py")), ids=lambda p: p.name)
def test_the_oracle_imports_nothing_of_decgraph(path: Path) -> None:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    assert bool({n for n in names if n.split(".")[0] == "decgraph"}) == (path.name in BETWEEN)
    assert path.name in BETWEEN or names.isdisjoint({"oracle.run", "oracle.replay"})


# ---- laws known by hand


def test_the_forgotten_residual_of_the_tutorial() -> None:
    """docs/tutorial.md works it out: 4/7 in place of 1/2, total variation 1/14."""
    text = TEXTS["chain"].replace("        p = normalize(relu(p - x.law))\n", "")
    w = given({"target": HALF, "drafter": TILTED}, gamma=1)
    assert law(program(text), w, budget()) == {((0,),): F(4, 7), ((1,),): F(3, 7)}
    found = decided(program(text), w, program(text).claims[0], budget())
    assert found == f"total variation {float(F(1, 14)):.4g}"


def test_rejection_is_exact_and_its_tokens_differ() -> None:
    chain = bases()["chain"]
    w = given({"target": (F(1, 5), F(4, 5)), "drafter": TILTED}, max_tokens=3, gamma=2)
    assert decided(chain, w, chain.claims[0], budget()) == ""
    assert "the specification has" in decided(chain, w, L.Refines(chain.claims[0].spec, "tokens"), budget())


def test_accepting_twice_as_often() -> None:
    """A draft is 0 with 1/4 and then always taken; 1 has (1/2) / (3/4) = 2/3, twice that is always: the drafter's law."""
    text = TEXTS["chain"].replace("bernoulli(p[x] / x.law[x])", "bernoulli(p[x] / x.law[x] * 2)")
    w = given({"target": HALF, "drafter": (F(1, 4), F(3, 4))}, gamma=1)
    assert law(program(text), w, budget()) == {((0,),): F(1, 4), ((1,),): F(3, 4)}


def test_races_that_share_their_noise() -> None:
    assert joint(HALF, 0, HALF, 0) == F(1, 2)
    assert joint(HALF, 0, HALF, 1) == 0
    assert joint((F(1, 3), F(2, 3)), 0, (F(2, 3), F(1, 3)), 1) == 0  # 0 won although it was slower: it wins the other, too
    r = random.Random(3)
    for size in (2, 3, 4):
        p, q = ([F(x, sum(xs)) for x in xs] for xs in ([r.randint(0 if i else 1, 6) for i in range(size)] for _ in range(2)))
        laws = {(a, b): joint(tuple(p), a, tuple(q), b) for a in range(size) for b in range(size) if p[a] and q[b]}
        assert [sum(v for (a, _), v in laws.items() if a == i) for i in range(size)] == p
        assert [sum(v for (_, b), v in laws.items() if b == i) for i in range(size)] == q
        seen: dict[tuple[int, int], int] = {}
        for _ in range(4000):
            times = [r.expovariate(1) for _ in range(size)]
            pair = tuple(min((t / float(w[v]), v) for v, t in enumerate(times) if w[v])[1] for w in (p, q))
            seen[pair] = seen.get(pair, 0) + 1
        assert distance({(k,): v for k, v in laws.items()}, {(k,): n for k, n in seen.items()}) < 5  # type: ignore[arg-type]
        assert all(possible([(tuple(p), a), (tuple(q), b)]) == (v > 0) for (a, b), v in laws.items())


def test_noise_that_is_read_again_gives_the_same_token() -> None:
    def run(c: Choices) -> tuple[int, int]:
        output = Output({}, True)
        return output.read(3, HALF, c), output.read(3, HALF, c)

    assert {k: p for p, k in every(run, lambda: None)} == {(0, 0): F(1, 2), (1, 1): F(1, 2)}


def test_shaping() -> None:
    row_ = (F(1, 14), F(4, 14), F(9, 14))
    ask = Request((0,), temperature=F(2))
    assert shaped_of(row_, (0,), ask) == (F(1, 6), F(2, 6), F(3, 6))
    assert shaped_of(row_, (0,), Request((0,), temperature=F(0))) == (0, 0, 1)
    assert shaped_of(row_, (0,), Request((0,), top_k=2)) == (0, F(4, 13), F(9, 13))
    assert shaped_of(row_, (0, 2), Request((0,), presence=3)) == (F(1, 8), F(4, 8), F(3, 8))


def test_an_early_end_is_a_difference() -> None:
    text = TEXTS["chain"] + "        break if ctx.length > 2\n"
    w = given({"target": HALF, "drafter": HALF}, max_tokens=6, gamma=1)
    assert decided(program(text), w, program(text).claims[0], budget())


def test_what_is_carried_round_the_loop() -> None:
    assert "guess" in carried(bases()["pending"].body[1].body)
    assert not {"t", "p"} & carried(bases()["pending"].body[1].body)
    assert "x" not in carried(bases()["two_a_turn"].body[0].body)


def test_a_second_request_sees_the_session() -> None:
    text = f"""{REJECT}algorithm a(target: causal, drafter: causal):
{LAW}    state n: int per session = 0

    while not done:
        if n > 0:
            x ~ drafter(ctx)
        else:
            x ~ target(ctx)
        n += 1
        commit x
"""
    a = program(text)
    w = given({"target": HALF, "drafter": TILTED})
    assert decided(a, w, a.claims[0], budget()) == ""
    w.requests = (w.requests[0], w.requests[0])
    assert law(a, w, budget())[(0,), (0,)] == F(1, 2) * F(9, 14)
    assert decided(a, w, a.claims[0], budget())


def test_too_much_is_said() -> None:
    with pytest.raises(TooMany):
        law(bases()["chain"], given({"target": HALF, "drafter": TILTED}, max_tokens=6, gamma=5), Budget(50, float("inf")))


# ---- the syntax


def test_texts_are_read_by_both() -> None:
    for name, text in TEXTS.items():
        assert bases()[name].name == name and loads(text)


def test_edits_load_and_differ() -> None:
    assert len(TEXTS) >= 25 and len(KINDS) >= 30
    made = [edited(seed, loads) for seed in range(30)]
    assert all(program(text) not in bases().values() for text, _ in made)
    assert len({text for text, _ in made}) > 25
    assert made == [edited(seed, loads) for seed in range(30)]


# ---- it reads programs as decgraph does


@pytest.mark.parametrize("name", ["others", "points_refused", "adaptive", "pearl", "table", "long_text", "cells_drawn"])
def test_laws_are_the_frequencies_of_the_reference(name: str) -> None:
    p, compared = bases()[name], 0
    for seed in range(40):
        try:
            w = world(p, seed, name == "cells_drawn")
            expected = law(p, w, Budget(1500, float("inf")))
        except (TooMany, Stuck):
            continue
        if 1 < len(expected) < 12:
            assert distance(expected, Replay(TEXTS[name], w).frequencies(150)) < 6, seed
            compared += 1
        if compared == 2:
            return
    raise AssertionError("no world was small enough")


def test_a_wrong_program_has_a_wrong_law_on_the_reference() -> None:
    text = TEXTS["siblings"].replace("x.law)", "onehot(x))")
    found = judge(program(text), seconds=5)
    assert found.verdict == "refuted" and found.world is not None
    w = given({"target": (F(1, 5), F(2, 5), F(2, 5)), "drafter": (F(6, 10), F(3, 10), F(1, 10))}, k=1)
    ours, theirs = law(program(text), w, budget()), specified(w, program(text).claims[0].spec, lambda: None)
    seen = Replay(text, w).frequencies(900)
    assert distance(ours, seen) < 5 < distance(theirs, seen)


# ---- the checker, judged


@pytest.mark.quick("adaptive", "cells_drawn", "chain", "heads", "jacobi", "lookup", "matched", "points", "siblings", "table")
@pytest.mark.parametrize("name", sorted(TEXTS))
def test_true_programs_hold(name: str) -> None:
    found = judge(bases()[name], seconds=0.4)
    assert (found.verdict, found.why) == ("holds", "")


def judged(seeds: range, seconds: float) -> list[Row]:
    rows = [row(seed, seconds=seconds) for seed in seeds]
    wrong = [x for x in rows if x.unsound]
    assert not wrong, "\n\n".join(f"seed {x.seed}: {x.said}\n{x.text}\n{x.oracle.why}" for x in wrong) + "\n" + table(rows)
    return rows


@pytest.mark.nightly
@pytest.mark.parametrize("name", sorted(TEXTS))
def test_true_programs_are_proved(name: str) -> None:
    import decgraph

    assert decgraph.check(TEXTS[name], derive=False).verdict == "holds"


@pytest.mark.nightly
def test_sixty_edits() -> None:
    rows = judged(range(60), 0.5)
    assert sum(x.oracle.verdict == "refuted" for x in rows) > 15
    assert sum(x.checker in ("proved", "holds") for x in rows) > 15


@pytest.mark.nightly
@pytest.mark.parametrize("part", range(20))
def test_two_thousand_edits(part: int) -> None:
    rows = judged(range(100 * part, 100 * part + 100), 1.0)
    sound = [x for x in rows if not x.oracle.fails]  # the others stop with an error in some world
    assert sum(x.checker in ("undecided", "late") for x in sound) < len(sound) / 10, table(rows)
