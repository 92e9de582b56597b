"""`--model decgraph` of lm-evaluation-harness: the answers of lm_eval's own Hugging Face class, in batches of 1 and 8, with
stop sequences, settings, chat templates and log-likelihoods.

Skipped where lm_eval is not installed: it brings 480 MB (the extra `evals`).
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from lib.waiting import SECONDS

from decgraph import DecError, zoo

pytest.importorskip("lm_eval", reason="the extra evals is not installed")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

PROMPTS = (
    "def main():\n",
    "import os\nimport sys\n\n",
    "class Reader:\n    def __init__(self",
    "for i in range(",
    "    return self.",
    "def test_",
    "if not isinstance(value, str):\n    raise ",
    "a",
    "with open(path) as file:\n    data = file.read()\n",
)
ALGORITHMS: dict[str, dict[str, Any]] = {
    "speculative": {"drafter": "drafter", "gamma": 3},
    "prompt_lookup": {},
}
UNTIL = ["\n\n", "):", "nothing like it"]
TASKS = {
    "texts": {"output_type": "generate_until", "generation_kwargs": {"until": UNTIL, "max_gen_toks": 16, "do_sample": False},
              "metric_list": [{"metric": "exact_match"}]},
    "choices": {"output_type": "multiple_choice", "doc_to_choice": ["self", "None", "import", "return"],
                "metric_list": [{"metric": "acc"}]},
    "perplexity": {"output_type": "loglikelihood_rolling", "metric_list": [{"metric": "word_perplexity"}]},
}  # fmt: skip


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of tasks over a JSON file: no network."""
    folder = tmp_path_factory.mktemp("tasks")
    os.environ["HF_DATASETS_CACHE"] = str(folder / "cache")
    lines = [json.dumps({"text": text, "answer": i % 4}) for i, text in enumerate(PROMPTS)]
    (folder / "data.jsonl").write_text("\n".join(lines) + "\n")
    for name, task in TASKS.items():
        whole = {
            "task": name,
            "dataset_path": "json",
            "dataset_kwargs": {"data_files": {"test": str(folder / "data.jsonl")}, "cache_dir": str(folder / "cache")},
            "test_split": "test",
            "doc_to_text": "" if name == "perplexity" else "{{text}}",
            "doc_to_target": "{{text}}" if name == "perplexity" else "answer",
            **task,
        }
        (folder / f"{name}.yaml").write_text(json.dumps(whole))  # JSON is YAML
    return folder


def evaluated(tasks: Path, task: str, model: str, batch: int, arguments: dict[str, Any], **options: Any) -> tuple[list, dict]:
    """The responses to a task's requests in the order of its lines, and the results' configuration."""
    import lm_eval
    from lm_eval.tasks import TaskManager

    import decgraph.evals  # noqa: F401 - makes `decgraph` a name of lm_eval's

    made = lm_eval.simple_evaluate(
        model=model,
        model_args={"dtype": "float32", **arguments},
        tasks=[task],
        task_manager=TaskManager(include_path=str(tasks), include_defaults=False),
        batch_size=batch,
        device="cpu",
        log_samples=True,
        bootstrap_iters=0,
        **options,
    )
    samples = sorted(made["samples"][task], key=lambda s: s["doc_id"])
    return [[r[0] for r in s["resps"]] for s in samples], made["config"]


@pytest.fixture(scope="module")
def plain(tasks: Path) -> dict[str, list]:
    """What lm_eval's own class answers, one request at a time."""
    return {task: evaluated(tasks, task, "hf", 1, {"pretrained": str(zoo.path("target"))})[0] for task in TASKS}


@pytest.mark.parametrize("batch", [1, 8])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_texts_are_those_of_hf(algorithm: str, batch: int, tasks: Path, plain: dict[str, list]) -> None:
    arguments = {"pretrained": "target", "algorithm": algorithm, **ALGORITHMS[algorithm]}
    texts, config = evaluated(tasks, "texts", "decgraph", batch, arguments)
    assert texts == plain["texts"]
    assert len({text for (text,) in texts}) == len(PROMPTS) and all(stop not in text for (text,) in texts for stop in UNTIL)
    assert config["decgraph_tokens"] > config["decgraph_target_calls"] > 0
    assert config["decgraph_params"] == {n: str(v) for n, v in ALGORITHMS[algorithm].items() if n != "drafter"}


def test_rows_end_at_their_own_stop(tasks: Path) -> None:
    """Tokens after a stop sequence would be cut off unseen: rows of a batch that ended long ago commit none."""
    counts = []
    for batch in (1, 8):
        _, config = evaluated(tasks, "texts", "decgraph", batch, {"pretrained": "target", "algorithm": "autoregressive"})
        counts.append(config["decgraph_tokens"])
    assert counts[0] == counts[1] < 16 * len(PROMPTS)


