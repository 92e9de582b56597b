"""decgraph train: its loss falls, it goes on where it stopped, and its folders load and are as good as told."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from lib.lazily import rows, selfmade, training
from safetensors.torch import load_file

from decgraph import DecError, zoo
from decgraph.cli import main as cli
from decgraph.runtime.models import hf
from decgraph.zoo import loop
from decgraph.zoo.training import acceptance, eagle, teacher, texts
from decgraph.zoo.training.batches import padded
from decgraph.zoo.training.store import StoredRow, TokenStore
from decgraph.zoo.training.template import template_of

GOLDEN = Path(__file__).parents[1] / "fidelity" / "golden" / "heads" / "checkpoints"
TEMPLATE = "{% for m in messages %}<|bos|>{{ m['role'] }}: {{ m['content'] }}<|eos|>{% endfor %}<|bos|>answer: "
KINDS = ("drafter", "eagle", "medusa", "exit")


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama of 8 layers with random weights, the zoo's tokenizer and a chat template."""
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    folder = tmp_path_factory.mktemp("chat")
    torch.manual_seed(5)
    config = LlamaConfig(
        vocab_size=2048,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=8,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        initializer_range=0.3,
        bos_token_id=3,
        eos_token_id=0,
        pad_token_id=1,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(zoo.path("tokenizer"))
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty questions with answers, and two held-out prompts beside them."""
    folder = tmp_path_factory.mktemp("lines")
    rows = [{"prompt": f"what is {n} and {n}?", "response": f"it is {n + n}, as {n} + {n} = {n + n}"} for n in range(40)]
    (folder / "data.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    (folder / "prompts.txt").write_text("what is 91 and 91?\nwhat is 17 and 17?\n", encoding="utf-8")
    return folder


def job(kind: str, chat: Path, lines: Path, out: Path, **more: Any) -> training.TrainingJob:
    settings = {"steps": 6, "batch_tokens": 256, "answer": 12, "checkpoint_minutes": 1e9, "prompts": lines / "prompts.txt"}
    if kind == "drafter":
        settings["options"] = {"width": 32, "depth": 1}
    if kind == "eagle":
        settings["options"] = {"vocabulary": 64}
    return training.TrainingJob(kind, chat, out, **{"data": (lines / "data.jsonl",), **settings, **more})


@pytest.mark.parametrize("chunk", [1, 60, 4096])
def test_answers_written_together_are_those_written_one_by_one(chunk: int, chat: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts of all lengths, of which some answers end early: as transformers' `generate` writes each of them alone."""
    model, tokenizer, _ = teacher.load(chat)
    monkeypatch.setattr(teacher, "CHUNK", chunk)
    prompts = [tuple(tokenizer.encode("what is " + "91 and " * n + "1?")) for n in (3, 0, 7, 1, 1)]
    model.generation_config.eos_token_id = None
    alone = []
    for prompt in prompts:
        ids = torch.tensor([prompt])
        made = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=12, do_sample=False, pad_token_id=1)
        alone.append((made[0].tolist(), len(prompt)))
    ended = alone[0][0][len(prompts[0]) + 3]  # a token that ends answers below
    calls: list[int] = []
    plain = model.generate
    monkeypatch.setattr(model, "generate", lambda **given: calls.append(len(given["inputs"])) or plain(**given))
    assert teacher.answers(model, prompts, 12, pad=1) == alone
    assert sum(calls) == 5 and (max(calls) > 1) == (chunk > 1)
    model.generation_config.eos_token_id = [ended]
    cut = [ids[: ids.index(ended, start) + 1] if ended in ids[start:] else ids for ids, start in alone]
    assert [ids for ids, _ in teacher.answers(model, prompts, 12, pad=1)] == cut
    assert any(len(short) < len(ids) for short, (ids, _) in zip(cut, alone, strict=True))


def quiet(line: str) -> None:
    """Swallows what training says."""


