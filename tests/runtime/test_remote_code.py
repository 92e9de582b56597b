"""No code from a model's folder runs, even where somebody at a terminal would say yes: with `trust_remote_code` left out,
transformers asks."""

from __future__ import annotations

import ast
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from lib.models.model_folders import folder
from lib.waiting import SECONDS

import decgraph
from decgraph.errors import DecError

ROOT = Path(__file__).parents[2]
IDS = (9, 10, 11)
CHAT = [{"role": "user", "content": "Hello"}]
RUNS = "import pathlib\npathlib.Path({marker!r}).write_text('ran')\n"
CONFIG = RUNS + "from transformers import LlamaConfig\nclass X(LlamaConfig):\n    model_type = 'xyz'\n"
MODEL = RUNS + "from transformers import LlamaForCausalLM\nclass X(LlamaForCausalLM):\n    pass\n"
TOKENIZER = RUNS + "from transformers import PreTrainedTokenizerFast\nclass X(PreTrainedTokenizerFast):\n    pass\n"


def merge(path: Path, **more: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **more}), encoding="utf-8")


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A folder with code for its configuration, model and tokenizer, and the file that each of them would write."""
    at, marker = folder(tmp_path), tmp_path / "RAN"
    for name, text in {"config_x.py": CONFIG, "model_x.py": MODEL, "tokenizer_x.py": TOKENIZER}.items():
        (at / name).write_text(text.format(marker=str(marker)), encoding="utf-8")
    classes = {"AutoConfig": "config_x.X", "AutoModelForCausalLM": "model_x.X", "AutoModelForMaskedLM": "model_x.X"}
    merge(at / "config.json", model_type="xyz", architectures=["XForCausalLM"], auto_map=classes)
    monkeypatch.setattr("builtins.input", lambda *asked: "y")
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))
    return at, marker


DOORS: dict[str, Callable[[Path], object]] = {
    "a causal model": lambda at: decgraph.run("autoregressive", IDS, {"target": at}, max_tokens=2),
    "a masked model": lambda at: decgraph.run("fast_dllm", IDS, {"model": at, "model.mask_token": 3}, max_tokens=2),
}


@pytest.mark.parametrize("door", DOORS)
def test_a_models_code_is_refused(door: str, hostile: tuple[Path, Path]) -> None:
    at, marker = hostile
    with pytest.raises(DecError, match=r"could not be loaded|mask"):
        DOORS[door](at)
    assert not marker.exists()


def test_a_tokenizers_code_is_not_run(hostile: tuple[Path, Path]) -> None:
    at, marker = hostile
    merge(at / "config.json", model_type="llama", architectures=["LlamaForCausalLM"], auto_map={})
    named = {"AutoTokenizer": ["tokenizer_x.X", "tokenizer_x.X"]}
    merge(at / "tokenizer_config.json", auto_map=named, tokenizer_class="X")
    (at / "chat_template.jinja").write_text("{{ messages[0].content }}", encoding="utf-8")
    try:
        decgraph.run("autoregressive", CHAT, {"target": at}, max_tokens=2)
    except DecError as refused:
        assert "tokenizer" in str(refused)
    assert not marker.exists()


def test_every_call_says_that_no_code_is_trusted() -> None:
    listing = ["git", "ls-files", "*.py"]
    files = subprocess.run(listing, cwd=ROOT, check=True, capture_output=True, text=True, timeout=SECONDS).stdout.split()
    left = []
    for name in files:
        if name.startswith(("tests/", "examples/")):
            continue
        for node in ast.walk(ast.parse((ROOT / name).read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
                if node.func.attr in ("from_pretrained", "from_config") and given.get("trust_remote_code") != "False":
                    left.append(f"{name}:{node.lineno}")
    assert not left
