"""The lines that an exported folder's README.md shows, as a reader runs them: on the shipped models, with paths for names."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from lib.stdlib.table_models import SHELF

import decgraph
from decgraph import zoo
from decgraph.errors import DecError
from decgraph.hf import export
from decgraph.runtime.sources import HEADS, main_parameter, wanted_by

QUICK = ("fast_dllm", "speculative")
KINDS = (
    *("autoregressive", "beam", "mirostat"),  # one causal model; a search, which returns texts; one that reads no settings
    *("proxy_tuning", "eagle2", "dspark", "medusa", "specdec_pp", "kangaroo", "judge_decoding", "reward_guided_sd"),
    *("heterogeneous_vocab", "specdiff"),  # another vocabulary; a masked drafter
    *("llada", "apd", "code_var", "joint_sampler", "dream", "arpg", "sdlm"),
)
OTHERS = [pytest.param(name, marks=pytest.mark.nightly) for name in SHELF if name not in (*QUICK, *KINDS)]
LENGTH = 16


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The shipped models, to be loaded in float32, where no two tokens are as likely as each other."""
    root = tmp_path_factory.mktemp("exact")

    def folder(name: str) -> Path:
        made = root / name
        if not made.exists():
            made.mkdir()
            for file in zoo.path(name).iterdir():
                (made / file.name).symlink_to(file)
            config = json.loads((made / "config.json").read_text(encoding="utf-8"))
            (made / "config.json").unlink()
            (made / "config.json").write_text(json.dumps({**config, "dtype": "float32"}), encoding="utf-8")
        return made

    return folder


class Mine(torch.nn.Module):
    """A head that is given tokens beside states."""

    def __init__(self, width: int, outputs: int) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.token, self.out = torch.nn.Embedding(2048, width), torch.nn.Linear(width, outputs)

    def forward(self, states: Any, tokens: Any) -> Any:
        return self.out(torch.tanh(states + self.token(tokens)))