@pytest.mark.parametrize("settings", ["max_gen_toks=5", "repetition_penalty=1.5", "until=self"])
def test_settings_of_generation(settings: str, tasks: Path) -> None:
    made = {}
    for model, more in (("hf", {}), ("decgraph", {"algorithm": "speculative", "drafter": "drafter"})):
        arguments = {"pretrained": str(zoo.path("target")), **more}
        made[model], _ = evaluated(tasks, "texts", model, 8, arguments, gen_kwargs=f"do_sample=False,{settings}")
    assert made["hf"] == made["decgraph"]


def test_sampling(tasks: Path, plain: dict[str, list]) -> None:
    """Sampled answers are repeatable by lm_eval's seed, differ from greedy ones, and change with the seed."""
    arguments = {"pretrained": "target", "algorithm": "speculative", "drafter": "drafter"}
    made = []
    for seed in (1, 1, 2):
        options = {"gen_kwargs": "do_sample=True,temperature=0.9,top_p=0.95", "torch_random_seed": seed}
        made.append(evaluated(tasks, "texts", "decgraph", 8, arguments, **options)[0])
    assert made[0] == made[1] != made[2] and made[0] != plain["texts"]


@pytest.mark.parametrize("batch", [1, 8])
@pytest.mark.parametrize("task", ["choices", "perplexity"])
def test_log_likelihoods(task: str, batch: int, tasks: Path, plain: dict[str, list]) -> None:
    arguments = {"pretrained": "target", "algorithm": "speculative", "drafter": "drafter"}
    made, _ = evaluated(tasks, task, "decgraph", batch, arguments)
    flat = [r for line in made for r in line]
    for ours, theirs in zip(flat, [r for line in plain[task] for r in line], strict=True):
        if isinstance(ours, float):
            assert ours == pytest.approx(theirs, rel=1e-5)
        else:
            assert float(ours[0]) == pytest.approx(float(theirs[0]), rel=1e-5) and ours[1] == theirs[1]


def test_log_likelihoods_after_texts(tasks: Path) -> None:
    """Decoding stores the module's weights anew; the module computes as before."""
    from lm_eval.api.instance import Instance

    from decgraph.evals import DecgraphLM

    lm = DecgraphLM("target", "prompt_lookup", dtype="float32", device="cpu")
    asked = [Instance("loglikelihood", {}, (text, " self"), i) for i, text in enumerate(PROMPTS)]
    before = lm.loglikelihood(asked)
    lm.generate_until([Instance("generate_until", {}, (PROMPTS[0], {"until": [], "max_gen_toks": 8}), 0)])
    for (now, greedy), (was, also) in zip(lm.loglikelihood(asked), before, strict=True):
        assert now == pytest.approx(was, rel=1e-5) and greedy == also


def test_chat_templates(tasks: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(zoo.path("target"), tmp_path / "chat")
    said = "{% for m in messages %}# {{ m['role'] }}\n{{ m['content'] }}\n{% endfor %}"
    (folder / "chat_template.jinja").write_text(said + "{% if add_generation_prompt %}# assistant\n{% endif %}")
    made = {}
    for model, more in (("hf", {}), ("decgraph", {"algorithm": "prompt_lookup"})):
        options = {"apply_chat_template": True, "system_instruction": "Write Python."}
        made[model], _ = evaluated(tasks, "texts", model, 8, {"pretrained": str(folder), **more}, **options)
    assert made["hf"] == made["decgraph"]


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"algorithm": "speculative"}, "needs the model `drafter`"),
        ({"algorithm": "speculative", "drafter": "drafter", "gama": 3}, "did you mean gamma"),
        ({"algorithm": "speculative", "drafter": "drafter", "gamma": 300}, "1..32"),
        ({"algorithm": "speculatif"}, "did you mean speculative"),
    ],
)
def test_refusals(arguments: dict[str, Any], word: str) -> None:
    from decgraph.evals import DecgraphLM

    with pytest.raises(DecError, match=word):
        DecgraphLM("target", device="cpu", **arguments)


def test_registering_twice() -> None:
    from lm_eval.api.registry import get_model

    import decgraph.evals

    decgraph.evals.register()
    assert get_model("decgraph") is decgraph.evals.DecgraphLM
    importlib.reload(decgraph.evals)
    assert get_model("decgraph") is decgraph.evals.DecgraphLM


def test_the_command(tasks: Path, tmp_path: Path, plain: dict[str, list]) -> None:
    command = [sys.executable, "-m", "decgraph.evals", "run", "--model", "decgraph", "--model_args",
               "pretrained=target,dtype=float32,algorithm=speculative,drafter=drafter,gamma=4", "--tasks", "texts",
               "--include_path", str(tasks), "--batch_size", "8", "--device", "cpu", "--output_path", str(tmp_path),
               "--log_samples"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    (samples,) = tmp_path.rglob("samples_texts_*.jsonl")
    lines = [json.loads(line) for line in samples.read_text().splitlines()]
    assert [line["resps"][0] for line in sorted(lines, key=lambda x: x["doc_id"])] == plain["texts"]
    command[command.index("--model_args") + 1] = "pretrained=target,algorithm=speculative"
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, cwd=tmp_path, check=False)
    assert done.returncode == 1 and "needs the model `drafter`" in done.stderr and "Traceback" not in done.stderr
