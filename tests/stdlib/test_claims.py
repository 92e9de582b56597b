"""Every program of stdlib/ claims something, but for a few with a reason; what it claims at a setting is so in whole runs."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from lib.stdlib.table_models import module, parameters, run

from decgraph import stdlib
from decgraph.check.constants import facts
from decgraph.check.worlds import models_for, params_for
from decgraph.ir.settings import holds, of_request, settings
from decgraph.ir.values import Claim

PROMPT, LIMIT = (1, 2, 0), 6
WITHOUT = {
    "autoregressive": "the specification of the others",
    "cascaded": "its candidates come from contexts that the target never has in a text",
    "contrastive_search": "hidden states choose among its candidates, which no specification reads",
    "d2f": "cached keys and values are exact for block-causal models alone",
    "d3llm": "a call may decide the surest cell of a second block after cells of the first",
    "d3llm_cache": "cached keys and values are those of earlier calls, exact for block-causal models alone",
    "dingo": "its best path may need tokens without mass; what an automaton reads is no claim of the language",
    "dpad": "its calls do not see masks that every specification shows",
    "dry": "a penalty may lift what the target rules out by no rule of its own",
    "dynamic_temperature": "no derivation follows a temperature that depends on the scores, and comparing worlds takes minutes",
    "entropy_renoise": "its canvas begins as random tokens, which no other decoding does",
    "fast_dllm_v2": "its models predict the next cell, which no specification reads so",
    "iterative_agent": "later rounds are written after answers that are not committed, the first one up to `reach` tokens",
    "iterative_elimination": "the caller's functions write the question and find the name in the answer",
    "joint_threshold_indel": "insertion and deletion move cells: what stands where was decided elsewhere",
    "learn2pd_eot": "its calls do not see what was cut, which every specification shows",
    "sdar": "cached keys and values are exact for block-causal models alone",
    "self_infilling": "its first pass is written behind a mark that the committed text has not",
    "skeleton_graph": "what it commits was written in contexts with the skeleton, which is not committed",
    "superposed": "what continues a draft was said after a mixture of all drafts",
    "windowed_penalties": "penalties over a window are not those of any request",
}


def at_settings() -> list[tuple[str, Claim]]:
    """The claims with a condition on parameters."""
    named = [n for n in stdlib.names() if " when " in stdlib.entry(n).claim]
    return [(n, c) for n in named for c in module(n).entry.claims if c.setting]


def test_every_program_claims_something() -> None:
    assert {n for n in stdlib.names() if not stdlib.entry(n).claim} == set(WITHOUT)


@pytest.mark.budget(36)
def test_whole_greedy_runs_at_a_setting_are_the_specifications() -> None:
    """On the reference backend, in floating point: temperature 0 has one text."""
    compared = 0
    for name, claim in at_settings():
        entry = module(name).entry
        if claim.spec != "autoregressive" or module(name).externs or facts(module(name), entry).text:
            continue
        models = models_for(entry, 4, 3)
        given: dict[str, Any] = {**params_for(entry, 1), **parameters(name)}
        request = of_request(len(PROMPT), LIMIT)
        given |= settings(entry, claim.setting, {**given, **request})[0]
        given = {k: float(v) if isinstance(v, Fraction) else list(v) if isinstance(v, tuple) else v for k, v in given.items()}
        assert holds(claim.setting, {**given, **request}), name
        drawn = next(value for _, (kind, value) in claim.args if kind == "param")
        ours = run(name, models, given, prompt=PROMPT, temperature=0, max_tokens=LIMIT)
        theirs = run("autoregressive", {"target": models[drawn]}, {}, prompt=PROMPT, temperature=0, max_tokens=LIMIT)
        assert ours.tokens == theirs.tokens, name
        compared += 1
    assert compared > 20