@pytest.mark.parametrize("kind", KINDS)
def test_a_resumed_run_equals_an_uninterrupted_one_and_ctrl_c_exports(
    kind: str, chat: Path, lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training.train(job(kind, chat, lines, tmp_path / "whole"), quiet)
    steps = 0
    step_of = loop.Optimizer.step

    def interrupted(self: Any, lr: float) -> None:
        nonlocal steps
        steps += 1
        if steps == 3:
            os.kill(os.getpid(), signal.SIGINT)
        step_of(self, lr)

    monkeypatch.setattr(loop.Optimizer, "step", interrupted)
    stopped = training.train(job(kind, chat, lines, tmp_path / "parts"), quiet)
    assert (stopped.outcome.steps, stopped.outcome.finished) == (3, False)
    assert (tmp_path / "parts" / "config.json").exists()
    monkeypatch.setattr(loop.Optimizer, "step", step_of)
    resumed = training.train(job(kind, chat, lines, tmp_path / "parts", resume=True), quiet)
    assert resumed.outcome.finished
    states = [torch.load(tmp_path / f"{name}.work" / f"{kind}.pt", weights_only=True) for name in ("whole", "parts")]
    assert states[0]["step"] == states[1]["step"] == 6
    assert states[0]["loss"] == states[1]["loss"]
    for name, value in states[0]["model"].items():
        assert torch.equal(value, states[1]["model"][name]), name


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_more_steps_bring_a_lower_loss(kind: str, chat: Path, lines: Path, tmp_path: Path) -> None:
    """On the text itself: the loss of one batch under the weights of two lengths of run."""
    work = tmp_path / "work"
    losses = []
    for steps in (1, 40):
        training.train(job(kind, chat, lines, tmp_path / kind, steps=steps, work=work), quiet)
        model, _, _ = teacher.load(chat)
        learnt = TokenStore(work / "text", _origin(work / "text")).texts()
        student = training.STUDENTS[kind](model, texts=learnt, **job(kind, chat, lines, tmp_path).options)
        student.module.load_state_dict(torch.load(work / f"{kind}.pt", weights_only=True)["model"])
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            losses.append(student.loss(padded(learnt)).item())
    assert losses[1] < losses[0]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_folder_is_as_good_as_its_card_says(kind: str, chat: Path, lines: Path, tmp_path: Path) -> None:
    """The folder is loaded as a user would, and its chain is simulated once more."""
    report = training.train(job(kind, chat, lines, tmp_path / kind, steps=25), quiet)
    told = json.loads((tmp_path / kind / "training.json").read_text())
    assert told["acceptance"] == report.acceptance.record()
    assert f"{report.acceptance.tokens_per_call:.2f} tokens per target call" in (tmp_path / kind / "README.md").read_text()
    model, _, _ = teacher.load(chat)
    held = TokenStore(tmp_path / f"{kind}.work" / "held-out", _origin(tmp_path / f"{kind}.work" / "held-out")).texts()
    weights = load_file(tmp_path / kind / "model.safetensors")
    ids = weights["d2t"] + torch.arange(len(weights["d2t"])) if kind == "eagle" else None
    student = training.STUDENTS[kind](
        model, **{**job(kind, chat, lines, tmp_path).options, **({"ids": ids} if kind == "eagle" else {})}
    )
    student.module.load_state_dict(
        {n: v.float() if v.is_floating_point() else v for n, v in weights.items()}, strict=kind not in ("drafter", "eagle")
    )
    again = acceptance.measure(student, held)
    # The folder is bfloat16: a near-tie may fall the other way.
    assert again.tokens_per_call == pytest.approx(report.acceptance.tokens_per_call, abs=0.25)
    assert again.places == report.acceptance.places


@pytest.mark.slow
@pytest.mark.parametrize("written", [False, True])
def test_an_eagle_head_leaves_its_output_matrix_to_the_target(written: bool, chat: Path, lines: Path, tmp_path: Path) -> None:
    """Its folder holds the matrix only if asked; without it a loaded head has the target's rows."""
    options = {"vocabulary": 64, "output_matrix": written}
    training.train(job("eagle", chat, lines, tmp_path / "eagle", steps=1, options=options), quiet)
    stored = load_file(tmp_path / "eagle" / "model.safetensors")
    assert ("lm_head.weight" in stored) == written
    assert {tensor.dtype for tensor in stored.values() if tensor.is_floating_point()} == {torch.bfloat16}
    target: Any = hf.load_causal(chat)
    head: Any = hf.load_features(tmp_path / "eagle", target)
    rows = target.net.output[stored["d2t"] + torch.arange(64)]
    torch.testing.assert_close(head.module.output.matrix.weight, rows.bfloat16().float() if written else rows, atol=0, rtol=0)


def _origin(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "manifest.json").read_text())["origin"])


