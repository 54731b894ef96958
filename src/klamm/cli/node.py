"""`klamm node`: one node as a process. `python -m klamm.cli.node FILE` is the same without the command line's weight."""

import sys

from klamm.broker.run import run_node

__all__ = ["run_node"]

if __name__ == "__main__":
    sys.exit(run_node(sys.argv[1]))
