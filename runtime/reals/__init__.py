"""Exact real numbers beyond the rationals: polynomials in roots, powers of e and logs, decided by intervals."""

from decgraph.runtime.reals import functions as functions  # enters what `real.Real.sign` needs of it
