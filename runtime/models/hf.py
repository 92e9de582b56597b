"""Loading Hugging Face models from folders. Importing this loads no torch; the load functions do.

Weights are safetensors, read in the dtype and moved to the device of a `Placement`; no code from a model's folder is run.
"""

from __future__ import annotations

import logging
import math
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decgraph.errors import DecError
from decgraph.runtime.models.derivations import unreached
from decgraph.runtime.models.folders import check_weights, configuration, settings
from decgraph.runtime.models.gguf import file as gguf
from decgraph.runtime.models.interface import Model, Vocab, check_vocab
from decgraph.runtime.placement import AUTO, BLOCKS, Placement
from decgraph.runtime.text import Tokenizer, has_tokenizer

if TYPE_CHECKING:
    import torch

    from decgraph.runtime.models.decoder.net import DecoderNet
    from decgraph.runtime.models.heads.layout import Part
    from decgraph.runtime.models.hf_causal import HFCausal
    from decgraph.runtime.models.hf_heads import HFAdapter, HFFeatures, HFHeads
    from decgraph.runtime.models.hf_live import Live
    from decgraph.runtime.models.hf_reading import HFReading
    from decgraph.runtime.models.hf_rooted import HFRooted


_LOG = logging.getLogger("decgraph.engine")


def load_causal(path: str | Path, *, reuse: bool = False, placed: Placement | None = None) -> HFCausal | Live:
    """A causal language model of a folder or a GGUF file. With `reuse` calls share earlier calls' cached nodes (see
    `HFCausal`). placed: its device and dtype; None: `auto` for both.

    An architecture whose layers do not hand on what `HFCausal` needs (gpt2, gpt_neox, opt, ...) is a `Live` model: it
    is evaluated and decoded with like any other, and has no exits, heads or memories.

    Raises DecError if the folder, its configuration or its architecture cannot be used, and for a device that is not there.
    """
    if gguf.is_file(path):
        return _of_file(Path(path).resolve(), reuse, placed)
    # Medusa v1.0 puts its heads into the target's folder, under a class of its own.
    endings = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")
    folder, config = _folder(path, "causal", endings, merged="medusa_num_heads")
    from decgraph.runtime.models.hf_causal import HFCausal

    names = config.get("architectures") or ["" if "text_config" in config else "ForCausalLM"]  # none: by its model_type
    if not any(name.endswith(("ForCausalLM", "LMHeadModel")) for name in names) and "medusa_num_heads" not in config:
        return _of_text(folder, config, placed)
    vocab = _vocab(folder, config)
    found = _decoder(folder, config, placed)
    if found is not None:
        return HFCausal(found, name=folder.name, vocab=vocab, context=_context(config), family=str(folder), reuse=reuse)
    module = attending(folder, "AutoModelForCausalLM", placed)
    from decgraph.runtime.models.hf_net import Net

    try:
        net = Net(module)
    except (DecError, TypeError) as refused:  # TypeError: a forward that takes no keyword arguments but its own
        return _live(folder, vocab, refused, placed)
    return HFCausal(net, name=folder.name, vocab=vocab, context=_context(config), family=str(folder), reuse=reuse)


def _of_file(path: Path, reuse: bool, placed: Placement | None) -> HFCausal:
    """The model of a GGUF file. Where float32 is asked for, what its blocks are multiplied with is float32 too."""
    from decgraph.runtime.models.gguf.net import net_of_file, own_dtype
    from decgraph.runtime.models.gguf.settings import config_of
    from decgraph.runtime.models.hf_causal import HFCausal
    from decgraph.runtime.native.products import Activations

    file, placed = gguf.read(path), (placed or Placement()).found()
    config = config_of(file)
    activations: Activations = "int16" if placed.dtype == AUTO else "float32"
    net = net_of_file(file, config, placed.precision(own_dtype(file)), placed.device, activations)
    net = net.in_blocks(placed.dtype) if placed.dtype in BLOCKS else net
    return HFCausal(net, name=path.stem, vocab=_vocab(path, config), context=_context(config), family=str(path), reuse=reuse)


def _decoder(folder: Path, config: dict[str, Any], placed: Placement | None) -> DecoderNet | None:
    """The decoder's net of a folder; None where transformers' module is to run, which the log says with the reason."""
    from decgraph.runtime.models.decoder.folder import net_of_folder
    from decgraph.runtime.models.decoder.shape import Unknown

    placed = (placed or Placement()).found()
    try:
        made = net_of_folder(folder, config, placed.precision(own_dtype(folder)), placed.device)
        return made if placed.dtype not in BLOCKS else made.in_blocks(placed.dtype)
    except Unknown as unknown:
        if placed.dtype in BLOCKS:
            raise DecError(
                f"{folder} has no weights in {placed.dtype}: transformers' own module runs it ({unknown})", hint="dtype float32"
            ) from None
        _LOG.info("%s runs as transformers' own module: %s", folder.name, unknown)
        return None


