"""The text side of a run, for algorithms whose functions read text: a tokenizer of decgraph's from what a caller has."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any


def text_side(tokenizer: Any, model: Any) -> Any:
    """A `runtime.text.Tokenizer`, or None where there is nothing to make one from.

    tokenizer: a folder, a shipped model's name, a fast tokenizer of transformers, or one of decgraph's. Left out, it is
    looked for in the folder that the model was read from.
    """
    from decgraph.runtime.text import Tokenizer
    from decgraph.zoo.folders import folder_of

    if tokenizer is None:
        folder = Path(str(getattr(getattr(model, "config", None), "name_or_path", "") or "/nowhere"))
        return Tokenizer(folder) if (folder / "tokenizer.json").is_file() else None
    if isinstance(tokenizer, str | Path):
        return Tokenizer(folder_of(tokenizer))
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return tokenizer
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "tokenizer.json").write_text(backend.to_str(), encoding="utf-8")
        made = Tokenizer(place)
    made.source = tokenizer
    return made