def test_eagle_has_the_logits_of_the_authors_code() -> None:
    """The recorded logits of the official loader, of a pair of true features and of the head's own second step."""
    from transformers import AutoModelForCausalLM

    told = json.loads((GOLDEN / "eagle3" / "logits_check.json").read_text())
    weights = torch.load(GOLDEN / "eagle3" / "pytorch_model.bin", weights_only=True)
    config = json.loads((GOLDEN / "eagle3" / "config.json").read_text())
    head = eagle.Eagle3(config, weights["d2t"] + torch.arange(len(weights["d2t"])))
    head.load_state_dict(weights)
    target = AutoModelForCausalLM.from_pretrained(GOLDEN / "target8", dtype=torch.float32).eval()
    ids = torch.tensor([told["input"]])
    with torch.no_grad():
        hidden = target(ids, output_hidden_states=True).hidden_states
        states = torch.cat([hidden[layer] for layer in eagle.feature_layers(8)], -1)
        # The second step of the last base reads one token more and no feature of it.
        states = torch.cat((states[:, :-1], states[:, -1:]), 1)
        tokens = torch.cat((ids[:, 1:], torch.tensor([[told["second_level_token"]]])), 1)
        first, second = head.unroll(states, target.get_input_embeddings()(tokens), 2)
        torch.testing.assert_close(head.logits(first)[0, :-1], torch.tensor(told["logits"]), atol=3e-5, rtol=0)
        last = head.logits(second)[0, -1:]
    torch.testing.assert_close(last, torch.tensor(told["second_level_logits"]), atol=3e-5, rtol=0)


def test_rows_written_together_are_what_generate_writes_for_each(chat: Path) -> None:
    """Places that finished rows leave are taken by new ones; every row's text and states are those of the row alone."""
    model, tokenizer, _ = teacher.load(chat)
    template = template_of(tokenizer)
    asked = [tokenizer.encode(f"what is {n} and {'more ' * (n % 4)}?", add_special_tokens=False) for n in range(7)]
    recipe = selfmade.Recipe(answer=20, greedy=1.0)
    plain, _, _ = teacher.load(chat)
    written = selfmade.write(model, template, tokenizer, seed=1, rows=3, recipe=recipe, features=(2, 8), questions=iter(asked))
    count = 0
    for row in written:
        count += 1
        before = torch.tensor([row.ids[: row.answer]])
        alone = plain.generate(before, max_new_tokens=len(row.ids) - row.answer, do_sample=False)[0].tolist()
        assert row.ids == alone
        hidden = plain(torch.tensor([row.ids]), output_hidden_states=True).hidden_states
        states = torch.cat((hidden[2], hidden[8]), -1)[0, :-1]
        assert row.features is not None
        torch.testing.assert_close(row.features, states, atol=1e-4, rtol=1e-4)
    assert count == len(asked)


def test_the_model_writes_its_own_questions_the_same_for_a_seed(chat: Path) -> None:
    model, tokenizer, _ = teacher.load(chat)
    template = template_of(tokenizer)
    recipe = selfmade.Recipe(question=12, answer=12)

    def some(seed: int) -> list[list[int]]:
        rows = selfmade.write(model, template, tokenizer, seed=seed, rows=4, recipe=recipe)
        return [next(rows).ids for _ in range(9)]

    first = some(3)
    assert first == some(3) != some(4)
    for ids in first:
        assert ids[: len(template.opening)] == template.opening
        text = tokenizer.decode(ids)
        assert "answer: " in text
    assert len({tuple(ids) for ids in first}) == 9


