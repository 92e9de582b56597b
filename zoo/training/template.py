"""A chat template taken apart: the tokens before the user's words, and those between them and the answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from decgraph.errors import DecError

# Words no template contains; the rendered text is cut where they stand.
_MARK = "qqzxmarkzxqq"


@dataclass(frozen=True)
class Template:
    """Token ids around one user turn: `opening`, then the user's words, then `closing`, then the answer.

    The first id of `closing` is what the model writes when the user's turn is over.
    """

    opening: list[int]
    closing: list[int]

    @property
    def end(self) -> int:
        """The token that ends a turn."""
        return self.closing[0]


def template_of(tokenizer: Any) -> Template:
    """The chat template of a tokenizer, cut at the user's words. Raises DecError where it has none."""
    if not getattr(tokenizer, "chat_template", None):
        raise DecError(
            "this model's tokenizer has no chat template, so it cannot write its own questions",
            hint="give texts instead: --data FILE (.txt or .jsonl)",
        )
    text = tokenizer.apply_chat_template([{"role": "user", "content": _MARK}], tokenize=False, add_generation_prompt=True)
    before, mark, after = text.partition(_MARK)
    if not mark or not after:
        raise DecError("this model's chat template does not show the user's words as they are", hint="give --data FILE")
    ids = [tokenizer.encode(part, add_special_tokens=False) for part in (before, after)]
    return Template(*ids)
