"""Recordings of masked decoders that no program of stdlib says: what each does that none of them does."""

from __future__ import annotations

WITHOUT = {
    "dllm/dkv_cache_dream_decoded": "no call after the first can be said: it computes cell i where cell i + 1 was masked a "
    "call ago, and decides cell i + 1 there, for a shift, so a mask before a decided cell is decided without being computed; "
    "`model(c, at = b)` computes the cells whose predictions it returns, and reads the state before them in the memory",
    "dllm2/arpg": "queries in layers of their own, blind to one another, with guidance; arpg asks a masked model",
    "dllm2/dllm_cache": "no program: a call goes through all cells, but a layer adds the outputs of its attention and MLP "
    "that it stored for the prompt's or the canvas's cells in an earlier call, and computes those of the cells anew whose "
    "values differ most from the stored ones; a memory holds keys, values and last states, and no such outputs",
    "dllm2/elastic_cache": "layers computed again from where attention drifts",
    "dllm/sdlm_self_speculative": "a call has a row for every place where the drafted window may break off, and sees no cell "
    "behind that row's own window of masks (sdlm_inference.py:302)",
    "dllm2/wino": "a second, masked copy of a block beside it at the same positions: in a call a position has one cell",
}
