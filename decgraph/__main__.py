"""`python -m decgraph`: the command line, where its script is not on the PATH."""

import sys

from decgraph.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
