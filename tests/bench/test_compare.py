"""Comparisons on small models: both sides really run, in one interleaved run, and what must not be is noticed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import decgraph
from decgraph.bench import baselines, compare, measure, shares, weights
from decgraph.bench.agreement import Agreement
from decgraph.bench.compare import candidates
from decgraph.bench.contenders import ContenderRun, Theirs, greedy_is_exact, params_for, request_of, run, session_on
from decgraph.bench.measure import MeasureSettings, silent
from decgraph.bench.prompts import BenchPrompt, of_ids
from decgraph.errors import DecError

TINY = MeasureSettings(limit=8, rounds=2)
GENERATE, ASSISTED = "transformers generate", "transformers assisted"


@pytest.fixture(scope="module")
def small() -> weights.BenchWeights:
    """A random Llama far smaller than the benchmark's own, made in the same way."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(weights.SIZES, "tiny", weights.LlamaSize(32, 3, 1, 4, 64))
        return weights.random_llama("tiny")


def prompts_for(small: weights.BenchWeights, count: int = 2, kinds: tuple[str, ...] = ("random",)) -> list[BenchPrompt]:
    return [BenchPrompt(kinds[n % len(kinds)], tokens) for n, tokens in enumerate(of_ids(small.size, count))]


def run_on(*given: Any, **more: Any) -> dict[str, Any]:
    """A comparison, prepared and run."""
    return compare.prepared(*given, **more)(silent)


def rows_by(run: dict[str, Any], kind: str | None = None) -> dict[str, dict[str, Any]]:
    """The rows of one kind by the name of the contender."""
    kind = kind or run["rows"][0]["kind"]
    return {row["algorithm"]: row for row in run["rows"] if row["kind"] == kind}


@pytest.fixture(scope="module")
def whole(small: weights.BenchWeights) -> dict[str, Any]:
    """Three algorithms against the usual baselines, on prompts of two kinds; eagle2 has no head."""
    names = ["autoregressive", "speculative:gamma=2", "eagle2", "prompt_lookup"]
    with pytest.warns(UserWarning, match="eagle2 is not measured"):
        return run_on(candidates(names, {}), small, prompts_for(small, 3, ("a", "b")), TINY)


def test_the_drafter_is_the_targets_first_layers(small: weights.BenchWeights) -> None:
    below, above = small.drafter.state_dict(), small.target.state_dict()
    assert all(torch.equal(below[key], above[key]) for key in below)
    assert small.facts()["layers"] == 3 and small.facts()["dtype"] == "float32"
    assert weights.count(small.drafter) < weights.count(small.target)


def test_each_side_has_its_own_copy(small: weights.BenchWeights) -> None:
    other = small.copied()
    assert other.target.lm_head.weight.data_ptr() != small.target.lm_head.weight.data_ptr()
    assert torch.equal(other.target.lm_head.weight, small.target.lm_head.weight)


def test_every_contender_has_a_row_for_every_kind(whole: dict[str, Any]) -> None:
    ours = ["autoregressive", "speculative:gamma=2", "prompt_lookup"]
    theirs = [GENERATE, "transformers prompt_lookup", ASSISTED]
    for kind, prompts, timed in (("all", 3, 6), ("a", 2, 4), ("b", 1, 2)):
        rows = rows_by(whole, kind)
        assert sorted(rows) == sorted([*ours, *theirs])
        assert {(row["prompts"], row["timed"]) for row in rows.values()} == {(prompts, timed)}
        assert all(rows[name]["side"] == "decgraph" for name in ours)
        for name in ours:
            assert set(rows[name]["ratios"]) >= {GENERATE}
            for clock in rows[name]["ratios"][GENERATE].values():
                assert clock["value"] > 0 and clock["low"] is clock["high"] is None and clock["n"] == prompts
                assert clock["quartiles"]["low"] <= clock["quartiles"]["median"] <= clock["quartiles"]["high"]
    assert whole["prompts"]["kinds"] == {"a": 2, "b": 1}


def test_greedy_tokens_are_compared_with_generates(whole: dict[str, Any]) -> None:
    rows = rows_by(whole)
    assert "tokens_equal" not in rows[GENERATE]
    for name, row in rows.items():
        if name != GENERATE:
            assert row["tokens_equal"] == {"same": 3, "near_ties": 0, "different": 0}, name
    assert not compare.wrong(whole)


def test_an_algorithm_that_lacks_a_head_says_so_and_the_others_go_on(whole: dict[str, Any]) -> None:
    assert set(whole["failed"]) == {"eagle2"}
    assert "needs features trained on tiny" in whole["failed"]["eagle2"] and "--model head=FOLDER" in whole["failed"]["eagle2"]


