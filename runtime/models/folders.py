"""What a model's folder holds, looked at before torch is imported: its settings, and whether its weights are all there.

Folders come from training runs, half downloads and clones without Git LFS. A message says what is there and what to do.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TypedDict

from decgraph.errors import DecError
from decgraph.runtime.models.config import mapping, whole
from decgraph.runtime.models.unreadable import unreadable

_OTHER_WEIGHTS = (".bin", ".pt", ".pth", ".h5", ".msgpack", ".gguf")
_OTHER_TOKENIZERS = ("tokenizer.model", "spiece.model", "vocab.json", "vocab.txt", "sentencepiece.bpe.model", "merges.txt")
_SAVED = "a folder as save_pretrained writes it, with config.json and model.safetensors"
_GGUF = "a GGUF file is read as a causal model, and given by its own path"


GGUF = ".gguf"
STORED = {"F64": "float64", "F32": "float32", "BF16": "bfloat16", "F16": "float16"}
"""torch's names of safetensors' kinds of floating-point numbers."""
_SAID = {*STORED.values(), "double", "float", "half", "float8_e4m3fn", "float8_e5m2"}
"""What a configuration may say of its dtype, as torch names it."""

_LAYERS = ("num_hidden_layers", "num_layers", "n_layer")
_COUNTS = {"vocab_size": 2**31, "max_position_embeddings": 2**62, "n_positions": 2**62, **dict.fromkeys(_LAYERS, 10**5)}
"""Counts in a configuration, and the most that each may be: layers are made one by one."""


@dataclass(frozen=True)
class Folder:
    """What a model's folder holds. config: its config.json. named: the first class that it names, or else the family. composed:
    whether it is a model of images and text. dtype: torch's name of the precision of its weights: what its configuration says,
    as transformers has it; else that of most numbers. size: the number of tokens that its configuration says (0: none).
    context: the most positions that its model reads, or None."""

    path: Path
    name: str
    config: Mapping[str, object]
    named: str
    composed: bool
    dtype: str
    size: int
    context: int | None


def read(path: str | Path, kind: str, check: Callable[[Path, str], object] = lambda at, named: None) -> Folder:
    """What a folder holds, of which a model of a kind ("causal", "masked") is wanted; its weights are found whole, as far as
    that can be seen without torch. check: raises DecError for a path and the first class that the configuration names.

    Raises DecError for a folder without a config.json, one that names neither a class nor a family, a causal one whose class is
    another, and for weights that are not there, whole, as safetensors.
    """
    at, config = configuration(path)
    if not (config.get("architectures") or config.get("model_type")):
        raise DecError(f"{at} is not a {kind} model: its config.json names no architecture",
                       hint='"architectures": ["LlamaForCausalLM"] in config.json, or the name of another class')  # fmt: skip
    composed = kind == "causal" and not _is_causal(config)
    if composed:
        _check_composed(at, config)
    named = next(iter(_classes(config)), None) or str(config.get("model_type"))
    check(at, named)
    text = {**mapping(config, "text_config"), **config}  # Fuyu is a causal model by its class, and has two configs
    dtype, size = _dtype(config, _check_weights(at)), whole(text, "vocab_size", 0)
    return Folder(at, at.name, config, named, composed, dtype, size, context_of(text))


def is_gguf(path: str | Path) -> bool:
    """Whether a path is that of a GGUF file."""
    return Path(path).suffix == GGUF and Path(path).is_file()


def _classes(config: Mapping[str, object]) -> list[str]:
    """The classes that a configuration names."""
    named = config.get("architectures")
    return [str(name) for name in named] if isinstance(named, list) else []


def _is_causal(config: Mapping[str, object]) -> bool:
    """Whether a folder holds a causal model of text alone. Where its configuration names no class, its model_type decides."""
    if "medusa_num_heads" in config:  # Medusa v1.0 puts its heads into the target's folder, under a class of its own
        return True
    names = _classes(config)
    ends = ("ForCausalLM", "LMHeadModel", "WithLMHead", "GenerationDecoder")
    return any(name.endswith(ends) for name in names) if names else "text_config" not in config


def _check_composed(at: Path, config: Mapping[str, object]) -> None:
    """Raises DecError for a folder with neither a causal model nor one of images and text (LLaVA, Gemma 3, Qwen2.5-VL), which
    is used for prompts of text alone."""
    names = _classes(config)
    known = not names or any(name.endswith("ForConditionalGeneration") for name in names)
    if not known or config.get("is_encoder_decoder") or not isinstance(config.get("text_config"), dict):
        raise DecError(f"{at} is not a causal model but a {', '.join(names)}")


def _dtype(config: Mapping[str, object], sizes: Mapping[str, int]) -> str:
    """See `Folder`. sizes: how many numbers there are of each of safetensors' kinds."""
    for part in (config, mapping(config, "text_config")):
        if (said := str(part.get("dtype") or part.get("torch_dtype"))) in _SAID:
            return said
    return STORED[max((kind for kind in STORED if kind in sizes), key=lambda kind: sizes[kind], default="F32")]


