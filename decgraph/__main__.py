"""`python -m decgraph`: the command line, where its script is not on the PATH."""

import sys

from decgraph.cli.main import main

sys.exit(main())
