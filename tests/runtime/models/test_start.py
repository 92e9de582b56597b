"""What starts with a model of a folder: torch, tokenizers and safetensors, and nothing of transformers, which takes as long as
torch itself."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from lib.models import published_heads
from lib.models.hf_models import llama

from decgraph import zoo


@pytest.mark.budget(14)
@pytest.mark.quick("eagle2", "fast_dllm")
@pytest.mark.parametrize("name", ["speculative", "eagle2", "medusa", "kangaroo", "hydra", "eagle3", "fast_dllm"])
def test_shipped_models_start_without_transformers(name: str) -> None:
    code = (
        "import sys\nfrom decgraph.cli.main import main\n"
        f"code = main(['run', {name!r}, '-p', 'def f(x):', '-n', '4', '-q'])\n"
        "print(code, 'torch' in sys.modules, sorted(m for m in sys.modules if m.split('.')[0] == 'transformers')[:3])"
    )
    assert zoo.path("target").is_dir()
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True).stdout
    assert said.splitlines()[-1] == "0 True []", said


MOST = 201
"""Modules of the package that the first token of a plain folder may load."""
ELSEWHERE = ("check", "serve", "runtime.models.heads", "runtime.models.hf_heads", "runtime.models.gguf.",
             "runtime.models.masked_load", "runtime.models.hf_masked", "runtime.models.engine.masked",
             "runtime.reals")  # fmt: skip
"""Rooms of what such a token has nothing to do with."""
LOADED = """
import json, sys, decgraph
session = decgraph.load(sys.argv[1]).session(**json.loads(sys.argv[2]))
tokens = session.run(decgraph.Request((5, 9, 11), 1, temperature=0)).tokens
print(len(tokens), json.dumps([m.removeprefix("decgraph.") for m in sys.modules if m.startswith("decgraph")]))
"""


def loaded(name: str, **models: Path) -> list[str]:
    """The modules of the package that a process has after the first token of an algorithm."""
    ask = [sys.executable, "-c", LOADED, name, json.dumps({of: str(path) for of, path in models.items()})]
    tokens, _, names = subprocess.run(ask, capture_output=True, text=True, timeout=120, check=True).stdout.partition(" ")
    assert tokens == "1"
    found: list[str] = json.loads(names)
    return found


@pytest.mark.budget(14)
def test_a_program_loads_the_rooms_that_it_needs(tmp_path: Path) -> None:
    llama(0).save_pretrained(tmp_path / "target")
    plain = loaded("autoregressive", target=tmp_path / "target")
    assert len(plain) <= MOST
    assert not [name for name in plain if name.startswith(ELSEWHERE)]
    head = published_heads.written(tmp_path / "head", *published_heads.eagle1())
    drafted = loaded("eagle2", target=tmp_path / "target", head=head)
    assert {"runtime.models.hf_heads", "backends.torch.ops.trees", "ir.draft_ends"} <= {*drafted} - {*plain}
