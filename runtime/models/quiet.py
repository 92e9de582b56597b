"""Transformers without its progress bars."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet(*, errors_only: bool = False) -> Iterator[None]:
    """Inside, transformers shows no progress bars, and with `errors_only` logs nothing but errors."""
    from transformers.utils import logging

    level, shown = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    if errors_only:
        logging.set_verbosity_error()
    try:
        yield
    finally:
        if errors_only:
            logging.set_verbosity(level)
        if shown:
            logging.enable_progress_bar()
