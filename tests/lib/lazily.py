"""Modules that take seconds to import. A test file that takes them from here imports them when a test reads the first of their
names, so that collecting the file costs nothing. What is patched is patched in the module itself."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class Lazy:
    """Stands for a module and imports it when a name of it is read. pytest looks for `__wrapped__` and
    `_mock_name` on all that a file has."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(import_module(self._module), name)


decoder_module = Lazy("decgraph.runtime.models.decoder.module")
module_layers = Lazy("decgraph.runtime.models.decoder.module_layers")
http_server = Lazy("decgraph.serve.server")
httpx = Lazy("httpx")
ipython = Lazy("IPython.core.interactiveshell")
ipython_capture = Lazy("IPython.utils.capture")
language_server = Lazy("decgraph.editor.server")
lsp = Lazy("lsprotocol.types")
make = Lazy("decgraph.runtime.models.decoder.make")
masked_modules = Lazy("lib.models.masked_modules")
modeling = Lazy("decgraph.zoo.modeling")
peft = Lazy("peft")
processors = Lazy("lib.models.processors")
pygls = Lazy("pygls.exceptions")
transformers = Lazy("transformers")
