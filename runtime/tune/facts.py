"""The conditions of a measurement: the device, the versions, and the models by their content."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import sys
from pathlib import Path

from decgraph.runtime.models.folders import adapted_from
from decgraph.runtime.placement import Placement

WEIGHTS = (".safetensors", ".gguf")
SETTINGS = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
            "adapter_config.json")  # fmt: skip
SAMPLE, SAMPLES = 1 << 16, 1 << 12


def processor() -> str:
    """The processor's name."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def load() -> float:
    """The load average of the last minute: above the number of cores, others waited for the processor as well."""
    return round(os.getloadavg()[0], 2)


def of_placement(placed: Placement) -> dict[str, object]:
    """`device` (a name), `dtype`, `threads` of the host, and versions: what times depend on besides the models."""
    kind = placed.device.split(":")[0]
    name, threads = processor(), os.environ.get("OMP_NUM_THREADS", "unset")
    if "torch" in sys.modules:
        torch = sys.modules["torch"]
        threads = torch.get_num_threads()
        if kind == "cuda":
            name = f"{torch.cuda.get_device_name(placed.device)}, {processor()}"
    versions = {}
    for package in ("decgraph", "torch", "triton"):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "absent"
    return {"device": f"{kind}: {name}", "dtype": placed.dtype, "cores": os.cpu_count() or 1, "threads": threads, **versions}


def fingerprint(folder: Path) -> str:
    """A model folder's content: its settings, and its weights, and those of the model that an adapter adds to.

    Of files of more than 256 MB the size and 4096 samples of 64 kB, evenly apart: training again or another quantisation
    changes every part of a matrix, and to read a hundred gigabytes takes minutes.
    """
    made = hashlib.sha256()
    try:
        base = adapted_from(folder)
        inside = [folder] if folder.is_file() else [*folder.iterdir(), *(base.iterdir() if base is not None else ())]
        files = sorted(p for p in inside if p.name in SETTINGS or p.suffix in WEIGHTS)
        for path in files:
            size = path.stat().st_size
            made.update(f"{path.name} {size}\n".encode())
            with path.open("rb") as file:
                if path.name in SETTINGS:
                    made.update(file.read())
                    continue
                for number in range(SAMPLES):
                    file.seek(max(number * SAMPLE, number * (size - SAMPLE) // (SAMPLES - 1)))
                    made.update(file.read(SAMPLE))
    except OSError:
        return ""
    return made.hexdigest()[:24] if files else ""


def digest(text: str) -> str:
    """A text's content in a word."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:24]