def test_drafts_are_counted_and_the_counterpart_drafts_as_long(whole: dict[str, Any]) -> None:
    """The same drafter and draft length: a larger difference would mean that the baseline is not what it is said to be."""
    rows = rows_by(whole)
    row = rows["speculative:gamma=2"]
    assert whole["contenders"][ASSISTED]["num_assistant_tokens"] == 2
    assert whole["contenders"]["speculative:gamma=2"]["params"] == {"gamma": 2}
    assert set(row["ratios"]) == {GENERATE, ASSISTED}
    assert row["tokens_per_call"] == pytest.approx(rows[ASSISTED]["tokens_per_call"], rel=0.2)
    tested, accepted = row["acceptance"]["tested"], row["acceptance"]["accepted"]
    assert len(tested) == 2 and all(a <= t for a, t in zip(accepted, tested, strict=True))
    assert tested[1] <= accepted[0]  # the second draft is tested where the first was accepted
    assert 1 < row["draft_calls_per_call"] <= 2 and rows["autoregressive"]["draft_calls_per_call"] == 0
    assert rows["autoregressive"]["tokens_per_call"] == 1 == rows[GENERATE]["tokens_per_call"]


def test_shares_of_time_add_up(whole: dict[str, Any]) -> None:
    rows = rows_by(whole)
    for name in ("autoregressive", "speculative:gamma=2"):
        assert sum(rows[name]["time"].values()) == pytest.approx(1, abs=1e-3)
    assert rows["autoregressive"]["time"]["draft"] == 0 < rows["speculative:gamma=2"]["time"]["draft"]


def test_ratios_are_of_the_times_in_the_file(whole: dict[str, Any]) -> None:
    """The figure can be computed again from the single times that the file has."""
    import statistics

    times, per_prompt = whole["times"], dict[int, list[float]]()
    for i, (_, group) in enumerate(times["groups"]):
        each = [times["cpu"][name][i] / times["tokens"][name][i] for name in (GENERATE, "autoregressive")]
        per_prompt.setdefault(group, []).append(each[0] / each[1])
    figure = statistics.geometric_mean([statistics.median(found) for found in per_prompt.values()])
    assert rows_by(whole)["autoregressive"]["ratios"][GENERATE]["cpu"]["value"] == pytest.approx(figure, rel=2e-3)


def test_two_settings_of_a_loop_are_two_baselines(small: weights.BenchWeights) -> None:
    algorithms = candidates(["speculative", "speculative:gamma=2", "sequoia"], {})
    run = run_on(algorithms, small, prompts_for(small, 1), replace(TINY, rounds=1))
    assert [name for name in run["contenders"] if "assisted" in name] == [ASSISTED, f"{ASSISTED}:tokens=2"]
    rows = rows_by(run)
    assert f"{ASSISTED}:tokens=2" in rows["speculative:gamma=2"]["ratios"]
    assert ASSISTED in rows["speculative"]["ratios"] and ASSISTED in rows["sequoia"]["ratios"]


def test_another_algorithm_as_the_baseline(small: weights.BenchWeights) -> None:
    run = run_on(
        candidates(["speculative"], {}), small, prompts_for(small, 1), TINY, wanted=["autoregressive", "assisted_default"]
    )
    rows = rows_by(run)
    assert set(rows["speculative"]["ratios"]) == {"autoregressive", "transformers assisted_default"}
    assert rows["speculative"]["tokens_equal"] == {"same": 1, "near_ties": 0, "different": 0}
    assert run["contenders"]["transformers assisted_default"]["num_assistant_tokens"] == 20


def test_a_batch_is_compared_with_generates_own(small: weights.BenchWeights) -> None:
    prompts = [BenchPrompt("random", tokens[: 20 + 9 * n]) for n, tokens in enumerate(of_ids(small.size, 3))]
    run = run_on(candidates(["autoregressive", "speculative"], {}), small, prompts, replace(TINY, batch=3))
    rows = rows_by(run)
    assert set(rows) == {GENERATE, "autoregressive", "speculative"}  # the other loops take one prompt at a time
    assert rows["autoregressive"]["tokens"] == 24 and rows["autoregressive"]["prompts"] == 3
    assert rows["speculative"]["tokens_equal"]["same"] + rows["speculative"]["tokens_equal"]["near_ties"] == 3


def test_sampled_runs_compare_no_tokens(small: weights.BenchWeights) -> None:
    run = run_on(candidates(["autoregressive"], {}), small, prompts_for(small, 1), replace(TINY, temperature=0.7))
    row = rows_by(run)["autoregressive"]
    assert "tokens_equal" not in row and row["ratios"][GENERATE]["wall"]["value"] > 0


