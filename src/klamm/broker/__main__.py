"""`python -m klamm.broker FILE` runs a node, as `klamm node FILE` does, without loading the command line."""

import sys

from klamm.runtime.quick_imports import quick_imports
from klamm.runtime.standard_descriptors import open_closed_standard_streams

open_closed_standard_streams()
with quick_imports("rich"):  # structlog would import it for logs on a terminal, which a node does not write
    from klamm.broker.run import run_node
    from klamm.runtime.main_loop import end_process

end_process(run_node(sys.argv[1]))