def heads(at: Path, width: int, *, medusa: bool = False) -> Path:
    """A folder that the package does not bring: Medusa heads of another model, or a head with one value."""
    from safetensors.torch import save_file

    torch.manual_seed(1)
    at.mkdir()
    if medusa:
        linear = {"weight": (width, width), "bias": (width,)}
        weights = {f"{n}.0.linear.{part}": torch.randn(size) * 0.1 for n in range(3) for part, size in linear.items()}
        torch.save(weights | {f"{n}.1.weight": torch.randn(2048, width) * 0.1 for n in range(3)}, at / "medusa_lm_head.pt")
        config = {"medusa_num_heads": 3, "medusa_num_layers": 1}
    else:
        config = {"model_type": "decgraph_head", "sizes": [width, 1]}
        layer = torch.nn.Linear(width, 1)
        save_file({f"layers.0.{name}": weight.detach() for name, weight in layer.named_parameters()}, at / "model.safetensors")
    (at / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return at


def given(algorithm: decgraph.Algorithm, exact: Callable[[str], Path], at: Path) -> dict[str, Any]:
    """A folder, or a module, for every model and head of an algorithm, by its name as `decgraph.run` takes it."""
    models: dict[str, Any] = {name: exact(it) for name, it in zoo.known().shipped(algorithm.function).items()}
    for name, one in wanted_by(algorithm.function).items():
        if one.gives == HEADS:
            own = models[name].name == "target"
            models[f"{name}.heads"] = exact("medusa") if own else heads(at / "heads", 128, medusa=True)
        if one.kind == "head":
            config = json.loads((models[one.family] / "config.json").read_text(encoding="utf-8"))
            if name == "router" and algorithm.name == "first_router":
                models[name] = torch.nn.ModuleList(torch.nn.Linear(256, 1) for _ in range(config["num_hidden_layers"]))
            elif algorithm.name in ("joint_sampler", "dspark_confident"):
                models[name] = Mine(256, 2048 if one.gives == "dist" else 1)
            else:
                models[name] = heads(at / name, config["hidden_size"])
    return models


def ran(folder: Path, main: str, models: Mapping[str, Any]) -> dict[str, Any]:
    """What the card's block of Python leaves behind, with a path for every name that is to be replaced."""
    (code,) = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    code = code.replace("THIS_REPOSITORY", str(folder)).replace("max_new_tokens=64", f"max_new_tokens={LENGTH}")
    for name, it in models.items():
        if isinstance(it, Path):
            code = code.replace('"MODEL"' if name == main else f'"{name.rpartition(".")[2].upper()}"', f'"{it}"')
        else:
            code = code.replace(f"\n{name} = ...", f"\n{name} = MODULES[{name!r}]")
    assert not re.search(r'="[A-Z]+"| = \.\.\.', code), code
    here: dict[str, Any] = {"MODULES": models}
    exec(code, here)
    return here


@pytest.mark.quick(*QUICK)
@pytest.mark.parametrize("name", [*QUICK, *KINDS, *OTHERS])
def test_the_lines_of_the_card_run(
    name: str, exact: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What they print is the text of `decgraph.run` at temperature 0, on the same folders."""
    algorithm = decgraph.load(name)
    if algorithm.module.externs:
        with pytest.raises(DecError, match="which a folder cannot carry"):
            export(algorithm, tmp_path / "it")
        return
    models = given(algorithm, exact, tmp_path)
    export(algorithm, tmp_path / "it")
    if name == "self_contrast_moe":
        with pytest.raises(DecError, match="none of its layers is a mixture of experts"):
            ran(tmp_path / "it", main_parameter(algorithm.function), models)
        return
    here = ran(tmp_path / "it", main_parameter(algorithm.function), models)
    prompt = here["inputs"]["input_ids"][0].tolist()
    expected = decgraph.run(name, prompt, models, max_tokens=LENGTH, temperature=0)
    assert expected.error is None
    tokens = expected.results[0] if expected.results and not expected.tokens else expected.tokens
    assert here["out"].tolist() == [[*prompt, *tokens]]
    assert capsys.readouterr().out == here["tokenizer"].decode([*prompt, *tokens]) + "\n"


class Log:
    """A streamer that keeps what it is told."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.ended = 0

    def put(self, value: Any) -> None:
        self.tokens += value.flatten().tolist()

    def end(self) -> None:
        self.ended += 1


def banned(_: Any, scores: Any) -> Any:
    """A logits processor: no token below 20."""
    return scores.index_fill(1, torch.arange(20), -float("inf"))


def loaded(program: str, at: Path) -> tuple[Any, Callable[..., Any]]:
    """A small random model for a program, and a function that decodes with it as the program's card says."""
    import transformers

    algorithm = decgraph.load(program)
    export(algorithm, at)
    sizes = {"vocab_size": 60, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "initializer_range": 0.4}
    torch.manual_seed(0)
    if algorithm.models[main_parameter(algorithm.function)] == "masked":
        model = transformers.EuroBertForMaskedLM(transformers.EuroBertConfig(**sizes, **ids, mask_token_id=59)).eval()
        generate = transformers.GenerationMixin.load_custom_generate(model, str(at), trust_remote_code=True)
        return model, lambda ids, **more: generate(model, input_ids=ids, **more)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, **ids)).eval()
    return model, lambda ids, **more: model.generate(ids, custom_generate=str(at), trust_remote_code=True, **more)


SETTINGS: dict[str, Any] = {
    "do_sample": True,
    "temperature": 0.7,
    "top_k": 5,
    "top_p": 0.6,
    "min_p": 0.2,
    "repetition_penalty": 1.3,
    "suppress_tokens": [4, 5],
    "max_new_tokens": 5,
    "min_new_tokens": 3,
    "eos_token_id": [2, 3],
    "logits processors": banned,
    "streamer": None,
    "stopping criteria": None,
}


@pytest.mark.quick("mirostat", "klass")
@pytest.mark.parametrize("program", ["autoregressive", "mirostat", "beam", "klass", "saber"])
def test_the_settings_that_a_card_names(program: str, tmp_path: Path) -> None:
    """Each that it names is taken, and each that it refuses is refused."""
    _, decode = loaded(program, tmp_path / "it")
    card = (tmp_path / "it" / "README.md").read_text(encoding="utf-8").replace("\n", " ")
    said = card[card.index("It supports") : card.index("Other settings")]
    taken, _, refused = said.partition("It refuses")
    prompt = torch.tensor([[5, 9, 11, 7]])
    plain: dict[str, Any] = {"max_new_tokens": 6, "eos_token_id": None, "seed": 1}
    plain |= {"top_k": 0} if "`top_k`" in refused else {}  # which transformers draws with, if it is not told
    for name, value in SETTINGS.items():
        assert name in said or name == "logits processors", name
        log = Log()
        given = {
            "logits processors": {"logits_processor": [value], "do_sample": True},
            "streamer": {"streamer": log},
            "stopping criteria": {"stopping_criteria": [lambda ids, scores: torch.tensor([ids.shape[1] >= 6])]},
        }.get(name, {name: value, "do_sample": True})
        if name in refused or name not in said:
            with pytest.raises(DecError, match="would change nothing"):
                decode(prompt, **{**plain, **given})
            continue
        out = decode(prompt, **{**plain, **given})[0].tolist()
        assert out[:4] == prompt[0].tolist() and name in taken
        if name == "streamer":
            assert log.tokens == out and log.ended == 1
        wrong = {
            "suppress_tokens": {4, 5} & set(out[4:]),
            "logits processors": {t for t in out[4:] if t < 20},
            "max_new_tokens": len(out) > 9,
            "stopping criteria": len(out) > 6,
            "min_new_tokens": 2 in out[4:7],
        }
        assert not wrong.get(name), (name, out)


