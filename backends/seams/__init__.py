"""Programs inside other engines: a step whose model is the engine's (seam.py), a core for each kind of interface (rows.py,
drafts.py, blocks.py), a template for each engine, and which programs fit where (fits.py)."""
