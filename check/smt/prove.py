"""Proofs for all distributions: of an algorithm's step, and of a verification rule in every use that rules have."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from decgraph.check.algorithm import find
from decgraph.check.smt.confirm import difference, tokens_differ
from decgraph.check.smt.diagrams import leaves
from decgraph.check.smt.distributions import Runs, Setting
from decgraph.check.smt.field import Field, OutOfTime
from decgraph.check.smt.numbers import Beyond
from decgraph.check.smt.points import Point
from decgraph.check.smt.report import PROVED, REFUTED, Model, Obligation, SmtReport
from decgraph.check.smt.solver import z3
from decgraph.check.smt.static import why_not
from decgraph.dsl import syntax as S
from decgraph.dsl.lower import load_text
from decgraph.dsl.lower.library import stdlib_file
from decgraph.dsl.parse import parse_text
from decgraph.errors import DecError
from decgraph.ir.values import Claim, Function, Module
from decgraph.runtime.session import check_params

SMALL: dict[str, tuple[Any, ...]] = {"int": (1, 2), "topology": ("2", "2x1"), "bool": (True, False)}
USES = (
    ("one draft", "grow sample({0}, 1)", 1),
    ("two independent siblings", "grow sample({0}, 2)", 1),
    ("two siblings without replacement", "grow sample({0}, 2, replace = no)", 1),
    ("two siblings of different distributions", "grow sample({0}, 1) at root\n            grow sample({1}, 1) at root", 2),
    ("two guesses that are not drawn", "grow topk({0}.raw, 2)", 1),
)
PROBE = """

algorithm smt_probe(target: causal, {models}):
    refines autoregressive(target) in {mode}

    while not done:
        draft t:
            {grow}
        verify t by {rule} against target(t)
        commit t.accepted
"""


def smt_report(
    name_or_path: Any, vocab: int = 3, params: Mapping[str, Any] | None = None, *, seconds: float = 60.0
) -> SmtReport:
    """What `decgraph check --smt` prints: `prove` for an algorithm, `prove_rule` for the name of a rule in stdlib.
    seconds: for each obligation. Raises DecError, as these do."""
    rules = stdlib_file("rules")
    if isinstance(name_or_path, str) and rules is not None and isinstance(rules[0].named(name_or_path), S.Rule):
        return prove_rule(name_or_path, vocab=vocab, seconds=seconds)
    return prove(name_or_path, vocab=vocab, params=params, seconds=seconds)


def prove(algorithm: Any, *, vocab: int = 3, params: Mapping[str, Any] | None = None, seconds: float = 60.0) -> SmtReport:
    """Prove the claim of an algorithm without state for all distributions over `vocab` tokens, or refute it with a model.

    params: values of parameters; the others take small values one after the other (numbers 1 and 2, trees of two siblings).
    seconds: for each obligation; what takes longer is undecided. docs/proof.md says what follows from a proof. Raises DecError,
    also where the solver is not installed.
    """
    z3()
    module, _ = find(algorithm)
    f = module.entry
    claim = next(
        (c for c in f.claims if c.kind == "refines" and c.mode in ("distribution", "tokens") and not c.conditional), None
    )
    if claim is None:
        raise DecError(
            f"{f.name} claims no `refines ... in distribution` or `in tokens` for all values of its parameters",
            hint="decgraph check decides the others",
        )
    report = SmtReport(f.name, claim.text)
    for values in _values(f, params or {}):
        said = ", ".join(f"{k} = {getattr(v, 'name', '') or v}" for k, v in values.items())
        report.obligations.append(_decided(Obligation(said or "a step", vocab), module, f, claim, values, seconds))
    return report


def prove_rule(rule: str, text: str = "", *, vocab: int = 3, seconds: float = 60.0) -> SmtReport:
    """Prove a rule for all distributions, in every use: one draft, and siblings that are independent, without replacement, of
    different distributions, or not drawn. text: the file that defines it, where stdlib does not. seconds: for each obligation.
    Raises DecError where there is no such rule or the solver is not installed."""
    z3()
    found = stdlib_file("rules")
    home = parse_text(text, "<text>") if text else found[0] if found is not None else None
    item = home.named(rule) if home is not None else None
    if not isinstance(item, S.Rule):
        raise DecError(f"there is no rule called {rule!r}", hint="rejection and match are rules of stdlib")
    mode = "distribution"
    report = SmtReport(rule, "")
    for label, grow, drafters in USES:
        names = [f"draft{i}" for i in range(drafters)]
        made = {
            "rule": rule,
            "grow": grow.format(*[f"{n}(root)" if drafters > 1 else f"{n}(t.leaves)" for n in names]),
            "models": ", ".join(f"{n}: causal" for n in names),
        }
        obligation = Obligation(label, vocab)
        report.obligations.append(obligation)
        try:
            module = load_text(text + PROBE.format(mode="distribution", **made))
            if _reads_output(module.entry):
                mode = "tokens"
                module = load_text(text + PROBE.format(mode="tokens", **made))
        except DecError as error:
            obligation.reason = f"not a rule for trees of tokens: {str(error).splitlines()[0]}"
            continue
        f = module.entry
        _decided(obligation, module, f, f.claims[0], check_params(f, {}), seconds)
    report.claim = f"what it accepts or emits is as the target draws it, in {mode}"
    return report


def _reads_output(f: Function) -> bool:
    return any(op.opcode == "noise" and op.attrs.get("kind") == "output" for op in f.body.walk())


def _values(f: Function, given: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Small values of the parameters, every combination."""
    options: dict[str, Sequence[Any]] = {}
    for p in f.params:
        elem = p.value.type.elem
        if elem == "model" or p.name in given:
            continue
        low, high = (p.low, p.high) if elem == "int" else (None, None)
        small = [v for v in SMALL.get(elem, ()) if (low is None or v >= low) and (high is None or v <= high)]
        if small or not p.has_default:
            options[p.name] = small or [p.low if p.low is not None else 1]
        else:
            options[p.name] = [p.default]
    for combination in itertools.product(*options.values()):
        chosen = dict(zip(options, combination, strict=True))
        yield check_params(f, {**chosen, **given})


