"""The models of an algorithm from a caller's arguments: live modules, folders, names of shipped models, decgraph's own.

Weights are shared, and the module is not changed: its attention implementation, hooks, gradients and mode. The decgraph
model of a module is stored on the module and created again when the module has changed (runtime/models/watch.py).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from decgraph.errors import DecError
from decgraph.hf.adapters import has_soft_prompt, is_peft, soft_prompted_model, wrapper_of
from decgraph.ir.memo import memo_of
from decgraph.ir.values import Function
from decgraph.ir.values import Module as IR
from decgraph.ir.walk import ops_of
from decgraph.runtime.keywords import check_keywords
from decgraph.runtime.models.derivations import unreached
from decgraph.runtime.models.interface import Model, Vocab
from decgraph.runtime.models.locks import making
from decgraph.runtime.models.masked_settings import NAMES, MaskedSettings, model_of, refuse_masked
from decgraph.runtime.models.renewal import renewed
from decgraph.runtime.placement import Placement

Module = Any  # a torch module; torch loads when it is used
_STATES = {
    *("model.attention", "model.memory", "model.derive", "model.layers", "model.embed"),
    *("memory.only", "memory.quantized", "memory.merged", "memory.join"),
}
_WHOLE = ("causal", "masked")  # the kinds that a whole model has; heads and adapters are parts


@dataclass
class _Live:
    """The models of a live module, by kind, vocabulary and form, and what the module was when they were made."""

    watch: Any = None  # a `Watch`
    models: dict[Any, Any] = field(default_factory=dict)


def _kept(module: Module) -> _Live:
    return memo_of(module).once("live", _Live)


def main_parameter(function: Function) -> str:
    """The name of the parameter that the model on which generate is called is bound to: the first causal or masked one.
    Raises DecError for an algorithm without such a model."""
    for p in function.params:
        if p.value.type.elem == "model" and p.value.type.of[0] in ("causal", "masked"):
            return p.name
    raise DecError(f"{function.name} has no causal or masked model that generate could be called on")


def split(function: Function, given: Mapping[str, Any], options: Iterable[str] = ()) -> tuple[dict[str, Any], dict[str, Any]]:
    """(models, parameters) by the algorithm's own names; `heads` is short for `<main model>.heads`, and so are the settings of
    a masked model: `shift`, `mask_token`, `visibility`.

    options: what else the caller could have meant. Raises DecError for a name that is neither, with the nearest one, for the
    main model, which is the one generate is called on, and for one that is missing.
    """
    from decgraph.zoo.folders import folder_of

    main = main_parameter(function)
    wanted = [p.name for p in function.params if p.value.type.elem == "model"]
    scalars = [p.name for p in function.params if p.value.type.elem != "model"]
    settings = [name for name in given if model_of(name)[0].removesuffix(".heads") in wanted]
    takes = [*(name for name in wanted if name != main), *scalars, *settings, *options, "heads", *NAMES]
    check_keywords(f"decgraph.hf({function.name!r})", given, [*takes, main])
    models, params = {}, {}
    for name, value in given.items():
        of, setting = model_of(name)
        if name in ("heads", *NAMES) and not any(p.name == name for p in function.params):
            models[f"{main}.{name}"] = value
        elif of.removesuffix(".heads") in wanted:
            models[name] = value
            if isinstance(value, str | Path) and not setting:
                folder_of(value)  # an invalid folder is refused here, not in the first call
        else:
            params[name] = value
    if main in models:
        raise DecError(
            f"`{main}` is the model on which generate is called, so it is not given to decgraph.hf",
            hint=f"leave out {main}=...",
        )
    check_settings(function, models)
    for name in models:
        if name.endswith(".heads") and function.param(name.removesuffix(".heads")).value.type.of[3] != "causal+heads":
            raise DecError(f"{function.name} uses no heads", hint="leave heads out")
    for name in wanted:
        if name != main and name not in models:
            raise DecError(
                f"{function.name} needs the model `{name}`", hint=f"decgraph.hf({function.name!r}, {name}=MODULE_OR_FOLDER)"
            )
    return models, params


def check_settings(function: Function, given: Mapping[str, Any]) -> None:
    """Raises DecError for settings of a masked model (`model.shift`) that are given for another kind of model or for a model
    that is read already, and for bad values."""
    kinds = {p.name: p.value.type.of[0] for p in function.params if p.value.type.elem == "model"}
    for name in given:
        of, setting = model_of(name)
        if setting and kinds.get(of) != "masked":
            raise DecError(f"{function.name}: `{of}` is no masked model, so it has no {setting}", hint=f"leave {setting} out")
        if setting and isinstance(given.get(of), Model):
            raise DecError(f"{function.name}: `{of}` is a model of decgraph's, whose {setting} was set when it was made",
                           hint=f"decgraph.masked(MODULE_OR_FOLDER, {setting}=...)")  # fmt: skip
        MaskedSettings.among(given, of)


class Binder:
    """The models of a function: `given` ones, created once, around the module on which generate is called.

    A live causal module is taken "as it is" (`hf_live`: any architecture), or by "layers" (`net_of_module`: Llama and its like)
    where the algorithm reads its states, memory or heads. The reference backend computes prefixes again with the first and
    caches them with the second, so there layers are tried "first".
    """

    def __init__(self, module: IR, function: Function, given: Mapping[str, Any], backend: str) -> None:
        self.function, self.given = function, dict(given)
        states = any(op.opcode in _STATES for f in module.functions.values() for op in ops_of(f))
        heads = any(p.value.type.elem == "model" and p.value.type.of[3] == "causal+heads" for p in function.params)
        self.form = "layers" if states or heads else "first" if backend == "reference" else "as it is"
        self.main = main_parameter(function)
        self.types = {p.name: p.value.type.of for p in function.params if p.value.type.elem == "model"}
        self._made: dict[str, tuple[Any, Any]] = {}
        self._placed = Placement()

    def __call__(self, module: Module) -> dict[str, Any]:
        """A model for every model parameter; the same objects as long as the modules are what they were.

        Values that are no modules, and parameters of other kinds than causal or masked, are left for `decgraph.models.bind`.
        Raises DecError for an unusable value.
        """
        from decgraph.runtime.models.watch import one_look

        with making, one_look():
            return self._bound(module)

    def _bound(self, module: Module) -> dict[str, Any]:
        if not is_module(module):
            raise DecError(f"`{self.main}` must be a Hugging Face model, not {type(module).__name__}")
        whole = {name: value for name, value in {self.main: module, **self.given}.items() if self._kind(name) in _WHOLE}
        read = {name: MaskedSettings.among(self.given, name) for name in whole}
        placed = Placement().beside(whole)  # folders follow the module
        placed = self._placed = self._placed if placed == self._placed else placed
        models = {name: self._once(name, placed, lambda v=value, n=name: _read(v, self._kind(n), read[n], placed))  # type: ignore[misc]
                  for name, value in whole.items() if not is_module(value)}  # fmt: skip
        named = next((m.vocab for m in models.values() if isinstance(m, Model) and m.vocab.name != "ids"), None)
        for name, value in whole.items():
            if is_module(value):
                how = read[name] if self._kind(name) == "masked" else self.form
                models[name] = live(value, self._kind(name), vocabulary_of(value, named), how)
        for name, (_, _, family, sees) in self.types.items():
            if sees == "causal+heads" and getattr(models[name], "attached", None) is None:
                base = models[name]
                if (heads := self.given.get(f"{name}.heads")) is None:
                    asked = f"decgraph.hf({self.function.name!r}, heads=FOLDER)"
                    raise DecError(f"{self.function.name} needs Medusa heads for `{name}`", hint=asked)
                models[name] = self._once(name, base, lambda b=base, h=heads: with_heads(b, h))  # type: ignore[misc]
            elif self._kind(name) not in _WHOLE:
                value, base = self.given[name], models.get(str(family))
                make = lambda v=value, b=base, n=name: part_of(self._kind(n), n, v, b, str(self.types[n][3]))
                made = self._once(name, base, make)
                models[name] = made
        return {name: models[name] for name in self.types}

    def _kind(self, name: str) -> str:
        return "heads" if name.endswith(".heads") else "setting" if model_of(name)[1] else str(self.types[name][0])

    def _once(self, name: str, base: Any, make: Callable[[], Any]) -> Any:
        """The result of `make`, cached as long as the base, and what it was made of, are the same."""
        known = self._made.get(name)
        if known is None or known[0] is not base or renewed(known[1]) is not known[1]:
            self._made[name] = base, make()
        return self._made[name][1]


def part_of(kind: str, name: str, value: Any, target: Any, gives: str = "") -> Model:
    """An EAGLE head ("features"), a Kangaroo adapter ("layers") or a head with one value of the type `gives` ("head"), from a
    module (`decgraph.zoo.modeling`) or a folder (docs/heads.md), in its target's precision; anything else is a part already."""
    if not isinstance(value, str | Path) and not is_module(value):
        return value
    _check_read(name, target)
    made = _part(kind, name, value, target, gives)
    made.renew = _renewal(made, value, target, lambda now: part_of(kind, name, value, now, gives))
    return made


