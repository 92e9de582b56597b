"""Models from what a caller gave.

sources.py decides what each value is. This file makes the models of an algorithm of them, in order: the place of the weights,
whole models (`whole`), Medusa heads on them (`with_heads`), heads and adapters that read their states (`part`), the tokenizer.
models/folders.py reads what a folder has; models/hf.py and models/masked_load.py make a model of a folder, models/modules.py of
a module. Importing this loads no torch.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decgraph.errors import DecError
from decgraph.ir.values import Function
from decgraph.runtime.models.folders import holds_markov
from decgraph.runtime.models.interface import Model, Vocab, unreached
from decgraph.runtime.models.masked_settings import MaskedSettings
from decgraph.runtime.models.sharing import renewed, shared
from decgraph.runtime.placement import AUTO, DeviceLike, DtypeLike, Placement, own_modes
from decgraph.runtime.sources import HEADS, PARTS, ModelArguments, ModelSource, check_beside, corrects, source_of
from decgraph.runtime.text import Tokenizer, tokenizer_of, vocabulary

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from decgraph.runtime.arguments import FastTokenizer, TokenizerLike, Tokenizing


@dataclass(frozen=True)
class Bound:
    """Models by parameter name, and the tokenizer: the one given, or that of the first model whose folder has one."""

    models: dict[str, Model]
    tokenizer: Tokenizing | None


@own_modes()
def bind(
    function: Function,
    arguments: ModelArguments,
    *,
    tokenizer: TokenizerLike | None = None,
    device: DeviceLike = AUTO,
    dtype: DtypeLike = AUTO,
    share: bool = True,
) -> Bound:
    """A model for every model that a function wants: see `decgraph.models.bind`. share: models of folders may be those of other
    sessions (models/sharing.py)."""
    wanted, sources = arguments.wanted, arguments.models
    folders = {name for name, source in sources.items() if source.what == "stored"}
    loaded = {name: s.value for name, s in sources.items() if wanted[name].kind not in PARTS and name not in folders}
    placed = Placement.of(device, dtype).beside(loaded)
    if folders or any(source.what == "stored" for source in arguments.heads.values()):
        placed = placed.resolved()
    models: dict[str, Model] = {}
    # Parts come after the models that they read; modules after folders, whose vocabulary modules of the same size share.
    for name in sorted(wanted, key=lambda n: (wanted[n].kind in PARTS, wanted[n].kind == "head", n not in folders)):
        one = wanted[name]
        if name not in sources:  # the stand-in for a head with one value needs no weights
            from decgraph.runtime.models.reading import Confidence

            models[name] = Confidence(models[one.family], one.gives)
        elif one.kind in PARTS:
            _check_target(function, name, sources[name], one.family, models.get(one.family))
            head = models.get(corrects(name, wanted, sources) or "")
            models[name] = part(one.kind, name, sources[name], models.get(one.family), one.gives, head, share=share)
        else:
            reading = arguments.readings.get(name, MaskedSettings())
            made = whole(sources[name], one.kind, reading, placed, named=named_among(models.values()), share=share)
            if one.gives == HEADS and name in arguments.heads and getattr(made, "attached", None) is None:
                made = with_heads(made, arguments.heads[name], share=share)
            models[name] = made
    check_beside(function, wanted, sources)
    side: Tokenizing | None
    if tokenizer is not None:
        side = text_side(tokenizer)
    else:
        homes = (sources[name].home for name in wanted if name in sources)
        side = next((found for home in homes if (found := tokenizer_of(home)) is not None), None)
    return Bound({name: models[name] for name in wanted}, side)


def named_among(models: Iterable[object]) -> Vocab | None:
    """The vocabulary of the first model that has a tokenizer's."""
    vocabs = (model.vocab for model in models if isinstance(model, Model))
    return next((vocab for vocab in vocabs if vocab.name != "ids"), None)


def whole(
    source: ModelSource,
    kind: str,
    reading: MaskedSettings,
    placed: Placement,
    *,
    named: Vocab | None = None,
    share: bool = True,
) -> Model:
    """A causal or masked model. reading: settings of a masked one. placed: where a folder is loaded. named: the vocabulary of a
    module of the same size that has no tokenizer beside its weights. Raises DecError for what is no such model."""
    if source.what == "model":
        made: Model = source.value
        return made
    if source.what == "module":
        from decgraph.runtime.models.modules import live, width_of

        vocab = vocabulary(source.home, width_of(source.value), named)
        return live(source.value, kind, vocab, reading if kind == "masked" else "first")
    if kind == "masked":
        from decgraph.runtime.models.masked_load import load_masked

        return shared(source.value, (kind, reading, placed), lambda: load_masked(source.value, reading, placed), share)
    if source.what == "stored" and holds_markov(source.value):
        from decgraph.runtime.models.markov import load_markov

        device = placed.resolved().device
        return shared(source.value, ("markov", device, named), lambda: load_markov(source.value, named, device), share)
    from decgraph.runtime.models.hf import load_causal

    return shared(source.value, (kind, placed), lambda: load_causal(source.value, placed=placed), share)


