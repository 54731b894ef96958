"""Whether our controller does in a script what Apache Kafka's was recorded to do."""

from pathlib import Path

from tests.differential.comparison import differences, merges_requests, play, recorded, script_of
from tests.differential.expected_differences import expected, is_always_expected
from tests.differential.nodes import start_klamm, start_klamm_unmerged
from tests.differential.transcript import Difference

from klamm.embedded.zookeeper import ZooKeeperServer


async def judged(
    name: str, server: ZooKeeperServer, directory: Path, prefix: str = "/judged"
) -> tuple[list[Difference], list[Difference]]:
    """Unexpected differences, and expected ones that are gone; the chroot begins with the prefix."""
    own_directory = directory / name
    own_directory.mkdir()
    merged = merges_requests(name)
    start = start_klamm if merged else start_klamm_unmerged
    steps = await play(script_of(name), start, server, f"{prefix}-{name}", own_directory)
    found = [d for d in differences(recorded(name), steps, merged=merged) if not is_always_expected(d)]
    return [d for d in found if d not in expected(name)], [d for d in expected(name) if d not in found]
