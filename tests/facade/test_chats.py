"""Messages as prompts: the tokens of transformers' chat templates, in Python and with `--chat`; and what ends an answer."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import decgraph
from decgraph import zoo
from decgraph.cli.main import main
from decgraph.models import request_for

TEMPLATE = """{{ bos_token }}{% for m in messages %}
{% if m['role'] == 'tool' %}{{ raise_exception('no tools here') }}{% endif %}
# {{ m['role'] }}
{{ m['content'] }}{{ eos_token }}
{% endfor %}{% if add_generation_prompt %}# assistant
{% endif %}"""
TALK = [{"role": "system", "content": "Short."}, {"role": "user", "content": "def main():"}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped target with a chat template that writes special tokens itself, as most do."""
    made = shutil.copytree(zoo.path("target"), tmp_path_factory.mktemp("chat") / "chat")
    (made / "chat_template.jinja").write_text(TEMPLATE)
    return made


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="module")
def session(folder: Path) -> Any:
    return decgraph.load("autoregressive").session({"target": folder})


def theirs(tokenizer: Any, talk: list[dict[str, str]], **options: Any) -> tuple[int, ...]:
    text = tokenizer.apply_chat_template(talk, tokenize=False, **options)
    return tuple(tokenizer(text, add_special_tokens=False).input_ids)


def test_messages_are_the_tokens_of_the_template(session: Any, tokenizer: Any) -> None:
    asked = request_for(session, TALK).prompt
    assert asked == theirs(tokenizer, TALK, add_generation_prompt=True)
    assert asked.count(tokenizer.bos_token_id) == 1  # a text's would be added once more


def test_an_answer_that_has_begun_goes_on(session: Any, tokenizer: Any) -> None:
    begun = [*TALK, {"role": "assistant", "content": "    return"}]
    assert request_for(session, begun).prompt == theirs(tokenizer, begun, continue_final_message=True)


def test_several_chats_at_once(session: Any) -> None:
    talks = [TALK, TALK[1:], [{"role": "user", "content": "import os"}]]
    alone = [session.run(request_for(session, talk, max_tokens=6)).tokens for talk in talks]
    assert [r.tokens for r in session.generate(talks, max_tokens=6)] == alone


@pytest.mark.parametrize("given", ["folder", "transformers", "decgraph"])
def test_the_template_of_a_tokenizer_that_is_given(given: str, folder: Path, tokenizer: Any) -> None:
    from decgraph.runtime.text import Tokenizer

    made = {"folder": folder, "transformers": tokenizer, "decgraph": Tokenizer(folder)}[given]
    session = decgraph.load("autoregressive").session({"target": "target"}, tokenizer=made)
    assert request_for(session, TALK).prompt == theirs(tokenizer, TALK, add_generation_prompt=True)


@pytest.mark.parametrize(
    ("talk", "word"),
    [
        ([{"role": "user"}], "message 0 of the prompt"),
        ([{"role": "user", "content": "a"}, {"text": "b"}], "message 1 of the prompt"),
        ([{"role": "tool", "content": "a"}], "no tools here"),
        ([{"role": "user", "content": "a"}, "b"], "message 1 of the prompt"),
    ],
)
def test_messages_that_are_none(talk: Any, word: str, session: Any) -> None:
    with pytest.raises(decgraph.DecError, match=word):
        request_for(session, talk)


def test_a_model_without_a_template(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(decgraph.DecError, match="no chat template"):
        decgraph.run("autoregressive", TALK)
    assert main(["run", "autoregressive", "-p", "hi", "--chat"]) == 2
    assert "no chat template" in capsys.readouterr().err


def test_chat_on_the_command_line(folder: Path, session: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = ["run", "autoregressive", "-m", f"target={folder}", "-n", "6", "--chat", "--system", "Short.", "--json"]
    expected = list(session.run(request_for(session, TALK, max_tokens=6)).tokens)
    assert main([*run, "-p", "def main():"]) == 0
    assert json.loads(capsys.readouterr().out)["tokens"] == expected
    (tmp_path / "prompts").write_text("def main():\n")
    assert main([*run, "--prompts", str(tmp_path / "prompts")]) == 0
    assert json.loads(capsys.readouterr().out)["results"][0]["tokens"] == expected


def test_a_system_message_needs_a_chat(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "autoregressive", "-p", "hi", "--system", "Short."]) == 2
    assert "--system goes with --chat" in capsys.readouterr().err


def _settings(folder: Path, **eos: Any) -> None:
    (folder / "generation_config.json").write_text(json.dumps({"pad_token_id": 1, **eos}))


def _without(folder: Path, **eos: Any) -> None:
    (folder / "generation_config.json").unlink()
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **eos}))


@pytest.mark.parametrize("module", [False, True])
@pytest.mark.parametrize("change", [_settings, _without])
@pytest.mark.parametrize("eos", [{}, {"eos_token_id": 7}, {"eos_token_id": [5, 7]}])
def test_texts_end_where_generate_ends_them(change: Callable[..., None], eos: dict, module: bool, tmp_path: Path) -> None:
    """The tokens that end a text, asked of `generate` itself: it is made to choose each of them, one a time."""
    import torch
    from transformers import AutoModelForCausalLM

    folder = shutil.copytree(zoo.path("target"), tmp_path / "model")
    change(folder, **eos)
    loaded = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    session = decgraph.load("autoregressive").session({"target": loaded if module else folder})
    size = session.models["target"].vocab.size
    ended = request_for(session, (9, 10)).eos
    for token in (0, 5, 7, 11):
        bans = [t for t in range(loaded.config.vocab_size) if t != token]
        out = loaded.generate(torch.tensor([[9, 10]]), suppress_tokens=bans, max_new_tokens=3, do_sample=False, pad_token_id=1)
        assert (out.shape[1] == 3) == (token in ended), (token, size)


@pytest.mark.parametrize("prompt", [5, None, 2.5])
def test_what_is_no_prompt(prompt: Any, session: Any) -> None:
    with pytest.raises(decgraph.DecError, match="is not a prompt"):
        request_for(session, prompt)
