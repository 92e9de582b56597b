"""The algorithms of stdlib/ on small models."""
