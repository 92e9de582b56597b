"""Files that are cut off, spoilt, or of something that is not read end in an error that says what to do."""

import random
import resource
from pathlib import Path

import pytest

from decgraph.cli.main import main
from decgraph.errors import DecError
from decgraph.runtime.models.gguf import file as gguf
from decgraph.runtime.models.hf import load_causal

pytest.importorskip("gguf")
from lib.models import gguf_files as written


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    module = written.module_of("qwen3", head_dim=32, tie_word_embeddings=False)
    return written.write(tmp_path_factory.mktemp("whole") / "whole.gguf", "qwen3", module, "Q8_0")


def spoilt(whole: Path, at: bytes, to: bytes, after: int = 0) -> bytes:
    """The file's bytes with others `after` so many behind the first place of `at`."""
    data = whole.read_bytes()
    place = data.index(at) + len(at) + after
    return data[:place] + to + data[place + len(to) :]


@pytest.mark.budget()
def test_each_mutant_is_read_or_refused(whole: Path, tmp_path: Path) -> None:
    """Cut off anywhere, and with bytes changed in its settings and tables: no other exception, and no memory to speak of."""
    data, made = whole.read_bytes(), random.Random(7)
    begin = min(entry.at for entry in gguf.read(whole).tensors.values())
    names = [
        n for n in range(begin) if data.startswith((b"qwen3.", b"general.", b"tokenizer.", b"blk.", b"output", b"token_"), n)
    ]
    before, outcomes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, set[bool]()
    for n in range(400):
        mutant = bytearray(data)
        if n % 5 == 0:
            mutant = mutant[: made.choice([made.randrange(64), made.randrange(begin), made.randrange(len(data))])]
        for _ in range(n % 5):
            place = made.choice([made.randrange(24), made.choice(names) + made.randrange(-12, 60)])
            mutant[max(0, place)] = made.choice([0, 1, 8, 9, 32, 127, 128, 255, made.randrange(256)])
        path = tmp_path / f"{n}.gguf"
        path.write_bytes(mutant)
        try:
            load_causal(path).eval([(1, 2, 3)])
            outcomes.add(True)
        except DecError as error:
            outcomes.add(False)
            assert str(error.diagnostics[0]).startswith(str(path))
        path.unlink()
    assert outcomes == {True, False}
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400 * 1024


SPOILT = {
    "nothing": (lambda whole: b"", "cannot be read"),
    "another format": (lambda whole: b"PK" + whole.read_bytes()[2:], "does not begin as a GGUF file does"),
    "a pointer of Git LFS": (lambda whole: b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
    "cut off in the tensors": (lambda whole: whole.read_bytes()[:-40], "ends at"),
    "cut off in the settings": (lambda whole: whole.read_bytes()[:3000], "it ends before its tensors begin"),
    "version 1": (lambda whole: spoilt(whole, b"GGUF", b"\1"), "it is of version 1 of the format, and 2 and 3 are read"),
    "big-endian": (lambda whole: spoilt(whole, b"GGUF", b"\0\0\0\3"), "its numbers are big-endian"),
    "as many settings as can be": (lambda whole: spoilt(whole, b"GGUF", b"\xff" * 7, 12), "it ends before its tensors begin"),
    "as many layers as can be": (
        lambda whole: spoilt(whole, b"qwen3.block_count", b"\xff\xff\xff\x7f", 4),
        "has 2147483647 for num_hidden_layers, which its tensors cannot have",
    ),
    "another architecture": (
        lambda whole: spoilt(whole, b"general.architecture", b"mamba", 12),
        "has the architecture mamba, which is not read from GGUF",
    ),
    "other blocks": (lambda whole: spoilt(whole, b"output.weight", b"\x14", 20), "output.weight in the form IQ4_NL"),
    "another setting": (
        lambda whole: whole.read_bytes().replace(b"qwen3.attention.value_length", b"qwen3.attention.other_length"),
        "has the setting qwen3.attention.other_length, which is not known here",
    ),
    "another tensor": (
        lambda whole: whole.read_bytes().replace(b"blk.1.attn_q_norm", b"blk.1.attn_q_nose"),
        "nothing reads blk.1.attn_q_nose.weight",
    ),
    "another tokenizer": (lambda whole: spoilt(whole, b"tokenizer.ggml.model", b"bert", 12), "a tokenizer of the kind bert"),
    "another split of texts": (
        lambda whole: spoilt(whole, b"tokenizer.ggml.pre", b"others", 12),
        "splits texts as 'others', which is not known here",
    ),
}


@pytest.mark.parametrize("what", SPOILT)
def test_the_command_says_what_is_wrong(what: str, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make, message = SPOILT[what]
    path = tmp_path / "a.gguf"
    path.write_bytes(make(whole))
    assert main(["run", "autoregressive", "-m", str(path), "-p", "hi", "-n", "2"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert message in said and "try:" in said and "Traceback" not in said


def test_what_is_no_causal_model_is_given_as_a_folder(whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "fast_dllm", "-m", str(whole), "-p", "hi"]) == 2
    assert "a GGUF file is read as a causal model" in " ".join(capsys.readouterr().err.split())
    assert main(["run", "autoregressive", "-m", str(tmp_path / "none.gguf"), "-p", "hi"]) == 2
    assert "there is no file" in " ".join(capsys.readouterr().err.split())


def test_one_file_of_several_is_refused(tmp_path: Path) -> None:
    module = written.module_of("qwen2")
    path = written.write(tmp_path / "a-00001-of-00002.gguf", "qwen2", module, parts=2)
    with pytest.raises(DecError, match="one of 2 files"):
        load_causal(path)
