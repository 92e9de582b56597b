"""Generated Triton kernels, captured steps and the choice of kernel sizes.

Where `--device auto` is the CPU, everything here runs in Triton's interpreter; TRITON_INTERPRET=1 chooses it anywhere. Triton
decides between the two when a kernel is decorated, its own library's included, so the choice is made once, before triton is
imported. All else follows the models' tensors. Products and sums are rounded
one after the other (no fused multiply-add), so that results do not depend on the version of Triton.
"""

from __future__ import annotations

import os
import sys

from decgraph.runtime.placement import Placement

if "TRITON_INTERPRET" not in os.environ and "triton.language" not in sys.modules and Placement().resolved().device == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "0")
