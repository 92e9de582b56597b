"""What a model's folder holds, looked at before torch is imported: its settings, and whether its weights are all there.

Folders come from training runs, half downloads and clones without Git LFS. A message says what is there and what to do.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from decgraph.errors import DecError

_POINTER = b"version https://git-lfs.github.com/spec/"
_OTHER_WEIGHTS = (".bin", ".pt", ".pth", ".h5", ".msgpack", ".gguf")
_OTHER_TOKENIZERS = ("tokenizer.model", "spiece.model", "vocab.json", "vocab.txt", "sentencepiece.bpe.model", "merges.txt")
_SAVED = "a folder as save_pretrained writes it, with config.json and model.safetensors"
_GGUF = "a GGUF file is read as a causal model, and given by its own path"


def folder(path: str | Path) -> Path:
    """The whole path of a model's folder. Raises DecError for what is no folder."""
    found = Path(path).expanduser().resolve()
    if found.is_dir():
        return found
    if found.is_file():
        hint = _GGUF if found.suffix == ".gguf" else f"give the folder that it is in: {found.parent}"
        raise DecError(f"{path} is a file, and a model is given by its folder", hint=hint)
    raise DecError(f"{path} is not a folder with a model in it", hint=_SAVED)


def settings(file: Path) -> dict[str, Any]:
    """The JSON object in a file. Raises DecError for a file that is not there, or holds something else."""
    try:
        read = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DecError(f"{file.parent} has no {file.name}", hint=_SAVED) from None
    except (OSError, ValueError) as error:  # ValueError: no UTF-8, or no JSON
        raise unreadable(file, error) from None
    if not isinstance(read, dict):
        raise DecError(f"{file} cannot be read: it holds no JSON object", hint="write it again with save_pretrained")
    return read


def configuration(path: str | Path) -> tuple[Path, dict[str, Any]]:
    """A model's folder and its config.json. Raises DecError for a folder without one, for a file of settings that cannot be
    read, and for tokens that end a text and are no numbers."""
    at = folder(path)
    if not (at / "config.json").is_file():
        raise _no_model(at)
    config = settings(at / "config.json")
    names = config.get("architectures")
    if names is not None and not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        raise DecError(f"{at / 'config.json'} has {names!r} for architectures", hint='a list: ["LlamaForCausalLM"]')
    for key in ("vocab_size", "max_position_embeddings"):
        if not isinstance(config.get(key, 0), int | None):
            raise DecError(f"{at / 'config.json'} has {config[key]!r} for {key}", hint="a whole number")
    ends(at)
    return at, config


def ends(at: Path) -> frozenset[int]:
    """The tokens that end a text, as in transformers' `generate`: its generation settings decide where there are any, even if
    they name none, and else its configuration; of a GGUF file what it says. Raises DecError for a file that cannot be read."""
    if at.suffix == ".gguf" and at.is_file():
        from decgraph.runtime.models.gguf import file as gguf
        from decgraph.runtime.models.gguf.tokens import bounds

        return frozenset(bounds(gguf.read(at))[1])
    for file in (at / "generation_config.json", at / "config.json"):
        if file.is_file():
            found = settings(file).get("eos_token_id")
            tokens = found if isinstance(found, list) else [] if found is None else [found]
            if not all(type(token) is int for token in tokens):
                raise DecError(f"{file} has {found!r} for eos_token_id", hint="the number of a token, or a list of them")
            return frozenset(tokens)
    return frozenset()


def check_weights(at: Path) -> None:
    """Raises DecError unless a model's weights are there, whole, as safetensors."""
    files = [file for file in sorted(at.glob("*.safetensors")) if not file.name.startswith("adapter_")]
    index = at / "model.safetensors.index.json"
    if index.is_file() and not (at / "model.safetensors").is_file():
        files = shards(index)
    if not files:
        raise _adapter(at) if (at / "adapter_config.json").is_file() else _no_weights(at)
    for file in files:
        check_whole(file)
    if (at / "adapter_config.json").is_file() and any(at.glob("adapter_model.*")) and find_spec("peft") is None:
        raise DecError(f"{at} holds a PEFT adapter beside its model, and peft, which applies it, is not installed",
                       hint="pip install peft, or move adapter_config.json away to decode without the adapter")  # fmt: skip


