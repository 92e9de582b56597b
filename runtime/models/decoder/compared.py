"""An entry of the decoder against this machine's transformers: a small random model of a config's shape, saved and read as a
folder is, gives the logits of transformers' own module, in float64.

Asked for (`decgraph.models.verify`, `decgraph zoo verify`), since it imports transformers; verdicts stay on the disk by shape
and version, and a difference makes folders of that shape run as transformers' module. Importing this loads no torch.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from decgraph import cache
from decgraph.runtime.models.decoder.shape import UnknownToDecoder
from decgraph.runtime.models.decoder.small import kept_in, key, small, version

TOKENS = 20
TOLERANCE = 1e-5
"""Of logits, over the largest one: modules compute norms and angles in float32 whatever their weights are."""


class Different(UnknownToDecoder):
    """Why a shape that has an entry runs as transformers' module all the same."""


@dataclass(frozen=True)
class ForwardVerdict:
    """What a comparison found. found: "equal", "different", or "not compared". gap: how far logits are from each other, over
    the largest one. reason: why there is no comparison, or what differs. version: of transformers."""

    found: Literal["equal", "different", "not compared"]
    version: str
    gap: float = 0.0
    reason: str = ""

    def text(self) -> str:
        """In a line."""
        if self.found == "equal":
            return f"the decoder equals the module of transformers {self.version}: logits differ by {self.gap:.0e}"
        if self.found == "different":
            return f"the decoder differs from the module of transformers {self.version}: {self.reason}"
        return f"not compared with transformers {self.version}: {self.reason}"


def known(config: Mapping[str, object]) -> ForwardVerdict | None:
    """The verdict that was kept for configs of this shape with this version of transformers; None where there is none."""
    if not kept_in().is_file():
        return None
    found = cache.read(kept_in()).get(key(config))
    return ForwardVerdict(**found) if isinstance(found, dict) else None


def refuse_different(config: Mapping[str, object]) -> None:
    """Raises Different for a config of a shape of which a difference was found and kept."""
    verdict = known(config)
    if verdict is not None and verdict.found == "different":
        raise Different(verdict.text())


def compare(config: Mapping[str, object]) -> ForwardVerdict:
    """The verdict on a config, which is kept."""
    installed = version()
    try:
        gap = _gap(small(config))
    except UnknownToDecoder as unknown:
        reason = f"transformers reads folders of this shape, and what it reads is compared each time ({unknown})"
        verdict = ForwardVerdict("not compared", installed, reason=reason)
    except Exception as error:  # transformers raises what it likes for a config that it does not take
        verdict = ForwardVerdict(
            "not compared", installed, reason=f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
        )
    else:
        differs = not gap <= TOLERANCE
        reason = f"logits of a small random model of its shape differ by {gap:.1e}" if differs else ""
        verdict = ForwardVerdict("different" if differs else "equal", installed, gap, reason)
    cache.add(kept_in(), {key(config): asdict(verdict)})
    return verdict


def _gap(config: dict[str, object]) -> float:
    """How far the decoder's logits of a random model are from the module's, over the largest one."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from decgraph.runtime.models.decoder.folder import net_of_folder
    from decgraph.runtime.models.quiet import quiet

    with quiet(), torch.random.fork_rng(devices=[]), tempfile.TemporaryDirectory() as place, torch.no_grad():
        torch.manual_seed(0)
        options = dict(config)
        made = AutoConfig.for_model(str(options.pop("model_type")), **options)
        module = AutoModelForCausalLM.from_config(made, attn_implementation="eager", experts_implementation="eager",
                                                  trust_remote_code=False)  # fmt: skip
        module = module.double().eval()
        for weight in module.parameters():
            weight += 0.1 * torch.randn_like(weight)  # norms and biases are not ones and zeros, which hide mistakes
        module.save_pretrained(place)
        saved = json.loads((Path(place) / "config.json").read_text(encoding="utf-8"))
        net = net_of_folder(Path(place), saved, torch.float64, "cpu")
        ids = (torch.arange(TOKENS) * 7 + 1) % net.decoder.embedding.shape[0]
        wanted = module(input_ids=ids[None], use_cache=False).logits[0]
        return float((net.scores(ids, causal=True) - wanted).abs().max() / wanted.abs().max())
