"""Everything that is due on a GPU, in one run from a bare checkout; README.md says how to call it.

    python lab/gpu/run.py --out gpu.json [--device cuda|cpu] [--sizes 8b|tiny] [--only facts,tokens] [--seconds 510]

Needs torch, transformers, numpy and lark, and nothing installed of this project. Each stage is a generator of
items; an item that fails says so in the result file and the next one runs. The file is written after every item, so a run
that is stopped loses one item at most. It all runs in a second process: where that ends (a kernel that broke the device, one
that never ends), a third goes on with the next item.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOST = 3


def from_checkout() -> None:
    """Make `import decgraph` and `import lab` find this checkout: the package's rooms are folders at the root, so it has two
    places. This script's own folder does not come first in the path any more: it has a file lab.py."""
    sys.path.insert(0, str(ROOT))
    if "decgraph" in sys.modules:
        return
    folder = ROOT / "decgraph"
    spec = importlib.util.spec_from_file_location(
        "decgraph", folder / "__init__.py", submodule_search_locations=[str(folder), str(ROOT)]
    )
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules["decgraph"] = made
    spec.loader.exec_module(made)


def main(arguments: list[str] | None = None) -> int:
    """Run the stages in this process; 0 if every item went well, 1 if one failed or a comparison did not hold, LOST if the
    device is lost and another process has to go on."""
    parser = argparse.ArgumentParser(
        prog="python lab/gpu/run.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="the result file (JSON)")
    parser.add_argument("--device", choices=("cuda", "cpu"), help="cuda where there is one")
    parser.add_argument("--sizes", choices=("8b", "tiny"), help="8b on cuda, tiny on the CPU")
    parser.add_argument("--only", default="", help="stages, comma separated")
    parser.add_argument("--seconds", type=float, default=510, help="no item begins after that long")
    parser.add_argument("--threads", type=int, help="torch's threads on the CPU")
    parser.add_argument("--resume", action="store_true", help="go on with the result file of a process that ended")
    asked = parser.parse_args(arguments)
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from_checkout()
    import torch

    device = asked.device or ("cuda" if torch.cuda.is_available() else "cpu")
    os.environ["TRITON_INTERPRET"] = "0" if device == "cuda" else "1"  # before anything imports triton
    import decgraph.backends.triton  # noqa: F401  # it says how kernels are rounded, before triton is imported
    from lab.gpu.lab import SIZES, Lab
    from lab.gpu.report import Lost, Report
    from lab.gpu.stages import STAGES

    only = [name for name in asked.only.split(",") if name]
    if unknown := sorted(set(only) - set(STAGES)):
        parser.error(f"no stage is called {', '.join(unknown)}; there are {', '.join(STAGES)}")
    if device == "cuda" and not torch.cuda.is_available():
        parser.error("torch sees no GPU here; --device cpu")
    if asked.threads:
        torch.set_num_threads(asked.threads)
    warnings.filterwarnings("ignore", category=FutureWarning)
    lab = Lab(torch.device(device), SIZES[asked.sizes or ("8b" if device == "cuda" else "tiny")])
    about = {"device": device, "sizes": lab.sizes.name}
    report = Report(asked.out, asked.seconds, about, resumed=asked.resume, alive=lab.alive)
    try:
        for name, stage in STAGES.items():
            if not only or name in only:
                report.run(name, stage(lab))
    except Lost as lost:
        print(lost, flush=True)
        return LOST
    report.finish()
    print(report.table())
    return 1 if report.wrong else 0


def supervised(arguments: list[str], most: int = 6, script: Path = Path(__file__)) -> int:
    """Run in another process, and go on in a new one where that one ends before it is done: a kernel that breaks the device or
    never ends costs its item and some seconds."""
    command = [sys.executable, *(["-S"] if sys.flags.no_site else []), str(script.resolve()), "--here", *arguments]
    reader = argparse.ArgumentParser(add_help=False, exit_on_error=False)
    reader.add_argument("--out", type=Path, default=Path("nowhere"))
    out = reader.parse_known_args(arguments)[0].out
    out.unlink(missing_ok=True)  # a file of an earlier run is not this one's
    code = 0
    for attempt in range(most):
        code = subprocess.run([*command, *(["--resume"] if attempt else [])], check=False).returncode
        if not out.exists() or json.loads(out.read_text(encoding="utf-8")).get("finished"):
            break
        print(f"the process ended with {code}; the next one goes on", flush=True)
    return code


if __name__ in ("__main__", "__mp_main__"):
    from_checkout()

if __name__ == "__main__":
    sys.exit(main(sys.argv[2:]) if sys.argv[1:2] == ["--here"] else supervised(sys.argv[1:]))
