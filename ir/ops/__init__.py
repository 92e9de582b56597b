"""The ops, by topic. Importing this package fills the op table (ir/table.py).

A meaning is `meaning(m, op, *operands)`. Of the machine `m` (backends/reference/machine.py) ops use: `m.num` (numbers),
`m.region(region, args)` (run a region, get its yields), `m.request`, `m.context()`, `m.commit(tokens)`, `m.done()`,
`m.ended(path)`, `m.state`, `m.draw / draw_many / draw_race / flip` (randomness), `m.evaluate` (models) and `m.host`.
"""

from decgraph.ir.ops import (  # noqa: F401
    attention,
    canvases,
    control,
    distributions,
    draws,
    heads,
    hidden,
    host,
    limits,
    memories,
    models,
    ordering,
    parts,
    paths,
    request,
    selection,
    sequences,
    stores,
    tree_columns,
    trees,
    vectors,
)
