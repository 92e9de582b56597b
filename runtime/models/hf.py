"""Loading Hugging Face models from folders. Importing this loads no torch; the load functions do.

Weights are safetensors, read in the dtype and moved to the device of a `Placement`; no code from a model's folder is run.
"""

from __future__ import annotations

import logging
import sys
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, cast

from decgraph.errors import DecError
from decgraph.runtime.models.config import mapping, whole
from decgraph.runtime.models.decoder.compared import Different, refuse_different
from decgraph.runtime.models.decoder.families import STATES, WITHOUT
from decgraph.runtime.models.decoder.shape import UnknownToDecoder
from decgraph.runtime.models.folders import GGUF, Folder, adapted_from, context_of, read
from decgraph.runtime.models.forwards import ForwardChoice, note
from decgraph.runtime.models.interface import Model, Vocab, check_vocab, unreached
from decgraph.runtime.placement import AUTO, BLOCKS, Placement
from decgraph.runtime.text import has_tokenizer, vocabulary

if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedModel
    from transformers.models.auto.auto_factory import _BaseAutoModelClass

    from decgraph.runtime.models.decoder.folder import FolderSource
    from decgraph.runtime.models.decoder.net import Net
    from decgraph.runtime.models.gguf.file import GgufFile
    from decgraph.runtime.models.heads.layout import Beside, Part
    from decgraph.runtime.models.hf_causal import HFCausal
    from decgraph.runtime.models.hf_heads import HFAdapter, HFFeatures, HFHeads, HFReading
    from decgraph.runtime.models.hf_live import LiveModel


_LOG = logging.getLogger("decgraph.engine")


def load_causal(path: str | Path, *, placed: Placement | None = None) -> HFCausal | LiveModel:
    """A causal language model of a folder or a GGUF file. placed: its device and dtype; None: `auto` for both.

    The decoder runs it where it has an entry for the family. Else transformers' module does, by layers; and where its layers do
    not hand on what `HFCausal` needs, as a `LiveModel`: that is evaluated and decoded with like any other, and has no exits,
    heads or memories.

    Raises DecError if the folder, its configuration or its architecture cannot be used, and for a device that is not there.
    """
    placed = (placed or Placement()).resolved()
    if Path(path).suffix == GGUF:
        return _of_file(Path(path).expanduser().resolve(), placed)
    if (base := adapted_from(Path(path).expanduser())) is not None:
        return _adapted(Path(path).expanduser().resolve(), base, placed)
    folder = read(path, "causal")
    if folder.composed:
        if placed.dtype in BLOCKS:
            raise _no_blocks(folder.path, placed, "it is a model of images and text")
        text = {**folder.config, **mapping(folder.config, "text_config")}
        vocab = vocabulary(folder.path, whole(text, "vocab_size", 0))
        if (WITHOUT.get(str(text["model_type"])) == STATES or text["model_type"] == "gemma4_text") and (
            made := _text_half(folder, vocab, placed)
        ) is not None:
            return made
        return _live(folder, vocab, DecError("it has no text model"), placed, "AutoModelForImageTextToText")
    vocab = vocabulary(folder.path, folder.size)
    net = decoder_net(folder, placed)
    if isinstance(net, Exception):
        import transformers

        from decgraph.runtime.models.decoder.make import net_of_module

        differs = net if isinstance(net, Different) else None
        try:
            module = pretrained(transformers.AutoModelForCausalLM, folder, None, placed)
            net = net_of_module(module, folder.name, entry=differs is None)
        except DecError as refused:
            return _live(folder, vocab, refused, placed)
        if differs is not None:
            assert net.base is not None, "it is made of a module"
            note(net.base, ForwardChoice("module", reason=str(differs)))
    from decgraph.runtime.models.hf_causal import HFCausal

    return HFCausal(net, name=folder.name, vocab=vocab, context=folder.context, family=str(folder.path))


def _text_half(folder: Folder, vocab: Vocab, placed: Placement) -> HFCausal | None:
    """The text model of a folder of images and text (Qwen3.5, Gemma 4), by its layers, where transformers has a class of it
    alone."""
    import torch
    import transformers

    from decgraph.runtime.models.decoder.make import net_of_module
    from decgraph.runtime.models.hf_causal import HFCausal

    try:
        module = pretrained(transformers.AutoModelForCausalLM, folder, None, placed)
        if (inner := getattr(module.base_model, "language_model", None)) is not None:
            text, output = inner.config, module.get_output_embeddings()
            with torch.device("meta"):
                module = transformers.AutoModelForCausalLM.from_config(text, trust_remote_code=False)
            module.model, module.lm_head = inner, output
        net = net_of_module(module, folder.name)
    except DecError as refused:
        _LOG.info("%s runs with its images' layers: %s", folder.name, refused)
        return None
    context = context_of(net.config)
    return HFCausal(net, name=folder.name, vocab=vocab, context=context, family=str(folder.path))


