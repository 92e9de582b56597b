"""The lowering of ir/ops/attention.py."""

from __future__ import annotations

from decgraph.backends.run import calls
from decgraph.backends.torch.calls import Place, path_of_place
from decgraph.backends.torch.data import whole
from decgraph.backends.torch.lowering import lowering
from decgraph.backends.torch.protocols import Machine
from decgraph.backends.torch.trees import TorchTree
from decgraph.errors import DecError
from decgraph.runtime.models.engine.forward_call import Remembered
from decgraph.runtime.models.interface import Model
from decgraph.runtime.models.reading import valued


@lowering("model.attention")
@calls
def attention(m: Machine, model: Model, place: Place, *rest: object, named: tuple[str, ...] = ()) -> object:
    """How much attention each position is given, computed beside the engine, of which fast attention returns no weights.
    Raises DecError for an empty context, and for a model without it."""
    extra = dict(zip(named, rest, strict=True))
    tree, memory = extra.get("tree"), extra.get("given")
    assert isinstance(tree, TorchTree | None) and isinstance(memory, Remembered | None)
    path = path_of_place(m, place, tree)
    if not path:
        raise DecError("nothing attends in an empty context", hint="ctx.parent exists for prompts of two tokens or more")
    values = model.attention(path, None if memory is None else memory.value, whole(extra.get("last", 1)))
    return valued(m, "prob", values, (len(values),))