def _of_text(folder: Path, config: dict[str, Any], placed: Placement | None) -> Live:
    """A model of images and text (LLaVA, Gemma 3, Qwen2.5-VL), for prompts of text alone. Raises DecError for other models."""
    text = config.get("text_config")
    if config.get("is_encoder_decoder") or not isinstance(text, dict):
        raise DecError(f"{folder} is not a causal model but a {', '.join(config.get('architectures') or [])}")
    whole = "AutoModelForImageTextToText"
    return _live(folder, _vocab(folder, {**config, **text}), DecError("it has no text model"), placed, whole)


def _live(
    folder: Path, vocab: Vocab, refused: Exception, placed: Placement | None, loader: str = "AutoModelForCausalLM"
) -> Live:
    """The model as the library runs it, if the engine can run it too; else what was in the way first."""
    import transformers

    from decgraph.runtime.models.engine.of import engine_of
    from decgraph.runtime.models.hf_live import from_module

    # Some versions' default attention leaves out soft caps.
    capped = settings(folder / "config.json").get("attn_logit_softcapping")
    module = pretrained(getattr(transformers, loader), folder, "eager" if capped else None, placed)
    model = from_module(module.requires_grad_(False), name=folder.name, vocab=vocab)
    model.family = str(folder)
    model.unreached = refused if isinstance(refused, DecError) else DecError(f"{type(module).__name__}: {refused}")
    try:
        engine_of(model)
    except DecError as error:
        raise error from refused
    return model


def load_heads(path: str | Path, target: HFCausal) -> HFHeads:
    """Medusa heads for `target`, of any layout that decgraph knows (docs/heads.md) and in the target's precision;
    `target.with_heads(heads)` is a target with `heads(path)`. Raises DecError as `load_features` does."""
    from decgraph.runtime.models.hf_heads import HFHeads

    folder, module = _part(path, target, "heads")
    return HFHeads(module, target, folder.name)


def load_features(path: str | Path, target: HFCausal) -> HFFeatures | HFRooted:
    """A head that reads `target`'s features, as EAGLE's, Hydra's and DFlash's do, of any layout that decgraph knows
    (docs/heads.md) and in the target's precision. Raises DecError for a folder of no known layout, for tensors that are
    missing, misshapen, unexpected or not finite, and for a head of another target."""
    folder, module = _part(path, target, "features")
    return features_model(module, target, folder.name)


def holds_heads(path: str | Path) -> bool:
    """Whether a folder holds a target and Medusa heads for it, as Medusa v1.0 does."""
    try:
        config = settings(Path(path).expanduser() / "config.json")
    except DecError:  # said when the model is read
        return False
    return "medusa_num_heads" in config and "num_hidden_layers" in config


def features_model(module: Any, target: HFCausal, name: str) -> HFFeatures | HFRooted:
    """The model of a module that reads `target`'s features."""
    from decgraph.runtime.models.heads.rooted import Rooted
    from decgraph.runtime.models.hf_heads import HFFeatures
    from decgraph.runtime.models.hf_rooted import HFRooted

    return (HFRooted if isinstance(module, Rooted) else HFFeatures)(module, target, name)


def load_adapter(path: str | Path, target: HFCausal) -> HFAdapter:
    """A Kangaroo adapter for `target`, to be used as `derive` says. Raises DecError as `load_features` does."""
    from decgraph.runtime.models.hf_heads import HFAdapter

    folder, module = _part(path, target, "layers")
    return HFAdapter(module, target, folder.name)


def load_reading(source: Any, target: HFCausal, gives: str, name: str = "") -> HFReading:
    """A head with one value after every token (`head(target) -> prob`), in its target's precision: of a module, or of a folder.
    Raises DecError as `load_features` does."""
    from decgraph.runtime.models.hf_reading import reading_model

    if not isinstance(source, str | Path):
        return reading_model(source, target, gives, name)
    folder, module = _part(source, target, "head")
    return reading_model(module, target, gives, name or folder.name)


def _folder(
    path: str | Path, kind: str, ending: str | tuple[str, ...], merged: str | None = None
) -> tuple[Path, dict[str, Any]]:
    """The folder and its configuration, checked as far as that goes without torch. merged: a key of configurations whose class
    may have any name."""
    folder, config = configuration(path)
    names = config.get("architectures") or []
    if not (names or config.get("model_type")):
        raise DecError(f"{folder} is not a {kind} model: its config.json names no architecture",
                       hint='"architectures": ["LlamaForCausalLM"] in config.json, or the name of another class')  # fmt: skip
    if names and not any(name.endswith(ending) for name in names) and (merged is None or merged not in config):
        raise DecError(f"{folder} is not a {kind} model but a {', '.join(names)}")
    check_weights(folder)
    return folder, config


def attending(folder: Path, loader: str, placed: Placement | None) -> Any:
    """The library's model, with the attention that `Net` needs."""
    import transformers

    from decgraph.runtime.models.hf_net import ATTENTION

    return pretrained(getattr(transformers, loader), folder, ATTENTION, placed)


