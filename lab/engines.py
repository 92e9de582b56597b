"""The engines of `python -m lab peers`, each in a process of its own: `python -m lab.engines`.

A process reads a job, and then a request a line, as JSON; it decodes each by itself, greedily, and answers with the tokens and
the processor seconds (user and system, of all its threads) that they took.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias

from decgraph import cache
from decgraph.errors import DecError
from decgraph.runtime.models.folders import is_gguf

Job: TypeAlias = dict[str, Any]
"""engine, model (a folder), weights (the form in which the engine reads matrices), dtype, threads, context; of decgraph also
algorithm, params and parts (models beside the target)."""
Decode: TypeAlias = Callable[[list[int], int], Sequence[int]]
"""From a prompt and a number of new tokens to those, greedy; no token ends the text."""


def _decgraph(job: Job) -> Decode:
    """An algorithm's session."""
    from decgraph.bench.compare import candidates
    from decgraph.runtime.request import Request
    from decgraph.runtime.sources import main_parameter

    (one,) = candidates([job["algorithm"]], job["params"])
    main = main_parameter(one.algorithm.function)
    session = one.algorithm.session({main: job["model"], **job["parts"]}, dtype=job["dtype"], device="cpu", **one.values)

    def decode(prompt: list[int], limit: int) -> Sequence[int]:
        result = session.run(Request(tuple(prompt), max_tokens=limit, temperature=0), keep_events=False)
        if result.error is not None:
            raise result.error
        tokens: Sequence[int] = result.tokens
        return tokens

    return decode


def _transformers(job: Job) -> Decode:
    """`generate` of transformers, with its KV cache and sdpa."""
    import torch

    from decgraph.bench import weights
    from decgraph.bench.baselines import baseline
    from decgraph.runtime.placement import Placement

    module = weights.read(Path(job["model"]), Placement("cpu", "float32"))
    size = int(module.config.get_text_config().vocab_size)
    loop = baseline("generate", weights.BenchWeights("target", module, None, size, None, folders={}, eos=frozenset()), {})
    torch.set_num_threads(job["threads"])
    return lambda prompt, limit: loop([prompt], limit)[0]


def _llama_cpp(job: Job) -> Decode:
    """llama.cpp's server inside the process, with its own defaults but for threads."""
    import xllamacpp  # pyright: ignore[reportMissingImports]

    wanted = xllamacpp.CommonParams()
    wanted.model.path = str(gguf_of(Path(job["model"]), job["weights"]))
    wanted.n_ctx, wanted.n_gpu_layers, wanted.n_parallel, wanted.fit_params = job["context"], 0, 1, False
    wanted.cpuparams.n_threads = wanted.cpuparams_batch.n_threads = job["threads"]
    server = xllamacpp.Server(wanted)
    fixed = {"temperature": 0, "top_k": 1, "ignore_eos": True, "cache_prompt": False, "return_tokens": True,
             "verbose": True}  # fmt: skip

    def decode(prompt: list[int], limit: int) -> Sequence[int]:
        made = server.handle_completions({"prompt": prompt, "n_predict": limit, **fixed})
        if "__verbose" not in made:
            raise DecError(f"llama.cpp refuses a request: {made}")
        tokens: list[int] = made["__verbose"]["tokens"]
        return tokens

    return decode


def _ctranslate2(job: Job) -> Decode:
    """CTranslate2's generator, on what its own converter wrote."""
    import ctranslate2  # pyright: ignore[reportMissingImports]

    def convert(path: Path) -> None:
        form = None if job["weights"] == "float32" else job["weights"]
        ctranslate2.converters.TransformersConverter(job["model"]).convert(str(path), quantization=form)

    folder = converted(Path(job["model"]), f"ctranslate2-{version('ctranslate2')}-{job['weights']}", convert)
    made = ctranslate2.Generator(
        str(folder), device="cpu", compute_type=job["weights"], inter_threads=1, intra_threads=job["threads"]
    )
    names = json.loads((folder / "vocabulary.json").read_text(encoding="utf-8"))
    fixed = {"include_prompt_in_result": False, "sampling_topk": 1, "end_token": []}

    def decode(prompt: list[int], limit: int) -> Sequence[int]:
        (text,) = made.generate_batch([[names[n] for n in prompt]], max_length=limit, min_length=limit, **fixed)
        tokens: Sequence[int] = text.sequences_ids[0]
        return tokens

    return decode


