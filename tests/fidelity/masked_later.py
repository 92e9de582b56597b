"""Recordings of masked decoders that no program of stdlib says: what each does that none of them does."""

from __future__ import annotations

DPAD = "cells behind the block that are left out of its calls"
SDLM = "a window whose last token is predicted by the mask before it: sdlm computes a mask of its own for it"
WITHOUT = {
    "dllm/diffusion_gemma": "a model of its own kind: encoder, decoder and self-conditioning",
    "dllm/dkv_cache_dream_decoded": "masks that are decided from the cell before them and not computed themselves, for a shift",
    "dllm/fast_dllm_dream_none": "a quota with a carry of the cells that were not sure, over a canvas without blocks",
    "dllm/sdlm_cache": SDLM,
    "dllm/sdlm_nocache": SDLM,
    "dllm/sdlm_self_speculative": f"{SDLM}, verified by the model's own next tokens",
    "dllm2/arpg": "queries in layers of their own, blind to one another, with guidance; arpg asks a masked model",
    "dllm2/dllm_cache": "stored outputs of layers' halves, renewed where values changed most",
    "dllm2/dpad_dual": DPAD,
    "dllm2/dpad_none": DPAD,
    "dllm2/dpad_prefix": DPAD,
    "dllm2/elastic_cache": "layers computed again from where attention drifts",
    "dllm2/learn2pd_eot": "an end of the text that is predicted, which cuts the canvas",
    "dllm2/wino": "a shadow block behind the canvas that decided cells are checked against",
}
