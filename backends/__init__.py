"""The backends that run a module: reference, exact, torch and triton."""
