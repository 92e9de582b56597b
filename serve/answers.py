"""Answers as OpenAI's clients read them: whole, or as the chunks of a stream."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from decgraph.runtime.json_lines import unbroken
from decgraph.runtime.result import Logprobs, Result
from decgraph.serve.generation import Generation
from decgraph.serve.texts import GrowingText, TextPiece
from decgraph.serve.tools import AnswerPart, Reader, content_of
from decgraph.serve.worker import CANCELLED, Job, Told
from decgraph.version import __version__

FINISHED = {"limit": "length", "context": "length", CANCELLED: CANCELLED, "error": "error"}
"""`finish_reason` by why a run ended; "stop" for all other reasons. No client reads the last two, but the log has them."""


class PartGrowth(NamedTuple):
    """What a part of an answer grew by. number: which part it is. first: whether it is new."""

    number: int
    part: AnswerPart
    text: str
    first: bool


class Answer:
    """One answer of a request while it grows. parts: its thoughts, texts and calls as far as they may be shown."""

    def __init__(self, generation: Generation, job: Job) -> None:
        assert job.session.tokenizer is not None
        self.generation, self.job, self.place = generation, job, job.place
        shown, tools, detokenizer = generation.shown, generation.tools, job.session.tokenizer.detokenizer
        special, marks = detokenizer.special, generation.format.marks_of_answers if generation.chat else ""
        seen = {token: text for token, text in special.items() if text and text in marks}
        shows = special if shown.special else seen
        self.text = GrowingText(detokenizer, job.request.stop, job.request.eos, whole=shown.whole, special=shows)
        self.reader: Reader | None = None
        if generation.chat:
            self.reader = Reader(
                generation.format,
                tools.tools if tools is not None else (),
                () if shown.special else tuple(seen.values()),
                forced=tools is not None and tools.forced,
                thinking=generation.thinking,
                bare=tools is not None and tools.bare,
            )
        self.parts = self.reader.parts if self.reader is not None else [AnswerPart("content", "")]
        self.result: Result | None = None
        self.begun = False  # whether a stream has its first event
        self.written: list[int] = []  # the tokens that its text so far is made of
        self.counted = 0  # how many of them are in the events of a stream
        self._shown: list[int] = []  # how much of each part

    def grow(self, told: Told) -> list[PartGrowth]:
        """News: what may be shown now. Log-probabilities are read when a run has ended, so with them an answer is one piece."""
        new = () if self.generation.shown.scored else told.tokens
        self.written += new
        text = self.text.feed(new)
        if told.result is not None:
            self.result = told.result
            text += self.text.finish()
        if self.reader is None:
            self.parts[0].text += text
        else:
            self.reader.feed(text)
            if self.result is not None:
                self.reader.finish()
                self.parts += [] if self.parts else [AnswerPart("content", "")]
        if self.generation.shown.logprobs and self.result is None:
            return []
        shown, self._shown = self._shown, [len(part.text) for part in self.parts]
        begun = [*shown, *[-1] * (len(self.parts) - len(shown))]
        return [
            PartGrowth(number, part, part.text[max(0, at) :], at < 0)
            for number, (part, at) in enumerate(zip(self.parts, begun, strict=True))
            if len(part.text) > at and (part.text or self.reader is not None)
        ]

    @property
    def content(self) -> str:
        """Its text."""
        return content_of(self.parts)

    @property
    def reasoning(self) -> str:
        """Its thoughts."""
        return content_of(self.parts, "reasoning")

    @property
    def calls(self) -> list[AnswerPart]:
        """Its calls of tools."""
        return [part for part in self.parts if part.kind == "call"]

    @property
    def echo(self) -> str:
        """The prompt, where it is to be repeated."""
        echo = self.generation.shown.echo
        return echo[self.place // self.generation.n] if echo else ""

    @property
    def tokens(self) -> tuple[int, ...]:
        """The new tokens, once it has ended."""
        return () if self.result is None or self.generation.shown.scored else self.result.tokens

    @property
    def finish_reason(self) -> str | None:
        if self.result is None:
            return None
        reason = FINISHED.get(self.result.reason, "stop")
        called = self.calls and reason == "stop" and self.calls[-1].whole
        return "tool_calls" if called else "length" if self.generation.shown.scored else reason

    @property
    def stop_reason(self) -> str | int | None:
        """The stop string that ended it, or the token of `stop_token_ids`."""
        last = self.tokens[-1:]
        return self.text.matched or next((token for token in last if token in self.generation.shown.stops), None)

    def pieces(self) -> list[tuple[TextPiece, float, dict[int, float]]]:
        """The tokens of the text with their log-probabilities, and the likeliest tokens at their places."""
        assert self.result is not None and self.result.logprobs is not None
        known = self.result.logprobs
        return list(zip(self.text.pieces, known.tokens, known.top, strict=False))

    def of_prompt(self) -> list[tuple[TextPiece, float | None, dict[int, float] | None]]:
        """The same of the prompt's tokens: the first one has none."""
        assert self.result is not None and self.result.prompt_logprobs is not None
        known, text = self.result.prompt_logprobs, GrowingText(self.text.detokenizer)
        text.feed(self.job.request.prompt)
        return list(zip(text.pieces, (None, *known.tokens), (None, *known.top), strict=True))


