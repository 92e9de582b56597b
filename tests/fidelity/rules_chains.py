"""Rules of verification on a chain of drafts, and on drafts side by side: recorded distributions, drafts and uniforms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction as F
from functools import cache, partial
from typing import Any

from fidelity.entry import Case, Entry, Outcome, recording
from fidelity.forced import BACKENDS, START, Coin, Script, Step, below, lines, near, rule_text, step

Rows = Sequence[Sequence[str]]

ENSEMBLE = """
rule ensemble(p: dist, children: draws, w: prob):
    for x in children:
        if bernoulli(1 - w + w * (p[x] / x.law[x])):
            accept x
        p = normalize(relu(p - x.law))
    y ~ p
    emit y

algorithm recorded(target: causal, drafter: causal, w: prob, gamma: int in 1..32 = 4):
    keeps support of drafter

    while not done:
        draft t:
            repeat gamma:
                x ~ drafter(t.leaves)
                grow x
        verify t by ensemble(w) against target(t)
        commit t.accepted
"""

SIBLINGS = """
algorithm recorded(target: causal, drafter: causal, k: int in 1..8 = 2):
    refines autoregressive(target) in distribution

    while not done:
        draft t:
            x = sample(drafter(root), k, replace = {replace})
            grow x at root
        verify t by {rule} against target(t)
        commit t.accepted
"""


def law(row: Sequence[str] | None) -> dict[int, F] | None:
    """A recorded distribution, by token; tokens without probability left out."""
    return None if row is None else {v: F(x) for v, x in enumerate(row) if F(x)}


def table(rows: Rows, drafted: Sequence[int]) -> dict[tuple[int, ...], list[F]]:
    """Rows behind the beginnings of a chain."""
    return {START + tuple(drafted[:i]): [F(x) for x in row] for i, row in enumerate(rows)}


def drafter(case: Case) -> Rows:
    """The drafter's rows; those of drafts without probabilities are point masses."""
    return case["q"] or [[str(int(v == x)) for v in range(case["V"])] for x in case["drafted"]]


def chain(text: str, case: Case, backend: str, coin: Coin, **params: Any) -> Step:
    """One step of a program that drafts a chain."""
    drafted = case["drafted"]
    script = Script({lines(text, "x ~ drafter")[0]: drafted}, coin)
    return step(
        text, table(case["p"], drafted), table(drafter(case), drafted), case["V"], script, backend, gamma=len(drafted), **params
    )


def outcome(case: Case, recorded: Mapping[str, Any], made: Step, **more: Any) -> Outcome:
    """The columns of a chain: how many drafts were accepted, and what the extra token is drawn from. more: ours."""
    ours = {"accepted": list(made.tokens[:-1]), "next token": made.last, **more}
    known = {**recorded, "accepted": case["drafted"][: recorded["accepted"]]}
    return Outcome(known, {name: near(known[name], ours[name]) for name in known})


def leviathan(case: Case, backend: str) -> Outcome:
    weight = case.get("assistant_ensemble_weight")
    more = {} if weight is None else {"w": F(weight) if backend == "exact" else float(F(weight))}
    text = rule_text("speculative") if weight is None else ENSEMBLE
    made = chain(text, case, backend, below(case["uniforms"]), **more)
    return outcome(case, {"accepted": case["accepted"], "next token": law(case["next_token_distribution"])}, made)


def lenience(case: Case, backend: str) -> Outcome:
    share = F(case["lenience"]) if backend == "exact" else float(F(case["lenience"]))
    made = chain(rule_text("x_lenience"), case, backend, below(case["uniforms"]), l=share)
    return outcome(case, {"accepted": case["accepted"], "next token": law(case["next_token_distribution"])}, made)


def paper(case: Case, backend: str) -> Outcome:
    """Block verification: the right rule's columns, and those of the code that was run."""
    right = case["paper"]
    open_ = [(F(h), u) for h, u in zip(right["thresholds"], case["uniforms"], strict=True) if 0 < F(h) < 1]
    rest = iter(open_)

    def coin(odds: Any) -> bool:
        return F(next(rest)[1]) <= odds if 1e-12 < odds < 1 - 1e-12 else bool(odds > 0.5)

    made = chain(rule_text("block_verification"), case, backend, coin)
    recorded = {
        "accepted": right["accepted"],
        "next token": law(right["next_token_distribution"]),
        "thresholds": [h for h, _ in open_],
        "accepted upstream": case["drafted"][: case["accepted"]],
        "next token upstream": law(case["next_token_distribution"]),
    }
    return outcome(
        case,
        recorded,
        made,
        **{
            "thresholds": [h for h in made.odds if 1e-12 < h < 1 - 1e-12],
            "accepted upstream": list(made.tokens[:-1]),
            "next token upstream": made.last,
        },
    )


