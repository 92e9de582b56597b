"""`pytest -p lib.devices.gpu_plugin`: as on a machine with a CUDA device, as far as the host says whether it has one."""

from __future__ import annotations

import os
from pathlib import Path

import torch

_exists = Path.exists
Path.exists = lambda self, **more: str(self).startswith("/dev/nvidia") or _exists(self, **more)  # type: ignore[method-assign]
torch.cuda.is_available = lambda: os.environ.get("CUDA_VISIBLE_DEVICES") != ""  # as the driver, which reads it once
torch.cuda.device_count = lambda: int(torch.cuda.is_available())
