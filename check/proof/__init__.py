"""Proofs of claims: derivations for every vocabulary, model, context and request, and the kernel that re-checks them."""