def test_a_masked_model_takes_what_generate_takes(tmp_path: Path) -> None:
    """Rows with padding, several texts of each, a configuration, an end; what generate refuses is refused, by name."""
    import transformers

    model, decode = loaded("klass", tmp_path / "it")
    ids, mask = torch.tensor([[5, 9, 11, 7], [0, 0, 8, 6]]), torch.tensor([[1, 1, 1, 1], [0, 0, 1, 1]])
    whole = {"attention_mask": mask, "max_new_tokens": 6, "length": 8, "block": 4}
    both = decode(ids, **whole)
    config = transformers.GenerationConfig(max_new_tokens=6, pad_token_id=0, eos_token_id=2)
    assert decode(ids, attention_mask=mask, length=8, block=4, generation_config=config).tolist() == both.tolist()
    assert config.max_new_tokens == 6, "the caller's own is left alone"
    door = decgraph.hf("klass", length=8, block=4)
    assert door(model, ids, attention_mask=mask, max_new_tokens=6).tolist() == both.tolist()
    assert decode(ids[1:, 2:], max_new_tokens=6, length=8, block=4)[0, 2:].tolist() == both[1, 4:].tolist()
    drawn = decode(ids, **whole, do_sample=True, num_return_sequences=3, seed=2)
    assert drawn.shape[0] == 6 and len({tuple(row) for row in drawn[:3].tolist()}) > 1
    end = both[0, 5].item()
    assert decode(ids[:1], max_new_tokens=6, length=8, block=4, eos_token_id=end)[0, 4:].tolist() == both[0, 4:6].tolist()
    for given, said in (
        ({"num_beams": 2}, "num_beams"),
        ({"max_time": 1.0}, "max_time"),
        ({"assistant_model": model}, "assistant_model"),
        ({"lenght": 3}, "lenght"),
    ):
        with pytest.raises(DecError, match=said):
            decode(ids, **whole, **given)
    with pytest.raises(DecError, match="no input_ids"):
        decode(None)


class Own(torch.nn.Module):
    """A masked model with code of its own: `generate` is something else there, as LLaDA 2's."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner, self.config = inner, inner.config

    def forward(self, input_ids: Any, attention_mask: Any = None) -> Any:
        return self.inner(input_ids)

    def generate(self, inputs: Any, steps: int = 32) -> Any:
        raise AssertionError("the model's own loop was called")


def test_masked_models_of_every_sort(tmp_path: Path) -> None:
    """Without `generate`; with one of their own; and decoders of transformers, whose `generate` takes the folder itself."""
    import transformers

    model, decode = loaded("klass", tmp_path / "it")
    ids, settings = torch.tensor([[5, 9, 11, 7]]), {"max_new_tokens": 6, "length": 8, "block": 4}
    generate = transformers.GenerationMixin.load_custom_generate(None, str(tmp_path / "it"), trust_remote_code=True)
    said = {"shift": False, "visibility": "full", "mask_token": 59}
    assert generate(Own(model), input_ids=ids, **settings, **said).tolist() == decode(ids, **settings).tolist()
    sizes = {"vocab_size": 60, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
    llama = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, initializer_range=0.4)).eval()
    folder = {"custom_generate": str(tmp_path / "it"), "trust_remote_code": True}
    with pytest.raises(DecError, match="mask_token"):
        llama.generate(ids, **folder, **settings)
    out = llama.generate(ids, **folder, **settings, **said, pad_token_id=0)
    assert out.tolist() == generate(llama, input_ids=ids, **settings, **said, pad_token_id=0).tolist()
    masked = decgraph.masked(llama, **said)
    run = decgraph.run("klass", ids[0].tolist(), masked, params={"length": 8, "block": 4}, max_tokens=6, eos=frozenset({2}))
    assert out[0, 4:].tolist() == list(run.tokens)