def test_a_loop_is_seen_at_any_period() -> None:
    assert selfmade.loops([1, 2, 3] * 40)
    assert not selfmade.loops(list(range(200)))
    assert not selfmade.loops([1, 2, 3] * 10), "too short to tell"


def test_a_batch_counts_answers_in_full_and_never_what_follows_the_last_token() -> None:
    rows = [StoredRow(torch.arange(9), 6, torch.zeros(9, 4)), StoredRow(torch.arange(12), 0, torch.zeros(12, 4))]
    counts = padded(rows).counts
    assert counts[0].tolist() == pytest.approx([0, 0, 0, 0, 0.3, 1, 1, 1, 0, 0, 0, 0])
    assert counts[1].tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 0]


class Scripted:
    """A student whose drafts are right at given places only."""

    gamma = 3

    def __init__(self, right: list[int]) -> None:
        self.module, self.right = torch.nn.Identity(), right

    def guesses(self, text: StoredRow) -> list[torch.Tensor]:
        """Token p + 1 + s is guessed right when p + s is among the right places."""
        places = range(len(text.ids) - 1)
        chain = torch.tensor([int(text.ids[p + 1]) if p in self.right else -1 for p in places])
        return [chain[step:] for step in range(self.gamma)]


def test_tokens_per_call_by_hand() -> None:
    text = StoredRow(torch.arange(10, 20), 2, torch.zeros(10, 1))
    # From place 2: 2 and 3 right, 4 wrong -> 3 tokens; from 5: wrong -> 1; from 6: 6, 7 and 8 right -> the end.
    found = acceptance.measure(Scripted([2, 3, 6, 7, 8]), [text], gamma=3)  # type: ignore[arg-type]
    assert found.tokens_per_call == pytest.approx(7 / 3)
    assert found.by_gamma[0] == pytest.approx(7 / 5), "chains of one: 2-3, 4, 5, 6-7, 8 and the end"
    assert found.by_depth == pytest.approx((5 / 7, 3 / 7, 1 / 7))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "x", "neither a .txt nor a .jsonl"),
        ("a.jsonl", "{", "line 1: not JSON"),
        ("a.jsonl", "[1]", "line 1: not a JSON object"),
        ("a.jsonl", '{"question": "x"}', "line 1: neither text"),
        ("a.jsonl", '{"messages": [{"role": "user", "content": "x"}]}', "the last message is not the assistant's"),
        ("a.jsonl", '{"messages": ["x"]}', "an object with role and content"),
        ("a.txt", "", "there is no text"),
    ],
)
def test_a_wrong_data_file_is_told(name: str, content: str, message: str, chat: Path, tmp_path: Path) -> None:
    _, tokenizer, _ = teacher.load(chat)
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(DecError, match=message):
        texts.read([tmp_path / name], tokenizer, length=64)
    with pytest.raises(DecError, match="cannot be read"):
        texts.read([tmp_path / "not there.txt"], tokenizer, length=64)


def test_changed_text_is_noticed(chat: Path, lines: Path, tmp_path: Path) -> None:
    training.train(job("drafter", chat, lines, tmp_path / "d", steps=1), quiet)
    part = tmp_path / "d.work" / "text" / "part-0000.safetensors"
    part.write_bytes(part.read_bytes()[:-1] + b"\x01")
    with pytest.raises(DecError, match="is not the file that was written"):
        training.train(job("drafter", chat, lines, tmp_path / "d", steps=1), quiet)
    with pytest.raises(DecError, match="made from something else"):
        training.train(job("medusa", chat, lines, tmp_path / "d", steps=1, seed=4), quiet)


