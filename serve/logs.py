"""Logs as JSON, an object a line. Prompts and answers are not in them."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any

from decgraph.runtime.json_lines import unbroken

LOG = logging.getLogger("decgraph.serve")


class JsonFormatter(logging.Formatter):
    """`time` (UTC), `level`, `logger`, `message`, what `extra={"fields": {...}}` adds, and the exception's text."""

    def format(self, record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "time": f"{seconds}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return unbroken(json.dumps(line, ensure_ascii=False, default=str))


def to_stderr(level: int = logging.INFO) -> None:
    """The logs of decgraph and uvicorn as JSON on stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    for name in ("decgraph", "uvicorn", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers = [handler] if name != "uvicorn.error" else []
        logger.setLevel(level)
        logger.propagate = name == "uvicorn.error"
    access = logging.getLogger("uvicorn.access")  # `guard.py` writes a line for each request, with its tokens
    access.handlers, access.propagate = [], False
