"""The version of decgraph, as pyproject.toml has it; not in `decgraph`, so that a room need not import the facade."""

__version__ = "0.1.0"