def test_texts_end_at_the_models_end_of_text(small: weights.BenchWeights) -> None:
    """Both sides stop at the same token, alone and in a padded batch."""
    prompts = prompts_for(small, 2)
    full = baselines.baseline("generate", small.copied(), {})([prompts[0].tokens], 8)[0]
    ending = replace(small.copied(), eos=frozenset({full[3]}))
    for batch in (1, 2):
        run = run_on(candidates(["autoregressive"], {}), ending, prompts, replace(TINY, rounds=1, batch=batch))
        row = rows_by(run)["autoregressive"]
        assert row["tokens"] < 16 and row["tokens_equal"]["same"] == 2
        assert row["tokens"] == rows_by(run)[GENERATE]["tokens"]


def test_padding_does_not_change_the_baselines_tokens(small: weights.BenchWeights) -> None:
    theirs = baselines.baseline("generate", small, {})
    prompts = [p[: 20 + 9 * n] for n, p in enumerate(of_ids(small.size, 3))]
    assert theirs(prompts, 6) == [theirs([p], 6)[0] for p in prompts]


def test_a_models_own_generation_settings_do_not_slow_the_baseline_alone(small: weights.BenchWeights) -> None:
    """A penalty in the model's folder would be transformers' work and not ours, and other tokens."""
    (prompt,) = of_ids(small.size, 1)
    plain = baselines.baseline("generate", small.copied(), {})([prompt], 8)
    other = small.copied()
    other.target.generation_config.repetition_penalty = 5.0
    assert baselines.baseline("generate", other, {})([prompt], 8) == plain


def test_other_tokens_are_noticed(small: weights.BenchWeights) -> None:
    (prompt,) = of_ids(small.size, 1)
    tokens = baselines.baseline("generate", small, {})([prompt], 6)[0]
    agreement = Agreement(small.target)
    agreement.compare(prompt, tokens, tokens)
    other = [*tokens[:2], (tokens[2] + 7) % 64, *tokens[3:]]
    agreement.compare(prompt, other, tokens)
    found = agreement.to_json()
    assert (found["same"], found["different"]) == (1, 1)
    assert str(found["first"]).startswith("token 2: ")
    agreement.compare(prompt, tokens[:3], tokens)
    assert agreement.different == 2  # a text that ends early is another text
    agreement.gap = lambda *_: (1e-4, 1e-3)  # type: ignore[method-assign]
    agreement.compare(prompt, other, tokens)
    assert agreement.to_json()["near_ties"] == 1


def test_a_near_tie_is_wider_in_half_precision(small: weights.BenchWeights) -> None:
    (prompt,) = of_ids(small.size, 1)
    assert Agreement(small.target).gap(prompt, 5, 6)[1] == 1e-3
    half = Agreement(small.copied().target.to(torch.bfloat16))
    logits = half.target(torch.tensor([prompt])).logits[0, -1]
    gap, least = half.gap(prompt, 5, 6)
    assert gap == pytest.approx(abs(float(logits[5] - logits[6])))
    assert least == pytest.approx(4 * 2**-7 * max(abs(float(logits[5])), abs(float(logits[6]))))


@pytest.mark.parametrize(("dtype", "claims", "faults"), [("float32", True, 1), ("bfloat16", True, 0), ("float32", False, 0)])
def test_differing_tokens_are_a_fault_where_equality_is_claimed_in_float32(dtype: str, claims: bool, faults: int) -> None:
    row = {"algorithm": "a", "kind": "k", "claims_equality": claims,
           "tokens_equal": {"same": 1, "near_ties": 0, "different": 1, "first": "token 2"}}  # fmt: skip
    assert len(compare.wrong({"models": {"dtype": dtype}, "rows": [row]})) == faults


def test_calls_that_the_interpreter_does_not_make_are_noticed() -> None:
    meant = {"calls": 5, "interpreter_calls": 4, "tokens_equal": True}
    found = {"models": {"dtype": "float32"}, "rows": [{"algorithm": "a", "kind": "k", "interpreter": meant}]}
    assert "5 calls, 4 by the interpreter" in compare.wrong(found)[0]
    meant |= {"calls": 4, "tokens_equal": False}
    assert "other tokens" in compare.wrong(found)[0]


def test_a_contender_that_breaks_is_left_out() -> None:
    """In the untimed run or in a timed one; the rows of the others are there."""

    class Fixed:
        def __init__(self, label: str, fails: int) -> None:
            self.label, self.left = label, fails

        def __call__(self, n: int) -> int:
            self.observed(n)
            return 4

        def observed(self, n: int) -> ContenderRun:
            self.left -= 1
            if self.left == 0:
                raise DecError("out of memory")
            return ContenderRun([(1, 2, 3, 4)], 2)

    work = compare.work_of([BenchPrompt("a", (1,)), BenchPrompt("b", (2,))], 1)
    found = measure.measured([Fixed("early", 1), Fixed("late", 4), Fixed("never", -1)], work, MeasureSettings(rounds=2))
    assert set(found.failed) == {"early", "late"} and set(found.times.of("wall")) == {"never"}
    rows = measure.rows_of(found, {"early": [], "late": [], "never": ["early"]}, MeasureSettings(), None)
    assert [(row["algorithm"], row["kind"], row["tokens_per_call"]) for row in rows] == [
        ("never", k, 2.0) for k in ("all", "a", "b")
    ]
    assert all(row["ratios"] == {} for row in rows)


