"""The files that naming a model goes through, in order: `python -m lab.walks`, `--json` for the figures alone.

A stay is a run of calls into one file of the repository; a climb is a stay in a room above the one before; a return is a stay
in a file that was left before. What begins inside a forward (the decoder, a net around a module, the engine, a head) is its own
affair: a call into one is a stay, and what it calls is not followed.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("ir", "runtime", "zoo", "backends", "hf", "decgraph", "cli")
"""From the ground up, as far as a model's name goes."""
WITHIN = (
    "runtime/models/decoder/",
    "runtime/models/engine/",
    "runtime/models/heads/",
    "runtime/native/",
    "runtime/models/hf_",
    "runtime/models/masked_restored",
)
TOOLS = ("ir/", "decgraph/errors.py", "decgraph/extras.py")
"""Called from everywhere, and no part of a road."""


@dataclass(frozen=True)
class Walk:
    """The files of a walk, in order, and how many functions were entered."""

    stays: tuple[str, ...]
    functions: int

    def climbs(self) -> int:
        """How many stays are in a room above that of the stay before."""
        ranks = [ROOMS.index(stay.split("/")[0]) for stay in self.stays]
        return sum(after > before for before, after in zip(ranks, ranks[1:], strict=False))

    def returns(self) -> int:
        """How many stays are in a file that was left before."""
        return len(self.stays) - len(set(self.stays))

    def figures(self) -> dict[str, int]:
        """For a table."""
        files = len(set(self.stays))
        return {"stays": len(self.stays), "files": files, "climbs": self.climbs(), "returns": self.returns()}


@contextmanager
def walked(told: list[Walk]) -> Iterator[None]:
    """Inside, calls into files of the repository are noted."""
    stays: list[str] = []
    entered: set[str] = set()
    inside: list[FrameType] = []

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if inside:
            if event == "return" and frame is inside[0]:
                inside.clear()
            return
        name = frame.f_code.co_filename
        if event != "call" or not name.startswith(str(ROOT)) or "/.venv/" in name or "<" in frame.f_code.co_name:
            return
        path = Path(name).resolve().relative_to(ROOT).as_posix()
        if path.startswith("lab/") or path.startswith(TOOLS):
            return
        entered.add(frame.f_code.co_qualname)
        if not stays or stays[-1] != path:
            stays.append(path)
        if path.startswith(WITHIN):
            inside.append(frame)

    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)
    told.append(Walk(tuple(stays), len(entered)))


def cases(at: Path) -> dict[str, tuple[str, Callable[[], dict[str, Any]]]]:
    """By name: the algorithm, and what its models are given as."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, XGLMConfig, XGLMForCausalLM
    from transformers.utils import logging as theirs

    from decgraph import zoo

    theirs.disable_progress_bar()
    torch.manual_seed(0)
    size = {"vocab_size": 64, "hidden_size": 32, "num_attention_heads": 4, "eos_token_id": None, "bos_token_id": None}
    llama = LlamaForCausalLM(LlamaConfig(**size, intermediate_size=64, num_hidden_layers=2)).eval()
    llama.save_pretrained(at / "entry")
    llama.save_pretrained(at / "adapted")
    other = XGLMConfig(
        vocab_size=64, d_model=32, attention_heads=4, num_layers=2, ffn_dim=64, eos_token_id=None, bos_token_id=None
    )
    XGLMForCausalLM(other).eval().save_pretrained(at / "no_entry")
    try:
        from peft import LoraConfig, get_peft_model

        get_peft_model(llama, LoraConfig(target_modules=["q_proj"], r=2)).save_pretrained(str(at / "adapted"))
        llama = LlamaForCausalLM.from_pretrained(at / "entry", trust_remote_code=False)
    except ImportError:
        print("peft is not installed: no walk of an adapter", file=sys.stderr)
    return {
        "a shipped name": ("autoregressive", lambda: {"target": "target"}),
        "a folder with an entry": ("autoregressive", lambda: {"target": at / "entry"}),
        "a folder without an entry": ("autoregressive", lambda: {"target": at / "no_entry"}),
        "a live module": ("autoregressive", lambda: {"target": llama}),
        "a masked model's folder": ("llada", lambda: {"model": Path(zoo.path("masked"))}),
        "an adapter of PEFT on its base": ("autoregressive", lambda: {"target": at / "adapted"}),
        "heads beside a target": ("medusa", lambda: {"target": "target", "target.heads": "medusa"}),
        "a head that reads features": ("eagle2", lambda: {"target": "target", "drafter": "eagle"}),
    }


def walks(at: Path) -> dict[str, Walk]:
    """A walk for each case, of `decgraph.models.bind`, after everything was imported and no model is kept."""
    import decgraph

    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    out: dict[str, Walk] = {}
    for name, (algorithm, given) in cases(at).items():
        function = decgraph.load(algorithm).function
        models = {key: value for key, value in given().items() if key.split(".")[0] in decgraph.load(algorithm).models}
        told: list[Walk] = []
        for _ in range(2):  # the first one imports
            gc.collect()
            with walked(told):
                decgraph.models.bind(function, models)
        out[name] = told[-1]
    return out


def main() -> None:
    """Prints the walks."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--json", action="store_true")
    options.add_argument("--files", action="store_true", help="with the files, in order")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as place:
        found = walks(Path(place))
    if chosen.json:
        print(json.dumps({name: {**walk.figures(), "files, in order": walk.stays} for name, walk in found.items()}, indent=1))
        return
    for name, walk in found.items():
        print(f"{name}: {', '.join(f'{count} {what}' for what, count in walk.figures().items())}")
        if chosen.files:
            print("  " + " > ".join(walk.stays))


if __name__ == "__main__":
    main()
