"""Random combinations of an algorithm, a rule of verification, a cache policy and settings of a request."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from functools import cache
from typing import Any

import decgraph
from decgraph import stdlib
from decgraph.api import Algorithm
from decgraph.errors import DecError
from lib.stdlib.table_models import SHELF

VERIFY = re.compile(r"(verify \w+ by )(\w+)(\([^)]*\))?( against)")
RULES = (
    "rejection",
    "match",
    "match_longest",
    "typical_longest",
    "typical_longest(0.4, 0.9)",
    "block_rejection",
    "traverse",
    "coin",
    "patient",
)
OWN_RULES = '''
rule coin(p: dist, children: draws):
    """A rule of this test: every draft that is at least half as likely as the likeliest token, by a coin of its own."""
    for x in children:
        if p[x] * 2 >= max(p):
            if bernoulli(p[x]):
                accept x
    emit argmax(p)

rule patient(t: tree, p: dist[t.nodes]):
    """A rule of this test: the deepest path of likely tokens, then a draw."""
    live = down(t, p[t.parent][t.token] > 0.05, all)
    n = argmax(t.nodes where live, by = [t.depth])
    accept n
    y ~ p[n]
    emit y
'''
POLICIES = ("none", "prefix", "dual", "behind", "canvas_alone")
OWN_POLICIES = '''
policy behind(b: span):
    """A policy of this test: from the block on, also when the block starts."""
    on enter b:  recompute from b.start, reuse the rest
    otherwise:   recompute b, reuse the rest

policy canvas_alone(b: span):
    """A policy of this test: the prompt once, the canvas always."""
    on enter b:  recompute all
    otherwise:   recompute from 0, reuse the rest
'''
SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"temperature": 0},
    {"temperature": 0.7, "top_k": 3},
    {"top_p": 0.8, "min_p": 0.05},
    {"temperature": 1.4, "repetition_penalty": 1.3},
    {"presence_penalty": 0.5, "frequency_penalty": 0.3},
    {"bias": {2: 1.5, 5: -2.0}, "bans": {6}},
    {"eos": {0, 4}, "min_length": 3},
    {"stop": ("ba", "ed")},
)


@dataclass(frozen=True)
class Combination:
    """An algorithm of stdlib/ with another rule or cache policy, and what its requests ask for."""

    name: str
    rule: str
    policy: str
    settings: dict[str, Any]
    seed: int


@cache
def composed(name: str, rule: str, policy: str) -> Algorithm | DecError:
    """The algorithm with this rule in every `verify`, or with this cache policy; the error where the two do not fit."""
    text = stdlib.text(name)
    try:
        if rule:
            called, _, arguments = rule.partition("(")
            text = VERIFY.sub(lambda m: f"{m[1]}{called}{'(' + arguments if arguments else ''}{m[4]}", text) + OWN_RULES
        if policy:
            text += OWN_POLICIES
        made = decgraph.parse(text, path=f"{name}.dec", main=name)
        return made.cached(policy) if policy else made
    except DecError as error:
        return error


def drawn(rng: random.Random) -> Combination:
    """A combination, well typed or not."""
    while True:
        name = rng.choice(SHELF)
        text = stdlib.text(name)
        rule = rng.choice(RULES) if VERIFY.search(text) else ""
        policy = rng.choice(POLICIES) if "masked" in text and "canvas" in text and not rule else ""
        settings = {**rng.choice(SETTINGS), **rng.choice(SETTINGS)}
        if rule or policy:
            return Combination(name, rule, policy, settings, rng.randrange(1000))


def well_typed(seed: int) -> Combination:
    """The first combination of this seed that is well typed."""
    rng = random.Random(seed)
    while isinstance(composed((c := drawn(rng)).name, c.rule, c.policy), DecError):
        pass
    return c
