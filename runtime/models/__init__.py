"""Models: the interface, and one adapter per file. Nothing here imports torch until an adapter that needs it
is used."""