class AnswerWriter:
    """Bodies, and events of a stream, for one request."""

    def __init__(self, generation: Generation) -> None:
        self.generation, self.shown = generation, generation.shown
        self.id = ("chatcmpl-" if generation.chat else "cmpl-") + secrets.token_hex(12)
        self.created = int(time.time())
        self.kind = "chat.completion" if generation.chat else "text_completion"

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.generation.model,
            "system_fingerprint": f"decgraph-{__version__}",
        }

    def whole(self, answers: Sequence[Answer]) -> dict[str, Any]:
        """The body of an answer that is not streamed."""
        choices = [{**self._whole_choice(answer), **self._more(answer)} for answer in answers]
        body = {**self._head(self.kind), "choices": choices, "usage": self.usage(answers)}
        if self.generation.chat:  # where vLLM has them
            for name in ("prompt_logprobs", "prompt_token_ids"):
                body[name] = [choice.pop(name) for choice in choices][0]
        return {**body, "decgraph": [told(a) for a in answers]}

    def _whole_choice(self, answer: Answer) -> dict[str, Any]:
        made: dict[str, Any] = {"index": answer.place, "logprobs": self.logprobs(answer), "finish_reason": answer.finish_reason}
        ids = (list(answer.job.request.prompt), list(answer.tokens)) if self.shown.ids else (None, None)
        made |= zip(("prompt_token_ids", "token_ids"), ids, strict=True)
        if self.generation.chat:
            content = None if answer.calls and not answer.content else answer.content
            more: dict[str, Any] = {"reasoning_content": answer.reasoning} if answer.reasoning else {}
            if answer.calls:
                more["tool_calls"] = [_call(part) for part in answer.calls]
            return {**made, "message": {"role": "assistant", "content": content, "refusal": None, **more}}
        return {**made, "text": answer.echo + answer.content}

    def _more(self, answer: Answer) -> dict[str, Any]:
        """The fields that vLLM's server adds to an answer on request."""
        made: dict[str, Any] = {"stop_reason": answer.stop_reason, "prompt_logprobs": None}
        if self.shown.prompt:
            assert answer.result is not None and answer.result.prompt_logprobs is not None
            made["prompt_logprobs"] = [None, *self._ranked(answer, answer.result.prompt_logprobs)]
        return made

    def _ranked(self, answer: Answer, known: Logprobs) -> list[dict[str, Any]]:
        """Log-probabilities as vLLM has them: by token id, with ranks."""
        rows = []
        for token, value, rank, best in zip(answer.job.request.prompt[1:], known.tokens, known.ranks, known.top, strict=True):
            ranks = {token: (value, rank), **{t: (v, n) for n, (t, v) in enumerate(best.items(), 1)}}
            rows.append(
                {
                    str(t): {"logprob": _finite(v), "rank": n, "decoded_token": self._spelled(answer, t)}
                    for t, (v, n) in ranks.items()
                }
            )
        return rows

    def _chunk(self, answers: Sequence[Answer], *choices: dict[str, Any], usage: bool = False, **more: Any) -> bytes:
        """An event with choices."""
        head = self._head("chat.completion.chunk" if self.generation.chat else "text_completion")
        known = self.usage(answers, sent=not usage) if usage or self.shown.always else None
        told = {"usage": known} if self.shown.usage else {}
        return event({**head, "choices": list(choices), **told, **more})

    def _choice(self, answer: Answer, text: str | None = None, **delta: Any) -> dict[str, Any]:
        made: dict[str, Any] = {"index": answer.place, "logprobs": None, "finish_reason": None}
        if self.generation.chat:
            return {**made, "delta": {**delta, **({} if text is None else {"content": text})}}
        return {**made, "text": text or ""}

    def opening(self, answers: Sequence[Answer]) -> Iterator[bytes]:
        """The events before any news. A chat has none: whoever measures takes the first event that has a choice for the first
        token, as vLLM and llama.cpp send the role with it."""
        yield from ()

    def grown(self, answers: Sequence[Answer], answer: Answer, news: Sequence[PartGrowth]) -> Iterator[bytes]:
        """The events of an answer that grew, or ended."""
        if not answer.begun:
            answer.begun = True
            ids: Any = {"prompt_token_ids": list(answer.job.request.prompt)} if self.shown.ids else {}
            echo = "" if self.shown.logprobs else answer.echo
            if self.generation.chat:
                yield self._chunk(answers, self._choice(answer, "", role="assistant"), **ids)
            elif ids or echo:
                yield self._chunk(answers, {**self._choice(answer, echo), **ids})
        choices = self._grown(answer, news)
        if choices and self.shown.ids:
            choices[0]["token_ids"] = answer.written[answer.counted :]
        answer.counted = len(answer.written) if choices else answer.counted
        for choice in choices:
            yield self._chunk(answers, choice)

    def _grown(self, answer: Answer, news: Sequence[PartGrowth]) -> list[dict[str, Any]]:
        """The choices of these events."""
        logprobs = self.logprobs(answer)
        text = "".join(one.text for one in news if one.part.kind == "content")
        text = answer.echo + text if self.shown.logprobs else text
        choices = []
        if thoughts := "".join(one.text for one in news if one.part.kind == "reasoning"):
            choices.append(self._choice(answer, reasoning_content=thoughts))
        if text or logprobs is not None:
            choices.append({**self._choice(answer, text), "logprobs": logprobs})
        for one in news:
            if one.part.kind == "call":
                call = _call(one.part) if one.first else {"function": {"arguments": one.text}}
                index = sum(part.kind == "call" for part in answer.parts[: one.number])
                choices.append(self._choice(answer, tool_calls=[{"index": index, **call}]))
        if answer.result is not None:
            choices.append({**self._choice(answer), "finish_reason": answer.finish_reason, **self._more(answer)})
        return choices

    def closing(self, answers: Sequence[Answer]) -> Iterator[bytes]:
        """The events after the last token: the numbers of tokens if requested, and the end."""
        if self.shown.usage:
            yield self._chunk(answers, usage=True, decgraph=[told(a) for a in answers])
        yield event("[DONE]")

    def failed(self, body: dict[str, Any]) -> bytes:
        """The event of an error."""
        return event(body)

    def usage(self, answers: Sequence[Answer], *, sent: bool = False) -> dict[str, Any]:
        """How many tokens were read and written; of a stream, those that were sent."""
        new = sum(a.counted if sent else len(a.tokens) for a in answers)
        read = self.generation.prompt_tokens
        firsts = range(0, len(answers), self.generation.n)
        length = self.generation.session.tokenizer.encode_part  # type: ignore[union-attr]  # read_request refuses sessions without
        thoughts = sum(len(length(a.reasoning)) for a in answers if a.result is not None and a.reasoning)
        reused = sum(max(a.job.reused for a in answers[first : first + self.generation.n]) for first in firsts)
        return {
            "prompt_tokens": read,
            "completion_tokens": new,
            "total_tokens": read + new,
            "prompt_tokens_details": {"cached_tokens": reused},
            **({"completion_tokens_details": {"reasoning_tokens": thoughts}} if thoughts else {}),
        }

    def logprobs(self, answer: Answer) -> Any:
        """The log-probabilities of a whole answer; None where they were not requested."""
        if not self.shown.logprobs or answer.result is None or answer.result.logprobs is None:
            return None
        rows: list[tuple[TextPiece, float | None, dict[int, float] | None]] = [] if self.shown.scored else [*answer.pieces()]
        if self.generation.chat:
            ends = answer.job.request.eos
            content = [self._entry(answer, *row) for row in rows if row[0].text or row[0].token not in ends]
            return {"content": content, "refusal": None}
        shift = len(answer.echo)
        offsets = [shift + piece.at for piece, _, _ in rows]
        if self.shown.echo:
            before = answer.of_prompt()
            rows, offsets = [*before, *rows], [*(piece.at for piece, _, _ in before), *offsets]

        def best_of(token: int, value: float | None, best: dict[int, float] | None) -> dict[str, float] | None:
            known = {} if value is None or best is None else {**best, token: value}  # with the one that is there
            return {self._spelled(answer, t): _finite(v) for t, v in known.items()} or None

        return {
            "tokens": [self._spelled(answer, piece.token) for piece, _, _ in rows],
            "token_logprobs": [None if value is None else _finite(value) for _, value, _ in rows],
            "top_logprobs": [best_of(piece.token, value, best) for piece, value, best in rows],
            "text_offset": offsets,
        }

    def _entry(self, answer: Answer, piece: TextPiece, value: float | None, best: dict[int, float] | None) -> dict[str, Any]:
        def entry(token: int, value: float) -> dict[str, Any]:
            data = answer.text.detokenizer.data(token)
            return {"token": data.decode("utf-8", "replace"), "logprob": _finite(value), "bytes": list(data)}

        assert value is not None and best is not None
        return {**entry(piece.token, value), "top_logprobs": [entry(t, v) for t, v in best.items()]}

    def _spelled(self, answer: Answer, token: int) -> str:
        """A token as a key: bytes that are no characters by themselves are written out, for keys must differ."""
        data = answer.text.detokenizer.data(token)
        try:
            return data.decode() or f"token_id:{token}"
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{b:02x}" for b in data)