def shards(index: Path) -> list[Path]:
    """The files that an index names. Raises DecError for one that is not there."""
    named = settings(index).get("weight_map")
    if not isinstance(named, dict):
        raise DecError(f"{index} cannot be read: it has no weight_map", hint="write it again with save_pretrained")
    found = sorted(set(map(str, named.values())))
    missing = [shard for shard in found if Path(shard).name != shard or not (index.parent / shard).is_file()]
    if missing:
        rest = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise DecError(f"{index.name} of {index.parent} names {missing[0]}{rest}, which is not there",
                       hint="copy or download the missing files")  # fmt: skip
    return [index.parent / shard for shard in found]


def check_whole(file: Path) -> None:
    """Raises DecError for a safetensors file whose table of tensors cannot be read, or that has not the size that it says."""
    size = file.stat().st_size
    try:
        with file.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if is_pointer(file) or length > size:
                raise ValueError("it has no table of tensors")
            table = json.loads(stream.read(length))
        wanted = 8 + length + max((one["data_offsets"][1] for name, one in table.items() if name != "__metadata__"), default=0)
        if wanted != size:
            raise ValueError(f"it has {size} bytes, and its tensors take {wanted}")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise unreadable(file, error) from None


def is_pointer(file: Path) -> bool:
    """Whether a file is what Git keeps in the place of a large one."""
    try:
        with file.open("rb") as stream:
            return stream.read(len(_POINTER)) == _POINTER
    except OSError:  # what reads it next says why
        return False


def unreadable(file: Path, error: Exception) -> DecError:
    """The error of a file that could not be read."""
    if is_pointer(file):
        return DecError(f"{file} cannot be read: it is a Git LFS pointer, in the place of a file that was not downloaded",
                        hint=f"git -C {file.parent} lfs pull, or hf download")  # fmt: skip
    said = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return DecError(f"{file} cannot be read: {said}", hint="it may be cut off: compare its size with the original's")


def without_tokenizer(places: Iterable[Path | None]) -> str:
    """What to do where a text is to be read and no folder has a tokenizer.json."""
    for at in (place for place in places if place is not None and place.is_dir()):
        if other := next((name for name in _OTHER_TOKENIZERS if (at / name).is_file()), None):
            return (
                f"{at} has {other} and no tokenizer.json, which AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER) "
                "of transformers writes; or give the prompt as token ids"
            )
        return f"put the tokenizer.json of the model into {at}; or give a tokenizer, or the prompt as token ids"
    return "give a tokenizer, or the prompt as token ids"


def _no_model(at: Path) -> DecError:
    if (at / "adapter_config.json").is_file():
        return _adapter(at)
    inside = sorted((file.parent for file in at.glob("*/config.json")), key=lambda one: one.stat().st_mtime)
    inside = inside or sorted(at.glob("*.gguf"))
    hint = f"did you mean {inside[-1]}?" if inside else _SAVED
    return DecError(f"{at} has no config.json, so it is not a model's folder", hint=hint)


def _adapter(at: Path) -> DecError:
    base = settings(at / "adapter_config.json").get("base_model_name_or_path") or "BASE"
    return DecError(
        f"{at} holds an adapter of PEFT and no model",
        hint=f"PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained({str(base)!r}), FOLDER).merge_and_unload()"
        ".save_pretrained(MERGED), and give MERGED; or give the loaded module in Python",
    )


def _no_weights(at: Path) -> DecError:
    other = next((file for file in sorted(at.iterdir()) if file.suffix in _OTHER_WEIGHTS), None)
    if other is None:
        return DecError(f"{at} has no safetensors file: its weights are not there", hint=_SAVED)
    hint = f"give {other}" if other.suffix == ".gguf" else "AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(NEW)"
    return DecError(f"{at} has no safetensors file but {other.name}, and weights are read from safetensors", hint=hint)
