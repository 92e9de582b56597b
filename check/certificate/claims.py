"""What a certificate has to show for a claim of a program: of which model, in which mode, under which condition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from decgraph.check.certificate.data import Refused, digest, read
from decgraph.check.certificate.following import Follower
from decgraph.ir.values import Claim, Module

PREMISES = ("errors", "log-probabilities")
"""What a certificate may take for granted: that no run ends in an error; that scores of models are log-probabilities."""
MODES = {"distribution": ("own", "drawn"), "tokens": ("own",), "greedy": ("own",)}


def verify(module: Module, data: Any) -> tuple[list[str], bool]:
    """What is to be said of each certificate of a file, and whether all of them show their claims."""
    found = data.get("certificates") if isinstance(data, dict) else None
    if not isinstance(found, list) or not found:
        return ["refused   this file holds no certificates"], False
    lines, well = [], True
    for one in found:
        claim = str(one.get("claim")) if isinstance(one, dict) else ""
        try:
            premises = check(module, one if isinstance(one, dict) else {})["premises"]
            taken = f" (premises: {', '.join(premises)})" if premises else ""
            lines.append(f"accepted  {module.main}: {claim}{taken}")
        except Refused as refused:
            well = False
            lines.append(f"refused   {module.main}: {claim}: {refused}")
    return lines, well


def check(module: Module, data: Mapping[str, Any], passes: type[Follower] = Follower) -> Mapping[str, Any]:
    """The certificate, where it shows its claim. Raises Refused, with the line and the fact that does not follow."""
    try:
        return _check(module, read(data), passes)
    except (KeyError, IndexError, ValueError, TypeError, AttributeError) as error:
        raise Refused(None, f"this is no certificate of the program: {type(error).__name__}: {error}") from error


def _check(module: Module, certificate: Mapping[str, Any], passes: type[Follower]) -> Mapping[str, Any]:
    claims = [c for c in module.entry.claims if c.text == certificate["claim"]]
    if len(claims) != 1:
        raise Refused(None, f"the program does not claim: {certificate['claim']}")
    if certificate["ir"] != digest(module):
        raise Refused(None, "it is about another program: the hash of the IR is another one")
    alternatives = cases(claims[0].setting)
    parts = (certificate, *certificate["cases"])
    if len(parts) != len(alternatives):
        raise Refused(None, f"the condition has {len(alternatives)} cases, and the certificate {len(parts)}")
    for part, condition in zip(parts, alternatives):
        _case(module, claims[0], part, condition, passes)
    return certificate


def _case(
    module: Module, claim: Claim, certificate: Mapping[str, Any], condition: tuple[Any, ...], passes: type[Follower]
) -> None:
    function = module.entry
    if set(certificate["premises"]) - set(PREMISES):
        raise Refused(None, "premises that this checker does not know")
    if certificate["mode"] != "inside" and "errors" not in certificate["premises"]:
        raise Refused(None, "that no run ends in an error is not shown by a certificate, and is no premise of this one")
    if certificate["condition"] != repr(condition) or certificate["greedy"] and not claim.for_greedy:
        raise Refused(None, "the certificate's condition is not the claim's")
    if claim.kind == "keeps_support":
        right = certificate["model"] == " or ".join(claim.models) and certificate["mode"] == "inside"
    elif claim.kind == "refines" and claim.spec == "autoregressive":
        models = [name for kind, name in dict(claim.args).values() if kind == "param"]
        modes = ("own",) if claim.for_greedy else MODES.get(claim.mode, ())
        right = certificate["mode"] in modes and [certificate["model"]] == models
        _sampler(module, claim, certificate)
    else:
        raise Refused(None, f"no rule for claims of this kind yet: {claim.text}")
    if not right or any(function.param(m).value.type.elem != "model" for m in certificate["model"].split(" or ")):
        raise Refused(None, f"a derivation about {certificate['model']} ({certificate['mode']}) does not show: {claim.text}")
    passes(module, function, certificate, condition).run()


def _sampler(module: Module, claim: Claim, certificate: Mapping[str, Any]) -> None:
    """That the specification is what it is called: each step commits the own draw of one model, and nothing else."""
    spec, shown = module.functions.get(claim.spec), certificate["functions"].get(claim.spec)
    models = [p.name for p in spec.params if p.value.type.elem == "model"] if spec is not None else []
    if spec is None or shown is None or spec.states or [shown["model"]] != models or set(dict(claim.args)) != set(models):
        raise Refused(None, f"{claim.spec} is not shown to be the sampler of one model")
    if shown["mode"] != "own" or shown["premises"]:
        raise Refused(None, f"{claim.spec} is not shown to commit own draws alone")
    Follower(module, spec, shown).run()


def cases(condition: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """Conditions of which one holds where this one does."""
    match condition:
        case ("or", *parts):
            return [c for part in parts for c in cases(part)]
        case ("and", *parts):
            chosen: list[tuple[Any, ...]] = [()]
            for part in parts:
                chosen = [(*before, c) for before in chosen for c in cases(part)]
            return [("and", *c) for c in chosen]
    return [condition]
