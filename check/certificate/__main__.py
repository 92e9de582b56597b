"""`python -m decgraph.check.certificate PROGRAM CERTIFICATE`: a .dec file or printed IR, and a file of certificates (`decgraph
check NAME --certificate FILE`). Exit code 0 if every one shows its claim, 1 with the line and the fact that does not follow, 2
for files that cannot be read."""

import json
import sys
from pathlib import Path

from decgraph.check.certificate.claims import verify
from decgraph.dsl.lower import load_text
from decgraph.errors import DecError
from decgraph.ir.text import parse_module


def main(words: list[str]) -> int:
    """Check one certificate: the exit code, 0 where it is accepted, 1 where not, 2 for other words."""
    if len(words) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        text = Path(words[0]).read_text(encoding="utf-8")
        module = parse_module(text) if text.startswith("module(") else load_text(text, words[0])
        data = json.loads(Path(words[1]).read_text(encoding="utf-8"))
    except (OSError, ValueError, DecError) as error:
        print(error, file=sys.stderr)
        return 2
    lines, well = verify(module, data)
    print("\n".join(lines))
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