def _call(part: AnswerPart) -> dict[str, Any]:
    """A call as OpenAI's clients read it."""
    return {"id": f"call_{part.id}", "type": "function", "function": {"name": part.name, "arguments": part.text}}


def event(data: dict[str, Any] | str) -> bytes:
    """A server-sent event."""
    text = data if isinstance(data, str) else unbroken(json.dumps(data, ensure_ascii=False, separators=(",", ":")))
    return f"data: {text}\n\n".encode()


def _finite(value: float) -> float:
    """OpenAI's number for no probability at all: JSON has no infinity."""
    return max(value, -9999.0)


def told(answer: Answer) -> dict[str, Any]:
    """The fields that decgraph adds to OpenAI's."""
    assert answer.result is not None
    stats, job = answer.result.stats, answer.job
    decoding = job.last - job.first if job.first else 0.0
    return {
        "algorithm": answer.generation.algorithm,
        "seed": answer.job.request.seed,
        "max_tokens": answer.job.request.max_tokens,
        "target_calls": stats.target_calls,
        "draft_calls": stats.draft_calls,
        "tokens_per_call": round(stats.tokens_per_call, 4),
        "drafted": stats.drafted,
        "accepted": sum(stats.accepted),
        **stats.noted,
        **({"ended_drafts": stats.ended_drafts, "draft_errors": stats.draft_errors} if stats.draft_errors else {}),
        "reading_seconds": round(job.received - job.arrived, 4),
        "queued_seconds": round(max(0.0, job.started - job.received), 4),
        "first_token_seconds": round(job.first - job.arrived, 4) if job.first else None,
        "decoding_seconds": round(decoding, 4),
        "tokens_per_second": round((job.sent - job.opened) / decoding, 2) if decoding > 0 else None,
    }