def _adapted(at: Path, base: Path, placed: Placement) -> HFCausal:
    """The model of an adapter alone: that of its base's folder, with its additions. Raises DecError for a base that the decoder
    does not run, and for an adapter of another kind or of another model."""
    from decgraph.runtime.models.decoder.adapted import MERGE, Adapted
    from decgraph.runtime.models.decoder.folder import net_of_folder
    from decgraph.runtime.models.hf_causal import HFCausal

    folder = read(base, "causal")
    vocab = vocabulary(folder.path, folder.size)
    dtype, device = placed.precision(folder.dtype), placed.device
    source = Adapted(folder.path, at, dtype, device)
    try:
        refuse_different(folder.config)
        net = net_of_folder(folder.path, folder.config, dtype, device, source)
    except UnknownToDecoder as unknown:
        why = f"{at} adds to {folder.path}, which runs as transformers' own module: {unknown}"
        raise DecError(why, hint=MERGE) from None
    source.check_used()
    net = placed_net(net, at, placed)
    return HFCausal(net, name=at.name, vocab=vocab, context=folder.context, family=str(at))


def _of_file(path: Path, placed: Placement) -> HFCausal:
    """The model of a GGUF file. With dtype float32 the states that its blocks are multiplied with are float32 too."""
    from decgraph.runtime.models.decoder.gguf import net_of_file, own_dtype
    from decgraph.runtime.models.gguf import file as gguf
    from decgraph.runtime.models.gguf.settings import config_of
    from decgraph.runtime.models.hf_causal import HFCausal
    from decgraph.runtime.native.products import Activations

    file = gguf.read(path)
    refuse_blocks(file, placed)
    config = config_of(file)
    vocab = vocabulary(path, whole(config, "vocab_size", 0))
    activations: Activations = "int16" if placed.dtype == AUTO else "float32"
    net = net_of_file(file, config, placed.precision(own_dtype(file)), placed.device, activations)
    net = placed_net(net, path, placed)
    return HFCausal(net, name=path.stem, vocab=vocab, context=context_of(config), family=str(path))


def refuse_blocks(file: GgufFile, placed: Placement) -> None:
    """Raises DecError for a file of blocks on a device, where nobody asked for numbers by a dtype: only a CPU multiplies
    blocks."""
    if placed.device == "cpu" or placed.dtype != AUTO or file.form in ("", "F32", "F16", "BF16"):
        return
    stored, numbers = (sum(sizes) / 1e9 for sizes in zip(*((t.size, 2 * prod(t.shape)) for t in file.tensors.values())))
    raise DecError(
        f"{file.path} holds blocks of {file.form} ({stored:.3g} GB), which decgraph multiplies on a CPU; on {placed.device} "
        f"they would be numbers ({numbers:.3g} GB in 16 bits)",
        hint="dtype bfloat16 if that is what you want; device cpu; or a folder in FP8",
    )


def decoder_net(folder: Folder, placed: Placement) -> Net | UnknownToDecoder:
    """The decoder's net of a folder; or the reason that transformers' module has to run, which is also logged. Raises DecError
    where weights in blocks are asked for and the decoder does not run the folder."""
    from decgraph.runtime.models.decoder.folder import net_of_folder

    try:
        refuse_different(folder.config)
        of = folder.path, folder.config, placed.precision(folder.dtype), placed.device
        made = net_of_folder(*of, _quantised(*of) if folder.config.get("quantization_config") else None)
        return placed_net(made, folder.path, placed)
    except UnknownToDecoder as unknown:
        if placed.dtype in BLOCKS:
            raise _no_blocks(folder.path, placed, str(unknown)) from None
        _LOG.info("%s runs as transformers' own module: %s", folder.name, unknown)
        return unknown


def _quantised(*of: Any) -> FolderSource:
    """The source of a folder with quantised weights, see `net_of_folder`. Raises UnknownToDecoder."""
    from decgraph.runtime.models.decoder.scaled import ScaledSource

    return ScaledSource(*of)


def placed_net(net: Net, path: Path, placed: Placement) -> Net:
    """The net with its matrices in blocks, where a placement asks for them. Raises DecError for a module of transformers."""
    if placed.dtype not in BLOCKS:
        return net
    if hasattr(net.decoder, "whole"):
        raise _no_blocks(path, placed, "the decoder has no entry for it")
    return net.in_blocks(placed.dtype)