def masked(value: object, reading: MaskedSettings, placed: Placement) -> Model:
    """The masked model of a folder or a module: see `decgraph.models.masked`. Raises DecError for what is none."""
    source, placed = source_of(value), placed.beside({"source": value})
    if isinstance(value, Model):
        raise DecError(f"{value.name!r} is a model of decgraph's already", hint="give decgraph.masked the module or the folder")
    if source.what == "model":
        raise DecError(f"{value!r} is no masked model", hint="give decgraph.masked a module or a folder")
    return whole(source, "masked", reading, placed)


def with_heads(model: Any, heads: ModelSource, *, share: bool = True) -> Model:
    """A model with Medusa heads: from a folder, from a module, or a decgraph model. Raises DecError for heads of another model,
    and for a model whose states cannot be read."""
    if heads.what == "model":
        made: Model = model.with_heads(heads.value)
        return made
    _check_read("heads", model)
    from decgraph.runtime.models import hf, modules

    if heads.what == "stored":
        make: Callable[[], Model] = lambda: model.with_heads(hf.load_heads(heads.value, model))
        made = shared(heads.value, ("heads", id(model)), make, share)
    else:
        made = model.with_heads(modules.heads_of(heads.value, model))
    made.renew = _renewal(made, heads, model, lambda now: with_heads(now, heads, share=share))
    return made


def part(
    kind: str, name: str, source: ModelSource, target: Any, gives: str = "", head: Any = None, *, share: bool = True
) -> Model:
    """An EAGLE head ("features"), a Kangaroo adapter ("layers") or a head with one value of the type `gives` ("head"), from a
    module (`decgraph.zoo.modeling`) or a folder (docs/heads.md), in its target's precision; a model is a part already. Raises
    DecError for a part of another target, and for a target whose states cannot be read. head: a head of the same folder, which
    this part corrects."""
    if source.what == "model":
        made: Model = source.value
        return made
    _check_read(name, target)
    from decgraph.runtime.models import hf, modules

    if source.what == "stored":
        own = name if kind == "head" else ""
        key = (kind, gives, own, id(target), None if head is None else id(head))
        made = shared(source.value, key, lambda: hf.load_part(kind, source.value, target, gives, own, head), share)
    else:
        made = modules.part_of(kind, name, source.value, target, gives)
    made.renew = _renewal(
        made, source, target, lambda now: part(kind, name, source, now, gives, head and renewed(head), share=share)
    )
    return made


def _check_target(function: Function, name: str, source: ModelSource, family: str, target: Model | None) -> None:
    """Raises DecError where a head or an adapter is to be read from a folder or a module, and its target's states cannot be."""
    if source.what == "model" or _readable(target):
        return
    if isinstance(target, Model) and target.unreached is not None:
        raise unreached(target.name, f"{function.name}: `{name}` reads states and", target.unreached)
    raise DecError(
        f"{function.name}: `{name}` reads states of `{family}`, which was not read from a folder or a module",
        hint=f"give both as folders or modules, or both as models: {name} and {family}",
    )


def _check_read(name: str, target: object) -> None:
    """Raises DecError unless a head can read the states of a target."""
    if not _readable(target):
        reason = getattr(target, "unreached", None) or DecError("it is not a transformers model")
        raise unreached(getattr(target, "name", str(target)), f"`{name}` reads hidden states and", reason)


def _readable(target: object) -> bool:
    """Whether a head can read the states of a target: a transformers model that runs by layers, or a head on one."""
    from decgraph.runtime.models.hf_causal import HFCausal
    from decgraph.runtime.models.hf_masked import HFMasked

    return isinstance(getattr(target, "target", target), HFCausal | HFMasked)


def _renewal(part: Model, source: ModelSource, target: Model, make: Callable[[Model], Model]) -> Callable[[], Model] | None:
    """`Model.renew` for a part made of a module or a folder for a target; None where neither can change."""
    if source.what != "module" and getattr(target, "renew", None) is None:
        return None
    watch = None
    if source.what == "module":
        from decgraph.runtime.models.watch import Watch

        watch = Watch(source.value)

    def renew() -> Model:
        now = renewed(target)
        return part if now is target and (watch is None or watch.same()) else make(now)

    return renew


def text_side(tokenizer: TokenizerLike | None) -> Tokenizing | None:
    """The session's tokenizer: of a folder, from a fast tokenizer of transformers, or one of decgraph's itself. Raises DecError
    for anything else."""
    if isinstance(tokenizer, str | Path):
        return Tokenizer(tokenizer)
    if tokenizer is None:
        return None
    if not _is_fast(tokenizer):
        if not (hasattr(tokenizer, "encode") or hasattr(tokenizer, "decode")):  # some programs read texts alone, or write them
            hint = "a folder with a tokenizer.json, or a fast tokenizer of transformers"
            raise DecError(f"a {type(tokenizer).__name__} is no tokenizer", hint=hint)
        return tokenizer
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "tokenizer.json").write_text(tokenizer.backend_tokenizer.to_str(), encoding="utf-8")
        made = Tokenizer(place)
    made.source = tokenizer
    return made


def _is_fast(tokenizer: Tokenizing | FastTokenizer | None) -> TypeIs[FastTokenizer]:
    return getattr(tokenizer, "backend_tokenizer", None) is not None