def context_of(config: Mapping[str, object]) -> int | None:
    """The most positions that a model reads, by its configuration, or None. GPT-2's relatives (GPT-J, CodeGen, BigCode) call
    the number `n_positions`."""
    name = next((name for name in ("max_position_embeddings", "n_positions") if config.get(name) is not None), None)
    return None if name is None else whole(config, name)


def holds_heads(path: Path) -> bool:
    """Whether a folder holds a target and Medusa heads for it, as Medusa v1.0 does."""
    return {"medusa_num_heads", "num_hidden_layers"} <= _said(path).keys()


def holds_markov(path: Path) -> bool:
    """Whether a folder is a DSpark head's, with a Markov head in it."""
    said = _said(path)
    return any(bool(part.get("markov_rank")) for part in (said, said.get("dflash_config")) if isinstance(part, dict))


def _said(path: Path) -> dict[str, object]:
    """The content of a folder's config.json; empty where it cannot be read, which is an error when the model is read."""
    try:
        return settings(path.expanduser() / "config.json")
    except DecError:
        return {}


def folder(path: str | Path) -> Path:
    """The whole path of a model's folder. Raises DecError for what is no folder."""
    found = Path(path).expanduser().resolve()
    if found.is_dir():
        return found
    if found.is_file():
        hint = _GGUF if found.suffix == ".gguf" else f"give the folder that it is in: {found.parent}"
        raise DecError(f"{path} is a file, and a model is given by its folder", hint=hint)
    raise DecError(f"{path} is not a folder with a model in it", hint=_SAVED)


def settings(file: Path) -> dict[str, object]:
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


def configuration(path: str | Path) -> tuple[Path, dict[str, object]]:
    """A model's folder and its config.json. Raises DecError for a folder without one, for a file of settings that cannot be
    read, and for tokens that end a text and are no numbers."""
    at = folder(path)
    if not (at / "config.json").is_file():
        raise _no_model(at)
    config = settings(at / "config.json")
    names = config.get("architectures")
    if names is not None and not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        raise DecError(f"{at / 'config.json'} has {names!r} for architectures", hint='a list: ["LlamaForCausalLM"]')
    for key, most in _COUNTS.items():
        value = config.get(key)
        if value is not None and not (type(value) is int and 0 <= value <= most):
            raise DecError(f"{at / 'config.json'} has {value!r} for {key}", hint="a whole number")
    if not isinstance(config.get("tie_word_embeddings"), bool | None):
        raise DecError(
            f"{at / 'config.json'} has {config['tie_word_embeddings']!r} for tie_word_embeddings", hint="true or false"
        )
    ends(at)
    return at, config


