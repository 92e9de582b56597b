"""What starts with a model of a folder: torch, tokenizers and safetensors, and nothing of transformers, which takes as long as
torch itself."""

from __future__ import annotations

import subprocess
import sys

import pytest

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
