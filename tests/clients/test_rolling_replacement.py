"""Apache Kafka's brokers are replaced by klamm's nodes on the same log directories, and back, under load.

Each kind takes over from the other once after a controlled shutdown and once after a SIGKILL. `make
rolling-replacement` replaces all brokers there and back, at two protocol versions.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support import apache_kafka
from tests.support.rolling_replacement import Load, RollingReplacement, three_brokers

RATE = 40


@pytest.fixture
def replacement(tmp_path: Path, client_rounds: int) -> Iterator[RollingReplacement]:
    """Three brokers of Apache Kafka under load."""
    if client_rounds == 1:
        pytest.skip("it takes a minute: `make prove` runs it")
    if why := apache_kafka.why_missing():
        pytest.skip(why)
    cluster = three_brokers(tmp_path / "cluster")
    load = Load(tmp_path / "clients", cluster, RATE, seed=1)
    try:
        cluster.start_first(1)
        cluster.start_others()
        load.start()
        yield RollingReplacement(cluster, load)
    finally:
        load.close()
        cluster.kill()


@pytest.mark.timeout(600)
def test_brokers_replaced_on_their_log_directories_lose_no_record_offset_or_transaction(
    replacement: RollingReplacement,
) -> None:
    problems = {
        "klamm after a controlled shutdown of Apache Kafka": replacement.replace(2, kill=False).problems,
        "klamm after a SIGKILL of Apache Kafka": replacement.replace(3, kill=True).problems,
        "Apache Kafka after a SIGKILL of klamm": replacement.replace(2, kill=True).problems,
        "Apache Kafka after a controlled shutdown of klamm": replacement.replace(3, kill=False).problems,
        "at the end": replacement.finish().problems,
    }
    assert not any(problems.values()), problems
