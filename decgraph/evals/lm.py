"""lm_eval's Hugging Face model with an algorithm of decgraph's as its decoding.

Requests reach transformers' `generate` as they do in lm_eval's own class, with the algorithm as `custom_generate`: settings,
stop sequences, padding, truncation and chat templates are lm_eval's own. Log-likelihoods are the module's.
"""

from __future__ import annotations

import difflib
import inspect
from pathlib import Path
from typing import Any

from lm_eval.models.huggingface import HFLM

from decgraph import api, zoo
from decgraph.errors import DecError
from decgraph.hf.generate import custom_generate, names_of
from decgraph.runtime.arguments import AlgorithmLike
from decgraph.version import __version__
from decgraph.zoo import folder_of

_OWN = frozenset(inspect.signature(HFLM.__init__).parameters)
"""The arguments of lm_eval's class, which go to it; a parameter of an algorithm with one of these names cannot be given."""


class DecgraphLM(HFLM):
    """A causal model of transformers whose texts are decoded by an algorithm.

    pretrained: as in lm_eval's class, or the name of a shipped or fetched model. algorithm: a name, a `.dec` file, or an
    `Algorithm`; its other models and its parameters are arguments by their own names (`drafter=FOLDER`, `gamma=4`).
    decgraph_backend: torch, triton or reference. seed: of the noise of sampled requests; left out, it is drawn from torch's
    generator, which lm_eval seeds. Everything else is lm_eval's: batch_size, dtype, device, max_length, peft.

    `results["config"]` has the algorithm, and how many tokens it committed in how many calls of the target.

    Raises DecError for an algorithm, model or parameter that does not fit, as `decgraph.hf` does.
    """

    def __init__(
        self,
        pretrained: Any,
        algorithm: AlgorithmLike = "autoregressive",
        *,
        decgraph_backend: str | None = None,
        seed: int | None = None,
        **arguments: Any,
    ) -> None:
        chosen = api.of(algorithm)
        names = set(names_of(chosen)) - _OWN
        mine = {name: arguments.pop(name) for name in sorted(names & arguments.keys())}
        _check_spelling(chosen, arguments, names)
        # before the model, which takes seconds
        self.decode = custom_generate(chosen, backend=decgraph_backend, seed=seed, **mine)
        self.tokens = self.target_calls = 0
        known = isinstance(pretrained, str) and not Path(pretrained).is_dir() and pretrained in [*zoo.names(), *zoo.fetchable()]
        super().__init__(str(folder_of(pretrained)) if known else pretrained, **arguments)

    def _model_generate(self, context: Any, max_length: int, stop: list[str], **generation_kwargs: Any) -> Any:
        """int64[B, T + n]: a batch of prompts [B, T], padded on the left, with their continuations."""
        self.decode.batch = len(context)
        made = super()._model_generate(context, max_length, stop, custom_generate=self.decode, **generation_kwargs)
        self.tokens += sum(len(result.tokens) for result in self.decode.last)
        self.target_calls += sum(result.stats.target_calls for result in self.decode.last)
        return made

    def get_model_info(self) -> dict[str, Any]:
        """lm_eval's facts about the model, with the algorithm's."""
        per_call = round(self.tokens / self.target_calls, 3) if self.target_calls else None
        return {
            **super().get_model_info(),
            "decgraph": __version__,
            "decgraph_algorithm": repr(self.decode.algorithm),
            "decgraph_params": {name: str(value) for name, value in self.decode.params.items()},
            "decgraph_tokens": self.tokens,
            "decgraph_target_calls": self.target_calls,
            "decgraph_tokens_per_call": per_call,
        }


def _check_spelling(algorithm: api.Algorithm, arguments: dict[str, Any], names: set[str]) -> None:
    """Raises DecError for an argument that nobody knows and that is nearly one of the algorithm's: transformers would take it
    for a setting of the model."""
    for name in arguments:
        near = difflib.get_close_matches(name, names, 1, 0.7) if name not in _OWN else []
        if near:
            raise DecError(f"{algorithm.name} has no `{name}`", hint=f"did you mean {near[0]}?")
