"""Runs a job inside SGLang's own engine on a CPU: `python sglang_driver.py OUT.json`; DECGRAPH_SGLANG_JOB names the job's file.

A job has `folder`, the model's; `file`, an exported one, which is imported in every process of the engine; `name`, its class;
`engine`, more arguments of `sglang.Engine`; and `batches` of requests, of which each has `input_ids` and `sampling_params`.
What comes back of a batch is a list of token ids for each request, or the text of the error.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

warnings.simplefilter("ignore")
JOB: dict[str, Any] = json.loads(Path(os.environ["DECGRAPH_SGLANG_JOB"]).read_text())
SETTINGS = {
    "device": "cpu", "skip_tokenizer_init": True, "dtype": "float32", "attention_backend": "torch_native",
    "disable_cuda_graph": True, "mem_fraction_static": 0.02, "max_total_tokens": 2048, "max_running_requests": 4,
    "sampling_backend": "pytorch", "disable_radix_cache": True,
}  # fmt: skip


def imported(path: Path) -> Any:
    """An exported file as a module of its name."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


made = imported(Path(JOB["file"]))  # each process of the engine imports this file


def main(out: Path) -> None:
    import sglang

    engine = sglang.Engine(model_path=JOB["folder"], **{**SETTINGS, **JOB["engine"]})
    named = getattr(made, JOB["name"]).to_str() if JOB["engine"].get("enable_custom_logit_processor") else None
    found: list[Any] = []
    for batch in JOB["batches"]:
        texts, params = [r["input_ids"] for r in batch], [r["sampling_params"] for r in batch]
        try:
            answers = engine.generate(input_ids=texts, sampling_params=params, custom_logit_processor=named)
            found.append([answer["output_ids"] for answer in answers])
        except ValueError as error:
            found.append(str(error))
    out.write_text(json.dumps(found))
    engine.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
