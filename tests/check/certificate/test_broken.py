"""Certificates that were true and are broken in one place are refused; so are true ones under another program.

Each way to break one makes it false whatever a checker says: a fact about another context, a fact that only a stronger op
would give, a dependence that is left out of the least invariant, another model, rule, theorem, condition or premise.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

import decgraph
from decgraph.check.certificate import Refused, check, digest
from decgraph.check.proof.certificates import certificates
from decgraph.ir.text import parse_module, print_module
from decgraph.ir.values import Module

PROGRAMS = [
    *("speculative", "recursive_sd", "mcsd", "pass", "specdec_pp", "prompt_lookup"),
    *("cfg", "a_star", "traversal", "foreal", "reward_guided_sd", "autodeco"),
]
VERSION = {"context": 1, "row": 2, "token": 2, "path": 2, "nodes": 2, "tree": 2}
STRONGER = {"drawn": "own", "inside": "own"}
Data = dict[str, Any]
EDITS = [
    # An edit of the IR that makes a claim in distribution or in tokens false; and programs that it is made in.
    ('kind = "output", site = "output"', 'kind = "race", site = "other"', ["prompt_lookup", "jetspec", "cfg"]),
    ("model.eval(%target, %t.1, with = ())", "model.eval(%drafter, %t.1, with = ())", ["speculative", "mcsd"]),
    ('map(%p.2, %25, fn = "sub")', 'map(%25, %p.2, fn = "sub")', ["speculative"]),
    ('real = map(%15, %17, fn = "div")', 'real = map(%17, %15, fn = "div")', ["speculative"]),
    ("noise(%i.1, %i.2, kind", "noise(%i.1, kind", ["speculative", "copyspec"]),
    ("noise(%i.1, %depth, %i.3, kind", "noise(%i.1, %depth, kind", ["speculative"]),
    ("noise(%i.1, %depth, kind", "noise(%depth, kind", ["speculative"]),
    ("draw(%p.1, %30)", "draw(%p, %30)", ["speculative"]),
    ("normalize(%27)", "normalize(%26)", ["speculative"]),
    ("tree.grow(%t.2, %x,", "tree.grow(%t, %x,", ["speculative"]),
    ("commit(%accepted)", "", ["speculative", "prompt_lookup"]),
    ('bound = "done"', 'bound = "limit"', ["speculative"]),
    ("weigh", "contrast", ["cfg"]),
]


@cache
def written(name: str) -> tuple[Data, ...]:
    return tuple(json.loads(json.dumps(certificates(decgraph.load(name).module)[0]))["certificates"])


def broken(whole: Data) -> Iterator[tuple[str, Data]]:
    """Ways to break a certificate, each by what is false then."""

    def other(what: str, **changed: Any) -> tuple[str, Data]:
        return what, {**copy.deepcopy(whole), **changed}

    yield other("another claim", claim=whole["claim"] + " ")
    yield other("another program", ir=whole["ir"][::-1])
    yield other("another condition", condition=whole["condition"] + " ")
    yield other("another model", model="nobody")
    yield other("a case more", cases=[whole])
    yield other("a stronger premise", premises=[*whole["premises"], "the claim holds"])
    if whole["mode"] != "inside":
        yield other("no premise about errors", premises=[])
        yield other("a weaker mode", mode="inside")
        yield other("a specification of which nothing is shown", functions={})
    if whole["mode"] == "drawn":
        yield other("a stronger mode", mode="own")
    for name, fact in whole["facts"].items():
        one = lambda changed, name=name: {"facts": {**whole["facts"], name: changed}}
        kind = fact[0]
        if (at := VERSION.get(kind)) is not None:
            for step in (1, -1):
                yield other(f"{name}: {kind} of another context", **one([*fact[:at], fact[at] + step, *fact[at + 1 :]]))
        if kind in ("token", "path") and fact[3] in STRONGER:
            yield other(f"{name}: {kind} that is own", **one([*fact[:3], "own", {"set": []}]))
        if kind in ("token", "path", "tree") and fact[4 if kind != "tree" else 3] != {"set": []}:
            at = 3 if kind == "tree" else 4
            yield other(f"{name}: {kind} of no draws", **one([*fact[:at], {"set": []}, *fact[at + 1 :]]))
        if kind == "drafts" and fact[1] != {"set": []}:
            yield other(f"{name}: point masses", **one(["drafts", {"set": []}, *fact[2:]]))
        if kind in ("row", "rows", "token", "path") and fact[1]:
            yield other(f"{name}: {kind} of another model", **one([kind, "nobody", *fact[2:]]))
        if kind == "row" and fact[3] in ("mass", "scores", "logs", "logits", "raw"):
            yield other(f"{name}: row as shaped", **one([*fact[:3], "shaped"]))
        if kind in ("rows", "nodes"):
            at = 2 if kind == "rows" else 1
            yield other(f"{name}: {kind} of another tree", **one([*fact[:at], "%none", *fact[at + 1 :]]))
        if kind == "tree":
            yield other(f"{name}: a tree by another name", **one(["tree", "%none", *fact[2:]]))
            if fact[5] != {"set": []}:
                yield other(
                    f"{name}: grown from another tree", **one([*fact[:5], {"set": [*fact[5]["set"], "%none"]}, fact[6]])
                )
        if kind == "path":  # what is committed
            yield other(f"{name}: no fact", facts={n: f for n, f in whole["facts"].items() if n != name})
    for name, loop in whole["loops"].items():
        for field in ("stored", "values"):
            places = loop[field].items() if field == "stored" else enumerate(loop[field])
            for key, labels in places:
                for label in labels["set"]:
                    changed = copy.deepcopy(whole)
                    changed["loops"][name][field][key]["set"].remove(label)
                    yield f"{name}: {field} without {label}", changed
        for label in loop["control"]["set"]:
            changed = copy.deepcopy(whole)
            changed["loops"][name]["control"]["set"].remove(label)
            yield f"{name}: control without {label}", changed
    for name, rule in whole["rules"].items():
        judged = lambda name=name, **changed: {"rules": {**whole["rules"], name: {**whole["rules"][name], **changed}}}
        if rule["rule"] == "rule-lossless":
            yield other(f"{name}: matching", **judged(rule="rule-matching", theorem="follow_owned", states=[[], [], []]))
            for theorem in ("grown_block_Law", "grown_traverse_Law", "siblings_lossless", "nobody"):
                if theorem != rule["theorem"]:
                    yield other(f"{name}: {theorem}", **judged(theorem=theorem))
        for n, states in enumerate(rule.get("states", ())):
            for m in range(len(states)):
                changed = copy.deepcopy(whole)
                del changed["rules"][name]["states"][n][m]
                yield f"{name}: without a state", changed
    for key, proof in whole["numbers"].items():
        if key in NEEDED:
            yield other(f"{key}: no proof", numbers={k: p for k, p in whole["numbers"].items() if k != key})
        if key in NEEDED:
            for factor in ("0", "-1"):
                changed = [[[n, factor] for n, _ in step] for step in proof]
                yield other(f"{key}: multiplied by {factor}", numbers={**whole["numbers"], key: changed})


NEEDED = {"%22: 1 %scale > 0", "%8: 1 %r >= 0", "%9: 1 %8 > 0"}
"""Linear facts without which the claims of `cfg`, `reward_guided_sd` and `autodeco` do not follow."""


@pytest.mark.quick("speculative", "prompt_lookup")
@pytest.mark.parametrize("name", PROGRAMS)
def test_broken_certificates_are_refused(name: str) -> None:
    module = decgraph.load(name).module
    accepted, many = [], 0
    for whole in written(name):
        if whole["mode"] not in ("own", "drawn", "inside"):
            continue  # of a kind that the checker has no rule for
        check(module, whole)
        for what, data in broken(whole):
            many += 1
            try:
                check(module, data)
            except Refused:
                continue
            accepted.append(f"{whole['claim']}: {what}")
    assert not accepted and many


@pytest.mark.slow
def test_there_are_hundreds_of_them() -> None:
    assert sum(1 for name in PROGRAMS for whole in written(name) for _ in broken(whole)) > 400


@pytest.mark.parametrize(("old", "new", "name"), [(old, new, name) for old, new, names in EDITS for name in names])
def test_true_certificates_of_other_programs_are_refused(old: str, new: str, name: str) -> None:
    """One operand or word of the program is another one, and the certificate says so by its hash."""
    module = decgraph.load(name).module
    text = print_module(module)
    assert text.count(old)
    head, _, rest = text.rpartition("\nfunc ")
    other: Module = (
        parse_module(head + "\nfunc " + rest.replace(old, new, 1)) if old in rest else parse_module(text.replace(old, new))
    )
    for whole in written(name):
        if whole["mode"] in ("own", "drawn"):
            with pytest.raises(Refused):
                check(other, {**whole, "ir": digest(other)})
