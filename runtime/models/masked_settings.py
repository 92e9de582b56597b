"""How a masked model is read: its mask token, whether its scores are shifted, and who attends to whom.

What the caller says comes first, then what the model's configuration says, then what is published of its class. A class of
causal models says nothing of a shift, and both kinds of weights come in such classes (LLaDA's without, Dream's with one), so
there is no default for those: it has to be set.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace

from decgraph.errors import DecError
from decgraph.runtime.models.config import whole
from decgraph.runtime.models.interface import Visibility

_BLOCKS = ("block", "prompt+block", "window")
LEGAL = "full, causal, block:32, prompt+block:32 or window:4"


@dataclass(frozen=True)
class MaskedSettings:
    """A caller's settings of a masked model; None: left to its configuration.

    mask_token: the mask's id or its text. shift: whether the scores of position i are read from the output at i - 1 (Dream,
    Fast-dLLM v2). visibility: see `interface.sees`; as a text, `block:32`.
    """

    mask_token: int | str | None = None
    shift: bool | None = None
    visibility: Visibility | None = None

    @staticmethod
    def of(**settings: object) -> MaskedSettings:
        """Settings from Python values or from the texts of a command line. Raises DecError for others."""
        token, shift, seen = (settings.get(f.name) for f in fields(MaskedSettings))
        if isinstance(token, str) and token.lstrip("-").isdigit():
            token = int(token)
        if token is not None and (isinstance(token, bool) or not isinstance(token, int | str)):
            raise DecError(f"mask_token is {token!r}", hint="give the mask's id or its text: mask_token=126336")
        return MaskedSettings(token, None if shift is None else _flag(shift), None if seen is None else visibility_of(seen))

    def over(self, other: MaskedSettings) -> MaskedSettings:
        """These settings, with `other`'s where they say nothing."""
        mine = {f.name: getattr(self, f.name) for f in fields(self)}
        return replace(other, **{name: value for name, value in mine.items() if value is not None})

    @staticmethod
    def among(settings: Mapping[str, object], name: str) -> MaskedSettings:
        """The settings of the model `name` among what a caller names: `model.shift`, `model.mask_token`, `model.visibility`."""
        return MaskedSettings.of(**{key: settings[f"{name}.{key}"] for key in NAMES if f"{name}.{key}" in settings})


def model_of(name: str) -> tuple[str, str]:
    """("model", "shift") of `model.shift`: a model's name, and which setting of it is meant; ("model", "") of `model`."""
    model, _, setting = name.rpartition(".")
    return (model, setting) if setting in NAMES else (name, "")


NAMES = tuple(f.name for f in fields(MaskedSettings))
"""The settings by name, as arguments and as `--model model.shift=true`."""


@dataclass(frozen=True)
class ResolvedSettings:
    """The settings of a model, each with a value."""

    mask: int
    shift: bool
    visibility: Visibility


PUBLISHED: dict[str, MaskedSettings] = {
    "LLaDAModelLM": MaskedSettings(126336, False, "full"),  # Nie et al., LLaDA, 2025
    "LLaDAMoEModelLM": MaskedSettings(156895, False, "full"),
    "DreamModel": MaskedSettings(151666, True, "full"),  # Ye et al., Dream, 2025
    "Fast_dLLM_QwenForCausalLM": MaskedSettings(151665, True, ("block", 32)),  # Wu et al., Fast-dLLM v2, 2025
    "SDARForCausalLM": MaskedSettings(151669, False, None),  # Cheng et al., SDAR, 2025: checkpoints differ in block size
    "SDARMoeForCausalLM": MaskedSettings(151669, False, None),
    "LLaDA2MoeModelLM": MaskedSettings(156895, False, ("block", 32)),  # Bie et al., LLaDA 2.0, 2025
}
"""What is published of classes that transformers does not have, by their names."""

OTHERWISE = {
    "DiffusionGemmaForBlockDiffusion": "its canvas begins with random tokens, and each call also reads the scores of the call "
    "before (self-conditioning), so they are not functions of the canvas",
}
"""Classes of diffusion models that are no masked models, and why."""

_BLOCK_KEYS = ("bd_size", "block_size", "block_length")  # theirs: elsewhere these names mean other things


def refuse_masked(kind: str, name: str) -> None:
    """Raises DecError for a class of masked models where a causal one is wanted: it would decode, and every score would be of a
    text that it was not trained to go on with."""
    if kind in PUBLISHED or kind in OTHERWISE or kind.endswith("ForMaskedLM"):
        raise DecError(
            f"{name} is a {kind}, which fills masks, and the algorithm needs a causal model",
            hint="an algorithm for masked models: fast_dllm, llada, dream, or one of your own with `model: masked`",
        )


