"""Clients that people use, each in an environment of its own, of the versions that docs/serve.md names: they are installed
from the registries, so these tests are the nightly run's; where nothing can be installed they are skipped."""

from __future__ import annotations

import json
import shutil
import subprocess
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lib.server import served

import decgraph
from decgraph.serve.catalogue import Catalogue

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800)]
HERE = Path(__file__).parent / "clients"
TEMPLATE = (
    "{% if tools %}{% for t in tools %}{{ t.function.name }} {% endfor %}<tool_call>{{ '\n' }}{% endif %}"
    "{% for m in messages %}<{{ m.role }}> {{ m.content }}{{ '\n' }}{% endfor %}{% if add_generation_prompt %}<assistant> "
    "{% endif %}"
)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The shipped target with a chat template, as `chat`."""
    home = tmp_path_factory.mktemp("models") / "chat"
    home.mkdir()
    for file in decgraph.zoo.path("target").iterdir():
        (home / file.name).symlink_to(file)
    (home / "chat_template.jinja").write_text(TEMPLATE)
    with served(Catalogue(["prompt_lookup"], str(home))) as server:
        server.home = home
        yield server


def ran(command: list[str], **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=1500, **more)


def environment(folder: Path, *packages: str) -> Path:
    """The interpreter of a new environment with these packages."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    made = ran([str(python), "-m", "pip", "install", "-q", *packages])
    if made.returncode:
        pytest.skip(f"{packages} cannot be installed here: {made.stderr[-200:]}")
    return python


@pytest.mark.parametrize(
    ("script", "packages"),
    [("litellm_client.py", ("litellm==1.110.2",)), ("langchain_client.py", ("langchain-openai==1.7.4",))],
)
def test_a_client_in_python(running: Any, tmp_path: Path, script: str, packages: tuple[str, ...]) -> None:
    python = environment(tmp_path / "env", *packages)
    done = ran([str(python), str(HERE / script), running.url])
    assert not done.returncode, done.stderr


def test_the_client_in_javascript(running: Any, tmp_path: Path) -> None:
    if shutil.which("npm") is None:
        pytest.skip("there is no npm here")
    (tmp_path / "package.json").write_text("{}")
    made = ran(["npm", "install", "openai@7.57.0"], cwd=tmp_path)
    if made.returncode:
        pytest.skip(f"openai cannot be installed here: {made.stderr[-200:]}")
    shutil.copy(HERE / "openai_client.mjs", tmp_path)
    done = ran(["node", "openai_client.mjs", running.url], cwd=tmp_path)
    assert not done.returncode, done.stderr


def test_the_harness_gets_the_models_own_numbers(running: Any, tmp_path: Path) -> None:
    """Its log-likelihoods are those of transformers' model."""
    import torch
    import transformers

    python = environment(tmp_path / "env", "lm_eval[api]==0.4.13", "transformers<6")
    done = ran([str(python), str(HERE / "lm_eval_client.py"), running.url, str(running.home)], env={"HF_HUB_OFFLINE": "1"})
    assert not done.returncode, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    model = transformers.AutoModelForCausalLM.from_pretrained(running.home, dtype=torch.float32)
    read = transformers.AutoTokenizer.from_pretrained(running.home)

    def score(context: list[int], more: list[int]) -> tuple[float, bool]:
        ids = [*context, *more]
        with torch.no_grad():
            rows = model(torch.tensor([ids])).logits.log_softmax(-1)[0]
        places = range(len(context), len(ids))
        alone = sum(rows[n - 1, ids[n]].item() for n in places)
        return alone, all(rows[n - 1].argmax().item() == ids[n] for n in places)

    pairs = [("def main", "():"), ("import", " os"), ("for i in", " range"), ("return", " None\n")]
    for (context, more), (value, greedy) in zip(pairs, told["choices"], strict=True):
        before = read(context)["input_ids"]
        wanted, likeliest = score(before, read(context + more)["input_ids"][len(before) :])
        assert value == pytest.approx(wanted, abs=1e-3) and bool(greedy) == likeliest
    assert told["rolling"][0] < 0 and isinstance(told["text"][0], str)
