# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-untyped-decorators=False
# Triton reads annotations as part of a kernel, so kernels have none.
"""The bookkeeping of a step as a few kernels, one program for each sequence, instead of dozens of small operations."""

import triton
import triton.language as tl


@triton.jit
def upto(n, word):
    """Word `word` of the bits of the first n tail slots, int32."""
    inside = tl.minimum(tl.maximum(n - 32 * word, 0), 32).to(tl.int64)
    return ((1 << inside) - 1).to(tl.int32)


@triton.jit
def new_cells(
    tokens,
    positions,
    bits,
    rows,
    committed,
    row_length,
    length,
    cached,
    node_tokens,
    nodes,
    ids,
    ids_b,
    depth,
    depth_b,
    own,
    own_b,
    wanted,
    want,
    count,
    LEAD: tl.constexpr,
    MOST_UNCACHED: tl.constexpr,
    WORDS: tl.constexpr,
    BLOCK: tl.constexpr,
    WANT: tl.constexpr,
):
    """The inputs of one forward: LEAD uncached tokens (0, or MOST_UNCACHED, the most there may be) and then `count` nodes.

    tokens, positions: int64[B, T]; bits: int32[B, T, WORDS]; rows: int64[B, want], written here. committed: int64[B,
    row_length]; length, cached: int32[B]. node_tokens: int64[B, nodes]. ids, depth: int64[B or 1, count] (strides ids_b,
    depth_b, 0 for one that all share); own: int32[B or 1, count, WORDS], the tail slots of nodes and their ancestors. wanted:
    int64[want], the nodes whose scores are wanted, -1 for the last uncached token.
    """
    b = tl.program_id(0).to(tl.int64)
    upper = tl.load(length + b)
    lower = tl.load(cached + b)
    uncached = tl.minimum(tl.maximum(upper - lower, 1), MOST_UNCACHED)
    total = LEAD + count
    for start in range(0, total, BLOCK):
        j = start + tl.arange(0, BLOCK)
        early = j < LEAD
        node = (j >= LEAD) & (j < total)
        at = lower + j
        first = tl.load(committed + b * row_length + at, mask=early & (at < row_length), other=0)
        i = tl.maximum(j - LEAD, 0)
        which = tl.load(ids + b * ids_b + i, mask=node, other=0)
        token = tl.where(early, first, tl.load(node_tokens + b * nodes + which, mask=node, other=0))
        below = tl.load(depth + b * depth_b + i, mask=node, other=0)
        tl.store(tokens + b * total + j, tl.maximum(token, 0), mask=j < total)
        tl.store(positions + b * total + j, tl.where(early, at.to(tl.int64), upper - 1 + below), mask=j < total)
        for w in tl.static_range(WORDS):
            mine = tl.load(own + b * own_b + i * WORDS + w, mask=node, other=0)
            chain = tl.where(j < uncached, upto(j + 1, w), 0)
            sees = tl.where(early, chain, mine | upto(uncached, w))
            tl.store(bits + (b * total + j) * WORDS + w, sees, mask=j < total)
    r = tl.arange(0, WANT)
    cell = tl.load(wanted + r, mask=r < want, other=0)
    tl.store(rows + b * want + r, tl.where(cell < 0, uncached - 1, cell), mask=r < want)


