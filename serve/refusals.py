"""Refusals in OpenAI's shape: {"error": {"message", "type", "param", "code"}}."""

from __future__ import annotations

import re
from typing import Any

from decgraph.errors import DecError

KINDS = {
    **dict.fromkeys((400, 401, 404, 405, 408, 413), "invalid_request_error"),
    429: "rate_limit_error",
    503: "service_unavailable",
}

_TRY = re.compile(r"\n\s*= try: ([^\n]*)")


class Refusal(Exception):
    """An answer with an error's status. headers: further ones, such as Retry-After."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.param, self.code, self.headers = status, param, code, headers or {}

    def body(self) -> dict[str, Any]:
        """The JSON body."""
        # A lone surrogate of the client's is no UTF-8, and the answer must be.
        message, kind = str(self).encode("utf-8", "replace").decode(), KINDS.get(self.status, "server_error")
        return {"error": {"message": message, "type": kind, "param": self.param, "code": self.code}}

    def logged(self) -> dict[str, str | None]:
        """What the log says of it: the reason without what it quotes of the client's."""
        quoted = self.param not in ("model", "algorithm")
        said = re.sub(r"""(?<!\w)('[^']*'|"[^"]*")""", "'...'", str(self)) if quoted else str(self)
        return {"refused": said.split(": ")[0][:200], "param": self.param, "code": self.code}


def words_of(error: BaseException) -> str:
    """An error's message, without our prefix and the layout for a terminal."""
    text = str(error).removeprefix("error: ") if isinstance(error, DecError) else f"{type(error).__name__}: {error}"
    return " ".join(_TRY.sub(r" (try: \1)", text).split())


def bare(words: str) -> str:
    """An error's words of a run without the place in the program and the number of the request."""
    return re.sub(r"^(\S+:\d+:\d+: )?(request \S+: )?", "", words)
