"""GGUF files as models, against the same files made float32 by the gguf package in modules of transformers."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch

import decgraph
import decgraph.runtime.native.formats
from decgraph.cli.main import main
from decgraph.errors import DecError
from decgraph.runtime.models import hf
from decgraph.runtime.models.gguf import file as gguf_file
from decgraph.runtime.models.hf import load_causal
from decgraph.runtime.native.products import BlockProduct
from decgraph.runtime.placement import Placement
from decgraph.runtime.request import Request

pytest.importorskip("gguf")
from lib.models import gguf_files as written

IDS = tuple(range(3, 40))


def agree(path: Path, theirs: Any) -> None:
    """Logits and greedy tokens of a file and a module."""
    mine = load_causal(path)
    with torch.no_grad():
        want = theirs(torch.tensor([IDS])).logits[0].double()
        made = theirs.generate(torch.tensor([IDS]), max_new_tokens=12, do_sample=False, eos_token_id=None)[0, len(IDS) :]
    found = torch.stack([torch.from_numpy(one.logits) for one in mine.eval([IDS[: n + 1] for n in range(len(IDS))])])
    off = (found - want[:, : found.shape[1]]).abs().max(1).values / want.abs().max()
    # Activations in int16 are off by 2e-5; a position whose keys are nearly as likely as each other multiplies that.
    assert off.quantile(0.9) < 2e-4 and off.max() < 5e-3
    exact = load_causal(path, placed=Placement("cpu", "float32")).eval([IDS[:1], IDS])[1]
    assert (torch.from_numpy(exact.logits) - want[-1, : found.shape[1]]).abs().max() < 1e-5 * want.abs().max()
    for dtype in ("auto", "float32"):
        session = decgraph.load("autoregressive").session(str(path), device="cpu", dtype=dtype)
        assert session.run(Request(IDS, max_tokens=12, temperature=0)).tokens == tuple(made.tolist())


@pytest.mark.budget(14)
@pytest.mark.parametrize("library", [True, False], ids=["native", "torch"])
@pytest.mark.parametrize("form", ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"])
def test_blocks_are_the_dequantised_model(form: str, library: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not library:
        for place in ("decoder", "products"):
            monkeypatch.setattr(f"decgraph.runtime.native.{place}.library", lambda: None)
    module = written.module_of("llama", hidden_size=256, intermediate_size=512, tie_word_embeddings=True)
    path = written.write(tmp_path / "a.gguf", "llama", module, form, random=True)
    agree(path, written.dequantised(path, module.config))


ARCHITECTURES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "llama": ("llama", {"attention_bias": True, "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0}},
              {"rope.freq_base": 5000.0}),
    "qwen2": ("qwen2", {}, {"rope.freq_base": 10000.0}),
    "qwen3": ("qwen3", {"head_dim": 32}, {}),
    "gemma2": ("gemma2", {"head_dim": 32, "query_pre_attn_scalar": 32, "sliding_window": 8},
               {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "attention.sliding_window": 8}),
    "gemma3": ("gemma3_text", {"head_dim": 32, "query_pre_attn_scalar": 32, "sliding_window": 8, "num_hidden_layers": 7},
               {"attention.sliding_window": 8, "rope.freq_base": 1000000.0}),
    "phi3": ("phi3", {"sliding_window": 8}, {"attention.sliding_window": 8}),
    "starcoder2": ("starcoder2", {"sliding_window": None}, {"attention.layer_norm_epsilon": 1e-5}),
    "stablelm": ("stablelm", {}, {"attention.layer_norm_epsilon": 1e-5, "rope.dimension_count": 4}),
    "nemotron": ("nemotron", {}, {"attention.layer_norm_epsilon": 1e-5, "rope.dimension_count": 8}),
}  # fmt: skip
"""By architecture: transformers' model type, its settings, and those of the file."""


ELSEWHERE: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "gemma": ("gemma", {"head_dim": 32}, {}),
    "smollm3": ("smollm3", {"num_hidden_layers": 5}, {"rope.freq_base": 2000000.0}),
    "granite": ("granite", {"attention_multiplier": 0.2, "embedding_multiplier": 3.0, "residual_multiplier": 0.5,
                            "logits_scaling": 2.0},
                {"attention.scale": 0.2, "embedding_scale": 3.0, "residual_scale": 0.5, "logit_scale": 2.0}),
    "olmo2": ("olmo2", {}, {}),
}  # fmt: skip
"""What transformers does not read from GGUF."""


@pytest.mark.parametrize("architecture", [*ARCHITECTURES, *ELSEWHERE])
def test_architectures_are_as_llama_cpp_reads_them(architecture: str, tmp_path: Path) -> None:
    """Greedy tokens, up to a place where two are as likely to within 0.01: its cache is in float16."""
    pytest.importorskip("xllamacpp")
    from lab import engines

    model_type, config, settings = {**ARCHITECTURES, **ELSEWHERE}[architecture]
    if architecture == "phi3":  # llama.cpp leaves its window out
        config = settings = {}
    module = written.module_of(model_type, tie_word_embeddings="gemma" in architecture, **config)
    path = written.write(tmp_path / "a.gguf", architecture, module, "F32", **settings)
    made = engines.ENGINES["llama.cpp"]({"model": str(path), "weights": "F32", "context": 64, "threads": 1})(list(IDS), 24)
    mine = (
        decgraph.load("autoregressive").session(str(path), device="cpu").run(Request(IDS, max_tokens=24, temperature=0)).tokens
    )
    same = next((n for n in range(24) if mine[n] != made[n]), 24)
    if same < 24:
        two = torch.from_numpy(load_causal(path).eval([(*IDS, *mine[:same])])[0].logits).topk(2)
        assert made[same] in two.indices and same > 2 and float(two.values[0] - two.values[1]) < 0.01, (mine, made)