def _openvino(job: Job) -> Decode:
    """OpenVINO GenAI's pipeline on the GGUF file; it refuses one in F32."""
    import numpy
    import openvino  # pyright: ignore[reportMissingImports]
    import openvino_genai  # pyright: ignore[reportMissingImports]

    file = gguf_of(Path(job["model"]), job["weights"])
    scheduler = openvino_genai.SchedulerConfig()
    scheduler.enable_prefix_caching = False  # a prompt that comes again would cost nothing
    scheduler.max_num_batched_tokens = 1 << 30  # as the pipeline has it by itself: a prompt in one call
    how = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": job["threads"], "scheduler_config": scheduler}
    pipeline = openvino_genai.LLMPipeline(str(file), "CPU", **how)

    def decode(prompt: list[int], limit: int) -> Sequence[int]:
        config = openvino_genai.GenerationConfig(max_new_tokens=limit, ignore_eos=True, do_sample=False)
        made = pipeline.generate(openvino.Tensor(numpy.array([prompt], dtype=numpy.int64)), config)
        tokens: Sequence[int] = made.tokens[0]
        return tokens

    return decode


def converted(model: Path, form: str, convert: Callable[[Path], None]) -> Path:
    """What `convert` writes for a model's folder, a file or a folder. It stays in the user's cache, for these very weights."""
    files = [file for file in sorted(model.resolve().iterdir()) if file.suffix in (".safetensors", ".json")]
    said = json.dumps([[str(f), f.stat().st_size, f.stat().st_mtime_ns] for f in files])
    path = cache.folder() / "peers" / f"{model.name}-{hashlib.sha256(said.encode()).hexdigest()[:12]}-{form}"
    path.parent.mkdir(parents=True, exist_ok=True)
    with cache.alone(path):
        if not path.exists():
            half = path.with_name(f"{path.name}.half")
            shutil.rmtree(half, ignore_errors=True)
            convert(half)
            half.rename(path)
    return path


ARCHITECTURES = {"llama": "LLAMA", "qwen2": "QWEN2", "qwen3": "QWEN3"}
"""What is written as GGUF here, by transformers' model type."""


def gguf_of(model: Path, form: str) -> Path:
    """The weights of a model's folder as a GGUF file of F32, F16, Q8_0 or Q4_1 matrices; a GGUF file is itself. Raises DecError
    for a family that is not written here."""
    if is_gguf(model):
        return model
    return converted(model, f"{form}.gguf", lambda path: _write_gguf(model, form, path))