def pretrained(auto: Any, folder: Path, attention: str | None, placed: Placement | None) -> Any:
    """The library's model in a folder, read in its dtype and moved to its device. Raises DecError where that fails, and for
    tensors that are missing: the library leaves them random."""
    from transformers.utils import logging

    configuration(folder)
    check_weights(folder)
    placed = (placed or Placement()).found()
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        dtype = placed.precision(own_dtype(folder))
        made, told = auto.from_pretrained(
            folder,
            dtype=dtype,
            attn_implementation=attention,
            local_files_only=True,
            trust_remote_code=False,  # left out, a terminal is asked
            ignore_mismatched_sizes=True,  # refused below, by name
            output_loading_info=True,
        )
        _check_loaded(folder, type(made).__name__, told)
        return made if placed.device == "cpu" else made.to(placed.device)
    except DecError:
        raise
    except Exception as error:
        # unknown architecture, settings that no class takes: the library raises what it likes
        first, _, _ = str(error).partition("\n\n")
        said = f"{type(error).__name__}: {first}"
        if "trust_remote_code" in said:
            said = "its class is code in the folder (auto_map in config.json), which is never run"
        raise DecError(f"{folder} could not be loaded: {said}", hint=_instead(folder, error)) from error
    finally:
        if shown:
            logging.enable_progress_bar()


def _check_loaded(folder: Path, kind: str, told: dict[str, Any]) -> None:
    """Raises DecError for tensors that transformers found missing or of another shape: it leaves them random."""
    wrong = {f"has another shape for {name}: {tuple(found)} and not {tuple(wanted)}"
             for name, found, wanted in told["mismatched_keys"]}  # fmt: skip
    for what in (sorted(f"lacks {name}" for name in told["missing_keys"]), sorted(wrong)):
        if what:
            rest = f" and {len(what) - 1} more" if len(what) > 1 else ""
            raise DecError(f"{folder} could not be loaded as a {kind}: it {what[0]}{rest}",
                           hint="save the whole model again, or correct its config.json")  # fmt: skip


def _instead(folder: Path, error: Exception) -> str:
    """What to try where transformers does not load a folder."""
    if sys.flags.optimize > 1:
        return "python without -OO: transformers does not work without docstrings"
    if "auto_map" in settings(folder / "config.json"):
        return "load it in Python, with trust_remote_code=True if you trust it, and give the module"
    return "a newer version of transformers may know it" if isinstance(error, ValueError | KeyError) else ""


def own_dtype(folder: Path) -> torch.dtype:
    """The dtype of a folder's weights: what its configuration says, as transformers has it; else that of most numbers."""
    import torch
    from safetensors import safe_open

    config = settings(folder / "config.json")
    for part in (config, config.get("text_config") or {}):
        found = getattr(torch, str(part.get("dtype") or part.get("torch_dtype")), None)
        if isinstance(found, torch.dtype) and found.is_floating_point:
            return found
    sizes: Counter[torch.dtype] = Counter()
    for file in folder.glob("*.safetensors"):
        with safe_open(file, framework="pt") as handle:
            for part in map(handle.get_slice, handle.keys()):
                if part.get_dtype() in STORED:
                    sizes[getattr(torch, STORED[part.get_dtype()])] += math.prod(part.get_shape())
    return sizes.most_common(1)[0][0] if sizes else torch.float32


STORED = {"F64": "float64", "F32": "float32", "BF16": "bfloat16", "F16": "float16"}
"""torch's names of safetensors' kinds of floating-point numbers."""


def _part(path: str | Path, target: HFCausal, part: Part) -> tuple[Path, Any]:
    """A head in its target's precision, checked against it."""
    from decgraph.runtime.models.heads import load
    from decgraph.runtime.models.hf_causal import HFCausal
    from decgraph.runtime.models.hf_heads import check_width

    folder = Path(path).expanduser().resolve()
    if not isinstance(target, HFCausal):
        reason = getattr(target, "unreached", None) or DecError("it is not a transformers model")
        raise unreached(target.name, f"{folder.name} reads hidden states and", reason)
    head = load.read(folder)
    load.expect(head, folder, part)
    embedding = target.token_embeddings()
    config = dict(target.net.config)
    module = load.module(head, folder, embedding.dtype, config).to(embedding.device)
    if part not in ("features", "head"):
        check_width(module, target, folder.name)
    if has_tokenizer(folder):
        own = Model()
        own.name, own.vocab = folder.name, _vocab(folder, {"vocab_size": target.vocab.size})
        check_vocab(target, own)
    return folder, module


def _vocab(folder: Path, config: dict[str, Any]) -> Vocab:
    """The vocabulary: the tokenizer's, named by a digest of its entries, or else the model's ids.

    An output matrix is often padded; rows past the tokenizer's size are not tokens.
    """
    size = int(config.get("vocab_size") or 0)
    if not has_tokenizer(folder):
        return Vocab("ids", size)
    tokenizer = Tokenizer(folder)
    return Vocab(tokenizer.digest, min(size, tokenizer.size) if size else tokenizer.size)


def _context(config: dict[str, Any]) -> int | None:
    limit = config.get("max_position_embeddings")
    return None if limit is None else int(limit)
