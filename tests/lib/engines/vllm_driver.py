"""Runs jobs inside a real vLLM, in an interpreter of its own: `VENV/bin/python vllm_driver.py JOBS.json RESULTS.json [RUNNER]`.

A job: model, engine (keyword arguments of `vllm.LLM`), requests (prompt: token ids; settings: of `SamplingParams`) and
arrivals, how many requests come at each step of the engine. Its result: the requests' tokens (or why one was refused), steps of
the model, preemptions, and what one call of the processor and of the drafter takes. It imports nothing of decgraph.

RUNNER "v2": model runner V2, whose kernels are Triton's and run in Triton's interpreter here; vLLM takes a Triton with a part
for CPUs. "two ranks": of a tensor-parallel group.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_HOST_IP": "127.0.0.1",
    "GLOO_SOCKET_IFNAME": "lo",
}


class Timed:
    """A function that counts its calls and their processor time."""

    def __init__(self, function: Any) -> None:
        self.function, self.calls, self.seconds = function, 0, 0.0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        begun = time.thread_time()
        try:
            return self.function(*args, **kwargs)
        finally:
            self.calls += 1
            self.seconds += time.thread_time() - begun

    def figures(self) -> dict[str, float]:
        return {"calls": self.calls, "ms": round(1000 * self.seconds / max(1, self.calls), 2)}


def run(job: dict[str, Any]) -> dict[str, Any]:
    """One job, with an engine of its own."""
    from vllm import LLM, SamplingParams

    kwargs = {"dtype": "float32", "enforce_eager": True, "max_model_len": 512, "disable_log_stats": False, **job["engine"]}
    llm = LLM(job["model"], **kwargs)
    engine = llm.llm_engine
    ranks = kwargs.get("tensor_parallel_size", 1)
    runner = None if ranks > 1 else engine.model_executor.driver_worker.worker.model_runner  # else in processes of their own
    parts = timed(runner)
    waiting, outputs = list(enumerate(job["requests"])), {}
    arrivals = iter(job.get("arrivals", ()))
    while waiting or engine.has_unfinished_requests():
        for _ in range(min(next(arrivals, len(waiting)), len(waiting))):
            number, request = waiting.pop(0)
            params = SamplingParams(**request["settings"])
            try:
                engine.add_request(str(number), {"prompt_token_ids": request["prompt"]}, params)
            except ValueError as error:
                outputs[number] = str(error)
        for done in engine.step():
            if done.finished:
                outputs[int(done.request_id)] = list(done.outputs[0].token_ids)
    counts = {m.name: m.value for m in llm.get_metrics() if hasattr(m, "value")}
    result = {
        "runner": type(runner).__module__,
        "tokens": [outputs[n] for n in range(len(outputs))],
        "preemptions": counts.get("vllm:num_preemptions", 0),
        "accepted": counts.get("vllm:spec_decode_num_accepted_tokens", 0),
        "drafted": counts.get("vllm:spec_decode_num_draft_tokens", 0),
        **{name: part.figures() for name, part in parts.items()},
    }
    del llm, engine, runner, parts
    gc.collect()
    return result


def timed(runner: Any) -> dict[str, Timed]:
    """The parts of a step, timed from now on."""
    if runner is None:
        return {}
    parts = {"forward": Timed(runner.execute_model)}
    runner.execute_model = parts["forward"]
    for processor in processors(runner):
        if hasattr(processor, "requests"):
            parts["processor"] = processor.apply = Timed(processor.apply)
    drafter = getattr(runner, "drafter", None) or getattr(runner, "speculator", None)
    if drafter is not None:
        parts["drafter"] = drafter.propose = Timed(drafter.propose)
    return parts


def processors(runner: Any) -> list[Any]:
    """The logits processors of a model runner, V1 or V2."""
    if hasattr(runner, "sampler") and hasattr(runner.sampler, "logits_processors"):
        return list(runner.sampler.logits_processors)
    return list(runner.input_batch.logitsprocs.all)


def interpret() -> None:
    """Have vLLM find a Triton with a part for CPUs, all of whose kernels are interpreted."""
    os.environ.update(TRITON_INTERPRET="1", VLLM_USE_V2_MODEL_RUNNER="1")
    from triton import backends

    class Driver:
        @classmethod
        def is_active(cls) -> bool:
            return True

    backends.backends["cpu"] = backends.Backend(compiler=None, driver=Driver)


def main(jobs: str, results: str, runner: str = "") -> None:
    os.environ.update(ENVIRONMENT)
    if runner == "two ranks":
        os.environ.update(VLLM_CPU_OMP_THREADS_BIND="0|1", VLLM_WORKER_MULTIPROC_METHOD="spawn")
    if runner == "v2":
        interpret()
    found = []
    for job in json.loads(Path(jobs).read_text()):
        begun = time.monotonic()
        found.append({**run(job), "wall": round(time.monotonic() - begun, 1)})
        print(job.get("name", ""), {k: v for k, v in found[-1].items() if k != "tokens"}, flush=True)
        Path(results).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