def _part(kind: str, name: str, value: Any, target: Any, gives: str) -> Model:
    from decgraph.runtime.models import hf
    from decgraph.runtime.models.hf_heads import HFAdapter, check_width
    from decgraph.zoo.folders import folder_of

    if kind == "head":
        return hf.load_reading(_as_target(value, target) if is_module(value) else folder_of(value), target, gives, name)
    features = kind == "features"
    if not is_module(value):
        return (hf.load_features if features else hf.load_adapter)(folder_of(value), target)
    check_width(value, target, name)
    made = _as_target(value, target)
    return hf.features_model(made, target, name) if features else HFAdapter(made, target, name)


def _renewal(made: Model, value: Any, target: Any, make: Callable[[Any], Model]) -> Callable[[], Model]:
    """See `Model.renew`, of a part made of a module or a folder for a target."""
    from decgraph.runtime.models.watch import Watch

    watch = Watch(value) if is_module(value) else None

    def renew() -> Model:
        now = renewed(target)
        return made if now is target and (watch is None or watch.same()) else make(now)

    return renew


def with_heads(model: Any, heads: Any) -> Model:
    """The model with Medusa heads: from a folder, from a module, or a decgraph model."""
    from decgraph.runtime.models import hf
    from decgraph.runtime.models.hf_heads import HFHeads, check_width
    from decgraph.zoo.folders import folder_of

    if not isinstance(heads, str | Path) and not is_module(heads):
        return model.with_heads(heads)
    _check_read("heads", model)
    if is_module(heads):
        check_width(heads, model, "heads")
        made = model.with_heads(HFHeads(_as_target(heads, model), model, "heads"))
    else:
        made = model.with_heads(hf.load_heads(folder_of(heads), model))
    made.renew = _renewal(made, heads, model, lambda now: with_heads(now, heads))
    return made


