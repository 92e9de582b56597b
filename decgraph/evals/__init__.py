"""Algorithms in lm-evaluation-harness: `--model decgraph`, whose `generate_until` requests decgraph decodes.

`python -m decgraph.evals run --model decgraph --model_args pretrained=FOLDER,algorithm=speculative,drafter=FOLDER ...` is
lm_eval's command with that model in it: lm_eval (0.4.13) looks for no models in other packages. In Python, `import
decgraph.evals` adds the name to its registry, for `lm_eval.simple_evaluate(model="decgraph", ...)`. Where lm_eval is not
installed, importing this loads no torch and adds nothing.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from decgraph import extras

if TYPE_CHECKING:
    from decgraph.evals.lm import DecgraphLM as DecgraphLM

__all__ = ["register"]  # and DecgraphLM, where lm_eval is installed

NAME = "decgraph"


def register() -> None:
    """Make `decgraph` a name of lm_eval's models; a second time changes nothing. Raises DecError without lm_eval."""
    if find_spec("lm_eval") is None:
        raise extras.needed("models", "evals", first="lm_eval")
    import lm_eval.models  # noqa: F401 - its own names first: a registry that is not empty is not filled later
    from lm_eval.api.registry import model_registry

    if NAME not in model_registry:
        model_registry.register(NAME, target="decgraph.evals.lm:DecgraphLM")


def __getattr__(name: str) -> object:
    if name != "DecgraphLM":
        raise AttributeError(f"module 'decgraph.evals' has no attribute {name!r}")
    register()
    from decgraph.evals.lm import DecgraphLM

    return DecgraphLM


if find_spec("lm_eval") is not None:
    register()
