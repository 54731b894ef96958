"""The entry point of `klamm`. Exit status: 0, 1 for an error, 2 for a wrong command line, 130 for Ctrl-C.

Everything is imported inside, so that Ctrl-C during the imports is as quiet as later. Typer imports more when it
parses.
"""

import sys
from typing import Final

_INTERRUPTED: Final = 130


def main() -> None:
    """Run the command line; an interrupt exits with its own status."""
    try:
        _run()
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    except RuntimeError as error:  # Python 3.11 raises it for an interrupt in the `__set_name__` of a late import
        if not isinstance(error.__cause__, KeyboardInterrupt):
            raise
        sys.exit(_INTERRUPTED)


def _run() -> None:
    """Run the command and exit: 2 for wrong usage, 1 for other errors of klamm, which are printed."""
    from klamm.runtime.interrupts import exiting_at_once_on_interrupt
    from klamm.runtime.standard_descriptors import open_closed_standard_streams

    with exiting_at_once_on_interrupt(_INTERRUPTED):
        open_closed_standard_streams()
        from klamm.cli.app import app
        from klamm.model.errors import KlammError, UsageError

    try:
        app()
    except KlammError as error:
        print(f"klamm: {error}", file=sys.stderr, flush=True)
        sys.exit(2 if isinstance(error, UsageError) else 1)
    except OSError as error:
        _end_with_system_error(error)


def _end_with_system_error(error: OSError) -> None:
    """Print an error about a file or the output, and exit with 1. Raises any other error of the operating system."""
    from klamm.cli.system_errors import command_error
    from klamm.runtime.standard_streams import discard_output

    told = command_error(error)
    if told is None:
        raise error
    discard_output()  # Python writes what is left in its buffer once more when it ends
    print(f"klamm: {told}", file=sys.stderr, flush=True)
    sys.exit(1)
