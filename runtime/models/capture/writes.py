"""Pass: new keys and values go into the caches by the cheapest operation in place.

Why: `put` writes any rows of any sequence and computes its index again in every layer. With one sequence it is
`index_copy_`, with many `index_put_` whose index is computed once a call.

Precondition: caches are [B, H, S, D]; with `one`, B is 1 in every call of this graph. Attention reads the
cache after the write: nodes keep their order.

    before   k = put(keys[0], new, write)
    after    keys[0].index_copy_(2, rows, new)                        rows = write.view(-1)      (one)
             keys[0].transpose(1, 2).index_put_((b, write), new.transpose(1, 2))                  (many)
"""

from __future__ import annotations

from torch import fx

from decgraph.runtime.models.capture.program import CapturedGraph, dtype_of, is_op, shape_of


def writes(program: CapturedGraph, *, one: bool) -> None:
    """Replaces every `put` by an in-place write into the cache; `one`: B is 1 in every call."""
    found = program.of("put")
    if not found:
        return
    write = program.input("write")
    index: fx.Node | tuple[fx.Node, fx.Node]
    with program.before(found[0]):
        if one:
            index = program.make("view", (write, (-1,)), shape=("T",), dtype=dtype_of(write))
        else:
            count = program.size("B")
            numbers = program.make("arange", (count,), shape=("B",), dtype=dtype_of(write), device=program.device)
            index = (program.make("unsqueeze", (numbers, 1), shape=("B", 1), dtype=dtype_of(write)), write)
    for node in found:
        cache, new, _ = node.args
        assert isinstance(cache, fx.Node) and isinstance(new, fx.Node)
        layer = node.meta["layer"]
        with program.before(node):
            if one:
                program.make("index_copy_", (cache, 2, index, new), shape=None, dtype=None, layer=layer)
            else:
                turned = program.make("transpose", (cache, 1, 2), shape=None, dtype=None, layer=layer)
                program.make("index_put_", (turned, index, _heads_second(program, new)), shape=None, dtype=None, layer=layer)
        program.replace(node, cache)
    program.sweep()


def _heads_second(program: CapturedGraph, new: fx.Node) -> fx.Node:
    """[B, H, T, D] as [B, T, H, D]."""
    if is_op(new, "transpose") and new.args[1:] in ((1, 2), (2, 1)) and isinstance(new.args[0], fx.Node):
        return new.args[0]
    shape = shape_of(new)
    turned = None if shape is None else (shape[0], shape[2], shape[1], shape[3])
    return program.make("transpose", (new, 1, 2), shape=turned, dtype=dtype_of(new), layer=new.meta["layer"])
