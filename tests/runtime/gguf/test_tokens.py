"""Tokenizers of GGUF files: the ids that their models were trained with, as llama.cpp has them."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import decgraph
from decgraph.errors import DecError
from decgraph.runtime.chat import tokens_of
from decgraph.runtime.models.folders import ends
from decgraph.runtime.models.gguf.tokens import PRE_TOKENIZERS
from decgraph.runtime.text import Tokenizer

pytest.importorskip("gguf")
from lib.models import gguf_files as written

TEXTS = (
    "def add(a, b):\n    return a + b", "Ünïcode, naïve café 🙂 I'LL don't", "don't  stop 2024 12345678", "a<|x|>b", "▁x",
    " \n\n x 12345  \t\r\n y", "日本語のテキスト", "", " ", "hello  world the quick",
)  # fmt: skip
WORDS = "the quick brown fox hello world return def add text stop don"


def pieces(out: Any, prefix: bool | None) -> None:
    """A vocabulary of SentencePiece's: bytes, beginnings of words, and letters."""
    made = dict.fromkeys(w[:n] for word in WORDS.split() for w in [f"\u2581{word}"] for n in range(2, len(w) + 1))
    made |= dict.fromkeys([word[n : n + 2] for word in WORDS.split() for n in range(len(word) - 1)] + ["\u2581\u2581"])
    made |= dict.fromkeys("\u2581abcdefghijklmnopqrstuvwxyz")
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{n:02X}>" for n in range(256)), *made, "<|x|>"]
    tokens += [f"[unused {n}]" for n in range(len(tokens), written.SIZES["vocab_size"])]
    out.add_tokenizer_model("llama")
    out.add_tokenizer_pre("default")
    out.add_token_list(tokens)
    out.add_token_types([2, 3, 3, *[6] * 256, *[1] * len(made), 4, *[5] * (len(tokens) - 260 - len(made))])
    out.add_token_scores([-float(n % 40) if 259 <= n < 259 + len(made) else 0.0 for n in range(len(tokens))])
    out.add_bos_token_id(1)
    out.add_eos_token_id(2)
    if prefix is not None:
        out.add_add_space_prefix(prefix)


def bytes_of(out: Any, pre: str) -> None:
    """The shipped models' vocabulary, its texts split as `pre` says."""

    class Renamed:
        def __getattr__(self, name: str) -> Any:
            return getattr(out, name) if name != "add_add_bos_token" else lambda add: None

        def add_tokenizer_pre(self, _: str) -> None:
            out.add_tokenizer_pre(pre)

    written._write_vocabulary(Renamed(), decgraph.zoo.path("target"), written.SIZES)


KINDS = {"pieces": lambda out: pieces(out, None), "pieces without a space before": lambda out: pieces(out, False)} | {
    pre: (lambda out, pre=pre: bytes_of(out, pre)) for pre in ("gpt-2", "smollm", "qwen2", "llama-bpe")
}


@pytest.mark.parametrize("kind", KINDS)
def test_ids_are_llama_cpps(kind: str, tmp_path: Path) -> None:
    xllamacpp = pytest.importorskip("xllamacpp")
    path = written.write(tmp_path / "a.gguf", "llama", written.module_of("llama"), vocabulary=KINDS[kind])
    wanted = xllamacpp.CommonParams()
    wanted.model.path, wanted.n_ctx, wanted.n_gpu_layers, wanted.n_parallel, wanted.fit_params = str(path), 64, 0, 1, False
    server, mine = xllamacpp.Server(wanted), Tokenizer(path)
    for text in TEXTS:
        body = json.dumps({"content": text, "add_special": True, "parse_special": True}).encode()
        request = urllib.request.Request(f"{server.listening_address}/tokenize", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=20) as answer:
            assert list(mine.encode(text)) == json.load(answer)["tokens"], text


def test_pieces_are_joined_by_their_scores(tmp_path: Path) -> None:
    """As llama.cpp had them when this was written."""
    path = written.write(tmp_path / "a.gguf", "llama", written.module_of("llama"), vocabulary=KINDS["pieces"])
    tokenizer = Tokenizer(path)
    found = [tokenizer.spelled(n) for n in tokenizer.encode("hello  world é<|x|>don")]
    assert found == ["<s>", "▁hello", "▁", "▁world", "▁", "<0xC3>", "<0xA9>", "<|x|>", "▁don"]
    assert tokenizer.decode(tokenizer.encode("hello  world é 🙂")) == " hello  world é 🙂"


def test_a_vocabulary_of_bytes_is_the_folders(tmp_path: Path) -> None:
    path = written.write(tmp_path / "a.gguf", "llama", written.module_of("llama"), vocabulary=KINDS["gpt-2"])
    mine, theirs = Tokenizer(path), Tokenizer(decgraph.zoo.path("target"))
    special = set(theirs.detokenizer.special)
    for text in TEXTS:
        ids = [n for n in theirs.encode(text) if n not in special]
        assert mine.decode(ids) == theirs.decode(ids)
    assert {theirs.spelled(n) for n in special} <= set(mine.detokenizer.special.values())


def test_messages_go_through_the_files_template(tmp_path: Path) -> None:
    template = "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}{{ eos_token }}"

    def chatting(out: Any) -> None:
        KINDS["gpt-2"](out)
        out.add_chat_template(template)

    path = written.write(tmp_path / "a.gguf", "llama", written.module_of("llama"), vocabulary=chatting)
    tokenizer = Tokenizer(path)
    begin, end = (tokenizer.spelled(n) for n in (0, 1))
    assert tokens_of(tokenizer, [{"role": "user", "content": "hi"}]) == tokenizer.encode_part(f"{begin}[user]hi{end}")
    assert ends(path) == {1}
    bare = written.write(tmp_path / "b.gguf", "llama", written.module_of("llama"))
    with pytest.raises(DecError, match="no chat template"):
        tokens_of(Tokenizer(bare), [{"role": "user", "content": "hi"}])


def test_a_file_without_a_tokenizer_takes_ids(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written.write(tmp_path / "a.gguf", "llama", written.module_of("llama"), vocabulary=lambda out: None)
    session = decgraph.load("autoregressive").session(str(path), device="cpu")
    assert len(session.generate([[5, 6, 7]], max_tokens=3)[0].tokens) == 3
    with pytest.raises(DecError, match="tokenizer"):
        session.generate(["hi"], max_tokens=3)


def test_splits_of_texts_differ() -> None:
    assert len({json.dumps(split) for split in PRE_TOKENIZERS.values()}) == 5


def test_a_file_that_does_not_say_how_texts_are_split_is_warned_of(tmp_path: Path) -> None:
    """Then they are split as llama.cpp's default has it: three digits at a time, signs apart."""
    module = written.module_of("llama", tie_word_embeddings=True)
    path = written.write(tmp_path / "a.gguf", "llama", module, vocabulary=lambda out: bytes_of(out, ""))
    with pytest.warns(UserWarning, match=r"tokenizer\.ggml\.pre"):
        tokenizer = Tokenizer(path)
    words = tokenizer.backend.pre_tokenizer.pre_tokenize_str("it's 12345 a+=b")
    assert [word for word, _ in words] == ["it", "'", "s", "\u0120", "123", "45", "\u0120a", "+=", "b"]
