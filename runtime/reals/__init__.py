"""Exact real numbers beyond the rationals: polynomials in roots, powers of e and logs, decided by intervals."""