def _no_blocks(path: Path, placed: Placement, why: str) -> DecError:
    return DecError(f"{path} has no weights in {placed.dtype}: transformers' own module runs it ({why})", hint="dtype float32")


def _live(
    folder: Folder, vocab: Vocab, refused: DecError, placed: Placement, loader: str = "AutoModelForCausalLM"
) -> LiveModel:
    """The model as transformers runs it. Raises DecError, from `refused`, where the engine cannot run it either."""
    import transformers

    from decgraph.runtime.models.engine.of import engine_of
    from decgraph.runtime.models.hf_live import from_module

    # Some versions' default attention leaves out soft caps.
    capped = folder.config.get("attn_logit_softcapping")
    module = pretrained(getattr(transformers, loader), folder, "eager" if capped else None, placed)
    model = from_module(module.requires_grad_(False), name=folder.name, vocab=vocab)
    model.family = str(folder.path)
    model.unreached = refused
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


def load_features(path: str | Path, target: HFCausal) -> HFFeatures:
    """A head that reads `target`'s features, as EAGLE's, Hydra's and DFlash's do, of any layout that decgraph knows
    (docs/heads.md) and in the target's precision. Raises DecError for a folder of no known layout, for tensors that are
    missing, misshapen, unexpected or not finite, and for a head of another target."""
    from decgraph.runtime.models.hf_heads import HFFeatures

    folder, module = _part(path, target, "features")
    return HFFeatures(module, target, folder.name)


def load_correction(path: str | Path, head: HFFeatures) -> HFFeatures:
    """What a head's folder has to correct its scores with: DSpark's Markov head, DFlash 2's selector, Domino's network. Raises
    DecError as `load_features` does."""
    from decgraph.runtime.models.hf_heads import HFFeatures

    folder, module = _part(path, head, "features", "features")
    return HFFeatures(module, head.target, folder.name, head)


def load_part(
    kind: str, path: str | Path, target: HFCausal, gives: str = "", name: str = "", head: HFFeatures | None = None
) -> Model:
    """A head or an adapter in a folder, by its kind ("features", "layers", "head"). head: one of the same folder, which this
    part corrects. Raises DecError as `load_features` does."""
    if kind == "head":
        return load_reading(path, target, gives, name)
    if head is not None:
        return load_correction(path, head)
    return load_features(path, target) if kind == "features" else load_adapter(path, target)


def load_adapter(path: str | Path, target: HFCausal) -> HFAdapter:
    """A Kangaroo adapter for `target`, to be used as `derive` says. Raises DecError as `load_features` does."""
    from decgraph.runtime.models.hf_heads import HFAdapter

    folder, module = _part(path, target, "layers")
    return HFAdapter(module, target, folder.name)


def load_reading(path: str | Path, target: HFCausal, gives: str, name: str = "") -> HFReading:
    """A head with one value after every token (`head(target) -> prob`) in a folder, in its target's precision. Raises DecError
    as `load_features` does."""
    from decgraph.runtime.models.hf_heads import reading_model

    folder, module = _part(path, target, "head", "dist" if gives == "dist" else "prob")
    return reading_model(module, target, gives, name or folder.name)


def pretrained(auto: type[_BaseAutoModelClass], folder: Folder, attention: str | None, placed: Placement) -> PreTrainedModel:
    """The library's model in a folder, read in a dtype and moved to a device that was found. Raises DecError where that fails,
    and for tensors that are missing: the library leaves them random."""
    from decgraph.runtime.models.quiet import quiet

    quantised = bool(folder.config.get("quantization_config"))
    try:
        with quiet():
            made, loading = _class(auto, folder).from_pretrained(
                folder.path,
                dtype=placed.precision(folder.dtype),
                attn_implementation=attention,
                local_files_only=True,
                trust_remote_code=False,  # left out, a terminal is asked
                ignore_mismatched_sizes=True,  # refused below, by name
                output_loading_info=True,
                **({"device_map": placed.device} if quantised and placed.device != "cpu" else {}),  # many load nowhere else
            )
        _check_loaded(folder.path, type(made).__name__, loading)
        if quantised:
            check_quantised(folder, made, placed)
            return made
        return made if placed.device == "cpu" else made.to(placed.device)
    except DecError:
        raise
    except Exception as error:
        # unknown architecture, settings that no class takes: the library raises what it likes
        first, _, _ = str(error).partition("\n\n")
        said = f"{type(error).__name__}: {first}"
        if "trust_remote_code" in said:
            said = "its class is code in the folder (auto_map in config.json), which is never run"
        raise DecError(f"{folder.path} could not be loaded: {said}", hint=_instead(folder, error)) from error