def said_by(name: str, config: Mapping[str, object]) -> MaskedSettings:
    """The settings that a configuration and the class `name` have."""
    published = PUBLISHED.get(name, MaskedSettings())
    keys = ("decgraph_block", *(_BLOCK_KEYS if name in PUBLISHED else ()))
    block = next((config[key] for key in keys if isinstance(config.get(key), int)), None)
    seen = config.get("decgraph_visibility") or (None if block is None else ("block", block))
    shift = config.get("decgraph_shift")
    own = MaskedSettings.of(mask_token=config.get("mask_token_id"), shift=shift, visibility=seen)
    if name.endswith("ForMaskedLM"):  # trained to predict each position where it stands, from both sides
        published = MaskedSettings(None, False, "full")
    return own.over(published)


def reading_of(
    name: str, kind: str, config: Mapping[str, object], asked: MaskedSettings, token_of: Callable[[str], int | None]
) -> ResolvedSettings:
    """The settings of a model: `name` is what messages call it, `kind` its class. token_of: the id of a special token's text,
    or None. Visibility that nobody says is "full", with a warning.

    Raises DecError, with what to set, for a mask or a shift that nobody says, and for a mask that is no token; and for a class
    that is no masked model.
    """
    if kind in OTHERWISE:
        raise DecError(f"{name} is a {kind}, which is no masked model: {OTHERWISE[kind]}", hint="decode with its own generate")
    found = asked.over(said_by(kind, config))
    token, size = found.mask_token, max(whole(config, key, 0) for key in ("vocab_size", "embedding_size"))
    if isinstance(token, str):
        known = token_of(token)
        if known is None:
            raise DecError(f"{token!r} is not a special token of {name}", hint="give the mask's id: mask_token=126336")
        token = known
    # Who attends to whom may well differ from what a class is published with; not from what the weights' own files say.
    own = replace(said_by(kind, config), visibility=said_by("", config).visibility)
    _warn_of_other(name, replace(asked, mask_token=None if asked.mask_token is None else token), own, token_of)
    if token is None:
        raise DecError(f"{name} does not say which token is the mask", hint=_hint("mask_token", "set its id or its text"))
    if token < 0 or (size and size <= token):
        raise DecError(
            f"the mask of {name} is {token}, and it has {size} tokens", hint=_hint("mask_token", "set the mask's id")
        )
    if found.shift is None:
        raise DecError(
            f"{name} is a {kind}: if it was trained to fill masks, it may predict a position at its own place or from the one "
            "before it",
            hint=_hint("shift", "set shift, false for weights like LLaDA's, true for those like Dream's and Fast-dLLM v2's"),
        )
    if found.visibility is None:
        warnings.warn(
            f"{name} does not say which positions attend to which: visibility=full is assumed; it may also be {LEGAL}",
            UserWarning,
            stacklevel=2,
        )
    return ResolvedSettings(token, found.shift, found.visibility or "full")


def _warn_of_other(name: str, asked: MaskedSettings, saved: MaskedSettings, token_of: Callable[[str], int | None]) -> None:
    """Warns of settings that a model's configuration or class contradicts: its weights were trained with its own."""
    mask = token_of(saved.mask_token) if isinstance(saved.mask_token, str) else saved.mask_token
    for key in NAMES:
        given, said = getattr(asked, key), mask if key == "mask_token" else getattr(saved, key)
        if given is not None and said is not None and given != said:
            warnings.warn(
                f"{name} says that its {key} is {_written(said)}, and it is read with {key}={_written(given)}: its weights "
                "were trained with its own",
                UserWarning,
                stacklevel=3,
            )


def _written(value: object) -> str:
    """A setting as people write it: `block:32`, `true`, 63."""
    if isinstance(value, tuple):
        return ":".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def visibility_of(value: object) -> Visibility:
    """A visibility from its text ("block:32") or its value (("block", 32)). Raises DecError for others."""
    if value in ("full", "causal"):
        return value
    kind, n = value if isinstance(value, tuple | list) and len(value) == 2 else str(value).rpartition(":")[::2]
    if kind in _BLOCKS and str(n).isdigit() and int(n) > 0:
        return kind, int(n)  # type: ignore[return-value]  # one of the kinds
    raise DecError(f"visibility is {value!r}", hint=f"it is {LEGAL}")


def _flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if str(value).lower() in ("true", "false", "1", "0", "yes", "no"):
        return str(value).lower() in ("true", "1", "yes")
    raise DecError(f"shift is {value!r}", hint="shift=true where the scores of a position are read from the one before it")


def _hint(setting: str, which: str) -> str:
    return f"{which}: decgraph.masked(MODEL, {setting}=...), or --model model.{setting}=..."
