"""Hypothesis strategies for programs, models, parameters, contexts and requests; `decgraph.testing` exports them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from decgraph.check.algorithm import find
from decgraph.check.worlds import models_for, params_for, request_for
from decgraph.runtime.arguments import AlgorithmLike, ParamValue
from decgraph.runtime.models.interface import Model
from decgraph.runtime.models.table import TableModel
from decgraph.runtime.request import Request

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy


def models(
    vocab: int = 3, *, kind: Literal["causal", "masked"] = "causal", zeros: bool = False, power: int = 1
) -> SearchStrategy[TableModel]:
    """Table models with rational entries over `vocab` tokens. zeros: some tokens have no mass. power: weights are perfect
    powers, so that temperatures 1/2 and 2 stay exact (power 4).

    >>> from hypothesis import given
    >>> @given(models(3), contexts(3))
    ... def sums_to_one(model, context):
    ...     assert sum(model.eval([context])[0].weights) == 1
    >>> sums_to_one()
    """
    from hypothesis import strategies as st

    return st.integers(0, 10_000).map(lambda seed: TableModel(vocab, seed=seed, kind=kind, zeros=zeros, power=power))


def contexts(vocab: int = 3, *, least: int = 1, most: int = 4) -> SearchStrategy[tuple[int, ...]]:
    """Token ids of prompts: `least` to `most` of them."""
    from hypothesis import strategies as st

    return st.lists(st.integers(0, vocab - 1), min_size=least, max_size=most).map(tuple)


def requests(vocab: int = 3, *, max_tokens: int = 4) -> SearchStrategy[Request]:
    """Requests of every sort that exact arithmetic can follow: plain ones, stop tokens, truncation, bans, penalties."""
    from hypothesis import strategies as st

    return st.integers(0, 1_000).map(lambda seed: request_for(vocab, seed, max_tokens))


def parameters(algorithm: AlgorithmLike, vocab: int = 3) -> SearchStrategy[tuple[dict[str, Model], dict[str, ParamValue]]]:
    """(models, parameters) that an algorithm can run with: tables, and small values inside the declared ranges.

    >>> from hypothesis import given
    >>> @given(parameters("speculative"))
    ... def small(drawn):
    ...     models, params = drawn
    ...     assert sorted(models) == ["drafter", "target"] and 1 <= params["gamma"] <= 3
    >>> small()
    """
    from hypothesis import strategies as st

    entry = find(algorithm)[0].entry
    return st.integers(0, 1_000).map(lambda seed: (models_for(entry, vocab, seed), params_for(entry, seed)))


def programs(kind: Literal["causal", "masked"] = "causal") -> SearchStrategy[str]:
    """Texts of `.dec` programs that pass every check of the front end: they draft chains and trees and verify them by the rules
    of stdlib, branch, loop and keep state; or, masked, they decide the cells of a canvas in some order.

    >>> from hypothesis import given
    >>> import decgraph
    >>> @given(programs())
    ... def parses(text):
    ...     assert decgraph.parse(text).name == "drawn"
    >>> parses()
    """
    return _masked() if kind == "masked" else _causal()


NUMBERS = ("1", "2", "gamma", "turns", "ctx.length", "len(prompt)", "room")
CHAINED = ("rejection", "match", "block_rejection", "typical_longest")
"""Rules that verify one draft after the other."""
CHOSEN = ("match", "match_longest", "typical_longest")
"""Rules that ask only for the token of a draft, and so verify drafts that were chosen without a draw."""


def _numbers() -> SearchStrategy[str]:
    """Whole numbers, some of them negative."""
    from hypothesis import strategies as st

    joined = ("({} + {})", "({} - {})", "min({}, {})", "max({}, {})", "({} % (1 + abs({})))", "({} * {})")
    return st.recursive(
        st.sampled_from(NUMBERS),
        lambda inner: st.builds(lambda form, a, b: form.format(a, b), st.sampled_from(joined), inner, inner),
        max_leaves=3,
    )


def _conditions() -> SearchStrategy[str]:
    from hypothesis import strategies as st

    tests = ("{} > {}", "{} % 2 == {} % 2", "not {} < {}", "{} == {}")
    return st.builds(lambda form, a, b: form.format(a, b), st.sampled_from(tests), _numbers(), _numbers())


def _distributions(at: str) -> SearchStrategy[str]:
    """Distributions of the token after a place."""
    from hypothesis import strategies as st

    forms = ("drafter({0})", "target({0})", "normalize(drafter({0}) * 0.5 + target({0}) * 0.5)", "renorm_topk(drafter({0}), 2)")
    return st.sampled_from(forms).map(lambda form: form.format(at))


def _indented(lines: list[str]) -> list[str]:
    return ["    " + line for line in lines]


def _steps() -> SearchStrategy[list[str]]:
    """The lines of one turn of the loop of a causal program, which commits at least one token."""
    from hypothesis import strategies as st

    times = _numbers().map(lambda n: f"clamp({n}, 1, 3)")
    plain = st.builds(lambda p, how: [f"x ~ {p}{how}", "commit x"], _distributions("ctx"), st.sampled_from(("", " as output")))

    def drafts(grow: list[str], rule: str, n: str, leave: str | None) -> list[str]:
        stop = [f"break if {leave}"] if leave is not None else []
        loop = [f"repeat {n}:", *_indented([*grow, *stop])]
        return ["draft t:", *_indented(loop), f"verify t by {rule} against target(t)", "commit t.accepted"]

    drawn = _distributions("t.leaves").map(lambda p: [f"x ~ {p}", "grow x"])
    topk = st.builds(lambda p, k: [f"grow topk({p}.raw, {k})"], st.sampled_from(("drafter(t.leaves)", "target(t.leaves)")),
                     st.integers(1, 3))  # fmt: skip
    leave = st.none() | _conditions()
    chain = st.builds(drafts, drawn, st.sampled_from(CHAINED), times, leave)
    tree = st.builds(drafts, topk, st.sampled_from(CHOSEN), times, leave)
    step = plain | chain | tree
    branch = st.builds(
        lambda test, a, b: [f"if {test}:", *_indented(a), "else:", *_indented(b)], _conditions(), step, step
    )  # fmt: skip
    return step | branch


def _causal() -> SearchStrategy[str]:
    from hypothesis import strategies as st

    def text(step: list[str], turns: list[str]) -> str:
        head = "algorithm drawn(target: causal, drafter: causal, gamma: int in 1..4 = 2):"
        body = ["state turns: int per sequence = 0", "while not done:", *_indented([*turns, *step])]
        return "\n".join([head, *_indented(body), ""])

    return st.builds(text, _steps(), st.sampled_from(([], ["turns += 1"])))


def _masked() -> SearchStrategy[str]:
    from hypothesis import strategies as st

    def text(blocks: int, policy: str | None, law: str, draw: str, chosen: str) -> str:
        at, cells = (", at = b", "c[b]") if blocks else ("", "c")
        turn = [f"p = {law.format(f'model(c{at})')}", f"x {draw}", f"unmask {cells} where {chosen} with x"]
        loop = [f"while any({'c.masked[b]' if blocks else 'c.masked'}):", *_indented(turn)]
        body = ["canvas c: length", *([f"cache model by {policy}"] if blocks and policy else [])]
        body += [f"for b in blocks(c, {blocks}):", *_indented(loop)] if blocks else loop
        return "\n".join(["algorithm drawn(model: masked, length: int in 1..8 = 4):", *_indented([*body, "commit c"]), ""])

    return st.builds(
        text,
        st.integers(0, 3),
        st.sampled_from((None, "prefix", "dual")),
        st.sampled_from(("{}", "renorm_topk({}, 2)", "normalize({} + 0.1)")),
        st.sampled_from(("~ p", "= argmax(p)")),
        st.sampled_from(("first_max(p.raw[x])", "rank(p.raw[x]) < 2", "sure(p.raw[x], 0.4)", "first_max(-entropy(p))")),
    )
