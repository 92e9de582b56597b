"""The words of the language, by where they are keywords."""

from __future__ import annotations

ITEMS = (
    "algorithm", "rule", "policy", "def", "extern", "from",
)  # fmt: skip
"""What starts a definition."""

STATEMENTS = (
    "refines", "ensures", "keeps", "state", "canvas", "cache", "model", "noise", "verify", "prune",
    "commit", "accept", "emit", "return", "break", "grow", "unmask", "remask", "while", "loop", "repeat",
    "for", "lanes", "if", "elif", "else", "draft", "across",
)  # fmt: skip
"""What starts a statement."""

CLAUSES = (
    "on", "when", "otherwise", "recompute", "reuse", "forget",
)  # fmt: skip
"""What starts a clause of a policy, or an action in one."""

JOINTS = (
    "and", "or", "in", "where", "if", "else", "at", "by", "to", "with", "from", "until", "as", "using",
    "of", "over", "against", "per", "growing", "while", "for", "on", "when", "import",
)  # fmt: skip
"""What joins an operand to what follows."""

RESERVED = (
    "and", "or", "not", "in", "if", "elif", "else", "while", "for", "loop", "repeat", "break", "return",
)  # fmt: skip
"""Words that are never names, save after a dot."""

DECLARING = frozenset((
    "algorithm", "rule", "policy", "def", "extern", "from", "state", "canvas", "cache", "model", "noise",
    "verify", "prune", "lanes", "draft", "refines", "keeps", "unmask", "remask", "across",
))  # fmt: skip
"""Words that are keywords only before a name, so that `model(c)` or `state[i] = 3` can start a line."""

BLOCKS = frozenset((
    "algorithm", "rule", "policy", "def", "while", "loop", "repeat", "for", "lanes", "if", "elif", "else",
    "draft", "across", "on", "when", "otherwise",
))  # fmt: skip
"""What starts the head of a block, which ends in `:`."""

UNLIKELY = (
    "algorithm", "rule", "policy", "def", "extern", "state", "canvas", "verify", "prune", "commit", "draft",
    "repeat", "lanes", "unmask", "remask", "return", "emit", "accept", "refines",
)  # fmt: skip
"""Words that, before a name, do not occur inside brackets: where they do, a bracket was not closed."""
