"""The shipped models: their folders, data recipe and training."""
