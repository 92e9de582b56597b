"""Masked models from folders and from modules: their settings, and the best way in which each can run.

The best way is by layers (`HFMasked`: cached, batched, with a decoder). A module whose layers cannot be reached is called as it
is (`CalledMasked`), and says why if a program asks for its keys and values.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from decgraph.errors import DecError
from decgraph.runtime.models import hf
from decgraph.runtime.models.config import whole
from decgraph.runtime.models.decoder.compared import Different
from decgraph.runtime.models.decoder.net import Net
from decgraph.runtime.models.folders import Folder, context_of, read
from decgraph.runtime.models.hf_masked import CalledMasked, HFMasked
from decgraph.runtime.models.interface import Vocab
from decgraph.runtime.models.masked_restored import RESTORED, restored
from decgraph.runtime.models.masked_settings import OTHERWISE, MaskedSettings, ResolvedSettings, reading_of
from decgraph.runtime.models.tape import Tape
from decgraph.runtime.placement import Placement
from decgraph.runtime.sources import home_of
from decgraph.runtime.text import tokenizer_of, vocabulary

if TYPE_CHECKING:
    from torch import nn

_DECODERS = ("ForCausalLM", "LMHeadModel")
_SAMPLE = 7  # positions of the forward by which a restored model is compared
_TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-8}  # of the logits, root mean squares
_HALF = 0.1  # rounding of 16 bits adds up over layers; another computation is off by about 1

AnyMasked = HFMasked | CalledMasked


def load_masked(path: str | Path, asked: MaskedSettings | None = None, placed: Placement | None = None) -> AnyMasked:
    """The masked model in a folder: a `ForMaskedLM`, a decoder trained to fill masks (`ForCausalLM`), or a
    published class of which transformers has no code (`masked_restored.RESTORED`). asked: settings before the folder's own.
    placed: the device and the dtype; None: `auto` for both.

    Raises DecError for a folder without such a model, for settings that nobody says, and for a device that is not there.
    """
    placed = (placed or Placement()).found()
    folder = read(path, "masked", _check_masked)
    config, kind = dict(folder.config), folder.named
    vocab, home = vocabulary(folder.path, folder.size), folder.path
    reading = _reading(folder.name, kind, config, asked or MaskedSettings(), home)
    name, family = folder.name, str(home)
    if kind in RESTORED:
        from decgraph.runtime.models.decoder.make import net_of_module

        net = net_of_module(restored(kind, config, _weights(folder, placed)), folder.name)
        return _at(home, _masked(net, _context(net), reading, name, vocab, family))
    made = hf.decoder_net(folder, placed)
    if isinstance(made, Net):
        return _at(home, _masked(made, context_of(config), reading, name, vocab, family))
    loader = "AutoModelForMaskedLM" if kind.endswith("ForMaskedLM") else "AutoModelForCausalLM"
    import transformers

    from decgraph.runtime.models.decoder.make import net_of_module

    try:
        module = hf.pretrained(getattr(transformers, loader), folder, None, placed)
        net = net_of_module(module, folder.name, entry=not isinstance(made, Different))
    except Exception as refused:  # layers that cannot be reached, or called so: another's code raises what it likes
        module = hf.pretrained(getattr(transformers, loader), folder, None, placed)
        return _at(
            home,
            CalledMasked(module, reading, name=name, vocab=vocab, context=context_of(config), family=family, why=_why(refused)),
        )
    return _at(home, _masked(net, context_of(module.config.to_dict()), reading, name, vocab, family))


def _check_masked(at: Path, kind: str) -> None:
    """Raises DecError for a folder of a class that is no masked model's."""
    if kind not in (*RESTORED, *OTHERWISE) and not kind.endswith(("ForMaskedLM", *_DECODERS)):
        raise DecError(
            f"{at} is not a masked model but a {kind}",
            hint=f"a masked model is a ...ForMaskedLM, a ...ForCausalLM that fills masks, or a {', '.join(RESTORED)}",
        )


