"""`python -m lab peers`: other engines beside decgraph, in processes of their own."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import decgraph
from decgraph.errors import DecError
from lab import engines, peers
from lab.__main__ import main as lab

Capture = pytest.CaptureFixture[str]
SHORT = ("--take", "1", "--max-tokens", "5", "--rounds", "2")
FAKE = """
import json, sys
job = json.loads(sys.stdin.readline())
assert job["threads"] == 1 and job["weights"] == "F32" and job["context"] > 5
print(json.dumps({"ready": True}), flush=True)
for line in sys.stdin:
    limit = json.loads(line)["limit"]
    print(json.dumps({"tokens": [7] * limit, "cpu": 3 + 0.5 * limit, "wall": 3 + limit}), flush=True)
"""
"""An engine that takes 3 seconds of CPU for a prompt and half a second for a token."""


def main(words: list[str]) -> int:
    """The exit code of `python -m lab`."""
    try:
        return lab(words)
    except SystemExit as end:
        return int(end.code or 0)


def fake(folder: Path, text: str, module: str = "decgraph") -> peers.Peer:
    """An engine whose process runs a Python text."""
    script = folder / f"engine{len(list(folder.iterdir()))}.py"
    script.write_text(text)
    return peers.Peer((module,), "decgraph", {"float32": "F32"}, (sys.executable, str(script)))


def times(*seconds: tuple[int, int, int, float]) -> list[dict[str, Any]]:
    """Records of (round, prompt, tokens, CPU seconds); the wall clock shows twice as much."""
    return [{"round": r, "prompt": n, "tokens": t, "cpu": s, "wall": 2 * s, "first": 0.1 * (n + 1)} for r, n, t, s in seconds]


def test_the_arithmetic_of_a_row() -> None:
    took = {
        "ours": times((0, 0, 10, 1.0), (0, 1, 30, 3.0), (1, 0, 10, 2.0), (1, 1, 30, 6.0)),
        "theirs": times((0, 0, 10, 3.0), (0, 1, 30, 5.0), (1, 0, 10, 4.0), (1, 1, 30, 12.0)),
    }
    tokens = {"ours": [[1, 2, 9, 4], [5]], "theirs": [[1, 2, 7, 8], [6]]}
    made = {label: {"times": took[label], "tokens": tokens[label]} for label in took}
    ours, theirs = (peers.row_of(label, made, "ours", frozenset({9}), 0.05) for label in made)
    assert ours["tokens_per_cpu_second"] == {"best": 10.0, "median": 7.5} and ours["tokens_per_second"] == 3.75
    assert ours["floors"] == pytest.approx(2.0) and ours["ratio"] is None and ours["tokens_equal"] is None
    assert theirs["tokens_per_cpu_second"] == {"best": 5.0, "median": 3.75}
    assert theirs["ratio"] == pytest.approx(2.0)  # the median of 3, 5/3, 2 and 2
    assert theirs["tokens_equal"] == 1  # what ends a text and what follows is not compared
    assert theirs["prompt_cpu_seconds"] == pytest.approx(0.15)
    assert peers.row_of("theirs", {"theirs": made["theirs"]}, "ours", frozenset(), None)["ratio"] is None


@pytest.mark.parametrize(
    ("names", "read"),
    [
        (("model.embed_tokens.weight", "model.norm.weight"), (64 * 32, 32)),  # the output's table too
        (("model.embed_tokens.weight", "lm_head.weight", "model.norm.weight"), (64 * 32, 32)),
        (("lm_head.weight", "model.layers.0.mlp.experts.0.w1.weight"), None),
    ],
)
def test_what_a_token_reads(names: tuple[str, ...], read: tuple[int, int] | None, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    save_file({name: torch.zeros(32) if "norm" in name else torch.zeros(64, 32) for name in names}, tmp_path / "a.safetensors")
    assert peers.sizes(tmp_path) == read


@pytest.mark.budget(10)
def test_engines_in_processes_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    """One that works, one that is not installed, one that ends at once, one that ends while it decodes, one that refuses."""
    found = {
        "llama.cpp": fake(tmp_path, FAKE),
        "absent": peers.Peer(("no_such_engine", "json"), "no-such-engine", {"float32": "F32"}),
        "ends": fake(tmp_path, "import sys\nprint('noise', file=sys.stderr)\nsys.exit('there is no such processor')"),
        "ends later": fake(tmp_path, FAKE.replace('"tokens": [7]', '"tokens": [7] if limit == 1 else 1 / 0')),
        "refuses": fake(tmp_path, 'print(\'{"error": "a refusal"}\', flush=True)\ninput()'),
        "small": peers.Peer(("decgraph",), "decgraph", {"int8": "int8"}),
    }
    monkeypatch.setattr(peers, "PEERS", found)
    file = tmp_path / "made.json"
    assert main(["peers", *(word for name in found for word in ("--peer", name)), *SHORT, "--results", str(file)]) == 0
    said = capsys.readouterr()
    assert "Traceback" not in said.out + said.err
    lines = said.out.splitlines()
    head, _, *rows = ([word.strip() for word in line.strip("|").split("|")] for line in lines if line.startswith("|"))
    assert head[:2] == ["engine", "weights"]
    assert [row[0].rpartition(" ")[0] for row in rows] == ["decgraph autoregressive", "llama.cpp"]
    assert rows[1][1:4] == ["F32", "2.0", "2.0"] and rows[1][-1] == "0 of 1"
    for why in (
        "absent is not measured: it is not installed: pip install no-such-engine",
        "ends is not measured: its process ended with 1: there is no such processor",
        "ends later is not measured: its process ended with 1: ZeroDivisionError: division by zero",
        "refuses is not measured: a refusal",
        "small is not measured: it has no float32 weights on a CPU",
    ):
        assert f"- {why}" in lines
    made = json.loads(file.read_text())
    ours, theirs = made["rows"]
    assert made["dtype"] == "float32" and made["threads"] == 1 and made["command"].startswith("python -m lab peers")
    assert theirs["tokens_per_cpu_second"] == {"best": 2.0, "median": 2.0} and theirs["tokens_per_second"] == 1.0
    assert theirs["prompt_cpu_seconds"] == 3.5 and theirs["ratio"] > 1
    assert ours["bytes_per_token"] == 4 * made["model"]["numbers"] > 2e7
    assert ours["floors"] == pytest.approx(
        made["bandwidth"] / ours["bytes_per_token"] / ours["tokens_per_cpu_second"]["best"], rel=1e-6
    )
    assert {label: len(found) for label, found in made["times"].items()} == {"decgraph autoregressive": 2, "llama.cpp": 2}


def test_without_a_row_of_decgraphs_own_it_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    refuses = fake(tmp_path, 'print(\'{"error": "a refusal"}\', flush=True)\ninput()')
    monkeypatch.setattr(peers, "OURS", refuses)
    monkeypatch.setattr(peers, "PEERS", {"llama.cpp": fake(tmp_path, FAKE), "absent": peers.Peer(("no_such_engine",), "x", {})})
    assert main(["peers", "--peer", "llama.cpp", *SHORT]) == 1
    said = capsys.readouterr()
    assert "decgraph autoregressive is not measured: a refusal" in said.out and "| 2.0 | 2.0 | - |" in said.out
    assert "no algorithm could be measured" in said.err
    assert main(["peers", "--peer", "absent", *SHORT]) == 1
    said = capsys.readouterr()
    assert said.out == "" and "no engine could be measured" in said.err and "pip install x" in said.err


@pytest.mark.slow
@pytest.mark.budget(20)
def test_transformers_makes_the_same_tokens(tmp_path: Path, capsys: Capture) -> None:
    words = ["peers", "autoregressive", "prompt_lookup:k=3", "--peer", "transformers", *SHORT]
    assert main([*words, "--results", str(tmp_path / "made.json")]) == 0
    rows = json.loads((tmp_path / "made.json").read_text())["rows"]
    assert [row["engine"] for row in rows] == ["decgraph autoregressive", "decgraph prompt_lookup:k=3", "transformers"]
    assert [row["tokens_equal"] for row in rows] == [None, 1, 1]
    assert "| transformers " in capsys.readouterr().out


@pytest.mark.parametrize(("arguments", "message"), [
    (["--peer", "vllm"], "there is no peer 'vllm'"),
    (["--peer", "llama.cpp", "--dtype", "bfloat16"], "no peer is measured in bfloat16"),
    (["fast_dllm", "--peer", "llama.cpp"], "fast_dllm decodes with a masked model"),
    (["--peer", "llama.cpp", "--model", "/nowhere/at/all"], "is not a folder with a model"),
])  # fmt: skip
def test_what_is_refused(arguments: list[str], message: str, capsys: Capture) -> None:
    assert main(["peers", *arguments, *SHORT]) == 1
    said = capsys.readouterr().err
    assert message in said and "Traceback" not in said


def small(kind: str, folder: Path) -> Path:
    """A small model of a family in a folder, with the shipped tokenizer; its query heads share key heads."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    shape = {
        "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": 32, "vocab_size": 2050, "max_position_embeddings": 64, "tie_word_embeddings": kind != "llama",
    }  # fmt: skip
    if kind != "llama":  # transformers reads no head size from a GGUF: the family's usual one
        shape["head_dim"] = {"qwen2": 16, "qwen3": 128}[kind]
    module = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **shape))
    for weight in module.parameters():
        torch.nn.init.normal_(weight, std=0.2)
    module.save_pretrained(folder / kind)
    (folder / kind / "tokenizer.json").write_bytes((decgraph.zoo.path("target") / "tokenizer.json").read_bytes())
    return folder / kind


