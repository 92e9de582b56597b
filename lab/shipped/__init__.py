"""How the shipped models are made and measured: `python -m lab shipped.train`, `python -m lab shipped.evaluate`."""
