"""What is left of claims inside engines: of every program of stdlib, and of drafters that state what they do not draw from."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from decgraph import stdlib
from decgraph.api import load, parse
from decgraph.check import stated as claims_about_drafts
from decgraph.check.algorithm import find
from decgraph.check.engine_facts import OWN, WAYS, Way
from decgraph.check.engines import ENGINES, Left, inside, through_way
from decgraph.check.proof.invariants import DerivationStopped
from decgraph.check.stated import stated
from decgraph.cli.main import main
from decgraph.errors import DecError

Capture = pytest.CaptureFixture[str]
FOLDER = Path(__file__).parent / "drafters"
KINDS = (
    "adaptive_verification",  # in tokens
    "a_star",  # keeps support, causal
    "adablock",  # keeps support and a condition, masked
    "assisted",  # in distribution
    "arbitrage",  # ... under a condition
    "bregman_topk",  # when greedy
    "hydra",  # ensures
    "dllm_self_speculative",  # another masked program in tokens
    "grammar",  # another causal program in tokens
    "r2_dllm",  # ... when greedy
    "sdlm",
    "speculative_contrastive",
    "autoregressive",  # none
)
"""Programs that together have every kind of claim."""


def left(name: str, way: Way, **given: int | float) -> dict[str, Left]:
    module, _ = find(name)
    return {found.claim: found for found in through_way(module, way, given, stated(module, given, seconds=0)).claims}


def way(name: str) -> Way:
    return next(w for w in (*WAYS, *OWN) if w.name.startswith(name))


@pytest.mark.quick(*KINDS)
@pytest.mark.parametrize("name", stdlib.names())
def test_every_claim_has_a_line_by_every_way(name: str) -> None:
    module, _ = find(name)
    drafts = stated(module, seconds=0)
    for one in (*WAYS, *OWN):
        claims = through_way(module, one, {}, drafts).claims
        assert [found.claim for found in claims] == [c.text for c in module.entry.claims]
        for found in claims:
            assert found.verdict in ("kept", "weaker", "lost", "silent")
            assert found.why


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_program_that_draws_keeps_what_it_claims(engine: str) -> None:
    there = way(f"{engine} logits processor")
    (found,) = left("top_n_sigma", there).values()
    assert (found.verdict, found.why) == ("kept", "the program's own rule decides")
    (found,) = left("bregman_topk", there).values()
    assert found.verdict == "kept" and "equal where logits are, and in distribution without that" in found.why


def test_an_engine_that_verifies_has_other_noise() -> None:
    (found,) = left("prompt_lookup", way("vllm drafter")).values()
    assert found.verdict == "weaker" and found.why.startswith("in distribution: ")
    (found,) = left("speculative", way("sglang drafter")).values()
    assert found.verdict == "kept"


def test_a_first_token_comes_with_the_prompt() -> None:
    (found,) = left("prompt_lookup", way("sglang drafter")).values()
    assert found.verdict == "weaker" and found.why.startswith("in tokens from the second on")


def test_what_is_about_its_own_verification_is_lost_where_the_engine_verifies() -> None:
    ensures = next(claim for claim in left("hydra", way("vllm logits")) if claim.startswith("ensures"))
    assert left("hydra", way("vllm drafter"))[ensures].verdict == "lost"
    assert left("hydra", way("sglang drafter"))[ensures].verdict == "kept"


def test_a_condition_is_asked_of_the_values() -> None:
    name = "refines static_masked(model, length, block) in distribution when steps == length and not random"
    dllm = way("sglang dllm")
    assert left("llada", dllm)[name].verdict == "kept"  # as many steps as a block has positions
    assert left("llada", dllm, steps=2, length=4)[name].why == "with length = 4, steps = 2, random = False it says nothing"
    assert left("llada", dllm, steps=2)[name].why == "with steps = 2, random = False it says nothing"


def test_a_block_at_a_time() -> None:
    assert all("block by block" in found.why for found in left("llada", way("sglang dllm")).values())


def test_settings_break_what_they_are_about() -> None:
    """Thresholds change what is drawn, not the greedy tokens; penalties of trees both."""
    module, _ = find("bregman_topk")  # claims greedy tokens alone
    settings = {f.setting for f in through_way(module, way("a drafter of SGLang"), {}, stated(module)).broken_by}
    assert "a request with penalties" in settings and not any("threshold" in s for s in settings)
    module, _ = find("speculative")
    settings = {f.setting for f in through_way(module, way("a drafter of SGLang"), {}, stated(module)).broken_by}
    assert (
        "--speculative-accept-threshold-single below 1" in settings
        and "without --enable-deterministic-inference" not in settings
    )
    settings = {f.setting for f in through_way(module, way("a drafter of vLLM"), {}, stated(module)).broken_by}
    assert settings == {'rejection_sample_method = "synthetic"'}


def test_a_refuted_claim_is_not_kept() -> None:
    module, _ = find("top_n_sigma")
    assert [found.verdict for found in through_way(module, way("vllm logits"), {}, stated(module), wrong=[0]).claims] == [
        "lost"
    ]
    module, _ = find("prompt_lookup")
    assert [found.verdict for found in through_way(module, way("vllm drafter"), {}, stated(module), wrong=[0]).claims] == [
        "weaker"
    ]


@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        ("speculative", "proved"),
        ("block_verification", "proved"),
        ("sequoia", "proved"),
        ("staged_speculative", "holds"),  # `drawn` is the author's word
        ("eagle2", "none"),
        ("autoregressive", "none"),
        ("llada", "none"),
        ("as_stated", "holds"),
        ("topk_as_full", "refuted"),
        ("no_temperature", "refuted"),
        ("second_after_first", "refuted"),
    ],
)
def test_drafts_are_drawn_from_what_they_state(name: str, verdict: str) -> None:
    path = FOLDER / f"{name}.dec"
    found = stated(find(path if path.exists() else name)[0], seconds=1)
    assert found.verdict == verdict
    assert (found.counterexample is not None) == (verdict == "refuted")
    assert (found.worlds > 5) == (verdict == "holds") or verdict == "refuted"


@pytest.mark.quick("speculative", "sequoia", "pearl")
@pytest.mark.parametrize("name", stdlib.names())
def test_what_is_derived_of_drafts_holds_in_worlds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, _ = find(name)
    found = stated(module, seconds=0)
    if found.verdict == "proved":
        monkeypatch.setattr(claims_about_drafts, "_derived", stopped)
        assert stated(module, seconds=0.5).verdict == "holds"


def stopped(*_: object) -> None:
    raise DerivationStopped(None, "nothing is derived here")


@pytest.mark.parametrize("name", ["m01_no_residual_right", "m04_one_token_residual", "m08_shared_noise", "m11_where_likelier"])
def test_bugs_of_verifications_are_none_of_drafts(name: str) -> None:
    assert stated(find(Path(__file__).parent / "museum" / f"{name}.dec")[0], seconds=1).verdict in ("proved", "none")


GOLDEN = """inside    vLLM 0.32.0, as a drafter of vLLM's own (checked, not exported)
          verification: the engine's rejection sampler, which takes for the distribution of a draft what its logits state
          noise: the engine's
          settings: the engine's; runner V1 refuses min_p and logit_bias beside speculation
          not as vllm logits processor: ...
          not as vllm drafter: ...
