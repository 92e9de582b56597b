"""Random whole programs, with models, parameters and requests, and their runs on every backend."""