def _check_read(name: str, target: Any) -> None:
    """Raises DecError unless a head can read the states of a target."""
    from decgraph.runtime.models.hf_causal import HFCausal

    if not isinstance(target, HFCausal):
        reason = getattr(target, "unreached", None) or DecError("it is not a transformers model")
        raise unreached(getattr(target, "name", str(target)), f"`{name}` reads hidden states and", reason)


def _as_target(part: Module, target: Any) -> Module:
    """A head in its target's precision and on its device: around its own weights, or a copy of them where it has others."""
    from decgraph.runtime.models.shadow import shadow

    like = target.token_embeddings()
    if all((p.dtype, p.device) == (like.dtype, like.device) for p in part.parameters()):
        return shadow(part)
    made = copy.deepcopy(part).eval().to(like.device)
    for p in made.parameters():  # the frequencies of rotary positions are buffers and stay in float32
        p.data = p.data.to(like.dtype)
    return made


def is_module(value: Any) -> bool:
    """Whether a value is a torch module, told without importing torch."""
    return any(c.__module__ == "torch.nn.modules.module" and c.__name__ == "Module" for c in type(value).__mro__)


def _read(value: Any, kind: str, asked: MaskedSettings, placed: Placement) -> Any:
    """The model in a folder, or under a shipped model's name, placed so; anything else as it is."""
    if not isinstance(value, str | Path):
        return value
    from decgraph.runtime.models import hf
    from decgraph.zoo.folders import folder_of

    if kind == "masked":
        from decgraph.runtime.models.masked_load import load_masked

        return load_masked(folder_of(value), asked, placed)
    return hf.load_causal(folder_of(value), reuse=True, placed=placed)


def vocabulary_of(module: Module, named: Vocab | None) -> Vocab:
    """A live module has only the size of its vocabulary; if the algorithm's other models have a named vocabulary of that size,
    the module is assumed to share it."""
    size = width_of(module)
    return named if named is not None and named.size == size else Vocab("ids", size)


def live(module: Module, kind: str, vocab: Vocab, form: str | MaskedSettings) -> Model:
    """The decgraph model of a live module, created once for what the module is now. form: see `Binder`; of a masked model, how
    it is read. Raises DecError for weights that were created in torch.inference_mode."""
    with making:
        return _live(module, kind, vocab, form, width_of(module) if kind == "causal" else vocab.size)


def _live(module: Module, kind: str, vocab: Vocab, form: str | MaskedSettings, width: int) -> Model:
    from decgraph.runtime.models.watch import HOOKS, Watch

    asked, module = module, wrapper_of(module)
    if any(p.is_inference() for p in module.parameters()):
        raise DecError(
            f"the weights of {type(module).__name__} were created in torch.inference_mode, which other code cannot use",
            hint="load the model outside of it; generate may be called inside",
        )
    if any(vars(module)[name] for name in HOOKS):
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
    return kept.models[key]


def _ends(module: Module) -> frozenset[int]:
    """The tokens that end a text: as in `generate`, those of the module's generation settings, or of its configuration where it
    has no such settings."""
    settings = getattr(module, "generation_config", None)
    found = getattr(settings if settings is not None else getattr(module, "config", None), "eos_token_id", None)
    return frozenset(found if isinstance(found, list | tuple) else [] if found is None else [found])


