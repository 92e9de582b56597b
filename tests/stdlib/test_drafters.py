"""What drafting programs promise beside their claims: the effect that their papers report, on table models."""

from __future__ import annotations

from lib.stdlib.table_models import parameters, run, session, tables

from decgraph.runtime.models.table import TableModel
from decgraph.runtime.session import Result


def per_call(results: list[Result]) -> float:
    """Committed tokens per call of the target."""
    return sum(r.stats.tokens for r in results) / sum(r.stats.target_calls for r in results)


def test_verification_from_the_leaves_accepts_more_of_the_same_trees() -> None:
    """The order of Weng et al. (2025): the same drafts, drawn from the same noise, more of them accepted in the mean."""
    models = tables(5)

    def mean(name: str) -> float:
        return per_call([run(name, models, {"shape": "2x2x1"}, seed=s, max_tokens=30) for s in range(12)])

    assert mean("traversal") > mean("recursive_sd") > 1


def test_a_drafter_that_learns_from_corrections_is_accepted_more_often() -> None:
    """A target that mostly says token 2, of which the drafter knows nothing: the later requests take fewer calls."""
    target = TableModel(4, table={(): [1, 1, 9, 1]}, window=0, name="target")
    models = {"target": target, "drafter": TableModel(4, table={(): [9, 1, 1, 1]}, window=0, name="drafter")}
    calls = {}
    for rate in (0.0, 4.0):
        ask = session("online_sd", models, parameters("online_sd", rate=rate, every=1))
        calls[rate] = [ask(seed=s, max_tokens=30).stats.target_calls for s in range(6)]
    assert sum(calls[4.0][3:]) < 0.75 * sum(calls[0.0][3:])


def test_less_memory_than_candidates_need_leaves_decoding_token_by_token() -> None:
    plain = run("autoregressive")
    tight = run("specmemo", params={"memory": 4, "least": 4})
    roomy = run("specmemo", params={"memory": 64, "least": 4})
    assert tight.tokens == roomy.tokens == plain.tokens
    assert tight.stats.target_calls == plain.stats.target_calls > roomy.stats.target_calls
