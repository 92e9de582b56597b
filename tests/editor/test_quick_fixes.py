"""A quick fix leaves one mistake less: every name of a program misspelt, one at a time."""

from __future__ import annotations

import re

from decgraph import stdlib
from decgraph.editor.analysis import Analyser
from decgraph.editor.quick_fixes import fixes

TEXT = stdlib.path("speculative").read_text(encoding="utf-8")
BODY = TEXT.index("while")


def test_a_fix_of_a_misspelt_word_mends_the_text() -> None:
    analyser, offered = Analyser(), 0
    words = [m for m in re.finditer(r"[a-z]{5,}", TEXT[BODY:]) if m[0] not in ("while", "repeat")]
    for word in words:
        start, end = BODY + word.start(), BODY + word.end()
        text = TEXT[: start + 2] + TEXT[start + 3 : end] + TEXT[end:]  # without its third letter
        found = analyser.analyse(text, "mine.dec")
        assert found.diagnostics, word[0]
        for fix in fixes(found.source, found.diagnostics):
            if fix.word == word[0]:
                offered += 1
                mended = text[: fix.span.start] + fix.word + text[fix.span.end :]
                assert mended == TEXT and not analyser.analyse(mended, "mine.dec").diagnostics
    assert offered >= len(words) * 2 // 3, f"{offered} of {len(words)}"
