"""Recordings of causal decoders that no program of stdlib replays, with what it would take."""

from __future__ import annotations

WITHOUT: dict[str, str] = {}
