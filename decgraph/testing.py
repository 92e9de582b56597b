"""For your own tests: `assert_refines` and hypothesis strategies for models, contexts and requests."""

from decgraph.check.testing import *  # noqa: F403
