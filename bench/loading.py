"""A user's own models for a benchmark: folders, shipped or fetched models by name, and random ones by size."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from decgraph.bench import weights
from decgraph.bench.weights import SIZES, BenchWeights
from decgraph.errors import DecError
from decgraph.runtime.models.folders import is_gguf
from decgraph.runtime.placement import Placement
from decgraph.runtime.text import Tokenizer
from decgraph.zoo import folder_of

WEIGHT_FILES = (".safetensors", ".bin", ".pt", ".gguf")


def loaded(target: str | None, drafter: str | None, parts: Mapping[str, str], placed: Placement, *, eos: bool) -> BenchWeights:
    """The weights of a benchmark: those named, the shipped ones where no target is.

    target, drafter: folders or names; a target of `SIZES` has a drafter of its own. parts: folders by the name of an
    algorithm's parameter. eos: whether the target's end-of-text tokens end a text. Raises DecError for what cannot be read,
    for two models of different vocabularies, and for a device that is not there.
    """
    placed = placed.resolved()
    for name in (target, drafter):
        if name is not None and is_gguf(name):
            raise DecError(
                f"{name} is no folder, and modules of transformers are measured here",
                hint="python -m lab peers measures GGUF files",
            )
    if target is None:
        made = weights.shipped(placed)
    elif target in SIZES:
        made = cast(weights.random_llama(target), placed)
    else:
        folder = folder_of(target)
        module = weights.read(folder, placed)
        tokenizer = Tokenizer(folder) if (folder / "tokenizer.json").is_file() else None
        size, end = int(module.config.get_text_config().vocab_size), ends(module) if eos else frozenset[int]()
        made = BenchWeights(folder.name, module, None, size, tokenizer, folders={"target": str(folder)}, eos=end)
    if drafter is not None:
        small = folder_of(drafter)
        made.drafter, made.folders = weights.read(small, placed), {**made.folders, "drafter": str(small)}
    if made.drafter is not None:
        check_vocabularies(made)
    for name, value in parts.items():
        made.parts, made.folders = {**made.parts, name: value}, {**made.folders, name: str(folder_of(value))}
    return made


def cast(weights: BenchWeights, placed: Placement) -> BenchWeights:
    """Random weights on a device, in a precision. The frequencies of rotary positions, which are buffers, stay in float32."""
    for module in (weights.target, weights.drafter):
        for weight in () if module is None else module.parameters():
            weight.data = weight.data.to(placed.precision(weight.dtype))
        if module is not None:
            module.to(placed.device)
    return weights


def ends(module: Any) -> frozenset[int]:  # Any: a transformers module
    """The tokens that end a text, by the model's generation settings or configuration."""
    for settings in (module.generation_config, module.config):
        found = getattr(settings, "eos_token_id", None)
        if found is not None:
            return frozenset(found if isinstance(found, list | tuple) else [found])
    return frozenset()


def check_vocabularies(weights: BenchWeights) -> None:
    """Raises DecError where the target's and the drafter's tokenizers, or else the sizes of their vocabularies, differ."""
    folders = [Path(weights.folders[name]) for name in ("target", "drafter") if name in weights.folders]
    vocabularies = [Tokenizer(folder).digest for folder in folders if (folder / "tokenizer.json").is_file()]
    sizes = [int(module.config.get_text_config().vocab_size) for module in (weights.target, weights.drafter)]
    if len(set(vocabularies)) > 1 or (len(vocabularies) < 2 and len(set(sizes)) > 1):
        raise DecError(
            f"the drafter does not speak the vocabulary of {weights.name} ({sizes[1]} and {sizes[0]} tokens)",
            hint="a drafter of the same family, or leave --drafter out",
        )


def digests(folders: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """By model, sha256 of its weight files and of what else decides its output: configuration and tokenizer."""
    out: dict[str, dict[str, str]] = {}
    for name, folder in folders.items():
        files = [Path(folder)] if Path(folder).is_file() else sorted(Path(folder).iterdir())
        listed = [f for f in files if f.suffix in WEIGHT_FILES or f.name in ("config.json", "tokenizer.json")]
        out[name] = {file.name: sha256(file) for file in listed}
    return out


def sha256(file: Path) -> str:
    """The digest of a file's bytes."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
