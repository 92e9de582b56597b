"""Recordings of masked decoders that no program of stdlib says: what each does that none of them does."""

from __future__ import annotations

WITHOUT = {
    "dllm/dkv_cache_dream_decoded": "masks that are decided from the cell before them and not computed themselves, for a shift",
    "dllm2/arpg": "queries in layers of their own, blind to one another, with guidance; arpg asks a masked model",
    "dllm2/dllm_cache": "stored outputs of layers' halves, renewed where values changed most",
    "dllm2/elastic_cache": "layers computed again from where attention drifts",
    "dllm2/wino": "a second, masked copy of a block beside it at the same positions: in a call a position has one cell",
}