lost      refines autoregressive(target) in distribution: its drafts are not drawn from what they state; without stated \
distributions (one token for each draft) it would be in distribution
refuted   every draft is drawn from what it states: no derivation: line 11: drafts whose distributions are not known to be \
those they state (line 10)

claim      every draft is drawn from what it states
prompt     [0]
request    temperature = 1/2, max_tokens = 3
parameters gamma = 1
models
    causal table drafter, 2 tokens:
      p(. | 0) = 4/5 1/5
    the draft that line 10 grows
distribution of that draft: total variation 12/85 = 0.1412
    tokens                    drawn           stated
    0                           4/5            16/17   <-
    1                           1/5             1/17   <-
""".replace("\\\n", "")


@pytest.mark.slow  # what is refuted is shrunk first
def test_the_command(capsys: Capture) -> None:
    assert main(["check", str(FOLDER / "no_temperature.dec"), "--seconds", "1", "--engine", "vllm"]) == 1
    out = capsys.readouterr().out
    out = out[out.index("inside ") :]
    assert re.sub(r"^( +not as vllm [a-z ]+: ).*", r"\1...", out, flags=re.M) == GOLDEN


def test_the_command_in_json(capsys: Capture) -> None:
    assert main(["check", "speculative", "--models", "1", "--engine", "sglang", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["inside"]
    (interface,) = found["interfaces"]
    assert [claim["verdict"] for claim in interface["claims"]] == ["kept"]
    assert all(fact["where"] for fact in interface["broken_by"])
    assert found["drafts"]["verdict"] == "proved" and found["drafts"]["by"].endswith("a fresh draw of what it states")
    assert set(found["refused"]) == {w.name for w in WAYS if w.engine == "sglang"}


def test_trees_are_no_drafts_of_vllm() -> None:
    there = inside(find("staged_speculative")[0], "vllm", seconds=0)
    assert there.refused["a drafter of vLLM's own (checked, not exported)"] == (("its drafts are a tree", 29),)
    assert [found.verdict for found in there.claims] == ["not run"]


@pytest.mark.parametrize(
    ("name", "engine", "taken"),
    [
        ("top_n_sigma", "vllm", "vllm logits processor"),
        ("prompt_lookup", "vllm", "vllm drafter"),
        ("prompt_lookup", "sglang", "sglang drafter"),
        ("eb_sampler", "sglang", "sglang dllm"),
    ],
)
def test_what_an_interface_takes_is_tried(name: str, engine: str, taken: str) -> None:
    there = inside(find(name)[0], engine)
    assert [t.way.name for t in there.through] == [taken]
    assert set(there.refused) == {w.name for w in WAYS if w.engine == engine} - {taken}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["speculative", "--engine", "llama.cpp"], "one of vllm, sglang"),
        (["speculative", "jacobi", "--engine", "vllm"], f"decgraph check speculative --engine {ENGINES[0]}"),
    ],
)
def test_the_option_is_refused(words: list[str], said: str, capsys: Capture) -> None:
    assert main(["check", *words]) == 2 and said in capsys.readouterr().err


def test_another_engine_is_refused() -> None:
    with pytest.raises(DecError, match="one of vllm, sglang"):
        inside(find("speculative")[0], "transformers")


def test_every_interface_of_an_engine_has_its_facts() -> None:
    from decgraph.backends.seams.file import interfaces

    for engine in ("vllm", "sglang"):
        assert {one.core for one in interfaces(engine)} == {way.core for way in WAYS if way.engine == engine}


def test_states_of_a_session_are_said_to_begin_anew() -> None:
    text = load("mirostat").text.replace("per sequence", "per session")
    said = [text for _, text in inside(parse(text).module, "vllm", seconds=0).lines()]
    assert any(line.startswith("state mu per session: it begins anew with each request") for line in said)
    plain = inside(load("mirostat").module, "vllm", seconds=0).lines()
    assert not any("per session" in text for _, text in plain)
