"""A checkout as a package, and a script that another process goes on with where one ends before it is done."""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOST = 3
"""Exit code of a process whose device does nothing more."""


def from_checkout() -> None:
    """Make `import decgraph` and `import lab` find this checkout: the package's rooms are folders at the root, so it has two
    places. Nothing need be installed."""
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


def supervised(arguments: list[str], script: Path, most: int = 6) -> int:
    """Run a script in another process, and go on in a new one where that one ends before it is done: a kernel that breaks the
    device or never ends costs its item and some seconds. Returns the last exit code."""
    command = [sys.executable, *(["-S"] if sys.flags.no_site else []), str(script.resolve()), "--here", *arguments]
    reader = argparse.ArgumentParser(add_help=False, exit_on_error=False)
    reader.add_argument("--out", type=Path, default=Path("first.json"))
    out = reader.parse_known_args(arguments)[0].out
    out.unlink(missing_ok=True)  # a file of an earlier run is not this one's
    code = 0
    for attempt in range(most):
        code = subprocess.run([*command, *(["--resume"] if attempt else [])], check=False).returncode
        if not out.exists() or json.loads(out.read_text(encoding="utf-8")).get("finished"):
            break
        print(f"the process ended with {code}; the next one goes on", flush=True)
    return code


if __name__ == "__mp_main__":  # a process of a pool, which imports the script again
    from_checkout()
