"""The Hugging Face entry point: an algorithm as the `custom_generate` argument of transformers' `generate`.

The room can be called, and that is its main function:

    model.generate(ids, custom_generate=decgraph.hf("speculative", drafter=small, gamma=5), max_new_tokens=64)

`decgraph.hf(...)` is `custom_generate(...)` below. Importing this needs neither torch nor transformers.
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING

from decgraph.hf.generate import CustomGenerate, custom_generate
from decgraph.hf.repository import export, generate_with

__all__ = ["CustomGenerate", "custom_generate", "export", "generate_with"]


if TYPE_CHECKING:
    Base = object  # a module's `__getattr__` makes every misspelt name an Any
else:
    Base = ModuleType


class HfModule(Base):
    """A module that is also its main function, since one name has to serve for both."""

    __call__ = staticmethod(custom_generate)
    CustomGenerate = CustomGenerate
    export = staticmethod(export)


sys.modules[__name__].__class__ = HfModule  # type: ignore[assignment]
