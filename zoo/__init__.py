"""The shipped models: where they are, and what their cards say. Importing this needs no torch.

>>> names()
['target', 'drafter', 'medusa', 'eagle', 'exit', 'masked', 'tokenizer']
"""

from __future__ import annotations

from pathlib import Path

from decgraph.errors import DecError

__all__ = ["card", "names", "path"]

_MODELS = Path(__file__).parent / "models"
_NAMES = ("target", "drafter", "medusa", "eagle", "exit", "masked", "tokenizer")


def names() -> list[str]:
    """The names of the shipped models, and `tokenizer`, the one they share."""
    return list(_NAMES)


def path(name: str) -> Path:
    """The folder of a shipped model, in transformers' `from_pretrained` form.

    `medusa`, `eagle` and `exit` are loaded with `AutoModel` after `import decgraph.zoo.modeling`; the others
    need nothing of ours. Raises DecError for an unknown name, or when the weights are not on this machine.
    """
    if name not in _NAMES:
        raise DecError(f"there is no shipped model called {name!r}", hint=f"one of {', '.join(_NAMES)}")
    folder = _MODELS / name
    if not (folder / ("tokenizer.json" if name == "tokenizer" else "config.json")).exists():
        raise DecError(
            f"the shipped model {name!r} is not in {folder}",
            hint=f"train it: python -m decgraph.zoo.train --only {name}",
        )
    return folder


def card(name: str) -> str:
    """The part of the model card about this model: how it was trained, on what, and what was measured."""
    path(name)
    text = (_MODELS / "README.md").read_text(encoding="utf-8")
    _, _, rest = text.partition(f"\n## {name}\n")
    return f"## {name}\n" + rest.partition("\n## ")[0].rstrip() + "\n"
