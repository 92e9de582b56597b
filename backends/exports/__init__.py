"""Programs as drafters of other engines: which fit (fits.py), how one is run there (drafter.py), and a file for each engine."""