def masked_of(
    module: nn.Module, name: str, vocab: Vocab, asked: MaskedSettings, copied: Callable[[nn.Module], nn.Module]
) -> AnyMasked:
    """The masked model of a live module, whose weights it shares. copied: a copy of the module around the same weights. Raises
    DecError as `load_masked` does."""
    config, kind = _config(module), type(module).__name__
    reading = _reading(name, kind, {"vocab_size": vocab.size, **config}, asked, home_of(module))
    family = f"{name}#{id(module)}"
    context = context_of(config) or whole(config, "max_sequence_length", 0) or None
    from decgraph.runtime.models.decoder.make import net_of_module  # with transformers, as the module is

    try:
        if kind in RESTORED:
            kept = module.state_dict()  # with the biases of routers, which are buffers
            net = net_of_module(restored(kind, config, kept | dict(module.named_parameters())), name)
            _check_equal(module, net, kind)
        else:
            net = net_of_module(copied(module), name)
            context = _context(net)
    except Exception as refused:  # a class of unknown make, which is called instead: its code raises what it likes
        return _at(
            home_of(module),
            CalledMasked(module, reading, name=name, vocab=vocab, context=context, family=family, why=_why(refused)),
        )
    return _at(home_of(module), _masked(net, context, reading, name, vocab, family))


def _at(home: Path | None, model: AnyMasked) -> AnyMasked:
    model.home = home
    return model


def _masked(net: Net, context: int | None, reading: ResolvedSettings, name: str, vocab: Vocab, family: str) -> HFMasked:
    seen = reading.visibility
    return HFMasked(
        net, name=name, vocab=vocab, context=context, family=family, mask=reading.mask, visibility=seen, shift=reading.shift
    )


def _config(module: nn.Module) -> dict[str, object]:
    config = getattr(module, "config", None)
    written = getattr(config, "to_dict", None)
    found = written() if written is not None else vars(config) if hasattr(config, "__dict__") else {}
    return {key: value for key, value in found.items() if not key.startswith("_")}


def _context(net: Net) -> int | None:
    """The most positions of the module that a net is made of."""
    assert net.base is not None, "it is made of a module"
    return context_of(net.base.config.to_dict())


def _why(refused: Exception) -> str:
    return str(refused.diagnostics[0]) if isinstance(refused, DecError) else f"{type(refused).__name__}: {refused}"


def _reading(name: str, kind: str, config: dict[str, object], asked: MaskedSettings, home: Path | None) -> ResolvedSettings:
    """The settings of a model, with the mask that its folder's tokenizer names where its configuration names none."""
    if config.get("mask_token_id") is None:
        config = {**config, "mask_token_id": _mask_text(home)}
    return reading_of(name, kind, config, asked, _token(home))


def _token(folder: Path | None) -> Callable[[str], int | None]:
    """The id of a special token's text, by a folder's tokenizer."""
    return lambda text: None if (tokenizer := tokenizer_of(folder)) is None else tokenizer.token(text)


def _mask_text(folder: Path | None) -> str | None:
    """The text of the mask token that a folder's tokenizer names."""
    if folder is None or not (folder / "tokenizer.json").is_file():
        return None
    try:
        found = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8")).get("mask_token")
    except (OSError, ValueError):
        return None
    text = found.get("content") if isinstance(found, dict) else found
    return text if isinstance(text, str) else None


def _weights(folder: Folder, placed: Placement) -> dict[str, Tensor]:
    """The weights of a folder's safetensors files, in their dtype and on their device."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    dtype, found = placed.precision(folder.dtype), dict[str, Tensor]()
    for path in sorted(folder.path.glob("*.safetensors")):
        try:
            found |= {name: value.to(placed.device, dtype) for name, value in load_file(path).items()}
        except SafetensorError as error:
            raise DecError(f"{path} cannot be read: {error}") from None
    return found


@torch.no_grad()
def _check_equal(module: nn.Module, net: Net, kind: str) -> None:
    """Raises DecError unless a restored model gives the module's own scores."""
    at = net.embedding.device
    ids = torch.arange(_SAMPLE, device=at) * 5 % len(net.embedding)
    training = module.training
    expected = module.eval()(input_ids=ids[None]).logits[0].double()
    module.train(training)
    tape = Tape(torch.arange(_SAMPLE, device=at), torch.ones(_SAMPLE, _SAMPLE, dtype=torch.bool, device=at))
    ours = net.logits(net.run(ids, tape))
    limit = _TOLERANCE.get(net.embedding.dtype, _HALF) * float(expected.square().mean().sqrt())
    if expected.shape != ours.shape or not float((ours - expected).square().mean().sqrt()) <= limit:
        raise DecError(f"this {kind} computes something else than its published class")
