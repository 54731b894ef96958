"""`klamm replicas verify` where logs have messages of the formats 0 and 1: it compares nothing, and finds no damage."""

import shutil
from pathlib import Path

import pytest
from tests.support.old_messages import message_set, old_records
from tests.support.scripted_brokers import ScriptedLog
from tests.unit.audit.test_replica_verification import NAMES, verified
from tests.unit.log.support import batch
from tests.unit.spark.scripts import scripted
from tests.unit.spark.test_old_formats_in_log_dirs import store

from klamm.audit.replicas.brokers import ReplicaBrokers
from klamm.audit.replicas.fetched import FetchedReplicaLog
from klamm.audit.replicas.verification import Verified, verify_partition
from klamm.client.blocking import BlockingClient, BlockingSettings
from klamm.model.cluster import Address
from klamm.model.ids import BrokerId, TopicPartition
from klamm.wire.compression import Codec

ORDERS = TopicPartition("orders", 0)
NEW = batch("new", base_offset=0, epoch=0)


def verified_by_fetch(content: bytes, end: int) -> Verified:
    """Broker 1 answers with these bytes, which are all of the log."""
    world = scripted(orders_0=ScriptedLog(1, [(0, end - 1, content)]))
    address = Address("one", 9092)
    with BlockingClient(world, [address], BlockingSettings("test", 1.0, 1.0)) as client:
        client.run(client.cluster.refresh(()))
        log = FetchedReplicaLog(ReplicaBrokers(client, 1.0), BrokerId(1), ORDERS, None, is_compacted=False)
        return verify_partition(ORDERS, [log])


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
async def test_stored_replicas_with_old_messages_are_not_damaged(tmp_path: Path, codec: Codec) -> None:
    await store(tmp_path / "one", NEW, message_set(old_records(1, range(1, 9)), 1, codec))
    for name in NAMES[1:]:
        shutil.copytree(tmp_path / "one", tmp_path / name)

    found = verified(tmp_path)

    assert not found.divergences
    assert "format 0 or 1" in found.unavailable[0]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("first", [b"", NEW])
def test_fetched_replicas_with_old_messages_are_not_damaged(magic: int, first: bytes) -> None:
    content = message_set(old_records(magic, range(bool(first), 9)), magic, Codec.NONE)

    found = verified_by_fetch(first + content, 9)

    assert not found.divergences
    assert "has format 0 or 1" in found.unavailable[0]


def test_a_fetched_old_message_shorter_than_a_header_of_format_2_is_noticed() -> None:
    content = message_set(old_records(0, range(1)), 0, Codec.NONE)
    assert len(content) < 61

    assert "has format 0 or 1" in verified_by_fetch(content, 1).unavailable[0]


def test_a_fetched_batch_whose_header_only_looks_old_is_damaged() -> None:
    content = bytearray(NEW)
    content[16] = 0

    (found,) = verified_by_fetch(bytes(content), 1).divergences

    assert found.offset == 0
