"""The model of a live transformers module.

Weights are shared, and the module is not changed: its attention implementation, hooks, gradients and mode; for steps on CUDA
matrices of one input are laid side by side in memory (`Product.side_by_side`). The decgraph model of a module is stored on the
module and created again when the module has changed (watch.py). Importing this loads no torch.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeGuard

from decgraph.errors import DecError
from decgraph.ir.memo import memo_of
from decgraph.runtime.models.interface import Model, Vocab, unreached
from decgraph.runtime.models.masked_settings import MaskedSettings, refuse_masked
from decgraph.runtime.models.sharing import making

if TYPE_CHECKING:
    from peft import PeftModel
    from torch import nn

    from decgraph.runtime.models.hf_causal import HFCausal
    from decgraph.runtime.models.watch import Watch

Module: TypeAlias = "nn.Module"  # torch loads when it is used


def width_of(module: Module) -> int:
    """How many scores a module returns: the rows of its output matrix, or its configuration's vocabulary. Raises DecError for
    other objects."""
    config, output = getattr(module, "config", None), getattr(module, "get_output_embeddings", lambda: None)
    try:
        out = output()
    except (NotImplementedError, AttributeError):
        out = None
    rows = getattr(getattr(out, "weight", None), "shape", None)  # of a quantised matrix `weight` may be a method
    size = rows[0] if rows is not None else getattr(out, "out_features", getattr(config, "vocab_size", None))
    if config is None or size is None:
        what = type(module).__name__
        raise DecError(f"a model of transformers is needed, not {what}", hint="AutoModelForCausalLM.from_pretrained(...)")
    return int(size)


@dataclass
class _Live:
    """The models of a live module, by kind, vocabulary and form, and the state of the module when they were made."""

    watch: Watch | None = None
    models: dict[Hashable, Model] = field(default_factory=dict)


def _kept(module: Module) -> _Live:
    return memo_of(module).once("live", _Live)


def live(module: Module, kind: str, vocab: Vocab, form: str | MaskedSettings) -> Model:
    """The decgraph model of a live module, created once for what the module is now. form: see `Binder`; of a masked model, how
    it is read. Raises DecError for weights that were created in torch.inference_mode."""
    with making:
        return _live(module, kind, vocab, form, width_of(module) if kind == "causal" else vocab.size)


def _live(module: Module, kind: str, vocab: Vocab, form: str | MaskedSettings, width: int) -> Model:
    from decgraph.runtime.models.watch import Watch, hooks_of

    asked, module = module, wrapper_of(module)
    if any(p.is_inference() for p in module.parameters()):
        raise DecError(
            f"the weights of {type(module).__name__} were created in torch.inference_mode, which other code cannot use",
            hint="load the model outside of it; generate may be called inside",
        )
    if hooks_of(module):
        raise DecError(
            f"{type(module).__name__} has forward hooks of its own, which would be called with the scores of all drafts",
            hint="remove them, or register them on the parts that they are for",
        )
    if kind == "causal" and width_of(module) != width:
        raise DecError(
            f"{type(module).__name__} had {width} token ids when it was bound, and has {width_of(module)} now",
            hint="make the session again",
        )
    kept = _kept(module)
    if kept.watch is not None and not kept.watch.same():
        kept.watch, kept.models = None, {}
    key = (kind, vocab, form, asked is module)
    if key not in kept.models:
        kept.models[key] = _made(module, kind, vocab, form)
        kept.models[key].renew = partial(_live, asked, kind, vocab, form, width)
    kept.watch = kept.watch or Watch(module)
    kept.models[key].eos = _ends(module)
    kept.models[key].generation = _generation(module)
    return kept.models[key]


def _ends(module: Module) -> frozenset[int]:
    """The tokens that end a text: as in `generate`, those of the module's generation settings, or of its configuration where it
    has no such settings."""
    settings = getattr(module, "generation_config", None)
    found = getattr(settings if settings is not None else getattr(module, "config", None), "eos_token_id", None)
    return frozenset(found if isinstance(found, list | tuple) else [] if found is None else [found])


def _generation(module: Module) -> dict[str, object]:
    """A module's generation settings, as a folder's file has them."""
    found = getattr(module, "generation_config", None)
    return {} if found is None or not hasattr(found, "to_dict") else dict(found.to_dict())


def _made(module: Module, kind: str, vocab: Vocab, form: str | MaskedSettings) -> Model:
    name = Path(str(getattr(getattr(module, "config", None), "name_or_path", "") or "")).name or type(module).__name__
    from decgraph.runtime.models.watch import shadow

    if any(hasattr(p, "device_mesh") for p in module.parameters()):  # DTensors
        raise DecError(
            f"{name} is cut over ranks (tensor parallelism)", hint="load it without tp_plan; engines decode on many GPUs"
        )
    if is_peft(module):
        if has_soft_prompt(module):
            return soft_prompted_model(module, name, vocab, form)
        module = module.get_base_model()
    if isinstance(form, MaskedSettings):
        from decgraph.runtime.models.masked_load import masked_of

        with _grads_kept(module):
            return masked_of(shadow(module), name, vocab, form, lambda _: shadow(module))
    refuse_masked(type(module).__name__, name)
    refused = None
    if form != "as it is":
        try:
            return _by_layers(module, name, vocab)
        except DecError as error:
            refused = error
    from decgraph.runtime.models.hf_live import from_module

    made = from_module(shadow(module), name=name, vocab=vocab)
    made.unreached = refused
    if form == "layers" and refused is not None:
        raise unreached(name, "the algorithm", refused)
    return made


@contextmanager
def _grads_kept(module: Module) -> Iterator[None]:
    """A model that shares a module's parameters needs no gradients of them; the module keeps its own choice."""
    grads = [(p, p.requires_grad) for p in module.parameters()]
    try:
        yield
    finally:
        for p, grad in grads:
            p.requires_grad_(grad)


