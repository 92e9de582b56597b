"""The words of the language as Python names, for algorithms written with `@decgraph.algorithm`.

    from decgraph.dsl.prelude import *

They stand for what the compiler reads in the function's source: calling one from ordinary Python is an error.
Types (`Causal`, `Int[1, 32]`, `Features["target"]`) are annotations; everything else is a `Word`.
"""

from __future__ import annotations

import builtins
from typing import Any, NoReturn

from decgraph.errors import DecError
from decgraph.ir.surface import surface


class Word:
    """A name that has a meaning only inside a captured function."""

    def __init__(self, name: str) -> None:
        self.name = name

    def _outside(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise DecError(
            f"`{self.name}` has a meaning only inside a function under @decgraph.algorithm, which is read and not called",
            hint="run the algorithm: decgraph.run(algorithm, ...)",
        )

    __call__ = __getitem__ = __iter__ = __enter__ = __exit__ = __bool__ = _outside

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self._outside()

    def __repr__(self) -> str:
        return f"<decgraph word {self.name}>"


class Annotation:
    """A type of the language: `Causal`, `Int[1, 32]`, `Token["vocab", "k"]`."""

    def __init__(self, name: str, args: tuple[Any, ...] = ()) -> None:
        self.name, self.args = name, args

    def __getitem__(self, args: Any) -> Annotation:
        return Annotation(self.name, args if isinstance(args, tuple) else (args,))

    def __or__(self, other: Any) -> Annotation:
        return self

    def __call__(self, *args: Any) -> Annotation:
        return Annotation(self.name, args)

    def __repr__(self) -> str:
        return self.name + (f"[{', '.join(map(repr, self.args))}]" if self.args else "")


TYPES: dict[str, str] = {
    "Causal": "causal",
    "Masked": "masked",
    "Features": "features",
    "Layers": "layers",
    "SetBlock": "set_block_lm",
    "Int": "int",
    "Float": "float",
    "Prob": "prob",
    "Bool": "bool",
    "Text": "text",
    "Topology": "topology",
    "Set": "set",
    "Automaton": "automaton",
    "Token": "token",
    "Dist": "dist",
    "Draws": "draws",
    "Tree": "tree",
    "Node": "node",
    "Nodes": "nodes",
    "Positions": "positions",
    "Span": "span",
    "Edit": "edit",
    "Edits": "edits",
    "Listing": "list",
    "Suffixes": "suffixes",
    "Ngrams": "ngrams",
    "Lru": "lru",
    "Memory": "memory",
    "Path": "path",
}
"""Annotations by their Python names, with the language's."""

FORMS = ("State", "Noise", "Model")
"""Annotations that declare: `a: State[Int] = 1`, `g: Noise[w, vocab]`, `small: Model = target.exit(2)`."""

WORDS = """
    accept across_batch argmax argmin before bernoulli best best_first beta bounded blocks cache canvas cat chain commit
    completes count empty path counts ctx cycle done down draft edit emit ended ensures eos every first from_ greedy inf
    keeps_support lanes last loop mask_ mean none onehot only output pad prompt prune race ratio refines relax remask
    repeat root sample select settled soft sort spread suffixes ngrams text_of tile top topk uniform unmask up verify vocab
    warp zeros speaking run root
""".split()  # noqa: SIM905
"""Every other word. Some stand for builtins of Python that the language has too; inside a captured function those
(`max`, `min`, `sum`, `any`, `all`, `len`, `int`, `range`) are written as they are."""

CALLS = tuple(name for name in surface() if not hasattr(builtins, name))
"""The ops that say by what name they are called."""

LIBRARY = (
    "rejection",
    "block_rejection",
    "match",
    "typical_longest",
    "agreed",
    "dual",
    "prefix",
    "sure",
    "by_factor",
    "one",
    "autoregressive",
    "static_masked",
    "speculative",
)
"""Rules, policies, helpers and algorithms of stdlib/ that are often named."""

SCOPES = ("PerBatch",)
"""Around the type of a parameter that belongs to the batch: `capacity: PerBatch[Int[1, 4096]] = 256`."""

globals().update({n: Annotation(n) for n in (*TYPES, *FORMS, *SCOPES)})
globals().update({n: Word(n) for n in (*WORDS, *CALLS, *LIBRARY)})

__all__ = [*TYPES, *FORMS, *SCOPES, *WORDS, *CALLS, *LIBRARY, "Annotation", "Word"]


def __getattr__(name: str) -> Any:
    """Any other rule, policy, helper or algorithm of stdlib/, by its name."""
    from decgraph.dsl.lower.library import Names
    from decgraph.dsl.source import Source
    from decgraph.dsl.syntax import File

    if not name.startswith("_") and name in Names(File(()), Source("")):
        return Word(name)
    raise AttributeError(f"module 'decgraph.dsl.prelude' has no attribute {name!r}")
