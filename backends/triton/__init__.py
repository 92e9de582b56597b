"""Generated Triton kernels, captured steps and the choice of kernel sizes.

Without an NVIDIA device everything here runs in Triton's CPU interpreter. Triton decides between the two when a kernel is
decorated, its own library's included, so the choice is made once, before triton is imported. Products and sums are rounded
one after the other (no fused multiply-add), so that results do not depend on the version of Triton.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

if "TRITON_INTERPRET" not in os.environ and not Path("/dev/nvidiactl").exists() and "triton.language" not in sys.modules:
    os.environ["TRITON_INTERPRET"] = "1"

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "0")
