"""Every program decodes with models whose rows have exact zeros, as real ones have: tokens banned, masked or padded.

Logarithms of 0 meet coefficients of 0 and one another there, with the parameters that programs have by themselves and with
those of their claims. The backends commit the same tokens.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from lib.stdlib.sessions import session_of
from lib.stdlib.table_models import SHELF

import decgraph
from decgraph import stdlib
from decgraph.check.table_models import Style
from decgraph.check.worlds import models_for, params_for
from decgraph.ir.settings import of_request, settings
from decgraph.passes.plan import Plan
from decgraph.runtime.models.table import TableModel
from decgraph.runtime.request import Request

V, LIMIT = 8, 5


def reads_a_grammar(name: str) -> bool:
    """Whether an automaton of the program's own may want tokens without mass: then nothing can follow, and the run says so."""
    return ": automaton" in stdlib.text(name)


def worlds(name: str) -> list[tuple[str, dict[str, Any]]]:
    """Parameters to run a program with: its own where they are real numbers, and those of its claims."""
    f = decgraph.load(name).function
    own = {p.name: p.default for p in f.params if p.value.type.elem in ("real", "prob") and p.has_default}
    out = [("as it is", {**params_for(f, 1), **own})]
    for claim in f.claims:
        for met in settings(f, claim.setting, of_request(2, LIMIT))[:2] if claim.setting else ():
            out.append((claim.text, {**params_for(f, 1), **own, **met}))
    return out


@pytest.mark.budget(18)
@pytest.mark.quick("cfg", "contrastive_decoding", "instructive_decoding", "apd", "anchored", "dola", "uscd", "transfer_q")
@pytest.mark.parametrize("name", [n for n in SHELF if not reads_a_grammar(n)])
def test_rows_with_zeros_are_decoded(name: str) -> None:
    algorithm = decgraph.load(name)
    for what, params in worlds(name):
        for seed, style in enumerate((Style("zeros"), Style("zeros"), Style(support=3), Style("sure"))):
            models = models_for(algorithm.function, V, seed, style=replace(style, shared=seed))
            for temperature in (0, 1):
                request = Request(
                    (1, 2), max_tokens=LIMIT, temperature=temperature, seed=seed, bans={6} if style.sort == "zeros" else ()
                )
                said = {}
                for backend in ("reference", "torch"):
                    result = session_of(algorithm, models, params, backend, Plan(passes=())).run(request)
                    assert result.error is None, (backend, what, params, seed, temperature, str(result.error))
                    said[backend] = result.tokens
                assert said["torch"] == said["reference"] and said["torch"], (what, params, seed, temperature)
                assert style.sort != "zeros" or 6 not in said["torch"]


CARRIED = """
algorithm carried(target: causal, drafter: causal):
    state t: tree[16] per sequence = empty

    while not done:
        known = t.nodes
        best = argmax(t.leaves, by = [-t.logprob[t.leaves]])
        if t.size > 0:
            commit t.token[best]
        else:
            draft t:
                grow topk(drafter(t.leaves).raw, 3)
                grow topk(drafter(t.new).raw, 2)
            verify t by match against target(known)
            commit t.accepted
"""


@pytest.mark.parametrize("backend", ["torch", "reference"])
def test_a_tree_below_an_accepted_draft_without_probability_keeps_its_order(backend: str) -> None:
    """Token 2, to which the drafter gives nothing, is accepted; of the tokens drafted below it the less likely one is known."""
    models = {
        "target": TableModel(3, table={(): [0, 0, 1]}, window=0, name="target"),
        "drafter": TableModel(3, table={(): [3, 1, 0]}, window=0, name="drafter"),
    }
    session = decgraph.parse(CARRIED).session(models, plan=Plan(backend=backend))
    result = session.run(Request((0,), max_tokens=2, temperature=0))
    assert result.error is None and result.tokens == (2, 1)