def ends(at: Path) -> frozenset[int]:
    """The tokens that end a text, as in transformers' `generate`: its generation settings decide where there are any, even if
    they name none, and else its configuration; of a GGUF file what it says. Raises DecError for a file that cannot be read."""
    if at.suffix == ".gguf" and at.is_file():
        from decgraph.runtime.models.gguf import file as gguf
        from decgraph.runtime.models.gguf.tokens import bounds

        return frozenset(bounds(gguf.read(at))[1])
    at = adapted_from(at) or at
    for file in (at / "generation_config.json", at / "config.json"):
        if file.is_file():
            found = settings(file).get("eos_token_id")
            tokens = found if isinstance(found, list) else [] if found is None else [found]
            known = [token for token in tokens if type(token) is int]
            if len(known) < len(tokens):
                raise DecError(f"{file} has {found!r} for eos_token_id", hint="the number of a token, or a list of them")
            return frozenset(known)
    return frozenset()


class StoredTensor(TypedDict):
    """A tensor's entry in the table of a safetensors file."""

    dtype: str
    shape: list[int]
    data_offsets: list[int]


def _check_weights(at: Path) -> Counter[str]:
    """How many numbers of each of safetensors' kinds a model's weights have. Raises DecError unless they are there, whole, as
    safetensors."""
    files = [file for file in sorted(at.glob("*.safetensors")) if not file.name.startswith("adapter_")]
    index = at / "model.safetensors.index.json"
    if index.is_file() and not (at / "model.safetensors").is_file():
        files = shards(index)
    if not files:
        raise _adapter(at) if (at / "adapter_config.json").is_file() else _no_weights(at)
    sizes: Counter[str] = Counter()
    for tensor in (one for file in files for name, one in check_whole(file).items() if name != "__metadata__"):
        sizes[str(tensor["dtype"])] += math.prod(tensor["shape"])
    if (at / "adapter_config.json").is_file() and any(at.glob("adapter_model.*")) and find_spec("peft") is None:
        raise DecError(f"{at} holds a PEFT adapter beside its model, and peft, which applies it, is not installed",
                       hint="pip install peft, or move adapter_config.json away to decode without the adapter")  # fmt: skip
    return sizes


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


def check_whole(file: Path) -> dict[str, StoredTensor]:
    """The table of tensors of a safetensors file. Raises DecError for one that cannot be read, and for a file that has not the
    size that it says."""
    size = file.stat().st_size
    try:
        with file.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if length > size:  # so it is in what Git keeps in the place of a large file
                raise ValueError("it has no table of tensors")
            table = json.loads(stream.read(length))
        wanted = 8 + length + max((one["data_offsets"][1] for name, one in table.items() if name != "__metadata__"), default=0)
        if wanted != size:
            raise ValueError(f"it has {size} bytes, and its tensors take {wanted}")
        return dict(table)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise unreadable(file, error) from None


def without_tokenizer(places: Iterable[Path | None]) -> str:
    """A hint for a text where no folder has a tokenizer.json."""
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


def adapted_from(at: Path) -> Path | None:
    """The folder of the model that a folder with an adapter of PEFT and no model adds to; None for other folders, and where it
    is not on this machine."""
    if (at / "config.json").is_file() or not (at / "adapter_model.safetensors").is_file():
        return None
    base = Path(str(settings(at / "adapter_config.json").get("base_model_name_or_path") or "/nowhere"))
    return base if (base / "config.json").is_file() else None


def _adapter(at: Path) -> DecError:
    base = settings(at / "adapter_config.json").get("base_model_name_or_path") or "BASE"
    return DecError(
        f"{at} holds an adapter of PEFT and no model",
        hint="name the folder of its model as base_model_name_or_path in adapter_config.json; or "
        f"PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained({str(base)!r}), FOLDER).merge_and_unload()"
        ".save_pretrained(MERGED), and give MERGED; or give the loaded module in Python",
    )


def _no_weights(at: Path) -> DecError:
    other = next((file for file in sorted(at.iterdir()) if file.suffix in _OTHER_WEIGHTS), None)
    if other is None:
        return DecError(f"{at} has no safetensors file: its weights are not there", hint=_SAVED)
    hint = f"give {other}" if other.suffix == ".gguf" else "AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(NEW)"
    return DecError(f"{at} has no safetensors file but {other.name}, and weights are read from safetensors", hint=hint)
