"""The words of the language as Python names, for algorithms written with `@decgraph.algorithm`.

    from decgraph.dsl.prelude import *

They stand for what the compiler reads in the function's source: calling one from ordinary Python is an error.
Types are annotations: `Causal`, `Annotated[int, 1, 32]`, `Annotated[Features, "target"]`, `State[PerSession[int]]`; everything
else is a `Word`. prelude.pyi says to type checkers what each takes and gives.
"""

from __future__ import annotations

import builtins as python
from typing import Annotated, Any, NoReturn

from decgraph.dsl.lower import builtins, expr, library
from decgraph.dsl.source import Source
from decgraph.dsl.syntax import File
from decgraph.errors import DecError
from decgraph.ir.table import surface


class Word:
    """A name that has a meaning only inside a captured function."""

    def __init__(self, name: str) -> None:
        self.name = name

    def _outside(self, *args: object, **kwargs: object) -> NoReturn:
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
    """A type of the language: `Causal`, `State[PerSession[int]]`."""

    def __init__(self, name: str, args: tuple[object, ...] = ()) -> None:
        self.name, self.args = name, args

    def __getitem__(self, args: object) -> Annotation:
        return Annotation(self.name, args if isinstance(args, tuple) else (args,))

    def __or__(self, other: object) -> Annotation:
        return self

    def __repr__(self) -> str:
        return self.name + (f"[{', '.join(map(repr, self.args))}]" if self.args else "")


TYPES: dict[str, str] = {
    "int": "int", "float": "float", "bool": "bool", "str": "text", "Causal": "causal", "Masked": "masked",
    "Features": "features", "Layers": "layers", "SetBlock": "set_block_lm", "Int": "int", "Float": "float",
    "Prob": "prob", "Bool": "bool", "Text": "text", "Topology": "topology", "Set": "set", "Automaton": "automaton",
    "Canvas": "canvas", "Token": "token", "Dist": "dist", "Draws": "draws", "Tree": "tree", "Node": "node",
    "Nodes": "nodes", "Positions": "positions", "Span": "span", "Edit": "edit", "Edits": "edits", "Listing": "list",
    "Suffixes": "suffixes", "Ngrams": "ngrams", "Lru": "lru", "Memory": "memory", "Path": "path",
}  # fmt: skip
"""Annotations by their Python names, with the language's."""

FORMS = ("State", "Noise", "Model")
"""Annotations that declare: `a: State[int] = 1`, `g: Annotated[Noise, "w", "vocab"] = fresh`, `s: Model = target.exit(2)`."""

SCOPES = {"PerSequence": "sequence", "PerSession": "session", "PerBatch": "batch"}
"""Around the type of a state or a parameter: how long it lives, or that the batch shares it."""

STATEMENTS = (
    "accept", "across_batch", "at_most", "bounded", "cache", "canvas", "cat", "commit", "draft", "emit", "ensures", "fresh",
    "keeps_support", "lanes", "loop", "note", "output", "path", "prune", "refines", "remask", "repeat", "run", "unmask",
    "verify",
)  # fmt: skip
"""What is a statement of the language, or a part of one; `fresh` is the value of what is declared without one."""

SPECIFICATIONS = ("autoregressive", "static_masked")
"""Algorithms of stdlib/ that others refine or run. Any other can be imported by its name."""

_library = library.ItemsInReach(File(()), Source(""))
_functions = {*builtins.TABLE, *expr.SPECIAL, *surface()}
WORDS = sorted({*STATEMENTS, *SPECIFICATIONS, *_library, *(name for name in _functions if not hasattr(python, name))})
"""Every other word: the functions and names that lowering knows, the rules, policies and helpers of stdlib/. What is a builtin
of Python (`max`, `sum`, `any`, `len`, `int`, ...) is written as it is."""

_annotations = [name for name in (*TYPES, *FORMS, *SCOPES) if not hasattr(python, name)]
globals().update({name: Annotation(name) for name in _annotations}, **{name: Word(name) for name in WORDS})
Value = Annotation("Value")  # a number or a vector, for what is annotated inside functions: it is never read

__all__ = ["Annotated", "Value", *_annotations, *WORDS]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    """Any other algorithm of stdlib/, by its name."""
    if not name.startswith("_") and name in _library:
        return Word(name)
    raise AttributeError(f"module 'decgraph.dsl.prelude' has no attribute {name!r}")