def test_what_transformers_cannot_do_is_an_error_of_its_row(small: weights.BenchWeights) -> None:
    loop = Theirs("x", baselines.baseline("assisted", small.copied(), {}), (of_ids(small.size, 2),), 4)
    with pytest.raises(DecError, match="transformers' assisted raised ValueError"):
        loop(0)


def test_time_outside_models_is_the_rest(small: weights.BenchWeights) -> None:
    algorithm = decgraph.load("speculative")
    session = session_on(algorithm, small, params_for(algorithm, {"gamma": 2}))
    request = request_of(of_ids(small.size, 1)[0], 6)
    expected = run(session, request).tokens
    engines = shares.engines(session)
    assert len(engines) >= 2
    before = [(e.step, e.head) for e in engines]
    spent = shares.split(session, lambda: run(session, request))
    assert set(spent) == {"target", "draft", "outside"} and min(spent.values()) > 0
    assert [(e.step, e.head) for e in engines] == before
    assert run(session, request).tokens == expected


def test_which_algorithms_promise_the_targets_tokens() -> None:
    assert all(greedy_is_exact(decgraph.load(name), {}) for name in ("autoregressive", "speculative", "eagle2", "medusa_match"))
    assert not greedy_is_exact(decgraph.load("beam_patience"), {})


def test_specs_have_parameters_of_their_own(tmp_path: Path) -> None:
    mine = tmp_path / "mine.dec"
    mine.write_text(decgraph.load("speculative").text.replace("algorithm speculative", "algorithm mine"))
    found = candidates(["speculative", "speculative:gamma=6", f"{mine}:gamma=2", "prompt_lookup"], {"gamma": "3", "k": "7"})
    assert [one.label for one in found] == ["speculative", "speculative:gamma=6", "mine:gamma=2", "prompt_lookup"]
    assert [one.values.get("gamma") for one in found] == [3, 6, 2, None]
    assert found[3].values["k"] == 7
    facts = found[2].facts()
    assert facts["file"] == str(mine) and len(facts["sha256"]) == 64 and facts["sha256"] != found[0].facts()["sha256"]


@pytest.mark.parametrize(("specs", "common", "message"), [
    (["speculative", "speculative"], {}, "named twice"),
    (["speculative:gama=6"], {}, "has no parameter `gama`"),
    (["speculative:gamma=99"], {}, "must be in 1..32"),
    (["speculative:gamma=6,"], {}, "`` is no parameter"),
    (["autoregressive"], {"gamma": "3"}, "none of autoregressive has a parameter `gamma`"),
    (["nothing"], {}, "no algorithm called 'nothing'"),
])  # fmt: skip
def test_what_is_no_spec(specs: list[str], common: dict[str, str], message: str) -> None:
    with pytest.raises(DecError, match=message):
        candidates(specs, common)


def test_what_is_no_baseline(small: weights.BenchWeights) -> None:
    with pytest.raises(DecError, match="no baseline 'nothing'"):
        run_on(candidates(["autoregressive"], {}), small, prompts_for(small, 1), TINY, wanted=["nothing"])
    alone = replace(small.copied(), drafter=None)
    with pytest.raises(DecError, match="needs a drafter"):
        run_on(candidates(["autoregressive"], {}), alone, prompts_for(small, 1), TINY, wanted=["assisted"])


def test_a_masked_run() -> None:
    """On the shipped masked model, with a small canvas: as many calls as the interpreter makes, and its tokens."""
    from decgraph.bench.masked import prepared
    from decgraph.bench.prompts import code

    texts = code().texts[:1]
    run = prepared(candidates(["fast_dllm:length=16,block=8"], {}), texts, TINY)(silent)
    row = rows_by(run)["fast_dllm:length=16,block=8"]
    assert set(row["ratios"]) == {"fast_dllm_uncached"} and row["tokens"] == 16
    assert run["contenders"]["fast_dllm_uncached"]["params"]["length"] == 16
    meant = row["interpreter"]
    assert meant["tokens_equal"] and meant["calls"] == meant["interpreter_calls"] > 0
    assert not compare.wrong(run)
    with pytest.raises(DecError, match="does not decode with a masked model"):
        prepared(candidates(["fast_dllm"], {}), texts, TINY, wanted=["speculative"])
