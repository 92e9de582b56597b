"""python -m decgraph.evals: lm_eval's command, with `--model decgraph`."""

from __future__ import annotations

import sys

from decgraph.errors import DecError
from decgraph.evals import register


def main() -> int:
    """Run lm_eval's command on this process's arguments. Returns the exit code."""
    try:
        register()
        from lm_eval.__main__ import cli_evaluate

        cli_evaluate()
    except DecError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
