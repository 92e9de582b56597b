"""What the models are trained on: the Python standard library's sources (PSF-2.0) and synthetic tasks.

The sources are those of the interpreter that runs this, so nothing is downloaded. Files are split by a hash
of their path inside the library: one file in sixteen is held out whole, and no held-out file is seen by the
tokenizer either.
"""

from __future__ import annotations

import hashlib
import random
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

from lab.shipped.tasks import KINDS, stream

if TYPE_CHECKING:
    import numpy as np
    from transformers import PreTrainedTokenizerFast

SKIPPED_FOLDERS = frozenset(
    {
        "test",
        "tests",
        "idlelib",
        "lib2to3",
        "encodings",
        "site-packages",
        "pydoc_data",
        "turtledemo",
        "__pycache__",
    }
)
HELD_OUT_ONE_IN = 16
MAX_FILE_BYTES = 400_000
SPECIAL_TOKENS = ("<|eos|>", "<|pad|>", "<|mask|>", "<|bos|>")
VOCAB_SIZE = 2048
CANVAS = 32


def library_files() -> list[Path]:
    """Every source file of the running interpreter's standard library that is used, in sorted order."""
    root = Path(sysconfig.get_paths()["stdlib"])
    files = []
    for file in sorted(root.rglob("*.py")):
        parts = file.relative_to(root).parts
        if SKIPPED_FOLDERS.isdisjoint(parts[:-1]) and file.stat().st_size <= MAX_FILE_BYTES:
            files.append(file)
    return files


def held_out(file: Path) -> bool:
    """Whether this file is held out for measuring: a fixed hash of its path inside the library."""
    root = Path(sysconfig.get_paths()["stdlib"])
    digest = hashlib.sha256(file.relative_to(root).as_posix().encode()).digest()
    return int.from_bytes(digest[:8], "big") % HELD_OUT_ONE_IN == 0


def library_texts(*, held: bool) -> list[str]:
    """The texts of one side of the split, one per file; files that are not UTF-8 are left out."""
    texts = []
    for file in library_files():
        if held_out(file) == held:
            try:
                texts.append(file.read_text(encoding="utf-8"))
            except UnicodeDecodeError:
                continue
    return texts


def task_lines(count: int, seed: int) -> list[str]:
    """`count` training tasks as lines of text, in a shuffled order of kinds."""
    rng = random.Random(f"decgraph-zoo lines {seed}")
    source = stream(seed)
    lines = [next(source).text for _ in range(count)]
    rng.shuffle(lines)
    return lines


def train_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    """Train the byte-level BPE tokenizer on the training side and save it in `folder` (tokenizer.json).

    Digits are always single tokens, so that copying, sorting and adding are tasks about tokens; every byte is
    in the alphabet, so any text round-trips.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    # Our own splitting: runs of blanks (indentation) stay whole, words take one leading blank, digits stand
    # alone.
    pieces = Regex(r" ?[^\W\d_]+|_+|\d| ?[^\w\s]+|[^\S\n ]+|\n+ *| +")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(pieces, behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(library_texts(held=False) + task_lines(20_000, seed=0), trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|eos|>",
        pad_token="<|pad|>",
        mask_token="<|mask|>",
        bos_token="<|bos|>",
        model_max_length=1024,
        clean_up_tokenization_spaces=False,
    )
    fast.save_pretrained(folder)
    return fast


def load_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    """The tokenizer saved in `folder`."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)


def encode(tokenizer: PreTrainedTokenizerFast, text: str) -> list[int]:
    """Token ids of `text`, with no special token added."""
    return tokenizer.encode(text, add_special_tokens=False, verbose=False)


def code_tokens(tokenizer: PreTrainedTokenizerFast, *, held: bool) -> np.ndarray:
    """One side of the library as int32[n], files in shuffled order, `<|eos|>` after each."""
    import numpy as np

    texts = library_texts(held=held)
    random.Random("decgraph-zoo files 0").shuffle(texts)
    ids: list[int] = []
    for text in texts:
        ids += [*encode(tokenizer, text), tokenizer.eos_token_id]
    return np.array(ids, dtype=np.int32)


def line_tokens(tokenizer: PreTrainedTokenizerFast, count: int, seed: int) -> np.ndarray:
    """`count` training tasks as int32[n], eight lines and an `<|eos|>` at a time."""
    import numpy as np

    lines = task_lines(count, seed)
    ids: list[int] = []
    for start in range(0, count, 8):
        ids += [*encode(tokenizer, "".join(lines[start : start + 8])), tokenizer.eos_token_id]
    return np.array(ids, dtype=np.int32)


def canvas_examples(
    tokenizer: PreTrainedTokenizerFast,
    count: int,
    seed: int,
    *,
    kinds: tuple[str, ...] = KINDS,
) -> list[tuple[list[int], list[int]]]:
    """`count` tasks as (prompt ids, canvas ids): the answer, then `<|eos|>` to the end of `CANVAS` cells."""
    source = stream(seed, kinds=kinds)
    examples = []
    for _ in range(count):
        task = next(source)
        answer = encode(tokenizer, f" {task.answer}")
        examples.append((encode(tokenizer, task.prompt), answer + [tokenizer.eos_token_id] * (CANVAS - len(answer))))
    return examples