@triton.jit
def commit_tokens(
    kept,
    committed,
    row_length,
    length,
    base,
    limit,
    done,
    lost,
    ends,
    tokens,
    count,
    n,
    ENDS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Append the first count[b] of tokens int64[B, n], as runtime/stop.py cuts them. kept: int32[B], how many were. done, lost:
    uint8[B]; a sequence that is over stays as it is, one that would commit nothing or an invalid token is lost."""
    b = tl.program_id(0).to(tl.int64)
    k = tl.arange(0, BLOCK)
    live = (tl.load(done + b) + tl.load(lost + b)) == 0
    old = tl.load(length + b)
    offered = k < tl.minimum(tl.where(live, tl.load(count + b), 0), n)
    token = tl.load(tokens + b * n + k, mask=offered, other=0)
    stops = offered & (old - tl.load(base + b) + 1 + k >= tl.load(limit + b))
    for e in tl.static_range(ENDS):
        stops = stops | (offered & (token == tl.load(ends + b * ENDS + e)))
    first = tl.min(tl.where(stops, k, BLOCK), 0)
    keep = offered & (k <= first)
    made = tl.sum(keep.to(tl.int32), 0)
    none = tl.sum((keep & (token < 0)).to(tl.int32), 0)
    bad = live & ((made == 0) | (none > 0))
    tl.store(committed + b * row_length + old + k, token, mask=keep)
    tl.store(length + b, old + made)
    tl.store(kept + b, made)
    tl.store(done + b, ((tl.load(done + b) != 0) | (first < BLOCK)).to(tl.uint8))
    tl.store(lost + b, ((tl.load(lost + b) != 0) | bad).to(tl.uint8))


@triton.jit
def compact_cache(
    source,
    moved,
    after,
    length,
    cached,
    kept,
    path,
    deepest,
    cells,
    cells_b,
    MOST_UNCACHED: tl.constexpr,
    BACK: tl.constexpr,
    WITH_PATH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The slots that a model keeps after a commit. source: int64[B, MOST_UNCACHED + deepest] and moved: int32[B], as
    `DeviceModel.move` takes them; after: int32[B], the cached count afterwards. length (as it is now), cached, kept: int32[B].
    path: int64[B, deepest], accepted nodes (below 1: none); cells: int64[B or 1, N], the tail slot of each node, -1 for none.
    Without a path only the uncached tokens' slots are kept, and nothing moves."""
    b = tl.program_id(0).to(tl.int64)
    upper = tl.load(length + b)
    before = tl.load(cached + b)
    added = tl.load(kept + b)
    uncached = tl.minimum(tl.maximum(upper - added - before, 1), MOST_UNCACHED)
    run = uncached * 0
    if WITH_PATH:
        j = tl.arange(0, BLOCK)
        node = tl.load(path + b * deepest + j, mask=j < deepest, other=0)
        cell = tl.load(cells + b * cells_b + node, mask=node > 0, other=-1)
        run = tl.min(tl.where((j < deepest) & (cell < 0), j, deepest), 0)
    now = tl.maximum(tl.minimum(before + uncached + run, upper - BACK), 0)
    now = tl.where(added > 0, now, before)
    tl.store(after + b, now)
    if WITH_PATH:
        j = tl.arange(0, BLOCK)
        back = tl.maximum(j - uncached, 0)
        node = tl.load(path + b * deepest + back, mask=(j >= uncached) & (back < deepest), other=0)
        cell = tl.load(cells + b * cells_b + node, mask=node > 0, other=0)
        tl.store(
            source + b * (MOST_UNCACHED + deepest) + j,
            tl.where(j < uncached, j.to(tl.int64), tl.maximum(cell, 0)),
            mask=j < MOST_UNCACHED + deepest,
        )
        tl.store(moved + b, tl.maximum(tl.minimum(uncached + run, now - before), 0))


@triton.jit
def accepted_path(
    tokens, count, offered, tested, accepted, deepest, done, lost, packed, head, depth, node_tokens, nodes, BLOCK: tl.constexpr
):
    """The result of a verification as a path. tokens: int64[B, depth + 1], of the accepted nodes and the emitted one; count:
    int32[B], accepted nodes; offered: int32[B], tokens. tested, accepted: int64[B, deepest], added to. packed: int64[B, head +
    3 depth], `Walked`. A fault of the rule, or a node of node_tokens int64[B, nodes] without a token, marks the sequence as
    lost."""
    b = tl.program_id(0).to(tl.int64)
    at = packed + b * (head + 3 * depth)
    n = tl.load(at + 1).to(tl.int32)
    emitted = tl.load(at + 2)
    live = (tl.load(done + b) + tl.load(lost + b)) == 0
    k = tl.arange(0, BLOCK)
    node = tl.load(at + head + k, mask=k < depth, other=0)
    token = tl.load(node_tokens + b * nodes + tl.maximum(node, 0), mask=k < depth, other=0)
    tl.store(tokens + b * (depth + 1) + k, tl.where(k == n, emitted, token), mask=k <= depth)
    tl.store(count + b, n)
    tl.store(offered + b, n + (emitted >= 0).to(tl.int32))
    counts = k < tl.where(live, depth, 0)
    for which in tl.static_range(2):
        into = (tested if which == 0 else accepted) + b * deepest + k
        more = tl.load(at + head + depth + 2 * k + which, mask=counts, other=0)
        tl.store(into, tl.load(into, mask=counts, other=0) + more, mask=counts)
    none = k * 0
    for start in range(1, nodes, BLOCK):
        i = start + k
        none = none | (tl.load(node_tokens + b * nodes + i, mask=i < nodes, other=0) < 0).to(tl.int32)
    bad = (tl.load(at + 3) != 0) | (tl.max(none, 0) > 0)
    tl.store(lost + b, ((tl.load(lost + b) != 0) | (bad & live)).to(tl.uint8))
