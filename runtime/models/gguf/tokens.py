"""The tokenizer of a GGUF file in the form of a tokenizer.json: byte-level BPE, or SentencePiece's with scores of pieces."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from decgraph.errors import DecError
from decgraph.runtime.models.gguf.file import GgufFile

Part = dict[str, object]  # of a tokenizer.json
_LEVEL: Part = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
_DIGITS: Part = {"type": "Digits", "individual_digits": True}
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)


def _splits(*patterns: str) -> Part:
    """By each pattern in turn, what it matches apart from what it does not."""
    steps = [{"type": "Split", "pattern": {"Regex": one}, "behavior": "Isolated", "invert": False} for one in patterns]
    return {"type": "Sequence", "pretokenizers": [*steps, {**_LEVEL, "use_regex": False}]}


_DEFAULT = _splits(
    r"[\p{P}\$\+<=>\^~\|]+",
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)",
    r"\p{N}+",
    "[0-9][0-9][0-9]",
)
"""llama.cpp's, for files that name no way, or "default"."""
_SINGLE = {"type": "Sequence", "pretokenizers": [_DIGITS, _LEVEL]}
_LLAMA3, _QWEN = (_splits(_WORDS.format(digits=digits)) for digits in ("{1,3}", ""))  # so many digits at a time
PRE_TOKENIZERS = {
    **dict.fromkeys(("", "default"), _DEFAULT),
    **dict.fromkeys(("gpt-2", "phi-2", "olmo", "mpt", "jais"), _LEVEL),
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r", "codeshell"), _SINGLE),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "smaug-bpe", "dbrx"), _LLAMA3),
    **dict.fromkeys(("qwen2", "stablelm2", "deepseek-r1-qwen", "hunyuan"), _QWEN),
}
"""How a text is split before the merges, by `tokenizer.ggml.pre`."""
_BPE: Part = {"type": "BPE", "ignore_merges": False, "byte_fallback": False, "dropout": None, "unk_token": None,
                        "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False}  # fmt: skip
_NORMAL, _UNKNOWN, _CONTROL, _GIVEN = 1, 2, 3, 4
_ENDS = ("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<end_of_turn>")
"""Tokens that end an answer in chats, where a file names another one alone."""
_SPACE = "\u2581"


def tokenizer_of(file: GgufFile) -> Part | None:
    """What a tokenizer.json would hold; None for a file without a tokenizer. Raises DecError for a kind that is not known."""
    said = file.settings
    kind = said.get("tokenizer.ggml.model", "none")
    if kind == "none":
        return None
    tokens, kinds = _tokens(file)
    special = [n for n, one in enumerate(kinds) if one in (_UNKNOWN, _CONTROL)]
    added = [
        {"id": n, "content": tokens[n], "special": one != _GIVEN, "normalized": False, "single_word": False, "lstrip": False,
         "rstrip": False}
        for n, one in enumerate(kinds) if one in (_UNKNOWN, _CONTROL, _GIVEN)
    ]  # fmt: skip
    if kind == "gpt2":
        made = _byte_level(file, tokens)
    elif kind == "llama":
        made = _pieces(file, tokens, kinds, special)
    else:
        raise DecError(f"{file.path} has a tokenizer of the kind {kind}, which is not read from GGUF", hint=_INSTEAD)
    return {"version": "1.0", "added_tokens": added, "post_processor": _around(file, tokens, str(kind)), **made}


_INSTEAD = "the folder that the file was made from has a tokenizer.json"


def bounds(file: GgufFile) -> tuple[int | None, list[int]]:
    """The tokens that a text begins and ends with. Raises DecError for numbers that are no tokens."""
    ids = _special(file)
    ends = {one for key, one in ids.items() if key != "bos"}
    if file.settings.get("tokenizer.ggml.tokens") and "tokenizer.ggml.token_type" in file.settings and "eot" not in ids:
        tokens, kinds = _tokens(file)
        ends |= {n for n, one in enumerate(kinds) if one == _CONTROL and tokens[n] in _ENDS}
    return ids.get("bos"), sorted(ends)


def _special(file: GgufFile) -> dict[str, int]:
    """The tokens that a text begins and ends with, by their names. Raises DecError for numbers that are no tokens."""
    listed = file.settings.get("tokenizer.ggml.tokens")
    count, found = len(listed) if isinstance(listed, list) else 0, dict[str, int]()
    for key in ("bos", "eos", "eot", "eom"):
        one = file.settings.get(f"tokenizer.ggml.{key}_token_id")
        if one is None:
            continue
        if type(one) is not int or not (0 <= one < count or not count):
            raise DecError(f"{file.path} has {one!r} for tokenizer.ggml.{key}_token_id, and {count} tokens")
        found[key] = one
    return found


def templates_of(file: GgufFile) -> dict[str, str]:
    """The chat template of a file and the special tokens that it may name, as a tokenizer of transformers takes them."""
    tokens, _ = _tokens(file)
    made = {f"{key}_token": tokens[n] for key, n in _special(file).items() if key in ("bos", "eos")}
    template = file.settings.get("tokenizer.chat_template")
    return made if not isinstance(template, str) else {**made, "chat_template": template}


def _tokens(file: GgufFile) -> tuple[list[str], Sequence[int]]:
    listed = file.settings.get("tokenizer.ggml.tokens")
    tokens = [one for one in listed if isinstance(one, str)] if isinstance(listed, list) else []
    if not isinstance(listed, list) or len(tokens) != len(listed):
        raise DecError(f"{file.path} has a tokenizer without tokens", hint=_INSTEAD)
    stated = _numbers(file, "token_type")
    kinds = [_NORMAL] * len(tokens) if stated is None else list(map(int, stated))
    if len(kinds) != len(tokens):
        raise DecError(f"{file.path} has {len(tokens)} tokens, and kinds of {len(kinds)}", hint=_INSTEAD)
    return tokens, kinds


def _numbers(file: GgufFile, name: str) -> list[int | float] | None:
    """The numbers of a setting by token; None where it is not there."""
    found = file.settings.get(f"tokenizer.ggml.{name}")
    if found is None:
        return None
    return [n for n in found if isinstance(n, int | float)] if isinstance(found, list | memoryview) else []


def _byte_level(file: GgufFile, tokens: list[str]) -> Part:
    pre, merges = str(file.settings.get("tokenizer.ggml.pre", "")), file.settings.get("tokenizer.ggml.merges", [])
    if pre not in PRE_TOKENIZERS:
        known = ", ".join(name for name in PRE_TOKENIZERS if name)
        raise DecError(f"{file.path} splits texts as {pre!r}, which is not known here", hint=f"known: {known}; {_INSTEAD}")
    if not pre:
        warnings.warn(
            f"{file.path} does not say how texts are split (tokenizer.ggml.pre), as files of old converters do not: they are "
            "split as llama.cpp's default is, which may not be the model's; a newer conversion says it",
            UserWarning,
            stacklevel=2,
        )
    vocabulary = {token: n for n, token in enumerate(tokens)}
    listed = merges if isinstance(merges, list | memoryview) else [merges]
    pairs = [one.split(" ", 1) if isinstance(one, str) else [] for one in listed]
    if any(len(pair) != 2 or not {*pair, "".join(pair)} <= vocabulary.keys() for pair in pairs):
        raise DecError(f"{file.path} has a merge of what is no token", hint=_INSTEAD)
    whole = PRE_TOKENIZERS[pre] is _LLAMA3  # a word that is a token is not split, whatever the merges say
    model = {**_BPE, "vocab": vocabulary, "merges": pairs, "ignore_merges": whole}
    return {
        "normalizer": {"type": "NFC"} if PRE_TOKENIZERS[pre] is _QWEN else None,
        "pre_tokenizer": PRE_TOKENIZERS[pre],
        "decoder": _LEVEL,
        "model": model,
    }


def _pieces(file: GgufFile, tokens: list[str], kinds: Sequence[int], special: list[int]) -> Part:
    """SentencePiece's: two pieces become the piece with the best score that they make."""
    scores = _numbers(file, "scores") or []
    if len(scores) != len(tokens):
        raise DecError(f"{file.path} has {len(tokens)} tokens, and scores of {len(scores)}", hint=_INSTEAD)
    vocabulary = {token: n for n, token in enumerate(tokens)}
    found: list[tuple[float, int, int, str, str]] = []
    for n, token in enumerate(tokens):
        if kinds[n] == _NORMAL:
            for cut in range(1, len(token)):
                left, right = vocabulary.get(token[:cut]), vocabulary.get(token[cut:])
                if left is not None and right is not None:
                    found.append((-scores[n], left, right, token[:cut], token[cut:]))
    unknown = next((tokens[n] for n in special if kinds[n] == _UNKNOWN), None)
    merges = [[left, right] for *_, left, right in sorted(found)]
    model = {**_BPE, "vocab": vocabulary, "merges": merges, "byte_fallback": "<0x00>" in vocabulary, "unk_token": unknown,
             "fuse_unk": True}  # fmt: skip
    spaced = file.settings.get("tokenizer.ggml.add_space_prefix", True)
    steps: list[Part] = [{"type": "Prepend", "prepend": _SPACE}] if spaced else []
    steps.append({"type": "Replace", "pattern": {"String": " "}, "content": _SPACE})
    back: list[Part] = [{"type": "Replace", "pattern": {"String": _SPACE}, "content": " "}, {"type": "ByteFallback"},
                                  {"type": "Fuse"}]  # fmt: skip
    back += [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if spaced else []
    return {
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": None,
        "decoder": {"type": "Sequence", "decoders": back},
        "model": model,
    }


def _around(file: GgufFile, tokens: list[str], kind: str) -> Part | None:
    """What stands around a text: the tokens that begin and end it, where the file adds them."""
    usual = {
        "bos": kind == "llama" or PRE_TOKENIZERS.get(str(file.settings.get("tokenizer.ggml.pre", ""))) is _LLAMA3,
        "eos": False,
    }
    ids = _special(file)
    begin, end = (
        ids.get(key)
        if file.settings.get(f"tokenizer.ggml.add_{key}_token", usual[key]) else None
        for key in ("bos", "eos")
    )  # fmt: skip
    around = {tokens[n]: {"id": tokens[n], "ids": [n], "tokens": [tokens[n]]} for n in (begin, end) if n is not None}
    if not around:
        return None

    def part(n: int | None, kind: int) -> list[Part]:
        return [] if n is None else [{"SpecialToken": {"id": tokens[n], "type_id": kind}}]

    one, two = ([{"Sequence": {"id": name, "type_id": kind}}] for kind, name in enumerate("AB"))
    single = [*part(begin, 0), *one, *part(end, 0)]
    return {"type": "TemplateProcessing", "single": single, "pair": [*single, *part(begin, 1), *two, *part(end, 1)],
            "special_tokens": around}  # fmt: skip
