"""A GGUF file as a folder of safetensors, as transformers reads it, for what reads folders alone: weights in float32, settings,
tokenizer, chat template."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any

from decgraph import extras
from decgraph.errors import DecError
from decgraph.runtime.models.gguf.file import read
from decgraph.runtime.models.gguf.tokens import tokenizer_of
from decgraph.runtime.models.quiet import quiet


def check_installed() -> None:
    """Raises DecError where what reads a GGUF is not installed."""
    extras.check("models", "gguf")


def convert(file: Path, folder: Path) -> None:
    """Write the model in a GGUF file to a folder, in transformers' `from_pretrained` form.

    The weights are float32, as the quantised ones are read: what `from_pretrained(gguf_file=...)` computes is what the folder
    computes. Raises DecError for a file that transformers does not read and for a split of texts that is not known.
    """
    check_installed()
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

    try:
        with _quiet():
            quantised = AutoModelForCausalLM.from_pretrained(
                file.parent, gguf_file=file.name, dtype=torch.float32, trust_remote_code=False
            )
            tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name, trust_remote_code=False)
            module = _plain(quantised)
            del quantised
            ends = {n: getattr(module.config, n, None) for n in ("bos_token_id", "eos_token_id", "pad_token_id")}
            module.generation_config = GenerationConfig(**ends)
            tokenizer.model_max_length = getattr(module.config, "max_position_embeddings", tokenizer.model_max_length)
            module.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
    except (ValueError, RuntimeError, KeyError, NotImplementedError) as error:
        raise DecError(f"transformers cannot read {file.name}: {error}") from error
    path, own = folder / "tokenizer.json", tokenizer_of(read(file))
    if own is not None:  # transformers splits every byte-level vocabulary as GPT-2 does, which is another before digits
        spec = {**json.loads(path.read_text(encoding="utf-8")), "pre_tokenizer": own["pre_tokenizer"]}
        path.write_text(json.dumps(spec, ensure_ascii=False, indent=2), encoding="utf-8")


def _plain(read: Any) -> Any:
    """A module of the same weights that transformers does not take for a quantised one, which it refuses to save."""
    from transformers import AutoModelForCausalLM

    config = read.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    config._name_or_path = ""
    module = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    module.load_state_dict(read.state_dict())
    return module.eval()


@contextmanager
def _quiet() -> Iterator[None]:
    """transformers without warnings and progress bars. Its reader of GGUF files shows a bar that no setting turns off, so what
    is written to stderr meanwhile goes nowhere."""
    with quiet(errors_only=True), redirect_stderr(io.StringIO()):
        yield
