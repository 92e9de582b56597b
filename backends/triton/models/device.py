"""The device model of a runtime model."""

from __future__ import annotations

from decgraph.backends.triton.models.interface import DeviceModel
from decgraph.backends.triton.pages import Pages
from decgraph.backends.triton.support import NotSteppable
from decgraph.errors import DecError
from decgraph.runtime.models.interface import Model
from decgraph.runtime.models.sharing import original_of


def step_model(model: Model, pages: Pages, *, target: DeviceModel | None = None) -> DeviceModel:
    """A runtime model over the lanes of a page table, on its device; a loaded model stays where its weights are.

    target: the device model of the target whose states a head reads (`features` models). Raises NotSteppable, with the reason,
    for a model that has no such form.
    """
    try:
        return _made(model, original_of(model), pages, target)
    except DecError as error:  # a module that cannot run over caches, or reads values on the host
        raise NotSteppable(str(error.diagnostics[0]).removeprefix("error: ")) from error


def _made(model: Model, whole: Model, pages: Pages, target: DeviceModel | None) -> DeviceModel:
    from decgraph.backends.triton.models.table import PathModel, is_function_of_paths

    if is_function_of_paths(whole):
        return PathModel(model, whole, pages)
    from decgraph.backends.triton.models.loaded import loaded_model  # with which transformers comes

    return loaded_model(model, whole, pages, target)


DeviceModel.of = staticmethod(step_model)
