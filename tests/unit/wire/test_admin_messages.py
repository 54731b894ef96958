"""Bytes of administration messages, written out by hand from Kafka's schemas; the other codecs check the rest."""

from typing import Any

import pytest

from klamm.wire import messages as m

DELETE = m.DeleteRecordsRequest([m.DeleteRecordsTopic("o", [m.DeleteRecordsPartition(3, -1)])], 1000)
DELETED = m.DeleteRecordsResponse(
    topics=[m.DeleteRecordsTopicResult("o", [m.DeleteRecordsPartitionResult(3, 5, 7)])], throttle_time_ms=2
)
MOVE = m.AlterReplicaLogDirsRequest([m.AlterReplicaLogDir("/d", [m.AlterReplicaLogDirTopic("o", (3, 4))])])
MOVED = m.AlterReplicaLogDirsResponse(
    throttle_time_ms=2,
    results=[m.AlterReplicaLogDirTopicResult("o", [m.AlterReplicaLogDirPartitionResult(3, 57)])],
)
GOLDEN = {
    "DeleteRecords v0": (DELETE, 0, "00000001 0001 6f 00000001 00000003 ffffffffffffffff 000003e8"),
    "DeleteRecords v2": (DELETE, 2, "02 02 6f 02 00000003 ffffffffffffffff 00 00 000003e8 00"),
    "DeleteRecords response v1": (DELETED, 1, "00000002 00000001 0001 6f 00000001 00000003 0000000000000005 0007"),
    "DeleteRecords response v2": (DELETED, 2, "00000002 02 02 6f 02 00000003 0000000000000005 0007 00 00 00"),
    "AlterReplicaLogDirs v1": (
        MOVE, 1, "00000001 0002 2f64 00000001 0001 6f 00000002 00000003 00000004",
    ),
    "AlterReplicaLogDirs v2": (MOVE, 2, "02 03 2f64 02 02 6f 03 00000003 00000004 00 00 00"),
    "AlterReplicaLogDirs response v1": (MOVED, 1, "00000002 00000001 0001 6f 00000001 00000003 0039"),
    "AlterReplicaLogDirs response v2": (MOVED, 2, "00000002 02 02 6f 02 00000003 0039 00 00 00"),
}  # fmt: skip


@pytest.mark.parametrize(("message", "version", "wire"), GOLDEN.values(), ids=GOLDEN)
def test_encoded_admin_messages_are_byte_identical_to_kafkas(message: Any, version: int, wire: str) -> None:
    assert bytes(message.encode(version)) == bytes.fromhex(wire)
    assert message.decode(bytes.fromhex(wire), version) == message
