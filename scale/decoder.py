"""A worker's decoder: made of what can be pickled, with the session made where it works."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Unpack

from decgraph.errors import DecError
from decgraph.runtime.keywords import check_keywords
from decgraph.runtime.placement import AUTO, DeviceLike, DtypeLike, Placement
from decgraph.runtime.request import Request, RequestFields
from decgraph.runtime.result import first_call
from decgraph.scale.rows import Id, PromptLine, failed, noise_key, of_fields

if TYPE_CHECKING:
    from decgraph.api import Algorithm
    from decgraph.passes.plan import Plan
    from decgraph.runtime.arguments import AlgorithmLike, Externs, ModelLike, ParamValue
    from decgraph.runtime.session import Result, Session

COLUMNS = ("id", "prompt", "messages", "ids")
AT_ONCE = 32
"""Requests that `decode` hands to a session together, in batches of it: as one ends the next joins."""


class Decoder:
    """Decodes batches of a Ray Data dataset, a session to every actor:

        ds.map_batches(Decoder, fn_constructor_kwargs={"algorithm": "speculative", "max_tokens": 64}, batch_size=32)

    algorithm: a name of the standard library, the path of a .dec file, or an `Algorithm`. models: folders or names by the
    algorithm's parameters, as the worker finds them on its own disk; what is left out is a shipped model. params: the
    algorithm's parameters. batch: sequences decoded at a time. chat, system: a text is a user's message, after this system
    message. externs, backend, plan, device, dtype: those of `Algorithm.session`; `auto` is decided in the worker, which sees
    the GPUs that Ray reserved for it. request: the fields of every request but its prompt and request_id (max_tokens,
    temperature, seed, ...); greedy where there is no temperature.

    Rows have a column `prompt` (text), `messages` or `ids` (token ids), and `id`, an integer or a text; noise is keyed by the
    seed and the id (`scale/rows.py`), so a row's tokens depend on no worker, order or batch. Without ids, `request_id` is 0 for
    all. It gives the columns of the batch and `text` (str), `tokens` (int64[n], ragged), `reason` (str), `target_calls` (int64)
    and `error` (str, "" where there is none): a row that cannot be decoded does not stop the others.

    A decoder can be pickled; the copy makes a session of its own. Raises DecError for what no session can be made of.
    """

    def __init__(
        self,
        algorithm: AlgorithmLike,
        models: Mapping[str, ModelLike] | None = None,
        params: Mapping[str, ParamValue] | None = None,
        *,
        batch: int = 8,
        chat: bool = False,
        system: str | None = None,
        externs: Externs | None = None,
        backend: str | None = None,
        plan: Plan | None = None,
        device: DeviceLike = AUTO,
        dtype: DtypeLike = AUTO,
        **request: Unpack[RequestFields],
    ) -> None:
        from decgraph.api import of

        check_keywords("a decoder", request, [n for n in Request.__dataclass_fields__ if n not in ("prompt", "request_id")])
        self.algorithm: Algorithm = of(algorithm)
        self.models, self.params, self.externs = dict(models or {}), dict(params or {}), externs
        self.batch, self.chat, self.system = batch, chat, system
        self.backend, self.plan, self.request = backend, plan, request
        self.placed = Placement.of(device, dtype)
        self._session: Session | None = None
        self.first_call: tuple[float | None, int] | None = None
        """Of the first batch, the seconds until all its rows had had their first call, and the tokens committed by it."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_session": None, "first_call": None}

    @property
    def session(self) -> Session:
        """The session of this process, made at the first use."""
        if self._session is None:
            given: Any = self.params
            self._session = self.algorithm.session(
                self.models,
                externs=self.externs,
                backend=self.backend,
                plan=self.plan,
                device=self.placed.device,
                dtype=self.placed.dtype,
                **given,
            )
        return self._session

    def decode(self, rows: Iterable[PromptLine], finished: Callable[[dict[str, Any]], None]) -> None:
        """Decode rows, and tell `finished` the record of each as it ends: id, text, tokens, reason, target_calls,
        draft_errors (how often which error ended a draft, where one did), and error (None where there is none). Raises
        KeyboardInterrupt after Ctrl-C; rows that had not ended then have no record."""
        asked: list[Request] = []
        kept: list[Id] = []
        for row in rows:
            try:
                asked.append(self._request(row))
                kept.append(row.id)
            except Exception as error:  # of this row: a template, a tokenizer or a request that refuses it
                finished(failed(row.id, str(error) if isinstance(error, DecError) else f"{type(error).__name__}: {error}"))

        def ended(number: int, result: Result) -> None:
            if result.reason != "interrupted":
                finished(_record(kept[number], result))

        results = self.session.generate(asked, batch=self.batch, finished=ended)
        if self.first_call is None:
            self.first_call = first_call(results[: self.batch])
        if any(result.reason == "interrupted" for result in results):
            raise KeyboardInterrupt

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """A batch of Ray Data, column by column, with the columns of results."""
        import numpy as np

        columns = {name: batch[name] for name in COLUMNS if name in batch}
        if not columns.keys() & {"prompt", "messages", "ids"}:
            raise DecError(f"the rows have columns {', '.join(batch)}", hint="a column prompt, messages or ids, and perhaps id")
        count = len(next(iter(columns.values())))
        records: dict[int, dict[str, Any]] = {}
        rows: list[PromptLine] = []
        for place in range(count):
            given = {name: _plain(column[place]) for name, column in columns.items()}
            try:
                row = of_fields(given.pop("id", 0), given)
                rows.append(PromptLine(place, row.line, row.prompt, noise_of=row.id))
            except DecError as error:
                records[place] = failed(place, str(error))
        self.decode(rows, lambda record: records.__setitem__(record["id"], record))
        found = [records[place] for place in range(count)]
        tokens = np.empty(count, dtype=object)
        tokens[:] = [np.array(record["tokens"], dtype=np.int64) for record in found]
        return {
            **batch,
            "text": np.array([record["text"] for record in found], dtype=object),
            "tokens": tokens,
            "reason": np.array([record["reason"] for record in found], dtype=object),
            "target_calls": np.array([record["target_calls"] for record in found], dtype=np.int64),
            "error": np.array([record["error"] or "" for record in found], dtype=object),
        }

    def _request(self, row: PromptLine) -> Request:
        """The request of a row. Raises DecError for a prompt that no run can begin with."""
        from decgraph.runtime.prompts import request_for

        assert row.prompt is not None
        prompt = row.prompt.prompt(chat=self.chat, system=self.system)
        key = noise_key(row.id if row.noise_of is None else row.noise_of)
        fields: RequestFields = {**self.request, "request_id": key}
        request = request_for(self.session, prompt, **fields)
        first = next(iter(self.session.models.values()), None)
        if first is not None:
            request.check_vocab(first.vocab.size)
        return request


def groups(rows: Iterable[PromptLine], size: int) -> Iterator[list[PromptLine]]:
    """Rows in groups of at most `size`, in order."""
    group: list[PromptLine] = []
    for row in rows:
        group.append(row)
        if len(group) == size:
            yield group
            group = []
    if group:
        yield group


def _record(id: Id, result: Result) -> dict[str, Any]:
    return {
        "id": id,
        "text": result.text,
        "tokens": list(map(int, result.tokens)),
        "reason": result.reason,
        "target_calls": result.stats.target_calls,
        **result.stats.noted,
        **({"draft_errors": result.stats.draft_errors} if result.stats.draft_errors else {}),
        "error": None if result.error is None else _of_row(str(result.error), id),
    }


def _of_row(message: str, id: Id) -> str:
    """A message about a request as one about its row: the number of the request is the key of its noise, which nobody knows."""
    return re.sub(rf"\brequest {noise_key(id)}\b", lambda _: f"row {json.dumps(id)}", message)


def _plain(value: Any) -> Any:
    """A cell of a NumPy column as JSON knows it."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