def check_quantised(folder: Folder, module: PreTrainedModel, placed: Placement) -> None:
    """Raises DecError where a folder's weights are quantised, transformers made numbers of them for a device, and nobody asked
    for these by a dtype: it does so where a library or a device is missing, and says that in a log."""
    import torch
    from torch.utils._python_dispatch import is_traceable_wrapper_subclass

    def size(t: torch.Tensor) -> int:
        if not is_traceable_wrapper_subclass(t):
            return t.nbytes
        return sum(size(part) for name in t.__tensor_flatten__()[0] if isinstance(part := getattr(t, name), torch.Tensor))

    stored = sum(file.stat().st_size for file in folder.path.glob("*.safetensors"))
    taken = sum(size(t) for t in {id(t): t for t in (*module.parameters(), *module.buffers())}.values())
    if placed.device == "cpu" or placed.dtype != AUTO or taken <= 1.25 * stored:
        return
    method = mapping(folder.config, "quantization_config").get("quant_method")
    raise DecError(
        f"{folder.path} has quantised weights ({method}, {stored / 1e9:.3g} GB), of which transformers made numbers for "
        f"{placed.device} ({taken / 1e9:.3g} GB)",
        hint=f"dtype {folder.dtype} if that is what you want; or what {method} needs of transformers to stay as it is",
    )


def _class(auto: type[_BaseAutoModelClass], folder: Folder) -> type[_BaseAutoModelClass | PreTrainedModel]:
    """What loads a folder: the class that its config.json names, where transformers has it and its automatic class does not
    know the config (BertGenerationDecoder, the text halves of Emu3 and Mistral 4)."""
    import transformers

    config = transformers.AutoConfig.from_pretrained(folder.path, local_files_only=True, trust_remote_code=False)
    named = getattr(transformers, folder.named, None)
    known = type(config) in auto._model_mapping or named is None or not hasattr(named, "from_pretrained")
    return auto if known else cast("type[PreTrainedModel]", named)


class _Loaded(TypedDict):
    """Transformers' report of tensors that are missing or have another shape than the class."""

    mismatched_keys: set[tuple[str, tuple[int, ...], tuple[int, ...]]]
    missing_keys: set[str]


def _check_loaded(folder: Path, kind: str, loading: _Loaded) -> None:
    """Raises DecError for tensors that transformers found missing or of another shape: it leaves them random."""
    wrong = {f"has another shape for {name}: {tuple(found)} and not {tuple(wanted)}"
             for name, found, wanted in loading["mismatched_keys"]}  # fmt: skip
    for what in (sorted(f"lacks {name}" for name in loading["missing_keys"]), sorted(wrong)):
        if what:
            rest = f" and {len(what) - 1} more" if len(what) > 1 else ""
            raise DecError(f"{folder} could not be loaded as a {kind}: it {what[0]}{rest}",
                           hint="save the whole model again, or correct its config.json")  # fmt: skip


def _instead(folder: Folder, error: Exception) -> str:
    """A hint for a folder that transformers does not load."""
    if sys.flags.optimize > 1:
        return "python without -OO: transformers does not work without docstrings"
    if "auto_map" in folder.config:
        return "load it in Python, with trust_remote_code=True if you trust it, and give the module"
    if "ValidationError" in type(error).__name__:
        return "correct its config.json"
    return "a newer version of transformers may know it" if isinstance(error, ValueError | KeyError) else ""


def _part(path: str | Path, of: Model, part: Part, beside: Beside | None = None) -> tuple[Path, nn.Module]:
    """A head in its target's precision, checked against it. beside: which part it is of the folder of a head."""
    from decgraph.runtime.models.heads import load
    from decgraph.runtime.models.hf_causal import HFCausal
    from decgraph.runtime.models.hf_heads import check_width
    from decgraph.runtime.models.hf_masked import HFMasked

    folder = Path(path).expanduser().resolve()
    target = of.target_or_self()  # what reads a head's states goes by that head's target
    if isinstance(target, HFMasked) and part == "head":
        embedding, config = target.embedding, dict[str, object]()
    elif isinstance(target, HFCausal):
        embedding, config = target.token_embeddings(), dict(target.net.config)
    else:
        reason = target.unreached or DecError("it is not a transformers model")
        raise unreached(target.name, f"{folder.name} reads hidden states and", reason)
    head = load.read(folder, beside)
    load.expect(head, folder, part)
    module = load.module(head, folder, embedding.dtype, config).to(embedding.device)
    if isinstance(target, HFCausal) and part not in ("features", "head"):
        check_width(module, target, folder.name)
    if has_tokenizer(folder):
        own = Model()
        own.name, own.vocab = folder.name, vocabulary(folder, target.vocab.size)
        check_vocab(target, own)
    return folder, module
