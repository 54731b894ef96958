"""`python -m klamm` is the command `klamm`."""

from klamm.cli.main import main

main()
