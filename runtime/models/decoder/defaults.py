"""What transformers' config classes hold for settings that a config.json leaves out, for the settings that entries read."""

from __future__ import annotations

from typing import Any

DEFAULTS: dict[str, dict[str, Any]] = {}


def defaults(family: str) -> dict[str, Any]:
    """The defaults of a family's settings."""
    return {name: values[family] for name, values in DEFAULTS.items() if family in values}
