"""For your own tests (`decgraph.testing`): hypothesis strategies, and assertions that show a counterexample when they fail.

    from decgraph.testing import assert_refines

    def test_mine():
        assert_refines("path/to/mine.dec", "autoregressive", mode="distribution")

The assertions need no hypothesis; the strategies do, and import it when they are asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, Unpack

from decgraph.check.algorithm import CheckOptions, check_algorithm, find
from decgraph.check.report import Report
from decgraph.check.verdicts import SUFFICES, Least
from decgraph.errors import DecError
from decgraph.ir.values import Claim, Function, Module
from decgraph.runtime.arguments import AlgorithmLike, ParamValue
from decgraph.strategies import contexts, models, parameters, programs, requests

__all__ = ["assert_claims", "assert_refines", "contexts", "models", "parameters", "programs", "requests"]


def assert_claims(algorithm: AlgorithmLike, *, require: Least = "holds", **options: Unpack[CheckOptions]) -> Report:
    """Assert that everything an algorithm claims holds; returns the report. require: "holds" (no counterexample, or a
    derivation) or "proved" (a derivation). `algorithm` and the options (vocab, models, params, externs, seconds, compare, ...)
    are those of `decgraph.check.check_algorithm`, which `decgraph check` calls too.

    Raises AssertionError with the counterexample where a claim is refuted, and where nothing could be decided. Raises
    DecError where it claims nothing.

    >>> assert_claims("speculative", models=3, require="proved").verdict
    'proved'
    """
    return _assert(find(algorithm)[0], require, options)


def assert_refines(
    algorithm: AlgorithmLike,
    specification: str = "autoregressive",
    *,
    mode: Literal["distribution", "tokens", "greedy"] = "distribution",
    arguments: Mapping[str, ParamValue] | None = None,
    require: Least = "holds",
    **options: Unpack[CheckOptions],
) -> Report:
    """Assert that an algorithm refines another one, whatever it claims itself; returns the report.

    specification: an algorithm of stdlib, or one in the same file. mode: "distribution", "tokens" (same seed, same tokens) or
    "greedy". arguments: what the specification gets, by its parameters' names: names of the algorithm's parameters, or
    values; by default its parameters get those of the same name and its models, in order, the algorithm's. require and the
    options: as in `assert_claims`.

    >>> assert_refines("eagle2", mode="tokens", models=2).verdict
    'proved'

    Raises AssertionError with a minimal counterexample where it does not, and where nothing could be decided:

    >>> try:
    ...     assert_refines('''
    ... algorithm eager(target: causal, drafter: causal):
    ...     while not done:
    ...         x ~ drafter(ctx)
    ...         commit x
    ... ''', models=1)
    ... except AssertionError as error:
    ...     print(str(error).splitlines()[0])
    claim      eager refines autoregressive in distribution
    """
    if mode not in ("distribution", "tokens", "greedy"):
        raise DecError(f"mode is distribution, tokens or greedy, not {mode!r}")
    module, _ = find(algorithm)
    spec = module.functions.get(specification)
    functions = dict(module.functions)
    if spec is None:
        spec = find(specification)[0].entry
        functions.update({k: v for k, v in find(specification)[0].functions.items() if k not in functions})
    entry = module.entry
    claim = Claim(
        "refines",
        f"{entry.name} refines {spec.name} in {mode}",
        spec=spec.name,
        args=tuple(_arguments(entry, spec, arguments or {})),
        mode=mode,
    )
    functions[entry.name] = replace(entry, claims=(claim,))
    return _assert(replace(module, functions=functions), require, options)


def _arguments(entry: Function, spec: Function, arguments: Mapping[str, ParamValue]) -> list[tuple[str, Any]]:
    mine = {p.name: p for p in entry.params}
    unused = [p.name for p in entry.params if p.value.type.elem == "model"]
    out: list[tuple[str, Any]] = []
    for p in spec.params:
        if p.name in arguments:
            v = arguments[p.name]
            out.append((p.name, ("param", v) if isinstance(v, str) and v in mine else ("const", v)))
        elif p.name in mine:
            out.append((p.name, ("param", p.name)))
        elif p.value.type.elem == "model":
            same = [n for n in unused if mine[n].value.type.of[0] == p.value.type.of[0]]
            if not same:
                raise DecError(f"{entry.name} has no model for `{p.name}` of {spec.name}")
            out.append((p.name, ("param", same[0])))
        elif not p.has_default:
            raise DecError(f"{spec.name} needs a value for `{p.name}`", hint=f"arguments={{{p.name!r}: ...}}")
    return out


def _assert(module: Module, require: Least, options: CheckOptions) -> Report:
    if require not in SUFFICES:
        raise DecError(f"require is {require!r}", hint='"holds" or "proved"')
    if not module.entry.claims:
        raise DecError(f"{module.entry.name} claims nothing", hint="refines autoregressive(target) in distribution")
    report = check_algorithm(module, **options)
    if report.counterexample is not None:
        raise AssertionError(report.counterexample.render())
    if not report.suffices(require):
        stopped = report.stopped() if report.verdict == "holds" else [premise.says for premise in report.premises]
        raise AssertionError("\n".join([f"{report.name}: {report.verdict}", *stopped, *report.reasons, *report.notes]))
    return report