@pytest.mark.budget(10)
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_architectures_are_as_transformers_reads_them(architecture: str, tied: bool, tmp_path: Path) -> None:
    if not tied and "gemma" in architecture:
        pytest.skip("a gemma's output matrix is its embedding")
    model_type, config, settings = ARCHITECTURES[architecture]
    module = written.module_of(model_type, tie_word_embeddings=tied, **config)
    path = written.write(tmp_path / "a.gguf", architecture, module, "Q8_0", **settings)
    agree(path, written.dequantised(path, module.config))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    module = written.module_of("llama", hidden_size=256, tie_word_embeddings=True)
    return written.write(tmp_path_factory.mktemp("file") / "small.gguf", "llama", module, "Q8_0")


@pytest.mark.parametrize("algorithm", ["speculative", "prompt_lookup", "draft_and_verify", "swift"])
def test_algorithms_have_its_tokens(algorithm: str, file: Path) -> None:
    """The drafter of `speculative` is the same file; the others draft by a part of the model, or by none."""
    plain = decgraph.load("autoregressive").session(file, device="cpu").run(Request(IDS, max_tokens=16, temperature=0)).tokens
    chosen = decgraph.load(algorithm)
    session = chosen.session(dict.fromkeys(chosen.models, str(file)), device="cpu")
    assert session.run(Request(IDS, max_tokens=16, temperature=0)).tokens == plain
    reference = decgraph.load("autoregressive").session(file, device="cpu", backend="reference")
    assert reference.run(Request(IDS, max_tokens=4, temperature=0)).tokens == plain[:4]


@pytest.mark.parametrize(("dtype", "most"), [("bfloat16", 0.2), ("float16", 0.02), ("int8", 1e-5), ("int4", 0.9)])
def test_other_precisions(dtype: str, most: float, file: Path) -> None:
    """int8 is what the file's matrices are in already."""
    want = torch.from_numpy(load_causal(file).eval([IDS])[0].logits)
    found = torch.from_numpy(load_causal(file, placed=Placement("cpu", dtype)).eval([IDS])[0].logits)
    assert (found - want).norm() < most * want.norm()
    assert torch.equal(found, want) == (dtype == "int8")


def test_a_table_of_embeddings_is_read_row_by_row(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = decgraph.load("prompt_lookup").session(file, device="cpu")
    monkeypatch.setattr(BlockProduct, "dequantised", lambda product: pytest.fail("a whole matrix is dequantised"))
    many = decgraph.runtime.native.formats.reals

    def few(data: torch.Tensor, form: str) -> torch.Tensor:
        assert len(data) <= len(IDS)
        return many(data, form)

    monkeypatch.setattr(decgraph.runtime.native.formats, "reals", few)
    assert len(session.run(Request(IDS, max_tokens=8, temperature=0)).tokens) == 8


def test_the_commands_take_a_file(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "autoregressive", "-m", str(file), "-p", "def", "-n", "3", "--device", "cpu"]) == 0
    assert "target: small" in capsys.readouterr().out
    assert main(["bench", "autoregressive", "-m", str(file), "--quick"]) == 2
    assert "python -m lab peers" in capsys.readouterr().err
    assert main(["run", "speculative", "-m", str(file), "-p", "def"]) == 2
    assert "no shipped model goes with the `target` that was given" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("scaling", "same"),
    [
        ({"type": "yarn", "factor": 4.0, "original_context_length": 64, "attn_factor": 0.5},
         {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64,
          "attention_factor": 0.5 * (0.1 * math.log(4) + 1)}),
        ({"factor": 4.0}, {"rope_type": "linear", "factor": 4.0}),
    ],
    ids=["a factor of attention", "no type"],
)  # fmt: skip
def test_rope_scaling_is_as_llama_cpp_has_it(scaling: dict[str, Any], same: dict[str, Any], tmp_path: Path) -> None:
    module = written.module_of("llama", tie_word_embeddings=True)
    settings = {f"rope.scaling.{key}": value for key, value in scaling.items()}
    path = written.write(tmp_path / "a.gguf", "llama", module, **settings)
    config = module.config
    config.rope_parameters = {**config.rope_parameters, **same}
    agree(path, written.dequantised(path, config))


@pytest.mark.parametrize(("key", "value"), [("rope.scaling.attn_factor", 0.5), ("attention.causal", False)])
def test_what_is_not_done_is_refused_by_name(key: str, value: object, tmp_path: Path) -> None:
    path = written.write(tmp_path / "a.gguf", "llama", written.module_of("llama"), **{key: value})
    with pytest.raises(DecError, match=key):
        load_causal(path)


def test_blocks_are_refused_on_a_device_unless_numbers_are_asked_for(tmp_path: Path) -> None:
    module = written.module_of("llama", hidden_size=256, intermediate_size=512)
    found = {form: gguf_file.read(written.write(tmp_path / f"{form}.gguf", "llama", module, form)) for form in ("Q8_0", "F16")}
    for placed in (Placement("cpu"), Placement("cuda", "bfloat16")):
        hf.refuse_blocks(found["Q8_0"], placed)
    hf.refuse_blocks(found["F16"], Placement("cuda"))
    with pytest.raises(DecError, match="blocks of Q8_0 .*on cuda they would be numbers") as refused:
        hf._of_file(tmp_path / "Q8_0.gguf", Placement("cuda"))
    assert "dtype bfloat16" in str(refused.value)
