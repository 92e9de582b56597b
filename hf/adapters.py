"""PEFT's wrapper of a module: which module is meant by it, and soft prompts."""

from __future__ import annotations

from typing import Any

from decgraph.errors import DecError
from decgraph.runtime.models.derivations import unreached
from decgraph.runtime.models.interface import Vocab
from decgraph.runtime.models.masked_settings import MaskedSettings

Module = Any  # a torch module; torch loads when it is used


def is_peft(module: object) -> bool:
    """Whether a module is a PeftModel, told without importing peft."""
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


def has_soft_prompt(module: Any) -> bool:  # Any: a PeftModel
    """Whether its adapter in use is a soft prompt; `disable_adapter` puts the inner model's `forward` there meanwhile."""
    forward = vars(module).get("forward")
    return module.active_peft_config.is_prompt_learning and getattr(forward, "__self__", module) is module


def soft_prompted_model(module: Module, name: str, vocab: Vocab, form: str | MaskedSettings) -> Any:
    """The model of a PeftModel whose adapter is a soft prompt. Raises DecError for forms that cannot have one."""
    from decgraph.runtime.models.hf_soft_prompts import soft_prompted
    from decgraph.runtime.models.shadow import shadow

    made = soft_prompted(shadow(module), name=name, vocab=vocab)
    made.unreached = DecError("it reads a soft prompt before every text")
    if form == "layers" or isinstance(form, MaskedSettings):
        raise unreached(name, "the algorithm", made.unreached)
    return made
