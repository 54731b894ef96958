"""Standard output whose reader goes away."""

import subprocess
import sys

WAITS = """
import asyncio
from klamm.runtime.standard_streams import discard_output, on_output_closed

async def main():
    closed = asyncio.Event()
    on_output_closed(closed.set)
    print("waiting", flush=True)
    await closed.wait()
    discard_output()

asyncio.run(main())
"""


def test_a_program_that_writes_nothing_learns_that_the_reader_of_its_output_has_closed_it() -> None:
    with subprocess.Popen([sys.executable, "-c", WAITS], stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"waiting\n"
        assert program.poll() is None

        program.stdout.close()

        assert program.wait(60) == 0
