"""`klamm node`. `python -m klamm.cli.node FILE` does the same without the weight of the command line."""

import sys

from klamm.broker.run import run_node

__all__ = ["run_node"]

if __name__ == "__main__":
    sys.exit(run_node(sys.argv[1]))