def differing(file: str, why: str) -> dict[tuple[str, str], str]:
    """The cases in which a recording's own result is not that of `paper` beside it."""
    found = {}
    for c in recording(file)["cases"]:
        for name, key in (("accepted upstream", "accepted"), ("next token upstream", "next_token_distribution")):
            if c[key] != c["paper"][key]:
                found[str(c["id"]), name] = why
    return found


def sequential(case: Case, backend: str) -> Outcome:
    """Block verification with a draw at every position: a token there while the uniform is below 1 - continue; at the end the
    drafts stand above it. Where nothing is missing nobody asks."""
    k = len(case["drafted"])
    asked = [
        (i, F(u), F(c))
        for i, (u, c) in enumerate(zip(case["uniforms"], case["continue_probabilities"], strict=True))
        if F(c) < 1 or i == k
    ]
    rest = iter(asked)

    def coin(odds: Any) -> bool:
        i, u, c = next(rest)
        return u >= c if i == k else u < odds

    made = chain(rule_text("block_verification"), case, backend, coin)
    n = case["accepted"]
    if n < k:  # the extra token by its place in the running sum, as the recording drew it
        u = F(case["uniforms"][n]) / (1 - F(case["continue_probabilities"][n]))
    else:
        u = F(case["bonus_uniform"])
    extra = next((v for v in range(case["V"]) if u < sum(w for x, w in made.last.items() if x <= v)), None)
    recorded = {"accepted": n, "continue probabilities": [c for _, _, c in asked], "extra token": case["extra_token"]}
    known = {**recorded, "accepted": case["drafted"][:n]}
    ours = {"accepted": list(made.tokens[:-1]), "continue probabilities": [1 - h for h in made.odds], "extra token": extra}
    return Outcome(known, {name: near(known[name], ours[name]) for name in known})


def level(case: Case, backend: str) -> Outcome:
    """Candidates side by side, drawn from one distribution."""
    drafted, rule = case["candidates"], case["rule"]
    if rule == "spechub":
        text = rule_text("x_spechub_right")
        drawn = {lines(text, "x ~ q")[0]: drafted[:1], lines(text, "y ~ others")[0]: drafted[1:]}
        if backend == "torch" and drafted[0] != case["top"]:
            drawn.popitem()  # the second draft is certain then, and torch draws nothing where one token has all the mass
        script, params = Script(drawn, below(case["uniforms"])), {}
    else:
        how = {"without_replacement": ("no", "rejection"), "with_replacement": ("yes", "rejection"), "naive": ("yes", "match")}
        replaced, verified = how[rule]
        text = SIBLINGS.format(replace=replaced, rule=verified)
        script = Script({lines(text, "sample(")[0]: drafted}, below(case["uniforms"]), case.get("target_draw"))
        params = {"k": len(drafted)}
    p, q = {START: [F(x) for x in case["p"]]}, {START: [F(x) for x in case["q"]]}
    made = step(text, p, q, case["V"], script, backend, **params)
    at = case["accepted_index"]
    recorded: dict[str, Any] = {"accepted": [] if at is None else [drafted[at]], "uniforms": case["uniforms_used"]}
    ours: dict[str, Any] = {"accepted": list(made.tokens[:-1]), "uniforms": len(made.odds)}
    recorded["next token"] = law(case.get("residual_distribution"))
    ours["next token"] = None if recorded["next token"] is None else made.last
    return Outcome(recorded, {name: near(recorded[name], ours[name]) for name in recorded})


@cache
def rejected_early(file: str) -> dict[tuple[str, str], str]:
    """What upstream's block verification does otherwise, where the recording says so."""
    why = {
        "ar2/sampling_block_ascend_fixed": "upstream takes the threshold of a draft one position too early "
        "(vllm_ascend/sample/rejection_sampler.py:786)",
        "ar2/sampling_block_ascend_wrong": "upstream compares products of uniforms and of ratios "
        "(vllm_ascend/sample/rejection_sampler.py:748, #7807)",
    }
    return differing(file, why[file])


rule = partial(Entry, kind="rule", backends=BACKENDS)
ENTRIES = [
    rule(
        "ar/sampling_chain",
        "speculative: rejection",
        leviathan,
        note="two cases have `assistant_ensemble_weight`: that lossy rule is written out in the entry",
    ),
    rule("ar/sampling_multi_candidate", "rejection", level),
    rule("ar2/sampling_rrs", "rejection", level),
    *(
        rule(
            file,
            "block_verification: block_rejection",
            paper,
            differs=rejected_early(file),
            note="held to the columns that the recording computed from the paper; those with `upstream` are what was run",
        )
        for file in ("ar2/sampling_block_ascend_fixed", "ar2/sampling_block_ascend_wrong")
    ),
    rule(
        "ar2/sampling_block_sequential",
        "block_verification: block_rejection",
        sequential,
        note="a coin of the rule is a draw of the recording: tokens against going on",
    ),
    rule("ar2/sampling_lenience", "[x_lenience](../tests/check/museum/x_lenience.dec)", lenience),
    rule("ar2/sampling_spechub", "[x_spechub_right](../tests/check/museum/x_spechub_right.dec)", level),
]
