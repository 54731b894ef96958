"""`python -m klamm.broker FILE` runs a node, as `klamm node FILE` does, without loading the command line."""

import sys

from klamm.broker.run import run_node

sys.exit(run_node(sys.argv[1]))