def test_what_cannot_be_trained_is_told(chat: Path, lines: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = str(lines / "data.jsonl")
    for words, message in (
        (["tree", "--model", str(chat), "--self"], "drafter, eagle, medusa, exit"),
        (["eagle", "--model", str(chat)], "--self"),
        (["eagle", "--model", str(chat), "--self", "--data", data], "one of them"),
        (["eagle", "--model", str(tmp_path), "--self"], "no config.json"),
        (["eagle", "--model", "target", "--self"], "with 6 layers these are not three"),
        (["drafter", "--model", "target", "--self"], "no chat template"),
        (["drafter", "--model", str(chat), "--data", data, "--heads", "3"], "--heads belongs to"),
        (["exit", "--model", str(chat), "--data", data, "--exit-layer", "8"], "no layer 8"),
        (["drafter", "--model", str(chat), "--data", data, "--width", "33"], "whole number of heads"),
    ):
        code = cli.main(["train", *words, "--steps", "1", "--out", str(tmp_path / "out")])
        assert code == 1, words
        assert message in capsys.readouterr().err.replace("\n", " "), words


def test_the_command_trains_from_the_models_own_text(chat: Path, lines: Path, tmp_path: Path, capsys: Any) -> None:
    words = [
        "train",
        "eagle",
        "--model",
        str(chat),
        "--self",
        "--tokens",
        "600",
        "--rows",
        "8",
        "--steps",
        "2",
        "--answer",
        "8",
    ]
    words += ["--draft-vocabulary", "32", "--prompts", str(lines / "prompts.txt"), "--out", str(tmp_path / "head"), "--json"]
    assert cli.main(words) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["finished"] and told["acceptance"]["tokens_per_call"] >= 1
    assert json.loads((tmp_path / "head" / "config.json").read_text())["architectures"] == ["LlamaForCausalLMEagle3"]
    manifest = json.loads((tmp_path / "head.work" / "text" / "manifest.json").read_text())
    assert sum(part["tokens"] for part in manifest["parts"]) >= 600


def test_rows_refuse_a_model_whose_attention_they_would_change() -> None:
    from transformers import Gemma2Config, Gemma2ForCausalLM

    small = Gemma2ForCausalLM(
        Gemma2Config(
            vocab_size=32,
            hidden_size=16,
            intermediate_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=8,
        )
    )
    with pytest.raises(DecError, match="attention"):
        rows.TrainingRows(small, [1, 2], 2, 16, None)


@pytest.mark.slow
@pytest.mark.parametrize("name", ("drafter", "medusa", "eagle", "exit"))
def test_the_zoo_trains_its_own_by_the_same_code(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shipped formats come out; a second run takes the pool as it is. A few files of the library are text enough."""
    from transformers import AutoModel, AutoModelForCausalLM

    from decgraph.zoo import modeling
    from lab.shipped import data, heads

    assert modeling.__name__  # registers the heads
    files, tasks = data.library_files()[:12], data.task_lines(40, 0)
    monkeypatch.setattr(data, "library_files", lambda: files)
    monkeypatch.setattr(data, "task_lines", lambda count, seed: tasks)
    budget = loop.Budget(work=tmp_path / "work", steps=2)
    sizes = {"written": 4, "plain": 6}
    first = heads.train(name, tmp_path / name, zoo.path("target"), budget, **sizes)
    parts = sorted((tmp_path / "work").rglob("part-*"))
    stamps = [part.stat().st_mtime_ns for part in parts]
    again = heads.train(name, tmp_path / name, zoo.path("target"), budget, **sizes)
    assert [part.stat().st_mtime_ns for part in parts] == stamps and parts
    assert (first.steps, first.loss) == (again.steps, again.loss) == (2, again.loss)
    loader = AutoModelForCausalLM if name == "drafter" else AutoModel
    shapes = [{n: p.shape for n, p in loader.from_pretrained(f).named_parameters()} for f in (tmp_path / name, zoo.path(name))]
    assert shapes[0] == shapes[1]