@pytest.mark.budget(10)
@pytest.mark.parametrize("kind", list(engines.ARCHITECTURES))
def test_the_gguf_file_is_the_model(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As transformers reads it back: F32 exactly, the other forms to their precision."""
    import torch
    from transformers import AutoModelForCausalLM

    monkeypatch.setenv("DECGRAPH_CACHE", str(tmp_path / "cache"))
    model, ids = small(kind, tmp_path), torch.arange(3, 40)[None]
    want = AutoModelForCausalLM.from_pretrained(model)(ids).logits
    for form, most in (("F32", 0.0), ("F16", 0.01), ("Q8_0", 0.05), ("Q4_1", 0.5)):
        file = engines.gguf_of(model, form)
        read = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)(ids).logits
        assert (read - want).norm() <= most * want.norm(), form
        assert torch.equal(read, want) == (form == "F32")


def test_what_is_converted_is_kept_for_these_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DECGRAPH_CACHE", str(tmp_path / "cache"))
    model, made = tmp_path / "model", list[Path]()
    model.mkdir()
    (model / "model.safetensors").write_text("a")

    def convert(path: Path) -> None:
        made.append(path)
        path.write_text("x" * len(made))
        if len(made) == 3:
            raise DecError("no room")

    first = engines.converted(model, "F32", convert)
    assert engines.converted(model, "F32", convert) == first and len(made) == 1 and first.read_text() == "x"
    (model / "model.safetensors").write_text("ab")
    assert engines.converted(model, "F32", convert) != first and len(made) == 2
    for _ in range(2):  # what failed halfway is made again
        if len(made) == 2:
            with pytest.raises(DecError):
                engines.converted(model, "Q8_0", convert)
        else:
            assert engines.converted(model, "Q8_0", convert).read_text() == "xxxx"


def test_other_families_are_refused_as_gguf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DECGRAPH_CACHE", str(tmp_path / "cache"))
    for n, config in enumerate(({"model_type": "gpt2"}, {"model_type": "llama", "rope_parameters": {"rope_type": "llama3"}})):
        model = tmp_path / str(n)
        model.mkdir()
        (model / "config.json").write_text(json.dumps(config))
        with pytest.raises(DecError, match="is not written as GGUF here"):
            engines.gguf_of(model, "F32")
