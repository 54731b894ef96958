"""Each client sends with each codec, with and without idempotence, and reads back what it sent, byte by byte.

`--records` says how many: few in `make test`, 100,000 in `make client-codecs`.
"""

import itertools

import pytest
from tests.support import apache_kafka
from tests.support.cluster import Cluster
from tests.support.records import CODECS, check_each_record_once, make_records
from tests.support.witnesses import WITNESSES, JavaConsole, Witness

KINDS = {"idempotent": True, "plain": False}
FULL_RECORDS = 100_000
_numbers = itertools.count()


def a_topic(cluster: Cluster, partitions: int) -> str:
    """Create a topic with a new name."""
    name = f"codecs-{next(_numbers)}"
    cluster.create_topic(name, partitions, copies=3, config={"min.insync.replicas": "2"})
    return name


def available(witness: Witness) -> Witness:
    if isinstance(witness, JavaConsole) and (why := apache_kafka.why_missing()):
        pytest.skip(why)
    return witness


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """All combinations; where few records are sent, Java's idempotent producer uses zstd alone: two JVMs start each."""
    if "idempotent" not in metafunc.fixturenames:
        return
    sends_few = metafunc.config.getoption("--records") < FULL_RECORDS
    cases = [
        pytest.param(witness, codec, idempotent, id=f"{witness.name}-{codec}-{kind}")
        for witness, codec, (kind, idempotent) in itertools.product(WITNESSES, CODECS, KINDS.items())
        if not (sends_few and isinstance(witness, JavaConsole) and idempotent and codec != "zstd")
    ]
    metafunc.parametrize(("witness", "codec", "idempotent"), cases)


def test_each_client_reads_back_its_own_records_with_every_compression_codec(
    cluster: Cluster, witness: Witness, codec: str, idempotent: bool, record_count: int
) -> None:
    client = available(witness)
    partitions = 1 if isinstance(client, JavaConsole) else 2
    topic = a_topic(cluster, partitions)
    records = make_records(record_count, printable=client.printable)

    client.send(cluster.bootstrap, topic, records, codec, idempotent)
    found = client.read(cluster.bootstrap, topic, partitions, len(records))

    check_each_record_once(records, found, timestamps=not client.printable)


@pytest.mark.parametrize("writer", WITNESSES, ids=lambda w: w.name)
def test_each_client_reads_records_that_another_client_produced(
    cluster: Cluster, writer: Witness, record_count: int
) -> None:
    topic = a_topic(cluster, 1)
    records = make_records(record_count, printable=True)

    available(writer).send(cluster.bootstrap, topic, records, "zstd", idempotent=True)

    for reader in WITNESSES:
        found = available(reader).read(cluster.bootstrap, topic, 1, len(records))
        check_each_record_once(records, found, timestamps=not writer.printable)