def _write_gguf(model: Path, form: str, path: Path) -> None:
    import gguf
    from safetensors import safe_open

    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    kind, rope = config["model_type"], config.get("rope_parameters") or {}
    if kind not in ARCHITECTURES or rope.get("rope_type", "default") != "default" or config.get("rope_scaling"):
        raise DecError(f"a {kind} of these settings is not written as GGUF here", hint=", ".join(ARCHITECTURES))
    layers, heads, groups = (config[f"num_{n}"] for n in ("hidden_layers", "attention_heads", "key_value_heads"))
    width = config.get("head_dim") or config["hidden_size"] // heads
    out = gguf.GGUFWriter(path, kind)
    out.add_name(model.name)
    out.add_context_length(config["max_position_embeddings"])
    out.add_embedding_length(config["hidden_size"])
    out.add_block_count(layers)
    out.add_feed_forward_length(config["intermediate_size"])
    out.add_head_count(heads)
    out.add_head_count_kv(groups)
    out.add_key_length(width)
    out.add_value_length(width)
    out.add_rope_dimension_count(width)
    out.add_rope_freq_base(float(rope.get("rope_theta", config.get("rope_theta", 10000.0))))
    out.add_layer_norm_rms_eps(config["rms_norm_eps"])
    out.add_file_type({"F32": 0, "F16": 1, "Q8_0": 7, "Q4_1": 3}[form])
    out.add_vocab_size(config["vocab_size"])
    _write_vocabulary(out, model, config)
    type_ = gguf.GGMLQuantizationType[form]
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[ARCHITECTURES[kind]], layers)
    for file in sorted(model.glob("*.safetensors")):
        with safe_open(file, "pt") as tensors:
            for name in list(tensors.keys()):
                array = tensors.get_tensor(name).float().numpy()
                rotated = heads if ".q_proj." in name else groups if ".k_proj." in name else 0
                if rotated and kind == "llama":  # its rotary pairs are neighbours in a GGUF, and halves in transformers
                    array = array.reshape(rotated, 2, width // 2, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)
                if (renamed := names.get_name(name, (".weight", ".bias"))) is None:
                    raise DecError(f"a GGUF has no place for {name}")
                own = type_ if array.ndim > 1 else gguf.GGMLQuantizationType.F32
                out.add_tensor(renamed, gguf.quants.quantize(array, own), raw_dtype=own)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def _write_vocabulary(out: Any, model: Path, config: Job) -> None:  # Any: a GGUFWriter
    """The tokens of a byte-level vocabulary. How texts are split does not matter: engines are given token ids."""
    from gguf import TokenType

    read = json.loads((model / "tokenizer.json").read_text(encoding="utf-8"))
    if read["model"]["type"] != "BPE" or read["model"].get("byte_fallback"):
        raise DecError("a vocabulary that is not of bytes is not written as GGUF here")
    tokens = {n: token for token, n in read["model"]["vocab"].items()}
    special = {one["id"]: one["content"] for one in read["added_tokens"]}
    tokens |= special
    count = config["vocab_size"]
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("smollm")
    out.add_token_list([tokens.get(n, f"[unused {n}]") for n in range(count)])
    kinds = [TokenType.CONTROL if n in special else TokenType.NORMAL if n in tokens else TokenType.UNUSED for n in range(count)]
    out.add_token_types(kinds)
    out.add_token_merges([one if isinstance(one, str) else " ".join(one) for one in read["model"]["merges"]])
    ends = config.get("eos_token_id")
    out.add_eos_token_id((ends[0] if isinstance(ends, list) else ends) or 0)
    out.add_bos_token_id(config.get("bos_token_id") or 0)
    out.add_add_bos_token(False)


ENGINES = {
    "decgraph": _decgraph,
    "llama.cpp": _llama_cpp,
    "ctranslate2": _ctranslate2,
    "openvino": _openvino,
    "transformers": _transformers,
}


def serve() -> None:
    """A process of one engine: a job, then requests, a line each, on stdin; the answers on stdout. What engines print goes to
    stderr."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(**said: Any) -> None:
        answers.write(json.dumps(said) + "\n")
        answers.flush()

    try:
        job = json.loads(sys.stdin.readline())
        decode = ENGINES[job["engine"]](job)
        answer(ready=True)
        for line in sys.stdin:
            request = json.loads(line)
            wall, cpu = time.perf_counter(), time.process_time()
            tokens = decode(request["prompt"], request["limit"])
            took = time.perf_counter() - wall, time.process_time() - cpu
            answer(tokens=[int(token) for token in tokens], wall=took[0], cpu=took[1])
    except DecError as error:
        answer(error=str(error.diagnostics[0]))
    except Exception as error:  # whatever another engine raises is a line below the table
        answer(error=f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"[:300])


if __name__ == "__main__":
    serve()