def _made(module: Module, kind: str, vocab: Vocab, form: str | MaskedSettings) -> Any:
    name = Path(str(getattr(getattr(module, "config", None), "name_or_path", "") or "")).name or type(module).__name__
    from decgraph.runtime.models.shadow import shadow

    if is_peft(module):
        if has_soft_prompt(module):
            return soft_prompted_model(module, name, vocab, form)
        module = module.get_base_model()
    if isinstance(form, MaskedSettings):
        from decgraph.runtime.models.masked_load import masked_of

        with _grads_kept(module):
            return masked_of(shadow(module), name, vocab, form, lambda _: _attending(module))
    refuse_masked(type(module).__name__, name)
    from decgraph.runtime.models.shards import is_sharded, of_this_rank

    refused, cut = None, is_sharded(module)
    if cut and form == "layers":
        raise DecError(
            f"{name} is cut over ranks (tensor parallelism), and the algorithm reads its states, memory or heads",
            hint="load it without tp_plan, or an algorithm that reads distributions alone (docs/scale.md)",
        )
    if form != "as it is" and not cut:
        try:
            return _by_layers(module, name, vocab)
        except DecError as error:
            refused = error
    from decgraph.runtime.models.hf_live import from_module

    module = (of_this_rank(module) or module) if cut else shadow(module)
    made = from_module(module, name=name, vocab=vocab)
    made.unreached = refused
    if form == "layers" and refused is not None:
        raise unreached(name, "the algorithm", refused)
    return made


def _attending(module: Module) -> Module:
    """The module's shadow."""
    from decgraph.runtime.models.shadow import shadow

    return shadow(module)


@contextmanager
def _grads_kept(module: Module) -> Iterator[None]:
    """A model that shares a module's parameters needs no gradients of them; the module keeps its own choice."""
    grads = [(p, p.requires_grad) for p in module.parameters()]
    try:
        yield
    finally:
        for p, grad in grads:
            p.requires_grad_(grad)


def _net(module: Module) -> Any:
    """The net of the module's weights."""
    from decgraph.runtime.models.decoder.make import net_of_module

    return net_of_module(_attending(module))


def _by_layers(module: Module, name: str, vocab: Vocab) -> Any:
    from decgraph.runtime.models.hf_causal import HFCausal

    if getattr(module.config, "is_encoder_decoder", False):
        raise DecError(f"{type(module).__name__} is an encoder-decoder model; decgraph decodes decoder-only and masked models")
    family, net = f"{name}#{id(module)}", _net(module)
    _check_scores(module, net)
    return HFCausal(net, reuse=True, name=name, vocab=vocab, context=_context(module.config), family=family)


def _check_scores(module: Module, net: Any) -> None:
    """Raises DecError unless a net gives the module's own scores: a class or an object may have a `forward` that does more."""
    import torch

    from decgraph.runtime.models.shadow import shadow
    from decgraph.runtime.models.tape import Tape

    at = net.embedding.device
    ids = torch.arange(1, 5, device=at) % len(net.embedding)
    with torch.no_grad():
        theirs = shadow(module)(input_ids=ids[None], use_cache=False).logits[0].double()
        ours = net.logits(net.run(ids, Tape(torch.arange(4, device=at), torch.ones(4, 4, dtype=torch.bool, device=at).tril())))
    limit = 2e-3 if net.embedding.dtype in (torch.float32, torch.float64) else 0.1
    if theirs.shape != ours.shape or not float((theirs - ours).abs().max()) <= limit * float(
        theirs.abs().max().clamp_min(1e-6)
    ):
        raise DecError(f"{type(module).__name__}'s scores are more than its output matrix makes of its layers' last states")


def _context(config: Any) -> int | None:
    limit = getattr(config, "max_position_embeddings", None)
    return None if limit is None else int(limit)


@contextmanager
def evaluating(found: Iterable[Any]) -> Iterator[None]:
    """Torch modules in evaluation mode, without gradients; training mode is restored afterwards.

    Inference mode is left as well: caches created in it could not be written outside of it, in the next call.
    """
    import torch

    training = [part for module in found if is_module(module) for part in module.modules() if part.training]
    for part in training:
        part.training = False
    try:
        with torch.inference_mode(False), torch.no_grad():
            yield
    finally:
        for part in training:
            part.training = True


def width_of(module: Module) -> int:
    """How many scores a module returns: the rows of its output matrix, or its configuration's vocabulary. Raises DecError for
    other objects."""
    config, output = getattr(module, "config", None), getattr(module, "get_output_embeddings", lambda: None)
    try:
        out = output()
    except (NotImplementedError, AttributeError):
        out = None
    size = getattr(config, "vocab_size", None) if out is None else out.weight.shape[0]
    if config is None or size is None:
        what = type(module).__name__
        raise DecError(f"a model of transformers is needed, not {what}", hint="AutoModelForCausalLM.from_pretrained(...)")
    return int(size)
