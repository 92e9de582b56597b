"""The words of the language as editors need them: which there are, and what each is good for."""

from __future__ import annotations

from functools import cache

from decgraph.dsl.lexer import CLAUSES, ITEMS, JOINTS, RESERVED, STATEMENTS
from decgraph.dsl.lower.builtins import TABLE
from decgraph.dsl.lower.calls import ACCEPTS
from decgraph.dsl.lower.declare import KNOWN
from decgraph.dsl.lower.expr import SPECIAL

__all__ = ["CLAUSES", "CONSTANTS", "ITEMS", "JOINTS", "RESERVED", "STATEMENTS", "TYPES", "VALUES", "functions", "helpers"]

CONSTANTS = ("yes", "no", "true", "false", "none", "inf")
"""Words with a fixed value."""

VALUES = tuple(word for word in SPECIAL if word not in CONSTANTS)
"""Words whose value the request, the context or the tree gives."""

TYPES = tuple(sorted({*KNOWN, *ACCEPTS, "embedding"}))
"""Words that name types where a type stands."""


@cache
def helpers() -> tuple[str, ...]:
    """The rules, policies and helpers of stdlib/ that need no import, by name."""
    from decgraph.dsl import syntax as S
    from decgraph.dsl.lower.library import SHELVES, stdlib_file

    files = [found[0] for name in SHELVES if (found := stdlib_file(name)) is not None]
    return tuple(sorted(item.name for file in files for item in file.items if isinstance(item, S.Item)))


@cache
def functions() -> frozenset[str]:
    """What can be called everywhere: the functions of the language, and the helpers of stdlib/."""
    return frozenset((*TABLE, *helpers()))


WORD_LINES: dict[str, str] = {
    "ctx": "the committed context: `.token`, `.length`, `.parent`, `.path`, `.last(n)`",
    "done": "whether a stop criterion of the request is met",
    "root": "the root of the tree that is being drafted",
    "prompt": "the tokens of the request's prompt",
    "greedy": "whether the request has temperature 0",
    "room": "how many tokens may still be committed",
    "eos": "the request's end token; where there is none, nothing equals it",
    "pad": "the padding token",
    "mask_": "the mask token of a masked model",
    "vocab": "the vocabulary; `vocab.size` is how many tokens it has",
    "empty": "a tree without nodes",
    "none": "no value",
    "yes": "true",
    "no": "false",
    "true": "yes",
    "false": "no",
    "inf": "infinity",
}
"""A line about every word that has a value (docs/language.md, Expressions)."""

STATEMENT_LINES: dict[str, str] = {
    "refines": "refines A(arguments) in tokens|distribution when condition: a claim that `decgraph check` decides",
    "ensures": "ensures condition on p and x when condition: a claim about every committed token",
    "keeps": "keeps support of target when condition: a claim",
    "at most": "the bound of a loop; at the start of a line a claim: at most k calls of model a token, at most n remasked",
    "state": "state name: type per sequence|session|batch = start",
    "canvas": "canvas name: length growing to length",
    "cache": "cache model by policy: which positions a call recomputes",
    "model": "model name = a model built from parts",
    "noise": "noise name[dims]: race|unit",
    "note": "note name = value: a figure of the run, shown in traces and summed up in its statistics",
    "draft": "draft t: a block that grows a tree of drafted tokens",
    "grow": "grow tokens at nodes with column = value: new nodes of the tree that is being drafted",
    "verify": "verify tree by rule against target(tree): which nodes are accepted",
    "prune": "prune tree to nodes",
    "commit": "commit tokens: they are the answer's next tokens",
    "accept": "accept node: in a rule",
    "emit": "emit token: in a rule, the token after what is accepted",
    "unmask": "unmask c[b] where condition with x: decides cells of a canvas",
    "remask": "remask c[ps] where condition: cells become undecided again",
    "lanes": "lanes i in n: independent copies",
    "across": "across batch: folds over the sequences of a batch",
    "repeat": "repeat n while condition: a counted loop",
    "loop": "loop at most n: left by break",
    "while": "while condition at most n:",
}