def _by_layers(module: Module, name: str, vocab: Vocab) -> Model:
    from decgraph.runtime.models.decoder.make import net_of_module
    from decgraph.runtime.models.hf_causal import HFCausal
    from decgraph.runtime.models.hf_live import context_in
    from decgraph.runtime.models.watch import shadow

    if getattr(module.config, "is_encoder_decoder", False):
        raise DecError(f"{type(module).__name__} is an encoder-decoder model; decgraph decodes decoder-only and masked models")
    family, net = f"{name}#{id(module)}", net_of_module(shadow(module))
    return HFCausal(net, name=name, vocab=vocab, context=context_in(module.config), family=family)


def heads_of(module: Module, target: HFCausal) -> Model:
    """Medusa heads of a module, for a target. Raises DecError for those of another one."""
    from decgraph.runtime.models.hf_heads import HFHeads, check_width

    check_width(module, target, "heads")
    return HFHeads(_as_target(module, target), target, "heads")


def part_of(kind: str, name: str, module: Module, target: HFCausal, gives: str) -> Model:
    """A head or an adapter of a module, for a target: see `binding.part`. Raises DecError for one of another target."""
    from decgraph.runtime.models.hf_heads import HFAdapter, HFFeatures, check_width, reading_model

    if kind == "head":
        return reading_model(_as_target(module, target), target, gives, name)
    check_width(module, target, name)
    own = _as_target(module, target)
    return (HFFeatures if kind == "features" else HFAdapter)(own, target, name)


def _as_target(part: Module, target: HFCausal) -> Module:
    """A head in its target's precision and on its device: around its own weights, or a copy of them where it has others."""
    from decgraph.runtime.models.hf_causal import HFCausal
    from decgraph.runtime.models.hf_masked import HFMasked
    from decgraph.runtime.models.watch import shadow

    whole = target.target_or_self()  # of a head its target
    assert isinstance(whole, HFCausal | HFMasked)
    like = whole.embedding if isinstance(whole, HFMasked) else whole.token_embeddings()
    if all((p.dtype, p.device) == (like.dtype, like.device) for p in part.parameters()):
        return shadow(part)
    made = copy.deepcopy(part).eval().to(like.device)
    for p in made.parameters():  # the frequencies of rotary positions are buffers and stay in float32
        p.data = p.data.to(like.dtype)
    return made


def is_peft(module: object) -> TypeGuard[PeftModel]:
    """Whether a module is a PeftModel. This does not import peft."""
    return any(c.__module__.startswith("peft.peft_model") and c.__name__ == "PeftModel" for c in type(module).__mro__)


def wrapper_of(module: Module) -> Module:
    """The PeftModel whose `generate` is calling that of the module inside it, where its adapter is a soft prompt; else the
    module. Raises DecError where other code than the module's class prepares its inputs for `generate`."""
    found = vars(module).get("prepare_inputs_for_generation")
    owner = getattr(found, "__self__", None)
    if (
        is_peft(module)
        or found is None
        or (owner is module and found.__func__ is getattr(type(module), "prepare_inputs_for_generation", None))
    ):
        return module
    if not is_peft(owner):
        raise DecError(
            f"{type(module).__name__} has a prepare_inputs_for_generation of its own, which decgraph does not call",
            hint="remove it, or call generate without custom_generate",
        )
    return owner if has_soft_prompt(owner) else module


def has_soft_prompt(module: PeftModel) -> bool:
    """Whether its adapter in use is a soft prompt; `disable_adapter` puts the inner model's `forward` there meanwhile."""
    forward = vars(module).get("forward")
    return module.active_peft_config.is_prompt_learning and getattr(forward, "__self__", module) is module


def soft_prompted_model(module: PeftModel, name: str, vocab: Vocab, form: str | MaskedSettings) -> Model:
    """The model of a PeftModel whose adapter is a soft prompt. Raises DecError for forms that cannot have one."""
    from decgraph.runtime.models.hf_soft_prompts import soft_prompted
    from decgraph.runtime.models.watch import shadow

    made = soft_prompted(shadow(module), name=name, vocab=vocab)
    made.unreached = DecError("it reads a soft prompt before every text")
    if form == "layers" or isinstance(form, MaskedSettings):
        raise unreached(name, "the algorithm", made.unreached)
    return made