def _decided(o: Obligation, module: Module, f: Function, claim: Claim, params: dict[str, Any], seconds: float) -> Obligation:
    """An obligation, decided as far as its time goes."""
    started = time.monotonic()
    field = Field(o.vocab, seconds)
    setting = Setting(module, f, claim, params, o.vocab)
    runs = Runs(setting, field)
    try:
        o.reason = why_not(f, claim.mode)
        if not o.reason:
            (_tokens if claim.mode == "tokens" else _distribution)(o, runs)
    except OutOfTime:
        o.reason = f"not decided in {seconds:g} s (`seconds=` allows more)"
    except Beyond as error:
        o.reason = f"not in reach: {error}"
    except DecError as error:
        o.reason = f"not in reach: {str(error).splitlines()[0]}"
    o.runs, o.symbols, o.questions, o.length = runs.runs, len(field.names), field.queries, runs.length
    o.seconds = time.monotonic() - started
    return o


def _distribution(o: Obligation, runs: Runs) -> None:
    """Whether one step followed by the specification has the specification's distribution."""
    open_ = 0
    distribution = runs.distribution()
    runs.field.patience = 5.0
    for facts, leaf in leaves(distribution, ()):
        for x in runs.wrong(leaf).values():
            found = runs.field.zero(x.num, facts)
            if isinstance(found, Point):
                shown = runs.field.showing(x.num, facts, readable=True) or found
                both = next((d for n in range(1, runs.length + 1) if (d := difference(runs.setting, shown, n))), None)
                if both is not None:
                    _refuted(o, runs, shown, *both)
                    return
            open_ += found is not True
    if open_:
        o.reason = f"{open_} probabilities could neither be shown to be the specification's nor to differ from them"
    else:
        o.verdict = PROVED


def _tokens(o: Obligation, runs: Runs) -> None:
    """Whether one step commits what the specification commits with the same noise, whatever is drawn."""
    open_ = 0
    for facts, ours, theirs in runs.coupled():
        if ours == theirs or runs.field.possible(facts) is False:
            continue
        open_ += 1
        shown = next((p for p in sorted(runs.field.points, key=Point.size) if p.meets(facts)), None)
        both = tokens_differ(runs.setting, shown) if shown is not None else None
        if both is not None and shown is not None:
            _refuted(o, runs, shown, *both, same_noise=True)
            return
    if open_:
        o.reason = f"{open_} ways commit other tokens than the specification, and no model was found in which they happen"
    else:
        o.verdict = PROVED


def _refuted(o: Obligation, runs: Runs, point: Point, ours: Any, theirs: Any, same_noise: bool = False) -> None:
    o.verdict = REFUTED
    names = (runs.setting.function.name, runs.setting.claim.spec)
    o.model = Model(dict(point.rows), ours, theirs, names, same_noise)


__all__ = ["prove", "prove_rule", "smt_report"]
