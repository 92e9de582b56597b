"""Answers as OpenAI's clients read them: whole, or as the chunks of a stream."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Sequence
from typing import Any

import decgraph
from decgraph.runtime.json_lines import unbroken
from decgraph.runtime.result import Result
from decgraph.serve.generation import Generation
from decgraph.serve.texts import GrowingText, Piece
from decgraph.serve.worker import Job

FINISHED = {"limit": "length", "context": "length"}
"""`finish_reason` by why a run ended; "stop" for all other reasons."""


class Answer:
    """One answer of a request while it grows."""

    def __init__(self, generation: Generation, job: Job) -> None:
        assert job.session.tokenizer is not None
        self.generation, self.job, self.place = generation, job, job.place
        self.text = GrowingText(job.session.tokenizer.detokenizer, job.request.stop, job.request.eos)
        self.result: Result | None = None

    @property
    def echo(self) -> str:
        """The prompt, where it is to be repeated."""
        return self.generation.echo[self.place // self.generation.n] if self.generation.echo else ""

    @property
    def finish_reason(self) -> str | None:
        return None if self.result is None else FINISHED.get(self.result.reason, "stop")

    def pieces(self) -> list[tuple[Piece, float, dict[int, float]]]:
        """The tokens of the text with their log-probabilities, and the likeliest tokens at their places."""
        assert self.result is not None and self.result.logprobs is not None
        known = self.result.logprobs
        rows = zip(self.text.pieces, known.tokens, known.top, strict=False)
        return [row for row in rows if row[0].text or row[0].token not in self.job.request.eos]


class Writer:
    """Bodies and chunks for one request."""

    def __init__(self, generation: Generation) -> None:
        self.generation = generation
        self.id = ("chatcmpl-" if generation.chat else "cmpl-") + secrets.token_hex(12)
        self.created = int(time.time())

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.generation.model,
            "system_fingerprint": f"decgraph-{decgraph.__version__}",
        }

    def whole(self, answers: Sequence[Answer]) -> dict[str, Any]:
        """The body of an answer that is not streamed."""
        choices = [self._whole_choice(answer) for answer in answers]
        kind = "chat.completion" if self.generation.chat else "text_completion"
        return {**self._head(kind), "choices": choices, "usage": self.usage(answers), "decgraph": [_told(a) for a in answers]}

    def _whole_choice(self, answer: Answer) -> dict[str, Any]:
        made: dict[str, Any] = {"index": answer.place, "logprobs": self.logprobs(answer), "finish_reason": answer.finish_reason}
        if self.generation.chat:
            return {**made, "message": {"role": "assistant", "content": answer.text.text, "refusal": None}}
        return {**made, "text": answer.echo + answer.text.text}

    def chunk(self, answer: Answer, text: str | None, *, last: bool = False, logprobs: Any = None) -> dict[str, Any]:
        """A chunk of a stream: more text of one answer; None for the first one of a chat, which has the role."""
        made: dict[str, Any] = {
            "index": answer.place,
            "logprobs": logprobs,
            "finish_reason": answer.finish_reason if last else None,
        }
        if self.generation.chat:
            delta = {"role": "assistant", "content": ""} if text is None else {"content": text} if text or not last else {}
            made["delta"] = delta
        else:
            made["text"] = text or ""
        out = {**self._head("chat.completion.chunk" if self.generation.chat else "text_completion"), "choices": [made]}
        return {**out, "usage": None} if self.generation.usage else out

    def last(self, answers: Sequence[Answer]) -> dict[str, Any]:
        """The chunk with the usage, which has no choices."""
        kind = "chat.completion.chunk" if self.generation.chat else "text_completion"
        return {**self._head(kind), "choices": [], "usage": self.usage(answers)}

    def usage(self, answers: Sequence[Answer]) -> dict[str, Any]:
        """How many tokens were read and written."""
        new = sum(len(a.result.tokens) for a in answers if a.result is not None)
        read = self.generation.prompt_tokens
        firsts = range(0, len(answers), self.generation.n)
        reused = sum(max(a.job.reused for a in answers[first : first + self.generation.n]) for first in firsts)
        return {
            "prompt_tokens": read,
            "completion_tokens": new,
            "total_tokens": read + new,
            "prompt_tokens_details": {"cached_tokens": reused},
        }

    def logprobs(self, answer: Answer) -> Any:
        """The log-probabilities of a whole answer; None where they were not asked for."""
        if not self.generation.logprobs or answer.result is None or answer.result.logprobs is None:
            return None
        rows = answer.pieces()
        if self.generation.chat:
            return {"content": [self._entry(answer, *row) for row in rows], "refusal": None}
        shift = len(answer.echo)
        return {
            "tokens": [self._spelled(answer, piece.token) for piece, _, _ in rows],
            "token_logprobs": [_finite(value) for _, value, _ in rows],
            "top_logprobs": [{self._spelled(answer, t): _finite(v) for t, v in best.items()} for _, _, best in rows]
            if self.generation.top
            else None,
            "text_offset": [shift + piece.at for piece, _, _ in rows],
        }

    def _entry(self, answer: Answer, piece: Piece, value: float, best: dict[int, float]) -> dict[str, Any]:
        def entry(token: int, value: float) -> dict[str, Any]:
            data = self._bytes(answer, token)
            return {"token": data.decode("utf-8", "replace"), "logprob": _finite(value), "bytes": list(data)}

        return {**entry(piece.token, value), "top_logprobs": [entry(t, v) for t, v in best.items()]}

    def _bytes(self, answer: Answer, token: int) -> bytes:
        pieces = answer.job.session.tokenizer.detokenizer.pieces  # type: ignore[union-attr]  # read_request refuses sessions without
        return bytes(pieces[token]) if token < len(pieces) else b""

    def _spelled(self, answer: Answer, token: int) -> str:
        """A token as a key: bytes that are no characters by themselves are written out, for keys must differ."""
        data = self._bytes(answer, token)
        try:
            return data.decode() or f"token_id:{token}"
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{b:02x}" for b in data)


def event(data: dict[str, Any] | str) -> bytes:
    """A server-sent event."""
    text = data if isinstance(data, str) else unbroken(json.dumps(data, ensure_ascii=False, separators=(",", ":")))
    return f"data: {text}\n\n".encode()


def _finite(value: float) -> float:
    """OpenAI's number for no probability at all: JSON has no infinity."""
    return max(value, -9999.0)


def _told(answer: Answer) -> dict[str, Any]:
    """What decgraph says of an answer beside OpenAI's fields."""
    assert answer.result is not None
    stats = answer.result.stats
    return {
        "algorithm": answer.generation.algorithm,
        "seed": answer.job.request.seed,
        "max_tokens": answer.job.request.limit,
        "target_calls": stats.target_calls,
        "draft_calls": stats.draft_calls,
        "tokens_per_call": round(stats.tokens_per_call, 4),
        "drafted": stats.drafted,
        "accepted": sum(stats.accepted),
    }
